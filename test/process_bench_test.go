package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/dvir"
	"github.com/holdfast-dvir/holdfast/jetstream"
	"github.com/holdfast-dvir/holdfast/process"
	"github.com/holdfast-dvir/holdfast/projection"
)

// BenchmarkProcessing takes letters that wait from lease to record: two durable events, the payload read and hashed, the
// record stored, the report judged in a child process. The ratio is to judging the same reports in as many children and
// doing nothing else, in the same run. With payloads in memory, what is left is the queue's own work and its log.
func BenchmarkProcessing(b *testing.B) {
	for _, workers := range []int{4, 16, 32} {
		b.Run(fmt.Sprint("directory/", workers, "-workers"), func(b *testing.B) {
			benchmarkProcessing(b, workers, dirStore(b, filepath.Join(b.TempDir(), "blobs")))
		})
		b.Run(fmt.Sprint("memory/", workers, "-workers"), func(b *testing.B) {
			store, err := blob.NewStore(&blobtest.Memory{}, blob.Config{})
			require.NoError(b, err)
			benchmarkProcessing(b, workers, store)
		})
	}
}

func benchmarkProcessing(b *testing.B, workers int, store *blob.Store) {
	path, err := binary()
	require.NoError(b, err)
	children := process.NewChildren([]string{path, "child"}, dvir.Config{}, process.Limits{})
	defer children.Close()
	dir := b.TempDir()
	log, err := jetstream.Open(b.Context(), jetstream.Config{Dir: filepath.Join(dir, "log")})
	require.NoError(b, err)
	state, err := projection.Open(filepath.Join(dir, "state.db"))
	require.NoError(b, err)
	queue, err := deadletter.Open(b.Context(), deadletter.Config{Log: log, State: state, Store: store, Origin: "bench/log"})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { expectCancelled(b, queue.Run(ctx)) })
	running.Go(func() { expectCancelled(b, state.Follow(ctx, log)) })
	defer func() {
		cancel()
		running.Wait()
		require.NoError(b, errors.Join(state.Close(), log.Close()))
	}()

	next := make(chan int, b.N)
	for i := range b.N {
		next <- i
	}
	spread(b, 64, b.N, func(ctx context.Context) error {
		_, err := queue.Ingest(ctx, deadletter.Submission{Body: bytes.NewReader(report(fmt.Sprint(<-next))), Channel: chain.MobileExport})
		return err
	})
	judge := func(ctx context.Context) error {
		_, _, err := children.Judge(ctx, dvir.Input{Data: report("alone"), Channel: "mobile_export", ReceivedAt: time.Now()}, noHistory{})
		return err
	}
	spread(b, workers, workers*100, judge) // warm
	alone := spread(b, workers, b.N, judge)

	b.ResetTimer()
	began := time.Now()
	pool := process.NewPool(process.Config{Queue: queue, State: state, Store: store, Node: "bench", Targets: []process.Target{{Name: "builtin",
		Workers: workers, Processor: &process.Builtin{Children: children, Queue: queue, Records: state, Store: store}}}})
	running.Go(func() { require.NoError(b, pool.Run(ctx)) })
	var stats projection.Stats
	for stats.Letters[chain.Resolved] < uint64(b.N) {
		changed := state.Changed()
		if stats, err = state.Stats(); err != nil {
			b.Fatal(err)
		}
		if stats.Letters[chain.Resolved] < uint64(b.N) {
			<-changed
		}
	}
	whole := time.Since(began)
	b.ReportMetric(float64(b.N)/whole.Seconds(), "letters/s")
	b.ReportMetric(float64(b.N)/alone.Seconds(), "judged/s")
	b.ReportMetric(alone.Seconds()/whole.Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

// noHistory knows no vehicle.
type noHistory struct{}

func (noHistory) LastReading(string) (dvir.Reading, bool) { return dvir.Reading{}, false }
