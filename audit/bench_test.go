package audit_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/chain"
)

// benchLog has events of about 500 bytes in blocks of 100: letters that are received, leased and resolved.
func benchLog(b *testing.B, n int) (blocks []chain.Block, size int) {
	b.Helper()
	var head chain.Head
	at := time.Date(2026, 3, 2, 6, 30, 0, 0, time.UTC)
	seal := func(e chain.Event) chain.Record {
		e.At, e.Actor = at.Add(time.Duration(head.Size)*time.Millisecond), "system:worker"
		r, err := head.Seal(e)
		require.NoError(b, err)
		if head.Size%100 == 0 {
			blocks = append(blocks, chain.Block{})
		}
		last := &blocks[len(blocks)-1]
		last.Lines, head, size = append(last.Lines, r.Raw), r.Head(), size+len(r.Raw)
		return r
	}
	last := seal(chain.Event{Type: chain.TypeGenesis, Origin: "holdfast.example/bench", LogID: "0102030405060708090a0b0c0d0e0f10"})
	for head.Size+3 <= uint64(n) {
		r := seal(chain.Event{
			Type: chain.TypeReceived, PayloadRef: last.Leaf, BlobVersion: "3/L4kqtJlcpXroDTDmJ",
			RetainUntil: at.AddDate(1, 6, 0), Size: 2048, Channel: chain.TelematicsAPI, Source: "fleet:17",
			ContentType: "application/json",
		})
		l, err := chain.Letter{}.Apply(r)
		require.NoError(b, err)
		r = seal(l.Next(chain.Event{Type: chain.TypeAttempt, Attempt: 1, Worker: "worker:1", LeaseUntil: at.Add(time.Hour)}))
		l, err = l.Apply(r)
		require.NoError(b, err)
		last = seal(l.Next(chain.Event{Type: chain.TypeResolved, Lease: r.Seq, Outcome: chain.Admit, Rules: "dvir/1",
			RecordRef: chain.Sum([]byte("record"))}))
	}
	return blocks, size
}

// cpu is the processor time that this process has used, all threads together.
func cpu() time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		panic(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// BenchmarkVerify verifies a log in memory. ratio is the processor time beside that of hashing every line and nothing
// else, in the same run; B/letter is what stays in memory for each letter.
func BenchmarkVerify(b *testing.B) {
	const events = 60_000
	blocks, size := benchLog(b, events)
	for _, mode := range []struct {
		name string
		fast bool
	}{{"fast", true}, {"strict", false}} {
		b.Run(mode.name, func(b *testing.B) {
			b.ReportAllocs()
			var spent, base, wall time.Duration
			var n uint64
			for b.Loop() {
				start, began := cpu(), time.Now()
				r, err := audit.Verify(b.Context(), audit.Options{Log: reader{blocks: blocks}, Fast: mode.fast})
				if err != nil || !r.OK() {
					b.Fatal(err, r.Findings)
				}
				mid := cpu()
				wall += time.Since(began)
				for _, block := range blocks {
					for _, line := range block.Lines {
						chain.LeafHash(line)
					}
				}
				spent, base, n = spent+mid-start, base+cpu()-mid, n+r.Events
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "cpu-ns/event")
			b.ReportMetric(float64(wall.Nanoseconds())/float64(n), "wall-ns/event")
			b.ReportMetric(float64(spent)/float64(base), "ratio")
			b.ReportMetric(float64(size)/float64(n)*float64(b.N), "B/event")
		})
	}
	b.Run("memory", func(b *testing.B) {
		for b.Loop() {
			b.ReportMetric(perLetter(b, blocks), "B/letter")
		}
	})
}

// perLetter is the growth of the heap until the end of the log.
func perLetter(b *testing.B, blocks []chain.Block) float64 {
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	var after uint64
	last := func(yield func(chain.Block, error) bool) {
		for _, block := range blocks {
			if !yield(block, nil) {
				return
			}
		}
		after = live()
	}
	r, err := audit.Verify(b.Context(), audit.Options{Log: seq(last)})
	require.NoError(b, err)
	return float64(after-before) / float64(r.Letters[chain.Resolved])
}
