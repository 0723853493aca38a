package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/process"
	"github.com/holdfast-dvir/holdfast/projection"
)

// patience bounds every wait; what has not come by then does not come.
const patience = 20 * time.Second

// script is a processor that does what the payload's first word says. It counts what runs beside what.
type script struct {
	mu      sync.Mutex
	running map[chain.Digest]bool
	runs    map[string]int // by payload
	beside  map[string]int // most letters that ran beside it
	gate    chan struct{}  // "wait" payloads run until it is closed
	faulty  atomic.Bool    // "faulty" payloads meet a fault of ours
}

func newScript() *script {
	return &script{running: map[chain.Digest]bool{}, runs: map[string]int{}, beside: map[string]int{}, gate: make(chan struct{})}
}

func (s *script) enter(ref chain.Digest, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[payload]++
	s.running[ref] = true
	for other := range s.running {
		if other != ref {
			s.beside[payload] = max(s.beside[payload], len(s.running)-1)
		}
	}
}

func (s *script) leave(ref chain.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, ref)
}

func (s *script) count(payload string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[payload]
}

func (s *script) Process(ctx context.Context, job deadletter.Job, payload []byte) (process.Result, error) {
	text := string(payload)
	s.enter(job.Letter.Ref, text)
	defer s.leave(job.Letter.Ref)
	done := &deadletter.Completion{Outcome: chain.Admit, Rules: "script-1", Record: payload, Version: job.Letter.Ref,
		Key: job.Letter.Ref, Content: job.Letter.Ref}
	word, _, _ := strings.Cut(text, " ")
	switch word {
	case "panic":
		panic("John Q. Public")
	case "wait":
		<-s.gate
	case "deaf": // to its context
		<-s.gate
		return process.Result{}, errors.New("John Q. Public")
	case "slow":
		<-ctx.Done()
		return process.Result{}, ctx.Err()
	case "faulty":
		if s.faulty.Load() {
			return process.Result{}, errors.New("John Q. Public")
		}
	case "once", "worn": // fails at the first try
		if job.Letter.Lease.Attempt == 1 {
			return process.Result{Breakdown: &deadletter.Breakdown{Stage: chain.StageDispatch,
				Signal: deadletter.Signal{Type: "timeout"}, Rules: "script-1"}}, nil
		}
		if word == "worn" {
			return process.Result{}, errors.New("John Q. Public")
		}
	case "bad":
		return process.Result{Breakdown: &deadletter.Breakdown{Stage: chain.StageParse, Code: "parse.schema", Rules: "script-1"}}, nil
	case "nothing":
		return process.Result{}, nil
	case "unfit":
		return process.Result{Completion: &deadletter.Completion{Outcome: "maybe"}}, nil
	case "unfit-breakdown":
		return process.Result{Breakdown: &deadletter.Breakdown{Stage: "printing"}}, nil
	}
	return process.Result{Completion: done}, nil
}

// bench is a queue with everything it stands on, and pools over it.
type bench struct {
	t      testing.TB
	log    *chaintest.Log
	memory *blobtest.Memory
	store  *blob.Store
	state  *projection.DB
	script *script
	*deadletter.Queue
}

func newBench(t testing.TB) *bench { return newBenchOver(t, &chaintest.Log{}, blob.Config{}) }

