package chain_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/stretchr/testify/require"
)

// goldenLog has every type of event, and every member at least once.
func goldenLog(t *testing.T) []chain.Record {
	var records []chain.Record
	var head chain.Head
	letters := map[chain.Digest]chain.Letter{}
	add := func(ref chain.Digest, e chain.Event) chain.Record {
		t.Helper()
		e.At, e.Actor = start.Add(time.Duration(head.Size)*1500*time.Millisecond+123456*time.Microsecond), "user:1"
		if e.Type.OfLetter() {
			e = letters[ref].Next(e)
		}
		r, err := head.Seal(e)
		require.NoError(t, err, "event %d", head.Size)
		if e.Type.OfLetter() {
			letters[ref], err = letters[ref].Apply(r)
			require.NoError(t, err, "event %d", head.Size)
		}
		records, head = append(records, r), r.Head()
		return r
	}
	a, b := chain.Sum([]byte("payload a")), chain.Sum([]byte("payload b"))
	until, seen := start.AddDate(1, 6, 0), start.Add(1623456*time.Microsecond)
	lease := start.Add(time.Hour)
	errText, record := chain.Sum([]byte("error text")), chain.Sum([]byte("record"))

	add(a, chain.Event{Type: chain.TypeGenesis, Origin: "holdfast.example/golden", LogID: "000102030405060708090a0b0c0d0e0f",
		Keys: []string{"holdfast.example/golden+00000000+AQ==", "holdfast.example/next+00000001+AQ=="}, Software: "holdfast/1"})
	add(a, chain.Event{Type: chain.TypeReceived, PayloadRef: a, BlobVersion: "v1", RetainUntil: until, Size: 9,
		Channel: chain.MobileExport, Source: "fleet:17/app", ContentType: "application/json; charset=utf-8", ContentEncoding: "gzip"})
	add(a, chain.Event{Type: chain.TypeAttempt, Attempt: 1, Worker: "worker:1", LeaseUntil: lease})
	add(a, chain.Event{Type: chain.TypeAttemptLost, Lease: 2, Attempt: 1, Reason: chain.LostService})
	add(a, chain.Event{Type: chain.TypeAttempt, Attempt: 1, Worker: "worker:1", LeaseUntil: lease, Alone: true})
	add(a, chain.Event{Type: chain.TypeRetrying, Lease: 4, Attempt: 1, Blobs: []chain.BlobRef{
		{Ref: errText, BlobVersion: "v2", RetainUntil: until}, {Ref: record}},
		Envelope: &chain.Envelope{PayloadRef: a, Stage: chain.StageDispatch, ErrorClass: chain.Transient,
			ErrorCode: "dispatch.http_503", Attempt: 1, FirstSeen: seen, LastError: "answered \"503\" \\ später\n\u2028\x01\U0001f69b",
			Disposition: chain.Retrying, Channel: chain.MobileExport, Source: "fleet:17/app",
			NextAttemptAt: seen.Add(5 * time.Second), Rule: "classify:1/http", ErrorRef: errText}})
	add(a, chain.Event{Type: chain.TypeSubmission, Channel: chain.OCRDocument, Source: "scanner:1", Size: 9})
	add(a, chain.Event{Type: chain.TypeAttempt, Attempt: 2, Worker: "worker:2", LeaseUntil: lease})
	add(a, chain.Event{Type: chain.TypeAttempt, Lease: 7, Attempt: 2, Worker: "worker:2", LeaseUntil: lease.Add(time.Hour)})
	add(a, chain.Event{Type: chain.TypeResolved, Lease: 7, Attempt: 2, Blobs: []chain.BlobRef{{Ref: record, BlobVersion: "v3", RetainUntil: until}},
		Outcome: chain.AdmitWithWarning, OutcomeCode: "normalize.odometer_missing",
		Findings:      []chain.Finding{{Code: "normalize.odometer_missing", Pointer: "/odometer"}, {Code: "validate.vin_check_digit", Pointer: "/vehicle/vin"}},
		FindingsTotal: 2, Rules: "dvir:1", RecordRef: record, RecordKey: chain.Sum([]byte("key")), RecordVersion: chain.Sum([]byte("version")),
		RecordContent: chain.Sum([]byte("content")), UnitKey: chain.Sum([]byte("unit"))})
	seen = start.Add(15123456 * time.Microsecond)
	add(b, chain.Event{Type: chain.TypeDeadLetter, PayloadRef: b, BlobVersion: "v1", RetainUntil: until, Size: 9, Channel: chain.TelematicsAPI,
		Envelope: &chain.Envelope{PayloadRef: b, Stage: chain.StageParse, ErrorClass: chain.Permanent, ErrorCode: "parse.unclassified",
			Attempt: 3, FirstSeen: seen, Disposition: chain.DeadLetter, Channel: chain.TelematicsAPI, Rule: "classify:1/default"}})
	add(b, chain.Event{Type: chain.TypeAnnotation, Owner: "user:2", Tag: "vendor:x", Note: "asked the vendor"})
	add(b, chain.Event{Type: chain.TypeAnnotation, Tag: "vendor:x", Untag: true})
	add(b, chain.Event{Type: chain.TypePayloadRead, Reason: "to see what is wrong"})
	add(b, chain.Event{Type: chain.TypeReplayPlan, Plan: "plan:1", Reason: "the mapping was fixed"})
	add(b, chain.Event{Type: chain.TypeReplayed, Plan: "plan:1", Reason: "the mapping was fixed", Override: true})
	add(b, chain.Event{Type: chain.TypeReplayCancel, Plan: "plan:1", Reason: "too fast"})
	add(b, chain.Event{Type: chain.TypeAttempt, Attempt: 1, Worker: "worker:1", LeaseUntil: lease})
	add(b, chain.Event{Type: chain.TypePoison, Lease: 17, Attempt: 1, Attributed: true, Evidence: "signal:killed",
		Envelope: &chain.Envelope{PayloadRef: b, Stage: chain.StageNormalize, ErrorClass: chain.Permanent, ErrorCode: "normalize.crashed",
			Attempt: 1, Replays: 1, FirstSeen: seen, LastError: "the child was killed", Disposition: chain.Poison,
			Channel: chain.TelematicsAPI, Rule: "process:1/crash"}})
	add(b, chain.Event{Type: chain.TypeAlert, Reason: "backlog_age"})
	add(b, chain.Event{Type: chain.TypeRetention, RetainUntil: until.AddDate(1, 0, 0), Hold: "on", Reason: "a claim"})
	add(b, chain.Event{Type: chain.TypeResolved, Outcome: chain.ByHand, Reason: "entered by hand"})
	add(b, chain.Event{Type: chain.TypeKeyRotate, Reason: "yearly"})
	add(b, chain.Event{Type: chain.TypeReanchor, Reason: "restored from a copy"})
	return records
}

