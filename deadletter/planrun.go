package deadletter

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/projection"
)

// RunPlans carries out the plans of this instance, those of an earlier run first, until ctx is done. It waits while the
// log is not available. It ends early when the state cannot be read. It runs once.
func (q *Queue) RunPlans(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	runs := planRuns{q: q, stop: map[string]context.CancelFunc{}, ended: make(chan runEnd)}
	defer runs.all.Wait()
	defer cancel()
	for {
		changed := q.cfg.State.Changed()
		if err := runs.agree(ctx); err != nil {
			return unlessDone(ctx, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case end := <-runs.ended:
			runs.stop[end.plan]()
			delete(runs.stop, end.plan)
			if end.err != nil {
				return unlessDone(ctx, end.err)
			}
		}
	}
}

// planRuns are the plans that are being carried out here.
type planRuns struct {
	q     *Queue
	all   sync.WaitGroup
	stop  map[string]context.CancelFunc // by plan
	ended chan runEnd
}

// runEnd is how the run of a plan ended.
type runEnd struct {
	plan string
	err  error
}

// agree starts the runs that the state asks for, and stops the others.
func (r *planRuns) agree(ctx context.Context) error {
	plans, err := r.q.cfg.State.RunningPlans()
	own := map[string]bool{}
	for _, p := range plans {
		if p.Worker != r.q.cfg.Node {
			continue
		}
		if own[p.ID] = true; r.stop[p.ID] == nil {
			r.start(ctx, p)
		}
	}
	for id, stop := range r.stop {
		if !own[id] {
			stop()
		}
	}
	return err
}

func (r *planRuns) start(ctx context.Context, p chain.Plan) {
	running, stop := context.WithCancel(ctx)
	r.stop[p.ID] = stop
	r.all.Go(func() {
		end := runEnd{p.ID, r.q.runPlan(running, p)}
		select {
		case r.ended <- end:
		case <-ctx.Done():
		}
	})
}

func unlessDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// errPlanOver: the plan has ended, or another instance carries it out.
var errPlanOver = errors.New("the plan is over here")

// planRun is a plan being carried out.
type planRun struct {
	q      *Queue
	plan   chain.Plan
	filter projection.Filter
	pace   pace
}

// runPlan replays what is left of p and records its end. It returns when the state knows that the plan is over here,
// or ctx is done.
func (q *Queue) runPlan(ctx context.Context, p chain.Plan) error {
	f, err := projection.ParseFilter(p.Terms.Filter)
	if err != nil { // of a newer version, which may carry it out again
		<-ctx.Done()
		return nil
	}
	r := &planRun{q: q, plan: p, filter: f, pace: newPace(p.Terms, time.Now())}
	for more := true; more && err == nil; {
		if more, err = r.pass(ctx); err == nil {
			err = q.folded(ctx)
		}
	}
	if err == nil {
		err = r.finish(ctx)
	}
	if errors.Is(err, errPlanOver) {
		err = nil
	}
	if err == nil {
		err = q.folded(ctx)
	}
	return unlessDone(ctx, err)
}

// folded waits until the state has what this queue has appended.
func (q *Queue) folded(ctx context.Context) error { return q.cfg.State.Wait(ctx, q.Size()-1) }

// Bounds of a run's memory, and its step.
const (
	planPage  = 500 // letters read at a time
	planBatch = 256 // decisions waiting for the appender at a time
	planTick  = 15 * time.Millisecond
)

// pass goes over the members once and tells whether it replayed any: then others, which were being processed, may have
// come free meanwhile.
func (r *planRun) pass(ctx context.Context) (acted bool, err error) {
	for cursor, more := "", true; more; more = cursor != "" {
		page, err := r.q.cfg.State.Members(r.filter, r.plan.Terms.Snapshot, cursor, planPage)
		if err != nil {
			return acted, err
		}
		for rest := page.Letters; len(rest) > 0; {
			n, err := r.pace.wait(ctx)
			if err != nil {
				return acted, err
			}
			n = min(n, planBatch, len(rest))
			taken, err := r.batch(ctx, rest[:n])
			if err != nil {
				return acted, err
			}
			r.pace.spend(taken)
			acted, rest = acted || taken > 0, rest[n:]
		}
		cursor = page.Next
	}
	return acted, nil
}

// batch replays letters, all at once so that one append serves them, and tells how many events that came to.
func (r *planRun) batch(ctx context.Context, letters []chain.Letter) (taken int, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, l := range letters {
		all.Go(func() {
			events, failed := r.replay(ctx, l.Ref)
			mu.Lock()
			defer mu.Unlock()
			taken += events
			if err == nil || errors.Is(failed, errPlanOver) {
				err = failed
			}
		})
	}
	all.Wait()
	return taken, err
}

// replay replays a letter, if it is still a member and waits, and tells how many events that came to.
func (r *planRun) replay(ctx context.Context, ref chain.Digest) (int, error) {
	record, err := r.record(ctx, func(v *view) (chain.Event, error) {
		l, err := v.letter(ref)
		now := time.Now()
		if err != nil || !r.filter.Means(&l) || l.MovedSeq >= r.plan.Terms.Snapshot || l.Lease != nil || l.Due(now) {
			return chain.Event{}, err
		}
		return r.q.replay(chain.Event{Type: chain.TypeReplayed, At: now, Actor: r.plan.Actor, PayloadRef: ref,
			Reason: r.plan.Reason, Override: r.plan.Override, Plan: r.plan.ID}, l), nil
	})
	if _, refused := errors.AsType[*chain.TransitionError](err); refused {
		return 0, nil
	}
	if err != nil || record.Raw == nil {
		return 0, err
	}
	return 1, nil
}

// finish records the end of the plan. What became of its members is counted at the head of the log.
func (r *planRun) finish(ctx context.Context) error {
	_, err := r.record(ctx, func(v *view) (chain.Event, error) {
		p, err := v.plan(r.plan.ID)
		counts := p.Counts
		counts.Skipped = p.Remaining()
		return chain.Event{Type: chain.TypeReplayDone, At: time.Now(), Actor: r.q.cfg.Node, Plan: p.ID, Counts: &counts}, err
	})
	return err
}

// record takes a decision at the head while the plan is running here, else it is errPlanOver. It waits for a log that
// is not available: what was decided then is looked at anew.
func (r *planRun) record(ctx context.Context, decide func(*view) (chain.Event, error)) (chain.Record, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		record, err := r.q.do(ctx, func(v *view) (chain.Event, error) {
			p, err := v.plan(r.plan.ID)
			if err == nil && (p.State != chain.PlanRunning || p.Worker != r.q.cfg.Node) {
				err = errPlanOver
			}
			if err != nil {
				return chain.Event{}, err
			}
			return decide(v)
		})
		if !errors.Is(err, ErrUnavailable) {
			return record, err
		}
		select {
		case <-ctx.Done():
			return chain.Record{}, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// pace spreads the letters of a plan over time. What it grants grows with time and is used up by spend; of a time in
// which nothing went, it makes up for a fifth of a second.
type pace struct {
	rate    float64 // letters per second
	ramp    bool
	began   time.Time
	last    time.Time
	granted float64
}

// makeUp is how much of a standstill is made up for.
const makeUp = 200 * time.Millisecond

func newPace(t chain.PlanTerms, now time.Time) pace {
	return pace{rate: float64(t.RateMilli) / 1000, ramp: t.Ramp, began: now, last: now, granted: 1}
}

// speed is how many letters per second go at now.
func (p *pace) speed(now time.Time) float64 {
	if !p.ramp {
		return p.rate
	}
	return min(p.rate, math.Exp2(math.Floor(now.Sub(p.began).Seconds())))
}

// grant moves the pace to now and tells how many letters may go.
func (p *pace) grant(now time.Time) int {
	speed := p.speed(now)
	p.granted = min(p.granted+speed*now.Sub(p.last).Seconds(), max(1, speed*makeUp.Seconds()))
	p.last = now
	return int(p.granted)
}

func (p *pace) spend(n int) { p.granted -= float64(n) }

// wait waits until at least one letter may go, and not fewer than a tick is worth.
func (p *pace) wait(ctx context.Context) (int, error) {
	for {
		now := time.Now()
		speed := p.speed(now)
		least := max(1, speed*planTick.Seconds())
		if n := p.grant(now); p.granted >= least {
			return n, ctx.Err()
		}
		missing := time.Duration((least-p.granted)/speed*float64(time.Second)) + time.Microsecond
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(min(missing, time.Second)):
		}
	}
}
