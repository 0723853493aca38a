package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/projection"
)

// failed is a filter that means what failure makes.
var failed = projection.Filter{ErrorCode: "validate.schema"}

// backlog makes n dead letters and returns their refs.
func (b *bench) backlog(name string, n int) []chain.Digest {
	refs := make([]chain.Digest, n)
	for from := 0; from < n; from += 500 {
		each(min(500, n-from), func(i int) {
			r, err := b.Fail(b.t.Context(), failure(fmt.Sprint(name, " ", from+i)))
			assert.NoError(b.t, err)
			refs[from+i] = r.PayloadRef
		})
	}
	b.fold()
	return refs
}

// fold waits until the projection has everything.
func (b *bench) fold() { require.NoError(b.t, b.state.Wait(b.t.Context(), uint64(b.size()-1))) }

// carryOut runs plans until the test ends, or stop is called.
func (b *bench) carryOut() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.RunPlans(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(b.t, <-ended)
	})
	b.t.Cleanup(stop)
	return stop
}

// preview counts what a filter means.
func (b *bench) preview(f projection.Filter) deadletter.PlanPreview {
	b.t.Helper()
	p, err := b.PreviewPlan(b.t.Context(), f, false)
	require.NoError(b.t, err)
	return p
}

// ordering is the order of what a preview says.
func ordering(f projection.Filter, p deadletter.PlanPreview, perSecond uint64) deadletter.PlanOrder {
	return deadletter.PlanOrder{Order: operator, Filter: f, Snapshot: p.Snapshot, Expected: p.Count, RateMilli: 1000 * perSecond}
}

// plan orders a bulk replay of all that f means.
func (b *bench) plan(f projection.Filter, perSecond uint64) chain.Plan {
	b.t.Helper()
	p, err := b.CreatePlan(b.t.Context(), ordering(f, b.preview(f), perSecond))
	require.NoError(b.t, err)
	require.Equal(b.t, chain.PlanRunning, p.State)
	return p
}

// await waits for the end of a plan, which must add up.
func (b *bench) await(id string) chain.Plan {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Hour)
	defer cancel()
	for {
		changed := b.state.Changed()
		p, err := b.state.Plan(id)
		if err == nil && p.State != chain.PlanRunning {
			require.Equal(b.t, p.Terms.Expected, p.Counts.Sum(), "%+v", p.Counts)
			b.countsHold(p)
			return p
		}
		select {
		case <-changed:
		case <-ctx.Done():
			require.Fail(b.t, "the plan does not end", "%+v", p)
		}
	}
}

// countsHold compares the counts of a plan with the log, where each letter has one event of the plan at most.
func (b *bench) countsHold(p chain.Plan) {
	b.t.Helper()
	replayed, parked, seen := uint64(0), uint64(0), map[chain.Digest]bool{}
	for _, line := range b.log.Lines() {
		r, err := chain.Parse(line)
		require.NoError(b.t, err)
		if r.Event.Plan != p.ID || r.Event.PayloadRef.IsZero() {
			continue
		}
		require.False(b.t, seen[r.Event.PayloadRef], "a letter twice")
		if seen[r.Event.PayloadRef] = true; r.Event.Type == chain.TypeReplayed {
			replayed++
		} else {
			parked++
		}
	}
	require.Equal(b.t, replayed, p.Counts.Replayed)
	require.Equal(b.t, parked, p.Counts.Parked)
}

func TestPlanPreview(t *testing.T) {
	b := newBench(t)
	refs := b.backlog("x", 20)
	f := transient("waits")
	f.Channel = chain.OCRDocument
	b.fail(f)
	b.ingest("no failure")
	b.fold()
	p := b.preview(failed)
	require.Equal(t, uint64(20), p.Count)
	require.Equal(t, uint64(b.size()), p.Snapshot)
	require.Equal(t, "disposition=dead_letter&disposition=retrying&error_code=validate.schema", p.Filter)
	require.Equal(t, []deadletter.PlanGroup{{Disposition: chain.DeadLetter, ErrorCode: "validate.schema", Channel: chain.MobileExport, Count: 20}}, p.Groups)
	require.Equal(t, []string{"builtin"}, p.Targets)
	require.Len(t, p.Sample, 10)
	require.Subset(t, refs, p.Sample)
	require.False(t, p.Newest.Before(p.Oldest))
	p = b.preview(projection.Filter{Dispositions: []chain.Disposition{chain.DeadLetter, chain.Retrying}})
	require.Equal(t, uint64(21), p.Count)
	require.Len(t, p.Groups, 2)

	_, err := b.PreviewPlan(t.Context(), projection.Filter{}, true)
	require.ErrorIs(t, err, deadletter.ErrEmptyFilter)
	for _, d := range []chain.Disposition{chain.Received, chain.Replayed, chain.Resolved, chain.Poison, "lost"} {
		_, err := b.PreviewPlan(t.Context(), projection.Filter{Dispositions: []chain.Disposition{d}}, false)
		var wrong *chain.FieldError
		require.ErrorAs(t, err, &wrong, d)
	}
}

