package deadletter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/holdfast-dvir/holdfast/projection"
)

// patience bounds every wait; what has not come by then does not come.
const patience = 20 * time.Second

// bench is a running queue with everything it stands on.
type bench struct {
	t      *testing.T
	log    *chaintest.Log
	memory *blobtest.Memory
	store  *blob.Store
	state  *projection.DB
	stop   func() // ends Run; the projection still follows
	*deadletter.Queue
}

// parts are what a bench is made of; what is nil is made.
type parts struct {
	log     *chaintest.Log
	backend blob.Backend
	max     int64
	config  deadletter.Config
	lag     time.Duration // least time between two commits of the projection
}

func newBench(t *testing.T) *bench { return newBenchOf(t, parts{}) }

func newBenchOf(t *testing.T, p parts) *bench {
	state, err := projection.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	state.Pause = max(p.lag, time.Millisecond)
	b := &bench{t: t, log: p.log, state: state}
	if b.log == nil {
		b.log = &chaintest.Log{}
	}
	if p.backend == nil {
		b.memory = &blobtest.Memory{}
		p.backend = b.memory
	}
	b.store, err = blob.NewStore(p.backend, blob.Config{MaxSize: p.max})
	require.NoError(t, err)
	p.config.Log, p.config.Store, p.config.State, p.config.Origin = b.log, b.store, state, "test/log"
	b.Queue, err = deadletter.Open(t.Context(), p.config)
	require.NoError(t, err)
	b.run()
	return b
}

func (b *bench) run() {
	ctx, cancel := context.WithCancel(context.Background())
	following, unfollow := context.WithCancel(context.Background())
	ran, followed := make(chan error, 1), make(chan error, 1)
	go func() { ran <- b.Run(ctx) }()
	go func() { followed <- b.state.Follow(following, b.log) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		require.ErrorIs(b.t, <-ran, context.Canceled)
	})
	b.t.Cleanup(func() {
		b.stop()
		unfollow()
		require.ErrorIs(b.t, <-followed, context.Canceled)
		verify(b.t, b.log)
		require.NoError(b.t, b.state.CatchUp(context.Background(), b.log))
		require.Empty(b.t, b.state.Check(context.Background()))
		require.NoError(b.t, b.state.Close())
	})
}

// verify folds the whole log: every line follows the one before, and every letter takes every step.
func verify(t testing.TB, log *chaintest.Log) map[chain.Digest]chain.Letter {
	var head chain.Head
	letters := map[chain.Digest]chain.Letter{}
	for _, line := range log.Lines() {
		r, err := head.Check(line)
		require.NoError(t, err)
		head = r.Head()
		if ref := r.Event.PayloadRef; !ref.IsZero() {
			letters[ref], err = letters[ref].Apply(r)
			require.NoError(t, err, "event %d", r.Seq)
		}
	}
	return letters
}

// letter is the letter as the log has it.
func (b *bench) letter(ref chain.Digest) chain.Letter { return verify(b.t, b.log)[ref] }

// events are the events of a letter, in order.
func (b *bench) events(ref chain.Digest) (all []chain.Event) {
	for _, line := range b.log.Lines() {
		r, err := chain.Parse(line)
		require.NoError(b.t, err)
		if r.Event.PayloadRef == ref {
			all = append(all, r.Event)
		}
	}
	return all
}

// last is the last event of the log.
func (b *bench) last() chain.Event {
	lines := b.log.Lines()
	r, err := chain.Parse(lines[len(lines)-1])
	require.NoError(b.t, err)
	return r.Event
}

// size is the number of events in the log.
func (b *bench) size() int { return len(b.log.Lines()) }

func submission(body string) deadletter.Submission {
	return deadletter.Submission{Body: strings.NewReader(body), Channel: chain.MobileExport, Source: "app-1",
		ContentType: "application/json", Actor: "sender"}
}

func (b *bench) ingest(body string) deadletter.Receipt {
	r, err := b.Ingest(b.t.Context(), submission(body))
	require.NoError(b.t, err)
	return r
}

