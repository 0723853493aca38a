package chaintest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/stretchr/testify/require"
)

// History is a log as it was told: its records, and the letters after the last of them by name.
type History struct {
	Records []chain.Record
	Letters map[string]chain.Letter
	Head    chain.Head
	Now     time.Time // when the next event happens; each takes a second

	t testing.TB
}

// Story tells a history that begins with genesis. Clauses are separated by semicolons and told in their order;
// each names a letter and the events that happen to it, so that
//
//	A: received attempt; B: received; A: resolved
//
// is two letters whose events interleave. Refs, times and ids are the same in every run. The words are the types
// of events and these:
//
//	attempt_alone   an attempt with nothing beside it
//	extend          the running attempt gets a longer lease
//	released        attempt_lost, at no cost
//	service_died    attempt_lost, by the service
//	by_hand         resolved by a person
//	override        replayed against a bound, with a reason
//	hold, unhold    retention: a legal hold, and its end
//	untag           annotation that takes the tag off again
//
// Outcomes name the lease when one is running. A retry is due three seconds after it was decided; an attempt waits
// until then. Types that belong to no letter may stand in any clause.
func Story(t testing.TB, text string) *History {
	t.Helper()
	h := &History{Letters: map[string]chain.Letter{}, Now: time.Date(2026, 3, 2, 6, 30, 0, 0, time.UTC), t: t}
	h.Add("", chain.Event{Type: chain.TypeGenesis, Origin: "holdfast.example/test", LogID: "0102030405060708090a0b0c0d0e0f10",
		Keys: []string{"holdfast.example/test+00000000+AQ"}, Software: "holdfast/test"})
	h.Tell(text)
	return h
}

// Tell goes on with the story.
func (h *History) Tell(text string) {
	h.t.Helper()
	for clause := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(clause) == "" {
			continue
		}
		name, words, ok := strings.Cut(clause, ":")
		require.True(h.t, ok, "a clause is a name, a colon and words: %q", clause)
		name = strings.TrimSpace(name)
		for word := range strings.FieldsSeq(words) {
			h.Add(name, h.event(name, word))
		}
	}
}

// Add seals e at the head and applies it to the letter called name, for what the words cannot say. Time, actor,
// and what every event of a letter carries are filled in where they are missing.
func (h *History) Add(name string, e chain.Event) chain.Record {
	h.t.Helper()
	l := h.Letters[name]
	if e.At.IsZero() {
		e.At = h.Now
	}
	if e.Actor == "" {
		e.Actor = "test"
	}
	if e.Type.OfLetter() {
		e = l.Next(e)
	}
	r, err := h.Head.Seal(e)
	require.NoError(h.t, err, "event %d: %s", h.Head.Size, e.Type)
	if e.Type.OfLetter() {
		h.Letters[name], err = l.Apply(r)
		require.NoError(h.t, err, "event %d of %s", r.Seq, name)
	}
	h.Records, h.Head, h.Now = append(h.Records, r), r.Head(), e.At.Add(time.Second)
	return r
}

// Would is the record that a word would add to the letter called name, whether the letter can take it or not.
// It is not sealed unless it could be, and nothing is told by it.
func (h *History) Would(name, word string) chain.Record {
	now := h.Now
	defer func() { h.Now = now }()
	e := h.event(name, word)
	e.Actor = "test"
	e.At = h.Now
	if e.Type.OfLetter() {
		e = h.Letters[name].Next(e)
	}
	r, err := h.Head.Seal(e)
	if err != nil {
		return chain.Record{Seq: h.Head.Size, Leaf: chain.Sum([]byte(word)), Event: e}
	}
	return r
}

// Lines are the events as stored.
func (h *History) Lines() [][]byte {
	lines := make([][]byte, len(h.Records))
	for i, r := range h.Records {
		lines[i] = r.Raw
	}
	return clone(lines)
}

// AppendTo stores the history in an empty log, in blocks of size events, and returns where it ends.
func (h *History) AppendTo(log chain.Appender, size int) chain.Tip {
	h.t.Helper()
	tip := chain.Tip{Head: h.Head}
	for lines := h.Lines(); len(lines) > 0; lines = lines[min(size, len(lines)):] {
		var err error
		tip.Position, err = log.Append(context.Background(), tip.Position, lines[:min(size, len(lines))])
		require.NoError(h.t, err)
	}
	return tip
}

// Payload is the payload of the letter called name.
func Payload(name string) []byte { return []byte(`{"report":"` + name + `"}`) }

// Ref names the payload of the letter called name.
func Ref(name string) chain.Digest { return chain.Sum(Payload(name)) }

