package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// run takes one letter from lease to outcome, once the gate of its target lets it through. Once leased, it has an outcome
// or is given back, even if the service is stopping.
func (p *Pool) run(ctx context.Context, t *target, l chain.Letter, worker string) {
	leave, err := t.gate.enter(ctx)
	if err != nil {
		p.done(l.Ref, 0, false)
		return
	}
	told, err := p.attempt(ctx, t, l, worker)
	if leave.done(told.verdict, told.park) {
		p.tell(ctx, t)
	}
	var refused *chain.TransitionError
	switch {
	case err == nil:
		p.storeWorked(ctx)
	case ctx.Err() != nil, errors.Is(err, errResting):
		err = nil
	case errors.As(err, &refused), errors.Is(err, deadletter.ErrStaleLease):
		err = nil
		pause(ctx, refusedPause)
	case errors.Is(err, blob.ErrUnavailable):
		p.storeFailed(ctx, err)
		p.givenBack(ctx, slog.LevelDebug, l, err)
	default:
		p.givenBack(ctx, slog.LevelWarn, l, err)
	}
	p.done(l.Ref, told.size, err != nil)
}

// tell says that a target is down or back; between the two nobody says anything.
func (p *Pool) tell(ctx context.Context, t *target) {
	if t.gate.openSince().IsZero() {
		p.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "the processor works again: its letters go on", slog.String("processor", t.Name))
		return
	}
	p.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "the processor fails: its letters wait, and use no attempts", slog.String("processor", t.Name))
}

// told is what came of an attempt.
type told struct {
	size    uint64 // of the log, at which it shows
	verdict verdict
	park    time.Duration
}

