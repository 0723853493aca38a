package deadletter

import (
	"context"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Held is the job of a lease that is in force, by the seq of its attempt event. Errors: ErrNotFound, ErrStaleLease.
func (q *Queue) Held(ctx context.Context, ref chain.Digest, lease uint64) (Job, error) {
	l, err := q.letter(ctx, ref)
	if err != nil {
		return Job{}, err
	}
	if l.Lease == nil || l.Lease.Seq != lease {
		return Job{}, ErrStaleLease
	}
	return Job{Letter: l, LogID: q.logID}, nil
}

// Settled is the outcome that was recorded under a lease which is over, as a known receipt, and the worker that had it. It
// answers who tells of an outcome again. Errors: ErrNotFound; ErrStaleLease if the lease ended without an outcome.
func (q *Queue) Settled(ctx context.Context, ref chain.Digest, lease uint64) (r Receipt, worker string, err error) {
	if _, err := q.letter(ctx, ref); err != nil {
		return Receipt{}, "", err
	}
	if err := q.cfg.State.Wait(ctx, q.Size()-1); err != nil {
		return Receipt{}, "", err
	}
	events, err := q.cfg.State.Timeline(ref)
	if err != nil {
		return Receipt{}, "", err
	}
	var l chain.Letter
	for _, e := range events {
		if l, err = l.Apply(e); err != nil {
			return Receipt{}, "", err
		}
		if e.Event.Lease == lease && e.Event.Type.Disposition() != "" {
			r = receipt(l, e.Seq, e.Leaf)
			r.Known = true
			return r, e.Event.Actor, nil
		}
	}
	return Receipt{}, "", ErrStaleLease
}

// Vanished records that the worker of a lease is gone and that the payload has taken it down; b.Crash is the evidence.
// Errors: ErrStaleLease, also if the lease was extended since leased was read: its worker was heard of meanwhile.
func (q *Queue) Vanished(ctx context.Context, leased chain.Letter, b Breakdown) error {
	r, err := q.outcome(ctx, Job{Letter: leased}, func(l chain.Letter, _ *view) (chain.Event, error) {
		if heardOf(l, leased) {
			return chain.Event{}, ErrStaleLease
		}
		return q.failed(l, b, testimony{}), nil
	})
	q.count(r)
	return err
}

// heardOf tells whether the worker of a lease was heard of since leased was read: somebody extended it, here or elsewhere.
func heardOf(l, leased chain.Letter) bool { return l.Lease.Until.After(leased.Lease.Until) }

// Completed tells whether r is the receipt of a completion rather than of a failure: a report that contradicts another one
// was completed too, and waits for a person.
func (r Receipt) Completed() bool {
	return r.Disposition == chain.Resolved || r.ErrorCode == codeConflict
}
