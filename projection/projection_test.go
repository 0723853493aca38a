package projection_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/projection"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"
)

func store(t testing.TB, log *chaintest.Log, lines [][]byte, size int) {
	t.Helper()
	at := chain.Position(0)
	for _, b := range blocks(lines, size) {
		var err error
		at, err = log.Append(t.Context(), at, b.Lines)
		require.NoError(t, err)
	}
}

func fingerprint(t testing.TB, db *projection.DB) chain.Digest {
	t.Helper()
	sum, head, err := db.Fingerprint(t.Context())
	require.NoError(t, err)
	require.Equal(t, db.Tip().Head, head)
	return sum
}

func TestBatchesDoNotShow(t *testing.T) {
	m := newModel(t, 11).grow(1200)
	sums := map[chain.Digest]string{}
	for _, size := range []int{1, 7, 1000} {
		all := blocks(m.lines, size)
		for _, batch := range []int{1, 7, 1000} {
			if size*batch > 1 {
				db := fresh(t)
				for len(all) > 0 {
					n := min(batch, len(all))
					require.NoError(t, db.Apply(all[:n]))
					all = all[n:]
				}
				sums[fingerprint(t, db)] = fmt.Sprint(size, batch)
				all = blocks(m.lines, size)
			}
		}
		log := new(chaintest.Log)
		store(t, log, m.lines, min(size, chain.MaxBlockEvents))
		path := filepath.Join(t.TempDir(), "rebuilt")
		report, err := projection.Rebuild(t.Context(), log, path)
		require.NoError(t, err)
		require.Equal(t, m.head, report.Tip.Head)
		sums[fingerprint(t, open(t, path))] = "rebuilt"
	}
	require.Len(t, sums, 1, "%v", sums)

	other := fresh(t)
	require.NoError(t, other.Apply(blocks(m.lines[:len(m.lines)-1], 100)))
	require.NotContains(t, sums, fingerprint(t, other))
}

func TestReopen(t *testing.T) {
	m := newModel(t, 3).grow(300)
	path := filepath.Join(t.TempDir(), "projection")
	db, err := projection.Open(path)
	require.NoError(t, err)
	_, ok := db.Genesis()
	require.False(t, ok)
	require.NoError(t, db.Apply(blocks(m.lines, 10)))
	tip := db.Tip()
	_, err = projection.Open(path)
	require.ErrorIs(t, err, projection.ErrLocked)
	_, err = projection.Rebuild(t.Context(), new(chaintest.Log), path)
	require.ErrorIs(t, err, projection.ErrLocked)
	require.NoError(t, db.Close())
	require.NoError(t, db.Close())
	_, err = db.Letter(chain.Digest{})
	require.ErrorIs(t, err, projection.ErrClosed)
	require.ErrorIs(t, db.Wait(t.Context(), tip.Size), projection.ErrClosed)

	one, err := projection.OpenReadOnly(path)
	require.NoError(t, err)
	two, err := projection.OpenReadOnly(path)
	require.NoError(t, err)
	require.Equal(t, tip, one.Tip())
	require.Empty(t, two.Check(t.Context()))
	require.NoError(t, errors.Join(one.Close(), two.Close()))

	db = open(t, path)
	require.Equal(t, tip, db.Tip())
	g, ok := db.Genesis()
	require.True(t, ok)
	require.Equal(t, "0102", g.LogID)
	m.grow(100)
	require.NoError(t, db.Apply([]chain.Block{{Position: tip.Position + 1, Lines: m.lines[tip.Size:]}}))
	require.Equal(t, m.head, db.Tip().Head)
}

