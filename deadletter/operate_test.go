package deadletter_test

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// requireRefused holds that the lifecycle refused, and that nothing was recorded.
func (b *bench) requireRefused(size int, err error) {
	b.t.Helper()
	var refused *chain.TransitionError
	require.ErrorAs(b.t, err, &refused)
	require.Equal(b.t, size, b.size())
}

func TestReplayAndResolveByDisposition(t *testing.T) {
	override := operator
	override.Override = true
	for _, d := range chain.Dispositions {
		waits := d == chain.Retrying || d == chain.DeadLetter
		for _, c := range []struct {
			name string
			do   func(*bench, chain.Digest) error
			ok   bool
			to   chain.Disposition
		}{
			{"replay", func(b *bench, ref chain.Digest) error { _, err := b.Replay(t.Context(), ref, operator); return err }, waits, chain.Replayed},
			{"override", func(b *bench, ref chain.Digest) error { _, err := b.Replay(t.Context(), ref, override); return err }, waits || d == chain.Poison, chain.Replayed},
			{"resolve", func(b *bench, ref chain.Digest) error { _, err := b.Resolve(t.Context(), ref, operator); return err }, waits || d == chain.Poison, chain.Resolved},
		} {
			b := newBench(t)
			ref := b.in(d, "payload")
			size := b.size()
			err := c.do(b, ref)
			if !c.ok {
				b.requireRefused(size, err)
				continue
			}
			require.NoError(t, err, "%s %s", d, c.name)
			l := b.letter(ref)
			require.Equal(t, c.to, l.Disposition)
			require.Equal(t, operator.Reason, b.last().Reason)
			require.Equal(t, "op", b.last().Actor)
			if c.to == chain.Replayed {
				require.Equal(t, uint64(1), l.Replays)
				require.Zero(t, l.Attempt)
			} else {
				require.Equal(t, chain.ByHand, l.Outcome)
			}
		}
	}
}

func TestReplayAtOnce(t *testing.T) {
	b := newBench(t)
	ref := b.in(chain.DeadLetter, "payload")
	var done atomic.Int64
	each(20, func(int) {
		if _, err := b.Replay(t.Context(), ref, operator); err == nil {
			done.Add(1)
		} else {
			var refused *chain.TransitionError
			assert.ErrorAs(t, err, &refused)
		}
	})
	require.Equal(t, int64(1), done.Load())
	require.Equal(t, uint64(1), b.letter(ref).Replays)
}

func TestReplaysAreBounded(t *testing.T) {
	for _, again := range []func(string) deadletter.Failure{failure, transient} {
		b := newBench(t)
		ref := b.in(chain.DeadLetter, "payload")
		for i := range 5 {
			r, err := b.Replay(t.Context(), ref, operator)
			require.NoError(t, err)
			require.Equal(t, chain.Replayed, r.Disposition, i)
			f := again("payload")
			f.Message = fmt.Sprint("time ", i)
			b.fail(f)
		}
		r, err := b.Replay(t.Context(), ref, operator)
		require.NoError(t, err)
		require.Equal(t, chain.Poison, r.Disposition)
		require.Contains(t, r.ErrorCode, ".replays_exhausted")
		e := b.last()
		require.Equal(t, operator.Reason, e.Reason)
		require.Equal(t, chain.Permanent, e.Envelope.ErrorClass)
		require.Equal(t, uint64(5), b.letter(ref).Replays)
		size := b.size()
		_, err = b.Replay(t.Context(), ref, operator)
		b.requireRefused(size, err)
		o := operator
		o.Override = true
		r, err = b.Replay(t.Context(), ref, o)
		require.NoError(t, err)
		require.Equal(t, chain.Replayed, r.Disposition)
		require.True(t, b.last().Override)
		require.Equal(t, uint64(6), b.letter(ref).Replays)
	}
}

// An override passes the bound without quarantine in between.
func TestReplayOverride(t *testing.T) {
	b := newBenchOf(t, parts{config: deadletter.Config{MaxReplays: 1}})
	ref := b.in(chain.Replayed, "payload")
	b.fail(failure("payload"))
	r, err := b.Replay(t.Context(), ref, deadletter.Order{Actor: "op", Reason: "fixed", Override: true})
	require.NoError(t, err)
	require.Equal(t, chain.Replayed, r.Disposition)
}

