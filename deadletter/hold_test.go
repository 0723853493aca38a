package deadletter_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

func order(hold string, until time.Time) deadletter.Protection {
	return deadletter.Protection{Order: operator, Hold: hold, Until: until}
}

// stored is what the store says of every object of a letter, the payload first.
func (b *bench) stored(ref chain.Digest) (all []blob.Location) {
	b.t.Helper()
	refs := []chain.Digest{ref}
	for _, e := range b.events(ref) {
		for _, o := range e.Blobs {
			refs = append(refs, o.Ref)
		}
	}
	for _, r := range refs {
		loc, err := b.store.Stat(b.t.Context(), blob.Ref{Digest: r})
		require.NoError(b.t, err)
		all = append(all, loc)
	}
	return all
}

// resolved is a letter with a payload, an error text and a record.
func (b *bench) resolved() chain.Digest {
	f := failure("payload of a letter")
	f.Message = "the words of the sender"
	ref := b.fail(f).PayloadRef
	_, err := b.Replay(b.t.Context(), ref, operator)
	require.NoError(b.t, err)
	_, err = b.Complete(b.t.Context(), b.lease(ref), completion("report", "record"))
	require.NoError(b.t, err)
	require.Len(b.t, b.stored(ref), 3)
	return ref
}

func TestHold(t *testing.T) {
	b := newBench(t)
	ref := b.resolved()
	for _, hold := range []string{"on", "off", "on"} {
		r, err := b.Hold(t.Context(), ref, order(hold, time.Time{}))
		require.NoError(t, err)
		assert.False(t, r.Known)
		assert.Equal(t, chain.TypeRetention, b.last().Type)
		assert.Equal(t, hold, b.last().Hold)
		assert.Equal(t, operator.Reason, b.last().Reason)
		assert.Equal(t, hold == "on", b.letter(ref).Hold)
		for i, loc := range b.stored(ref) {
			assert.Equal(t, hold == "on" || i > 0, loc.Hold, "what is not the payload may be another letter's too")
		}
		_, err = b.Annotate(t.Context(), ref, deadletter.Annotation{Actor: "op", Tag: "seen-" + hold})
		require.NoError(t, err)
		size := b.size()
		again, err := b.Hold(t.Context(), ref, order(hold, time.Time{}))
		require.NoError(t, err)
		assert.True(t, again.Known)
		assert.Equal(t, r.Seq, again.Seq, "the event since which it is so, not the last")
		assert.Equal(t, r.LeafHash, again.LeafHash)
		assert.Equal(t, size, b.size())
	}
}

// TestHoldNeverSet: what was never held has not been held since its first event.
func TestHoldNeverSet(t *testing.T) {
	b := newBench(t)
	first := b.fail(failure("payload"))
	r, err := b.Hold(t.Context(), first.PayloadRef, order("off", time.Time{}))
	require.NoError(t, err)
	assert.True(t, r.Known)
	assert.Equal(t, first.Seq, r.Seq)
	assert.Equal(t, first.LeafHash, r.LeafHash)
}

func TestExtendRetention(t *testing.T) {
	b := newBench(t)
	ref := b.resolved()
	until := time.Now().AddDate(4, 0, 0).Add(time.Millisecond)
	r, err := b.Hold(t.Context(), ref, order("", until))
	require.NoError(t, err)
	assert.False(t, r.Known)
	e, want := b.last(), until.UTC().Truncate(time.Second).Add(time.Second)
	assert.Equal(t, want, e.RetainUntil)
	assert.Empty(t, e.Hold)
	assert.Len(t, e.Blobs, 2, "record and error text are extended too")
	for _, o := range e.Blobs {
		assert.Equal(t, want, o.RetainUntil)
	}
	for _, loc := range b.stored(ref) {
		assert.Equal(t, want, loc.RetainUntil)
		assert.False(t, loc.Hold)
	}
	assert.Equal(t, want, b.letter(ref).RetainUntil)
	again, err := b.Hold(t.Context(), ref, order("", until))
	require.NoError(t, err)
	assert.True(t, again.Known)
	assert.Equal(t, r.Seq, again.Seq)

	both, err := b.Hold(t.Context(), ref, order("on", until.AddDate(1, 0, 0)))
	require.NoError(t, err)
	assert.False(t, both.Known)
	assert.True(t, b.letter(ref).Hold)
	assert.True(t, b.letter(ref).RetainUntil.After(want))
}