func (p *Pool) givenBack(ctx context.Context, level slog.Level, l chain.Letter, err error) {
	p.cfg.Log.LogAttrs(ctx, level, "letter given back", slog.String("payload_ref", l.Ref.String()), slog.String("fault", fault(err)))
	pause(ctx, faultPause)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// fault names an error, the first of several, by what it is, not by its text.
func fault(err error) string {
	switch {
	case errors.Is(err, deadletter.ErrUnavailable):
		return "log_unavailable"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	var joined interface{ Unwrap() []error }
	for errors.As(err, &joined) {
		err = joined.Unwrap()[0]
	}
	return fmt.Sprintf("%T", err)
}

// ofStore is the store's own word on its failure, without what others put around it.
func ofStore(err error) string {
	for err != nil {
		inner := errors.Unwrap(err)
		var joined interface{ Unwrap() []error }
		if inner == nil && errors.As(err, &joined) {
			inner = joined.Unwrap()[0]
		}
		if inner == blob.ErrUnavailable { //nolint:errorlint // the error that wraps it directly
			return err.Error()
		}
		err = inner
	}
	return blob.ErrUnavailable.Error()
}

// errResting is why nothing was leased: the store is away, or was a moment ago.
var errResting = errors.New("the payload store is not asked now")

// attempt leases, runs and settles a letter. A lease is not asked for once stopping is done, and not forgotten half-way.
func (p *Pool) attempt(stopping context.Context, t *target, l chain.Letter, worker string) (told, error) {
	unlock := p.lock(l.Losses > 0)
	defer unlock()
	if stopping.Err() != nil {
		return told{}, stopping.Err()
	}
	if !p.mayTry() {
		return told{size: p.cfg.State.Tip().Size}, errResting
	}
	asking, cancel := lasting(stopping)
	defer cancel()
	job, err := p.cfg.Queue.Lease(asking, l.Ref, worker, t.LeaseFor)
	if err != nil {
		return told{size: p.cfg.State.Tip().Size}, err
	}
	if job.Letter.Lease.Alone && l.Losses == 0 {
		return told{size: job.Letter.LastSeq + 1}, p.release(stopping, job)
	}
	return p.settle(stopping, t, job)
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
func (p *Pool) settle(stopping context.Context, t *target, job deadletter.Job) (told, error) {
	result, err := p.process(stopping, t, job)
	var says told
	if err == nil {
		says.verdict, says.park = p.judge(result)
		says.size, err = p.record(stopping, job, result)
	}
	if err != nil && !errors.Is(err, deadletter.ErrStaleLease) {
		says.size = job.Letter.LastSeq + 1
		err = errors.Join(err, p.release(stopping, job))
	}
	says.size++
	return says, err
}

// judge is what a result says about the target. A crash counts as a failure: a program that crashes at every payload is
// broken itself, and must not quarantine them all.
func (p *Pool) judge(r Result) (v verdict, park time.Duration) {
	b := r.Breakdown
	switch {
	case b == nil:
		return healthy, 0
	case b.Crash != "":
		return failing, 0
	case b.Code != "":
		return healthy, 0
	}
	said := p.cfg.Queue.Classify(b.Stage, b.Signal)
	if said.Class != chain.Transient {
		return healthy, 0
	}
	if said.RetryAfter > longestRetry {
		park = said.RetryAfter
	}
	return failing, park
}

func (p *Pool) release(stopping context.Context, job deadletter.Job) error {
	return insist(stopping, func(ctx context.Context) error { return p.cfg.Queue.Release(ctx, job) })
}

// lasting goes on for finishFor, but for no more than stopGrace once stopping is done.
func lasting(stopping context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(stopping), finishFor)
	stop := context.AfterFunc(stopping, func() {
		pause(ctx, stopGrace)
		cancel()
	})
	return ctx, func() { stop(); cancel() }
}

// insist repeats do while the log is not available, for finishFor, or for stopGrace once stopping is done: what was done
// must not be forgotten for a moment's trouble, and what is forgotten is given back at the next start. Outcomes are recorded
// once, however often they are told.
func insist(stopping context.Context, do func(context.Context) error) error {
	ctx, cancel := lasting(stopping)
	defer cancel()
	for {
		err := do(ctx)
		if !errors.Is(err, deadletter.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		pause(ctx, recordPause)
	}
}

// record tells the queue what came of a letter. A result that no event can hold is a defect of the processor, a
// record that the store does not take one of the payload: the letter goes to a person.
func (p *Pool) record(stopping context.Context, job deadletter.Job, result Result) (seq uint64, err error) {
	err = insist(stopping, func(ctx context.Context) error {
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
		var large *blob.TooLargeError
		switch {
		case errors.As(err, &large):
			r, err = p.cfg.Queue.FailJob(ctx, job, deadletter.Breakdown{Stage: chain.StageParse, Code: codeExpansion,
				Rules: rules, Summary: "the record is larger than the limit of the store"})
		case errors.As(err, &unfit), errors.As(err, &unreadable), result == Result{}:
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
	codeExpansion   = "parse.expansion_limit"
)

// errStopped is why work that outlasts stopGrace is given up.
var errStopped = errors.New("the service stopped before the processor was done")

// process reads the payload and runs the processor. Lost or damaged bytes are a finding about the letter, not a
// fault to retry; so is a processor that takes longer than the lease, unless it waited for the store.
func (p *Pool) process(stopping context.Context, t *target, job deadletter.Job) (Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(stopping), t.LeaseFor)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(stopping, func() {
		pause(ctx, stopGrace)
		stop(errStopped)
	})()
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
	r, err := p.timed(ctx, t, job, payload)
	if err != nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), errStopped) && !errors.Is(err, blob.ErrUnavailable) {
		if away := p.cfg.Store.Healthy(); away != nil {
			return Result{}, away
		}
		return broken(deadletter.Breakdown{Stage: chain.StageParse, Signal: deadletter.Signal{Type: "timeout"}, Rules: rules,
			Summary: "the processor took too long"}), nil
	}
	return r, err
}

// timed runs the processor for as long as ctx lasts. One that goes on all the same is left behind: what it gives
// then is dropped, and the letter's lease is over.
func (p *Pool) timed(ctx context.Context, t *target, job deadletter.Job, payload []byte) (Result, error) {
	type answer struct {
		r   Result
		err error
	}
	given := make(chan answer, 1)
	go func() {
		r, err := p.guarded(ctx, t, job, payload)
		given <- answer{r, err}
	}()
	select {
	case a := <-given:
		return a.r, a.err
	case <-ctx.Done():
	}
	select { // a result that is there counts
	case a := <-given:
		return a.r, a.err
	default:
		return Result{}, context.Cause(ctx)
	}
}

// guarded runs the processor; a panic is a crash that this payload caused.
func (p *Pool) guarded(ctx context.Context, t *target, job deadletter.Job, payload []byte) (r Result, err error) {
	defer func() {
		if recover() != nil {
			r, err = broken(deadletter.Breakdown{Stage: chain.StageParse, Crash: "panic", Rules: rules,
				Summary: "the processor crashed on this payload"}), nil
		}
	}()
	return t.Processor.Process(ctx, job, payload)
}

func broken(b deadletter.Breakdown) Result { return Result{Breakdown: &b} }