func newBenchOver(t testing.TB, log *chaintest.Log, limits blob.Config) *bench {
	state, err := projection.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	state.Pause = time.Millisecond
	b := &bench{t: t, log: log, memory: &blobtest.Memory{}, state: state, script: newScript()}
	b.store, err = blob.NewStore(b.memory, limits)
	require.NoError(t, err)
	b.Queue, err = deadletter.Open(t.Context(), deadletter.Config{Log: log, Store: b.store, State: state, Origin: "test/log"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { assert.ErrorIs(t, b.Run(ctx), context.Canceled) })
	all.Go(func() { assert.ErrorIs(t, state.Follow(ctx, log), context.Canceled) })
	t.Cleanup(func() {
		cancel()
		all.Wait()
		b.letters()
		require.NoError(t, state.CatchUp(context.Background(), log))
		require.Empty(t, state.Check(context.Background()))
		require.NoError(t, state.Close())
	})
	return b
}

// letters folds the whole log: every line follows the one before, and every letter takes every step.
func (b *bench) letters() map[chain.Digest]chain.Letter {
	var head chain.Head
	all := map[chain.Digest]chain.Letter{}
	for _, line := range b.log.Lines() {
		r, err := head.Check(line)
		require.NoError(b.t, err)
		head = r.Head()
		if ref := r.Event.PayloadRef; !ref.IsZero() {
			all[ref], err = all[ref].Apply(r)
			require.NoError(b.t, err)
		}
	}
	return all
}

func (b *bench) letter(payload string) chain.Letter { return b.letters()[chain.Sum([]byte(payload))] }

// events counts the events of a letter by type.
func (b *bench) events(payload string) map[chain.Type]int {
	count := map[chain.Type]int{}
	for _, line := range b.log.Lines() {
		r, err := chain.Parse(line)
		require.NoError(b.t, err)
		if r.Event.PayloadRef == chain.Sum([]byte(payload)) {
			count[r.Event.Type]++
		}
	}
	return count
}

// start runs a pool; stop ends it and waits.
func (b *bench) start(spoil ...func(*process.Config)) (stop func()) {
	_, stop = b.pool(spoil...)
	return stop
}

// begin is start for those who look at the pool.
func (b *bench) begin(spoil ...func(*process.Config)) *process.Pool {
	pool, _ := b.pool(spoil...)
	return pool
}

func (b *bench) pool(spoil ...func(*process.Config)) (pool *process.Pool, stop func()) {
	cfg := process.Config{Queue: b.Queue, State: b.state, Store: b.store, Targets: []process.Target{{Name: "builtin", Processor: b.script}}, Node: "node-1"}
	for _, s := range spoil {
		s(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	pool = process.NewPool(cfg)
	go func() { ran <- pool.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ran:
			assert.NoError(b.t, err)
		case <-time.After(patience):
			assert.Fail(b.t, "the pool does not stop")
		}
	})
	b.t.Cleanup(stop)
	return pool, stop
}

func (b *bench) ingest(payload string) chain.Digest {
	r, err := b.Ingest(b.t.Context(), deadletter.Submission{Body: strings.NewReader(payload)})
	require.NoError(b.t, err)
	return r.PayloadRef
}

func (b *bench) eventually(what func() bool) {
	b.t.Helper()
	require.Eventually(b.t, what, patience, 2*time.Millisecond)
}

// reaches waits until the letter of payload has a disposition.
func (b *bench) reaches(payload string, d chain.Disposition) {
	b.t.Helper()
	b.eventually(func() bool { return b.letter(payload).Disposition == d })
}

func TestEveryLetterOnce(t *testing.T) {
	b := newBench(t)
	for i := range 100 {
		b.ingest(fmt.Sprint("early ", i))
	}
	b.start()
	for i := range 100 {
		b.ingest(fmt.Sprint("late ", i))
	}
	b.eventually(func() bool {
		for _, l := range b.letters() {
			if l.Disposition != chain.Resolved {
				return false
			}
		}
		return true
	})
	require.Len(t, b.letters(), 200)
	for payload, n := range b.script.runs {
		require.Equal(t, 1, n)
		record, err := b.store.Get(t.Context(), blob.Ref{Digest: b.letter(payload).RecordRef})
		require.NoError(t, err)
		require.Equal(t, payload, string(record))
	}
}

func TestTwoPoolsShare(t *testing.T) {
	log := &chaintest.Log{}
	one := newBenchOver(t, log, blob.Config{})
	two := newBenchOver(t, log, blob.Config{})
	two.memory, two.store, two.script = one.memory, one.store, one.script
	one.start()
	two.start(func(c *process.Config) { c.Node = "node-2" })
	for i := range 100 {
		one.ingest(fmt.Sprint("payload ", i))
	}
	one.eventually(func() bool {
		for _, l := range one.letters() {
			if l.Disposition != chain.Resolved {
				return false
			}
		}
		return true
	})
	for payload, n := range one.script.runs {
		require.Equal(t, 1, n, payload)
	}
}

func TestRetryInItsTime(t *testing.T) {
	b := newBench(t)
	b.start()
	b.ingest("once")
	b.reaches("once", chain.Retrying)
	due := b.letter("once").NextAttemptAt
	b.reaches("once", chain.Resolved)
	l := b.letter("once")
	require.False(t, l.UpdatedAt.Before(due))
	require.Equal(t, uint64(2), l.Attempt)
	require.Equal(t, 2, b.script.count("once"))
}

func TestReplayRunsAgain(t *testing.T) {
	b := newBench(t)
	b.start()
	ref := b.ingest("bad")
	for i := range 3 {
		b.eventually(func() bool { return b.events("bad")[chain.TypeDeadLetter] == i+1 })
		_, err := b.Replay(t.Context(), ref, deadletter.Order{Actor: "op"})
		require.NoError(t, err)
	}
	b.eventually(func() bool { return b.script.count("bad") == 4 })
}

func TestPanicIsPoison(t *testing.T) {
	b := newBench(t)
	ref := b.ingest("panic")
	for i := range 20 {
		b.ingest(fmt.Sprint("good ", i))
	}
	b.start()
	b.reaches("panic", chain.Poison)
	for i := range 20 {
		b.reaches(fmt.Sprint("good ", i), chain.Resolved)
	}
	require.Equal(t, "parse.crash", b.letter("panic").OutcomeCode)
	b.ingest("panic")
	b.ingest("last")
	b.reaches("last", chain.Resolved)
	require.Equal(t, 1, b.script.count("panic"), "a quarantined letter is not run again")
	_, err := b.Replay(t.Context(), ref, deadletter.Order{Actor: "op", Reason: "fixed", Override: true})
	require.NoError(t, err)
	b.eventually(func() bool { return b.events("panic")[chain.TypePoison] == 2 })
	for _, line := range b.log.Lines() {
		require.NotContains(t, string(line), "Public")
	}
}

func TestUnfitResults(t *testing.T) {
	b := newBench(t)
	b.start()
	for _, payload := range []string{"nothing", "unfit", "unfit-breakdown"} {
		b.ingest(payload)
		b.reaches(payload, chain.DeadLetter)
		require.Equal(t, "parse.unclassified", b.letter(payload).OutcomeCode)
		require.Equal(t, 1, b.script.count(payload))
	}
}

// A fault of ours costs the letter nothing, does not spin, and does not keep others from their turn.
func TestFaultOfOurs(t *testing.T) {
	b := newBench(t)
	b.script.faulty.Store(true)
	for i := range 4 {
		b.ingest(fmt.Sprint("faulty ", i))
	}
	b.ingest("good")
	b.start(func(c *process.Config) { c.Targets[0].Workers = 2 })
	b.reaches("good", chain.Resolved)
	b.script.faulty.Store(false)
	for i := range 4 {
		payload := fmt.Sprint("faulty ", i)
		b.reaches(payload, chain.Resolved)
		l := b.letter(payload)
		require.Equal(t, uint64(1), l.Attempt)
		require.LessOrEqual(t, b.script.count(payload), 6)
		require.Equal(t, b.events(payload)[chain.TypeAttempt]-1, b.events(payload)[chain.TypeAttemptLost])
	}
}

// hungry is a bench with letters that wait, and what its pools say.
func hungry(t *testing.T, letters int) (b *bench, said *bytes.Buffer, start func() (stop func())) {
	b, said = newBench(t), &bytes.Buffer{}
	for i := range letters {
		b.ingest(fmt.Sprint("good ", i))
	}
	return b, said, func() func() {
		return b.start(func(c *process.Config) { c.Log = slog.New(slog.NewTextHandler(said, nil)) })
	}
}

// unhurt asserts that every letter is resolved by its first attempt.
func (b *bench) unhurt() {
	b.t.Helper()
	for _, l := range b.letters() {
		require.Equal(b.t, chain.Resolved, l.Disposition)
		require.Equal(b.t, uint64(1), l.Attempt)
	}
}

// TestStoreAway: however long the store is away, the log does not grow, no attempt is used, and everything goes on
// within moments when it is back. The store goes away while letters are being worked on; the service tells of it.
func TestStoreAway(t *testing.T) {
	for _, op := range []string{"open", "put"} {
		synctest.Test(t, func(t *testing.T) {
			b, said, start := hungry(t, 1_000)
			var calls atomic.Int64
			b.memory.Fail = func(called string, _ chain.Digest) error {
				if called == op && calls.Add(1) == 10 {
					b.memory.Away(true)
				}
				return nil
			}
			stop := start()
			time.Sleep(time.Second)
			before := len(b.log.Lines())
			assert.Less(t, before, 1+1_000+3*10+2*4)
			time.Sleep(10 * time.Minute)
			assert.Equal(t, before, len(b.log.Lines()), "events while the store is away")
			b.memory.Away(false)
			time.Sleep(5 * time.Second)
			b.unhurt()
			stop()
			assert.Empty(t, said.String())
		})
	}
}

// TestStoreFails: a store that is not known to be away, and fails every call, is tried less and less often, and the
// pool says so once.
func TestStoreFails(t *testing.T) {
	for _, op := range []string{"open", "put"} {
		synctest.Test(t, func(t *testing.T) {
			b, said, start := hungry(t, 1_000)
			var fails atomic.Bool
			b.memory.Fail = func(called string, _ chain.Digest) error {
				if called == op && fails.Load() {
					return fmt.Errorf("%w: the server answers 503", blob.ErrUnavailable)
				}
				return nil
			}
			fails.Store(true)
			before := len(b.log.Lines())
			stop := start()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			events := len(b.log.Lines()) - before
			assert.Less(t, events, 2*4+2*20, "four workers, then six tries in a minute and one in each other")
			assert.Equal(t, 1, strings.Count(said.String(), "\n"), said.String())
			assert.Contains(t, said.String(), "the server answers 503")
			fails.Store(false)
			time.Sleep(70 * time.Second)
			b.unhurt()
			stop()
			assert.Equal(t, 2, strings.Count(said.String(), "\n"), said.String())
		})
	}
}

// TestStoreFlaps: a store that comes and goes gets work done while it is there, and costs no letter anything.
func TestStoreFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, said, start := hungry(t, 300)
		b.memory.Fail = func(op string, _ chain.Digest) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		stop := start()
		before := len(b.log.Lines())
		for range 60 {
			time.Sleep(1500 * time.Millisecond)
			b.memory.Away(true)
			time.Sleep(1500 * time.Millisecond)
			b.memory.Away(false)
		}
		time.Sleep(time.Minute)
		b.unhurt()
		stop()
		assert.Less(t, len(b.log.Lines())-before, 2*300+60*2*4, "each time, what is being worked on is given back")
		assert.Less(t, strings.Count(said.String(), "\n"), 10, said.String())
	})
}

