package audit_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
)

func TestEmptyLog(t *testing.T) {
	r := verify(t, audit.Options{Log: &chaintest.Log{}})
	require.True(t, r.OK())
	require.False(t, r.Anchored)
	assert.Equal(t, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", r.Root.String())
	assert.NotEmpty(t, r.Notes, "nobody can tell whether it always was empty")

	r = verify(t, audit.Options{Log: &chaintest.Log{}, Head: &chain.Head{}})
	require.True(t, r.OK() && r.Anchored)

	r = verify(t, audit.Options{Log: &chaintest.Log{}, Head: &chain.Head{Size: 3, Leaf: chain.Sum(nil)}})
	require.EqualValues(t, 0, firstBad(t, r))
	require.Equal(t, audit.Truncated, r.Findings[0].Kind)
}

func TestRoot(t *testing.T) {
	h := chaintest.Story(t, story)
	var hashes []tlog.Hash
	read := tlog.HashReaderFunc(func(at []int64) (out []tlog.Hash, err error) {
		for _, i := range at {
			out = append(out, hashes[i])
		}
		return out, nil
	})
	for n, line := range h.Lines() {
		more, err := tlog.StoredHashes(int64(n), line, read)
		require.NoError(t, err)
		hashes = append(hashes, more...)
		want, err := tlog.TreeHash(int64(n)+1, read)
		require.NoError(t, err)
		r := verify(t, audit.Options{Log: logOf(t, h.Lines()[:n+1], 4), Fast: n%2 == 0})
		require.Equal(t, want, tlog.Hash(r.Root), "%d events", n+1)
	}
}

func TestLetters(t *testing.T) {
	r := verify(t, audit.Options{Log: logOf(t, chaintest.Story(t, story).Lines(), 3)})
	assert.Equal(t, map[chain.Disposition]uint64{chain.Resolved: 4, chain.Poison: 1}, r.Letters)
}

func TestCut(t *testing.T) {
	h := chaintest.Story(t, story)
	everyWay(t, func(t *testing.T, fast bool, size int) {
		for n := range h.Records {
			cut := logOf(t, chaintest.Cut(h.Lines(), n), size)
			r := verify(t, audit.Options{Log: cut, Fast: fast, Head: &h.Head})
			require.EqualValues(t, n, firstBad(t, r))
			require.Len(t, r.Findings, 1)
			require.Equal(t, audit.Truncated, r.Findings[0].Kind)
			r = verify(t, audit.Options{Log: cut, Fast: fast})
			require.True(t, r.OK(), "the rest is a whole log")
			require.False(t, r.Anchored)
			require.Contains(t, strings.Join(r.Notes, "\n"), "no stored head")
			if n > 0 {
				earlier := h.Records[n-1].Head()
				r = verify(t, audit.Options{Log: logOf(t, h.Lines(), size), Fast: fast, Head: &earlier})
				require.True(t, r.OK() && r.Anchored, "a log that grew")
			}
		}
	})
}

// A history sealed anew from some event on is a whole log. The stored head tells that, but not from where on.
func TestRewritten(t *testing.T) {
	h := chaintest.Story(t, story)
	for at := range h.Records {
		log := logOf(t, chaintest.Rewrite(h.Lines(), at), 3)
		r := verify(t, audit.Options{Log: log, Fast: true})
		require.True(t, r.OK(), "at %d: %v", at, r.Findings)
		r = verify(t, audit.Options{Log: log, Head: &h.Head, Fast: true})
		require.Equal(t, h.Head.Size-1, firstBad(t, r))
		require.Len(t, r.Findings, 1)
		require.False(t, r.Anchored)
	}
}

func TestIdentity(t *testing.T) {
	h := chaintest.Story(t, story)
	for _, fast := range []bool{false, true} {
		r := verify(t, audit.Options{Log: logOf(t, h.Lines(), 3), Head: &h.Head, Fast: fast, LogID: "ff02030405060708090a0b0c0d0e0f10"})
		require.EqualValues(t, 0, firstBad(t, r))
		require.Equal(t, audit.Identity, r.Findings[0].Kind)
	}
}

// forge seals an event that the lifecycle does not have, as a faulty writer would.
func forge(t *testing.T, h *chaintest.History, e chain.Event) [][]byte {
	t.Helper()
	e.At, e.Actor = h.Now, "test"
	r, err := h.Head.Seal(e)
	require.NoError(t, err)
	return append(h.Lines(), r.Raw)
}

func TestLifecycle(t *testing.T) {
	h := chaintest.Story(t, "A: received attempt resolved; B: received")
	a := h.Letters["A"]
	lines := forge(t, h, a.Next(chain.Event{Type: chain.TypeReplayed}))
	r := verify(t, audit.Options{Log: logOf(t, lines, 2)})
	require.EqualValues(t, len(lines)-1, firstBad(t, r))
	require.Equal(t, audit.Finding{Kind: audit.Lifecycle, Seq: 5, Ref: chaintest.Ref("A"),
		Detail: "a letter that is resolved cannot be replayed"}, r.Findings[0])
	require.Len(t, r.Findings, 1)
	require.NotZero(t, r.Root, "the links hold")
	require.True(t, verify(t, audit.Options{Log: logOf(t, lines, 2), Fast: true}).OK(), "fast does not look")

	wrongCase := a.Next(chain.Event{Type: chain.TypePayloadRead})
	wrongCase.CaseSeq--
	r = verify(t, audit.Options{Log: logOf(t, forge(t, h, wrongCase), 2)})
	require.EqualValues(t, 5, firstBad(t, r))
}

// A bulk replay ends with the counts of its events, or somebody has changed what it did.
func TestPlanCounts(t *testing.T) {
	for counts, found := range map[chain.PlanCounts]bool{
		{Replayed: 1, Skipped: 2}: false, {Replayed: 1, Skipped: 1, Cancelled: 1}: false,
		{Replayed: 2, Skipped: 1}: true, {Replayed: 1, Parked: 1, Skipped: 1}: true, {Replayed: 1, Skipped: 1}: true,
	} {
		h := chaintest.Story(t, "A: dead_letter")
		seal := func(e chain.Event) {
			e.At, e.Actor = h.Now, "test"
			r, err := h.Head.Seal(e)
			require.NoError(t, err)
			h.Records, h.Head = append(h.Records, r), r.Head()
		}
		seal(chain.Event{Type: chain.TypeReplayPlan, Plan: "p2", Worker: "node-1", Reason: "fixed",
			Terms: &chain.PlanTerms{Filter: "error_code=parse.schema", Snapshot: 2, Expected: 3, RateMilli: 1000, Targets: []string{"builtin"}}})
		seal(h.Letters["A"].Next(chain.Event{Type: chain.TypeReplayed, Plan: "p2"}))
		seal(chain.Event{Type: chain.TypeReplayDone, Plan: "p2", Counts: &counts})
		r := verify(t, audit.Options{Log: logOf(t, h.Lines(), 2), Head: &h.Head})
		require.Equal(t, found, !r.OK(), "%+v %v", counts, r.Findings)
		if found {
			require.Equal(t, audit.Plan, r.Findings[0].Kind)
			require.EqualValues(t, 4, firstBad(t, r))
		}
	}
}

// A gap in one letter does not explain a gap in another.
func TestTwoGaps(t *testing.T) {
	h := chaintest.Story(t, "A: received; B: received; alert: alert")
	for _, name := range []string{"A", "B"} {
		e := h.Letters[name].Next(chain.Event{Type: chain.TypePayloadRead, Reason: "x", At: h.Now, Actor: "test"})
		e.CaseSeq++
		r, err := h.Head.Seal(e)
		require.NoError(t, err)
		h.Records, h.Head = append(h.Records, r), r.Head()
	}
	r := verify(t, audit.Options{Log: logOf(t, h.Lines(), 2), Head: &h.Head})
	require.EqualValues(t, 4, firstBad(t, r))
	require.EqualValues(t, 2, r.Total, "%v", r.Findings)
	require.Equal(t, audit.Lifecycle, r.Findings[1].Kind)
}

// A broken letter is followed by its links from there on, so that later events are not found wrong for it.
func TestResynchronised(t *testing.T) {
	h := chaintest.Story(t, story)
	lines := h.Lines()
	lines = chaintest.Change(lines, 20)
	lines = chaintest.Remove(lines, 14)
	lines = chaintest.Swap(lines, 8)
	lines = chaintest.Change(lines, 3)
	for _, fast := range []bool{false, true} {
		r := verify(t, audit.Options{Log: logOf(t, lines, 5), Head: &h.Head, Fast: fast})
		var got []string
		for _, f := range r.Findings {
			got = append(got, f.String())
		}
		require.Equal(t, []string{
			"event 3: changed: it is not the event that the next one was written after",
			"event 8: misplaced: events 8 and 9 have changed places",
			"event 14: missing: event 14 does not stand where it belongs",
			"event 20: changed: it is not the event that the next one was written after",
		}, got)
		require.True(t, r.Anchored)
		require.Zero(t, r.Root)
		require.Equal(t, h.Head, r.Head)
	}
}

func TestManyFindings(t *testing.T) {
	h := chaintest.Story(t, "A: received")
	for range 3000 {
		h.Tell("alert: alert")
	}
	var odd [][]byte
	for i, line := range h.Lines() {
		if i%2 == 1 {
			line = chaintest.Change([][]byte{line}, 0)[0]
		}
		odd = append(odd, line)
	}
	r := verify(t, audit.Options{Log: logOf(t, odd, 100), Head: &h.Head})
	require.Len(t, r.Findings, audit.MaxFindings)
	require.EqualValues(t, 1501, r.Total)
	seq, _ := r.FirstBad()
	require.EqualValues(t, 1, seq)
}

func TestNewer(t *testing.T) {
	h := chaintest.Story(t, "A: received; B: received attempt")
	b := h.Letters["B"]
	for name, edit := range map[string]func([]byte) []byte{
		"type": func(line []byte) []byte { return bytes.Replace(line, []byte("payload_read"), []byte("teleported"), 1) },
		"crit": func(line []byte) []byte {
			return bytes.Replace(line, []byte(`"actor"`), []byte(`"crit":["x"],"actor"`), 1)
		},
		"version": func(line []byte) []byte { return bytes.Replace(line, []byte(`{"v":1`), []byte(`{"v":2`), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			lines := forge(t, h, b.Next(chain.Event{Type: chain.TypePayloadRead, Reason: "x"}))
			at := len(lines) - 1
			lines[at] = edit(lines[at])
			head := chain.Head{Size: uint64(at) + 1, Leaf: chain.LeafHash(lines[at])}
			after := b.Next(chain.Event{Type: chain.TypePayloadRead, Reason: "x"})
			after.CaseSeq, after.CasePrev, after.At, after.Actor = after.CaseSeq+1, head.Leaf, h.Now, "test"
			next, err := head.Seal(after)
			require.NoError(t, err)
			lines, head = append(lines, next.Raw), next.Head()

			r := verify(t, audit.Options{Log: logOf(t, lines, 2), Head: &head})
			require.Equal(t, audit.Unchecked, r.Verdict, "%v", r.Findings)
			require.Len(t, r.Findings, 1)
			require.Equal(t, audit.Newer, r.Findings[0].Kind)
			seq, ok := r.FirstBad()
			require.True(t, ok)
			require.EqualValues(t, at, seq)

			changed := chaintest.Change(lines, at)
			r = verify(t, audit.Options{Log: logOf(t, changed, 2), Head: &head})
			require.Equal(t, audit.Tampered, r.Verdict, "newer is no excuse")
			require.EqualValues(t, at, firstBad(t, r))
		})
	}
}

// reader yields what it is told.
type reader struct {
	chain.Reader
	blocks []chain.Block
	err    error
}

func (r reader) Read(context.Context, chain.Position) iter.Seq2[chain.Block, error] {
	return func(yield func(chain.Block, error) bool) {
		for _, b := range r.blocks {
			if !yield(b, nil) {
				return
			}
		}
		if r.err != nil {
			yield(chain.Block{}, r.err)
		}
	}
}

func TestCouldNotRun(t *testing.T) {
	lines := chaintest.Story(t, "A: received").Lines()
	gone := errors.New("gone")
	_, err := audit.Verify(t.Context(), audit.Options{Log: reader{blocks: []chain.Block{{Lines: lines}}, err: gone}})
	require.ErrorIs(t, err, gone)

	r := verify(t, audit.Options{Log: reader{blocks: []chain.Block{{Lines: lines}}, err: chain.ErrFraming}})
	require.EqualValues(t, 2, firstBad(t, r))
	require.Equal(t, audit.Framing, r.Findings[0].Kind)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = audit.Verify(ctx, audit.Options{Log: logOf(t, lines, 1)})
	require.ErrorIs(t, err, context.Canceled)
}

// A reader may use its memory again once the next block is asked for.
func TestReusedMemory(t *testing.T) {
	h := chaintest.Story(t, story)
	lines := chaintest.Change(h.Lines(), 5)
	reused := func(yield func(chain.Block, error) bool) {
		room := make([]byte, chain.MaxEvent)
		for _, line := range lines {
			clear(room)
			if !yield(chain.Block{Lines: [][]byte{room[:copy(room, line)]}}, nil) {
				return
			}
		}
	}
	r := verify(t, audit.Options{Log: seq(reused), Head: &h.Head})
	require.EqualValues(t, 5, firstBad(t, r))
	require.Len(t, r.Findings, 1)
	require.Equal(t, map[chain.Disposition]uint64{chain.Resolved: 4, chain.Poison: 1}, r.Letters)
}

type seq iter.Seq2[chain.Block, error]

func (s seq) Read(context.Context, chain.Position) iter.Seq2[chain.Block, error] {
	return iter.Seq2[chain.Block, error](s)
}
func (s seq) Follow(context.Context, chain.Position) iter.Seq2[chain.Block, error] {
	return iter.Seq2[chain.Block, error](s)
}

func TestProgress(t *testing.T) {
	var told []uint64
	h := chaintest.Story(t, story)
	verify(t, audit.Options{Log: logOf(t, h.Lines(), 3), Progress: func(n uint64) { told = append(told, n) }})
	require.Equal(t, []uint64{h.Head.Size}, told)
}

// mangle makes one random edit.
func mangle(lines [][]byte, rnd *rand.Rand) [][]byte {
	if len(lines) < 2 {
		return lines
	}
	lines = slices.Clone(lines)
	at, other := rnd.IntN(len(lines)), rnd.IntN(len(lines))
	switch rnd.IntN(8) {
	case 0:
		return chaintest.Flip(lines, at, rnd.IntN(len(lines[at])), byte(1<<rnd.IntN(8)))
	case 1:
		return slices.Delete(lines, min(at, other), max(at, other))
	case 2:
		return slices.Insert(lines, at, lines[other])
	case 3:
		lines[at], lines[other] = lines[other], lines[at]
	case 4:
		return slices.Insert(lines, at, lines[min(at, other):max(at, other)]...)
	case 5:
		lines[at] = lines[at][:rnd.IntN(len(lines[at]))+1]
	case 6:
		return lines[:at+1]
	case 7:
		return slices.Insert(lines, at, chaintest.Flip(lines, other, len(lines[other])/2, 1)[other])
	}
	return lines
}

// FuzzVerify makes any edits whatever: with the head at hand, no difference passes, nothing before the first
// difference is blamed but the event it follows, and both modes agree on that.
func FuzzVerify(f *testing.F) {
	h := chaintest.Story(f, story)
	for seed := range uint64(200) {
		f.Add(seed, byte(1+seed%4))
	}
	f.Fuzz(func(t *testing.T, seed uint64, edits byte) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		lines := h.Lines()
		for range edits % 8 {
			lines = mangle(lines, rnd)
		}
		first := 0
		for first < min(len(lines), len(h.Records)) && bytes.Equal(lines[first], h.Records[first].Raw) {
			first++
		}
		for _, fast := range []bool{false, true} {
			var log reader // which takes any bytes for lines
			for lines := range slices.Chunk(lines, 1+rnd.IntN(7)) {
				log.blocks = append(log.blocks, chain.Block{Lines: lines})
			}
			r := verify(t, audit.Options{Log: log, Head: &h.Head, Fast: fast})
			if first == len(h.Records) && len(lines) == first {
				require.True(t, r.OK(), "%v", r.Findings)
				continue
			}
			require.Equal(t, audit.Tampered, r.Verdict, "%v", r.Findings)
			bad, ok := r.FirstBad()
			require.True(t, ok)
			require.GreaterOrEqual(t, bad+1, uint64(first), "%v", r.Findings)
		}
	})
}