func TestPlanOrdersAreChecked(t *testing.T) {
	b := newBench(t)
	b.backlog("x", 3)
	seen := b.preview(failed)
	size := b.size()
	for name, change := range map[string]func(*deadletter.PlanOrder){
		"reason":   func(o *deadletter.PlanOrder) { o.Reason = " " },
		"actor":    func(o *deadletter.PlanOrder) { o.Actor = "" },
		"rate":     func(o *deadletter.PlanOrder) { o.RateMilli = 99 },
		"expected": func(o *deadletter.PlanOrder) { o.Expected = 0 },
		"snapshot": func(o *deadletter.PlanOrder) { o.Snapshot = uint64(size) + 1 },
		"source":   func(o *deadletter.PlanOrder) { o.Filter.Source = "no token" },
	} {
		o := ordering(failed, seen, 10)
		change(&o)
		_, err := b.CreatePlan(t.Context(), o)
		var wrong *chain.FieldError
		require.ErrorAs(t, err, &wrong, name)
		require.Equal(t, name, wrong.Field)
	}
	o := ordering(failed, seen, 10)
	o.Expected++
	_, err := b.CreatePlan(t.Context(), o)
	var count *deadletter.PlanCountError
	require.ErrorAs(t, err, &count)
	require.Equal(t, deadletter.PlanCountError{Expected: 4, Count: 3, Snapshot: seen.Snapshot}, *count)
	_, err = b.Resolve(t.Context(), seen.Sample[0], operator)
	require.NoError(t, err)
	_, err = b.CreatePlan(t.Context(), ordering(failed, seen, 10))
	require.ErrorAs(t, err, &count)
	require.Equal(t, uint64(2), count.Count)
	require.Equal(t, size+1, b.size())
}

func TestPlanReplays(t *testing.T) {
	b := newBench(t)
	refs := b.backlog("x", 50)
	b.carryOut()
	p := b.await(b.plan(failed, 10_000).ID)
	require.Equal(t, chain.PlanCounts{Replayed: 50}, p.Counts)
	require.Equal(t, chain.PlanDone, p.State)
	for _, ref := range refs {
		require.Equal(t, chain.Replayed, b.letter(ref).Disposition)
	}
	last := b.events(refs[7])
	e := last[len(last)-1]
	require.Equal(t, p.ID, e.Plan)
	require.Equal(t, "op", e.Actor)
	require.Equal(t, operator.Reason, e.Reason)
	var refused *chain.TransitionError
	_, err := b.Replay(t.Context(), refs[0], operator)
	require.ErrorAs(t, err, &refused, "the usual refusal")
	var ended *deadletter.PlanEndedError
	_, err = b.CancelPlan(t.Context(), p.ID, operator)
	require.ErrorAs(t, err, &ended)
	_, err = b.ResumePlan(t.Context(), p.ID, operator)
	require.ErrorAs(t, err, &ended)
	_, err = b.CancelPlan(t.Context(), "p999", operator)
	require.ErrorIs(t, err, deadletter.ErrNoPlan)
	_, err = b.ResumePlan(t.Context(), "p999", operator)
	require.ErrorIs(t, err, deadletter.ErrNoPlan)
}

// One plan at a time for a target; others do not mind.
func TestOnePlanPerTarget(t *testing.T) {
	b := newBenchOf(t, parts{config: deadletter.Config{Target: func(l chain.Letter) string { return string(l.Channel) }}})
	b.backlog("x", 3)
	other := failure("by scan")
	other.Channel = chain.OCRDocument
	b.fail(other)
	b.fold()
	mobile, scans := failed, failed
	mobile.Channel, scans.Channel = chain.MobileExport, chain.OCRDocument
	require.Equal(t, []string{"mobile_export", "ocr_document"}, b.preview(failed).Targets)
	one := b.plan(mobile, 1)
	var conflict *deadletter.PlanConflictError
	for _, f := range []projection.Filter{mobile, failed} {
		_, err := b.CreatePlan(t.Context(), ordering(f, b.preview(f), 1))
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, deadletter.PlanConflictError{Plan: one.ID, Target: "mobile_export"}, *conflict)
	}
	two := b.plan(scans, 1)
	require.NotEqual(t, one.ID, two.ID)
	p, err := b.CancelPlan(t.Context(), one.ID, operator)
	require.NoError(t, err)
	require.Equal(t, chain.PlanCounts{Cancelled: 3}, p.Counts)
	b.plan(mobile, 1)

	// ordered at once, one of many is taken
	b.fold()
	running, err := b.state.RunningPlans()
	require.NoError(t, err)
	for _, p := range running {
		_, err := b.CancelPlan(t.Context(), p.ID, operator)
		require.NoError(t, err)
	}
	seen := b.preview(failed)
	var taken atomic.Int64
	each(20, func(int) {
		_, err := b.CreatePlan(t.Context(), ordering(failed, seen, 1))
		if err == nil {
			taken.Add(1)
		} else {
			assert.ErrorAs(t, err, new(*deadletter.PlanConflictError))
		}
	})
	require.Equal(t, int64(1), taken.Load())
}

