package process_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/process"
)

// desk runs a desk that has all letters.
func (b *bench) desk() (d *process.Desk, stop func()) {
	routes, err := process.NewRoutes([]process.Route{{Target: "field"}}, []string{"field"})
	require.NoError(b.t, err)
	d = process.NewDesk(process.DeskConfig{Queue: b.Queue, State: b.state, Store: b.store, Routes: routes, Targets: []string{"field"}})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(b.t, d.Run(ctx)) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	b.t.Cleanup(stop)
	return d, stop
}

// come has a worker ask for letters.
func (b *bench) come(d *process.Desk, name string, most int) []process.LeaseID {
	b.t.Helper()
	jobs, err := d.Lease(b.t.Context(), process.LeaseOrder{Worker: process.Worker{Actor: "app", Name: name}, Max: most})
	require.NoError(b.t, err)
	var ids []process.LeaseID
	for _, j := range jobs {
		ids = append(ids, process.LeaseID{Ref: j.Letter.Ref, Seq: j.Letter.Lease.Seq})
	}
	return ids
}

func TestDesk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d, _ := b.desk()
		for _, payload := range []string{"one", "two", "three"} {
			b.ingest(payload)
		}
		time.Sleep(time.Second)
		one, both := b.come(d, "a", 1), b.come(d, "b", 10)
		require.Len(t, one, 1)
		require.Len(t, both, 2)
		require.Empty(t, b.come(d, "c", 10))

		l, body, err := d.Payload(t.Context(), "app", one[0])
		require.NoError(t, err)
		raw, err := io.ReadAll(body)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		require.Equal(t, "one", string(raw))
		require.Equal(t, "pull/app/a", l.Lease.Worker)

		r, err := d.Complete(t.Context(), "app", one[0], "", "", []byte(` {"n":1.0} `))
		require.NoError(t, err)
		require.Equal(t, chain.Resolved, r.Disposition)
		record, err := b.store.Get(t.Context(), blob.Ref{Digest: b.letter("one").RecordRef})
		require.NoError(t, err)
		require.Equal(t, ` {"n":1.0} `, string(record))
		r, err = d.Fail(t.Context(), "app", both[0], deadletter.Breakdown{Stage: chain.StageParse, Signal: deadletter.Signal{Type: "ValueError"}, Message: "two: bad"})
		require.NoError(t, err)
		require.Equal(t, chain.DeadLetter, r.Disposition)
		require.NoError(t, d.Release(t.Context(), "app", both[1]))
		time.Sleep(time.Second)
		again := b.come(d, "c", 10)
		require.Len(t, again, 1)
		require.Equal(t, uint64(1), b.letter("three").Lease.Attempt, "a release costs nothing")
		require.Equal(t, both[1].Ref, again[0].Ref)
	})
}

func TestDeskOutcomeToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d, _ := b.desk()
		b.ingestMany("payload", 3)
		time.Sleep(time.Second)
		ids := b.come(d, "a", 3)
		bad := deadletter.Breakdown{Stage: chain.StageParse, Signal: deadletter.Signal{HTTPStatus: 422}}
		done, err := d.Complete(t.Context(), "app", ids[0], "", "", nil)
		require.NoError(t, err)
		failed, err := d.Fail(t.Context(), "app", ids[1], bad)
		require.NoError(t, err)
		tip := len(b.log.Lines())
		again, err := d.Complete(t.Context(), "app", ids[0], "", "", []byte(`{"another":true}`))
		require.NoError(t, err)
		require.True(t, again.Known)
		again.Known = false
		require.Equal(t, done, again)
		again, err = d.Fail(t.Context(), "app", ids[1], bad)
		require.NoError(t, err)
		require.True(t, again.Known)
		require.Equal(t, failed.Seq, again.Seq)

		_, err = d.Fail(t.Context(), "app", ids[0], bad)
		require.ErrorIs(t, err, deadletter.ErrStaleLease, "it was completed")
		_, err = d.Complete(t.Context(), "app", ids[1], "", "", nil)
		require.ErrorIs(t, err, deadletter.ErrStaleLease, "it failed")
		for _, other := range []process.LeaseID{{Ref: ids[2].Ref, Seq: ids[0].Seq}, {Ref: ids[0].Ref, Seq: 7777}} {
			_, err = d.Complete(t.Context(), "app", other, "", "", nil)
			require.ErrorIs(t, err, deadletter.ErrStaleLease)
		}
		_, err = d.Complete(t.Context(), "app", process.LeaseID{Ref: chain.Sum([]byte("unknown")), Seq: 1}, "", "", nil)
		require.ErrorIs(t, err, deadletter.ErrNotFound)
		_, err = d.Complete(t.Context(), "somebody", ids[2], "", "", nil)
		require.ErrorIs(t, err, deadletter.ErrStaleLease, "another's")
		_, err = d.Complete(t.Context(), "somebody", ids[0], "", "", nil)
		require.ErrorIs(t, err, deadletter.ErrStaleLease, "another's")
		require.Len(t, b.log.Lines(), tip, "nothing of this was recorded")
	})
}

