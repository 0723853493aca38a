package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/projection"
)

// Config is what a Pool stands on.
type Config struct {
	Queue     *deadletter.Queue
	State     *projection.DB
	Store     *blob.Store
	Processor Processor
	Node      string        // identity of this instance over restarts; names its workers
	Workers   int           // letters at a time; 0 means 4
	LeaseFor  time.Duration // 0 means a minute
	Log       *slog.Logger  // faults of ours; never payload content
}

// Pool is the scheduler and its workers.
type Pool struct {
	cfg     Config
	work    chan chain.Letter
	started time.Time // by Run
	// alone is held by every running letter, and exclusively by one that must run alone.
	alone sync.RWMutex

	mu     sync.Mutex // owns what follows
	busy   map[chain.Digest]hold
	faults map[chain.Digest]faults
	rest   rest
	passed bool          // a due letter was passed over because it runs
	wake   chan struct{} // and does not run any more
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

// rest is what follows on a failure of the store: nothing is leased but one letter now and then, to see.
type rest struct {
	tries int       // since the failure, which counts as one; 0: the store works
	until time.Time // when the next letter may try
	told  bool      // that the store fails although it counts itself well
}

// running is the size in the hold of a letter that has no outcome yet.
const running = ^uint64(0)

const (
	expiryEvery  = 5 * time.Second        // how often leases that ran out are looked at
	expiryGrace  = 10 * time.Second       // clocks of instances may differ by this much
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
)

// NewPool prepares a pool; Run starts it.
func NewPool(cfg Config) *Pool {
	if cfg.Workers == 0 {
		cfg.Workers = 4
	}
	if cfg.LeaseFor == 0 {
		cfg.LeaseFor = time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Pool{cfg: cfg, work: make(chan chain.Letter), wake: make(chan struct{}, 1),
		busy: map[chain.Digest]hold{}, faults: map[chain.Digest]faults{}}
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
	for i := range p.cfg.Workers {
		worker := fmt.Sprintf("%s/%d", p.cfg.Node, i)
		workers.Go(func() {
			for l := range p.work {
				p.run(working, l, worker)
			}
		})
	}
	end(p.schedule(working))
	close(p.work)
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

// schedule hands out due letters and sleeps until the projection changes or the next one comes due.
func (p *Pool) schedule(ctx context.Context) error {
	for {
		for p.resting() && ctx.Err() == nil {
			pause(ctx, storePause) // a lease would only come to nothing
		}
		changed := p.cfg.State.Changed()
		letters, next, err := p.due()
		if err != nil {
			return err
		}
		for _, l := range letters {
			select {
			case p.work <- l:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if len(letters) > 0 {
			continue
		}
		if err := p.wait(ctx, changed, next); err != nil {
			return err
		}
	}
}

// wait sleeps until changed, until a letter that was passed over is free, until next if there is one, or the end
// of ctx.
func (p *Pool) wait(ctx context.Context, changed <-chan struct{}, next time.Time) error {
	var timer <-chan time.Time
	if !next.IsZero() {
		timer = time.After(time.Until(next))
	}
	select {
	case <-changed:
	case <-p.wake:
	case <-timer:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// resting tells whether nothing is to be handed out because of the store.
func (p *Pool) resting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cfg.Store.Healthy() != nil || time.Now().Before(p.rest.until)
}

// mayTry tells whether a letter may be leased. Whoever is told so while the store fails is the only one for a while,
// which is longer each time: the log must not grow with every attempt at a store that is away.
func (p *Pool) mayTry() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.cfg.Store.Healthy() != nil, now.Before(p.rest.until):
		return false
	case p.rest.tries > 0:
		p.rest.until = now.Add(min(storePause<<min(p.rest.tries, 10), maxAside))
		p.rest.tries++
	}
	return true
}

// storeFailed notes that the store failed a letter. If it fails again and counts itself well, nobody else tells.
func (p *Pool) storeFailed(ctx context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rest.tries == 0 {
		p.rest = rest{tries: 1, until: time.Now().Add(storePause)}
	}
	if p.rest.tries > 1 && !p.rest.told && p.cfg.Store.Healthy() == nil {
		p.rest.told = true
		p.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "processing rests: the payload store answers and fails", slog.String("why", ofStore(err)))
	}
}

// storeWorked ends the rest.
func (p *Pool) storeWorked(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rest.told {
		p.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "processing goes on")
	}
	p.rest = rest{}
}

// due lists letters to hand out, marked busy, oldest first, and tells when to look again.
func (p *Pool) due() (fresh []chain.Letter, next time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, folded := time.Now(), p.cfg.State.Tip().Size
	var free time.Time
	for ref, h := range p.busy {
		switch {
		case h.size > folded:
		case !now.Before(h.until):
			delete(p.busy, ref)
		case free.IsZero() || h.until.Before(free):
			free = h.until
		}
	}
	p.passed = false
	letters, next, err := p.cfg.State.Due(now, nil, len(p.busy)+4*p.cfg.Workers)
	for _, l := range letters {
		h, busy := p.busy[l.Ref]
		if calm := p.started.Add(quiet); l.Losses > 0 && now.Before(calm) {
			if free.IsZero() || calm.Before(free) {
				free = calm
			}
			continue
		}
		if p.passed = p.passed || busy && h.size == running; !busy {
			p.busy[l.Ref] = hold{size: running}
			fresh = append(fresh, l)
		}
	}
	if next.IsZero() || !free.IsZero() && free.Before(next) {
		next = free
	}
	return fresh, next, err
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
	if p.passed {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// watch looks after leases and the memory of faults until ctx is done, however busy the workers are.
func (p *Pool) watch(ctx context.Context) error {
	for ; ctx.Err() == nil; pause(ctx, expiryEvery) {
		now := time.Now()
		p.forget(now.Add(-faultMemory))
		if err := p.expire(ctx, now); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// forget drops the faults whose last was before then.
func (p *Pool) forget(then time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.faults, func(_ chain.Digest, f faults) bool { return f.last.Before(then) })
}

// expire gives back letters whose lease ran out: their worker is gone. What still runs here gets more time, and
// what is leased to this instance and does not run here was never started: its lease was appended unheard.
func (p *Pool) expire(ctx context.Context, now time.Time) error {
	held, err := p.cfg.State.ExpiredLeases(now.Add(-expiryGrace), maxHeld)
	if err != nil {
		return err
	}
	own, err := p.cfg.State.LeasesOf(p.cfg.Node+"/", maxHeld)
	if err != nil {
		return err
	}
	for _, l := range own {
		if !p.runs(l.Ref) {
			err = errors.Join(err, p.cfg.Queue.Release(ctx, deadletter.Job{Letter: l}))
		}
	}
	for _, l := range held {
		if p.runs(l.Ref) {
			err = errors.Join(err, p.cfg.Queue.Extend(ctx, deadletter.Job{Letter: l}, p.cfg.LeaseFor))
		} else {
			err = errors.Join(err, p.cfg.Queue.Lose(ctx, l, chain.LostWorker))
		}
	}
	if errors.Is(err, deadletter.ErrUnavailable) || errors.Is(err, deadletter.ErrStaleLease) {
		return nil // what is still leased is looked at again
	}
	return err
}

func (p *Pool) runs(ref chain.Digest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy[ref].size == running
}