func TestNotFound(t *testing.T) {
	db := fresh(t)
	_, err := db.Letter(chain.Sum(nil))
	require.ErrorIs(t, err, projection.ErrNotFound)
	_, err = db.Timeline(chain.Sum(nil))
	require.ErrorIs(t, err, projection.ErrNotFound)
	_, err = db.RootAt(1)
	require.ErrorIs(t, err, projection.ErrNotFound)
	_, err = db.ReadHashes([]int64{0})
	require.ErrorIs(t, err, projection.ErrNotFound)
	_, ok, err := db.RecordVersion(chain.Sum(nil))
	require.False(t, ok)
	require.NoError(t, err)
	page, err := db.List(projection.Filter{}, "", 10)
	require.NoError(t, err)
	require.Empty(t, page)
	lines, err := db.Events(0, 10)
	require.NoError(t, err)
	require.Empty(t, lines)
	for _, prefix := range []string{"", "1234567", "1234567G", "ABCDEF12", strings.Repeat("a", 65), "12345678 "} {
		_, err := db.Find(prefix)
		requireField(t, err, "ref")
	}
	refs, err := db.Find("12345678")
	require.NoError(t, err)
	require.Empty(t, refs)
}

func requireField(t testing.TB, err error, field string) {
	t.Helper()
	fe, ok := errors.AsType[*chain.FieldError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, field, fe.Field)
}

func TestFindIsAmbiguous(t *testing.T) {
	db := fresh(t)
	m := newModel(t, 1)
	for i := range 3 {
		ref := chain.Digest{1, 2, 3, 4, byte(i << 4)}
		m.add(chain.Event{Type: chain.TypeReceived, PayloadRef: ref, BlobVersion: "1", RetainUntil: m.now, Channel: chain.OtherChannel})
	}
	require.NoError(t, db.Apply(blocks(m.lines, 10)))
	refs, err := db.Find("01020304")
	require.NoError(t, err)
	require.Len(t, refs, 2)
	refs, err = db.Find("010203041")
	require.NoError(t, err)
	require.Equal(t, []chain.Digest{{1, 2, 3, 4, 1 << 4}}, refs)
}

func TestBadFilters(t *testing.T) {
	db := fresh(t)
	for field, f := range map[string]projection.Filter{
		"disposition": {Dispositions: []chain.Disposition{"lost"}}, "stage": {Stage: "x"}, "channel": {Channel: "x"},
		"error_code": {ErrorCode: "x"}, "order": {Order: 7},
	} {
		_, err := db.List(f, "", 1)
		requireField(t, err, field)
		_, err = db.Groups(f)
		requireField(t, err, field)
	}
	for _, f := range []projection.Filter{{Owner: "ann"}, {EndsBefore: time.Now()}} {
		_, err := db.Groups(f)
		requireField(t, err, "filter")
	}
	for _, cursor := range []string{"x", "AAAA", strings.Repeat("A", 23), "%"} {
		_, err := db.List(projection.Filter{}, cursor, 1)
		requireField(t, err, "cursor")
	}
	m := newModel(t, 1).grow(50)
	require.NoError(t, db.Apply(blocks(m.lines, 10)))
	page, err := db.List(projection.Filter{}, "", 1)
	require.NoError(t, err)
	_, err = db.List(projection.Filter{Order: projection.NewestFirst}, page.Next, 1)
	requireField(t, err, "cursor")
}

// TestCursorsSurviveChanges lists while letters come, move and go: those that match all the time are shown once.
func TestCursorsSurviveChanges(t *testing.T) {
	for _, order := range []projection.Order{projection.OldestFirst, projection.NewestFirst} {
		m := newModel(t, 5).grow(800)
		db := fresh(t)
		require.NoError(t, db.Apply(blocks(m.lines, 100)))
		stays := map[chain.Digest]bool{}
		for _, l := range m.sorted(order, func(l chain.Letter) bool { return l.Disposition == chain.DeadLetter }) {
			stays[l.Ref] = true
		}
		f := projection.Filter{Dispositions: []chain.Disposition{chain.DeadLetter}, Order: order}
		shown := map[chain.Digest]int{}
		for cursor, more := "", true; more; more = cursor != "" {
			page, err := db.List(f, cursor, 3)
			require.NoError(t, err)
			for _, l := range page.Letters {
				shown[l.Ref]++
				require.Equal(t, 1, shown[l.Ref])
			}
			cursor = page.Next
			from := len(m.lines)
			m.grow(10)
			for _, line := range m.lines[from:] {
				require.NoError(t, db.Apply([]chain.Block{{Position: db.Tip().Position + 1, Lines: [][]byte{line}}}))
			}
			for ref := range stays {
				if m.letters[ref].Disposition != chain.DeadLetter {
					delete(stays, ref)
				}
			}
		}
		require.NotEmpty(t, stays)
		for ref := range stays {
			require.Equal(t, 1, shown[ref])
		}
	}
}

