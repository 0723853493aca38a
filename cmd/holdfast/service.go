package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/dvir"
	"github.com/holdfast-dvir/holdfast/jetstream"
	"github.com/holdfast-dvir/holdfast/process"
	"github.com/holdfast-dvir/holdfast/projection"
	"github.com/holdfast-dvir/holdfast/web"
)

// folder is where a service keeps everything; its methods name the parts.
type folder string

func (f folder) part(name string) string { return filepath.Join(string(f), name) }
func (f folder) logDir() string          { return f.part("log") }
func (f folder) blobs() string           { return f.part("blobs") }
func (f folder) state() string           { return f.part("state.db") }
func (f folder) anchor() string          { return f.part("head") }
func (f folder) node() string            { return f.part("node") }
func (f folder) tokens() string          { return f.part("tokens.json") }
func (f folder) adminToken() string      { return f.part("admin-token") }

// settings are the flags of a service.
type settings struct {
	Data          folder `default:"./holdfast-data" help:"Folder of log, payloads and state." placeholder:"DIR"`
	Listen        string `default:"127.0.0.1:8420" help:"Address of the HTTP API." placeholder:"ADDR"`
	Origin        string `default:"holdfast.local/dvir" help:"Name of a new log, for its genesis event." placeholder:"NAME"`
	DvirConfig    string `help:"Roster and defect aliases of the built-in processor (JSON)." placeholder:"FILE" type:"path"`
	Workers       int    `default:"4" help:"Payloads processed at a time." placeholder:"N"`
	MaxPayload    int64  `default:"67108864" help:"Largest payload, in bytes." placeholder:"BYTES"`
	Retention     int    `default:"18" help:"Months that payloads are kept, 3 (49 CFR 396.11(a)(4)) to 120." placeholder:"MONTHS"`
	ExpiryWarning int    `default:"90" help:"Warn, once a day, of open letters that lose their protection within so many days; 0 never does." placeholder:"DAYS"`
	NoImmutable   bool   `help:"Do not set the immutable flag on stored files, so that the folder can be removed."`
	NatsURL       string `help:"External NATS servers instead of the embedded one." placeholder:"URL"`

	AcceptMissingPayloads bool `help:"Serve although the store lacks payloads of the log; those that wait become dead letters."`

	s3Flags
	LogLevel string `enum:"debug,info,warn,error" default:"info" help:"Least level that is logged." placeholder:"LEVEL"`
}

// Bounds of a retention in calendar months: 49 CFR 396.11(a)(4), and the cap of the payload store, since nobody can take
// back a date that is too far away.
const (
	minMonths = 3
	maxMonths = 120
)

// Validate refuses numbers that make no service.
func (s *settings) Validate() error {
	switch {
	case s.Workers < 1 || s.Workers > 1000:
		return errors.New("--workers: must be 1 to 1000")
	case s.MaxPayload < 1:
		return errors.New("--max-payload: must be at least 1")
	case s.Retention < minMonths || s.Retention > maxMonths:
		return fmt.Errorf("--retention: must be %d to %d months", minMonths, maxMonths)
	case s.ExpiryWarning < 0 || s.ExpiryWarning > maxDays:
		return fmt.Errorf("--expiry-warning: must be 0 to %d days", maxDays)
	}
	return s.s3Flags.validate()
}

// service is everything that runs in one process, wired.
type service struct {
	cfg      settings
	log      *slog.Logger
	events   *jetstream.Log
	store    *blob.Store
	state    *projection.DB
	queue    *deadletter.Queue
	children *process.Children
	pool     *process.Pool
	listener net.Listener
	handler  http.Handler
}