// TestLateStoreIsNoTimeout: a store that leaves a letter waiting beyond its lease, and goes away, is not the letter's
// breakdown.
func TestLateStoreIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, start := hungry(t, 0)
		b.ingest("slow")
		stop := start()
		time.Sleep(time.Second)
		b.memory.Away(true)
		time.Sleep(2 * time.Minute)
		require.Equal(t, chain.Received, b.letter("slow").Disposition)
		require.Zero(t, b.letter("slow").Attempt)
		stop()
	})
}

// TestLostLettersWait: a letter that was lost runs when the service has stood for a while; whatever else is due runs at
// once. So a payload that takes the service down holds up nobody, and a random kill soon after a start is not counted
// against an innocent one.
func TestLostLettersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.ingest("good lost")
		job, err := b.Lease(t.Context(), chain.Sum([]byte("good lost")), "node-1/0", time.Minute)
		require.NoError(t, err)
		require.NotZero(t, job)
		b.ingest("good other")
		time.Sleep(time.Second)
		b.start()
		time.Sleep(900 * time.Millisecond)
		assert.Equal(t, 1, b.script.count("good other"))
		assert.Zero(t, b.script.count("good lost"))
		time.Sleep(200 * time.Millisecond)
		assert.Equal(t, 1, b.script.count("good lost"))
		assert.Equal(t, chain.Resolved, b.letter("good lost").Disposition)
	})
}