// TestPagesAreBounded asks for a rare letter among many that share every indexed word with it.
func TestPagesAreBounded(t *testing.T) {
	m := newModel(t, 5)
	for i := range 9000 {
		source, owner := "fleet:1", "ann"
		if i == 8500 {
			owner = "bob"
		}
		ref := chain.Sum([]byte{byte(i), byte(i >> 8)})
		m.add(chain.Event{Type: chain.TypeReceived, PayloadRef: ref, BlobVersion: "1", RetainUntil: m.now.AddDate(9, 0, 0), Channel: chain.OtherChannel, Source: source})
		m.add(chain.Event{Type: chain.TypeAnnotation, PayloadRef: ref, Owner: owner, Tag: "t" + owner})
		m.add(chain.Event{Type: chain.TypeAnnotation, PayloadRef: ref, Owner: "ann", Tag: "even"[:2+2*(i%2)]})
	}
	db := fresh(t)
	require.NoError(t, db.Apply(blocks(m.lines, 1000)))
	page, err := db.List(projection.Filter{Tag: "tbob", Source: "fleet:1"}, "", 10)
	require.NoError(t, err)
	require.Len(t, page.Letters, 1, "the rarest word leads")
	require.Empty(t, page.Next)

	f := projection.Filter{Tag: "ev", Since: m.letters[m.order[2]].FirstSeen, Owner: "ann", Source: "fleet:1"}
	f.Dispositions = []chain.Disposition{chain.Received}
	require.Len(t, listAll(t, db, f, 1000), 4499)
	f.Tag, f.Owner, f.ErrorCode = "", "", ""
	f.Tag = "even"
	pages, found := 0, 0
	for cursor, more := "", true; more; more = cursor != "" {
		page, err := db.List(f, cursor, 1000)
		require.NoError(t, err)
		pages, found, cursor = pages+1, found+len(page.Letters), page.Next
	}
	require.Equal(t, 4499, found)
	require.GreaterOrEqual(t, pages, 5)
}

func TestBrokenEvent(t *testing.T) {
	m := newModel(t, 8).grow(400)
	ref := m.order[0]
	for _, c := range []struct {
		name string
		kind chain.BreakKind
		do   func(line []byte) []byte
	}{
		{"grammar", chain.BreakGrammar, func(line []byte) []byte { return line[:len(line)-1] }},
		{"link", chain.BreakLink, func(line []byte) []byte { return bytes.Replace(line, []byte(`"prev":"`), []byte(`"prev":"0`)[:9], 1) }},
		{"lifecycle", chain.BreakLifecycle, nil},
	} {
		for _, at := range []int{37, 40, 49} { // within a block of ten, at its start, at its end
			lines := append([][]byte{}, m.lines[:at]...)
			head := chain.Head{}
			for _, line := range lines {
				r, err := head.Check(line)
				require.NoError(t, err)
				head = r.Head()
			}
			bad := m.lines[at]
			switch c.name {
			case "lifecycle":
				r, err := head.Seal(chain.Event{Type: chain.TypeReplayed, PayloadRef: ref, At: m.now, Actor: "mallory", BlobVersion: "1", RetainUntil: m.now})
				require.NoError(t, err)
				bad = r.Raw
			case "link":
				bad = bytes.Clone(bad)
				bad[20] ^= 1
			default:
				bad = c.do(bad)
			}
			lines = append(lines, bad)
			lines = append(lines, m.lines[at+1:at+30]...)

			db := fresh(t)
			log := blocks(lines, 10)
			for range 2 { // the break is met again, and nothing is folded twice
				requireBroken(t, db.Apply(log[db.Tip().Position:]), at, c.kind)
				require.Equal(t, chain.Tip{Head: head, Position: chain.Position(at / 10)}, db.Tip())
				require.Empty(t, db.Check(t.Context()))
			}
			memory := new(chaintest.Log)
			store(t, memory, lines, 10)
			followed := fresh(t)
			requireBroken(t, followed.Follow(t.Context(), memory), at, c.kind)
			requireBroken(t, followed.CatchUp(t.Context(), memory), at, c.kind)
			require.Equal(t, fingerprint(t, db), fingerprint(t, followed))

			path := filepath.Join(t.TempDir(), "projection")
			_, err := projection.Rebuild(t.Context(), memory, path)
			requireBroken(t, err, at, c.kind)
			require.NoFileExists(t, path+".rebuild")
		}
	}
}

