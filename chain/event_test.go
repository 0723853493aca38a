package chain_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 3, 2, 6, 30, 0, 0, time.UTC)

var genesisEvent = chain.Event{Type: chain.TypeGenesis, At: start, Actor: "test", Origin: "holdfast.example/test", LogID: "00"}

func seal(t testing.TB, h chain.Head, e chain.Event) chain.Record {
	t.Helper()
	r, err := h.Seal(e)
	require.NoError(t, err)
	return r
}

// following is a head that is not the beginning of a log.
var following = chain.Head{Size: 7, Leaf: chain.Sum([]byte("before"))}

func receivedEvent() chain.Event {
	return chain.Event{
		Type: chain.TypeReceived, At: start, Actor: "test", PayloadRef: chaintest.Ref("A"), BlobVersion: "1",
		RetainUntil: start.AddDate(1, 6, 0), Size: 14, Channel: chain.TelematicsAPI, Source: "fleet:1",
	}
}

func failedEvent() chain.Event {
	e := receivedEvent()
	e.Type, e.Envelope = chain.TypeDeadLetter, &chain.Envelope{
		PayloadRef: e.PayloadRef, Stage: chain.StageParse, ErrorClass: chain.Permanent, ErrorCode: "parse.not_json",
		Attempt: 1, FirstSeen: start, LastError: "the payload is not JSON", Disposition: chain.DeadLetter,
		Channel: chain.TelematicsAPI, Source: "fleet:1", Rule: "classify:1",
	}
	return e
}

func retryEvent() chain.Event {
	e := failedEvent()
	e.Type = chain.TypeRetrying
	e.Envelope.ErrorClass, e.Envelope.Disposition = chain.Transient, chain.Retrying
	e.Envelope.NextAttemptAt = start.Add(time.Second)
	return e
}

