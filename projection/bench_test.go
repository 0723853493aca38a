package projection_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/projection"
	"github.com/stretchr/testify/require"
)

// fileLog is a log of many events in a file, read in blocks of a hundred, so that its size does not count as
// memory.
type fileLog struct{ path string }

func (l fileLog) Read(ctx context.Context, after chain.Position) iter.Seq2[chain.Block, error] {
	return func(yield func(chain.Block, error) bool) {
		f, err := os.Open(l.path)
		if err != nil {
			yield(chain.Block{}, err)
			return
		}
		defer f.Close()
		in := bufio.NewReaderSize(f, 1<<20)
		for at := chain.Position(1); ; at++ {
			var block chain.Block
			for len(block.Lines) < 100 {
				line, err := in.ReadSlice('\n')
				if err != nil {
					break
				}
				block.Lines = append(block.Lines, slices.Clone(line[:len(line)-1]))
			}
			block.Position = at
			if len(block.Lines) == 0 || at > after && !yield(block, ctx.Err()) {
				return
			}
		}
	}
}

func (l fileLog) Follow(ctx context.Context, after chain.Position) iter.Seq2[chain.Block, error] {
	return l.Read(ctx, after)
}

// fleet writes histories the way a fleet makes them: reports arrive, are leased and resolved; one in ten fails,
// waits for retries or for a person, and some of these are replayed much later.
type fleet struct {
	tb     testing.TB
	random *rand.Rand
	write  func(line []byte)
	head   chain.Head
	now    time.Time
	busy   []chain.Letter // in flight
	dead   []chain.Letter // waiting for a person
	open   bool           // failures are never resolved
}

const inFlight = 300

func newFleet(tb testing.TB, open bool, write func(line []byte)) *fleet {
	f := &fleet{tb: tb, random: rand.New(rand.NewPCG(1, 2)), write: write, open: open,
		now: time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)}
	f.seal(chain.Letter{}, chain.Event{Type: chain.TypeGenesis, Origin: "holdfast.example/fleet", LogID: "0102030405060708"})
	return f
}

func (f *fleet) seal(l chain.Letter, e chain.Event) chain.Letter {
	f.now = f.now.Add(time.Millisecond)
	e.At, e.Actor = f.now, "system:intake"
	if e.Type.OfLetter() {
		e = l.Next(e)
	}
	r, err := f.head.Seal(e)
	if err == nil && e.Type.OfLetter() {
		l, err = l.Apply(r)
	}
	require.NoError(f.tb, err)
	f.head = r.Head()
	f.write(r.Raw)
	return l
}

func (f *fleet) digest() (d chain.Digest) {
	for i := 0; i < len(d); i += 8 {
		binary.BigEndian.PutUint64(d[i:], f.random.Uint64())
	}
	return d
}

func (f *fleet) received() chain.Letter {
	return f.seal(chain.Letter{}, chain.Event{Type: chain.TypeReceived, PayloadRef: f.digest(), BlobVersion: "3/L4kqtJlcpXroDTDmJ",
		RetainUntil: f.now.AddDate(1, 6, 0), Size: 2048, Channel: chain.Channels[f.random.IntN(5)],
		Source: "fleet:" + strconv.Itoa(f.random.IntN(40)), ContentType: "application/json"})
}

func (f *fleet) fail(l chain.Letter) chain.Letter {
	codes := []string{"parse.json_syntax", "validate.vin_check_digit", "validate.odometer_rollback", "normalize.unknown_unit",
		"dispatch.upstream_5xx", "dispatch.timeout", "ingest.truncated", "parse.unclassified"}
	code := codes[f.random.IntN(len(codes))]
	stage, _, _ := strings.Cut(code, ".")
	env := &chain.Envelope{PayloadRef: l.Ref, Stage: chain.Stage(stage), ErrorCode: code, ErrorClass: chain.Permanent,
		Disposition: chain.DeadLetter, Attempt: l.Lease.Attempt, Replays: l.Replays, FirstSeen: l.FirstSeen, Channel: l.Channel,
		LastError: "the upstream service did not answer in time", Rule: "table/3"}
	if stage == "dispatch" && l.Attempt < 3 {
		env.Disposition, env.ErrorClass, env.NextAttemptAt = chain.Retrying, chain.Transient, f.now.Add(time.Second/5)
	}
	l = f.seal(l, chain.Event{Type: chain.Type(env.Disposition), Lease: l.Lease.Seq, Envelope: env})
	if l.Disposition == chain.DeadLetter && len(f.dead) < 20_000 {
		f.dead = append(f.dead, l)
	}
	return l
}

