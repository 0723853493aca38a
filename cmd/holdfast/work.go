package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/process"
	"github.com/holdfast-dvir/holdfast/web"
)

type workCmd struct {
	Processor []string      `help:"Whose letters; those of all pull processors if absent." placeholder:"NAME"`
	Name      string        `help:"Name of this worker; if absent, the host's." placeholder:"NAME"`
	Workers   int           `default:"1" help:"Payloads worked on at a time." placeholder:"N"`
	Lease     time.Duration `default:"1m" help:"Without a sign of life for so long, a worker is taken to be gone; 5s to 15m." placeholder:"TIME"`
	Stage     chain.Stage   `enum:"ingest,validate,parse,normalize,dispatch" default:"parse" help:"Stage of its failures." placeholder:"STAGE"`
	Wall      time.Duration `default:"5m" help:"Longest time for one payload." placeholder:"TIME"`
	Memory    int64         `default:"536870912" help:"Most memory for one payload, in bytes." placeholder:"BYTES"`
	Server    address       `default:"http://127.0.0.1:8420" help:"Address of the service." placeholder:"URL"`
	Token     string        `help:"Access token of the role worker." placeholder:"TOKEN" required:""`
	Command   []string      `arg:"" passthrough:"" help:"Program and arguments: payload on standard input, record on standard output; exit code 65 for a bad payload, 75 to try again (docs/processors.md)."`
}

// Validate refuses what the service would, and what cannot run here.
func (c *workCmd) Validate() error {
	switch {
	case c.Workers < 1 || c.Workers > 100:
		return errors.New("--workers: must be 1 to 100")
	case c.Lease < process.MinLease || c.Lease > process.MaxLease || c.Lease%time.Second != 0:
		return errors.New("--lease: must be whole seconds, 5s to 15m")
	}
	return nil
}

// Run works until interrupted; what is being worked on then is given back.
func (c *workCmd) Run(ctx context.Context) error {
	launcher, err := childCommand()
	if err != nil {
		return err
	}
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	program, err := process.NewExec(process.ExecConfig{Command: c.Command, Launcher: launcher, Stage: c.Stage,
		Limits: process.Limits{Wall: c.Wall, Memory: c.Memory, CPU: c.Wall.Round(time.Second)}})
	if err != nil {
		return &exitError{exitRefused, err.Error()}
	}
	if c.Name == "" {
		if c.Name, err = os.Hostname(); err != nil {
			return err
		}
	}
	client := &web.Client{URL: string(c.Server), Token: c.Token}
	workers, ctx := errgroup.WithContext(ctx)
	for i := range c.Workers {
		order := web.WorkOrder{Worker: fmt.Sprintf("%s-%d", c.Name, i), Processors: c.Processor, LeaseSeconds: int(c.Lease / time.Second)}
		workers.Go(func() error {
			return client.Work(ctx, order, func(ctx context.Context, w web.Work, payload []byte) (web.Done, error) {
				r, err := program.Process(ctx, jobOf(w), payload)
				return doneOf(r), err
			})
		})
	}
	return workers.Wait()
}

// jobOf is w as far as a program is told of it.
func jobOf(w web.Work) deadletter.Job {
	l := chain.Letter{Ref: w.PayloadRef, Channel: w.Channel, Source: w.Source, ContentType: w.ContentType, ContentEncoding: w.ContentEncoding,
		Lease: &chain.Lease{Attempt: w.Attempt}}
	if w.Stage != "" {
		l.Failure = &chain.Envelope{Stage: w.Stage}
	}
	return deadletter.Job{Letter: l}
}

// doneOf tells a result to the service.
func doneOf(r process.Result) web.Done {
	b := r.Breakdown
	if b == nil {
		c := r.Completion
		if c == nil {
			return web.Done{}
		}
		return web.Done{Outcome: c.Outcome, OutcomeCode: c.OutcomeCode, Record: c.Record}
	}
	f := &web.WorkFailure{Stage: b.Stage, ErrorCode: b.Code, ErrorType: b.Signal.Type, Message: b.Message}
	if f.Message == "" {
		f.Message = b.Summary
	}
	if b.Crash != "" {
		f.ErrorType = "crash:" + crashed(b.Crash)
	}
	return web.Done{Failure: f}
}

// crashed is evidence of a crash in the words of the classifier's table.
func crashed(evidence string) string {
	kind, what, _ := strings.Cut(evidence, ":")
	if kind == "signal" {
		return what
	}
	return kind
}