// With beats a handler may take as long as it likes, and events are few; a worker that is late finds its lease gone, and
// changes nothing.
func TestTC10(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d, _ := b.desk()
		b.ingest("beaten")
		time.Sleep(time.Second)
		beaten := b.come(d, "a", 1)[0]
		for range 18 {
			time.Sleep(10 * time.Second)
			until, err := d.Heartbeat(t.Context(), "app", beaten)
			require.NoError(t, err)
			require.Equal(t, time.Minute, time.Until(until))
		}
		require.Empty(t, b.come(d, "b", 1))
		_, err := d.Complete(t.Context(), "app", beaten, "", "", nil)
		require.NoError(t, err)
		require.Equal(t, 7, b.events("beaten")[chain.TypeAttempt], "taken, and extended each half minute")

		b.ingest("silent")
		b.ingest("beside")
		time.Sleep(time.Second)
		late := b.come(d, "a", 2)
		for _, id := range late {
			_, body, err := d.Payload(t.Context(), "app", id)
			require.NoError(t, err)
			require.NoError(t, body.Close())
		}
		time.Sleep(3 * time.Minute)
		require.Equal(t, 1, b.events("silent")[chain.TypeAttemptLost])
		second := b.come(d, "b", 2)
		require.Len(t, second, 1, "what was lost runs alone")
		done, err := d.Complete(t.Context(), "app", second[0], "", "", []byte(`{"by":"b"}`))
		require.NoError(t, err)
		require.Equal(t, uint64(1), b.letters()[second[0].Ref].Attempt)
		tip := len(b.log.Lines())
		for _, id := range late {
			_, err = d.Heartbeat(t.Context(), "app", id)
			require.ErrorIs(t, err, deadletter.ErrStaleLease)
			_, err = d.Complete(t.Context(), "app", id, "", "", []byte(`{"by":"a"}`))
			require.ErrorIs(t, err, deadletter.ErrStaleLease)
		}
		require.Len(t, b.log.Lines(), tip)
		require.Equal(t, done.Seq, b.letters()[second[0].Ref].LastSeq)
	})
}

// A worker that vanishes with one letter and nothing else has been taken down by it.
func TestDeskVanishedWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d, stop := b.desk()
		b.ingest("fatal")
		time.Sleep(time.Second)
		fatal := b.come(d, "a", 1)[0]
		_, err := d.Heartbeat(t.Context(), "app", fatal)
		require.NoError(t, err)
		b.ingest("beside 1")
		time.Sleep(time.Second)
		b.come(d, "b", 1)
		b.ingest("beside 2")
		time.Sleep(time.Second)
		beside := b.come(d, "b", 1)
		for _, l := range b.letters() {
			if l.Lease != nil {
				_, err := d.Heartbeat(t.Context(), "app", process.LeaseID{Ref: l.Ref, Seq: l.Lease.Seq})
				require.NoError(t, err)
			}
		}
		require.Len(t, beside, 1)
		time.Sleep(2 * time.Minute)
		require.Equal(t, chain.Poison, b.letter("fatal").Disposition)
		require.Equal(t, "parse.crash", b.letter("fatal").Failure.ErrorCode)
		require.Equal(t, "lease_vanished", b.lastEvidence("fatal"))
		for _, other := range []string{"beside 1", "beside 2"} {
			require.Equal(t, chain.Received, b.letter(other).Disposition)
			require.Zero(t, b.letter(other).Attempt)
			require.Equal(t, uint64(1), b.letter(other).Losses)
		}
		alone := b.come(d, "c", 5)
		require.Len(t, alone, 1)
		b.ingest("new")
		time.Sleep(time.Second)
		require.Empty(t, b.come(d, "c", 5), "who has one that must run alone gets no other")
		require.Len(t, b.come(d, "e", 5), 1)
		stop()
	})
}