// step lets one thing happen to one letter.
func (f *fleet) step() {
	if len(f.busy) < inFlight {
		f.busy = append(f.busy, f.received())
		return
	}
	i := f.random.IntN(len(f.busy))
	l := f.busy[i]
	switch {
	case l.Lease == nil && !l.Due(f.now.Add(time.Millisecond)):
		return
	case l.Lease == nil:
		l = f.seal(l, chain.Event{Type: chain.TypeAttempt, Attempt: l.Attempt + 1,
			Worker: "worker:" + strconv.Itoa(f.random.IntN(8)), LeaseUntil: f.now.Add(time.Minute)})
	case f.open || f.random.IntN(10) == 0:
		l = f.fail(l)
	default:
		l = f.seal(l, chain.Event{Type: chain.TypeResolved, Lease: l.Lease.Seq, Outcome: chain.Admit, Rules: "dvir/1",
			RecordRef: f.digest(), RecordVersion: f.digest(), RecordContent: f.digest(),
			UnitKey: chain.Sum([]byte(strconv.Itoa(f.random.IntN(5000))))})
	}
	f.busy[i] = l
	if l.Lease == nil && (l.Disposition == chain.Resolved || l.Disposition == chain.DeadLetter) {
		f.busy[i] = f.received()
		if n := len(f.dead); n > 1000 && !f.open && f.random.IntN(20) == 0 {
			j := f.random.IntN(n)
			f.busy[i] = f.seal(f.dead[j], chain.Event{Type: chain.TypeReplayed, Reason: "the parser was fixed"})
			f.dead[j] = f.dead[n-1]
			f.dead = f.dead[:n-1]
		}
	}
}

// writeLog also gives the fleet, whose next events follow the log.
func writeLog(tb testing.TB, events int, open bool) (fileLog, *fleet) {
	path := filepath.Join(tb.TempDir(), "log")
	file, err := os.Create(path)
	require.NoError(tb, err)
	defer file.Close()
	out := bufio.NewWriterSize(file, 1<<20)
	f := newFleet(tb, open, func(line []byte) { _, err = out.Write(append(line, '\n')) })
	for f.head.Size < uint64(events) {
		f.step()
		require.NoError(tb, err)
	}
	require.NoError(tb, out.Flush())
	return fileLog{path}, f
}

// size is the number of events of a benchmark, which HOLDFAST_BENCH_EVENTS overrides.
func size(b *testing.B, n int) int {
	if s := os.Getenv("HOLDFAST_BENCH_EVENTS"); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		require.NoError(b, err)
	}
	return n
}

// BenchmarkRebuild folds a log into a new file. ratio is the time beside checking the same events and nothing else,
// in the same run. anon_MB is the largest anonymous memory seen, without mapped pages of the file.
func BenchmarkRebuild(b *testing.B) {
	n := size(b, 100_000)
	log, _ := writeLog(b, n, false)
	runtime.GC()
	start := time.Now()
	head := chain.Head{}
	for block, err := range log.Read(b.Context(), 0) {
		require.NoError(b, err)
		for _, line := range block.Lines {
			r, err := head.Check(line)
			require.NoError(b, err)
			head = r.Head()
		}
	}
	alone := time.Since(start)
	path := filepath.Join(b.TempDir(), "projection")
	stop := watchMemory()
	cpu := cpuTime()
	for b.Loop() {
		report, err := projection.Rebuild(b.Context(), log, path)
		require.NoError(b, err)
		require.Equal(b, head, report.Tip.Head)
		b.ReportMetric(float64(report.Size)/float64(n), "file_B/event")
	}
	b.ReportMetric(float64(stop())/1024, "anon_MB")
	b.ReportMetric(float64(cpuTime()-cpu)/float64(n*b.N), "cpu_ns/event")
	each := b.Elapsed() / time.Duration(b.N)
	b.ReportMetric(float64(n)/each.Seconds(), "events/s")
	b.ReportMetric(float64(each)/float64(alone), "ratio")
	b.ReportMetric(float64(alone.Nanoseconds())/float64(n), "check_ns/event")
	b.ReportMetric(float64(proc("status", "VmHWM"))/1024, "hwm_MB")
}