// failure is a permanent failure of body.
func failure(body string) deadletter.Failure {
	return deadletter.Failure{Submission: submission(body), Stage: chain.StageValidate, Signal: deadletter.Signal{Type: "schema"}}
}

func transient(body string) deadletter.Failure {
	f := failure(body)
	f.Stage, f.Signal = chain.StageDispatch, deadletter.Signal{HTTPStatus: 503}
	return f
}

func (b *bench) fail(f deadletter.Failure) deadletter.Receipt {
	r, err := b.Fail(b.t.Context(), f)
	require.NoError(b.t, err)
	return r
}

func (b *bench) lease(ref chain.Digest) deadletter.Job {
	job, err := b.Lease(b.t.Context(), ref, "w/1", time.Minute)
	require.NoError(b.t, err)
	return job
}

var operator = deadletter.Order{Actor: "op", Reason: "the layout is corrected"}

// completion is what processing made of a report with the given identity and content.
func completion(identity, content string) deadletter.Completion {
	return deadletter.Completion{Outcome: chain.Admit, Rules: "rules/1", Record: []byte(identity + content),
		Key: chain.Sum([]byte("key " + identity)), Version: chain.Sum([]byte("version " + identity)),
		Content: chain.Sum([]byte(content)), Unit: chain.Sum([]byte("unit"))}
}

// each runs f n times at once and waits for all.
func each(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// within fails the test if f does not return in time.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patience):
		require.Fail(t, "somebody hangs")
	}
}

func TestLifeOfALetter(t *testing.T) {
	b := newBench(t)
	f := failure(`{"name":"John Q. Public"}`)
	f.Stage, f.Signal, f.Message = chain.StageDispatch, deadletter.Signal{HTTPStatus: 422}, "422 for John Q. Public"
	r := b.fail(f)
	require.Equal(t, chain.DeadLetter, r.Disposition)
	require.Equal(t, "dispatch.http_422", r.ErrorCode)
	r, err := b.Replay(t.Context(), r.PayloadRef, operator)
	require.NoError(t, err)
	require.Equal(t, chain.Replayed, r.Disposition)
	job := b.lease(r.PayloadRef)
	r, err = b.Complete(t.Context(), job, completion("r", "c"))
	require.NoError(t, err)
	require.Equal(t, chain.Resolved, r.Disposition)
	require.Equal(t, chain.Admit, r.Outcome)
	require.Equal(t, uint64(1), b.letter(r.PayloadRef).Attempt)
}

// A step that the letter refuses must leave no trace in the log, wherever in a block it was asked for.
func TestRefusedStepIsNotAppended(t *testing.T) {
	b := newBench(t)
	r := b.ingest("a")
	b.lease(r.PayloadRef)
	size := b.size()
	_, err := b.Lease(t.Context(), r.PayloadRef, "w/2", time.Minute)
	var refused *chain.TransitionError
	require.ErrorAs(t, err, &refused)
	_, err = b.Replay(t.Context(), r.PayloadRef, operator)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, size, b.size())
	b.ingest("b")
}

func TestOnDirectoryBackend(t *testing.T) {
	b := newBenchOf(t, parts{backend: blobtest.Dir(t)})
	body := strings.Repeat("payload ", 100_000)
	f := failure(body)
	f.Message = "it says payload payload"
	r := b.fail(f)
	_, rc, err := b.OpenPayload(t.Context(), r.PayloadRef, operator)
	require.NoError(t, err)
	defer rc.Close()
	got, err := io.ReadAll(rc)
	require.NoError(t, err)
	require.Equal(t, body, string(got))
}

func TestOpenEmptyLogTwiceAtOnce(t *testing.T) {
	log := &chaintest.Log{}
	var ids [8]string
	each(len(ids), func(i int) {
		state, err := projection.Open(filepath.Join(t.TempDir(), "state.db"))
		if !assert.NoError(t, err) {
			return
		}
		defer state.Close()
		q, err := deadletter.Open(t.Context(), deadletter.Config{Log: log, Store: blobtest.Store(t, &blobtest.Memory{}), State: state, Origin: "test/log"})
		if assert.NoError(t, err) {
			ids[i] = q.LogID()
		}
	})
	require.Len(t, log.Lines(), 1)
	verify(t, log)
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	require.Len(t, ids[0], 32)
}