// The same bytes replayed three times within two minutes: each time they are delivered, as an event of its own.
func TestTC01(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ref := b.backlog("x", 1)[0]
		stop := b.carryOut()
		began := time.Now()
		for i := range 3 {
			p := b.await(b.plan(failed, 10).ID)
			require.Equal(t, uint64(1), p.Counts.Replayed)
			job := b.lease(ref)
			require.Equal(t, uint64(i+1), job.Letter.Replays)
			_, err := b.FailJob(t.Context(), job, deadletter.Breakdown{Stage: chain.StageValidate, Signal: deadletter.Signal{Type: "schema"}})
			require.NoError(t, err)
			b.fold()
		}
		require.Less(t, time.Since(began), 2*time.Minute)
		require.Equal(t, chain.DeadLetter, b.letter(ref).Disposition)
		stop()
		b.stop()
	})
}

// A plan and twenty single replays of one of its letters: one replay, and the others are told why.
func TestTC02(t *testing.T) {
	for _, first := range []bool{true, false} {
		b := newBench(t)
		refs := b.backlog("x", 40)
		seen := b.preview(failed)
		o := ordering(failed, seen, 100)
		if first {
			_, err := b.CreatePlan(t.Context(), o)
			require.NoError(t, err)
		}
		var single, refused atomic.Int64
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := b.CreatePlan(t.Context(), o); !first && err != nil {
				assert.ErrorAs(t, err, new(*deadletter.PlanCountError))
			}
			b.carryOut()
		})
		each(20, func(int) {
			_, err := b.Replay(t.Context(), refs[39], operator)
			var conflict *deadletter.PlanConflictError
			var step *chain.TransitionError
			switch {
			case err == nil:
				single.Add(1)
			case errors.As(err, &conflict):
				refused.Add(1)
				assert.NotEmpty(t, conflict.Plan)
			default:
				assert.ErrorAs(t, err, &step)
			}
		})
		all.Wait()
		b.fold()
		running, err := b.state.RunningPlans()
		require.NoError(t, err)
		for _, p := range running {
			b.await(p.ID)
		}
		replayed := 0
		for _, e := range b.events(refs[39]) {
			if e.Type == chain.TypeReplayed {
				replayed++
			}
		}
		require.Equal(t, 1, replayed)
		if first {
			require.Zero(t, single.Load())
			require.Positive(t, refused.Load())
		} else {
			require.LessOrEqual(t, single.Load(), int64(1))
		}
	}
}

// An append that fails, or of which nothing is known, while a plan runs: nothing counts as replayed that is not in the
// log, and nothing is replayed twice.
func TestTC03(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var appends, stored atomic.Int64
		var trouble atomic.Bool
		b := newBenchOf(t, parts{log: &chaintest.Log{Fail: func([][]byte) (bool, error) {
			if n := appends.Add(1); trouble.Load() && n%3 != 0 {
				stored.Add(n % 2)
				return n%2 == 1, errors.New("timeout")
			}
			return false, nil
		}}})
		b.backlog("x", 300)
		stop := b.carryOut()
		p := b.plan(failed, 100)
		trouble.Store(true)
		time.Sleep(time.Minute)
		require.Positive(t, stored.Load())
		trouble.Store(false)
		p = b.await(p.ID)
		require.Equal(t, chain.PlanCounts{Replayed: 300}, p.Counts)
		stop()
		b.stop()
	})
}

