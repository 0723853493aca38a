package chaintest

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience bounds every wait of the suite: what has not come by then does not come. Nothing passes by waiting.
const patience = 30 * time.Second

// TestLog is what every log must do, whatever it is made of. open returns a log that nobody else writes; it may
// hold events already, and the suite then goes on from them.
func TestLog(t *testing.T, open func(t *testing.T) chain.Log) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *writer)
	}{
		{"append and read back", testReadBack},
		{"read from the middle", testMiddle},
		{"bytes are kept", testBytes},
		{"largest block", testLargest},
		{"refused blocks", testRefused},
		{"conflict stores nothing", testConflict},
		{"one of many appenders wins", testRace},
		{"read ends at the tail of the call", testTail},
		{"stopping early", testStop},
		{"cancelled read", testCancelled},
		{"follow", testFollow},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newWriter(t, open(t))) })
	}
}

// writer appends events to the end of a log.
type writer struct {
	log chain.Log
	ctx context.Context
	tip chain.Tip
}

func newWriter(t *testing.T, log chain.Log) *writer {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w := &writer{log: log, ctx: ctx}
	for b, err := range log.Read(ctx, 0) {
		require.NoError(t, err)
		for _, line := range b.Lines {
			w.tip.Head, err = w.tip.Link(line)
			require.NoError(t, err)
		}
		w.tip.Position = b.Position
	}
	return w
}

// lines seals n events after the tip, each with a note of its own.
func (w *writer) lines(t *testing.T, notes ...string) [][]byte {
	var lines [][]byte
	head := w.tip.Head
	for i, note := range notes {
		e := chain.Event{Type: chain.TypeAlert, At: time.Date(2026, 3, 2, 0, 0, i, 0, time.UTC), Actor: "test", Note: note}
		if head.Size == 0 {
			e.Type, e.Origin, e.LogID = chain.TypeGenesis, "holdfast.example/test", "0102030405060708090a0b0c0d0e0f10"
		}
		r, err := head.Seal(e)
		require.NoError(t, err)
		lines, head = append(lines, r.Raw), r.Head()
	}
	return lines
}

// append stores one block of events after the tip and moves the tip.
func (w *writer) append(t *testing.T, notes ...string) chain.Block {
	return w.store(t, w.lines(t, notes...))
}

func (w *writer) store(t *testing.T, lines [][]byte) chain.Block {
	position, err := w.log.Append(w.ctx, w.tip.Position, clone(lines))
	require.NoError(t, err)
	require.Greater(t, position, w.tip.Position, "positions grow")
	w.tip.Position = position
	w.tip.Head = chain.Head{Size: w.tip.Size + uint64(len(lines)), Leaf: chain.LeafHash(lines[len(lines)-1])}
	return chain.Block{Position: position, Lines: lines}
}

func (w *writer) read(t *testing.T, after chain.Position) (blocks []chain.Block) {
	for b, err := range w.log.Read(w.ctx, after) {
		require.NoError(t, err)
		blocks = append(blocks, chain.Block{Position: b.Position, Lines: clone(b.Lines)})
	}
	return blocks
}

func testReadBack(t *testing.T, w *writer) {
	start := w.tip.Position
	want := []chain.Block{w.append(t, "one"), w.append(t, "two", "three"), w.append(t, "four")}
	require.Equal(t, want, w.read(t, start))
	require.Equal(t, want, w.read(t, start), "a second time")
	require.Empty(t, w.read(t, w.tip.Position), "after the tail")
	all := w.read(t, 0)
	require.Equal(t, want, all[len(all)-3:], "from the beginning")
}

func testMiddle(t *testing.T, w *writer) {
	var blocks []chain.Block
	for i := range 10 {
		blocks = append(blocks, w.append(t, strconv.Itoa(i)))
	}
	for i, b := range blocks {
		require.Equal(t, blocks[i+1:], append([]chain.Block{}, w.read(t, b.Position)...))
	}
}

func testBytes(t *testing.T, w *writer) {
	start := w.tip.Position
	want := w.append(t, "Straße, 車両, \U0001f69b", "line\u2028and\u2029and\u0085and\vand\fand\ttab \\ \" / <&>")
	largest := maxEvent(t, w)
	blocks := w.read(t, start)
	require.Equal(t, []chain.Block{want, largest}, blocks)
	require.Len(t, blocks[1].Lines[0], chain.MaxEvent)
}

// maxEvent appends the largest event: one with a member that this version does not know.
func maxEvent(t *testing.T, w *writer) chain.Block {
	return w.store(t, [][]byte{padded(w.lines(t, "large")[0], chain.MaxEvent)})
}

func padded(line []byte, size int) []byte {
	line = append(bytes.TrimSuffix(line, []byte("}")), `,"pad":""}`...)
	pad := strings.Repeat("p", size-len(line))
	return append(bytes.TrimSuffix(line, []byte(`"}`)), pad+`"}`...)
}