// openService opens the parts from the bottom up. The folder lock of the log is taken first: whoever holds it
// owns the folder.
func openService(ctx context.Context, cfg settings, log *slog.Logger) (s *service, err error) {
	s = &service{cfg: cfg, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := os.MkdirAll(string(cfg.Data), 0o700); err != nil {
		return s, fmt.Errorf("data folder: %w", err)
	}
	if s.events, err = jetstream.Open(ctx, jetstream.Config{Dir: cfg.Data.logDir(), URL: cfg.NatsURL, Logger: log}); err != nil {
		return s, err
	}
	if err := s.openStore(ctx); err != nil {
		return s, err
	}
	if err := s.openQueue(ctx); err != nil {
		return s, err
	}
	s.warnOfLostLog(ctx)
	if err := s.checkStore(ctx); err != nil {
		return s, err
	}
	if err := s.openPool(); err != nil {
		return s, err
	}
	return s, s.openWeb(ctx)
}

func (s *service) openStore(ctx context.Context) error {
	backend, err := s.cfg.payloads(ctx)
	if err != nil {
		return err
	}
	about := backend.Describe()
	s.log.LogAttrs(ctx, slog.LevelInfo, "payload store", slog.String("kind", about.Kind), slog.String("place", about.Place))
	for _, t := range about.Traits {
		if !t.OK {
			s.log.LogAttrs(ctx, slog.LevelWarn, "payload store", slog.String("trait", t.Name), slog.String("note", t.Note))
		}
	}
	s.store, err = blob.NewStore(backend, blob.Config{MaxSize: s.cfg.MaxPayload, Retention: blob.Retention{Months: s.cfg.Retention, Max: maxMonths}})
	return err
}

// payloads opens what keeps the payloads: the bucket, or else the data folder.
func (s *settings) payloads(ctx context.Context) (blob.Backend, error) {
	if s.s3Flags.set() {
		return s.s3Flags.open(ctx)
	}
	return blob.OpenDir(s.Data.blobs(), blob.DirConfig{NoImmutable: s.NoImmutable})
}

// openQueue opens the projection and the queue over it. A projection that turns out to be damaged, at once or when
// the log is folded into it, is rebuilt from the log.
func (s *service) openQueue(ctx context.Context) (err error) {
	if s.state, err = projection.Open(s.cfg.Data.state()); err == nil {
		err = s.openQueueOver(ctx)
	}
	unusable, damaged := errors.AsType[*projection.UnusableError](err)
	if !damaged {
		return err
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "projection is rebuilt from the log", slog.String("why", unusable.Why))
	if s.state != nil {
		_ = s.state.Close() // damaged: what it says does not matter
	}
	s.state = nil
	if _, err := projection.Rebuild(ctx, s.events, s.cfg.Data.state()); err != nil {
		return err
	}
	if s.state, err = projection.Open(s.cfg.Data.state()); err != nil {
		return err
	}
	return s.openQueueOver(ctx)
}

func (s *service) openQueueOver(ctx context.Context) error {
	anchor, err := audit.ReadAnchor(s.cfg.Data.anchor())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	node, err := nodeID(s.cfg.Data.node())
	if err != nil {
		return err
	}
	s.queue, err = deadletter.Open(ctx, deadletter.Config{Log: s.events, Store: s.store, State: s.state, Node: node,
		Anchor: anchor.Head, Origin: s.cfg.Origin, Software: "holdfast/" + version(), Jitter: mathrand.Float64,
		Codes: dvirCodes(), Vocabulary: slices.Collect(dvir.Vocabulary())})
	return err
}

// warnOfLostLog tells when a new log begins beside payloads of an older one. They are kept; nothing knows of them.
func (s *service) warnOfLostLog(ctx context.Context) {
	if s.queue.Size() > 1 {
		return
	}
	for _, err := range s.store.List(ctx, "") {
		if err != nil {
			return // whoever reads that version will tell
		}
		s.log.LogAttrs(ctx, slog.LevelWarn, "a new log begins, and there are payloads that no event names: was the log folder lost?",
			slog.String("payloads", s.store.Describe().Place))
		return
	}
}

// checkStore refuses a store that lacks payloads of the log: it is another one, or was not filled to the end, and
// whatever waits would become a dead letter. A store that does not answer is no other one.
func (s *service) checkStore(ctx context.Context) error {
	now := time.Now()
	for _, l := range s.sample(now) {
		if !l.Hold && l.RetainUntil.Before(now) {
			continue // others may have removed it
		}
		_, err := s.store.Stat(ctx, blob.Ref{Digest: l.Ref, Version: l.BlobVersion})
		if !errors.Is(err, blob.ErrNotFound) {
			continue
		}
		text := fmt.Sprintf("payloads of this log are not in this store (%s), such as %s", s.store.Describe().Place, l.Ref)
		if !s.cfg.AcceptMissingPayloads {
			return exitf(exitRefused, "%s: name the store that has them, or fill this one with holdfast blob copy; with --accept-missing-payloads they become dead letters", text)
		}
		s.log.LogAttrs(ctx, slog.LevelError, text)
		return nil
	}
	return nil
}

// waitingLooked is how many of the letters that wait, and of those that were being worked on, are looked at.
const waitingLooked = 20

// sample is the first letter, the newest, and some that processing comes to next. A projection that cannot be read is
// for those who follow to tell.
func (s *service) sample(now time.Time) (letters []chain.Letter) {
	for _, order := range []projection.Order{projection.OldestFirst, projection.NewestFirst} {
		page, _ := s.state.List(projection.Filter{Order: order}, "", 1)
		letters = append(letters, page.Letters...)
	}
	waiting, _, _ := s.state.Due(now.AddDate(1, 0, 0), nil, waitingLooked)
	leased, _ := s.state.Leases(waitingLooked)
	return slices.Concat(letters, waiting, leased)
}

func dvirCodes() (codes []string) {
	for _, c := range dvir.Codes() {
		codes = append(codes, c.Code)
	}
	return codes
}

func (s *service) openPool() error {
	rules, err := loadRules(s.cfg.DvirConfig)
	if err != nil {
		return err
	}
	command, err := childCommand()
	if err != nil {
		return err
	}
	s.children = process.NewChildren(command, rules, process.Limits{})
	node, err := nodeID(s.cfg.Data.node())
	if err != nil {
		return err
	}
	builtin := &process.Builtin{Children: s.children, Queue: s.queue, Records: s.state, Store: s.store}
	s.pool = process.NewPool(process.Config{Queue: s.queue, State: s.state, Store: s.store, Node: node, Log: s.log,
		Targets: []process.Target{{Name: process.Default, Processor: builtin, Workers: s.cfg.Workers}}})
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

func (s *service) openWeb(ctx context.Context) error {
	tokens := web.OpenTokens(s.cfg.Data.tokens())
	secret, err := tokens.EnsureAdmin()
	if err != nil {
		return err
	}
	if secret != "" {
		if err := os.WriteFile(s.cfg.Data.adminToken(), []byte(secret+"\n"), 0o600); err != nil {
			return err
		}
		s.log.LogAttrs(ctx, slog.LevelInfo, "admin token created", slog.String("file", s.cfg.Data.adminToken()))
	}
	if s.listener, err = net.Listen("tcp", s.cfg.Listen); err != nil {
		return err
	}
	s.handler = web.Handler(web.Config{Queue: s.queue, State: s.state, Events: s.events, Tokens: tokens, MaxPayload: s.cfg.MaxPayload,
		Version: version(), Log: s.log, Ready: s.ready, Metrics: metrics(s.store, s.queue)})
	return nil
}

// ready tells whether submissions can be taken: the log answers, and so does the store.
func (s *service) ready(ctx context.Context) error {
	if err := s.store.Healthy(); err != nil {
		return err
	}
	return s.events.Healthy(ctx)
}

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
	above.Go(func() error { return s.queue.RunPlans(aboveCtx) })
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

// close releases what openService took, in reverse.
func (s *service) close() error {
	var errs []error
	if s.listener != nil {
		_ = s.listener.Close() // already closed after serving
	}
	if s.children != nil {
		s.children.Close()
	}
	if s.state != nil {
		errs = append(errs, s.state.Close())
	}
	if s.events != nil {
		errs = append(errs, s.events.Close())
	}
	return errors.Join(errs...)
}