// While the service is away nobody can beat: after its start everybody has a whole lease, and nobody is blamed.
func TestDeskStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d, stop := b.desk()
		b.ingest("a")
		time.Sleep(time.Second)
		kept := b.come(d, "a", 1)[0]
		b.ingest("b")
		time.Sleep(time.Second)
		b.come(d, "b", 1)
		stop()
		time.Sleep(time.Hour)
		d, stop = b.desk()
		time.Sleep(50 * time.Second)
		_, err := d.Heartbeat(t.Context(), "app", kept)
		require.NoError(t, err)
		time.Sleep(40 * time.Second)
		require.NotNil(t, b.letter("a").Lease)
		require.Nil(t, b.letter("b").Lease)
		require.Equal(t, uint64(1), b.letter("b").Losses)
		require.NotEqual(t, chain.Poison, b.letter("b").Disposition)
		stop()
	})
}

// Two instances share the workers: what one of them hears, the other sees in the log.
func TestDesksOfTwoInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newBench(t)
		two := newBenchOver(t, one.log, blob.Config{})
		here, _ := one.desk()
		there, _ := two.desk()
		one.ingest("payload")
		time.Sleep(time.Second)
		id := one.come(here, "a", 1)[0]
		require.Empty(t, two.come(there, "b", 1))
		for range 60 {
			time.Sleep(20 * time.Second)
			_, err := there.Heartbeat(t.Context(), "app", id)
			require.NoError(t, err)
		}
		_, err := there.Complete(t.Context(), "app", id, "", "", nil)
		require.NoError(t, err)
		again, err := here.Complete(t.Context(), "app", id, "", "", nil)
		require.NoError(t, err)
		require.True(t, again.Known)
	})
}

func TestDeskLongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d, _ := b.desk()
		order := process.LeaseOrder{Worker: process.Worker{Actor: "app", Name: "a"}, Max: 3, Wait: time.Minute}
		began := time.Now()
		jobs, err := d.Lease(t.Context(), order)
		require.NoError(t, err)
		require.Empty(t, jobs)
		require.Equal(t, time.Minute, time.Since(began))

		time.AfterFunc(10*time.Second, func() { b.ingest("payload") })
		jobs, err = d.Lease(t.Context(), order)
		require.NoError(t, err)
		require.Len(t, jobs, 1)

		f := deadletter.Breakdown{Stage: chain.StageDispatch, Signal: deadletter.Signal{HTTPStatus: 503, RetryAfter: "30"}}
		_, err = d.Fail(t.Context(), "app", process.LeaseID{Ref: jobs[0].Letter.Ref, Seq: jobs[0].Letter.Lease.Seq}, f)
		require.NoError(t, err)
		began = time.Now()
		jobs, err = d.Lease(t.Context(), order)
		require.NoError(t, err)
		require.Len(t, jobs, 1, "the retry that came due")
		require.GreaterOrEqual(t, time.Since(began), 30*time.Second)

		gone, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_, err = d.Lease(gone, order)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		b.ingest("later")
		time.Sleep(time.Second)
		require.Nil(t, b.letter("later").Lease, "who left gets nothing")
	})
}

// Many workers at once get each letter once.
func TestDeskCrowd(t *testing.T) {
	b := newBench(t)
	d, _ := b.desk()
	b.ingestMany("payload", 200)
	require.NoError(t, b.state.Wait(t.Context(), b.Size()-1))
	var mu sync.Mutex
	got := map[chain.Digest]int{}
	var crowd sync.WaitGroup
	var done atomic.Int64
	for i := range 20 {
		crowd.Go(func() {
			for done.Load() < 200 {
				for _, id := range b.come(d, fmt.Sprint("w", i), 3) {
					done.Add(1)
					mu.Lock()
					got[id.Ref]++
					mu.Unlock()
					_, err := d.Complete(t.Context(), "app", id, "", "", nil)
					assert.NoError(t, err)
				}
			}
		})
	}
	crowd.Wait()
	require.Len(t, got, 200)
	for ref, n := range got {
		require.Equal(t, 1, n)
		require.Equal(t, chain.Resolved, b.letters()[ref].Disposition)
	}
}