// reopen opens a queue over the projection of lines, and another log.
func reopen(t *testing.T, folded, log [][]byte, anchor chain.Head) error {
	fill := func(lines [][]byte) *chaintest.Log {
		l := &chaintest.Log{}
		for i, line := range lines {
			_, err := l.Append(t.Context(), chain.Position(i), [][]byte{line})
			require.NoError(t, err)
		}
		return l
	}
	state, err := projection.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	defer state.Close()
	require.NoError(t, state.CatchUp(t.Context(), fill(folded)))
	_, err = deadletter.Open(t.Context(), deadletter.Config{Log: fill(log), Store: blobtest.Store(t, &blobtest.Memory{}),
		State: state, Origin: "test/log", Anchor: anchor})
	return err
}

func TestOpenKnowsItsLog(t *testing.T) {
	story := chaintest.Story(t, "A: received attempt resolved; B: received")
	lines := story.Lines()
	other := chaintest.Rewrite(lines, 1)
	last := len(lines) - 1
	require.NoError(t, reopen(t, lines, lines, story.Head))
	require.NoError(t, reopen(t, lines[:2], lines, chain.Head{Size: 1, Leaf: chain.LeafHash(lines[0])}))
	require.NoError(t, reopen(t, nil, lines, story.Head))
	for name, err := range map[string]error{
		"cut":                    reopen(t, lines, lines[:last], chain.Head{}),
		"empty":                  reopen(t, lines, nil, chain.Head{}),
		"replaced":               reopen(t, lines, other, chain.Head{}),
		"cut before the anchor":  reopen(t, nil, lines[:last], story.Head),
		"gone before the anchor": reopen(t, nil, nil, story.Head),
		"other than the anchor":  reopen(t, nil, other, story.Head),
	} {
		require.ErrorIs(t, err, deadletter.ErrDiverged, name)
	}
}

// A refused anchor must not have written into the log.
func TestOpenRefusedWritesNothing(t *testing.T) {
	state, err := projection.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	defer state.Close()
	log := &chaintest.Log{}
	_, err = deadletter.Open(t.Context(), deadletter.Config{Log: log, Store: blobtest.Store(t, &blobtest.Memory{}),
		State: state, Origin: "test/log", Anchor: chain.Head{Size: 1, Leaf: chain.Sum(nil)}})
	require.ErrorIs(t, err, deadletter.ErrDiverged)
	require.Empty(t, log.Lines())
}

func TestAppendRefused(t *testing.T) {
	var down atomic.Bool
	b := newBenchOf(t, parts{log: &chaintest.Log{Fail: func([][]byte) (bool, error) {
		if down.Load() {
			return false, errors.New("no quorum")
		}
		return false, nil
	}}})
	r := b.ingest("a")
	down.Store(true)
	size := b.size()
	within(t, func() {
		each(20, func(i int) {
			_, err := b.Ingest(t.Context(), submission(fmt.Sprint("b", i%5)))
			assert.ErrorIs(t, err, deadletter.ErrUnavailable)
		})
	})
	require.Equal(t, size, b.size())
	down.Store(false)
	require.Eventually(t, func() bool {
		_, err := b.Ingest(t.Context(), submission("b0"))
		return err == nil
	}, patience, time.Millisecond)
	require.Equal(t, chain.Received, b.letter(chain.Sum([]byte("b0"))).Disposition)
	require.Equal(t, r.LeafHash, b.ingest("a").LeafHash)
}