func requireBroken(t testing.TB, err error, seq int, kind chain.BreakKind) {
	t.Helper()
	broken, ok := errors.AsType[*chain.BrokenError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, uint64(seq), broken.Seq)
	require.Equal(t, kind, broken.Kind)
}

// TestNeverBack gives blocks again, and other blocks at the place of folded ones.
func TestNeverBack(t *testing.T) {
	m := newModel(t, 8).grow(100)
	db := fresh(t)
	all := blocks(m.lines, 10)
	require.NoError(t, db.Apply(all[:5]))
	tip, sum := db.Tip(), fingerprint(t, db)
	require.Error(t, db.Apply(all[:5]))
	require.Error(t, db.Apply(all[4:]))
	requireBroken(t, db.Apply(all[6:]), 50, chain.BreakSequence)
	require.Error(t, db.Apply([]chain.Block{all[5], all[5]}))
	require.Equal(t, uint64(60), db.Tip().Size, "what precedes is kept")
	require.NotEqual(t, tip, db.Tip())
	require.NotEqual(t, sum, fingerprint(t, db))
	require.NoError(t, db.Apply(nil))
	require.NoError(t, db.Apply(all[6:]))
	require.Equal(t, m.head, db.Tip().Head)
}

func TestMerkle(t *testing.T) {
	m := newModel(t, 2).grow(300)
	db := fresh(t)
	require.NoError(t, db.Apply(blocks(m.lines, 17)))
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(at []int64) (out []tlog.Hash, err error) {
		for _, i := range at {
			out = append(out, stored[i])
		}
		return out, nil
	})
	for n, line := range m.lines {
		want, err := tlog.TreeHash(int64(n), reader)
		require.NoError(t, err)
		have, err := db.RootAt(uint64(n))
		require.NoError(t, err)
		require.Equal(t, chain.Digest(want), have)
		more, err := tlog.StoredHashes(int64(n), line, reader)
		require.NoError(t, err)
		stored = append(stored, more...)
	}
	size := int64(len(m.lines))
	root, err := db.RootAt(uint64(size))
	require.NoError(t, err)
	for _, n := range []int64{0, 1, 150, size - 1} {
		proof, err := tlog.ProveRecord(size, n, db)
		require.NoError(t, err)
		require.NoError(t, tlog.CheckRecord(proof, size, tlog.Hash(root), n, tlog.RecordHash(m.lines[n])))
	}
}

func TestEvents(t *testing.T) {
	m := newModel(t, 2).grow(50)
	db := fresh(t)
	require.NoError(t, db.Apply(blocks(m.lines, 17)))
	for _, from := range []int{0, 1, 49, 50, 60} {
		for _, limit := range []int{1, 7, 100} {
			lines, err := db.Events(uint64(from), limit)
			require.NoError(t, err)
			want := m.lines[min(from, len(m.lines)):]
			require.Equal(t, append([][]byte(nil), want[:min(limit, len(want))]...), lines)
		}
	}
}