func TestHoldRefused(t *testing.T) {
	b := newBench(t)
	ref := b.ingest("payload").PayloadRef
	before, at := b.size(), b.letter(ref).RetainUntil
	silent := order("on", time.Time{})
	silent.Reason = ""
	for says, p := range map[string]deadletter.Protection{
		"reason":                      silent,
		"on or off":                   order("maybe", time.Time{}),
		"needs hold, retain_until":    order("", time.Time{}),
		"must be in the future":       order("", time.Now().Add(-time.Hour)),
		"only extended":               order("", at.Add(-time.Hour)),
		"retention until ":            order("", time.Now().AddDate(11, 0, 0)),
		"retention until 2":           order("on", time.Now().AddDate(11, 0, 0)),
		"no letter has this payload ": order("on", time.Time{}),
	} {
		target := ref
		if strings.HasPrefix(says, "no letter") {
			target = chain.Sum([]byte("another"))
		}
		_, err := b.Hold(t.Context(), target, p)
		assert.ErrorContains(t, err, says)
	}
	assert.Equal(t, before, b.size())
	assert.Equal(t, at, b.stored(ref)[0].RetainUntil)
	assert.False(t, b.stored(ref)[0].Hold)
}

// TestHoldBreaksOff: wherever an order breaks off, the bytes are protected at least as well as is recorded, and the
// same order again makes it whole.
func TestHoldBreaksOff(t *testing.T) {
	for _, p := range []deadletter.Protection{order("on", time.Now().AddDate(5, 0, 0)), order("off", time.Now().AddDate(5, 0, 0))} {
		for failing := 1; ; failing++ {
			b := newBench(t)
			ref := b.resolved()
			if p.Hold == "off" {
				_, err := b.Hold(t.Context(), ref, order("on", time.Time{}))
				require.NoError(t, err)
			}
			calls, mu := 0, sync.Mutex{}
			b.memory.Fail = func(op string, _ chain.Digest) error {
				mu.Lock()
				defer mu.Unlock()
				if op == "extend" || op == "hold" {
					if calls++; calls == failing {
						return errors.New("the store broke off")
					}
				}
				return nil
			}
			_, err := b.Hold(t.Context(), ref, p)
			mu.Lock()
			reached := calls >= failing
			calls = -1_000
			mu.Unlock()
			if !reached {
				require.NoError(t, err)
				require.Greater(t, failing, 4)
				break
			}
			require.Error(t, err)
			l := b.letter(ref)
			at := b.stored(ref)[0]
			assert.False(t, at.RetainUntil.Before(l.RetainUntil))
			assert.True(t, at.Hold || !l.Hold)
			_, err = b.Hold(t.Context(), ref, p)
			require.NoError(t, err)
			assert.Equal(t, p.Hold == "on", b.letter(ref).Hold)
			for i, loc := range b.stored(ref) {
				assert.Equal(t, p.Hold == "on" || i > 0, loc.Hold)
				assert.False(t, loc.RetainUntil.Before(b.letter(ref).RetainUntil))
			}
		}
	}
}

// TestHoldOfLostRecord: what else is lost does not keep the payload from being held.
func TestHoldOfLostRecord(t *testing.T) {
	b := newBench(t)
	ref := b.resolved()
	b.memory.Remove(blob.Ref{Digest: b.letter(ref).RecordRef})
	_, err := b.Hold(t.Context(), ref, order("on", time.Now().AddDate(4, 0, 0)))
	require.NoError(t, err)
	loc, err := b.store.Stat(t.Context(), blob.Ref{Digest: ref})
	require.NoError(t, err)
	assert.True(t, loc.Hold)
	b.memory.Remove(blob.Ref{Digest: ref})
	_, err = b.Hold(t.Context(), ref, order("off", time.Time{}))
	assert.ErrorIs(t, err, blob.ErrNotFound)
}

