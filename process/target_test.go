package process_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/process"
)

// backend is a target that can be down. It notes when letters come.
type backend struct {
	mu     sync.Mutex
	says   deadletter.Signal // while it is down
	down   bool
	came   []time.Time
	letter map[chain.Digest]int
}

func (s *backend) set(says deadletter.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says, s.down = says, says != deadletter.Signal{}
}

func (s *backend) calls() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time{}, s.came...)
}

func (s *backend) Process(_ context.Context, job deadletter.Job, _ []byte) (process.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came = append(s.came, time.Now())
	if s.down {
		return process.Result{Breakdown: &deadletter.Breakdown{Stage: chain.StageDispatch, Signal: s.says, Rules: "backend-1"}}, nil
	}
	if s.letter == nil {
		s.letter = map[chain.Digest]int{}
	}
	s.letter[job.Letter.Ref]++
	return process.Result{Completion: &deadletter.Completion{Outcome: chain.Admit, Record: []byte("{}"), Rules: "backend-1"}}, nil
}

// processor fails for now with what it says, unless that is nothing.
type processor func() deadletter.Signal

func (says processor) Process(context.Context, deadletter.Job, []byte) (process.Result, error) {
	if s := says(); s != (deadletter.Signal{}) {
		return process.Result{Breakdown: &deadletter.Breakdown{Stage: chain.StageDispatch, Signal: s, Rules: "backend-1"}}, nil
	}
	return process.Result{Completion: &deadletter.Completion{Outcome: chain.Admit, Record: []byte("{}"), Rules: "backend-1"}}, nil
}

func (b *bench) ingestMany(prefix string, n int) {
	for i := range n {
		b.ingest(fmt.Sprint(prefix, " ", i))
	}
}

// busiest is the most calls in any second.
func busiest(calls []time.Time) (most int) {
	from := 0
	for i := range calls {
		for calls[i].Sub(calls[from]) >= time.Second {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

func TestTC09TargetDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const letters, rate = 1000, 50
		b, s := newBench(t), &backend{}
		s.set(deadletter.Signal{HTTPStatus: 503})
		b.ingestMany("report", letters)
		stop := b.start(func(c *process.Config) {
			c.Targets = []process.Target{{Name: "backend", Processor: s, Workers: 8, Rate: rate}}
		})
		time.Sleep(45 * time.Minute)
		tried := len(s.calls())
		assert.Less(t, tried, 70, "while it is down, a probe now and then")
		assert.Greater(t, tried, 40)
		s.set(deadletter.Signal{})
		time.Sleep(3 * time.Minute)
		stop()
		for _, l := range b.letters() {
			require.Equal(t, chain.Resolved, l.Disposition)
			require.LessOrEqual(t, l.Attempt, uint64(3))
			require.Equal(t, 1, s.letter[l.Ref])
		}
		after := s.calls()[tried:]
		require.Len(t, after, letters)
		assert.LessOrEqual(t, busiest(after), rate)
		assert.GreaterOrEqual(t, after[1].Sub(after[0]), time.Second, "the probe alone")
		assert.LessOrEqual(t, busiest(after[:16]), 8, "and then 1, 2, 4, ... letters a second")
	})
}

// The letters of a target that is down stand before those of another one, and are in nobody's way.
func TestTargetsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBench(t), &backend{}
		s.set(deadletter.Signal{Type: "ECONNREFUSED"})
		routes, err := process.NewRoutes([]process.Route{{Channel: chain.MobileExport, Target: "backend"}}, []string{"builtin", "backend"})
		require.NoError(t, err)
		for i := range 300 {
			_, err := b.Ingest(t.Context(), deadletter.Submission{Body: strings.NewReader(fmt.Sprint("to backend ", i)), Channel: chain.MobileExport})
			require.NoError(t, err)
		}
		b.ingestMany("own", 20)
		pool := b.begin(func(c *process.Config) {
			c.Routes = routes
			c.Targets = append(c.Targets, process.Target{Name: "backend", Processor: s})
		})
		time.Sleep(time.Minute)
		open := 0
		for _, l := range b.letters() {
			switch l.Channel {
			case chain.MobileExport:
				open++
				require.NotEqual(t, chain.Resolved, l.Disposition)
			default:
				require.Equal(t, chain.Resolved, l.Disposition)
				require.Less(t, l.UpdatedAt.Sub(l.FirstSeen), time.Second)
			}
		}
		require.Equal(t, 300, open)
		states := pool.States()
		require.Equal(t, []string{"builtin", "backend"}, []string{states[0].Name, states[1].Name})
		require.False(t, states[0].Open)
		require.True(t, states[1].Open)
		require.False(t, states[1].Since.IsZero())
	})
}

