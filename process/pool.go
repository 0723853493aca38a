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

	mu sync.Mutex
	// busy letters: those handed out, and those whose outcome the projection may not show yet, with the log
	// size at which it will. Owned by mu.
	busy map[chain.Digest]uint64
}

// running marks a busy letter that has no outcome yet.
const running = ^uint64(0)

const (
	expiryEvery = 5 * time.Second  // how often leases of others are looked at
	expiryGrace = 10 * time.Second // clocks of instances may differ by this much
	faultPause  = time.Second      // before a letter is given back after a fault of ours
	maxHeld     = 10_000           // leases looked at in one go
	finishFor   = 30 * time.Second // how long recording an outcome may take once the service is stopping
)

// NewPool prepares a pool; Run starts it.
func NewPool(cfg Config) *Pool {
	if cfg.Workers == 0 {
		cfg.Workers = 4
	}
	if cfg.LeaseFor == 0 {
		cfg.LeaseFor = time.Minute
	}
	return &Pool{cfg: cfg, work: make(chan chain.Letter), busy: map[chain.Digest]uint64{}}
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

// reclaim gives back what an earlier run of this instance held: the folder lock says that it is dead.
func (p *Pool) reclaim(ctx context.Context) error {
	held, err := p.cfg.State.LeasesOf(p.cfg.Node+"/", maxHeld)
	if err != nil {
		return err
	}
	return p.lose(ctx, held, chain.LostService)
}

// lose gives back the letters whose workers are gone.
func (p *Pool) lose(ctx context.Context, held []chain.Letter, cause string) error {
	for _, l := range held {
		err := p.cfg.Queue.Lose(ctx, l, cause)
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
		if err := wait(ctx, changed, next, expiry); err != nil {
			return err
		}
	}
}

// wait sleeps until changed, the earlier of the two times, or the end of ctx.
func wait(ctx context.Context, changed <-chan struct{}, next, expiry time.Time) error {
	if next.IsZero() || next.After(expiry) {
		next = expiry
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// due lists letters to hand out, marked busy, oldest first.
func (p *Pool) due() (fresh []chain.Letter, next time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	folded := p.cfg.State.Tip().Size
	for ref, until := range p.busy {
		if until <= folded {
			delete(p.busy, ref)
		}
	}
	letters, next, err := p.cfg.State.Due(time.Now(), len(p.busy)+4*p.cfg.Workers)
	for _, l := range letters {
		if _, busy := p.busy[l.Ref]; !busy {
			p.busy[l.Ref] = running
			fresh = append(fresh, l)
		}
	}
	return fresh, next, err
}

// done marks a letter as due again as soon as the projection shows what is known of it now.
func (p *Pool) done(ref chain.Digest, size uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[ref] = size
}

// expire gives back letters whose lease ran out: their worker is gone, here or elsewhere.
func (p *Pool) expire(ctx context.Context, now time.Time) error {
	held, err := p.cfg.State.ExpiredLeases(now.Add(-expiryGrace), maxHeld)
	if err != nil {
		return err
	}
	return p.lose(ctx, held, chain.LostWorker)
}

// run takes one letter from lease to outcome. Once leased, it is finished even if the service is stopping.
func (p *Pool) run(ctx context.Context, l chain.Letter, worker string) {
	size, err := p.attempt(ctx, l, worker)
	var refused *chain.TransitionError
	if err != nil && ctx.Err() == nil && !errors.As(err, &refused) {
		p.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "letter given back",
			slog.String("payload_ref", l.Ref.String()), slog.String("fault", fault(err)))
		pause(ctx, faultPause)
	}
	p.done(l.Ref, size)
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
	case errors.Is(err, deadletter.ErrStaleLease):
		return "stale_lease"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return fmt.Sprintf("%T", err)
}

// attempt leases, runs and settles a letter, and tells the log size at which that shows.
func (p *Pool) attempt(ctx context.Context, l chain.Letter, worker string) (uint64, error) {
	unlock := p.lock(l.Losses > 0)
	defer unlock()
	job, err := p.cfg.Queue.Lease(ctx, l.Ref, worker, p.cfg.LeaseFor)
	if err != nil {
		return p.cfg.State.Tip().Size, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishFor)
	defer cancel()
	if job.Letter.Lease.Alone && l.Losses == 0 {
		return job.Letter.LastSeq + 1, p.cfg.Queue.Release(ctx, job)
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
	if err != nil {
		return job.Letter.LastSeq + 2, errors.Join(err, p.cfg.Queue.Release(ctx, job))
	}
	var r deadletter.Receipt
	if result.Completion != nil {
		r, err = p.cfg.Queue.Complete(ctx, job, *result.Completion)
	} else {
		r, err = p.cfg.Queue.FailJob(ctx, job, *result.Breakdown)
	}
	return r.Seq + 1, err
}

// codeUnavailable is the code of a letter whose bytes are gone or damaged.
const codeUnavailable = "ingest.payload_unavailable"

// process reads the payload and runs the processor. Lost or damaged bytes are a finding about the letter, not a
// fault to retry.
func (p *Pool) process(ctx context.Context, job deadletter.Job) (r Result, err error) {
	payload, err := p.cfg.Store.Get(ctx, blob.Ref{Digest: job.Letter.Ref, Version: job.Letter.BlobVersion})
	var corrupt *blob.CorruptError
	if errors.Is(err, blob.ErrNotFound) || errors.As(err, &corrupt) {
		return broken(deadletter.Breakdown{Stage: chain.StageIngest, Code: codeUnavailable, Rules: "process-1",
			Summary: "the stored payload is missing or damaged"}), nil
	}
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if recover() != nil {
			r, err = broken(deadletter.Breakdown{Stage: chain.StageParse, Crash: "panic", Rules: "process-1",
				Summary: "the processor crashed on this payload"}), nil
		}
	}()
	return p.cfg.Processor.Process(ctx, job, payload)
}

func broken(b deadletter.Breakdown) Result { return Result{Breakdown: &b} }
