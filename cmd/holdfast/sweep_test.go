package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/projection"
)

// folded is the state after a history.
func folded(t *testing.T, h *chaintest.History) *projection.DB {
	t.Helper()
	log := &chaintest.Log{}
	h.AppendTo(log, 500)
	state, err := projection.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, state.Close()) })
	require.NoError(t, state.CatchUp(t.Context(), log))
	return state
}

// TestExpiring: closed and held letters do not count, and the earliest date is not that of the oldest letter.
func TestExpiring(t *testing.T) {
	h := chaintest.Story(t, "A: received retention; B: received; C: received hold; D: received attempt resolved; E: dead_letter; F: poison")
	state := folded(t, h)
	first := h.Letters["B"].RetainUntil
	require.True(t, h.Letters["A"].RetainUntil.After(first))
	count, at, err := expiring(state, first)
	require.NoError(t, err)
	assert.Zero(t, count, "protected until then")
	assert.Zero(t, at)
	count, at, err = expiring(state, h.Letters["A"].RetainUntil.Add(time.Second))
	require.NoError(t, err)
	assert.Equal(t, 4, count)
	assert.Equal(t, first, at)
}

// TestExpiringIsBounded: a sweep does not count forever.
func TestExpiringIsBounded(t *testing.T) {
	h := chaintest.Story(t, "")
	for i := range sweepMost + 1 {
		h.Tell(fmt.Sprintf("%d: received", i))
	}
	count, first, err := expiring(folded(t, h), h.Now.AddDate(10, 0, 0))
	require.NoError(t, err)
	assert.Equal(t, sweepMost, count)
	assert.Equal(t, h.Letters["0"].RetainUntil, first)
}

// TestSweep: nothing is said before the time, one line a day from then on, and nothing at all if it is switched off.
func TestSweep(t *testing.T) {
	h := chaintest.Story(t, "A: received; B: received; C: received hold")
	state := folded(t, h)
	for days, begin := range map[int]int{0: 1, 30: -32} { // begin: days from when the first protection ends
		synctest.Test(t, func(t *testing.T) {
			var said bytes.Buffer
			s := &service{state: state, log: slog.New(slog.NewJSONHandler(&said, nil))}
			s.cfg.ExpiryWarning = days
			ends := h.Letters["A"].RetainUntil
			time.Sleep(time.Until(ends.AddDate(0, 0, begin)))
			ctx, stop := context.WithTimeout(t.Context(), 6*sweepEvery-time.Hour)
			defer stop()
			assert.ErrorIs(t, s.sweep(ctx), context.DeadlineExceeded)
			if days == 0 {
				assert.Empty(t, said.String())
				return
			}
			lines := strings.Split(strings.TrimSpace(said.String()), "\n")
			assert.Len(t, lines, 3, "on days 3, 4 and 5 after the first look: %s", said.String())
			for _, line := range lines {
				assert.Contains(t, line, `"level":"WARN"`)
				assert.Contains(t, line, `"letters":2,"at_least":false,"first":"`+ends.Format(time.RFC3339))
				assert.Contains(t, line, `"within_days":30`)
			}
		})
	}
}
