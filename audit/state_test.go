package audit_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/projection"
)

// stateOf folds a log into a file, lets edit change the file, and opens it.
func stateOf(t *testing.T, log chain.Reader, edit func(*bbolt.Tx) error) *projection.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "projection")
	_, err := projection.Rebuild(t.Context(), log, path)
	require.NoError(t, err)
	if edit != nil {
		bolt, err := bbolt.Open(path, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, bolt.Update(edit))
		require.NoError(t, bolt.Close())
	}
	db, err := projection.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// eitherWay compares with and without a fresh fold.
func eitherWay(t *testing.T, check func(t *testing.T, tempDir string)) {
	t.Run("checked", func(t *testing.T) { check(t, "") })
	t.Run("folded anew", func(t *testing.T) { check(t, t.TempDir()) })
}

func TestState(t *testing.T) {
	h := chaintest.Story(t, story)
	log := logOf(t, h.Lines(), 3)
	eitherWay(t, func(t *testing.T, temp string) {
		for _, fast := range []bool{false, true} {
			state := stateOf(t, log, nil)
			r := verify(t, audit.Options{Log: log, State: state, TempDir: temp, Head: &h.Head, Fast: fast})
			require.True(t, r.OK(), "%v", r.Findings)
			require.NotContains(t, strings.Join(r.Notes, "\n"), "projection")
		}
		left, err := filepath.Glob(filepath.Join(temp, "holdfast-*"))
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

func TestStateBehind(t *testing.T) {
	h := chaintest.Story(t, story)
	log := logOf(t, h.Lines(), 4)
	eitherWay(t, func(t *testing.T, temp string) {
		for _, behind := range []int{1, 7, len(h.Records)} {
			state := stateOf(t, logOf(t, h.Lines()[:len(h.Records)-behind], 3), nil)
			r := verify(t, audit.Options{Log: log, State: state, TempDir: temp})
			require.True(t, r.OK(), "%v", r.Findings)
			require.Contains(t, strings.Join(r.Notes, "\n"), "events behind the log")
		}
	})
}

// The projection remembers what was cut off the log.
func TestStateAhead(t *testing.T) {
	h := chaintest.Story(t, story)
	state := stateOf(t, logOf(t, h.Lines(), 4), nil)
	for n := range h.Records {
		r := verify(t, audit.Options{Log: logOf(t, h.Lines()[:n], 3), State: state})
		require.EqualValues(t, n, firstBad(t, r))
		require.Equal(t, audit.Truncated, r.Findings[0].Kind)
	}
}

// The projection tells from where on a history was sealed anew.
func TestStateOfAnotherHistory(t *testing.T) {
	h := chaintest.Story(t, "A: received attempt dead_letter replayed attempt resolved; B: received attempt resolved")
	log := logOf(t, h.Lines(), 3)
	for at := range h.Records {
		if at == 1 || at == 7 {
			continue // the time a letter begins stands in its envelopes too: not a whole history
		}
		state := stateOf(t, logOf(t, chaintest.Rewrite(h.Lines(), at), 4), nil)
		r := verify(t, audit.Options{Log: log, State: state, Head: &h.Head})
		require.EqualValues(t, at, firstBad(t, r))
		require.Equal(t, audit.State, r.Findings[0].Kind)
		require.True(t, r.Anchored, "it is the projection that is wrong")
	}
}

func TestStateChanged(t *testing.T) {
	h := chaintest.Story(t, story)
	log := logOf(t, h.Lines(), 3)
	flip := func(bucket string) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(bucket))
			k, v := b.Cursor().First()
			k, v = slices.Clone(k), slices.Clone(v)
			v[len(v)/2] ^= 1
			return b.Put(k, v)
		}
	}
	eitherWay(t, func(t *testing.T, temp string) {
		for _, bucket := range []string{"letters", "counters", "refs", "hashes"} {
			r := verify(t, audit.Options{Log: log, State: stateOf(t, log, flip(bucket)), TempDir: temp, Head: &h.Head})
			require.Equal(t, audit.Tampered, r.Verdict, bucket)
			require.Len(t, r.Findings, 1, "%s: %v", bucket, r.Findings)
			require.Equal(t, audit.Fold, r.Findings[0].Kind, bucket)
			_, ok := r.FirstBad()
			require.False(t, ok, "no event is blamed")
		}
	})
}

// Where the last link is broken and nothing outside the log is stored, the projection decides.
func TestStateDecides(t *testing.T) {
	h := chaintest.Story(t, story)
	lines := h.Lines()
	state := stateOf(t, logOf(t, lines, 3), nil)
	last := len(lines) - 1
	r := verify(t, audit.Options{Log: logOf(t, relink(lines, last), 3), State: state})
	require.EqualValues(t, last, firstBad(t, r))
	r = verify(t, audit.Options{Log: logOf(t, chaintest.Change(lines, last-1), 3), State: state})
	require.EqualValues(t, last-1, firstBad(t, r))
}