func TestEventValidate(t *testing.T) {
	long := strings.Repeat("ä", 501)
	for _, c := range []struct {
		name, field string
		event       func() chain.Event
		change      func(*chain.Event)
	}{
		{"no type", "type", receivedEvent, func(e *chain.Event) { e.Type = "" }},
		{"no time", "at", receivedEvent, func(e *chain.Event) { e.At = time.Time{} }},
		{"no actor", "actor", receivedEvent, func(e *chain.Event) { e.Actor = "" }},
		{"name as actor", "actor", receivedEvent, func(e *chain.Event) { e.Actor = "Jo Driver" }},
		{"mail as actor", "actor", receivedEvent, func(e *chain.Event) { e.Actor = "jo@example.com" }},
		{"no ref", "payload_ref", receivedEvent, func(e *chain.Event) { e.PayloadRef = chain.Digest{} }},
		{"no place", "blob_version", receivedEvent, func(e *chain.Event) { e.BlobVersion = "" }},
		{"no retention", "blob_version", receivedEvent, func(e *chain.Event) { e.RetainUntil = time.Time{} }},
		{"long version", "blob_version", receivedEvent, func(e *chain.Event) { e.BlobVersion = strings.Repeat("x", 201) }},
		{"case link in the first", "case_prev", receivedEvent, func(e *chain.Event) { e.CasePrev = chain.Sum(nil) }},
		{"no case link later", "case_prev", receivedEvent, func(e *chain.Event) { e.CaseSeq = 1 }},
		{"other channel", "channel", receivedEvent, func(e *chain.Event) { e.Channel = "fax" }},
		{"free source", "source", receivedEvent, func(e *chain.Event) { e.Source = "Truck 12" }},
		{"long content type", "content_type", receivedEvent, func(e *chain.Event) { e.ContentType = strings.Repeat("x", 201) }},
		{"long content encoding", "content_encoding", receivedEvent, func(e *chain.Event) { e.ContentEncoding = strings.Repeat("x", 201) }},
		{"envelope of a receipt", "envelope", failedEvent, func(e *chain.Event) { e.Type = chain.TypeReceived }},
		{"failure without envelope", "envelope", failedEvent, func(e *chain.Event) { e.Envelope = nil }},
		{"envelope of another payload", "envelope", failedEvent, func(e *chain.Event) { e.Envelope.PayloadRef = chaintest.Ref("B") }},
		{"envelope of another disposition", "envelope", failedEvent, func(e *chain.Event) { e.Envelope.Disposition = chain.Poison }},
		{"bad envelope", "envelope.attempt", failedEvent, func(e *chain.Event) { e.Envelope.Attempt = 0 }},
		{"resolved without outcome", "outcome", receivedEvent, func(e *chain.Event) { e.Type = chain.TypeResolved }},
		{"resolved as exception", "outcome", receivedEvent, func(e *chain.Event) { e.Type, e.Outcome = chain.TypeResolved, chain.Exception }},
		{"attempt without worker", "attempt", receivedEvent, func(e *chain.Event) { e.Type, e.Attempt, e.LeaseUntil = chain.TypeAttempt, 1, start }},
		{"attempt without end", "attempt", receivedEvent, func(e *chain.Event) { e.Type, e.Attempt, e.Worker = chain.TypeAttempt, 1, "w" }},
		{"attempt without number", "attempt", receivedEvent, func(e *chain.Event) { e.Type, e.Worker, e.LeaseUntil = chain.TypeAttempt, "w", start }},
		{"hold of a receipt", "hold", receivedEvent, func(e *chain.Event) { e.Hold = "on" }},
		{"other hold", "hold", receivedEvent, func(e *chain.Event) { e.Type, e.Hold = chain.TypeRetention, "yes" }},
		{"free worker", "worker", receivedEvent, func(e *chain.Event) { e.Worker = "a b" }},
		{"free evidence", "evidence", receivedEvent, func(e *chain.Event) { e.Evidence = "signal: killed" }},
		{"free tag", "tag", receivedEvent, func(e *chain.Event) { e.Tag = "#1" }},
		{"long owner", "owner", receivedEvent, func(e *chain.Event) { e.Owner = strings.Repeat("x", 81) }},
		{"long reason", "reason", receivedEvent, func(e *chain.Event) { e.Reason = long }},
		{"long note", "note", receivedEvent, func(e *chain.Event) { e.Note = long }},
		{"more findings than counted", "findings", receivedEvent, func(e *chain.Event) { e.Findings = []chain.Finding{{Code: "a"}} }},
		{"too many findings", "findings", receivedEvent, func(e *chain.Event) {
			e.Findings, e.FindingsTotal = make([]chain.Finding, 49), 49
		}},
		{"finding without code", "findings", receivedEvent, func(e *chain.Event) { e.Findings, e.FindingsTotal = []chain.Finding{{Pointer: "/a"}}, 1 }},
		{"free pointer", "findings", receivedEvent, func(e *chain.Event) {
			e.Findings, e.FindingsTotal = []chain.Finding{{Code: "a", Pointer: "/Jo Driver"}}, 1
		}},
		{"pointer without slash", "findings", receivedEvent, func(e *chain.Event) {
			e.Findings, e.FindingsTotal = []chain.Finding{{Code: "a", Pointer: "a"}}, 1
		}},
		{"long pointer", "findings", receivedEvent, func(e *chain.Event) {
			e.Findings, e.FindingsTotal = []chain.Finding{{Code: "a", Pointer: "/" + strings.Repeat("x", 200)}}, 1
		}},
		{"blob without ref", "blobs", receivedEvent, func(e *chain.Event) { e.Blobs = []chain.BlobRef{{BlobVersion: "1"}} }},
		{"log without name", "origin", func() chain.Event { return genesisEvent }, func(e *chain.Event) { e.Origin = "" }},
		{"log without id", "origin", func() chain.Event { return genesisEvent }, func(e *chain.Event) { e.LogID = "" }},
		{"long origin", "origin", func() chain.Event { return genesisEvent }, func(e *chain.Event) { e.Origin = strings.Repeat("x", 201) }},
		{"empty key", "keys", func() chain.Event { return genesisEvent }, func(e *chain.Event) { e.Keys = []string{""} }},
		{"unknown crit", "crit", receivedEvent, func(e *chain.Event) { e.Crit = []string{"x"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := c.event()
			require.NoError(t, e.Validate())
			c.change(&e)
			var field *chain.FieldError
			require.ErrorAs(t, e.Validate(), &field)
			require.Equal(t, c.field, field.Field)
			_, err := following.Seal(e)
			require.Error(t, err, "what is not valid is not written")
		})
	}
}

func TestEnvelopeValidate(t *testing.T) {
	for _, c := range []struct {
		name, field string
		change      func(*chain.Envelope)
	}{
		{"no ref", "payload_ref", func(e *chain.Envelope) { e.PayloadRef = chain.Digest{} }},
		{"no stage", "stage", func(e *chain.Envelope) { e.Stage = "" }},
		{"other stage", "stage", func(e *chain.Envelope) { e.Stage, e.ErrorCode = "print", "print.jam" }},
		{"no class", "error_class", func(e *chain.Envelope) { e.ErrorClass = "" }},
		{"other class", "error_class", func(e *chain.Envelope) { e.ErrorClass = "odd" }},
		{"no code", "error_code", func(e *chain.Envelope) { e.ErrorCode = "" }},
		{"code of another stage", "error_code", func(e *chain.Envelope) { e.ErrorCode = "ingest.not_json" }},
		{"code without symbol", "error_code", func(e *chain.Envelope) { e.ErrorCode = "parse." }},
		{"code without stage", "error_code", func(e *chain.Envelope) { e.ErrorCode = "not_json" }},
		{"code in upper case", "error_code", func(e *chain.Envelope) { e.ErrorCode = "parse.notJSON" }},
		{"code with two dots", "error_code", func(e *chain.Envelope) { e.ErrorCode = "parse.not.json" }},
		{"code from a digit", "error_code", func(e *chain.Envelope) { e.ErrorCode = "parse.1st" }},
		{"long code", "error_code", func(e *chain.Envelope) { e.ErrorCode = "parse." + strings.Repeat("x", 80) }},
		{"attempt 0", "attempt", func(e *chain.Envelope) { e.Attempt = 0 }},
		{"never seen", "first_seen", func(e *chain.Envelope) { e.FirstSeen = time.Time{} }},
		{"long error", "last_error", func(e *chain.Envelope) { e.LastError = strings.Repeat("ä", 501) }},
		{"no disposition", "disposition", func(e *chain.Envelope) { e.Disposition = "" }},
		{"received", "disposition", func(e *chain.Envelope) { e.Disposition = chain.Received }},
		{"resolved", "disposition", func(e *chain.Envelope) { e.Disposition = chain.Resolved }},
		{"transient dead letter", "error_class", func(e *chain.Envelope) { e.ErrorClass = chain.Transient }},
		{"permanent retry", "error_class", func(e *chain.Envelope) { e.Disposition, e.NextAttemptAt = chain.Retrying, start }},
		{"retry without time", "next_attempt_at", func(e *chain.Envelope) { e.Disposition, e.ErrorClass = chain.Retrying, chain.Transient }},
		{"dead letter with time", "next_attempt_at", func(e *chain.Envelope) { e.NextAttemptAt = start }},
		{"no channel", "channel", func(e *chain.Envelope) { e.Channel = "" }},
		{"free source", "source", func(e *chain.Envelope) { e.Source = "Truck 12" }},
		{"no rule", "rule", func(e *chain.Envelope) { e.Rule = "" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := failedEvent()
			require.NoError(t, e.Envelope.Validate())
			c.change(e.Envelope)
			var field *chain.FieldError
			require.ErrorAs(t, e.Envelope.Validate(), &field)
			require.Equal(t, c.field, field.Field)
			require.ErrorAs(t, e.Validate(), &field)
			require.True(t, strings.HasPrefix(field.Field, "envelope"), field.Field)
		})
	}
	e := failedEvent()
	e.Envelope.LastError = strings.Repeat("ä", 500)
	e.Envelope.Source = ""
	require.NoError(t, e.Validate(), "characters are counted, not bytes, and a source may be unknown")
}

// The rules bind readers as they bind writers: a stored event that breaks one is a finding.
func TestReadValidates(t *testing.T) {
	good := string(seal(t, following, retryEvent()).Raw)
	for name, c := range map[string]struct{ from, to, field string }{
		"stage":             {`"stage":"parse"`, `"stage":"print"`, "envelope.stage"},
		"attempt":           {`"attempt":1`, `"attempt":0`, "envelope.attempt"},
		"no replays":        {`"replays":0,`, ``, ""}, // absent is zero
		"kind of a text":    {`"stage":"parse"`, `"stage":1`, "envelope.stage"},
		"kind of a number":  {`"replays":0`, `"replays":"0"`, "envelope.replays"},
		"kind of an object": {`"envelope":{`, `"envelope":"x","other":{`, "envelope"},
		"kind of an array":  {`"size":14`, `"size":14,"findings":{}`, "findings"},
		"kind of an item":   {`"size":14`, `"size":14,"findings":[1]`, "findings"},
		"kind in an item":   {`"size":14`, `"size":14,"findings":[{"code":1}],"findings_total":1`, "findings.code"},
		"kind of a flag":    {`"size":14`, `"size":14,"alone":1`, "alone"},
		"kind of crit":      {`"size":14`, `"size":14,"crit":[1]`, "crit"},
		"digest":            {`"size":14`, `"size":14,"record_ref":"00"`, "record_ref"},
		"upper-case digest": {`"size":14`, `"size":14,"record_ref":"` + strings.Repeat("A", 64) + `"`, "record_ref"},
		"type missing":      {`"type":"retrying",`, ``, "type"},
		"type empty":        {`"type":"retrying"`, `"type":""`, "type"},
		"type a number":     {`"type":"retrying"`, `"type":1`, "type"},
		"actor missing":     {`"actor":"test",`, ``, "actor"},
		"five digits":       {`06:30:00.000000Z"`, `06:30:00.00000Z"`, "at"},
		"seven digits":      {`06:30:00.000000Z"`, `06:30:00.0000000Z"`, "at"},
		"no fraction":       {`06:30:00.000000Z"`, `06:30:00Z"`, "at"},
		"comma":             {`06:30:00.000000Z"`, `06:30:00,000000Z"`, "at"},
		"offset":            {`06:30:00.000000Z"`, `06:30:00.000+00:00"`, "at"},
		"small z":           {`06:30:00.000000Z"`, `06:30:00.000000z"`, "at"},
		"small t":           {`2026-03-02T06`, `2026-03-02t06`, "at"},
		"February 30":       {`2026-03-02`, `2026-02-30`, "at"},
		"February 29":       {`2026-03-02`, `2026-02-29`, "at"},
		"month 13":          {`2026-03-02`, `2026-13-02`, "at"},
		"month 0":           {`2026-03-02`, `2026-00-02`, "at"},
		"day 0":             {`2026-03-02`, `2026-03-00`, "at"},
		"day 32":            {`2026-03-02`, `2026-03-32`, "at"},
		"hour 24":           {`T06:30:00`, `T24:30:00`, "at"},
		"minute 60":         {`T06:30:00`, `T06:60:00`, "at"},
		"leap second":       {`T06:30:00`, `T23:59:60`, "at"},
		"letter in a year":  {`2026-03-02`, `2O26-03-02`, "at"},
		"sign in a year":    {`2026-03-02`, `-026-03-02`, "at"},
		"escaped digit":     {`"2026-03-02T06`, `"\u0032026-03-02T06`, "at"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, good, c.from)
			bad := strings.Replace(good, c.from, c.to, 1)
			_, err := following.Check([]byte(bad))
			if c.field == "" {
				require.NoError(t, err)
				return
			}
			var field *chain.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, c.field, field.Field, "%v", err)
			require.Equal(t, chain.BreakField, breakOf(t, err).Kind)
		})
	}
	leap := strings.Replace(good, "2026-03-02", "2028-02-29", 1)
	_, err := following.Check([]byte(leap))
	require.NoError(t, err)
}

