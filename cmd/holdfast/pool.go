package main

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/dvir"
	"github.com/holdfast-dvir/holdfast/process"
)

func (s *service) openPool() error {
	rules, err := loadRules(s.cfg.DvirConfig)
	if err != nil {
		return err
	}
	command, err := childCommand()
	if err != nil {
		return err
	}
	desk := process.DeskConfig{Queue: s.queue, State: s.state, Store: s.store, Routes: s.routes, Log: s.log}
	cfg := process.Config{Queue: s.queue, State: s.state, Store: s.store, Node: s.node, Log: s.log, Routes: s.routes}
	for i := range s.targets.Processors {
		p := &s.targets.Processors[i]
		var builtin process.Processor
		if p.Kind == "builtin" {
			p.Workers = cmp.Or(p.Workers, s.cfg.Workers)
			s.children = process.NewChildren(command, rules, p.limits())
			builtin = &process.Builtin{Children: s.children, Queue: s.queue, Records: s.state, Store: s.store}
		}
		t, err := p.target(builtin, command)
		if err != nil {
			return exitf(exitRefused, "%s: processor %s: %s", s.cfg.Processors, p.Name, err)
		}
		cfg.Targets = append(cfg.Targets, t)
		if p.Kind == "pull" {
			desk.Targets = append(desk.Targets, p.Name)
		}
	}
	s.pool, s.desk = process.NewPool(cfg), process.NewDesk(desk)
	return nil
}

// loadRules reads the site configuration of the built-in processor in path, if there is one.
func loadRules(path string) (cfg dvir.Config, err error) {
	if path == "" {
		return cfg, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return cfg, err
	}
	if cfg, err = dvir.ParseConfig(data); err == nil {
		_, err = dvir.New(cfg)
	}
	if err != nil {
		return cfg, &exitError{exitRefused, err.Error()}
	}
	return cfg, nil
}

// nodeID names this instance over restarts, so that it knows its own leases again.
func nodeID(path string) (string, error) {
	text, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(text)); err == nil && chain.ValidToken(id) {
		return id, nil
	}
	var random [6]byte
	rand.Read(random[:])
	id := "node-" + hex.EncodeToString(random[:])
	return id, os.WriteFile(path, []byte(id+"\n"), 0o600)
}
