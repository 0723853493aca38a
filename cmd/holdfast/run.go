package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/jetstream"
	"github.com/holdfast-dvir/holdfast/projection"
	"github.com/holdfast-dvir/holdfast/web"
)

// watchStore tells when the payload store takes no payloads any more and when it takes them again. What happens in
// between is told by nobody: it would be a line for every request.
func (s *service) watchStore(ctx context.Context) error {
	var before uint64 // refusals that came before the outage
	return s.store.Watch(ctx, func(since time.Time, why error) {
		store := slog.String("store", s.store.Describe().Place)
		if why != nil {
			before = s.store.Refused() - s.store.RefusedInARow()
			s.log.LogAttrs(ctx, slog.LevelError, "the payload store takes no payloads: submissions are refused, processing waits",
				store, slog.Time("since", since.UTC()), slog.String("why", why.Error()))
			return
		}
		s.log.LogAttrs(ctx, slog.LevelWarn, "the payload store takes payloads again", store,
			slog.Int64("away_seconds", int64(time.Since(since)/time.Second)), slog.Uint64("refused", s.store.Refused()-before))
	})
}

// url is where the API listens.
func (s *service) url() string { return "http://" + s.listener.Addr().String() }

const (
	anchorEvery  = 5 * time.Second
	shutdownTime = 15 * time.Second
	streamTime   = 5 * time.Second
	foldTime     = 2 * time.Second
	healthEvery  = 2 * time.Second
	sickFor      = 10 * time.Second // before a log that cannot be written ends the service
)

// run serves until ctx is done, then ends from the top down: no new requests, running payloads finish, the last
// decisions are appended, the projection closes.
func (s *service) run(ctx context.Context) error {
	core, stopCore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCore()
	below, belowCtx := errgroup.WithContext(core)
	below.Go(func() error { return s.queue.Run(core) }) // also when something beside it fails: workers give back
	below.Go(func() error { return s.follow(belowCtx) })
	below.Go(func() error { return s.keepAnchor(belowCtx) })
	below.Go(func() error { return s.watchStore(belowCtx) })
	below.Go(func() error { return s.sweep(belowCtx) })

	above, aboveCtx := errgroup.WithContext(ctx)
	above.Go(func() error { return s.pool.Run(aboveCtx) })
	above.Go(func() error { return s.desk.Run(aboveCtx) })
	above.Go(func() error { return s.queue.RunPlans(aboveCtx) })
	above.Go(func() error { return s.answerWorkers(aboveCtx) })
	above.Go(func() error { return s.serveHTTP(aboveCtx) })
	above.Go(func() error { return s.watchLog(aboveCtx) })
	above.Go(func() error {
		select {
		case <-aboveCtx.Done():
			return nil
		case <-belowCtx.Done():
			return errBelow
		}
	})
	err := above.Wait()
	s.foldLast(belowCtx) // at once, if nothing folds any more
	stopCore()
	if ended := below.Wait(); !errors.Is(ended, context.Canceled) && (err == nil || errors.Is(err, errBelow)) {
		err = ended
	}
	if _, damaged := errors.AsType[*projection.UnusableError](err); damaged {
		return errors.Join(err, os.Rename(s.cfg.Data.state(), s.cfg.Data.state()+".damaged"))
	}
	return errors.Join(err, s.storeAnchor())
}

// workSubject is before the names of requests of workers that live on the external servers. Who may publish there is a
// worker: the accounts of those servers see to that.
const workSubject = "holdfast.work"

func (s *service) answerWorkers(ctx context.Context) error {
	if !s.cfg.NatsWork {
		return nil
	}
	requests := map[string]jetstream.Request{}
	for name, answer := range web.WorkRequests(s.desk, "nats", s.log) {
		requests[name] = func(ctx context.Context, body []byte) ([]byte, int, string) {
			answer, refused := answer(ctx, body)
			if refused == nil {
				return answer, 0, ""
			}
			raw, _ := json.Marshal(refused) // of texts and numbers
			return raw, refused.Status, refused.Error()
		}
	}
	if err := s.events.Answer(ctx, workSubject, microVersion, requests); ctx.Err() == nil {
		return err
	}
	return nil
}

// microVersion is that of the requests, not of the program: NATS wants a semantic version.
const microVersion = "1.0.0"

// foldLast lets the projection take in the last events, so that state and stored head end where the log ends.
func (s *service) foldLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, foldTime)
	defer cancel()
	_ = s.state.Wait(ctx, s.queue.Size()-1) // what is missing is folded at the next start
}

// errBelow ends the upper half of the service when the lower half has ended; its error is the one that counts.
var errBelow = errors.New("the log or the projection has ended")

// watchLog ends the service when the embedded server cannot write any more: a disk error stays with it until it is
// started anew. External servers come back by themselves.
func (s *service) watchLog(ctx context.Context) error {
	if s.cfg.NatsURL != "" {
		return nil
	}
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for well := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := s.events.Healthy(ctx)
		switch {
		case err == nil:
			well = time.Now()
		case time.Since(well) > sickFor && ctx.Err() == nil:
			return &exitError{exitUnavailable, "the log cannot be written since a disk error; nothing acknowledged is lost: make room, then start the service again"}
		}
	}
}

// follow keeps the projection up with the log. A full disk does not end the service: submissions are refused one by
// one, and the projection goes on when there is room.
func (s *service) follow(ctx context.Context) error {
	for {
		err := s.state.Follow(ctx, s.events)
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
			return err
		}
		s.log.LogAttrs(ctx, slog.LevelError, "the projection waits for room on the disk", slog.String("file", s.cfg.Data.state()))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (s *service) serveHTTP(ctx context.Context) error {
	streams, endStreams := context.WithCancel(context.WithoutCancel(ctx))
	defer endStreams()
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return streams }}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(s.listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	defer time.AfterFunc(streamTime, endStreams).Stop() // requests finish by then, streams never do
	if err := server.Shutdown(grace); err != nil {
		return server.Close()
	}
	return nil
}

// keepAnchor writes the head of the log to a file of its own, so that a log cut back later is noticed.
func (s *service) keepAnchor(ctx context.Context) error {
	tick := time.NewTicker(anchorEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := s.storeAnchor(); err != nil {
				s.log.LogAttrs(ctx, slog.LevelError, "head not stored", slog.String("file", s.cfg.Data.anchor()))
			}
		}
	}
}

func (s *service) storeAnchor() error {
	if s.queue == nil || s.state.Tip().Size == 0 {
		return nil
	}
	return audit.Anchor{LogID: s.queue.LogID(), Head: s.state.Tip().Head}.Write(s.cfg.Data.anchor())
}