func TestTooSlowIsTransient(t *testing.T) {
	b := newBench(t)
	b.start(func(c *process.Config) { c.Targets[0].LeaseFor = 20 * time.Millisecond })
	b.ingest("slow")
	b.reaches("slow", chain.Retrying)
	require.Equal(t, "parse.timeout", b.letter("slow").OutcomeCode)
}

func TestShutdown(t *testing.T) {
	b := newBench(t)
	for i := range 20 {
		b.ingest(fmt.Sprint("wait ", i))
	}
	stop := b.start(func(c *process.Config) { c.Targets[0].Workers = 3 })
	b.eventually(func() bool { b.script.mu.Lock(); defer b.script.mu.Unlock(); return len(b.script.running) == 3 })
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	time.AfterFunc(50*time.Millisecond, func() { close(b.script.gate) })
	<-stopped
	resolved := 0
	for _, l := range b.letters() {
		require.Nil(t, l.Lease, "nothing stays leased")
		require.Zero(t, l.Losses)
		if l.Disposition == chain.Resolved {
			resolved++
		}
	}
	require.Equal(t, 3, resolved)
	b.start()
	for i := range 20 {
		b.reaches(fmt.Sprint("wait ", i), chain.Resolved)
		require.Equal(t, 1, b.script.count(fmt.Sprint("wait ", i)))
	}
}