// An append that fails and is stored all the same: callers know nothing, their repetition finds the one event.
func TestAppendUnknown(t *testing.T) {
	var stored, trouble atomic.Bool
	b := newBenchOf(t, parts{log: &chaintest.Log{Fail: func([][]byte) (bool, error) {
		if trouble.CompareAndSwap(true, false) {
			return stored.Load(), errors.New("timeout")
		}
		return false, nil
	}}})
	b.ingest("first")
	for i := range 40 {
		stored.Store(i%2 == 0)
		trouble.Store(true)
		body := fmt.Sprint("payload ", i)
		_, err := b.Ingest(t.Context(), submission(body))
		require.ErrorIs(t, err, deadletter.ErrUnavailable)
		var r deadletter.Receipt
		require.Eventually(t, func() bool {
			r, err = b.Ingest(t.Context(), submission(body))
			return err == nil
		}, patience, time.Millisecond)
		require.Equal(t, i%2 == 0, r.Known)
		events := b.events(r.PayloadRef)
		require.Len(t, events, 1)
	}
}

// A refusal that rests on another event of a block is worth as much as that block: nothing, if its fate is unknown.
func TestAppendUnknownTakesRefusalsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var appends, held atomic.Int64
		held.Store(-1) // none
		free := make(chan struct{})
		b := newBenchOf(t, parts{log: &chaintest.Log{Fail: func([][]byte) (bool, error) {
			switch appends.Add(1) {
			case held.Load(): // everything else waits for it
				<-free
			case held.Load() + 1:
				return false, errors.New("timeout")
			}
			return false, nil
		}}})
		ref := b.ingest("payload").PayloadRef
		held.Store(appends.Load() + 1)
		size := b.size()
		var all sync.WaitGroup
		all.Go(func() {
			_, err := b.Ingest(t.Context(), submission("before"))
			assert.NoError(t, err)
		})
		synctest.Wait()
		for i := range 10 {
			all.Go(func() {
				_, err := b.Lease(t.Context(), ref, fmt.Sprint("w/", i), time.Minute)
				assert.ErrorIs(t, err, deadletter.ErrUnavailable)
				var refused *chain.TransitionError
				assert.False(t, errors.As(err, &refused), "nobody has the letter")
			})
		}
		synctest.Wait()
		close(free)
		all.Wait()
		require.Equal(t, held.Load()+1, appends.Load(), "all were of one block")
		require.Equal(t, size+1, b.size())
		synctest.Wait()
		require.Equal(t, ref, b.lease(ref).Letter.Ref)
	})
}

// The same for every kind of step of one letter: whatever the append's fate, the letter's life goes on.
func TestAppendUnknownAtEveryStep(t *testing.T) {
	for _, stored := range []bool{false, true} {
		var trouble atomic.Bool
		b := newBenchOf(t, parts{log: &chaintest.Log{Fail: func([][]byte) (bool, error) {
			if trouble.CompareAndSwap(true, false) {
				return stored, errors.New("timeout")
			}
			return false, nil
		}}})
		ref := b.ingest("payload").PayloadRef
		var job deadletter.Job
		for _, step := range []func() error{
			func() (err error) { job, err = b.Lease(t.Context(), ref, "w/1", time.Minute); return err },
			func() error { return b.Extend(t.Context(), job, time.Hour) },
			func() (err error) {
				_, err = b.FailJob(t.Context(), job, deadletter.Breakdown{Stage: chain.StageParse, Signal: deadletter.Signal{Type: "parse"}})
				return err
			},
			func() (err error) { _, err = b.Replay(t.Context(), ref, operator); return err },
			func() (err error) { _, err = b.Fail(t.Context(), failure("payload")); return err },
			func() (err error) { _, err = b.Resolve(t.Context(), ref, operator); return err },
		} {
			size := b.size()
			trouble.Store(true)
			err := step()
			require.ErrorIs(t, err, deadletter.ErrUnavailable)
			require.Eventually(t, func() bool { err = step(); return !errors.Is(err, deadletter.ErrUnavailable) }, patience, time.Millisecond)
			if !stored {
				require.NoError(t, err)
			}
			if stored && job.Letter.Lease == nil { // the lease is there, only its worker does not know
				l := b.letter(ref)
				require.NotNil(t, l.Lease)
				job = deadletter.Job{Letter: l}
			}
			require.GreaterOrEqual(t, b.size(), size+1)
		}
		require.Equal(t, chain.Resolved, b.letter(ref).Disposition)
	}
}

