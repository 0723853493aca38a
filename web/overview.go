package web

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Group is the letters of one disposition with one error code.
type Group struct {
	Disposition chain.Disposition `json:"disposition"`
	ErrorCode   string            `json:"error_code,omitempty" doc:"Absent when nothing failed yet"`
	Stage       chain.Stage       `json:"stage,omitempty"`
	Count       uint64            `json:"count"`
	Oldest      time.Time         `json:"oldest" doc:"First seen"`
	Newest      time.Time         `json:"newest"`
	Sample      chain.Digest      `json:"sample" doc:"Reference of the oldest"`
}

// Groups are groups, the largest first.
type Groups struct {
	Groups []Group `json:"groups"`
}

// Stats is the log and the backlog at a glance.
type Stats struct {
	Version     string                                         `json:"version"`
	Origin      string                                         `json:"origin"`
	LogID       string                                         `json:"log_id"`
	Events      uint64                                         `json:"events" doc:"How many the state has folded"`
	Leaf        chain.Digest                                   `json:"leaf_hash" doc:"Of the last event"`
	Letters     map[chain.Disposition]uint64                   `json:"letters" doc:"By disposition"`
	Channels    map[chain.Disposition]map[chain.Channel]uint64 `json:"channels" doc:"Letters by disposition and channel"`
	Oldest      map[chain.Disposition]time.Time                `json:"oldest" doc:"First seen, by disposition, of open letters"`
	Leased      uint64                                         `json:"leased" doc:"Letters being worked on"`
	Waiting     uint64                                         `json:"waiting" doc:"Letters that wait for a worker or their time"`
	NextDue     time.Time                                      `json:"next_due,omitzero"`
	Fingerprint *Fingerprint                                   `json:"fingerprint,omitempty" doc:"When asked for"`
}

// Fingerprint is the hash over the whole state at a head of the log.
type Fingerprint struct {
	SHA256 chain.Digest `json:"sha256"`
	Events uint64       `json:"events"`
	Leaf   chain.Digest `json:"leaf_hash"`
}

type groupsInput struct{ Filter }
type groupsOutput struct{ Body Groups }

type statsInput struct {
	Fingerprint bool `query:"fingerprint" doc:"Hash the whole state; this reads all of it"`
}
type statsOutput struct{ Body Stats }

func (a *api) overviewRoutes() {
	register(a, huma.Operation{Method: "GET", Path: "/v1/groups", OperationID: "groups", Summary: "Letters by disposition and error code",
		Description: "Without disposition, of the open letters."}, a.groups)
	register(a, huma.Operation{Method: "GET", Path: "/v1/stats", OperationID: "stats", Summary: "The log and the backlog at a glance"}, a.stats)
}

func (a *api) groups(ctx context.Context, in *groupsInput) (*groupsOutput, error) {
	_ = a.catchUp(ctx)
	groups, err := a.State.Groups(in.filter())
	if err != nil {
		return nil, err
	}
	out := &groupsOutput{Groups{Groups: []Group{}}}
	for _, g := range groups {
		out.Body.Groups = append(out.Body.Groups, Group(g))
	}
	return out, nil
}

func (a *api) stats(ctx context.Context, in *statsInput) (*statsOutput, error) {
	_ = a.catchUp(ctx)
	s, err := a.State.Stats()
	if err != nil {
		return nil, err
	}
	genesis, _ := a.State.Genesis()
	out := &statsOutput{Stats{Version: a.Version, Origin: genesis.Origin, LogID: genesis.LogID, Events: s.Tip.Size, Leaf: s.Tip.Leaf,
		Letters: s.Letters, Channels: s.Channels, Oldest: s.Oldest, Leased: s.Leased, Waiting: s.Waiting, NextDue: s.NextDue}}
	if in.Fingerprint {
		sum, head, err := a.State.Fingerprint(ctx)
		if err != nil {
			return nil, err
		}
		out.Body.Fingerprint = &Fingerprint{sum, head.Size, head.Leaf}
	}
	return out, nil
}