// Stopping at any moment leaves no lease behind.
func TestTC12ShutdownAtAnyMoment(t *testing.T) {
	b := newBench(t)
	for i := range 200 {
		b.ingest(fmt.Sprint("payload ", i))
	}
	for i := range 20 {
		stop := b.start()
		time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		stop()
		for _, l := range b.letters() {
			require.Nil(t, l.Lease)
			require.Zero(t, l.Losses)
		}
	}
}

// A processor that does not heed its context does not hold up the end of the service, and its letter loses nothing.
func TestShutdownLeavesTheDeafBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ref := b.ingest("deaf")
		for i := range 3 {
			stop := b.start()
			b.eventually(func() bool { return b.script.count("deaf") == i+1 })
			asked := time.Now()
			stop()
			require.Less(t, time.Since(asked), 5*time.Second)
			require.NoError(t, b.state.Wait(t.Context(), uint64(len(b.log.Lines())-1)))
			l := b.letters()[ref]
			require.Nil(t, l.Lease)
			require.True(t, l.Due(time.Now()))
			require.Zero(t, l.Attempt)
			require.Zero(t, l.Losses)
		}
		before := len(b.log.Lines())
		close(b.script.gate)
		synctest.Wait()
		require.Len(t, b.log.Lines(), before, "what comes late is dropped")
	})
}

// What heeds its context is not a breakdown either when the service stops.
func TestTC12ShutdownIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ref := b.ingest("slow")
		stop := b.start()
		b.eventually(func() bool { return b.script.count("slow") == 1 })
		stop()
		require.Equal(t, chain.Received, b.letters()[ref].Disposition)
		require.Equal(t, 1, b.events("slow")[chain.TypeAttemptLost])
	})
}

func TestDeafIsTransient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.start(func(c *process.Config) { c.Targets[0].Workers = 1 })
		b.ingest("deaf")
		b.ingest("good")
		time.Sleep(2 * time.Minute)
		require.Equal(t, chain.Resolved, b.letter("good").Disposition)
		require.Equal(t, "parse.timeout", b.letter("deaf").OutcomeCode)
		close(b.script.gate)
	})
}

// A lease is extended while its letter runs, even if every worker is busy and letters wait to be handed out.
func TestLeasesOfBusyWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var slow atomic.Bool
		b.memory.Fail = func(op string, _ chain.Digest) error {
			if op == "put" && slow.Load() {
				time.Sleep(25 * time.Second)
			}
			return nil
		}
		for i := range 10 {
			b.ingest(fmt.Sprint("payload ", i))
		}
		slow.Store(true)
		b.start(func(c *process.Config) { c.Targets[0].Workers, c.Targets[0].LeaseFor = 1, time.Second })
		time.Sleep(20 * time.Second)
		attempts := 0
		for i := range 10 {
			attempts += b.events(fmt.Sprint("payload ", i))[chain.TypeAttempt]
		}
		require.Equal(t, 2, attempts, "one lease, extended once")
		slow.Store(false)
		time.Sleep(10 * time.Second)
		for _, l := range b.letters() {
			require.Equal(t, chain.Resolved, l.Disposition)
			require.Equal(t, uint64(1), l.Attempt)
			require.Zero(t, l.Losses)
		}
	})
}

