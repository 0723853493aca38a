package deadletter_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

func TestOneOfManyWorkersGetsTheLetter(t *testing.T) {
	b := newBench(t)
	ref := b.ingest("payload").PayloadRef
	var got atomic.Int64
	each(20, func(int) {
		if _, err := b.Lease(t.Context(), ref, "w/1", time.Minute); err == nil {
			got.Add(1)
		} else {
			var refused *chain.TransitionError
			assert.ErrorAs(t, err, &refused)
		}
	})
	require.Equal(t, int64(1), got.Load())
	require.Equal(t, 3, b.size())
}

func TestLeaseOnlyWhatIsDue(t *testing.T) {
	b := newBench(t)
	for _, d := range chain.Dispositions {
		ref := b.in(d, string(d))
		size := b.size()
		_, err := b.Lease(t.Context(), ref, "w/1", time.Minute)
		if d == chain.Received || d == chain.Replayed {
			require.NoError(t, err)
		} else {
			b.requireRefused(size, err)
		}
	}
}

// stale holds that nothing can be said any more about a lease that is over.
func (b *bench) stale(job deadletter.Job) {
	b.t.Helper()
	size := b.size()
	_, err := b.Complete(b.t.Context(), job, completion("late", "late"))
	require.ErrorIs(b.t, err, deadletter.ErrStaleLease)
	_, err = b.FailJob(b.t.Context(), job, deadletter.Breakdown{Stage: chain.StageParse, Message: "late"})
	require.ErrorIs(b.t, err, deadletter.ErrStaleLease)
	require.ErrorIs(b.t, b.Release(b.t.Context(), job), deadletter.ErrStaleLease)
	require.ErrorIs(b.t, b.Lose(b.t.Context(), job.Letter, chain.LostWorker), deadletter.ErrStaleLease)
	require.ErrorIs(b.t, b.Vanished(b.t.Context(), job.Letter, deadletter.Breakdown{Stage: chain.StageParse, Crash: "late"}), deadletter.ErrStaleLease)
	require.ErrorIs(b.t, b.Extend(b.t.Context(), job, time.Hour), deadletter.ErrStaleLease)
	require.Equal(b.t, size, b.size())
}

func TestStaleLeases(t *testing.T) {
	b := newBench(t)
	b.stale(deadletter.Job{Letter: chain.Letter{Ref: b.ingest("never leased").PayloadRef}})
	for name, end := range map[string]func(deadletter.Job) error{
		"completed": func(j deadletter.Job) error {
			_, err := b.Complete(t.Context(), j, completion("r", "c"))
			return err
		},
		"failed": func(j deadletter.Job) error {
			_, err := b.FailJob(t.Context(), j, deadletter.Breakdown{Stage: chain.StageParse})
			return err
		},
		"released":         func(j deadletter.Job) error { return b.Release(t.Context(), j) },
		"lost":             func(j deadletter.Job) error { return b.Lose(t.Context(), j.Letter, chain.LostWorker) },
		"failed elsewhere": func(deadletter.Job) error { _, err := b.Fail(t.Context(), failure("failed elsewhere")); return err },
	} {
		job := b.lease(b.ingest(name).PayloadRef)
		require.NoError(t, end(job), name)
		b.stale(job)
		if l := b.letter(job.Letter.Ref); l.Due(time.Now()) { // the next lease is another one
			next := b.lease(job.Letter.Ref)
			b.stale(job)
			require.NoError(t, b.Release(t.Context(), next))
		}
	}
}

func TestReleaseCostsNothing(t *testing.T) {
	b := newBench(t)
	ref := b.ingest("payload").PayloadRef
	for range 20 {
		job := b.lease(ref)
		require.Equal(t, uint64(1), job.Letter.Lease.Attempt)
		require.False(t, job.Letter.Lease.Alone)
		require.NoError(t, b.Release(t.Context(), job))
	}
	l := b.letter(ref)
	require.Equal(t, chain.Received, l.Disposition)
	require.Zero(t, l.Attempt+l.Losses)
}

func TestLostAlone(t *testing.T) {
	b := newBench(t)
	ref := b.ingest("payload").PayloadRef
	for loss, cause := range []string{chain.LostService, chain.LostWorker, chain.LostService} {
		job := b.lease(ref)
		require.Equal(t, loss > 0, job.Letter.Lease.Alone)
		require.Equal(t, uint64(1), job.Letter.Lease.Attempt, "a loss uses no attempt")
		require.NoError(t, b.Lose(t.Context(), job.Letter, cause))
		if loss < 2 {
			require.Equal(t, chain.Received, b.letter(ref).Disposition)
			require.Equal(t, cause, b.last().Reason)
		}
	}
	require.Equal(t, chain.Poison, b.letter(ref).Disposition)
	require.Equal(t, "lost_alone", b.last().Evidence)
	require.Equal(t, "ingest.crash", b.last().Envelope.ErrorCode)
}