// TestHoldsAtOnce: the log and the store agree whatever orders meet.
func TestHoldsAtOnce(t *testing.T) {
	b := newBench(t)
	ref := b.resolved()
	var all sync.WaitGroup
	for i := range 32 {
		hold := []string{"on", "off"}[i%2]
		all.Go(func() {
			_, err := b.Hold(t.Context(), ref, order(hold, time.Time{}))
			assert.NoError(t, err)
		})
	}
	all.Wait()
	assert.Equal(t, b.letter(ref).Hold, b.stored(ref)[0].Hold)
}

// TestHoldNotRecorded: an append that fails, or of which nobody knows, leaves the bytes protected at least as well
// as the log says, and the same order again records it once.
func TestHoldNotRecorded(t *testing.T) {
	until := time.Now().AddDate(5, 0, 0)
	for _, p := range []deadletter.Protection{order("on", time.Time{}), order("off", time.Time{}), order("on", until), order("off", until)} {
		for _, stored := range []bool{false, true} {
			trouble := atomic.Bool{}
			log := &chaintest.Log{Fail: func([][]byte) (bool, error) {
				if trouble.CompareAndSwap(true, false) {
					return stored, errors.New("no answer")
				}
				return false, nil
			}}
			b := newBenchOf(t, parts{log: log})
			ref := b.resolved()
			if p.Hold == "off" {
				_, err := b.Hold(t.Context(), ref, order("on", time.Time{}))
				require.NoError(t, err)
			}
			size := b.size()
			trouble.Store(true)
			_, err := b.Hold(t.Context(), ref, p)
			require.ErrorIs(t, err, deadletter.ErrUnavailable)
			l, at := b.letter(ref), b.stored(ref)[0]
			assert.True(t, at.Hold, "set before it is recorded, lifted after")
			assert.False(t, at.RetainUntil.Before(l.RetainUntil))
			var r deadletter.Receipt
			require.Eventually(t, func() bool {
				r, err = b.Hold(t.Context(), ref, p)
				return !errors.Is(err, deadletter.ErrUnavailable)
			}, patience, time.Millisecond)
			require.NoError(t, err)
			assert.Equal(t, stored, r.Known)
			assert.EqualValues(t, size, r.Seq)
			assert.Equal(t, size+1, b.size())
			assert.Equal(t, p.Hold == "on", b.letter(ref).Hold)
			assert.Equal(t, p.Hold == "on", b.stored(ref)[0].Hold)
		}
	}
}

// TestHeldLetterGrows: what is stored for a letter after the order is protected like the rest of it, and recorded so,
// also while the projection has not seen the order yet.
func TestHeldLetterGrows(t *testing.T) {
	until := time.Now().AddDate(6, 0, 0).UTC().Truncate(time.Second)
	for _, hold := range []string{"on", ""} {
		b := newBenchOf(t, parts{lag: 200 * time.Millisecond})
		ref := b.fail(failure("payload")).PayloadRef
		_, err := b.Hold(t.Context(), ref, order(hold, until))
		require.NoError(t, err)
		f := failure("payload")
		f.Message, f.Stage = "other words", chain.StageNormalize
		b.fail(f)
		require.Len(t, b.last().Blobs, 1)
		assert.Equal(t, until, b.last().Blobs[0].RetainUntil)
		b.protected(ref, hold == "on", until)
	}
}

// protected checks that a letter has more than a payload, all of it held or not, and kept until then.
func (b *bench) protected(ref chain.Digest, held bool, until time.Time) {
	b.t.Helper()
	all := b.stored(ref)
	require.Greater(b.t, len(all), 1)
	for _, loc := range all {
		assert.Equal(b.t, held, loc.Hold)
		assert.False(b.t, loc.RetainUntil.Before(until))
	}
}

