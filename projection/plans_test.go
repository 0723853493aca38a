package projection_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/projection"
	"github.com/stretchr/testify/require"
)

// surveyed is what f means at snapshot: members, and letters that are none.
func surveyed(t testing.TB, db *projection.DB, f projection.Filter, snapshot uint64) (members, others []chain.Digest) {
	t.Helper()
	size, err := db.Survey(t.Context(), f, snapshot, func(l *chain.Letter, member bool) {
		if member {
			members = append(members, l.Ref)
		} else {
			others = append(others, l.Ref)
		}
	})
	require.NoError(t, err)
	require.Equal(t, db.Tip().Size, size)
	return members, others
}

// A letter is a member of what was counted if it was meant then, and nobody has moved it since.
func TestMembersAtASnapshot(t *testing.T) {
	s := chaintest.Story(t, "A: dead_letter annotation; B: dead_letter annotation; C: dead_letter; D: dead_letter annotation; E: dead_letter annotation")
	snapshot := s.Head.Size
	s.Tell("B: replayed attempt dead_letter; C: annotation; D: untag; E: payload_read; F: dead_letter annotation")
	db := fresh(t)
	require.NoError(t, db.Apply(blocks(s.Lines(), 3)))
	tag := projection.Filter{Tag: "checked", Dispositions: []chain.Disposition{chain.DeadLetter}}
	ref := chaintest.Ref

	members, others := surveyed(t, db, tag, snapshot)
	require.Equal(t, []chain.Digest{ref("A"), ref("E")}, members)
	require.ElementsMatch(t, []chain.Digest{ref("B"), ref("C"), ref("F")}, others)
	members, others = surveyed(t, db, tag, 0)
	require.Len(t, members, 5)
	require.Empty(t, others)
	members, _ = surveyed(t, db, projection.Filter{ErrorCode: "parse.not_json"}, snapshot)
	require.Equal(t, []chain.Digest{ref("A"), ref("C"), ref("D"), ref("E")}, members)

	var paged []chain.Digest
	for cursor, more := "", true; more; more = cursor != "" {
		page, err := db.Members(tag, snapshot, cursor, 1)
		require.NoError(t, err)
		for _, l := range page.Letters {
			paged = append(paged, l.Ref)
		}
		cursor = page.Next
	}
	require.Equal(t, []chain.Digest{ref("A"), ref("E")}, paged)
	for name, want := range map[string]bool{"A": true, "B": false, "C": false, "E": true, "F": false} {
		l := s.Letters[name]
		meant, err := db.Meant(tag, &l, snapshot)
		require.NoError(t, err)
		require.Equal(t, want, meant, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := db.Survey(ctx, tag, 0, func(*chain.Letter, bool) {})
	require.ErrorIs(t, err, context.Canceled)
}

func TestFilterText(t *testing.T) {
	at := time.Date(2026, 3, 2, 6, 30, 0, 123456789, time.FixedZone("", 3600))
	full := projection.Filter{Dispositions: []chain.Disposition{chain.Retrying, chain.DeadLetter, chain.Retrying}, Stage: chain.StageParse,
		ErrorCode: "parse.json_syntax", Channel: chain.OCRDocument, Source: "fleet:17/app", Owner: "desk-2", Tag: "odd",
		Unit: chain.Sum([]byte("unit")), Since: at, Until: at.Add(time.Hour)}
	text, err := full.Text()
	require.NoError(t, err)
	require.Equal(t, "channel=ocr_document&disposition=dead_letter&disposition=retrying&error_code=parse.json_syntax&owner=desk-2&"+
		"since=2026-03-02T05%3A30%3A00.123456Z&source=fleet%3A17%2Fapp&stage=parse&tag=odd&unit="+full.Unit.String()+"&until=2026-03-02T06%3A30%3A00.123456Z", text)
	again, err := projection.ParseFilter(text)
	require.NoError(t, err)
	same, err := again.Text()
	require.NoError(t, err)
	require.Equal(t, text, same)
	require.True(t, again.Since.Equal(at.Truncate(time.Microsecond)))

	empty, err := projection.Filter{}.Text()
	require.NoError(t, err)
	require.Empty(t, empty)
	for _, f := range []projection.Filter{{Source: "Erika M"}, {Owner: "@"}, {Tag: " "}, {Stage: "x"}, {EndsBefore: at}} {
		_, err := f.Text()
		var wrong *chain.FieldError
		require.ErrorAs(t, err, &wrong)
	}
	for _, text := range []string{"x=1", "tag=a&tag=b", "tag=a%20b", "since=yesterday", "unit=12", "%", "tag=b&owner=a", "disposition=lost"} {
		_, err := projection.ParseFilter(text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), text)
	}
}

// What ParseFilter takes is the one text of what it read.
func FuzzParseFilter(f *testing.F) {
	for _, text := range []string{"", "tag=x", "disposition=dead_letter&disposition=retrying&error_code=parse.json_syntax",
		"since=2026-03-02T05%3A30%3A00.123456Z&until=2026-03-02T05%3A30%3A00Z", "disposition=&tag=%", "unit=00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := projection.ParseFilter(text)
		if err != nil {
			return
		}
		again, err := filter.Text()
		require.NoError(t, err)
		require.Equal(t, text, again)
		filter.Means(&chain.Letter{})
	})
}