// TestReadYourWrites appends, waits and reads, from several goroutines, beside a follower.
func TestReadYourWrites(t *testing.T) {
	h := chaintest.Story(t, "A: received attempt resolved; B: received attempt retrying; C: received attempt dead_letter replayed")
	db, log := fresh(t), new(chaintest.Log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- db.Follow(ctx, log) }()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for seq, r := range h.Records {
				assert.NoError(t, db.Wait(ctx, uint64(seq)))
				if r.Event.Type.OfLetter() {
					records, err := db.Timeline(r.Event.PayloadRef)
					assert.NoError(t, err)
					assert.Greater(t, len(records), int(r.Event.CaseSeq))
				}
			}
		})
	}
	h.AppendTo(log, 1)
	readers.Wait()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	for _, name := range []string{"A", "B", "C"} {
		l, err := db.Letter(chaintest.Ref(name))
		require.NoError(t, err)
		require.Equal(t, h.Letters[name], l)
	}
}

// TestPause shows in time that costs nothing that commits keep their distance, unless somebody waits.
func TestPause(t *testing.T) {
	h := chaintest.Story(t, "A: received attempt dead_letter replayed attempt resolved payload_read payload_read payload_read")
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		db, err := projection.Open(filepath.Join(dir, "projection"))
		require.NoError(t, err)
		db.Pause = time.Minute
		log := new(chaintest.Log)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- db.Follow(ctx, log) }()

		start := time.Now()
		changed := db.Changed()
		at := chain.Position(0)
		add := func(n int) {
			lines := h.Lines()[at:]
			for _, line := range lines[:n] {
				at, err = log.Append(ctx, at, [][]byte{line})
				require.NoError(t, err)
			}
		}
		add(3)
		synctest.Wait()
		require.Zero(t, db.Tip().Size)
		<-changed
		require.Equal(t, uint64(3), db.Tip().Size, "gathered in one commit")
		require.Equal(t, time.Minute, time.Since(start))

		add(2)
		synctest.Wait()
		require.Equal(t, uint64(3), db.Tip().Size)
		require.NoError(t, db.Wait(ctx, 4))
		require.Equal(t, time.Minute, time.Since(start), "somebody waits: at once")

		waiter := make(chan error, 1)
		go func() { waiter <- db.Wait(ctx, 6) }()
		synctest.Wait()
		add(1)
		synctest.Wait()
		require.Equal(t, uint64(6), db.Tip().Size)
		add(1)
		require.NoError(t, <-waiter)
		require.Equal(t, time.Minute, time.Since(start))

		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		require.ErrorIs(t, db.Wait(short, 7), context.DeadlineExceeded)
		go func() { waiter <- db.Wait(ctx, 7) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-waiter, context.Canceled)
		require.ErrorIs(t, <-ended, context.Canceled)
		go func() { waiter <- db.Wait(context.Background(), 7) }()
		synctest.Wait()
		require.NoError(t, db.Close())
		require.ErrorIs(t, <-waiter, projection.ErrClosed)
	})
}

// failing is a log whose reading ends in an error after some blocks.
type failing struct {
	chain.Reader
	after chain.Position
}

var errReading = errors.New("the log cannot be read")

