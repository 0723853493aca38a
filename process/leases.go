package process

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// PullPrefix begins the names of workers outside of the service in events. Their leases are the business of the desk.
const PullPrefix = "pull/"

// sight is a lease of another instance, as it was first seen. It gets its whole length from then on, by the time that
// passes here: clocks that are wrong, or set, must not make living workers look dead.
type sight struct {
	until time.Time // as recorded
	over  time.Time
}

// watch looks after leases and the memory of faults until ctx is done, however busy the workers are.
func (p *Pool) watch(ctx context.Context) error {
	for ; ctx.Err() == nil; pause(ctx, expiryEvery) {
		now := time.Now()
		p.forget(now.Add(-faultMemory))
		err := errors.Join(p.keep(ctx, now), p.expire(ctx, now))
		if err != nil && !errors.Is(err, deadletter.ErrUnavailable) && !errors.Is(err, deadletter.ErrStaleLease) {
			return err // else: what is still leased is looked at again
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

// keep gives more time to what runs here, before anybody can take it for dead. What is leased to this instance and does
// not run here was never started, its lease was appended unheard: it is given back.
func (p *Pool) keep(ctx context.Context, now time.Time) error {
	own, err := p.cfg.State.LeasesOf(p.cfg.Node+"/", maxHeld)
	for _, l := range own {
		switch {
		case !p.runs(l.Ref):
			err = errors.Join(err, p.cfg.Queue.Release(ctx, deadletter.Job{Letter: l}))
		case l.Lease.Until.Before(now.Add(2 * expiryEvery)):
			err = errors.Join(err, p.cfg.Queue.Extend(ctx, deadletter.Job{Letter: l}, time.Minute))
		}
	}
	return err
}

// expire gives back letters whose lease ran out at another instance: it is gone.
func (p *Pool) expire(ctx context.Context, now time.Time) error {
	held, err := p.cfg.State.Leases(maxHeld)
	if err != nil {
		return err
	}
	seen := map[uint64]sight{}
	for _, l := range held {
		if strings.HasPrefix(l.Lease.Worker, p.cfg.Node+"/") || strings.HasPrefix(l.Lease.Worker, PullPrefix) {
			continue
		}
		s, known := p.seen[l.Lease.Seq]
		if !known || !s.until.Equal(l.Lease.Until) {
			s = sight{l.Lease.Until, now.Add(l.Lease.Length() + expiryGrace)}
		}
		seen[l.Lease.Seq] = s
		if !now.Before(s.over) {
			err = errors.Join(err, p.cfg.Queue.Lose(ctx, l, chain.LostWorker))
		}
	}
	p.seen = seen
	return err
}

func (p *Pool) runs(ref chain.Digest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy[ref].size == running
}