// BenchmarkFollow commits a few events at a time, durably, to a projection of many. written_KB is what one commit
// gives to the file.
func BenchmarkFollow(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			log, f := writeLog(b, size(b, 100_000), false)
			path := filepath.Join(b.TempDir(), "projection")
			_, err := projection.Rebuild(b.Context(), log, path)
			require.NoError(b, err)
			db, err := projection.Open(path)
			require.NoError(b, err)
			var lines [][]byte
			f.write = func(line []byte) { lines = append(lines, line) }
			var taken []time.Duration
			cpu, written := time.Duration(0), 0
			for b.Loop() {
				for len(lines) < n {
					f.step()
				}
				block := chain.Block{Position: db.Tip().Position + 1, Lines: lines[:n]}
				start, startCPU, startWritten := time.Now(), cpuTime(), proc("io", "wchar")
				require.NoError(b, db.Apply([]chain.Block{block}))
				taken = append(taken, time.Since(start))
				cpu, written = cpu+cpuTime()-startCPU, written+proc("io", "wchar")-startWritten
				lines = lines[n:]
			}
			require.NoError(b, db.Close())
			slices.Sort(taken)
			b.ReportMetric(float64(taken[len(taken)/2].Microseconds()), "p50_us")
			b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu_us")
			b.ReportMetric(float64(written)/1024/float64(b.N), "written_KB")
		})
	}
}

// cpuTime is what the process used of both cores: unlike the clock, it does not see what else the machine does.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// proc is a line of a file of /proc/self, 0 where there is none.
func proc(file, name string) (n int) {
	text, _ := os.ReadFile("/proc/self/" + file)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	return n
}

func watchMemory() (stop func() int) {
	done, result := make(chan struct{}), make(chan int)
	go func() {
		most := 0
		for {
			select {
			case <-time.After(20 * time.Millisecond):
				most = max(most, proc("status", "RssAnon"))
			case <-done:
				result <- most
				return
			}
		}
	}()
	return func() int { close(done); return <-result }
}

// backlog is a projection with n open letters, nearly all of them waiting for a person.
func backlog(b *testing.B) *projection.DB {
	n := size(b, 100_000)
	path := filepath.Join(b.TempDir(), "projection")
	log, _ := writeLog(b, 10*n/3, true)
	_, err := projection.Rebuild(b.Context(), log, path)
	require.NoError(b, err)
	db, err := projection.Open(path)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	stats, err := db.Stats()
	require.NoError(b, err)
	b.Logf("%v", stats.Letters)
	return db
}

// percentile reports the slow end of f, each call timed by itself.
func percentile(b *testing.B, f func() error) {
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		require.NoError(b, f())
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, "p95_ms")
}

func BenchmarkList(b *testing.B) {
	db := backlog(b)
	dead := []chain.Disposition{chain.DeadLetter}
	for name, f := range map[string]projection.Filter{
		"all":                {},
		"dead":               {Dispositions: dead, Order: projection.NewestFirst},
		"code":               {Dispositions: dead, ErrorCode: "parse.json_syntax"},
		"stage_and_channel":  {Stage: chain.StageValidate, Channel: chain.MobileExport},
		"source_and_code":    {Source: "fleet:7", ErrorCode: "parse.json_syntax"},
		"code_never_matched": {Source: "fleet:7", ErrorCode: "parse.never_seen"},
	} {
		b.Run(name, func(b *testing.B) {
			cursor := ""
			percentile(b, func() error {
				page, err := db.List(f, cursor, 100)
				cursor = page.Next
				return err
			})
		})
	}
}

func BenchmarkGroups(b *testing.B) {
	db := backlog(b)
	b.Run("groups", func(b *testing.B) {
		percentile(b, func() error { _, err := db.Groups(projection.Filter{}); return err })
	})
	b.Run("stats", func(b *testing.B) {
		percentile(b, func() error { _, err := db.Stats(); return err })
	})
}

// BenchmarkSurvey looks at every dead letter, as the dry run of a plan does.
func BenchmarkSurvey(b *testing.B) {
	db := backlog(b)
	letters := 0
	percentile(b, func() error {
		letters = 0
		_, err := db.Survey(b.Context(), projection.Filter{Dispositions: []chain.Disposition{chain.DeadLetter}}, 0,
			func(*chain.Letter, bool) { letters++ })
		return err
	})
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(letters), "ns/letter")
}
