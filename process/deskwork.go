package process

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// newsFor is how long a lease that another instance gave may take to be known here.
const newsFor = 2 * time.Second

// known is the job of a lease that is in force. One that stands further on in the log than this process has read is waited
// for. Errors: ErrNotFound, ErrStaleLease.
func (d *Desk) known(ctx context.Context, id LeaseID) (deadletter.Job, error) {
	ahead := id.Seq >= d.cfg.State.Tip().Size
	job, err := d.cfg.Queue.Held(ctx, id.Ref, id.Seq)
	if !ahead || !errors.Is(err, deadletter.ErrStaleLease) && !errors.Is(err, deadletter.ErrNotFound) {
		return job, err
	}
	waiting, cancel := context.WithTimeout(ctx, newsFor)
	defer cancel()
	if d.cfg.State.Wait(waiting, id.Seq) != nil {
		return deadletter.Job{}, err
	}
	return d.cfg.Queue.Held(ctx, id.Ref, id.Seq)
}

// held is known of a lease that is the worker's. Errors: ErrNotFound, ErrStaleLease.
func (d *Desk) held(ctx context.Context, actor string, id LeaseID) (deadletter.Job, error) {
	job, err := d.known(ctx, id)
	if err == nil && !strings.HasPrefix(job.Letter.Lease.Worker, Worker{Actor: actor}.prefix()) {
		err = deadletter.ErrStaleLease
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.hands[id.Seq]; h != nil && err == nil {
		h.named = true
	}
	return job, err
}

// Payload opens the bytes of a leased letter, verified as they are read. The caller closes the reader. Who comes for them is
// as alive as with a heartbeat.
// Errors: ErrNotFound, ErrStaleLease, errors of the store.
func (d *Desk) Payload(ctx context.Context, actor string, id LeaseID) (chain.Letter, io.ReadCloser, error) {
	job, err := d.held(ctx, actor, id)
	if err == nil {
		_, err = d.alive(ctx, id, job)
	}
	if err != nil {
		return chain.Letter{}, nil, err
	}
	body, _, err := d.cfg.Store.Open(ctx, blob.Ref{Digest: job.Letter.Ref, Version: job.Letter.BlobVersion})
	return job.Letter, body, err
}

// Heartbeat says that the worker is at it, and answers until when it need not say so again. A lease that this process does
// not know, from before its start or from another instance, is known from then on. Errors: ErrNotFound, ErrStaleLease,
// ErrUnavailable.
func (d *Desk) Heartbeat(ctx context.Context, actor string, id LeaseID) (time.Time, error) {
	job, err := d.mine(ctx, actor, id)
	if err != nil {
		return time.Time{}, err
	}
	return d.alive(ctx, id, job)
}

// alive gives the lease its whole length from now on, and answers until when that is.
func (d *Desk) alive(ctx context.Context, id LeaseID, job deadletter.Job) (until time.Time, err error) {
	length := job.Letter.Lease.Length()
	if d.beat(id.Seq, job, length) {
		err = d.extend(ctx, id.Seq, job, length)
	}
	if errors.Is(err, deadletter.ErrUnavailable) {
		err = nil // the worker is alive all the same, and so is its lease here
	}
	return time.Now().Add(length), err
}

// beat gives the worker its length from now on, and tells whether that must be recorded.
func (d *Desk) beat(lease uint64, job deadletter.Job, length time.Duration) (extend bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	h := d.hands[lease]
	if h == nil {
		h = &hand{job: job}
		h.keep(job.Letter, now)
		h.half = now // what is left of the recorded time is not known here
		d.watch(h)
	}
	h.over, h.named = now.Add(length), true
	h.grows = h.grows || !now.Before(h.half)
	return !now.Before(h.half)
}

// mine is held for a lease that this process knows already, without asking the log: as far as the state has come, the lease
// is in force.
func (d *Desk) mine(ctx context.Context, actor string, id LeaseID) (deadletter.Job, error) {
	d.mu.Lock()
	h := d.hands[id.Seq]
	known := h != nil && h.job.Letter.Ref == id.Ref && strings.HasPrefix(h.worker(), Worker{Actor: actor}.prefix())
	var job deadletter.Job
	if known {
		job = h.job
	}
	d.mu.Unlock()
	if !known {
		return d.held(ctx, actor, id)
	}
	l, err := d.cfg.State.Letter(id.Ref)
	if err == nil && l.LastSeq >= id.Seq && (l.Lease == nil || l.Lease.Seq != id.Seq) {
		d.drop(id.Seq)
		err = deadletter.ErrStaleLease
	}
	return job, err
}

// extend records that the lease goes on.
func (d *Desk) extend(ctx context.Context, lease uint64, job deadletter.Job, length time.Duration) error {
	defer d.extended(lease)
	if err := d.cfg.Queue.Extend(ctx, job, length); err != nil {
		return err
	}
	renewed, err := d.cfg.Queue.Held(ctx, job.Letter.Ref, lease)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.hands[lease]; h != nil {
		h.keep(renewed.Letter, time.Now())
	}
	return nil
}

func (d *Desk) extended(lease uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.hands[lease]; h != nil {
		h.grows = false
	}
}

// Complete records that the payload was processed, see Delivered for what is told of it. Who completes the same lease again
// gets the same receipt, marked as known. Errors: ErrNotFound; ErrStaleLease if the lease is over, and then nothing is
// recorded; *chain.FieldError, errors of the store, ErrUnavailable.
func (d *Desk) Complete(ctx context.Context, actor string, id LeaseID, outcome chain.Outcome, code string, record []byte) (deadletter.Receipt, error) {
	return d.end(ctx, actor, id, true, func(ctx context.Context, job deadletter.Job) (deadletter.Receipt, error) {
		c, err := Delivered(job.Letter, outcome, code, record)
		if err != nil {
			return deadletter.Receipt{}, err
		}
		return d.cfg.Queue.Complete(ctx, job, *c)
	})
}

// Fail records that the payload could not be processed, like Complete. A stage and a signal are needed; message is the raw
// error text.
func (d *Desk) Fail(ctx context.Context, actor string, id LeaseID, b deadletter.Breakdown) (deadletter.Receipt, error) {
	if !b.Stage.Valid() {
		return deadletter.Receipt{}, &chain.FieldError{Field: "stage", Rule: "must be ingest, validate, parse, normalize or dispatch"}
	}
	if err := b.Signal.Validate(); err != nil {
		return deadletter.Receipt{}, err
	}
	b.Rules = deliveredRules
	return d.end(ctx, actor, id, false, func(ctx context.Context, job deadletter.Job) (deadletter.Receipt, error) {
		return d.cfg.Queue.FailJob(ctx, job, b)
	})
}

// end records an outcome, or finds the one that was recorded under the lease before.
func (d *Desk) end(ctx context.Context, actor string, id LeaseID, completed bool, record func(context.Context, deadletter.Job) (deadletter.Receipt, error)) (r deadletter.Receipt, err error) {
	job, err := d.held(ctx, actor, id)
	if err == nil {
		err = insist(ctx, func(ctx context.Context) error {
			r, err = record(ctx, job)
			return err
		})
	}
	if errors.Is(err, deadletter.ErrStaleLease) {
		known, worker, again := d.cfg.Queue.Settled(ctx, id.Ref, id.Seq)
		if again == nil && known.Completed() == completed && strings.HasPrefix(worker, Worker{Actor: actor}.prefix()) {
			r, err = known, nil
		}
	}
	if err == nil {
		d.drop(id.Seq)
	}
	return r, err
}

// Release gives the letter back at no cost: the worker stops. Errors: ErrNotFound, ErrStaleLease, ErrUnavailable.
func (d *Desk) Release(ctx context.Context, actor string, id LeaseID) error {
	job, err := d.held(ctx, actor, id)
	if err == nil {
		err = insist(ctx, func(ctx context.Context) error { return d.cfg.Queue.Release(ctx, job) })
	}
	if err == nil {
		d.drop(id.Seq)
	}
	return err
}