// A letter that was replayed too often is parked by a plan; with an override it goes on.
func TestTC13(t *testing.T) {
	b := newBench(t)
	b.carryOut()
	refs := b.backlog("x", 2)
	again := func() {
		job := b.lease(refs[0])
		_, err := b.FailJob(t.Context(), job, deadletter.Breakdown{Stage: chain.StageValidate, Signal: deadletter.Signal{Type: "schema"}})
		require.NoError(t, err)
		b.fold()
	}
	for range 5 {
		_, err := b.Replay(t.Context(), refs[0], operator)
		require.NoError(t, err)
		again()
	}
	seen := b.preview(failed)
	require.Equal(t, uint64(2), seen.Count)
	require.Equal(t, uint64(1), seen.Parking)
	p := b.await(b.plan(failed, 1000).ID)
	require.Equal(t, chain.PlanCounts{Replayed: 1, Parked: 1}, p.Counts)
	l := b.letter(refs[0])
	require.Equal(t, chain.Poison, l.Disposition)
	require.Equal(t, "validate.replays_exhausted", l.OutcomeCode)
	require.Equal(t, uint64(5), l.Replays, "one case")

	poison := projection.Filter{Dispositions: []chain.Disposition{chain.Poison}}
	_, err := b.PreviewPlan(t.Context(), poison, false)
	require.Error(t, err)
	seen, err = b.PreviewPlan(t.Context(), poison, true)
	require.NoError(t, err)
	o := ordering(poison, seen, 1000)
	_, err = b.CreatePlan(t.Context(), o)
	require.Error(t, err, "no override")
	o.Override = true
	p, err = b.CreatePlan(t.Context(), o)
	require.NoError(t, err)
	p = b.await(p.ID)
	require.Equal(t, chain.PlanCounts{Replayed: 1}, p.Counts)
	l = b.letter(refs[0])
	require.Equal(t, chain.Replayed, l.Disposition)
	require.Equal(t, uint64(6), l.Replays)
}

// New letters come, others are dealt with, the plan is cancelled; everything adds up and nothing else is touched.
func TestTC15(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBenchOf(t, parts{lag: 50 * time.Millisecond})
		refs := b.backlog("x", 1000)
		stop := b.carryOut()
		p := b.plan(failed, 100)
		late := b.backlog("late", 50)
		for _, ref := range refs[900:] {
			_, err := b.Resolve(t.Context(), ref, operator)
			require.NoError(t, err)
		}
		time.Sleep(4 * time.Second)
		b.fold()
		now, members, later, err := b.state.PlanProgress(t.Context(), p.ID)
		require.NoError(t, err)
		require.Equal(t, uint64(50), later)
		require.Equal(t, uint64(900), members+now.Counts.Replayed)
		require.InDelta(t, 400, float64(now.Counts.Replayed), 12)
		p, err = b.CancelPlan(t.Context(), p.ID, operator)
		require.NoError(t, err)
		p = b.await(p.ID)
		require.Equal(t, chain.PlanCancelled, p.State)
		require.Equal(t, uint64(100), p.Counts.Skipped)
		require.Equal(t, uint64(900), p.Counts.Replayed+p.Counts.Cancelled)
		size := b.size()
		time.Sleep(time.Minute)
		require.Equal(t, size, b.size(), "cancelled is cancelled")
		for _, ref := range late {
			require.Equal(t, chain.DeadLetter, b.letter(ref).Disposition)
		}
		rest := b.await(b.plan(failed, 1000).ID)
		require.Equal(t, p.Counts.Cancelled+50, rest.Counts.Replayed)
		stop()
		b.stop()
	})
}

// The letters of a plan that fail again at once are not replayed a second time.
func TestPlanLeavesRepeatedFailuresAlone(t *testing.T) {
	b := newBench(t)
	refs := b.backlog("x", 60)
	b.carryOut()
	p := b.plan(failed, 100)
	failedAgain := 0
	for range 1000 {
		for _, ref := range refs {
			if l := b.letter(ref); l.Disposition == chain.Replayed && l.Lease == nil && failedAgain < 30 {
				_, err := b.FailJob(t.Context(), b.lease(ref), deadletter.Breakdown{Stage: chain.StageValidate, Signal: deadletter.Signal{Type: "schema"}})
				require.NoError(t, err)
				failedAgain++
			}
		}
		if failedAgain == 30 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	require.Equal(t, 30, failedAgain)
	p = b.await(p.ID)
	require.Equal(t, chain.PlanCounts{Replayed: 60}, p.Counts)
}

// Waiting retries are replayed; those that somebody works on, or that are due, run anyway.
func TestPlanOfRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var refs []chain.Digest
		for i := range 3 {
			f := transient(fmt.Sprint(i))
			f.Attempt = 5
			refs = append(refs, b.fail(f).PayloadRef)
		}
		due := transient("due")
		due.Attempt = 1
		refs = append(refs, b.fail(due).PayloadRef)
		time.Sleep(time.Second)
		b.fold()
		retries := projection.Filter{Dispositions: []chain.Disposition{chain.Retrying}}
		p := b.plan(retries, 100)
		time.Sleep(5 * time.Second)
		job := b.lease(refs[3])
		stop := b.carryOut()
		p = b.await(p.ID)
		require.Equal(t, chain.PlanCounts{Replayed: 3, Skipped: 1}, p.Counts)
		require.NoError(t, b.Release(t.Context(), job))
		stop()
		b.stop()
	})
}