// A release between losses neither helps nor hurts; an outcome starts afresh.
func TestLossesEndWithAnOutcome(t *testing.T) {
	b := newBench(t)
	ref := b.ingest("payload").PayloadRef
	for range 2 {
		require.NoError(t, b.Lose(t.Context(), b.lease(ref).Letter, chain.LostService))
		require.NoError(t, b.Release(t.Context(), b.lease(ref)))
	}
	_, err := b.FailJob(t.Context(), b.lease(ref), deadletter.Breakdown{Stage: chain.StageParse})
	require.NoError(t, err)
	_, err = b.Replay(t.Context(), ref, operator)
	require.NoError(t, err)
	job := b.lease(ref)
	require.False(t, job.Letter.Lease.Alone)
	require.NoError(t, b.Lose(t.Context(), job.Letter, chain.LostWorker))
	require.Equal(t, chain.Replayed, b.letter(ref).Disposition)
}

func TestExtend(t *testing.T) {
	b := newBench(t)
	job := b.lease(b.ingest("payload").PayloadRef)
	require.NoError(t, b.Extend(t.Context(), job, time.Hour))
	until := b.letter(job.Letter.Ref).Lease.Until
	require.Greater(t, time.Until(until), 59*time.Minute)
	size := b.size()
	require.NoError(t, b.Extend(t.Context(), job, time.Minute), "shorter is no error, and changes nothing")
	require.Equal(t, size, b.size())
	require.Equal(t, until, b.letter(job.Letter.Ref).Lease.Until)
	_, err := b.Complete(t.Context(), job, completion("r", "c"))
	require.NoError(t, err)
}

func TestCompletion(t *testing.T) {
	b := newBench(t)
	c := completion("r", "c")
	c.Outcome, c.OutcomeCode = chain.AdmitWithWarning, "validate.odd"
	c.Findings = make([]chain.Finding, 100)
	for i := range c.Findings {
		c.Findings[i] = chain.Finding{Code: "validate.odd", Pointer: "/defects/1"}
	}
	r, err := b.Complete(t.Context(), b.lease(b.ingest("a").PayloadRef), c)
	require.NoError(t, err)
	require.Equal(t, chain.AdmitWithWarning, r.Outcome)
	e := b.last()
	require.Len(t, e.Findings, chain.MaxFindings)
	require.Equal(t, uint64(100), e.FindingsTotal)
	record, err := b.store.Get(t.Context(), blob.Ref{Digest: e.RecordRef, Version: e.Blobs[0].BlobVersion})
	require.NoError(t, err)
	require.Equal(t, c.Record, record)
	r, err = b.Complete(t.Context(), b.lease(b.ingest("b").PayloadRef),
		deadletter.Completion{Outcome: chain.Ignored, OutcomeCode: "ingest.not_a_dvir", Rules: "rules/1"})
	require.NoError(t, err)
	require.Equal(t, chain.Ignored, r.Outcome)
	require.True(t, b.last().RecordRef.IsZero())
}

func (b *bench) complete(body string, c deadletter.Completion) (deadletter.Receipt, chain.Letter) {
	r, err := b.Complete(b.t.Context(), b.lease(chain.Sum([]byte(body))), c)
	require.NoError(b.t, err)
	return r, b.letter(r.PayloadRef)
}

// TestRecordsWithoutIdentity: records that are not known to be reports neither duplicate nor contradict each other, and
// a letter keeps the one it has.
func TestRecordsWithoutIdentity(t *testing.T) {
	b := newBench(t)
	plain := func(record string) deadletter.Completion {
		return deadletter.Completion{Outcome: chain.Admit, Rules: "rules/1", Record: []byte(record)}
	}
	for _, payload := range []string{"one", "two", "three"} {
		record := "of " + payload
		if payload == "three" {
			record = "of two"
		}
		ref := b.ingest(payload).PayloadRef
		r, err := b.Complete(t.Context(), b.lease(ref), plain(record))
		require.NoError(t, err)
		require.Equal(t, chain.Admit, r.Outcome)
		require.Equal(t, chain.Sum([]byte(record)), b.letter(ref).RecordRef)
		require.Zero(t, b.last().RecordKey)
		require.Zero(t, b.last().RecordVersion)
	}
	require.NoError(t, b.state.Wait(t.Context(), uint64(b.size()-1)))
	r := b.fail(transient("one"))
	require.Equal(t, chain.Retrying, r.Disposition)
	_, err := b.Replay(t.Context(), r.PayloadRef, operator)
	require.NoError(t, err)
	done, err := b.Complete(t.Context(), b.lease(r.PayloadRef), plain("another record of one"))
	require.NoError(t, err)
	require.Equal(t, chain.Admit, done.Outcome)
	require.Equal(t, chain.Sum([]byte("of one")), b.letter(r.PayloadRef).RecordRef)
}

