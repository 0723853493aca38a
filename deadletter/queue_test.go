package deadletter_test

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/projection"
)

// bench is a running queue with everything it stands on.
type bench struct {
	t     *testing.T
	log   *chaintest.Log
	store *blob.Store
	state *projection.DB
	*deadletter.Queue
}

func newBench(t *testing.T) *bench {
	state, err := projection.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	b := &bench{t: t, log: &chaintest.Log{}, store: blobtest.Store(t, &blobtest.Memory{}), state: state}
	b.Queue, err = deadletter.Open(t.Context(), deadletter.Config{Log: b.log, Store: b.store, State: state, Origin: "test/log"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = b.Run(ctx); done <- struct{}{} }()
	go func() { _ = state.Follow(ctx, b.log); done <- struct{}{} }()
	t.Cleanup(func() {
		cancel()
		<-done
		<-done
		require.NoError(t, state.CatchUp(context.Background(), b.log))
		require.Empty(t, state.Check(context.Background()))
		require.NoError(t, state.Close())
	})
	return b
}

func TestIngestTwice(t *testing.T) {
	b := newBench(t)
	s := deadletter.Submission{Channel: chain.MobileExport, Source: "app-1", ContentType: "application/json"}
	s.Body = bytes.NewReader([]byte("hello"))
	first, err := b.Ingest(t.Context(), s)
	require.NoError(t, err)
	require.False(t, first.Known)
	require.Equal(t, chain.Received, first.Disposition)
	s.Body = bytes.NewReader([]byte("hello"))
	second, err := b.Ingest(t.Context(), s)
	require.NoError(t, err)
	require.True(t, second.Known)
	require.Equal(t, first.LeafHash, second.LeafHash)
	require.Len(t, b.log.Lines(), 2)
}

func TestFailLeaseCompleteReplay(t *testing.T) {
	b := newBench(t)
	f := deadletter.Failure{Stage: chain.StageDispatch, Message: "the server said 503 to John Q. Public"}
	f.Body, f.Signal.HTTPStatus = bytes.NewReader([]byte(`{"name":"John Q. Public"}`)), 422
	r, err := b.Fail(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, chain.DeadLetter, r.Disposition)
	require.Equal(t, "dispatch.http_422", r.ErrorCode)
	r, err = b.Replay(t.Context(), r.PayloadRef, deadletter.Order{Actor: "op", Reason: "fixed"})
	require.NoError(t, err)
	require.Equal(t, chain.Replayed, r.Disposition)
	job, err := b.Lease(t.Context(), r.PayloadRef, "w/1", 60e9)
	require.NoError(t, err)
	done := deadletter.Completion{Outcome: chain.Admit, Rules: "x/1", Record: []byte("{}"), Version: chain.Sum([]byte("v")), Content: chain.Sum([]byte("c")), Key: chain.Sum([]byte("k"))}
	r, err = b.Complete(t.Context(), job, done)
	require.NoError(t, err)
	require.Equal(t, chain.Resolved, r.Disposition)
	_, err = b.Complete(t.Context(), job, done)
	require.ErrorIs(t, err, deadletter.ErrStaleLease)
	for _, line := range b.log.Lines() {
		require.NotContains(t, string(line), "Public")
		t.Log(string(line))
	}
}