func TestDeskRefuses(t *testing.T) {
	b := newBench(t)
	d, _ := b.desk()
	w := process.Worker{Actor: "app", Name: "a"}
	for field, o := range map[string]process.LeaseOrder{
		"worker": {Worker: process.Worker{Actor: "app", Name: "a b"}}, "max": {Worker: w, Max: 101}, "wait": {Worker: w, Wait: time.Hour},
		"lease": {Worker: w, For: time.Hour}, "processors": {Worker: w, Targets: []string{"builtin"}},
	} {
		_, err := d.Lease(t.Context(), o)
		var wrong *chain.FieldError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, field, wrong.Field)
	}
	for _, id := range []string{"", "x", chain.Sum(nil).String(), chain.Sum(nil).String() + "-", chain.Sum(nil).String() + "-1x"} {
		_, err := process.ParseLeaseID(id)
		require.Error(t, err)
	}
	id := process.LeaseID{Ref: chain.Sum(nil), Seq: 7}
	back, err := process.ParseLeaseID(id.String())
	require.NoError(t, err)
	require.Equal(t, id, back)
	b.ingest("payload")
	require.NoError(t, b.state.Wait(t.Context(), b.Size()-1))
	held := b.come(d, "a", 1)[0]
	for _, bad := range []deadletter.Breakdown{{}, {Stage: chain.StageParse, Signal: deadletter.Signal{HTTPStatus: 7}}} {
		_, err := d.Fail(t.Context(), "app", held, bad)
		require.Error(t, err)
	}
	for _, record := range []string{"[]", "{", "\xff", "{}{}"} {
		_, err := d.Complete(t.Context(), "app", held, "", "", []byte(record))
		require.Error(t, err)
	}
	require.NotNil(t, b.letter("payload").Lease, "and the lease goes on")
}

// A lease of which its worker never heard, because the answer was lost, says nothing about the letter.
func TestDeskAnswerLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d, stop := b.desk()
		b.ingest("payload")
		time.Sleep(time.Second)
		b.come(d, "a", 1)
		time.Sleep(2 * time.Minute)
		l := b.letter("payload")
		require.Equal(t, chain.Received, l.Disposition)
		require.Nil(t, l.Lease)
		require.Zero(t, l.Losses)
		stop()
	})
}

// While the log cannot be written, workers are heard of all the same, and nobody is taken for gone afterwards.
func TestDeskWhileTheLogIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		log := &chaintest.Log{}
		log.Fail = func([][]byte) (bool, error) {
			if away.Load() {
				return false, errors.New("away")
			}
			return false, nil
		}
		b := newBenchOver(t, log, blob.Config{})
		d, stop := b.desk()
		b.ingest("payload")
		time.Sleep(time.Second)
		id := b.come(d, "a", 1)[0]
		away.Store(true)
		for range 12 {
			time.Sleep(20 * time.Second)
			_, err := d.Heartbeat(t.Context(), "app", id)
			require.NoError(t, err)
		}
		away.Store(false)
		time.Sleep(20 * time.Second)
		_, err := d.Complete(t.Context(), "app", id, "", "", nil)
		require.NoError(t, err)
		require.Equal(t, 1, b.events("payload")[chain.TypeResolved])
		stop()
	})
}

// A worker that asks twice at once gets nothing beside a letter that must run alone.
func TestDeskAsksTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &chaintest.Log{}
		log.Fail = func([][]byte) (bool, error) { time.Sleep(100 * time.Millisecond); return false, nil }
		b := newBenchOver(t, log, blob.Config{})
		d, _ := b.desk()
		b.ingest("lost")
		b.ingest("beside")
		time.Sleep(time.Second)
		for _, id := range b.come(d, "gone", 2) {
			_, err := d.Heartbeat(t.Context(), "app", id)
			require.NoError(t, err)
			if id.Ref == chain.Sum([]byte("beside")) {
				_, err = d.Complete(t.Context(), "app", id, "", "", nil)
				require.NoError(t, err)
			}
		}
		time.Sleep(2 * time.Minute)
		require.Equal(t, uint64(1), b.letter("lost").Losses)
		b.ingestMany("new", 10)
		time.Sleep(time.Second)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { b.come(d, "a", 1) })
		}
		both.Wait()
		held := 0
		for _, l := range b.letters() {
			if l.Lease != nil {
				held++
			}
		}
		require.True(t, held == 1 || b.letter("lost").Lease == nil)
	})
}

// That this process itself records that a lease goes on is no sign of another one, however long that takes.
func TestDeskSlowExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &chaintest.Log{}
		var b *bench
		extending, slow := false, false
		log.Fail = func([][]byte) (bool, error) {
			switch {
			case slow:
				slow = false
				time.Sleep(5 * time.Second)
			case extending:
				extending, slow = false, true
				go b.ingest("beside")
				time.Sleep(10 * time.Millisecond)
			}
			return false, nil
		}
		b = newBenchOver(t, log, blob.Config{})
		d, _ := b.desk()
		b.ingest("fatal")
		time.Sleep(time.Second)
		id := b.come(d, "a", 1)[0]
		time.Sleep(40 * time.Second)
		extending = true
		_, err := d.Heartbeat(t.Context(), "app", id)
		require.NoError(t, err)
		require.False(t, slow, "the lease was seen in the log while its extension was not over")
		time.Sleep(3 * time.Minute)
		require.Equal(t, chain.Poison, b.letter("fatal").Disposition)
	})
}
