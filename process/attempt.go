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