// Pace: nothing above the rate in any second, 2 % below at most, and a slow beginning where that is asked for.
func TestPlanPace(t *testing.T) {
	for _, ramp := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBenchOf(t, parts{lag: time.Second})
			b.backlog("x", 3000)
			stop := b.carryOut()
			o := ordering(failed, b.preview(failed), 200)
			o.Ramp = ramp
			p, err := b.CreatePlan(t.Context(), o)
			require.NoError(t, err)
			p = b.await(p.ID)
			require.Equal(t, uint64(3000), p.Counts.Replayed)
			seconds := map[int]int{}
			var began, last time.Time
			for _, line := range b.log.Lines() {
				if r, err := chain.Parse(line); err == nil && r.Event.Type == chain.TypeReplayed {
					if last = r.Event.At; began.IsZero() {
						began = last
					}
					seconds[int(last.Sub(began)/time.Second)]++
				}
			}
			for second, n := range seconds {
				require.LessOrEqual(t, n, 204, "second %d", second)
			}
			steady := 3000.0 / 200
			if ramp {
				for second, n := range []int{1, 2, 4, 8, 16, 32, 64, 128} {
					require.InDelta(t, n, seconds[second], max(2, float64(n)/10), "second %d: %v", second, seconds)
				}
				steady = 8 + (3000.0-255)/200
			}
			require.InEpsilon(t, steady, last.Sub(began).Seconds(), 0.02)
			stop()
			b.stop()
		})
	}
}

// A plan goes on where it was after its instance comes back, and at another instance when that takes it over.
func TestPlanSurvivesItsInstance(t *testing.T) {
	log, memory := &chaintest.Log{}, &blobtest.Memory{}
	one := newBenchOf(t, parts{log: log, backend: memory, config: deadletter.Config{Node: "node-1"}})
	two := newBenchOf(t, parts{log: log, backend: memory, config: deadletter.Config{Node: "node-2"}, lag: 20 * time.Millisecond})
	one.backlog("x", 200)
	p := one.plan(failed, 200)
	two.carryOut()
	replayed := func() uint64 {
		one.fold()
		p, err := one.state.Plan(p.ID)
		require.NoError(t, err)
		return p.Counts.Replayed
	}
	stop := one.carryOut()
	require.Eventually(t, func() bool { return replayed() > 20 }, patience, time.Millisecond)
	stop()
	stopped := replayed()
	require.Less(t, stopped, uint64(200))
	time.Sleep(50 * time.Millisecond)
	require.Equal(t, stopped, replayed(), "it is not the plan of node-2")
	stop = one.carryOut() // started anew
	require.Eventually(t, func() bool { return replayed() > stopped+20 }, patience, time.Millisecond)

	require.NoError(t, two.state.Wait(t.Context(), p.Seq))
	moved, err := two.ResumePlan(t.Context(), p.ID, operator)
	require.NoError(t, err)
	require.Equal(t, "node-2", moved.Worker)
	size := two.size()
	_, err = two.ResumePlan(t.Context(), p.ID, operator)
	require.NoError(t, err)
	require.InDelta(t, size, two.size(), 50)
	p = two.await(p.ID)
	require.Equal(t, chain.PlanCounts{Replayed: 200}, p.Counts)
	stop()
}

// Two instances that take themselves for the same carry out one plan at the same time: nothing is replayed twice.
func TestTwoRunnersOfOnePlan(t *testing.T) {
	log, memory := &chaintest.Log{}, &blobtest.Memory{}
	one := newBenchOf(t, parts{log: log, backend: memory})
	two := newBenchOf(t, parts{log: log, backend: memory, lag: 30 * time.Millisecond})
	one.backlog("x", 600)
	p := one.plan(failed, 10_000)
	one.carryOut()
	two.carryOut()
	p = one.await(p.ID)
	require.Equal(t, chain.PlanCounts{Replayed: 600}, p.Counts)
	require.NoError(t, two.state.Wait(t.Context(), p.LastSeq))
	require.NoError(t, two.state.Wait(t.Context(), uint64(one.size()-1)))
	two.await(p.ID)
}
