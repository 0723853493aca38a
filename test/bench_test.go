package test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/jetstream"
	"github.com/holdfast-dvir/holdfast/projection"
)

// payloadSize is that of an ordinary report.
const payloadSize = 2 << 10

// BenchmarkIngest takes payloads into custody: payload stored, event durable, receipt; with the projection following.
// The ratio is to bare puts of the blob backend by as many writers, in the same run and on the same disk, measured in
// turns. With few writers it is one latency after the other that counts, with many the disk.
func BenchmarkIngest(b *testing.B) {
	for _, writers := range []int{16, 64} {
		b.Run(fmt.Sprint(writers, "-writers"), func(b *testing.B) {
			bare := dirStore(b, b.TempDir())
			benchmarkIngest(b, writers, newIngestRig(b, dirStore(b, b.TempDir())), func(ctx context.Context, data []byte) error {
				_, _, err := bare.PutBytes(ctx, data, time.Now())
				return err
			})
		})
	}
}

// BenchmarkIngestOnMinIO is BenchmarkIngest with payloads in a bucket. The ratio is to bare conditional locked puts,
// made by the client library alone.
func BenchmarkIngestOnMinIO(b *testing.B) {
	for _, writers := range []int{16, 64} {
		b.Run(fmt.Sprint(writers, "-writers"), func(b *testing.B) {
			server := blobtest.MinIO(b)
			bucket, err := blob.OpenBucket(b.Context(), server.Config(server.NewBucket(b)))
			require.NoError(b, err)
			store, err := blob.NewStore(bucket, blob.Config{})
			require.NoError(b, err)
			benchmarkIngest(b, writers, newIngestRig(b, store), server.BarePut(b, server.NewBucket(b)))
		})
	}
}

func benchmarkIngest(b *testing.B, writers int, r *ingestRig, put func(context.Context, []byte) error) {
	const turns = 4
	n := max(b.N/turns, 64)
	var bare, whole time.Duration
	b.ResetTimer()
	for range turns {
		bare += spread(b, writers, n, func(ctx context.Context) error { return put(ctx, randomPayload()) })
		whole += spread(b, writers, n, func(ctx context.Context) error {
			_, err := r.queue.Ingest(ctx, deadletter.Submission{Body: bytes.NewReader(randomPayload()), Channel: chain.MobileExport})
			return err
		})
	}
	b.ReportMetric(float64(turns*n)/whole.Seconds(), "ingests/s")
	b.ReportMetric(float64(turns*n)/bare.Seconds(), "puts/s")
	b.ReportMetric(bare.Seconds()/whole.Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

// spread runs do n times from all writers and returns the time it took.
func spread(b *testing.B, writers, n int, do func(context.Context) error) time.Duration {
	var next atomic.Int64
	var running sync.WaitGroup
	start := time.Now()
	for range writers {
		running.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := do(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	return time.Since(start)
}

func randomPayload() []byte {
	p := make([]byte, payloadSize)
	_, _ = rand.Read(p)
	return p
}

// ingestRig is a queue on real parts.
type ingestRig struct {
	queue *deadletter.Queue
}

func newIngestRig(b *testing.B, store *blob.Store) *ingestRig {
	dir := b.TempDir()
	log, err := jetstream.Open(b.Context(), jetstream.Config{Dir: filepath.Join(dir, "log")})
	require.NoError(b, err)
	state, err := projection.Open(filepath.Join(dir, "state.db"))
	require.NoError(b, err)
	r := &ingestRig{}
	r.queue, err = deadletter.Open(b.Context(), deadletter.Config{Log: log, State: state, Store: store, Origin: "bench/log"})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { expectCancelled(b, r.queue.Run(ctx)) })
	running.Go(func() { expectCancelled(b, state.Follow(ctx, log)) })
	b.Cleanup(func() {
		cancel()
		running.Wait()
		require.NoError(b, errors.Join(state.Close(), log.Close()))
	})
	return r
}

func expectCancelled(b *testing.B, err error) {
	if !errors.Is(err, context.Canceled) {
		b.Error(err)
	}
}

func dirStore(b *testing.B, path string) *blob.Store {
	dir, err := blob.OpenDir(path, blob.DirConfig{NoImmutable: true})
	require.NoError(b, err)
	store, err := blob.NewStore(dir, blob.Config{})
	require.NoError(b, err)
	return store
}