func (f failing) Read(ctx context.Context, after chain.Position) iter.Seq2[chain.Block, error] {
	return func(yield func(chain.Block, error) bool) {
		for b, err := range f.Reader.Read(ctx, after) {
			if b.Position > f.after {
				yield(chain.Block{}, errReading)
				return
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

func TestReaderFails(t *testing.T) {
	m := newModel(t, 4).grow(100)
	log := new(chaintest.Log)
	store(t, log, m.lines, 10)
	db := fresh(t)
	require.ErrorIs(t, db.CatchUp(t.Context(), failing{log, 4}), errReading)
	require.Equal(t, chain.Position(4), db.Tip().Position)
	require.NoError(t, db.CatchUp(t.Context(), log))
	require.Equal(t, m.head, db.Tip().Head)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, fresh(t).CatchUp(done, log), context.Canceled)
}

// TestKill kills a process that follows, again and again, and goes on from what it left.
func TestKill(t *testing.T) {
	if path := os.Getenv("HOLDFAST_TEST_FOLLOW"); path != "" {
		followUntilKilled(t, path)
		os.Exit(0) // without the words of a test on standard output
	}
	m := newModel(t, 6).grow(1500)
	path := filepath.Join(t.TempDir(), "projection")
	require.NoError(t, os.WriteFile(path+".log", chain.JoinLines(m.lines), 0o600))
	random := rand.New(rand.NewPCG(1, 1))
	last := uint64(0)
	for last < uint64(len(m.lines)) {
		child := exec.Command(os.Args[0], "-test.run=^TestKill$")
		child.Env = append(os.Environ(), "HOLDFAST_TEST_FOLLOW="+path)
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		var size [8]byte
		for range 1 + random.IntN(40) {
			if _, err := io.ReadFull(out, size[:]); err != nil {
				break
			}
		}
		_ = child.Process.Kill()
		_ = child.Wait()
		db, err := projection.Open(path)
		require.NoError(t, err)
		require.Empty(t, db.Check(t.Context()))
		require.GreaterOrEqual(t, db.Tip().Size, max(last, binary.BigEndian.Uint64(size[:])), "a commit that was reported is there")
		last = db.Tip().Size
		require.NoError(t, db.Close())
	}
	straight := fresh(t)
	require.NoError(t, straight.Apply(blocks(m.lines, 1000)))
	require.Equal(t, fingerprint(t, straight), fingerprint(t, open(t, path)))
}

// followUntilKilled tells every commit on standard output.
func followUntilKilled(t *testing.T, path string) {
	body, err := os.ReadFile(path + ".log")
	require.NoError(t, err)
	lines, err := chain.SplitLines(body)
	require.NoError(t, err)
	db, err := projection.Open(path)
	require.NoError(t, err)
	for _, b := range blocks(lines, 7)[db.Tip().Position:] {
		require.NoError(t, db.Apply([]chain.Block{b}))
		_, err := os.Stdout.Write(binary.BigEndian.AppendUint64(nil, db.Tip().Size))
		require.NoError(t, err)
	}
}

// filled is a projection file with something in it.
func filled(t testing.TB) (path string, m *model) {
	m = newModel(t, 9).grow(1200)
	path = filepath.Join(t.TempDir(), "projection")
	db, err := projection.Open(path)
	require.NoError(t, err)
	require.NoError(t, db.Apply(blocks(m.lines, 100)))
	require.NoError(t, db.Close())
	return path, m
}

func requireUnusable(t testing.TB, err error) {
	t.Helper()
	_, ok := errors.AsType[*projection.UnusableError](err)
	require.True(t, ok, "%v", err)
}

func TestUnusable(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"text":    func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, []byte("not bolt"), 0o600)) },
		"zeros":   func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, make([]byte, 1<<16), 0o600)) },
		"half":    func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 1<<19)) },
		"a tenth": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 1<<17)) },
		"metas":   func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 1<<13)) },
		"schema": func(t *testing.T, path string) {
			alter(t, path, func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte("meta")).Put([]byte("schema"), []byte{0, 0, 0, 0, 0, 0, 0, 99})
			})
		},
		"no schema": func(t *testing.T, path string) {
			alter(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Delete([]byte("schema")) })
		},
		"no bucket": func(t *testing.T, path string) {
			alter(t, path, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("by_due")) })
		},
		"another file": func(t *testing.T, path string) {
			alter(t, path, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("meta")) })
		},
		"mark": func(t *testing.T, path string) {
			alter(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("mark"), []byte("x")) })
		},
		"last event": func(t *testing.T, path string) {
			alter(t, path, func(tx *bbolt.Tx) error {
				k, _ := tx.Bucket([]byte("events")).Cursor().Last()
				return tx.Bucket([]byte("events")).Delete(k)
			})
		},
		"genesis": func(t *testing.T, path string) {
			alter(t, path, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("events")).Put(make([]byte, 8), []byte("{}")) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, m := filled(t)
			damage(t, path)
			_, err := projection.Open(path)
			requireUnusable(t, err)
			_, err = projection.Open(path)
			requireUnusable(t, err)
			log := new(chaintest.Log)
			store(t, log, m.lines, 100)
			_, err = projection.Rebuild(t.Context(), log, path)
			require.NoError(t, err)
			require.Equal(t, m.head, open(t, path).Tip().Head)
		})
	}
	_, err := projection.Open(filepath.Join(t.TempDir(), "no", "such", "folder"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = projection.Open(t.TempDir())
	require.Error(t, err)
	_, unusable := errors.AsType[*projection.UnusableError](err)
	require.False(t, unusable, "a folder is not ours to remove")
}

func alter(t testing.TB, path string, f func(*bbolt.Tx) error) {
	b, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, b.Update(f))
	require.NoError(t, b.Close())
}

