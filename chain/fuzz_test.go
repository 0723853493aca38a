package chain_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/stretchr/testify/require"
)

// FuzzCheck reads arbitrary bytes. What is accepted is JSON to others too, in which they see what we see, and can be
// sealed again without a loss.
func FuzzCheck(f *testing.F) {
	for _, line := range someLines(f) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		given := bytes.Clone(line)
		r, err := chain.Parse(line)
		require.Equal(t, given, line)
		if err != nil {
			require.NotNil(t, breakOf(t, err))
			return
		}
		require.Equal(t, chain.LeafHash(line), r.Leaf)
		theirs := tree(t, line)
		prev, err := chain.ParseDigest(theirs.(map[string]any)["prev"].(string))
		require.NoError(t, err)
		head := chain.Head{Size: r.Seq, Leaf: prev}
		checked, err := head.Check(line)
		if (r.Seq == 0) != (r.Event.Type == chain.TypeGenesis) {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, r, checked)

		if len(line) > chain.MaxEvent-100 {
			return // zeros that the writer adds may not fit
		}
		again := seal(t, head, r.Event)
		require.Equal(t, r.Event, again.Event)
		require.Equal(t, again, seal(t, head, again.Event), "the writer has one way to write an event")
		requireHolds(t, theirs, tree(t, again.Raw))
	})
}

// tree is what encoding/json makes of an event. It fails on a name twice in one object.
func tree(t *testing.T, line []byte) any {
	t.Helper()
	require.True(t, json.Valid(line))
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var read func() any
	read = func() any {
		token, err := d.Token()
		require.NoError(t, err)
		switch token {
		case json.Delim('{'):
			object := map[string]any{}
			for d.More() {
				name, err := d.Token()
				require.NoError(t, err)
				require.NotContains(t, object, name)
				object[name.(string)] = read()
			}
			_, err = d.Token()
			require.NoError(t, err)
			return object
		case json.Delim('['):
			array := []any{}
			for d.More() {
				array = append(array, read())
			}
			_, err = d.Token()
			require.NoError(t, err)
			return array
		}
		return token
	}
	return read()
}

// requireHolds wants everything of sealed in read as well, apart from zeros that the writer always writes.
func requireHolds(t *testing.T, read, sealed any) {
	t.Helper()
	switch sealed := sealed.(type) {
	case map[string]any:
		for name, value := range sealed {
			other, ok := read.(map[string]any)[name]
			if !ok {
				require.Equal(t, json.Number("0"), value, name)
				continue
			}
			requireHolds(t, other, value)
		}
	case []any:
		require.Len(t, read, len(sealed))
		for i := range sealed {
			requireHolds(t, read.([]any)[i], sealed[i])
		}
	default:
		require.Equal(t, read, sealed)
	}
}

// FuzzLetter reads arbitrary bytes as a stored letter: what is read is written, and read again, the same.
func FuzzLetter(f *testing.F) {
	for _, way := range ways {
		l := chaintest.Story(f, "A: "+way.story).Letters["A"]
		text, err := l.AppendText(nil)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := chain.ParseLetter(raw)
		if err != nil {
			require.Equal(t, chain.Letter{}, l)
			return
		}
		text, err := l.AppendText(nil)
		require.NoError(t, err)
		again, err := chain.ParseLetter(text)
		require.NoError(t, err)
		require.Equal(t, l, again)
		repeated, err := again.AppendText(nil)
		require.NoError(t, err)
		require.Equal(t, string(text), string(repeated))
	})
}

// storyWords are what FuzzHistory makes histories of.
var storyWords = []string{
	"received", "attempt", "attempt_alone", "extend", "attempt_lost", "released", "service_died", "resolved", "by_hand",
	"retrying", "dead_letter", "poison", "replayed", "override", "submission", "annotation", "untag", "payload_read",
	"retention", "hold", "unhold", "alert",
}

// FuzzHistory tells one letter any history and checks what holds for a letter whatever happens to it.
func FuzzHistory(f *testing.F) {
	for _, way := range ways {
		f.Add([]byte(way.story))
	}
	f.Add([]byte{0, 1, 9, 1, 10, 12, 1, 6, 2, 11, 13, 1, 7, 10, 8})
	f.Fuzz(func(t *testing.T, choices []byte) {
		h := chaintest.Story(t, "")
		for _, choice := range choices[:min(len(choices), 60)] {
			word := storyWords[int(choice)%len(storyWords)]
			before := h.Letters["A"]
			after, err := before.Apply(h.Would("A", word))
			if err != nil {
				require.Equal(t, before, after)
				continue
			}
			h.Tell("A: " + word)
			require.Equal(t, after, h.Letters["A"])
			require.True(t, after.Disposition.Valid())
			require.Equal(t, before.CaseSize+1, after.CaseSize)
			require.False(t, after.RetainUntil.Before(before.RetainUntil))
			require.False(t, before.Exists() && !after.FirstSeen.Equal(before.FirstSeen))
			require.GreaterOrEqual(t, after.Replays, before.Replays)
			waiting := slices.Contains([]chain.Disposition{chain.Received, chain.Retrying, chain.Replayed}, after.Disposition)
			require.True(t, after.Lease == nil || waiting, "only what waits is leased")
			require.Equal(t, after.Disposition == chain.Retrying, !after.NextAttemptAt.IsZero())
			text, err := after.AppendText(nil)
			require.NoError(t, err)
			back, err := chain.ParseLetter(text)
			require.NoError(t, err)
			require.Equal(t, after, back)
		}
	})
}