// Seal gives the event as a reader will see it, whatever clocks and zones the writer has.
func TestSealReadsBack(t *testing.T) {
	zone := time.FixedZone("here", -5*3600)
	at := time.Date(2026, 3, 2, 1, 30, 0, 123456789, zone)
	e := retryEvent()
	e.At, e.RetainUntil, e.Envelope.FirstSeen, e.Envelope.NextAttemptAt = at, at.AddDate(1, 6, 0), at, at.Add(time.Second)
	e.Blobs = []chain.BlobRef{{Ref: chain.Sum([]byte("error")), BlobVersion: "1", RetainUntil: at.AddDate(1, 6, 0)}}
	e.Note, e.Reason = "\"quoted\" \\ <b>&\u2028\x00\x1f\x7f\n", "車両 \U0001f69b"
	given := *e.Envelope
	r := seal(t, following, e)
	require.Equal(t, given, *e.Envelope, "the caller's envelope is left alone")
	back, err := following.Check(r.Raw)
	require.NoError(t, err)
	require.Equal(t, back, r)
	require.Equal(t, time.Date(2026, 3, 2, 6, 30, 0, 123456000, time.UTC), r.Event.At)
	require.Equal(t, chain.Instant(at), r.Event.Envelope.FirstSeen)
	require.Equal(t, e.Note, r.Event.Note)
	require.Equal(t, e.Reason, r.Event.Reason)
	require.Contains(t, string(r.Raw), `"first_seen":"2026-03-02T06:30:00.123456Z"`)
	again := seal(t, following, r.Event)
	require.Equal(t, r, again)
	r.Event.Envelope.Attempt = 9
	require.Equal(t, given, *e.Envelope, "and not shared")
}