// Two instances over one log decide at the same time. Nothing forks, and each letter takes only steps it has.
func TestTwoQueuesOnOneLog(t *testing.T) {
	log, memory := &chaintest.Log{}, &blobtest.Memory{}
	one := newBenchOf(t, parts{log: log, backend: memory})
	two := newBenchOf(t, parts{log: log, backend: memory, lag: 50 * time.Millisecond})
	var leased [20]atomic.Int64
	each(8, func(w int) {
		b := one
		if w%2 == 1 {
			b = two
		}
		for i := range 25 {
			n := (i*7 + w*3) % len(leased)
			if err := b.mixed(w*25+i, n, &leased[n]); err != nil {
				assert.NoError(t, err)
			}
		}
	})
	for _, l := range verify(t, log) {
		require.True(t, l.Exists())
	}
}

// mixed is one of several operations on the letter number n; refusals are fine.
func (b *bench) mixed(i, n int, leases *atomic.Int64) error {
	ctx, body := b.t.Context(), fmt.Sprint("payload ", n)
	ref := chain.Sum([]byte(body))
	var err error
	switch i % 7 {
	case 0, 1:
		_, err = b.Ingest(ctx, submission(body))
	case 2:
		_, err = b.Fail(ctx, failure(body))
	case 3, 4:
		var job deadletter.Job
		if job, err = b.Lease(ctx, ref, fmt.Sprint("w/", i), time.Minute); err == nil {
			assert.Equal(b.t, int64(1), leases.Add(1), "two workers have one letter")
			leases.Add(-1)
			_, err = b.Complete(ctx, job, completion(body, "content"))
		}
	case 5:
		_, err = b.Replay(ctx, ref, operator)
	case 6:
		_, err = b.Annotate(ctx, ref, deadletter.Annotation{Actor: "op", Note: "seen"})
	}
	var refused *chain.TransitionError
	if errors.As(err, &refused) || errors.Is(err, deadletter.ErrNotFound) || errors.Is(err, deadletter.ErrStaleLease) {
		return nil
	}
	return err
}

// The projection may lag behind the queue, or, when another instance or an unclear append was faster, be ahead.
func TestProjectionAheadOfTheQueue(t *testing.T) {
	log, memory := &chaintest.Log{}, &blobtest.Memory{}
	one := newBenchOf(t, parts{log: log, backend: memory})
	two := newBenchOf(t, parts{log: log, backend: memory})
	ref := one.ingest("payload").PayloadRef
	two.ingest("other")
	one.lease(ref)
	require.NoError(t, two.state.Wait(t.Context(), uint64(one.size()-1)))
	job := two.letter(ref)
	r, err := two.Complete(t.Context(), deadletter.Job{Letter: job}, completion("r", "c"))
	require.NoError(t, err)
	require.Equal(t, chain.Resolved, r.Disposition)
	require.NoError(t, one.state.Wait(t.Context(), r.Seq))
	_, err = one.Annotate(t.Context(), ref, deadletter.Annotation{Actor: "op", Tag: "seen"})
	require.NoError(t, err)
}

func TestProjectionFarBehind(t *testing.T) {
	b := newBenchOf(t, parts{lag: time.Hour})
	for i := range 300 {
		body := fmt.Sprint("payload ", i)
		ref := b.ingest(body).PayloadRef
		require.True(t, b.ingest(body).Known)
		job := b.lease(ref)
		_, err := b.Complete(t.Context(), job, completion(fmt.Sprint(i/2), "same"))
		require.NoError(t, err)
	}
	require.Less(t, b.state.Tip().Size, uint64(b.size()), "the projection must lag, else this test shows nothing")
	admitted := map[chain.Outcome]int{}
	for _, l := range verify(t, b.log) {
		admitted[l.Outcome]++
	}
	require.Equal(t, map[chain.Outcome]int{chain.Admit: 150, chain.Duplicate: 150}, admitted)
}