// What is known of faults is forgotten with time: a letter may be closed by hand and never run again.
func TestFaultsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ref := b.ingest("worn")
		var said bytes.Buffer
		pool := process.NewPool(process.Config{Queue: b.Queue, State: b.state, Store: b.store, Targets: []process.Target{{Name: "builtin", Processor: b.script}}, Node: "node-1",
			Log: slog.New(slog.NewTextHandler(&said, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { assert.NoError(t, pool.Run(ctx)) })
		b.eventually(func() bool { return pool.Faulty() == 1 && b.letters()[ref].Lease == nil })
		_, err := b.Resolve(t.Context(), ref, deadletter.Order{Actor: "op", Reason: "handled"})
		require.NoError(t, err)
		time.Sleep(20 * time.Minute)
		require.Zero(t, pool.Faulty())
		cancel()
		running.Wait()
		require.Contains(t, said.String(), "fault=*errors.errorString")
		require.NotContains(t, said.String(), "Public")
	})
}

func TestReclaim(t *testing.T) {
	b := newBench(t)
	for _, payload := range []string{"lost a", "lost b", "other"} {
		worker := "node-1/0"
		if payload == "other" {
			worker = "node-10/0"
		}
		_, err := b.Lease(t.Context(), b.ingest(payload), worker, time.Hour)
		require.NoError(t, err)
	}
	for i := range 50 {
		b.ingest(fmt.Sprint("good ", i))
	}
	require.NoError(t, b.state.Wait(t.Context(), uint64(len(b.log.Lines())-1)))
	b.start(func(c *process.Config) { c.Targets[0].Workers = 8 })
	for _, payload := range []string{"lost a", "lost b"} {
		b.reaches(payload, chain.Resolved)
		require.Equal(t, 1, b.events(payload)[chain.TypeAttemptLost])
		require.Equal(t, uint64(1), b.letter(payload).Attempt)
		require.Zero(t, b.script.beside[payload], "it must run alone")
	}
	for i := range 50 {
		b.reaches(fmt.Sprint("good ", i), chain.Resolved)
	}
	require.NotNil(t, b.letter("other").Lease, "what another node holds is not ours to give back")
}

// A lease of another instance has its length from when it is first seen, however its clock stands, and as long again when
// it is extended.
func TestExpiredLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		held := b.lease("held", "node-2/1", time.Minute)
		b.lease("lost", "node-2/0", time.Minute)
		time.Sleep(2 * time.Hour) // nobody looked, or the clock was set
		stop := b.start()
		time.Sleep(50 * time.Second)
		require.NotNil(t, b.letter("lost").Lease)
		require.NoError(t, b.Extend(t.Context(), held, time.Minute))
		time.Sleep(30 * time.Second)
		require.Equal(t, chain.Resolved, b.letter("lost").Disposition)
		require.Equal(t, 1, b.events("lost")[chain.TypeAttemptLost])
		require.NotNil(t, b.letter("held").Lease)
		time.Sleep(time.Minute)
		require.Equal(t, chain.Resolved, b.letter("held").Disposition)
		stop()
	})
}

// lease has somebody else work on a payload.
func (b *bench) lease(payload, worker string, ttl time.Duration) deadletter.Job {
	job, err := b.Lease(b.t.Context(), b.ingest(payload), worker, ttl)
	require.NoError(b.t, err)
	return job
}

// Attempts that only run out of time end as one dead letter. Who tells of that twice, late and after a restart adds no
// second letter, nor does a replay that finds the bytes gone.
func TestTC14(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ref := b.ingest("slow")
		stop := b.start()
		time.Sleep(3 * time.Hour)
		l := b.letter("slow")
		require.Equal(t, chain.DeadLetter, l.Disposition)
		require.Equal(t, "parse.timeout", l.Failure.ErrorCode)
		require.Equal(t, uint64(6), l.Attempt)
		advisory := deadletter.Failure{PayloadRef: ref, Stage: chain.StageParse, Signal: deadletter.Signal{Type: "timeout"}, Message: "max deliveries"}
		for i := range 4 {
			r, err := b.Fail(t.Context(), advisory)
			require.NoError(t, err)
			require.Equal(t, i > 0, r.Known)
			require.Equal(t, chain.DeadLetter, r.Disposition)
			stop()
			stop = b.start()
			time.Sleep(time.Hour)
		}
		b.memory.Remove(blob.Ref{Digest: ref})
		_, err := b.Replay(t.Context(), ref, deadletter.Order{Actor: "op"})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Equal(t, "ingest.payload_unavailable", b.letter("slow").Failure.ErrorCode)
		require.Len(t, b.letters(), 1)
		stop()
	})
}