func TestSealRefuses(t *testing.T) {
	for name, change := range map[string]func(*chain.Event){
		"invalid UTF-8":        func(e *chain.Event) { e.Note = "a\xffb" },
		"surrogate":            func(e *chain.Event) { e.Note = "\xed\xa0\x80" },
		"invalid in a list":    func(e *chain.Event) { e.Envelope.LastError = "\xff" },
		"2^53":                 func(e *chain.Event) { e.Size = 1 << 53 },
		"year 10000":           func(e *chain.Event) { e.RetainUntil = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"year before 0":        func(e *chain.Event) { e.RetainUntil = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) },
		"more than 32 KiB":     func(e *chain.Event) { e.Blobs = make([]chain.BlobRef, 400); fill(e.Blobs) },
		"genesis in the midst": func(e *chain.Event) { *e = genesisEvent },
	} {
		t.Run(name, func(t *testing.T) {
			e := failedEvent()
			change(&e)
			_, err := following.Seal(e)
			require.Error(t, err)
			_, field := errors.AsType[*chain.FieldError](err)
			_, grammar := errors.AsType[*chain.GrammarError](err)
			require.True(t, field || grammar, "%T %v", err, err)
		})
	}
}

func fill(blobs []chain.BlobRef) {
	for i := range blobs {
		blobs[i] = chain.BlobRef{Ref: chain.Sum([]byte{byte(i)}), BlobVersion: "1", RetainUntil: start}
	}
}

