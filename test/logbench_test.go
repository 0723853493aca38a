package test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/jetstream"
	"github.com/holdfast-dvir/holdfast/projection"
)

var events = flag.Int("events", 100_000, "how many events BenchmarkLog puts into its log")

// BenchmarkLog measures, on one real stream: just reading it (the baseline), verifying it, folding it into a new
// projection, and opening log and projection again. Run it with -benchtime 1x; -args -events 1000000 for the size
// that docs/performance.md quotes.
func BenchmarkLog(b *testing.B) {
	b.Run("blocks-of-100", func(b *testing.B) { benchmarkLog(b, *events, 100) })
	b.Run("one-by-one", func(b *testing.B) { benchmarkLog(b, *events/10, 1) })
}

func benchmarkLog(b *testing.B, events, block int) {
	dir := b.TempDir()
	fillLog(b, dir, events, block)
	log := openLog(b, dir)
	for b.Loop() {
		read := timed(b, func() error { return drain(b, log) })
		fast := timed(b, func() error { return verified(b, audit.Options{Log: log, Fast: true}) })
		strict := timed(b, func() error { return verified(b, audit.Options{Log: log}) })
		state := filepath.Join(b.TempDir(), "state.db")
		rebuild := timed(b, func() error {
			_, err := projection.Rebuild(b.Context(), log, state)
			return err
		})
		require.NoError(b, log.Close())
		reopen := timed(b, func() error {
			log = openLog(b, dir)
			db, err := projection.Open(state)
			require.NoError(b, err)
			return errors.Join(db.CatchUp(b.Context(), log), db.Close())
		})
		n := float64(events)
		b.ReportMetric(n/read.Seconds(), "read-events/s")
		b.ReportMetric(read.Seconds()/fast.Seconds(), "fast-verify-ratio")
		b.ReportMetric(read.Seconds()/strict.Seconds(), "strict-verify-ratio")
		b.ReportMetric(n/strict.Seconds(), "strict-events/s")
		b.ReportMetric(n/rebuild.Seconds(), "rebuild-events/s")
		b.ReportMetric(float64(reopen.Milliseconds()), "reopen-ms")
	}
	b.ReportMetric(0, "ns/op")
	require.NoError(b, log.Close())
}

func timed(b *testing.B, do func() error) time.Duration {
	start := time.Now()
	require.NoError(b, do())
	return time.Since(start)
}

func openLog(b *testing.B, dir string) *jetstream.Log {
	log, err := jetstream.Open(b.Context(), jetstream.Config{Dir: dir})
	require.NoError(b, err)
	return log
}

func drain(b *testing.B, log chain.Reader) error {
	for _, err := range log.Read(b.Context(), 0) {
		if err != nil {
			return err
		}
	}
	return nil
}

func verified(b *testing.B, o audit.Options) error {
	report, err := audit.Verify(b.Context(), o)
	require.True(b, report.OK(), "%v", report.Findings)
	return err
}

// fillLog appends n events of ordinary letters: received, attempt, resolved, some to a block.
func fillLog(b *testing.B, dir string, n, block int) {
	log := openLog(b, dir)
	var tip chain.Tip
	var lines [][]byte
	put := func(l chain.Letter, e chain.Event) chain.Letter {
		r, err := tip.Seal(l.Next(e))
		require.NoError(b, err)
		tip.Head = r.Head()
		if lines = append(lines, r.Raw); len(lines) == block || int(tip.Size) == n {
			tip.Position, err = log.Append(b.Context(), tip.Position, lines)
			require.NoError(b, err)
			lines = nil
		}
		if e.PayloadRef.IsZero() {
			return l
		}
		l, err = l.Apply(r)
		require.NoError(b, err)
		return l
	}
	at := time.Date(2026, 3, 11, 12, 0, 0, 0, time.UTC)
	put(chain.Letter{}, chain.Event{Type: chain.TypeGenesis, At: at, Actor: "bench", Origin: "bench/log", LogID: "bench"})
	for i := uint64(0); int(tip.Size) < n; i++ {
		at = at.Add(time.Millisecond)
		var l chain.Letter
		for _, e := range history(i, at) {
			if int(tip.Size) < n {
				e.Lease = map[bool]uint64{true: tip.Size - 1}[e.Type == chain.TypeResolved]
				l = put(l, e)
			}
		}
	}
	require.NoError(b, log.Close())
}

func history(i uint64, at time.Time) []chain.Event {
	ref := chain.Sum(fmt.Append(nil, i))
	until := at.AddDate(1, 6, 0).Truncate(time.Second)
	return []chain.Event{
		{Type: chain.TypeReceived, At: at, Actor: "bench", PayloadRef: ref, BlobVersion: "dir-1", RetainUntil: until,
			Size: 2048, Channel: chain.MobileExport, Source: "app-1", ContentType: "application/json"},
		{Type: chain.TypeAttempt, At: at, Actor: "node-1/1", PayloadRef: ref, Attempt: 1, Worker: "node-1/1", LeaseUntil: at.Add(time.Minute)},
		{Type: chain.TypeResolved, At: at, Actor: "node-1/1", PayloadRef: ref, Outcome: chain.Admit, Rules: "dvir/1",
			RecordRef: ref, RecordKey: ref, RecordVersion: ref, RecordContent: ref, UnitKey: ref},
	}
}

// BenchmarkIdle reports the memory of a service that has nothing to do.
func BenchmarkIdle(b *testing.B) {
	s := serve(b, b.TempDir())
	for b.Loop() {
		time.Sleep(2 * time.Second)
	}
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid), "status"))
	require.NoError(b, err)
	b.ReportMetric(float64(residentKiB(string(status)))/1024, "MiB-RSS")
	s.stop()
}

func residentKiB(status string) (kib int) {
	for line := range strings.Lines(status) {
		if n, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 && err == nil {
			return kib
		}
	}
	return 0
}
