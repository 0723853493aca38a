package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

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

// service is everything that runs in one process, wired.
type service struct {
	cfg      settings
	log      *slog.Logger
	events   *jetstream.Log
	store    *blob.Store
	state    *projection.DB
	queue    *deadletter.Queue
	node     string // identity over restarts
	targets  processorsFile
	routes   *process.Routes
	children *process.Children
	pool     *process.Pool
	desk     *process.Desk
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
	if s.targets, s.routes, err = loadProcessors(cfg.Processors); err != nil {
		return s, err
	}
	if err := os.MkdirAll(string(cfg.Data), 0o700); err != nil {
		return s, fmt.Errorf("data folder: %w", err)
	}
	if s.events, err = jetstream.Open(ctx, jetstream.Config{Dir: cfg.Data.logDir(), URL: cfg.NatsURL,
		Credentials: cfg.NatsCredentials, SystemURL: cfg.NatsSystemURL, Logger: log}); err != nil {
		return s, err
	}
	if err := s.openStore(ctx); err != nil {
		return s, err
	}
	if s.node, err = nodeID(cfg.Data.node()); err != nil {
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
	s.queue, err = deadletter.Open(ctx, deadletter.Config{Log: s.events, Store: s.store, State: s.state, Node: s.node, Target: s.routes.Of,
		Anchor: anchor.Head, Origin: s.cfg.Origin, Software: "holdfast/" + version(), Jitter: mathrand.Float64,
		Codes: codes(), Vocabulary: slices.Collect(dvir.Vocabulary())})
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

// codes are those of all processors.
func codes() []string {
	all := process.Codes()
	for _, c := range dvir.Codes() {
		all = append(all, c.Code)
	}
	return all
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
	s.handler = web.Handler(web.Config{Queue: s.queue, Desk: s.desk, State: s.state, Events: s.events, Tokens: tokens, MaxPayload: s.cfg.MaxPayload,
		Version: version(), Log: s.log, Ready: s.ready, Metrics: s.metrics()})
	return nil
}

// ready tells whether submissions can be taken: the log answers, and so does the store.
func (s *service) ready(ctx context.Context) error {
	if err := s.store.Healthy(); err != nil {
		return err
	}
	return s.events.Healthy(ctx)
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