// event is what a word means for a letter.
func (h *History) event(name, word string) chain.Event {
	l := h.Letters[name]
	e := chain.Event{Type: chain.Type(word)}
	if !l.Exists() && e.Type.Disposition() != "" {
		e.PayloadRef, e.BlobVersion, e.RetainUntil = Ref(name), "1", h.Now.AddDate(1, 6, 0)
		e.Size, e.Channel, e.Source = uint64(len(Payload(name))), chain.TelematicsAPI, "fleet:1"
		e.ContentType = "application/json"
	}
	lease := chain.Lease{Seq: h.Head.Size, Attempt: 1, Worker: "worker:1"} // one that nobody holds
	if l.Lease != nil {
		lease = *l.Lease
	}
	switch word {
	case "resolved", "retrying", "dead_letter", "poison":
		if l.Lease != nil {
			e.Lease, e.Attempt = lease.Seq, lease.Attempt
		}
	case "extend", "attempt_lost", "released", "service_died":
		e.Lease, e.Attempt = lease.Seq, lease.Attempt
	}
	switch word {
	case "attempt", "attempt_alone":
		if l.NextAttemptAt.After(h.Now) {
			h.Now = l.NextAttemptAt
		}
		e.Type, e.Attempt, e.Alone = chain.TypeAttempt, l.Attempt+1, word == "attempt_alone"
		e.Worker, e.LeaseUntil = "worker:1", h.Now.Add(time.Minute)
	case "extend":
		e.Type, e.Worker, e.LeaseUntil = chain.TypeAttempt, lease.Worker, lease.Until.Add(time.Minute)
	case "attempt_lost":
		e.Reason = chain.LostWorker
	case "released", "service_died":
		e.Type, e.Reason = chain.TypeAttemptLost, word
	case "retrying", "dead_letter", "poison":
		e.Envelope = h.envelope(l, e)
	case "resolved":
		record := chain.Sum([]byte("record of " + name))
		e.Outcome, e.Rules, e.RecordRef, e.UnitKey = chain.Admit, "dvir/1", record, chain.Sum([]byte("unit of "+name))
		e.Blobs = []chain.BlobRef{{Ref: record, BlobVersion: "1", RetainUntil: l.RetainUntil}}
	case "by_hand":
		e.Type, e.Outcome, e.Reason = chain.TypeResolved, chain.ByHand, "settled with the carrier"
	case "override":
		e.Type, e.Override, e.Reason = chain.TypeReplayed, true, "the parser was fixed"
	case "submission":
		e.Channel, e.Source = chain.OCRDocument, "scanner:"+string(rune('a'+len(l.Submissions)))
	case "annotation":
		e.Owner, e.Tag, e.Note = "reviewer:1", "checked", "looks like the old export"
	case "untag":
		e.Type, e.Tag, e.Untag = chain.TypeAnnotation, "checked", true
	case "payload_read", "replay_cancel", "reanchor":
		e.Reason = "a reason"
	case "retention":
		e.RetainUntil = l.RetainUntil.AddDate(0, 1, 0)
	case "hold", "unhold":
		e.Type, e.Hold, e.Reason = chain.TypeRetention, map[string]string{"hold": "on", "unhold": "off"}[word], "a claim"
	case "replay_plan":
		e.Plan, e.Reason = "plan:1", "the parser was fixed"
	case "replay_done":
		e.Plan, e.Counts = "plan:1", &chain.PlanCounts{Replayed: 1}
	}
	return e
}

// envelope is a failure of the kind that e needs: retries are transient, the rest is permanent.
func (h *History) envelope(l chain.Letter, e chain.Event) *chain.Envelope {
	env := &chain.Envelope{
		PayloadRef: l.Ref, Stage: chain.StageParse, ErrorClass: chain.Permanent, ErrorCode: "parse.not_json",
		Attempt: max(e.Attempt, l.Attempt, 1), Replays: l.Replays, FirstSeen: l.FirstSeen,
		LastError: "the payload is not JSON", Disposition: e.Type.Disposition(), Channel: chain.TelematicsAPI,
		Source: "fleet:1", Rule: "classify:1/not_json",
	}
	if !l.Exists() {
		env.PayloadRef, env.FirstSeen = e.PayloadRef, h.Now
	}
	if e.Type == chain.TypeRetrying {
		env.Stage, env.ErrorClass, env.ErrorCode = chain.StageDispatch, chain.Transient, "dispatch.http_503"
		env.LastError, env.Rule, env.NextAttemptAt = "answered 503", "classify:1/http", h.Now.Add(3*time.Second)
	}
	return env
}