// TestDamagedPages overwrites pages at random. Whatever is hit, every call answers, and either the damage is seen or
// the answer of Check is that there is none in what is used.
func TestDamagedPages(t *testing.T) {
	path, m := filled(t)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(4, 4))
	seen := 0
	for range 150 {
		bad := bytes.Clone(whole)
		for page := range len(bad) / 4096 {
			if page > 1 && random.IntN(8) == 0 {
				at := page*4096 + random.IntN(64)
				for i := range 1 + random.IntN(200) {
					bad[at+i] = byte(random.Uint32())
				}
			}
		}
		require.NoError(t, os.WriteFile(path, bad, 0o600))
		if useAll(t, path, m) != nil {
			seen++
		}
	}
	require.Greater(t, seen, 100)
}

// useAll is the first complaint of anything.
func useAll(t testing.TB, path string, m *model) error {
	db, err := projection.Open(path)
	if err != nil {
		requireUnusable(t, err)
		return err
	}
	var errs []error
	note := func(err error) {
		if err != nil && !errors.Is(err, projection.ErrNotFound) {
			requireUnusable(t, err)
			errs = append(errs, err)
		}
	}
	for _, ref := range m.order {
		_, err := db.Letter(ref)
		note(err)
		_, err = db.Timeline(ref)
		note(err)
	}
	_, err = db.List(projection.Filter{}, "", 1000)
	note(err)
	_, err = db.Groups(projection.Filter{})
	note(err)
	_, err = db.Stats()
	note(err)
	_, _, err = db.Due(m.now, nil, 1000)
	note(err)
	_, err = db.RootAt(db.Tip().Size)
	note(err)
	errs = append(errs, db.Check(t.Context())...)
	r, err := db.Tip().Seal(chain.Event{Type: chain.TypeAlert, At: m.now, Actor: "test", Reason: "more"})
	require.NoError(t, err)
	note(db.Apply([]chain.Block{{Position: db.Tip().Position + 1, Lines: [][]byte{r.Raw}}}))
	note(db.Close())
	return errors.Join(errs...)
}

// TestCheckFinds alters one entry of each bucket at a time.
func TestCheckFinds(t *testing.T) {
	path, _ := filled(t)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	var names []string
	alter(t, path, func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error { names = append(names, string(name)); return nil })
	})
	require.Len(t, names, 19)
	for _, name := range names {
		if name == "meta" {
			continue
		}
		for what, do := range map[string]func(b *bbolt.Bucket, k, v []byte) error{
			"missing": func(b *bbolt.Bucket, k, _ []byte) error { return b.Delete(k) },
			"stray":   func(b *bbolt.Bucket, k, v []byte) error { k[len(k)-1] ^= 0x55; return b.Put(k, v) },
			"other":   func(b *bbolt.Bucket, k, v []byte) error { v[len(v)-1] ^= 1; return b.Put(k, v) },
		} {
			require.NoError(t, os.WriteFile(path, whole, 0o600))
			altered := false
			alter(t, path, func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte(name))
				c := b.Cursor()
				c.First()
				k, v := c.Next() // the genesis is seen by Open
				if what == "other" && len(v) == 0 {
					return nil
				}
				altered = true
				return do(b, bytes.Clone(k), bytes.Clone(v))
			})
			if !altered {
				continue
			}
			db, err := projection.Open(path)
			require.NoError(t, err)
			require.NotEmpty(t, db.Check(t.Context()), "%s: %s", name, what)
			require.NoError(t, db.Close())
		}
	}
}
