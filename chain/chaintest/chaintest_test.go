package chaintest_test

import (
	"errors"
	"testing"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/stretchr/testify/require"
)

func TestLog(t *testing.T) {
	chaintest.TestLog(t, func(t *testing.T) chain.Log { return new(chaintest.Log) })
	t.Run("with events", func(t *testing.T) {
		chaintest.TestLog(t, func(t *testing.T) chain.Log {
			log := new(chaintest.Log)
			chaintest.Story(t, "A: received attempt resolved").AppendTo(log, 2)
			return log
		})
	})
}

func TestLogFail(t *testing.T) {
	log := new(chaintest.Log)
	lines := chaintest.Story(t, "").Lines()
	timeout := errors.New("timeout")
	for _, c := range []struct {
		stored bool
		err    error
		want   error
		size   int
	}{
		{false, timeout, chain.ErrUnknown, 0},
		{false, chain.ErrConflict, chain.ErrConflict, 0},
		{true, timeout, chain.ErrUnknown, 1},
		{true, timeout, chain.ErrUnknown, 1}, // not at the tail any more
		{false, nil, chain.ErrConflict, 1},
	} {
		log.Fail = func([][]byte) (bool, error) { return c.stored, c.err }
		_, err := log.Append(t.Context(), 0, lines)
		require.ErrorIs(t, err, c.want)
		require.Len(t, log.Lines(), c.size)
	}
}

func TestStory(t *testing.T) {
	h := chaintest.Story(t, "A: received attempt dead_letter; B: retrying attempt resolved alert; A: replayed attempt resolved")
	require.Equal(t, chain.Resolved, h.Letters["A"].Disposition)
	require.Equal(t, uint64(6), h.Letters["A"].CaseSize)
	require.Equal(t, chain.Resolved, h.Letters["B"].Disposition)
	require.Equal(t, h.Lines(), chaintest.Story(t, "A: received attempt dead_letter; B: retrying attempt resolved alert; A: replayed attempt resolved").Lines())
	head := chain.Head{}
	for i, line := range h.Lines() {
		r, err := head.Check(line)
		require.NoError(t, err)
		require.Equal(t, h.Records[i], r)
		head = r.Head()
	}
	log := new(chaintest.Log)
	tip := h.AppendTo(log, 4)
	require.Equal(t, h.Lines(), log.Lines())
	require.Equal(t, chain.Tip{Head: h.Head, Position: 3}, tip)
}

func TestTampers(t *testing.T) {
	h := chaintest.Story(t, "A: received attempt dead_letter replayed attempt resolved; B: received attempt retrying")
	lines := h.Lines()
	firstBad := func(lines [][]byte) (int, chain.Head) {
		head := chain.Head{}
		for i, line := range lines {
			r, err := head.Check(line)
			if err != nil {
				return i, head
			}
			head = r.Head()
		}
		return -1, head
	}
	for _, tamper := range chaintest.Tampers {
		for at := 1; at < len(lines)-1; at++ {
			bad, _ := firstBad(tamper.Do(lines, at))
			require.Equal(t, at+tamper.Late, bad, "%s at %d", tamper.Name, at)
		}
	}
	for at := 1; at < len(lines); at++ {
		bad, head := firstBad(chaintest.Rewrite(lines, at))
		require.Equal(t, -1, bad)
		require.Equal(t, h.Head.Size, head.Size)
		require.NotEqual(t, h.Head.Leaf, head.Leaf)
		bad, head = firstBad(chaintest.Cut(lines, at))
		require.Equal(t, -1, bad)
		require.Equal(t, uint64(at), head.Size)
	}
	require.Equal(t, h.Lines(), lines, "tampering works on copies")
}