func TestBadOrders(t *testing.T) {
	b := newBench(t)
	ref := b.in(chain.DeadLetter, "payload")
	size := b.size()
	long := strings.Repeat("é", chain.MaxReason+1)
	for _, c := range []struct {
		field string
		o     deadletter.Order
		free  bool // a replay does not need it
	}{
		{"actor", deadletter.Order{Reason: "x"}, false},
		{"actor", deadletter.Order{Actor: "two words", Reason: "x"}, false},
		{"reason", deadletter.Order{Actor: "op"}, true},
		{"reason", deadletter.Order{Actor: "op", Reason: " \n"}, true},
		{"reason", deadletter.Order{Actor: "op", Reason: long}, false},
		{"reason", deadletter.Order{Actor: "op", Override: true}, false},
	} {
		_, err := b.Resolve(t.Context(), ref, c.o)
		requireField(t, c.field, err)
		_, _, err = b.OpenPayload(t.Context(), ref, c.o)
		requireField(t, c.field, err)
		if !c.free {
			_, err = b.Replay(t.Context(), ref, c.o)
			requireField(t, c.field, err)
		}
	}
	require.Equal(t, size, b.size())
	_, err := b.Replay(t.Context(), ref, deadletter.Order{Actor: "op"})
	require.NoError(t, err)
}

func TestLongestReason(t *testing.T) {
	b := newBench(t)
	ref := b.in(chain.DeadLetter, "payload")
	reason := strings.Repeat("é", chain.MaxReason)
	_, err := b.Resolve(t.Context(), ref, deadletter.Order{Actor: "op", Reason: reason})
	require.NoError(t, err)
	require.Equal(t, reason, b.last().Reason)
}

func TestUnknownLetter(t *testing.T) {
	b := newBench(t)
	ref := chain.Sum([]byte("nobody"))
	for _, do := range []func() error{
		func() error { _, err := b.Replay(t.Context(), ref, operator); return err },
		func() error { _, err := b.Replay(t.Context(), ref, deadletter.Order{Actor: "op"}); return err },
		func() error { _, err := b.Resolve(t.Context(), ref, operator); return err },
		func() error {
			_, err := b.Annotate(t.Context(), ref, deadletter.Annotation{Actor: "op", Tag: "x"})
			return err
		},
		func() error { _, _, err := b.OpenPayload(t.Context(), ref, operator); return err },
		func() error { _, err := b.Lease(t.Context(), ref, "w/1", 1); return err },
	} {
		require.ErrorIs(t, do(), deadletter.ErrNotFound)
	}
	require.Equal(t, 1, b.size())
}

func TestOpenPayload(t *testing.T) {
	b := newBench(t)
	body := strings.Repeat("payload with \x00 and \xff ", 50_000)
	ref := b.ingest(body).PayloadRef
	o := operator
	o.Reason = "asked by payload with"
	l, rc, err := b.OpenPayload(t.Context(), ref, o)
	require.NoError(t, err)
	require.Equal(t, chain.TypePayloadRead, b.last().Type, "recorded before a byte is out")
	require.Equal(t, "asked by*************", b.last().Reason)
	require.Equal(t, "application/json", l.ContentType)
	got, err := io.ReadAll(rc)
	require.NoError(t, err)
	require.Equal(t, body, string(got))
	rc.Close()
	b.memory.Remove(blob.Ref{Digest: ref})
	_, _, err = b.OpenPayload(t.Context(), ref, operator)
	require.ErrorIs(t, err, deadletter.ErrPayloadMissing)
}

func TestAnnotate(t *testing.T) {
	b := newBench(t)
	for _, d := range chain.Dispositions {
		ref := b.in(d, string(d))
		for _, a := range []deadletter.Annotation{
			{Owner: "ann"}, {Tag: "vendor-a"}, {Tag: "vendor-b"}, {Tag: "vendor-a", Untag: true}, {Note: "called the shop"},
		} {
			a.Actor = "op"
			_, err := b.Annotate(t.Context(), ref, a)
			require.NoError(t, err)
		}
		l := b.letter(ref)
		require.Equal(t, "ann", l.Owner)
		require.Equal(t, []string{"vendor-b"}, l.Tags)
		require.Equal(t, uint64(1), l.Notes)
		require.Equal(t, d, l.Disposition)
	}
	ref := b.ingest("payload").PayloadRef
	size := b.size()
	for name, a := range map[string]deadletter.Annotation{
		"actor":      {Owner: "ann"},
		"annotation": {Actor: "op", Note: " "},
		"owner":      {Actor: "op", Owner: "Ann Doe"},
		"tag":        {Actor: "op", Tag: strings.Repeat("x", chain.MaxToken+1)},
		"note":       {Actor: "op", Note: strings.Repeat("é", chain.MaxReason+1)},
	} {
		_, err := b.Annotate(t.Context(), ref, a)
		requireField(t, name, err)
	}
	require.Equal(t, size, b.size())
	for i := range chain.MaxTags {
		_, err := b.Annotate(t.Context(), ref, deadletter.Annotation{Actor: "op", Tag: fmt.Sprint("t", i)})
		require.NoError(t, err)
	}
	size = b.size()
	_, err := b.Annotate(t.Context(), ref, deadletter.Annotation{Actor: "op", Tag: "more"})
	b.requireRefused(size, err)
}