// A letter whose outcome sends it to another target goes there at once, also if that one looked for work a moment before.
func TestLetterChangesTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBench(t), &backend{}
		routes, err := process.NewRoutes([]process.Route{{Stage: chain.StageDispatch, Target: "backend"}}, []string{"builtin", "backend"})
		require.NoError(t, err)
		b.ingest("once") // fails at dispatch, for now
		pool := b.begin(func(c *process.Config) {
			c.Routes = routes
			c.Targets = append(c.Targets, process.Target{Name: "backend", Processor: s})
		})
		time.Sleep(time.Minute)
		require.Len(t, s.calls(), 1)
		require.Equal(t, chain.Resolved, b.letter("once").Disposition)
		require.Len(t, pool.States(), 2)
	})
}

// A target that asks to be left alone for longer than a letter waits is left alone as a whole, for a day at most.
func TestRetryAfterParksTheTarget(t *testing.T) {
	for asked, waits := range map[string]time.Duration{"10800": 3 * time.Hour, "999999999": 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			b, s := newBench(t), &backend{}
			s.set(deadletter.Signal{HTTPStatus: 503, RetryAfter: asked})
			b.ingestMany("report", 3)
			stop := b.start(func(c *process.Config) { c.Targets = []process.Target{{Name: "backend", Processor: s, Workers: 1}} })
			time.Sleep(waits - time.Minute)
			require.Len(t, s.calls(), 1)
			s.set(deadletter.Signal{})
			time.Sleep(2 * time.Minute)
			require.Len(t, s.calls(), 4)
			stop()
		})
	}
}

// A payload that is bad says nothing against its target, however often that happens.
func TestPermanentFailuresKeepTheGateOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBench(t), &backend{}
		s.set(deadletter.Signal{HTTPStatus: 422})
		b.ingestMany("report", 50)
		pool := b.begin(func(c *process.Config) { c.Targets[0].Processor = s })
		time.Sleep(time.Second)
		require.Len(t, s.calls(), 50)
		require.False(t, pool.States()[0].Open)
	})
}

// Half of many failing is enough, also if others in between do not.
func TestFlakyTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var n atomic.Int64
		flaky := processor(func() deadletter.Signal {
			if i := n.Add(1); i%2 == 0 && i <= 20 {
				return deadletter.Signal{HTTPStatus: 502}
			}
			return deadletter.Signal{}
		})
		b.ingestMany("report", 100)
		pool := b.begin(func(c *process.Config) { c.Targets = []process.Target{{Name: "flaky", Processor: flaky, Workers: 1}} })
		time.Sleep(100 * time.Millisecond)
		require.True(t, pool.States()[0].Open)
		require.EqualValues(t, 20, n.Load())
		time.Sleep(time.Minute)
		require.EqualValues(t, 110, n.Load())
		for _, l := range b.letters() {
			require.Equal(t, chain.Resolved, l.Disposition)
		}
	})
}

// A program that crashes at every payload is broken itself: it must not quarantine them all.
func TestCrashesCloseTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.ingestMany("panic", 100)
		stop := b.start(func(c *process.Config) { c.Targets[0].Workers = 1 })
		time.Sleep(time.Minute)
		stop()
		poison := 0
		for _, l := range b.letters() {
			if l.Disposition == chain.Poison {
				poison++
			}
		}
		require.GreaterOrEqual(t, poison, 5)
		require.Less(t, poison, 12)
	})
}

// Without a crash and with a rate, letters begin at the rate.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBench(t), &backend{}
		b.ingestMany("report", 100)
		b.begin(func(c *process.Config) {
			c.Targets = []process.Target{{Name: "backend", Processor: s, Workers: 16, Rate: 10}}
		})
		time.Sleep(5*time.Second + 50*time.Millisecond)
		require.InDelta(t, 51, len(s.calls()), 2)
		require.LessOrEqual(t, busiest(s.calls()), 10)
	})
}
