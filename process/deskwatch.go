package process

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// evidenceVanished is the evidence of a worker that was not heard of again.
const evidenceVanished = "lease_vanished"

// Run watches the leases of workers until ctx is done. It returns nil or a fault of the queue or projection that ended it.
func (d *Desk) Run(ctx context.Context) error {
	for ; ctx.Err() == nil; pause(ctx, watchEvery) {
		err := d.look(ctx, time.Now())
		if err != nil && !errors.Is(err, deadletter.ErrUnavailable) && !errors.Is(err, deadletter.ErrStaleLease) {
			return ended(ctx, err)
		}
	}
	return nil
}

// look compares what is watched with what is leased, and ends the leases of workers that are gone.
func (d *Desk) look(ctx context.Context, now time.Time) error {
	folded := d.cfg.State.Tip().Size // before the leases are read: what is in the state by then is among them
	leased, err := d.cfg.State.LeasesOf(PullPrefix, maxHeld)
	if err != nil {
		return err
	}
	for _, h := range d.gone(leased, folded, now) {
		err = errors.Join(err, d.lose(ctx, h))
	}
	return err
}

// gone are the leases whose time is over. Leases that were not known are watched from now on, for their whole length: while
// this process was not there, nobody could beat. What another instance extended goes on; its worker was heard of there, and
// not all of that is known here.
func (d *Desk) gone(leased []chain.Letter, folded uint64, now time.Time) (over []hand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.awake(now)
	live := map[uint64]bool{}
	for _, l := range leased {
		seq := l.Lease.Seq
		live[seq] = true
		h := d.hands[seq]
		if h == nil {
			h = &hand{job: deadletter.Job{Letter: l, LogID: d.cfg.Queue.LogID()}, named: true}
			h.keep(l, now)
			h.half = now // that it is heard of here is news to the others
			d.watch(h)
		}
		if l.Lease.Until.After(h.until) && !h.grows {
			h.keep(l, now)
			h.named, h.sole = true, false
		}
		if now.After(h.over.Add(beatGrace)) {
			over = append(over, *h)
		}
	}
	for seq := range d.hands {
		if !live[seq] && seq < folded && len(leased) < maxHeld {
			delete(d.hands, seq)
		}
	}
	return over
}

// awake gives all workers more time if this process did not run for a while: it heard nobody, and saw nothing.
func (d *Desk) awake(now time.Time) {
	if asleep := now.Sub(d.last); !d.last.IsZero() && asleep > 5*watchEvery {
		for _, h := range d.hands {
			h.over, h.sole = h.over.Add(asleep), false
		}
	}
	d.last = now
}

// lose ends the lease of a worker that is gone.
func (d *Desk) lose(ctx context.Context, h hand) error {
	if !h.named {
		return d.cfg.Queue.Release(ctx, h.job)
	}
	if !h.sole {
		return d.cfg.Queue.Lose(ctx, h.job.Letter, chain.LostWorker)
	}
	err := d.cfg.Queue.Vanished(ctx, h.job.Letter, deadletter.Breakdown{Stage: chain.StageParse, Crash: evidenceVanished, Rules: rules,
		Summary: "its worker had nothing else and was not heard of again"})
	if err == nil {
		d.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "a worker vanished: its letter is quarantined", slog.String("payload_ref", h.job.Letter.Ref.String()),
			slog.String("worker", h.worker()))
	}
	return err
}
