package jetstream

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
)

type send = func(context.Context, *nats.Msg) (*nats.Msg, error)

// step stands between one request and its reply.
type step func(ctx context.Context, msg *nats.Msg, real send) (*nats.Msg, error)

var errWire = errors.New("the wire was cut")

func dropRequest(context.Context, *nats.Msg, send) (*nats.Msg, error) { return nil, errWire }

func dropReply(ctx context.Context, msg *nats.Msg, real send) (*nats.Msg, error) {
	if _, err := real(ctx, msg); err != nil {
		return nil, err
	}
	return nil, errWire
}

// inject plays the steps, one for each publish; later ones pass. It returns the count of publishes.
func inject(l *Log, steps ...step) *atomic.Int32 {
	real, calls := l.request, new(atomic.Int32)
	l.request = func(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
		if n := int(calls.Add(1)); n <= len(steps) {
			return steps[n-1](ctx, msg, real)
		}
		return real(ctx, msg)
	}
	return calls
}

// TestUnknownOutcome: whatever is lost on the way, the block is there once, or certainly not.
func TestUnknownOutcome(t *testing.T) {
	dir := t.TempDir()
	rival := func(l *Log) step { // another writer comes first
		return func(ctx context.Context, msg *nats.Msg, real send) (*nats.Msg, error) {
			other, err := l.block(1, lines("rival"))
			require.NoError(t, err)
			_, err = real(ctx, other)
			require.NoError(t, err)
			return nil, errWire
		}
	}
	var held *nats.Msg
	hold := func(_ context.Context, msg *nats.Msg, _ send) (*nats.Msg, error) { held = msg; return nil, errWire }
	overtaken := func(ctx context.Context, msg *nats.Msg, real send) (*nats.Msg, error) { // the first attempt lands late
		if _, err := real(ctx, held); err != nil {
			return nil, err
		}
		return real(ctx, msg)
	}
	nonsense := func(ctx context.Context, msg *nats.Msg, real send) (*nats.Msg, error) {
		reply, err := real(ctx, msg)
		reply.Data = []byte(`{"stream":"HOLDFAST_LOG","seq":7}`)
		return reply, err
	}
	garbage := func(ctx context.Context, msg *nats.Msg, real send) (*nats.Msg, error) {
		return &nats.Msg{Data: []byte("-ERR")}, nil
	}
	for name, c := range map[string]struct {
		steps   func(*Log) []step
		want    string
		err     error
		publish int32
	}{
		"reply lost":                       {func(*Log) []step { return []step{dropReply} }, "ours", nil, 1},
		"request lost":                     {func(*Log) []step { return []step{dropRequest} }, "ours", nil, 2},
		"requests lost, then a reply":      {func(*Log) []step { return []step{dropRequest, dropRequest, dropReply} }, "ours", nil, 3},
		"request lost, another came first": {func(l *Log) []step { return []step{rival(l)} }, "rival", chain.ErrConflict, 1},
		"request late":                     {func(*Log) []step { return []step{hold, overtaken} }, "ours", nil, 2},
		"acknowledged as something else":   {func(*Log) []step { return []step{nonsense} }, "ours", nil, 1},
		"answer not understood":            {func(*Log) []step { return []step{garbage} }, "ours", nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, Config{Dir: dir, Stream: "S"})
			defer func() {
				require.NoError(t, l.js.DeleteStream(context.Background(), "S"))
				require.NoError(t, l.Close())
			}()
			fill(t, l, 1)
			calls := inject(l, c.steps(l)...)
			at, err := l.Append(t.Context(), 1, lines("ours"))
			require.ErrorIs(t, err, c.err)
			if c.err == nil {
				require.EqualValues(t, 2, at)
			}
			require.Equal(t, []string{"block 1", c.want}, content(t, l))
			require.Equal(t, c.publish, calls.Load())
		})
	}
}

