package audit_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
)

// story has letters whose events interleave and stand next to each other, so that a break in one letter and a break
// in the links fall together in every way.
const story = `A: received attempt; B: received; A: resolved; C: retrying; B: attempt extend dead_letter annotation;
	C: attempt resolved; alert: alert; D: poison; B: replayed attempt; D: override attempt; A: submission; B: resolved;
	D: poison hold payload_read; E: dead_letter by_hand; A: payload_read`

// logOf stores lines in blocks of size events. Lines are stored as they are: a log does not look into them.
func logOf(t testing.TB, lines [][]byte, size int) *chaintest.Log {
	t.Helper()
	var log chaintest.Log
	var at chain.Position
	for block := range slices.Chunk(lines, size) {
		var err error
		at, err = log.Append(t.Context(), at, block)
		require.NoError(t, err)
	}
	return &log
}

func verify(t testing.TB, o audit.Options) audit.Report {
	t.Helper()
	report, err := audit.Verify(t.Context(), o)
	require.NoError(t, err)
	return report
}

func firstBad(t testing.TB, r audit.Report) uint64 {
	t.Helper()
	require.Equal(t, audit.Tampered, r.Verdict, "%v", r.Findings)
	require.False(t, r.OK())
	require.Equal(t, r.Total, uint64(len(r.Findings)))
	seq, ok := r.FirstBad()
	require.True(t, ok)
	require.Equal(t, r.Findings[0].Seq, seq)
	return seq
}

// everyWay runs a check with every mode and several sizes of blocks, so that every place is at, after and before the
// edge of a block.
func everyWay(t *testing.T, check func(t *testing.T, fast bool, size int)) {
	for _, fast := range []bool{false, true} {
		for _, size := range []int{1, 2, 3, 5, 1000} {
			t.Run(fmt.Sprintf("fast %v, blocks of %d", fast, size), func(t *testing.T) { check(t, fast, size) })
		}
	}
}

// tamperings are what one intruder may do once, at every place where it can be done, with the first sequence that is
// then not as it was, and how many findings that makes.
var tamperings = []struct {
	name     string
	do       func(lines [][]byte, at int) [][]byte
	ends     func(size int) (from, to int)
	late     int // the first bad sequence is so much after the place
	headOnly func(at, size int) bool
	kind     audit.Kind
}{
	{name: "change", do: chaintest.Change, ends: all, headOnly: isLast, kind: audit.Changed},
	{name: "prev", do: relink, ends: all, kind: audit.Changed},
	{name: "seq", do: func(lines [][]byte, at int) [][]byte { return renumber(lines, at, 1_000_000) }, ends: all,
		kind: audit.Changed},
	{name: "prev and seq", do: func(lines [][]byte, at int) [][]byte {
		return renumber(relink(lines, at), at, 1_000_000)
	}, ends: all},
	{name: "low seq", do: func(lines [][]byte, at int) [][]byte { return renumber(lines, at, 0) }, ends: from(1),
		kind: audit.Changed},
	{name: "header", do: func(lines [][]byte, at int) [][]byte { return chaintest.Flip(lines, at, 3, 1) }, ends: all,
		kind: audit.Grammar},
	{name: "remove", do: chaintest.Remove, ends: all, headOnly: isLast, kind: audit.Missing},
	{name: "insert", do: insert, ends: all, kind: audit.Forked},
	{name: "junk", do: func(lines [][]byte, at int) [][]byte {
		return slices.Insert(slices.Clone(lines), at, []byte("not an event"))
	}, ends: all},
	{name: "swap", do: chaintest.Swap, ends: func(size int) (int, int) { return 0, size - 1 }, kind: audit.Misplaced},
	{name: "repeat", do: chaintest.Repeat, ends: all, late: 1, kind: audit.Repeated},
}

func all(size int) (int, int) { return 0, size }

func from(n int) func(int) (int, int) { return func(size int) (int, int) { return n, size } }

func isLast(at, size int) bool { return at == size-1 }

// insert also forges a second genesis.
func insert(lines [][]byte, at int) [][]byte {
	if at > 0 {
		return chaintest.Insert(lines, at)
	}
	return slices.Insert(slices.Clone(lines), 0, chaintest.Change(lines, 0)[0])
}

// relink gives one event the prev of no event.
func relink(lines [][]byte, at int) [][]byte {
	lines = slices.Clone(lines)
	lines[at] = slices.Concat(lines[at][:15], bytes.Repeat([]byte("e"), 64), lines[at][79:])
	return lines
}

func renumber(lines [][]byte, at, seq int) [][]byte {
	lines = slices.Clone(lines)
	lines[at] = bytes.Replace(lines[at], []byte(`"seq":`+strconv.Itoa(at)+`,`), []byte(`"seq":`+strconv.Itoa(seq)+`,`), 1)
	return lines
}

func TestUntouched(t *testing.T) {
	h := chaintest.Story(t, story)
	everyWay(t, func(t *testing.T, fast bool, size int) {
		for n := 1; n <= len(h.Records); n++ {
			last := h.Records[n-1]
			head := last.Head()
			r := verify(t, audit.Options{Log: logOf(t, h.Lines()[:n], size), Head: &head, Fast: fast, LogID: h.Records[0].Event.LogID})
			require.Empty(t, r.Findings)
			require.True(t, r.OK() && r.Anchored)
			assert.Equal(t, head, r.Head)
			assert.EqualValues(t, n, r.Events)
			assert.Equal(t, "holdfast.example/test", r.Origin)
		}
	})
}

func TestFirstBad(t *testing.T) {
	h := chaintest.Story(t, story)
	lines, size := h.Lines(), len(h.Records)
	for _, tampering := range tamperings {
		t.Run(tampering.name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, fast bool, block int) {
				lo, hi := tampering.ends(size)
				for at := lo; at < hi; at++ {
					log := logOf(t, tampering.do(lines, at), block)
					for _, head := range []*chain.Head{nil, &h.Head} {
						r := verify(t, audit.Options{Log: log, Head: head, Fast: fast})
						if head == nil && tampering.headOnly != nil && tampering.headOnly(at, size) {
							require.True(t, r.OK(), "only the head could tell: %v", r.Findings)
							continue
						}
						want := uint64(at + tampering.late)
						if tampering.name == "prev" && head == nil && at == size-1 {
							want-- // nobody can tell which of the last two it was: the earlier is named
						}
						require.Equal(t, want, firstBad(t, r), "at %d: %v", at, r.Findings)
						for _, f := range r.Findings {
							require.Equal(t, want, f.Seq, "at %d: one event is blamed: %v", at, r.Findings)
						}
						require.True(t, len(r.Findings) == 1 || isLast(at, size), "at %d: once: %v", at, r.Findings)
						if tampering.kind != "" && !isLast(at, size) {
							require.Equal(t, tampering.kind, r.Findings[0].Kind, "at %d: %v", at, r.Findings)
						}
						if head != nil && at < size-1 {
							require.True(t, r.Anchored, "the log goes on to the head")
						}
					}
				}
			})
		})
	}
}