// goldenPlans has what came to the format with bulk replays.
func goldenPlans(t *testing.T) []chain.Record {
	var records []chain.Record
	var head chain.Head
	letters := map[chain.Digest]chain.Letter{}
	add := func(ref chain.Digest, e chain.Event) {
		t.Helper()
		e.At, e.Actor = start.Add(time.Duration(head.Size)*1500*time.Millisecond+123456*time.Microsecond), "user:1"
		if e.Type.OfLetter() {
			e = letters[ref].Next(e)
		}
		r, err := head.Seal(e)
		require.NoError(t, err, "event %d", head.Size)
		if e.Type.OfLetter() {
			letters[ref], err = letters[ref].Apply(r)
			require.NoError(t, err, "event %d", head.Size)
		}
		records, head = append(records, r), r.Head()
	}
	a := chain.Sum([]byte("payload a"))
	add(a, chain.Event{Type: chain.TypeGenesis, Origin: "holdfast.example/golden", LogID: "000102030405060708090a0b0c0d0e0f"})
	add(a, chain.Event{Type: chain.TypeDeadLetter, PayloadRef: a, BlobVersion: "v1", RetainUntil: start.AddDate(1, 6, 0), Size: 9, Channel: chain.TelematicsAPI,
		Envelope: &chain.Envelope{PayloadRef: a, Stage: chain.StageParse, ErrorClass: chain.Permanent, ErrorCode: "parse.unclassified",
			Attempt: 3, FirstSeen: start, Disposition: chain.DeadLetter, Channel: chain.TelematicsAPI, Rule: "classify:1/default"}})
	terms := &chain.PlanTerms{Filter: "disposition=dead_letter&error_code=parse.unclassified", Snapshot: 2, Expected: 1,
		RateMilli: 500_000, Ramp: true, Targets: []string{"builtin", "warehouse"}}
	add(a, chain.Event{Type: chain.TypeReplayPlan, Plan: "p2", Reason: "the mapping was fixed", Override: true, Worker: "node-1", Terms: terms})
	add(a, chain.Event{Type: chain.TypeReplayPlan, Plan: "p2", Reason: "node-1 is gone", Worker: "node-2"})
	add(a, chain.Event{Type: chain.TypeReplayed, Plan: "p2", Reason: "the mapping was fixed", Override: true})
	add(a, chain.Event{Type: chain.TypeReplayDone, Plan: "p2", Counts: &chain.PlanCounts{Replayed: 1}})
	add(a, chain.Event{Type: chain.TypeReplayPlan, Plan: "p6", Worker: "node-2", Terms: &chain.PlanTerms{Filter: "tag=x", Snapshot: 6, Expected: 10,
		RateMilli: 100, Targets: []string{"builtin"}}})
	add(a, chain.Event{Type: chain.TypeReplayCancel, Plan: "p6", Reason: "too fast", Counts: &chain.PlanCounts{Replayed: 1, Parked: 2, Skipped: 3, Cancelled: 4}})
	return records
}

// The bytes of events are for good. A test that fails here found a change that no released reader would survive.
// The files were written once; nothing writes them anew. What comes to the format later comes to a file of its own.
func TestGolden(t *testing.T) {
	seen := map[chain.Type]bool{}
	for _, g := range []struct {
		file    string
		records []chain.Record
		leaf    string
	}{
		{"golden.jsonl", goldenLog(t), "843e7047e940ff23c70e3db4b609b0db1f2ec7bf5c1216520d958fd928f4dec0"},
		{"golden_plans.jsonl", goldenPlans(t), "8be771e8f015efc7aa6ef2214ae7d495bf2462a79a7d53a291e71ebf80838ff2"},
	} {
		body, err := os.ReadFile("testdata/" + g.file)
		require.NoError(t, err)
		lines, err := chain.SplitLines(bytes.TrimSuffix(body, []byte("\n")))
		require.NoError(t, err)
		require.Len(t, lines, len(g.records))
		var head chain.Head
		for i, line := range lines {
			require.Equal(t, string(line), string(g.records[i].Raw), "event %d", i)
			r, err := head.Check(line)
			require.NoError(t, err)
			require.Equal(t, g.records[i], r)
			head, seen[r.Event.Type] = r.Head(), true
		}
		require.Equal(t, g.leaf, head.Leaf.String())
	}
	for _, typ := range allTypes {
		require.True(t, seen[typ], typ)
	}
}