func TestUnknownToTheEnd(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir()})
	ctx, cancel := context.WithCancel(t.Context())
	var first *nats.Msg
	inject(l, func(ctx context.Context, msg *nats.Msg, real send) (*nats.Msg, error) {
		first = msg
		cancel()
		return nil, errWire
	})
	_, err := l.Append(ctx, 0, lines("ours"))
	require.ErrorIs(t, err, chain.ErrUnknown)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, chain.ErrConflict)
	require.Empty(t, content(t, l))

	_, err = l.Append(t.Context(), 0, lines("the next one"))
	require.NoError(t, err)
	err = l.publish(t.Context(), first, 1)
	require.True(t, isWrongSequence(err), "once another block stands there, the old one can never land")
	require.Equal(t, []string{"the next one"}, content(t, l))
}

func TestHeaders(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir()})
	_, err := l.Append(t.Context(), 0, genesis(t, "00112233445566778899aabbccddeeff"))
	require.NoError(t, err)
	_, err = l.Append(t.Context(), 1, lines("a", "b"))
	require.NoError(t, err)
	first, err := l.get(t.Context(), 1)
	require.NoError(t, err)
	second, err := l.get(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, "0", first.Header.Get(HeaderFirstSeq))
	require.Equal(t, "1", first.Header.Get(HeaderCount))
	require.Equal(t, "2", second.Header.Get(HeaderCount))
	require.Equal(t, "00112233445566778899aabbccddeeff", second.Header.Get(HeaderLog))
	require.Len(t, second.Header.Get(HeaderBlock), 32)
	require.NotEqual(t, first.Header.Get(HeaderBlock), second.Header.Get(HeaderBlock))
}

// TestTwoWriters: two logs on one stream; who loses is told, reads, and goes on.
func TestTwoWriters(t *testing.T) {
	o := startOutside(t, "always")
	cfg := Config{URL: o.app, AllowUnsynced: true}
	a, b := open(t, cfg), open(t, cfg)
	_, err := a.Append(t.Context(), 0, lines("a"))
	require.NoError(t, err)
	_, err = b.Append(t.Context(), 0, lines("b"))
	require.ErrorIs(t, err, chain.ErrConflict)
	at, err := b.Append(t.Context(), end(t, b), lines("b"))
	require.NoError(t, err)
	require.EqualValues(t, 2, at)
	require.Equal(t, []string{"a", "b"}, content(t, a))
}

// TestOutage: what was given up during an outage is not stored when the server is back, and followers go on.
func TestOutage(t *testing.T) {
	o := startOutside(t, "always")
	l := open(t, Config{URL: o.app, AllowUnsynced: true})
	fill(t, l, 1)
	seen, ended := make(chan string), make(chan error, 1)
	follow, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for b, err := range l.Follow(follow, 0) {
			if err != nil {
				ended <- err
				return
			}
			seen <- string(b.Lines[0])
		}
	}()
	require.Equal(t, "block 1", <-seen)

	port := o.Addr().(*net.TCPAddr).Port
	stop(o.Server)
	require.Eventually(t, func() bool { return !l.nc.IsConnected() }, 5*time.Second, time.Millisecond)
	require.Error(t, l.Healthy(t.Context()))
	ctx, giveUp := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer giveUp()
	_, err := l.Append(ctx, 1, lines("ghost"))
	require.ErrorIs(t, err, chain.ErrUnknown)

	o.start(t, port)
	require.Eventually(t, l.nc.IsConnected, 10*time.Second, time.Millisecond)
	require.NoError(t, l.nc.FlushTimeout(5*time.Second))
	require.EqualValues(t, 1, end(t, l))
	_, err = l.Append(t.Context(), 1, lines("block 2"))
	require.NoError(t, err)
	require.Equal(t, "block 2", <-seen)
	require.Equal(t, []string{"block 1", "block 2"}, content(t, l))
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestCloseEndsFollow(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir()})
	fill(t, l, 1)
	seen, ended := make(chan bool, 1), make(chan error, 1)
	go func() {
		for _, err := range l.Follow(t.Context(), 0) {
			if err != nil {
				ended <- err
				return
			}
			seen <- true
		}
	}()
	<-seen
	require.NoError(t, l.Close())
	require.Error(t, <-ended)
}
