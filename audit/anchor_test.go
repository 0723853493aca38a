package audit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/chain"
)

const anchorText = "holdfast-head 0102030405060708090a0b0c0d0e0f10 12 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"

func anchor(size uint64, last string) audit.Anchor {
	return audit.Anchor{LogID: "0102030405060708090a0b0c0d0e0f10", Head: chain.Head{Size: size, Leaf: chain.Sum([]byte(last))}}
}

func TestAnchorText(t *testing.T) {
	require.Equal(t, anchorText, anchor(12, "").String())
	for _, text := range []string{anchorText, strings.TrimSuffix(anchorText, "\n")} {
		a, err := audit.ParseAnchor([]byte(text))
		require.NoError(t, err)
		require.Equal(t, anchor(12, ""), a)
	}
	for name, text := range map[string]string{
		"empty": "", "another word": strings.Replace(anchorText, "head", "tail", 1), "two lines": anchorText + anchorText,
		"blank line": anchorText + "\n", "space before": " " + anchorText, "space after": strings.Replace(anchorText, "\n", " \n", 1),
		"two spaces": strings.Replace(anchorText, " 12 ", "  12 ", 1), "carriage return": strings.Replace(anchorText, "\n", "\r\n", 1),
		"no size": strings.Replace(anchorText, " 12", "", 1), "size 0": strings.Replace(anchorText, " 12 ", " 0 ", 1),
		"leading zero": strings.Replace(anchorText, " 12 ", " 012 ", 1), "signed": strings.Replace(anchorText, " 12 ", " +12 ", 1),
		"huge": strings.Replace(anchorText, " 12 ", " 9007199254740992 ", 1), "upper case": strings.Replace(anchorText, "e3b0", "E3B0", 1),
		"short leaf": strings.Replace(anchorText, "b855\n", "b8\n", 1), "log id": strings.Replace(anchorText, " 0102", " \x7f", 1),
		"long": anchorText + strings.Repeat(" ", 1000),
	} {
		_, err := audit.ParseAnchor([]byte(text))
		require.ErrorIs(t, err, audit.ErrAnchor, name)
		require.NotContains(t, err.Error(), "0102", name)
	}
}

func FuzzParseAnchor(f *testing.F) {
	f.Add([]byte(anchorText))
	f.Add([]byte("holdfast-head a 1 "))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := audit.ParseAnchor(text)
		if err != nil {
			require.ErrorIs(t, err, audit.ErrAnchor)
			return
		}
		require.Equal(t, strings.TrimSuffix(string(text), "\n")+"\n", a.String())
	})
}

func TestAnchorFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "head")
	_, err := audit.ReadAnchor(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, anchor(12, "a").Write(path))
	require.NoError(t, anchor(12, "a").Write(path), "the same again")
	require.NoError(t, anchor(13, "b").Write(path))

	another := anchor(99, "b")
	another.LogID = "ff"
	for why, a := range map[string]audit.Anchor{
		"events are gone": anchor(12, "a"), "rewritten": anchor(13, "c"), "another log": another,
	} {
		err := a.Write(path)
		var refused *audit.AnchorError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, audit.AnchorError{Stored: anchor(13, "b"), Given: a}, *refused)
		require.ErrorContains(t, err, why)
	}
	got, err := audit.ReadAnchor(path)
	require.NoError(t, err)
	require.Equal(t, anchor(13, "b"), got)

	require.ErrorIs(t, audit.Anchor{}.Write(path), audit.ErrAnchor)
	require.NoError(t, os.WriteFile(path, []byte("damaged"), 0o600))
	require.ErrorIs(t, anchor(14, "d").Write(path), audit.ErrAnchor, "what cannot be read is not replaced")
	_, err = audit.ReadAnchor(path)
	require.ErrorIs(t, err, audit.ErrAnchor)
	require.ErrorContains(t, err, path)

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left behind")
	require.Error(t, anchor(1, "a").Write(filepath.Join(dir, "none", "head")))
}