func testLargest(t *testing.T, w *writer) {
	start := w.tip.Position
	many := w.append(t, strings.Split(strings.Repeat("x ", chain.MaxBlockEvents-1)+"x", " ")...)
	require.Len(t, many.Lines, chain.MaxBlockEvents)
	size, lines, head := -1, [][]byte{}, w.tip.Head
	for size < chain.MaxBlockBytes {
		line := (&writer{tip: chain.Tip{Head: head}}).lines(t, "big")[0]
		line = padded(line, min(chain.MaxEvent-1000, chain.MaxBlockBytes-size-1))
		lines, size = append(lines, line), size+1+len(line)
		head = chain.Head{Size: head.Size + 1, Leaf: chain.LeafHash(line)}
	}
	require.Len(t, chain.JoinLines(lines), chain.MaxBlockBytes)
	big := w.store(t, lines)
	require.Equal(t, []chain.Block{many, big}, w.read(t, start))
}

func testRefused(t *testing.T, w *writer) {
	line := w.lines(t, "x")[0]
	many := make([][]byte, chain.MaxBlockEvents+1)
	for i := range many {
		many[i] = line
	}
	for name, lines := range map[string][][]byte{
		"nil": nil, "no lines": {}, "an empty line": {line, {}}, "a newline": {append(bytes.Clone(line), '\n')}, "too many": many,
	} {
		_, err := w.log.Append(w.ctx, w.tip.Position, lines)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, chain.ErrConflict, name)
		require.NotErrorIs(t, err, chain.ErrUnknown, "%s: nothing was sent, and that is known", name)
	}
	require.Empty(t, w.read(t, w.tip.Position))
	w.append(t, "and goes on")
}

func testConflict(t *testing.T, w *writer) {
	start := w.tip.Position
	first := w.append(t, "first")
	second := w.append(t, "second")
	for _, prev := range []chain.Position{start, first.Position, second.Position + 1, second.Position + 1000} {
		position, err := w.log.Append(w.ctx, prev, w.lines(t, "loser", "loser"))
		require.ErrorIs(t, err, chain.ErrConflict, "prev %d of %d", prev, second.Position)
		require.NotErrorIs(t, err, chain.ErrUnknown)
		require.Zero(t, position)
	}
	require.Equal(t, []chain.Block{first, second}, w.read(t, start))
	third := w.append(t, "third")
	require.Equal(t, []chain.Block{third}, w.read(t, second.Position))
}

func testRace(t *testing.T, w *writer) {
	const rounds, rivals = 8, 6
	w.append(t, "before the race")
	start := w.tip
	var want []chain.Block
	for round := range rounds {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var won []chain.Block
		prev := w.tip.Position
		for rival := range rivals {
			lines := w.lines(t, "round "+strconv.Itoa(round), "rival "+strconv.Itoa(rival))
			wg.Go(func() {
				position, err := w.log.Append(w.ctx, prev, lines)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, chain.Block{Position: position, Lines: lines})
				} else {
					assert.ErrorIs(t, err, chain.ErrConflict)
				}
			})
		}
		wg.Wait()
		require.Len(t, won, 1, "exactly one block follows position %d", prev)
		want = append(want, won[0])
		w.tip.Position = won[0].Position
		w.tip.Head = chain.Head{Size: w.tip.Size + 2, Leaf: chain.LeafHash(won[0].Lines[1])}
	}
	require.Equal(t, want, w.read(t, start.Position))
}

func testTail(t *testing.T, w *writer) {
	start := w.tip.Position
	for i := range 5 {
		w.append(t, strconv.Itoa(i))
	}
	seen := 0
	for _, err := range w.log.Read(w.ctx, start) {
		require.NoError(t, err)
		seen++
		w.append(t, "while reading")
	}
	require.Equal(t, 5, seen)
}

func testStop(t *testing.T, w *writer) {
	start := w.tip.Position
	first := w.append(t, "first")
	w.append(t, "second")
	for range 100 {
		for b, err := range w.log.Read(w.ctx, start) {
			require.NoError(t, err)
			require.Equal(t, first.Position, b.Position)
			break
		}
		for b, err := range w.log.Follow(w.ctx, start) {
			require.NoError(t, err)
			require.Equal(t, first.Position, b.Position)
			break
		}
	}
	require.Len(t, w.read(t, start), 2, "the log still serves")
	w.append(t, "third")
}

func testCancelled(t *testing.T, w *writer) {
	w.append(t, "one")
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	errs := 0
	for _, err := range w.log.Read(ctx, w.tip.Position-1) {
		require.ErrorIs(t, err, context.Canceled)
		errs++
	}
	require.Equal(t, 1, errs, "an error ends the sequence")
}

func testFollow(t *testing.T, w *writer) {
	start := w.tip.Position
	want := []chain.Block{w.append(t, "before"), w.append(t, "before", "two")}
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	blocks, end := make(chan chain.Block), make(chan error, 1)
	go func() {
		defer close(blocks)
		for b, err := range w.log.Follow(ctx, start) {
			if err != nil {
				end <- err
				continue
			}
			blocks <- chain.Block{Position: b.Position, Lines: clone(b.Lines)}
		}
	}()
	require.Equal(t, want[0], <-blocks)
	require.Equal(t, want[1], <-blocks)
	for i := range 20 {
		later := w.append(t, "later "+strconv.Itoa(i))
		require.Equal(t, later, <-blocks)
	}
	a, b := w.append(t, "a"), w.append(t, "b")
	require.Equal(t, a, <-blocks, "in order")
	require.Equal(t, b, <-blocks)
	cancel()
	_, more := <-blocks
	require.False(t, more)
	require.ErrorIs(t, <-end, context.Canceled, "ends with the context's error")
}
