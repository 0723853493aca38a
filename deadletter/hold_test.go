package deadletter_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
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
		size := b.size()
		again, err := b.Hold(t.Context(), ref, order(hold, time.Time{}))
		require.NoError(t, err)
		assert.True(t, again.Known)
		assert.Equal(t, size, b.size())
	}
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

// TestHeldLetterGrows: what is stored for a letter after the order is protected like the rest of it.
func TestHeldLetterGrows(t *testing.T) {
	b := newBench(t)
	ref := b.fail(failure("payload")).PayloadRef
	until := time.Now().AddDate(6, 0, 0).UTC().Truncate(time.Second)
	_, err := b.Hold(t.Context(), ref, order("on", until))
	require.NoError(t, err)
	require.NoError(t, b.state.Wait(t.Context(), b.letter(ref).LastSeq))
	f := failure("payload")
	f.Message, f.Stage = "other words", chain.StageNormalize
	b.fail(f)
	all := b.stored(ref)
	require.Greater(t, len(all), 1)
	for _, loc := range all {
		assert.True(t, loc.Hold)
		assert.False(t, loc.RetainUntil.Before(until))
	}
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
