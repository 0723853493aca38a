package process

import (
	"context"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/projection"
)

// Target is a processor and the workers that bring it letters.
type Target struct {
	Name      string
	Processor Processor     // nil: workers outside of the service come for its letters
	Workers   int           // letters at a time; 0 means 4
	Rate      float64       // letters begun per second at most; 0 sets no limit
	LeaseFor  time.Duration // 0 means a minute; a processor that takes longer has failed
}

// target is a Target at work.
type target struct {
	Target
	pick   func(projection.Kind) bool // the letters that go to it; nil for all
	work   chan chain.Letter
	gate   *gate
	passed bool          // a due letter was passed over because it runs; the pool's mutex owns it
	wake   chan struct{} // and does not run any more
}

func newTarget(cfg Target, routes *Routes) *target {
	if cfg.Workers == 0 {
		cfg.Workers = 4
	}
	if cfg.LeaseFor == 0 {
		cfg.LeaseFor = time.Minute
	}
	t := &target{Target: cfg, work: make(chan chain.Letter), gate: newGate(cfg.Rate), wake: make(chan struct{}, 1)}
	if routes != nil {
		t.pick = routes.Picks(cfg.Name)
	}
	return t
}

// wait sleeps until changed, until a letter that was passed over is free, until next if there is one, or the end
// of ctx.
func (t *target) wait(ctx context.Context, changed <-chan struct{}, next time.Time) error {
	select {
	case <-changed:
	case <-t.wake:
	case <-when(next):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// when comes at a time; never for the zero time.
func when(at time.Time) <-chan time.Time {
	if at.IsZero() {
		return nil
	}
	return time.After(time.Until(at))
}

// rouse ends a wait, or the next one.
func (t *target) rouse() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// TargetState is how a target does.
type TargetState struct {
	Name  string
	Open  bool      // its breaker: it is taken to be down, and its letters wait
	Since time.Time // of that; zero if it is not open
}

// States tells how the targets do whose workers are those of this pool.
func (p *Pool) States() []TargetState {
	states := make([]TargetState, 0, len(p.targets))
	for _, t := range p.targets {
		since := t.gate.openSince()
		states = append(states, TargetState{t.Name, !since.IsZero(), since})
	}
	return states
}