func TestOneRecordPerReport(t *testing.T) {
	b := newBench(t)
	for _, body := range []string{"a", "b", "c"} {
		b.ingest(body)
	}
	r, a := b.complete("a", completion("report", "content"))
	require.Equal(t, chain.Admit, r.Outcome)
	other := completion("report", "content")
	other.Record = []byte("made of other bytes")
	r, second := b.complete("b", other)
	require.Equal(t, chain.Duplicate, r.Outcome)
	require.Equal(t, "ingest.logical", r.ErrorCode)
	require.Equal(t, a.RecordRef, second.RecordRef)
	r, third := b.complete("c", completion("report", "other content"))
	require.Equal(t, chain.DeadLetter, r.Disposition)
	require.Equal(t, "ingest.conflict", r.ErrorCode)
	require.True(t, third.RecordRef.IsZero())

	// Reopened and processed again, each keeps what it had.
	for _, body := range []string{"a", "b"} {
		before := b.letter(chain.Sum([]byte(body)))
		b.fail(failure(body))
		_, err := b.Replay(t.Context(), before.Ref, operator)
		require.NoError(t, err)
		again := completion("report", "content")
		again.Record = []byte("by newer rules")
		_, after := b.complete(body, again)
		require.Equal(t, before.RecordRef, after.RecordRef)
		require.Equal(t, before.Outcome, after.Outcome, body)
	}
}

// Equal reports in different letters, completed in one block: one is admitted. Other content: one is, too.
func TestEqualReportsAtOnce(t *testing.T) {
	var hold sync.Mutex
	b := newBenchOf(t, parts{lag: time.Hour, log: &chaintest.Log{Fail: func([][]byte) (bool, error) {
		hold.Lock()
		defer hold.Unlock()
		return false, nil
	}}})
	outcomes := map[chain.Outcome]int{}
	var jobs []deadletter.Job
	for _, body := range []string{"0", "1", "2", "3", "4", "5"} {
		jobs = append(jobs, b.lease(b.ingest(body).PayloadRef))
	}
	hold.Lock()
	time.AfterFunc(100*time.Millisecond, hold.Unlock)
	var mu sync.Mutex
	each(len(jobs), func(i int) {
		r, err := b.Complete(t.Context(), jobs[i], completion("report", []string{"same", "same", "same", "same", "x", "y"}[i]))
		assert.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		outcomes[r.Outcome]++
	})
	require.Equal(t, 1, outcomes[chain.Admit])
	require.Equal(t, 5, outcomes[chain.Duplicate]+outcomes[chain.Exception])
}

func TestBreakdowns(t *testing.T) {
	b := newBench(t)
	for name, c := range map[string]struct {
		breakdown deadletter.Breakdown
		want      chain.Disposition
		code      string
		said      string
	}{
		"code":         {deadletter.Breakdown{Stage: chain.StageValidate, Code: "validate.vin_length", Rules: "rules/1", Summary: "validate.vin_length at /vin"}, chain.DeadLetter, "validate.vin_length", "validate.vin_length at /vin"},
		"transient":    {deadletter.Breakdown{Stage: chain.StageDispatch, Signal: deadletter.Signal{HTTPStatus: 503}}, chain.Retrying, "dispatch.http_503", ""},
		"permanent":    {deadletter.Breakdown{Stage: chain.StageDispatch, Signal: deadletter.Signal{HTTPStatus: 404}, Message: "gone"}, chain.DeadLetter, "dispatch.http_4xx", "gone"},
		"unclassified": {deadletter.Breakdown{Stage: chain.StageParse}, chain.DeadLetter, "parse.unclassified", ""},
		"crash":        {deadletter.Breakdown{Stage: chain.StageParse, Crash: "panic"}, chain.Poison, "parse.crash", ""},
		"crash signal": {deadletter.Breakdown{Stage: chain.StageParse, Signal: deadletter.Signal{Type: "crash:oom"}}, chain.Poison, "parse.crash_oom", ""},
	} {
		r, err := b.FailJob(t.Context(), b.lease(b.ingest(name).PayloadRef), c.breakdown)
		require.NoError(t, err, name)
		require.Equal(t, c.want, r.Disposition, name)
		require.Equal(t, c.code, r.ErrorCode, name)
		e := b.last()
		require.Equal(t, c.said, e.Envelope.LastError)
		require.Equal(t, uint64(1), e.Envelope.Attempt)
		require.Equal(t, c.want == chain.Poison, e.Evidence != "", name)
	}
}

// A heartbeat that is recorded before the verdict on its worker wins.
func TestVanishedWorkerIsHeardOf(t *testing.T) {
	b := newBench(t)
	ref := b.ingest("payload").PayloadRef
	job := b.lease(ref)
	gone := deadletter.Breakdown{Stage: chain.StageParse, Crash: "lease_vanished"}
	require.NoError(t, b.Extend(t.Context(), job, time.Hour))
	require.ErrorIs(t, b.Vanished(t.Context(), job.Letter, gone), deadletter.ErrStaleLease)
	require.NotNil(t, b.letter(ref).Lease)
	require.NoError(t, b.Vanished(t.Context(), b.letter(ref), gone))
	require.Equal(t, chain.Poison, b.letter(ref).Disposition)
}
