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
	cfg  Config
	work chan chain.Letter
	// alone is held by every running letter, and exclusively by one that must run alone.
	alone sync.RWMutex

	mu     sync.Mutex // owns what follows
	busy   map[chain.Digest]hold
	faults map[chain.Digest]int // of ours, in a row
	passed bool                 // a due letter was passed over because it runs
	wake   chan struct{}        // and does not run any more
}

// hold keeps a letter from being handed out: while it runs, until the projection shows what came of it, and for a
// while after a fault of ours.
type hold struct {
	size  uint64 // of the log, at which the outcome shows
	until time.Time
}

// running is the size in the hold of a letter that has no outcome yet.
const running = ^uint64(0)

const (
	expiryEvery  = 5 * time.Second        // how often leases that ran out are looked at
	expiryGrace  = 10 * time.Second       // clocks of instances may differ by this much
	faultPause   = time.Second            // of a worker after a fault of ours; its letter waits longer each time
	maxAside     = time.Minute            // that a letter waits after faults of ours
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
		busy: map[chain.Digest]hold{}, faults: map[chain.Digest]int{}}
}

// Run processes due letters until ctx is done, then waits for those that are running. It returns nil or a fault
// of the queue or projection that ended it.
func (p *Pool) Run(ctx context.Context) error {
	if err := p.reclaim(ctx); err != nil {
		return ended(ctx, err)
	}
	var workers sync.WaitGroup
	for i := range p.cfg.Workers {
		worker := fmt.Sprintf("%s/%d", p.cfg.Node, i)
		workers.Go(func() {
			for l := range p.work {
				p.run(ctx, l, worker)
			}
		})
	}
	err := p.schedule(ctx)
	close(p.work)
	workers.Wait()
	return ended(ctx, err)
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
	for expiry := time.Now(); ; {
		if now := time.Now(); !now.Before(expiry) {
			expiry = now.Add(expiryEvery)
			if err := p.expire(ctx, now); err != nil {
				return err
			}
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
		if err := p.wait(ctx, changed, next, expiry); err != nil {
			return err
		}
	}
}

// wait sleeps until changed, until a letter that was passed over is free, the earlier of the two times, or the
// end of ctx.
func (p *Pool) wait(ctx context.Context, changed <-chan struct{}, next, expiry time.Time) error {
	if next.IsZero() || next.After(expiry) {
		next = expiry
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-changed:
	case <-p.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
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
	letters, next, err := p.cfg.State.Due(now, len(p.busy)+4*p.cfg.Workers)
	for _, l := range letters {
		h, busy := p.busy[l.Ref]
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
		h.until = time.Now().Add(min(faultPause<<min(p.faults[ref], 10), maxAside))
		p.faults[ref]++
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

// run takes one letter from lease to outcome. Once leased, it is finished even if the service is stopping.
func (p *Pool) run(ctx context.Context, l chain.Letter, worker string) {
	size, err := p.attempt(ctx, l, worker)
	var refused *chain.TransitionError
	switch {
	case err == nil, ctx.Err() != nil:
		err = nil
	case errors.As(err, &refused), errors.Is(err, deadletter.ErrStaleLease):
		err = nil
		pause(ctx, refusedPause)
	default:
		p.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "letter given back",
			slog.String("payload_ref", l.Ref.String()), slog.String("fault", fault(err)))
		pause(ctx, faultPause)
	}
	p.done(l.Ref, size, err != nil)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// fault names an error by what it is, not by its text.
func fault(err error) string {
	switch {
	case errors.Is(err, deadletter.ErrUnavailable):
		return "log_unavailable"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return fmt.Sprintf("%T", err)
}

// attempt leases, runs and settles a letter, and tells the log size at which that shows. A lease is not asked for
// once the service is stopping, and not given up half-way.
func (p *Pool) attempt(ctx context.Context, l chain.Letter, worker string) (uint64, error) {
	unlock := p.lock(l.Losses > 0)
	defer unlock()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	ctx = context.WithoutCancel(ctx)
	asking, cancel := context.WithTimeout(ctx, finishFor)
	defer cancel()
	job, err := p.cfg.Queue.Lease(asking, l.Ref, worker, p.cfg.LeaseFor)
	if err != nil {
		return p.cfg.State.Tip().Size, err
	}
	if job.Letter.Lease.Alone && l.Losses == 0 {
		return job.Letter.LastSeq + 1, p.release(ctx, job)
	}
	return p.settle(ctx, job)
}

// lock joins the running letters, or waits until it is the only one.
func (p *Pool) lock(alone bool) (unlock func()) {
	if alone {
		p.alone.Lock()
		return p.alone.Unlock
	}
	p.alone.RLock()
	return p.alone.RUnlock
}

// settle processes a leased letter and records the outcome.
func (p *Pool) settle(ctx context.Context, job deadletter.Job) (uint64, error) {
	result, err := p.process(ctx, job)
	var seq uint64
	if err == nil {
		seq, err = p.record(ctx, job, result)
	}
	if err != nil && !errors.Is(err, deadletter.ErrStaleLease) {
		return job.Letter.LastSeq + 2, errors.Join(err, p.release(ctx, job))
	}
	return seq + 1, err
}

func (p *Pool) release(ctx context.Context, job deadletter.Job) error {
	return insist(ctx, func(ctx context.Context) error { return p.cfg.Queue.Release(ctx, job) })
}

// insist repeats do while the log is not available, for finishFor: what was done must not be forgotten for a
// moment's trouble. Outcomes are recorded once, however often they are told.
func insist(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, finishFor)
	defer cancel()
	for {
		err := do(ctx)
		if !errors.Is(err, deadletter.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		pause(ctx, recordPause)
	}
}

// record tells the queue what came of a letter. A result that no event can hold is a defect of the processor:
// the letter goes to a person.
func (p *Pool) record(ctx context.Context, job deadletter.Job, result Result) (seq uint64, err error) {
	err = insist(ctx, func(ctx context.Context) error {
		var r deadletter.Receipt
		var err error
		switch {
		case result.Completion != nil:
			r, err = p.cfg.Queue.Complete(ctx, job, *result.Completion)
		case result.Breakdown != nil:
			r, err = p.cfg.Queue.FailJob(ctx, job, *result.Breakdown)
		}
		var unfit *chain.FieldError
		var unreadable *chain.GrammarError
		if errors.As(err, &unfit) || errors.As(err, &unreadable) || result == (Result{}) {
			r, err = p.cfg.Queue.FailJob(ctx, job, deadletter.Breakdown{Stage: chain.StageParse, Code: codeUnfit,
				Rules: rules, Summary: "the processor gave a result that cannot be recorded"})
		}
		seq = r.Seq
		return err
	})
	return seq, err
}

// Codes given by the pool itself, under its own rules.
const (
	rules           = "process-1"
	codeUnavailable = "ingest.payload_unavailable" // the bytes are gone or damaged
	codeUnfit       = "parse.unclassified"
)

// process reads the payload and runs the processor. Lost or damaged bytes are a finding about the letter, not a
// fault to retry; so is a processor that takes longer than the lease.
func (p *Pool) process(ctx context.Context, job deadletter.Job) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.LeaseFor)
	defer cancel()
	payload, err := p.cfg.Store.Get(ctx, blob.Ref{Digest: job.Letter.Ref, Version: job.Letter.BlobVersion})
	var corrupt *blob.CorruptError
	var large *blob.TooLargeError
	switch {
	case errors.Is(err, blob.ErrNotFound), errors.As(err, &corrupt):
		return broken(deadletter.Breakdown{Stage: chain.StageIngest, Code: codeUnavailable, Rules: rules,
			Summary: "the stored payload is missing or damaged"}), nil
	case errors.As(err, &large):
		return broken(deadletter.Breakdown{Stage: chain.StageIngest, Code: codeUnavailable, Rules: rules,
			Summary: "the stored payload is larger than the limit of today"}), nil
	case err != nil:
		return Result{}, err
	}
	r, err := p.guarded(ctx, job, payload)
	if err != nil && ctx.Err() != nil {
		return broken(deadletter.Breakdown{Stage: chain.StageParse, Signal: deadletter.Signal{Type: "timeout"}, Rules: rules,
			Summary: "the processor took too long"}), nil
	}
	return r, err
}

// guarded runs the processor; a panic is a crash that this payload caused.
func (p *Pool) guarded(ctx context.Context, job deadletter.Job, payload []byte) (r Result, err error) {
	defer func() {
		if recover() != nil {
			r, err = broken(deadletter.Breakdown{Stage: chain.StageParse, Crash: "panic", Rules: rules,
				Summary: "the processor crashed on this payload"}), nil
		}
	}()
	return p.cfg.Processor.Process(ctx, job, payload)
}

func broken(b deadletter.Breakdown) Result { return Result{Breakdown: &b} }