func TestLostBytes(t *testing.T) {
	b := newBench(t)
	missing, damaged := b.ingest("missing"), b.ingest("damaged")
	b.memory.Remove(blob.Ref{Digest: missing})
	require.NoError(t, b.memory.Tamper(blob.Ref{Digest: damaged}, []byte("other")))
	b.start()
	for _, payload := range []string{"missing", "damaged"} {
		b.reaches(payload, chain.DeadLetter)
		require.Equal(t, "ingest.payload_unavailable", b.letter(payload).OutcomeCode)
		require.Zero(t, b.script.count(payload))
	}
}

func TestPayloadBeyondTodaysLimit(t *testing.T) {
	b := newBench(t)
	b.ingest("a long payload")
	small, err := blob.NewStore(b.memory, blob.Config{MaxSize: 4})
	require.NoError(t, err)
	b.start(func(c *process.Config) { c.Store = small })
	b.reaches("a long payload", chain.DeadLetter)
	require.Equal(t, "ingest.payload_unavailable", b.letter("a long payload").OutcomeCode)
}

// The log fails now and then, stored or not: every letter ends resolved, with one record.
func TestLogInTrouble(t *testing.T) {
	var n atomic.Int64
	b := newBenchOver(t, &chaintest.Log{Fail: func([][]byte) (bool, error) {
		if i := n.Add(1); i > 40 && i < 100 && i%4 == 0 {
			return i%8 == 0, errors.New("timeout")
		}
		return false, nil
	}}, blob.Config{})
	for i := range 20 {
		b.ingest(fmt.Sprint("payload ", i))
	}
	b.start()
	for i := range 20 {
		b.reaches(fmt.Sprint("payload ", i), chain.Resolved)
	}
}

// A log that is down when the pool starts, with leases to give back, does not end the pool.
// A stop does not wait for a log that is away: what is not recorded is given back at the next start.
func TestStopWhileTheLogIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		b := newBenchOver(t, &chaintest.Log{Fail: func([][]byte) (bool, error) {
			if away.Load() {
				return false, errors.New("away")
			}
			return false, nil
		}}, blob.Config{})
		b.ingestMany("wait", 4)
		stop := b.start()
		time.Sleep(time.Second)
		away.Store(true)
		close(b.script.gate)
		b.ingestFails("another")
		time.Sleep(time.Second)
		began := time.Now()
		stop()
		require.LessOrEqual(t, time.Since(began), 10*time.Second)
		away.Store(false)
		time.Sleep(time.Minute)
		b.start()
		time.Sleep(time.Minute)
		for _, l := range b.letters() {
			require.Equal(t, chain.Resolved, l.Disposition)
			require.Equal(t, uint64(1), l.Attempt)
		}
	})
}

func (b *bench) ingestFails(payload string) {
	_, err := b.Ingest(b.t.Context(), deadletter.Submission{Body: strings.NewReader(payload)})
	require.ErrorIs(b.t, err, deadletter.ErrUnavailable)
}

func TestReclaimWaitsForTheLog(t *testing.T) {
	var down atomic.Bool
	b := newBenchOver(t, &chaintest.Log{Fail: func([][]byte) (bool, error) {
		if down.Load() {
			return false, errors.New("no quorum")
		}
		return false, nil
	}}, blob.Config{})
	_, err := b.Lease(t.Context(), b.ingest("payload"), "node-1/0", time.Hour)
	require.NoError(t, err)
	require.NoError(t, b.state.Wait(t.Context(), uint64(len(b.log.Lines())-1)))
	down.Store(true)
	b.start()
	time.AfterFunc(50*time.Millisecond, func() { down.Store(false) })
	b.reaches("payload", chain.Resolved)
}

func BenchmarkPool(b *testing.B) {
	bench := newBench(b)
	for i := range b.N {
		bench.ingest(fmt.Sprint("payload ", i))
	}
	b.ResetTimer()
	stop := bench.start()
	for bench.count() < b.N {
		<-bench.state.Changed()
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "letters/s")
	stop()
}

// count is the number of resolved letters.
func (b *bench) count() int {
	stats, err := b.state.Stats()
	require.NoError(b.t, err)
	return int(stats.Letters[chain.Resolved])
}
