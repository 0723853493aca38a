package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/projection"
)

// Config is what a Pool stands on.
type Config struct {
	Queue   *deadletter.Queue
	State   *projection.DB
	Store   *blob.Store
	Targets []Target
	Routes  *Routes      // nil: every letter may go to any target
	Node    string       // identity of this instance over restarts; names its workers
	Log     *slog.Logger // faults of ours; never payload content
}

// Pool is the scheduler and its workers, those of each target apart from all others: a target that is slow or down holds
// up its own letters alone.
type Pool struct {
	cfg     Config
	targets []*target
	started time.Time // by Run
	// alone is held by every running letter, and exclusively by one that must run alone.
	alone sync.RWMutex

	mu     sync.Mutex // owns what follows
	busy   map[chain.Digest]hold
	faults map[chain.Digest]faults
	rest   rest
	seen   map[uint64]sight // leases of other instances
}

// hold keeps a letter from being handed out: while it runs, until the projection shows what came of it, and for a
// while after a fault of ours.
type hold struct {
	size  uint64 // of the log, at which the outcome shows
	until time.Time
}

// faults are ours, in a row, at one letter.
type faults struct {
	count int
	last  time.Time
}

// running is the size in the hold of a letter that has no outcome yet.
const running = ^uint64(0)

const (
	expiryEvery  = 5 * time.Second        // how often leases that ran out are looked at
	expiryGrace  = 10 * time.Second       // an extension may take this long to show here
	quiet        = time.Second            // after the start, before letters run that were lost: others get on even if one takes the service down
	storePause   = time.Second            // between looks at a store that is away; between tries it grows
	faultPause   = time.Second            // of a worker after a fault of ours; its letter waits longer each time
	maxAside     = time.Minute            // that a letter waits after faults of ours, and all of them after faults of the store
	faultMemory  = 10 * maxAside          // faults this long ago are forgotten: the letter may be closed
	stopGrace    = 3 * time.Second        // for what runs, once the service is stopping
	refusedPause = 20 * time.Millisecond  // of a worker whose letter somebody else has
	recordPause  = 100 * time.Millisecond // before an outcome is recorded again
	finishFor    = 30 * time.Second       // how long recording an outcome may take
	maxHeld      = 10_000                 // leases looked at in one go
	longestRetry = time.Hour              // that a letter waits; a target that wants more is left alone as a whole
)

// NewPool prepares a pool; Run starts it.
func NewPool(cfg Config) *Pool {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pool{cfg: cfg, busy: map[chain.Digest]hold{}, faults: map[chain.Digest]faults{}, seen: map[uint64]sight{}}
	for _, t := range cfg.Targets {
		if t.Processor != nil {
			p.targets = append(p.targets, newTarget(t, cfg.Routes))
		}
	}
	return p
}

// Run processes due letters until ctx is done. Those that are running then have 3 seconds to end; what has not
// ended by then is given back at no cost, and its result is dropped whenever it comes. Run returns nil or a fault of
// the queue or projection that ended it.
func (p *Pool) Run(ctx context.Context) error {
	p.started = time.Now()
	if err := p.reclaim(ctx); err != nil {
		return ended(ctx, err)
	}
	working, end := context.WithCancelCause(ctx)
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx)) // until the last worker is done
	defer unwatch()
	var workers, watch sync.WaitGroup
	watch.Go(func() { end(p.watch(watching)) })
	n := 0
	for _, t := range p.targets {
		workers.Go(func() {
			end(p.schedule(working, t))
			close(t.work)
		})
		for range t.Workers {
			worker := fmt.Sprintf("%s/%d", p.cfg.Node, n)
			n++
			workers.Go(func() {
				for l := range t.work {
					p.run(working, t, l, worker)
				}
			})
		}
	}
	<-working.Done()
	workers.Wait()
	unwatch()
	watch.Wait()
	return ended(ctx, context.Cause(working))
}

// ended turns the end of ctx into success: it is how Run is told to stop.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// reclaim gives back what an earlier run of this instance held: the folder lock says that it is dead. It waits
// for a log that is not available.
func (p *Pool) reclaim(ctx context.Context) error {
	held, err := p.cfg.State.LeasesOf(p.cfg.Node+"/", maxHeld)
	if err != nil {
		return err
	}
	for _, l := range held {
		err := p.cfg.Queue.Lose(ctx, l, chain.LostService)
		for ; errors.Is(err, deadletter.ErrUnavailable) && ctx.Err() == nil; pause(ctx, faultPause) {
			err = p.cfg.Queue.Lose(ctx, l, chain.LostService)
		}
		if err != nil && !errors.Is(err, deadletter.ErrStaleLease) {
			return err
		}
	}
	return nil
}

// schedule hands out due letters of a target and sleeps until the projection changes or the next one comes due.
func (p *Pool) schedule(ctx context.Context, t *target) error {
	for {
		for p.resting() && ctx.Err() == nil {
			pause(ctx, storePause) // a lease would only come to nothing
		}
		changed := p.cfg.State.Changed()
		letters, next, err := p.due(t)
		if err != nil {
			return err
		}
		for _, l := range letters {
			select {
			case t.work <- l:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if len(letters) > 0 {
			continue
		}
		if err := t.wait(ctx, changed, next); err != nil {
			return err
		}
	}
}

// due lists letters of t to hand out, marked busy, oldest first, and tells when to look again.
func (p *Pool) due(t *target) (fresh []chain.Letter, next time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	free := p.freed(now)
	t.passed = false
	letters, next, err := p.cfg.State.Due(now, t.pick, len(p.busy)+4*t.Workers)
	for _, l := range letters {
		h, busy := p.busy[l.Ref]
		if calm := p.started.Add(quiet); l.Losses > 0 && now.Before(calm) {
			free = sooner(free, calm)
			continue
		}
		if t.passed = t.passed || busy && h.size == running; !busy {
			p.busy[l.Ref] = hold{size: running}
			fresh = append(fresh, l)
		}
	}
	return fresh, sooner(free, next), err
}

// freed forgets the holds that are over, and tells when the next one will be; zero if none waits for a time.
func (p *Pool) freed(now time.Time) (next time.Time) {
	folded := p.cfg.State.Tip().Size
	for ref, h := range p.busy {
		switch {
		case h.size > folded:
		case !now.Before(h.until):
			delete(p.busy, ref)
		default:
			next = sooner(next, h.until)
		}
	}
	return next
}

// sooner is the earlier of two times, of which zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// done ends the run of a letter. It may be handed out again as soon as the projection shows what is known of it
// now; after a fault of ours it waits, longer each time, so that others get their turn.
func (p *Pool) done(ref chain.Digest, size uint64, fault bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := hold{size: size}
	if fault {
		n, now := p.faults[ref].count, time.Now()
		h.until = now.Add(min(faultPause<<min(n, 10), maxAside))
		p.faults[ref] = faults{n + 1, now}
	} else {
		delete(p.faults, ref)
	}
	p.busy[ref] = h
	for _, t := range p.targets { // what came of the letter may have sent it to another one
		if t.passed {
			t.rouse()
		}
	}
}
