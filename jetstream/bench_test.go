package jetstream

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
)

var event = bytes.Repeat([]byte("e"), 500)

// bare is a stream with the log's settings on the log's server, for doing without this package.
func bare(b *testing.B, l *Log, name string) jetstream.JetStream {
	js, err := jetstream.New(l.nc, jetstream.WithPublishAsyncMaxPending(1024))
	require.NoError(b, err)
	c := wanted(name, 1)
	c.Subjects = []string{name}
	_, err = js.CreateStream(b.Context(), c)
	require.NoError(b, err)
	return js
}

// bareBlock is a message of n events with compare-and-swap.
func bareBlock(subject string, n, last int) *nats.Msg {
	msg := nats.NewMsg(subject)
	msg.Data = bytes.Join(slices.Repeat([][]byte{event}, n), []byte("\n"))
	msg.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.Itoa(last))
	return msg
}

// gather funnels writers into Append: one block in flight, and whatever waits meanwhile is the next block.
// It returns how many events were acknowledged in d.
func gather(b *testing.B, l *Log, at *chain.Position, writers int, d time.Duration) (events int) {
	type wish struct {
		line []byte
		done chan struct{}
	}
	wishes := make(chan wish, writers)
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			w := wish{event, make(chan struct{}, 1)}
			for ctx.Err() == nil {
				wishes <- w
				<-w.done
			}
		})
	}
	go func() { wg.Wait(); close(wishes) }()
	for first := range wishes {
		block := []wish{first}
		for len(wishes) > 0 && len(block) < chain.MaxBlockEvents {
			if w, ok := <-wishes; ok {
				block = append(block, w)
			}
		}
		var lines [][]byte
		for _, w := range block {
			lines = append(lines, w.line)
		}
		var err error
		*at, err = l.Append(b.Context(), *at, lines)
		require.NoError(b, err)
		events += len(lines)
		for _, w := range block {
			w.done <- struct{}{}
		}
	}
	return events
}

// BenchmarkAppend compares 256 writers of 500-byte events with two things one could do without this package on
// the same server: publishing asynchronously, and bare blocks of 100.
func BenchmarkAppend(b *testing.B) {
	l := open(b, Config{Dir: b.TempDir()})
	js := bare(b, l, "ASYNC")
	bare(b, l, "BLOCKS")
	const round = 500 * time.Millisecond
	var rate [3]float64 // events per second, summed over the rounds
	measure := func(which int, work func() int) {
		start := time.Now()
		events := work()
		rate[which] += float64(events) / time.Since(start).Seconds()
	}
	var at chain.Position
	last, rounds := 0, 0
	for b.Loop() {
		rounds++
		measure(0, func() int { return gather(b, l, &at, 256, round) })
		measure(1, func() (events int) {
			for start := time.Now(); time.Since(start) < round; events++ {
				_, err := js.PublishAsync("ASYNC", event, jetstream.WithStallWait(attemptTimeout))
				require.NoError(b, err)
			}
			<-js.PublishAsyncComplete()
			return events
		})
		measure(2, func() (events int) {
			for start := time.Now(); time.Since(start) < round; events += 100 {
				_, err := l.nc.RequestMsg(bareBlock("BLOCKS", 100, last), attemptTimeout)
				require.NoError(b, err)
				last++
			}
			return events
		})
	}
	b.ReportMetric(rate[0]/float64(rounds), "events/s")
	b.ReportMetric(rate[0]/rate[1], "ratio-async")
	b.ReportMetric(rate[0]/rate[2], "ratio-blocks100")
}

// BenchmarkAppendLatency compares one writer's append with a bare synced publish, taken in turns.
func BenchmarkAppendLatency(b *testing.B) {
	l := open(b, Config{Dir: b.TempDir()})
	bare(b, l, "BARE")
	var ours, theirs []time.Duration
	var at chain.Position
	last := 0
	for b.Loop() {
		start := time.Now()
		var err error
		at, err = l.Append(b.Context(), at, [][]byte{event})
		require.NoError(b, err)
		ours = append(ours, time.Since(start))
		start = time.Now()
		_, err = l.nc.RequestMsg(bareBlock("BARE", 1, last), attemptTimeout)
		require.NoError(b, err)
		last++
		theirs = append(theirs, time.Since(start))
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	for name, q := range map[string]int{"p50": 50, "p99": 99} {
		i := len(ours) * q / 100
		b.ReportMetric(float64(ours[i].Microseconds()), name+"-us")
		b.ReportMetric(float64(ours[i])/float64(theirs[i]), name+"-ratio")
	}
}

// BenchmarkRead compares reading with a bare consumer that looks at nothing.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run("blocks of "+strconv.Itoa(size), func(b *testing.B) { benchmarkRead(b, 2000, size) })
	}
}

func benchmarkRead(b *testing.B, blocks, size int) {
	l := open(b, Config{Dir: b.TempDir()})
	for i := range blocks {
		_, err := l.Append(b.Context(), chain.Position(i), slices.Repeat([][]byte{event}, size))
		require.NoError(b, err)
	}
	var ours, theirs time.Duration
	rounds := 0
	for b.Loop() {
		rounds++
		start := time.Now()
		events := 0
		for block, err := range l.Read(b.Context(), 0) {
			require.NoError(b, err)
			events += len(block.Lines)
		}
		require.Equal(b, size*blocks, events)
		ours += time.Since(start)

		start = time.Now()
		consumer, err := l.js.OrderedConsumer(b.Context(), l.name, jetstream.OrderedConsumerConfig{})
		require.NoError(b, err)
		messages, err := consumer.Messages()
		require.NoError(b, err)
		for range blocks {
			_, err := messages.Next()
			require.NoError(b, err)
		}
		messages.Stop()
		theirs += time.Since(start)
	}
	b.ReportMetric(float64(size*blocks*rounds)/ours.Seconds(), "events/s")
	b.ReportMetric(float64(theirs)/float64(ours), "ratio")
}