func TestDigest(t *testing.T) {
	d := chain.Sum([]byte("abc")) // FIPS 180-4
	require.Equal(t, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", d.String())
	back, err := chain.ParseDigest(d.String())
	require.NoError(t, err)
	require.Equal(t, d, back)
	for _, bad := range []string{"", "ba", strings.ToUpper(d.String()), d.String() + "0", d.String()[1:] + "g", d.String()[1:] + "\xff", " " + d.String()[1:]} {
		back, err := chain.ParseDigest(bad)
		require.ErrorIs(t, err, chain.ErrDigest)
		require.True(t, back.IsZero())
	}
	text, err := d.MarshalText()
	require.NoError(t, err)
	var u chain.Digest
	require.NoError(t, u.UnmarshalText(text))
	require.Equal(t, d, u)
	require.ErrorIs(t, u.UnmarshalText([]byte("x")), chain.ErrDigest)
}

func TestTokensAndCodes(t *testing.T) {
	for _, s := range []string{"a", "A9", "0", "user:a.b_c/d-e", strings.Repeat("x", 80)} {
		require.True(t, chain.ValidToken(s), s)
	}
	for _, s := range []string{"", ".a", "-a", "_a", "/a", ":a", "a b", "a@b", "ä", "a\n", "a\x00", "a,b", strings.Repeat("x", 81)} {
		require.False(t, chain.ValidToken(s), s)
	}
	for _, s := range chain.Stages {
		require.True(t, chain.ValidCode(string(s)+".unclassified"))
	}
	require.True(t, chain.ValidCode("parse.a_1"))
	for _, s := range []string{"", "parse", ".x", "parse._x", "parse.X", "print.x", "parse.a-b"} {
		require.False(t, chain.ValidCode(s), s)
	}
}

// The switches behind Valid and the lists beside them hold the same words.
func TestVocabularies(t *testing.T) {
	require.Len(t, chain.Dispositions, 6)
	for _, d := range chain.Dispositions {
		require.True(t, d.Valid())
		require.Equal(t, d, chain.Type(d).Disposition())
		require.Equal(t, d != chain.Resolved, d.Open())
	}
	for _, s := range chain.Stages {
		require.True(t, s.Valid())
	}
	for _, c := range chain.Channels {
		require.True(t, c.Valid())
	}
	require.False(t, chain.Disposition("").Valid())
	require.False(t, chain.Stage("").Valid())
	require.False(t, chain.Channel("").Valid())
	require.Empty(t, chain.TypeAttempt.Disposition())
}