func TestCancelledCallers(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Ingest(ctx, submission("a"))
	require.ErrorIs(t, err, context.Canceled)
	r := b.ingest("a")
	f := deadletter.Failure{PayloadRef: r.PayloadRef, Stage: chain.StageParse}
	each(50, func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		f, err := f, error(nil)
		switch i % 3 {
		case 0:
			_, err = b.Fail(ctx, f)
		case 1:
			_, err = b.Annotate(ctx, r.PayloadRef, deadletter.Annotation{Actor: "op", Note: "n"})
		case 2:
			_, _, err = b.OpenPayload(ctx, r.PayloadRef, operator)
		}
		if err != nil {
			assert.ErrorIs(t, err, context.Canceled)
		}
	})
	b.ingest("still there")
}

func TestShutdownAnswersEverybody(t *testing.T) {
	var hold sync.Mutex
	b := newBenchOf(t, parts{log: &chaintest.Log{Fail: func([][]byte) (bool, error) {
		hold.Lock()
		defer hold.Unlock()
		return false, nil
	}}})
	hold.Lock()
	var answered sync.WaitGroup
	for i := range 100 {
		answered.Go(func() {
			if _, err := b.Ingest(t.Context(), submission(fmt.Sprint(i))); err != nil {
				assert.ErrorIs(t, err, deadletter.ErrUnavailable)
			}
		})
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); b.stop() }()
	time.AfterFunc(20*time.Millisecond, hold.Unlock)
	within(t, func() { answered.Wait(); <-stopped })
	_, err := b.Ingest(t.Context(), submission("late"))
	require.ErrorIs(t, err, deadletter.ErrUnavailable)
	_, err = b.Lease(t.Context(), chain.Sum(nil), "w/1", time.Minute)
	require.ErrorIs(t, err, deadletter.ErrUnavailable)
}

// canaries stand in the payload in many spellings; none may reach the log.
var canaries = []string{"John Q. Public", "555-12-3456", "Marigold Lane", "1HGCM82633A004352", "jqp@example.org"}

func TestTC07NoCanaryInTheLog(t *testing.T) {
	b := newBench(t)
	body := `{"driver":"John Q. Public","ssn":"555-12-3456","home":"Marigold Lane","vin":"1HGCM82633A004352","mail":"jqp@example.org"}`
	said := "cannot parse " + strings.Join(canaries, " of ") + " at https://h/x?name=John+Q.+Public&ssn=555-12-3456"
	s := submission(body)
	s.ContentType = `application/json; charset=utf-8; boundary="John Q. Public"; name="John Q. Public"`
	_, err := b.Ingest(t.Context(), s)
	require.NoError(t, err)
	f := failure(body)
	f.Message, f.Signal = said, deadletter.Signal{Type: said[:150], RetryAfter: "John Q. Public"}
	r := b.fail(f)
	order := deadletter.Order{Actor: "op", Reason: said, Override: true}
	_, err = b.Replay(t.Context(), r.PayloadRef, order)
	require.NoError(t, err)
	job := b.lease(r.PayloadRef)
	_, err = b.FailJob(t.Context(), job, deadletter.Breakdown{Stage: chain.StageParse, Message: said})
	require.NoError(t, err)
	_, err = b.Annotate(t.Context(), r.PayloadRef, deadletter.Annotation{Actor: "op", Note: said})
	require.NoError(t, err)
	_, rc, err := b.OpenPayload(t.Context(), r.PayloadRef, order)
	require.NoError(t, err)
	rc.Close()
	_, err = b.Resolve(t.Context(), r.PayloadRef, order)
	require.NoError(t, err)
	for _, bad := range []deadletter.Submission{
		{Body: strings.NewReader(body), Source: "John Q. Public"}, {Body: strings.NewReader(body), Actor: "John Q. Public"},
		{Body: strings.NewReader(body), ContentEncoding: "John Q. Public"}, {Body: strings.NewReader(body), ContentType: "John Q. Public"},
	} {
		_, err := b.Ingest(t.Context(), bad)
		var wrong *chain.FieldError
		require.ErrorAs(t, err, &wrong)
		require.NotContains(t, err.Error(), "John")
	}
	for _, line := range b.log.Lines() {
		for _, canary := range append(canaries, "John", "Public", "Marigold") {
			require.NotContains(t, string(bytes.ToLower(line)), strings.ToLower(canary))
		}
	}
}
