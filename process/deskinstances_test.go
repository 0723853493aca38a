package process_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/process"
)

// keep stores bytes that another instance takes in: in truth instances share a store.
func (b *bench) keep(payload string) {
	_, _, err := b.store.PutBytes(b.t.Context(), []byte(payload), time.Now())
	require.NoError(b.t, err)
}

// A worker that holds letters of two instances holds several: neither of them may blame its own.
func TestDeskWorkerOfTwoInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newBench(t)
		two := newBenchOver(t, one.log, blob.Config{})
		two.keep("second")
		here, _ := one.desk()
		there, stop := two.desk()
		stop() // it answers, and leaves the judgement to the other one
		one.ingest("first")
		time.Sleep(time.Second)
		first := one.come(here, "a", 1)[0]
		one.ingest("second")
		time.Sleep(2 * time.Second)
		second := two.come(there, "a", 1)[0]
		for d, id := range map[*process.Desk]process.LeaseID{here: first, there: second} {
			_, body, err := d.Payload(t.Context(), "app", id)
			require.NoError(t, err)
			require.NoError(t, body.Close())
		}
		time.Sleep(3 * time.Minute)
		for _, l := range one.letters() {
			require.Equal(t, chain.Received, l.Disposition)
			require.Equal(t, uint64(1), l.Losses)
		}
	})
}

// A worker that is heard of at another instance than the one that gave the lease has named it all the same: a letter that
// takes its workers down must not come back for ever.
func TestDeskHeardElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newBench(t)
		two := newBenchOver(t, one.log, blob.Config{})
		two.keep("fatal")
		here, _ := one.desk()
		there, stop := two.desk()
		one.ingest("fatal")
		time.Sleep(time.Second)
		id := one.come(here, "a", 1)[0]
		time.Sleep(3 * time.Second) // both know of it
		_, body, err := there.Payload(t.Context(), "app", id)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		stop() // the judgement is left to the other one
		time.Sleep(3 * time.Minute)
		l := one.letter("fatal")
		require.Nil(t, l.Lease)
		require.Equal(t, chain.Received, l.Disposition, "what else was heard there is not known here")
		require.Equal(t, uint64(1), l.Losses)
	})
}

// A worker may ask another instance at once, which has not read yet that it has the letter.
func TestDeskAsksElsewhereAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newBench(t)
		two := newBenchOver(t, one.log, blob.Config{})
		two.keep("payload")
		here, _ := one.desk()
		there, _ := two.desk()
		one.ingest("payload")
		require.NoError(t, one.state.Wait(t.Context(), one.Size()-1))
		id := one.come(here, "a", 1)[0]
		_, body, err := there.Payload(t.Context(), "app", id)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		_, err = there.Complete(t.Context(), "app", id, "", "", nil)
		require.NoError(t, err)
	})
}