// meeting is a store in which something else happens after bytes were put.
type meeting struct {
	*blobtest.Memory
	after func(chain.Digest)
}

func (m *meeting) Put(ctx context.Context, d chain.Digest, r io.ReaderAt, size int64, until time.Time) (blob.Location, bool, error) {
	defer m.after(d)
	return m.Memory.Put(ctx, d, r, size, until)
}

// TestHoldMeetsRecord: a record is protected whether the order comes between its bytes and its event, or its event
// between the order's look at the letter and the order's event.
func TestHoldMeetsRecord(t *testing.T) {
	until := time.Now().AddDate(6, 0, 0).UTC().Truncate(time.Second)
	leased := func(b *bench) deadletter.Job { return b.lease(b.ingest("payload").PayloadRef) }

	memory := &meeting{&blobtest.Memory{}, func(chain.Digest) {}}
	b := newBenchOf(t, parts{backend: memory})
	job, c := leased(b), completion("report", "record")
	memory.after = func(d chain.Digest) {
		if d == chain.Sum(c.Record) {
			_, err := b.Hold(t.Context(), job.Letter.Ref, order("on", until))
			require.NoError(t, err)
		}
	}
	_, err := b.Complete(t.Context(), job, c)
	require.NoError(t, err)
	assert.Equal(t, until, b.last().Blobs[0].RetainUntil)
	b.protected(job.Letter.Ref, true, until)

	b = newBench(t)
	job = leased(b)
	b.memory.Fail = func(op string, _ chain.Digest) error {
		if op == "hold" && b.last().Type == chain.TypeAttempt {
			_, err := b.Complete(t.Context(), job, c)
			require.NoError(t, err)
		}
		return nil
	}
	_, err = b.Hold(t.Context(), job.Letter.Ref, order("on", until))
	require.NoError(t, err)
	require.Equal(t, chain.TypeRetention, b.last().Type)
	require.Len(t, b.last().Blobs, 1)
	assert.Equal(t, until, b.last().Blobs[0].RetainUntil)
	b.protected(job.Letter.Ref, true, until)
}

// TestHeldLetterGrowsNot: bytes that cannot be protected like their letter do not become part of it.
func TestHeldLetterGrowsNot(t *testing.T) {
	b := newBench(t)
	ref := b.fail(failure("payload")).PayloadRef
	_, err := b.Hold(t.Context(), ref, order("on", time.Time{}))
	require.NoError(t, err)
	size, away := b.size(), true
	b.memory.Fail = func(op string, _ chain.Digest) error {
		if op == "hold" && away {
			return errors.New("the store broke off")
		}
		return nil
	}
	f := failure("payload")
	f.Message, f.Stage = "other words", chain.StageNormalize
	f.Body = strings.NewReader("payload")
	_, err = b.Fail(t.Context(), f)
	require.ErrorContains(t, err, "broke off")
	assert.Equal(t, size, b.size())
	away = false
	f.Body = strings.NewReader("payload")
	b.fail(f)
	assert.Equal(t, size+1, b.size())
	b.protected(ref, true, time.Now())
}

// TestSharedWords: lifting the hold of one letter leaves the bytes that it shares with another alone.
func TestSharedWords(t *testing.T) {
	b := newBench(t)
	var refs []chain.Digest
	for _, body := range []string{"payload A", "payload B"} {
		f := failure(body)
		f.Message = "the same words"
		refs = append(refs, b.fail(f).PayloadRef)
	}
	_, err := b.Hold(t.Context(), refs[0], order("on", time.Time{}))
	require.NoError(t, err)
	_, err = b.Hold(t.Context(), refs[1], order("off", time.Time{}))
	require.NoError(t, err)
	for _, loc := range b.stored(refs[0]) {
		assert.True(t, loc.Hold)
	}
	assert.False(t, b.stored(refs[1])[0].Hold)
}
