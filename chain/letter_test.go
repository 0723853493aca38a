package chain_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ways lead to every state that the lifecycle tells apart.
var ways = []struct{ state, story string }{
	{"new", ""},
	{"received", "received"},
	{"received, leased", "received attempt"},
	{"retrying", "retrying"},
	{"retrying, leased", "retrying attempt"},
	{"dead_letter", "dead_letter"},
	{"replayed", "dead_letter replayed"},
	{"replayed, leased", "dead_letter replayed attempt"},
	{"poison", "poison"},
	{"resolved", "received attempt resolved"},
}

// lifecycle has a row per event and a column per state of ways: what the letter is afterwards, "=" for as it was,
// "-" for refused. Outcomes carry the lease when there is one.
const lifecycle = `
received      received -          -          -          -          -          -          -          -          -
retrying      retrying retrying   retrying   retrying   retrying   -          retrying   retrying   -          retrying
dead_letter   dead_letter dead_letter dead_letter dead_letter dead_letter dead_letter dead_letter dead_letter - dead_letter
poison        poison   poison     poison     poison     poison     poison     poison     poison     poison     poison
replayed      -        -          -          replayed   -          replayed   -          -          -          -
override      -        -          -          replayed   -          replayed   -          -          replayed   -
resolved      -        -          resolved   -          resolved   -          -          resolved   -          -
by_hand       -        -          -          resolved   -          resolved   -          -          resolved   -
attempt       -        =          -          =          -          -          =          -          -          -
extend        -        -          =          -          =          -          -          =          -          -
attempt_lost  -        -          =          -          =          -          -          =          -          -
released      -        -          =          -          =          -          -          =          -          -
submission    -        =          =          =          =          =          =          =          =          =
annotation    -        =          =          =          =          =          =          =          =          =
payload_read  -        =          =          =          =          =          =          =          =          =
retention     -        =          =          =          =          =          =          =          =          =
hold          -        =          =          =          =          =          =          =          =          =
genesis       -        -          -          -          -          -          -          -          -          -
alert         -        -          -          -          -          -          -          -          -          -
replay_plan   -        -          -          -          -          -          -          -          -          -
replay_cancel -        -          -          -          -          -          -          -          -          -
replay_done   -        -          -          -          -          -          -          -          -          -
key_rotate    -        -          -          -          -          -          -          -          -          -
reanchor      -        -          -          -          -          -          -          -          -          -
`

func TestLifecycle(t *testing.T) {
	for row := range strings.SplitSeq(strings.TrimSpace(lifecycle), "\n") {
		cells := strings.Fields(row)
		require.Len(t, cells, len(ways)+1)
		for i, way := range ways {
			t.Run(cells[0]+" on "+way.state, func(t *testing.T) {
				h := chaintest.Story(t, "A: "+way.story)
				before := h.Letters["A"]
				after, err := before.Apply(h.Would("A", cells[0]))
				want := chain.Disposition(cells[i+1])
				switch want {
				case "-":
					var refused *chain.TransitionError
					require.ErrorAs(t, err, &refused)
					require.Equal(t, before, after, "a refused event leaves the letter as it is")
					require.Equal(t, before.Disposition, refused.From)
					return
				case "=":
					want = before.Disposition
				}
				require.NoError(t, err)
				require.Equal(t, want, after.Disposition)
				require.Equal(t, before.CaseSize+1, after.CaseSize)
				require.Equal(t, h.Head.Size, after.LastSeq)
				require.False(t, after.Lease != nil && after.Disposition != before.Disposition, "a move ends the lease")
			})
		}
	}
}

// The table above has every type.
func TestLifecycleIsComplete(t *testing.T) {
	for _, typ := range allTypes {
		require.Contains(t, lifecycle, "\n"+string(typ)+" ", typ)
	}
}

var allTypes = []chain.Type{
	chain.TypeReceived, chain.TypeRetrying, chain.TypeDeadLetter, chain.TypeReplayed, chain.TypeResolved,
	chain.TypePoison, chain.TypeGenesis, chain.TypeAttempt, chain.TypeAttemptLost, chain.TypeSubmission,
	chain.TypeAnnotation, chain.TypePayloadRead, chain.TypeRetention, chain.TypeReplayPlan, chain.TypeReplayCancel,
	chain.TypeReplayDone,
	chain.TypeAlert, chain.TypeKeyRotate, chain.TypeReanchor,
}

// refusal applies the event that a word means, changed, and wants it refused.
func refusal(t *testing.T, h *chaintest.History, word, why string, change func(*chain.Record)) {
	t.Helper()
	r := h.Would("A", word)
	l := h.Letters["A"]
	_, err := l.Apply(r)
	require.NoError(t, err, "without the change it is taken")
	change(&r)
	after, err := l.Apply(r)
	var refused *chain.TransitionError
	require.ErrorAs(t, err, &refused)
	assert.Contains(t, err.Error(), why)
	assert.Equal(t, l, after)
}

func TestApplyRefuses(t *testing.T) {
	for _, c := range []struct {
		story, word, why string
		change           func(*chain.Record)
	}{
		// The case.
		{"received", "annotation", "case_seq", func(r *chain.Record) { r.Event.CaseSeq = 2 }},
		{"received", "annotation", "case_seq", func(r *chain.Record) { r.Event.CasePrev = chain.Sum(nil) }},
		{"received", "annotation", "case_seq", func(r *chain.Record) { r.Event.CaseSeq, r.Event.CasePrev = 0, chain.Digest{} }},
		{"", "received", "case_seq", func(r *chain.Record) { r.Event.CaseSeq, r.Event.CasePrev = 1, chain.Sum(nil) }},
		{"received", "annotation", "another payload", func(r *chain.Record) { r.Event.PayloadRef = chaintest.Ref("B") }},
		{"received", "annotation", "moves the payload", func(r *chain.Record) { r.Event.BlobVersion = "2" }},
		{"received", "annotation", "shortens", func(r *chain.Record) { r.Event.RetainUntil = r.Event.RetainUntil.Add(-time.Microsecond) }},
		{"received retention", "payload_read", "shortens", func(r *chain.Record) { r.Event.RetainUntil = start.AddDate(1, 6, 1) }},
		{"", "received", "begins with", func(r *chain.Record) { r.Event.Channel = "" }},
		// Leases.
		{"received attempt", "resolved", "only the holder", func(r *chain.Record) { r.Event.Lease = 0 }},
		{"received attempt", "resolved", "lease is over", func(r *chain.Record) { r.Event.Lease++ }},
		{"received attempt released attempt", "resolved", "lease is over", func(r *chain.Record) { r.Event.Lease = 2 }},
		{"received attempt", "resolved", "another attempt", func(r *chain.Record) { r.Event.Attempt = 2 }},
		{"received attempt", "dead_letter", "another attempt", func(r *chain.Record) { r.Event.Envelope.Attempt = 2 }},
		{"received attempt", "attempt_lost", "no lease", func(r *chain.Record) { r.Event.Lease = 0 }},
		{"received attempt", "attempt_lost", "lease is over", func(r *chain.Record) { r.Event.Lease++ }},
		{"received attempt", "attempt_lost", "reason", func(r *chain.Record) { r.Event.Reason = "tired" }},
		{"received attempt", "extend", "extension", func(r *chain.Record) { r.Event.LeaseUntil = r.Event.LeaseUntil.Add(-time.Hour) }},
		{"received attempt", "extend", "extension", func(r *chain.Record) { r.Event.Worker = "worker:2" }},
		{"received attempt", "extend", "another attempt", func(r *chain.Record) { r.Event.Attempt = 2 }},
		{"received attempt", "extend", "leased already", func(r *chain.Record) { r.Event.Lease = 0 }},
		{"received", "attempt", "next attempt", func(r *chain.Record) { r.Event.Attempt = 2 }},
		{"received", "attempt", "lease is over", func(r *chain.Record) { r.Event.Lease = 1 }},
		{"retrying", "attempt", "not due", func(r *chain.Record) { r.Event.At = r.Event.At.Add(-time.Microsecond) }},
		{"retrying", "attempt", "next attempt", func(r *chain.Record) { r.Event.Attempt = 1 }},
		// Moves.
		{"dead_letter", "by_hand", "reason", func(r *chain.Record) { r.Event.Reason = "" }},
		{"poison", "override", "override", func(r *chain.Record) { r.Event.Override = false }},
		{"poison", "override", "reason", func(r *chain.Record) { r.Event.Reason = "" }},
		{"dead_letter replayed attempt", "dead_letter", "continue", func(r *chain.Record) { r.Event.Envelope.Replays = 0 }},
		{"received attempt", "dead_letter", "continue", func(r *chain.Record) {
			r.Event.Envelope.FirstSeen = r.Event.Envelope.FirstSeen.Add(time.Second)
		}},
		{"", "dead_letter", "no replays", func(r *chain.Record) { r.Event.Envelope.Replays = 1 }},
		{"", "dead_letter", "future", func(r *chain.Record) { r.Event.Envelope.FirstSeen = r.Event.At.Add(time.Microsecond) }},
		// Senders and tags.
		{"received", "submission", "sender", func(r *chain.Record) { r.Event.Channel, r.Event.Source = chain.TelematicsAPI, "fleet:1" }},
		{"received submission", "submission", "sender", func(r *chain.Record) { r.Event.Channel, r.Event.Source = chain.OCRDocument, "scanner:b" }},
		{"received", "submission", "sender", func(r *chain.Record) { r.Event.Channel = "" }},
	} {
		t.Run(c.word+" after "+c.story+": "+c.why, func(t *testing.T) {
			refusal(t, chaintest.Story(t, "A: "+c.story), c.word, c.why, c.change)
		})
	}
	refusal(t, h(t, "A: received attempt"), "resolved", "being processed", func(r *chain.Record) { r.Event.Outcome = chain.ByHand })
}

func h(t *testing.T, story string) *chaintest.History { return chaintest.Story(t, story) }

func TestCounters(t *testing.T) {
	for _, c := range []struct {
		story                                 string
		attempt, replays, losses, lossesAlone uint64
	}{
		{"received", 0, 0, 0, 0},
		{"received attempt", 0, 0, 0, 0},
		{"received attempt resolved", 1, 0, 0, 0},
		{"received attempt released", 0, 0, 0, 0},
		{"received attempt released attempt resolved", 1, 0, 0, 0},
		{"received attempt attempt_lost", 0, 0, 1, 0},
		{"received attempt service_died attempt_alone attempt_lost", 0, 0, 2, 1},
		{"received attempt service_died attempt_alone released", 0, 0, 1, 0},
		{"received attempt service_died attempt_alone resolved", 1, 0, 0, 0},
		{"received attempt retrying", 1, 0, 0, 0},
		{"received attempt retrying attempt retrying attempt", 2, 0, 0, 0},
		{"received attempt retrying attempt dead_letter", 2, 0, 0, 0},
		{"received attempt retrying attempt dead_letter replayed", 0, 1, 0, 0},
		{"received attempt dead_letter replayed attempt dead_letter replayed attempt resolved", 1, 2, 0, 0},
		{"poison override attempt attempt_lost", 0, 1, 1, 0},
		{"dead_letter by_hand", 1, 0, 0, 0},
		{"received attempt resolved dead_letter replayed attempt resolved", 1, 1, 0, 0},
		{"dead_letter replayed attempt dead_letter poison", 1, 1, 0, 0}, // the next replay would be beyond the bound
	} {
		t.Run(c.story, func(t *testing.T) {
			l := h(t, "A: "+c.story).Letters["A"]
			assert.Equal(t, c.attempt, l.Attempt, "attempts")
			assert.Equal(t, c.replays, l.Replays, "replays")
			assert.Equal(t, c.losses, l.Losses, "losses")
			assert.Equal(t, c.lossesAlone, l.LossesAlone, "losses alone")
		})
	}
	attributed := h(t, "A: received attempt")
	r := attributed.Would("A", "attempt_lost")
	r.Event.Attributed = true
	l, err := attributed.Letters["A"].Apply(r)
	require.NoError(t, err)
	require.Zero(t, l.Losses, "losses count what nobody answers for")
}

func TestLetterFold(t *testing.T) {
	s := h(t, "A: received")
	received := s.Letters["A"]
	require.Equal(t, chain.Letter{
		Ref: chaintest.Ref("A"), Disposition: chain.Received, FirstSeen: s.Records[1].Event.At, UpdatedAt: s.Records[1].Event.At,
		MovedSeq: 1, EnqueuedSeq: 1, CaseSize: 1, CaseLeaf: s.Records[1].Leaf, FirstSeq: 1, FirstLeaf: s.Records[1].Leaf, LastSeq: 1, Size: uint64(len(chaintest.Payload("A"))),
		BlobVersion: "1", RetainUntil: s.Records[1].Event.RetainUntil, Channel: chain.TelematicsAPI, Source: "fleet:1",
		ContentType: "application/json", Submissions: []chain.Submission{{Channel: chain.TelematicsAPI, Source: "fleet:1", Seq: 1, Leaf: s.Records[1].Leaf}},
	}, received)
	require.True(t, received.Due(s.Now))

	s.Tell("A: attempt")
	leased := s.Letters["A"]
	require.Equal(t, &chain.Lease{Seq: 2, Attempt: 1, Worker: "worker:1", Since: s.Records[2].Event.At, Until: s.Records[2].Event.LeaseUntil}, leased.Lease)
	require.Equal(t, received.UpdatedAt, leased.UpdatedAt)
	require.Equal(t, received.MovedSeq, leased.MovedSeq)
	require.False(t, leased.Due(s.Now), "leased")

	s.Tell("A: extend")
	require.Equal(t, uint64(2), s.Letters["A"].Lease.Seq, "the lease keeps its name")
	require.Equal(t, leased.Lease.Until.Add(time.Minute), s.Letters["A"].Lease.Until)

	s.Tell("A: retrying")
	retrying := s.Letters["A"]
	require.Nil(t, retrying.Lease)
	require.Equal(t, retrying.Failure.NextAttemptAt, retrying.NextAttemptAt)
	require.False(t, retrying.Due(retrying.NextAttemptAt.Add(-time.Microsecond)))
	require.True(t, retrying.Due(retrying.NextAttemptAt))
	require.False(t, retrying.Due(retrying.NextAttemptAt.Add(-chain.MaxWait)))
	require.True(t, retrying.Due(retrying.NextAttemptAt.Add(-chain.MaxWait-time.Microsecond)), "no retry is so far away")
	require.Equal(t, chain.Exception, retrying.Outcome)
	require.Equal(t, "dispatch.http_503", retrying.OutcomeCode)
	require.Equal(t, uint64(4), retrying.FailureSeq)
	require.Equal(t, uint64(4), retrying.MovedSeq)
	require.Equal(t, uint64(1), retrying.EnqueuedSeq)
	require.Equal(t, s.Records[4].Leaf, retrying.FailureLeaf)
	require.Equal(t, received.FirstSeen, retrying.FirstSeen)

	s.Tell("A: attempt resolved")
	resolved := s.Letters["A"]
	require.Zero(t, resolved.NextAttemptAt)
	require.Equal(t, chain.Admit, resolved.Outcome)
	require.Empty(t, resolved.OutcomeCode)
	require.False(t, resolved.RecordRef.IsZero())
	require.Equal(t, retrying.Failure, resolved.Failure, "the last failure stays")

	s.Tell("A: dead_letter")
	reopened := s.Letters["A"]
	require.Equal(t, chain.DeadLetter, reopened.Disposition)
	require.Equal(t, resolved.RecordRef, reopened.RecordRef, "the record is still there")
	require.Equal(t, received.FirstSeen, reopened.FirstSeen)
	require.Equal(t, "parse.not_json", reopened.OutcomeCode)

	s.Tell("A: replayed")
	require.Empty(t, s.Letters["A"].Outcome)

	until := s.Letters["A"].RetainUntil
	s.Tell("A: retention hold payload_read")
	require.Equal(t, until.AddDate(0, 1, 0), s.Letters["A"].RetainUntil)
	require.True(t, s.Letters["A"].Hold)
	s.Tell("A: unhold annotation annotation")
	require.False(t, s.Letters["A"].Hold)
	require.Equal(t, until.AddDate(0, 1, 0), s.Letters["A"].RetainUntil)
	require.Equal(t, "reviewer:1", s.Letters["A"].Owner)
	require.Equal(t, []string{"checked"}, s.Letters["A"].Tags)
	require.Equal(t, uint64(2), s.Letters["A"].Notes)
	s.Tell("A: untag untag")
	require.Nil(t, s.Letters["A"].Tags)
	require.Equal(t, uint64(len(s.Records)-1), s.Letters["A"].CaseSize)
}

func TestLetterBounds(t *testing.T) {
	s := h(t, "A: received")
	for range chain.MaxSubmissions - 1 {
		s.Tell("A: submission")
	}
	_, err := s.Letters["A"].Apply(s.Would("A", "submission"))
	require.Error(t, err)
	for i := range chain.MaxTags {
		s.Add("A", chain.Event{Type: chain.TypeAnnotation, Tag: "tag" + strconv.Itoa(i)})
	}
	_, err = s.Letters["A"].Apply(s.Would("A", "annotation"))
	require.Error(t, err)
	s.Add("A", chain.Event{Type: chain.TypeAnnotation, Tag: "tag3", Untag: true})
	require.Len(t, s.Letters["A"].Tags, chain.MaxTags-1)
	s.Add("A", chain.Event{Type: chain.TypeAnnotation, Tag: "tag3"})
}

func TestSender(t *testing.T) {
	s := h(t, "A: received; B: received; A: submission attempt")
	l := s.Letters["A"]
	for source, seq := range map[string]int{"fleet:1": 1, "scanner:b": 3} {
		channel := chain.TelematicsAPI
		if seq == 3 {
			channel = chain.OCRDocument
		}
		known, ok := l.Sender(channel, source)
		require.True(t, ok)
		require.Equal(t, chain.Submission{Channel: channel, Source: source, Seq: uint64(seq), Leaf: s.Records[seq].Leaf}, known)
		_, ok = l.Sender(chain.ManualEntry, source)
		require.False(t, ok, "the same name on another channel is another sender")
	}
	failed := h(t, "A: dead_letter").Letters["A"]
	known, ok := failed.Sender(chain.TelematicsAPI, "fleet:1")
	require.True(t, ok, "who hands over a failure of a new payload is its sender")
	require.Equal(t, failed.FirstLeaf, known.Leaf)
}

func TestOccurrences(t *testing.T) {
	for story, want := range map[string][]uint64{ // seq of what is remembered
		"received":                             nil,
		"dead_letter":                          {1},
		"dead_letter dead_letter":              {2}, // the same again, which a queue would not append
		"retrying dead_letter":                 {1, 2},
		"retrying dead_letter poison":          {1, 3},
		"poison poison":                        {2},
		"retrying attempt":                     {1},
		"retrying attempt retrying":            {1}, // of a worker
		"retrying attempt attempt_lost":        {1},
		"retrying attempt dead_letter":         {1},
		"retrying attempt resolved":            nil,
		"retrying replayed":                    nil,
		"dead_letter by_hand":                  nil,
		"dead_letter by_hand dead_letter":      {3},
		"poison override":                      nil,
		"dead_letter annotation hold replayed": nil,
		"dead_letter replayed attempt poison":  nil,
	} {
		t.Run(story, func(t *testing.T) {
			s := h(t, "A: "+story)
			var got []uint64
			for _, o := range s.Letters["A"].Occurrences {
				got = append(got, o.Seq)
				require.Equal(t, s.Records[o.Seq].Leaf, o.Leaf)
				env := s.Records[o.Seq].Event.Envelope
				require.Equal(t, env.Attempt, o.Attempt)
				found, ok := s.Letters["A"].Occurred(env)
				require.True(t, ok)
				require.Equal(t, o, found)
			}
			require.Equal(t, want, got)
		})
	}
}

// What a failure says tells it from others; counts, times and what became of the letter do not.
func TestOccurred(t *testing.T) {
	s := h(t, "A: retrying")
	l := s.Letters["A"]
	for name, c := range map[string]struct {
		same   bool
		change func(*chain.Envelope)
	}{
		"nothing":         {true, func(*chain.Envelope) {}},
		"attempt":         {true, func(e *chain.Envelope) { e.Attempt++ }},
		"replays":         {true, func(e *chain.Envelope) { e.Replays++ }},
		"first_seen":      {true, func(e *chain.Envelope) { e.FirstSeen = e.FirstSeen.Add(time.Second) }},
		"next_attempt_at": {true, func(e *chain.Envelope) { e.NextAttemptAt = e.NextAttemptAt.Add(time.Second) }},
		"disposition":     {true, func(e *chain.Envelope) { e.Disposition, e.ErrorClass = chain.Poison, chain.Permanent }},
		"channel":         {true, func(e *chain.Envelope) { e.Channel = chain.ManualEntry }},
		"stage":           {false, func(e *chain.Envelope) { e.Stage = chain.StageParse }},
		"error_code":      {false, func(e *chain.Envelope) { e.ErrorCode = "dispatch.http_502" }},
		"error_ref":       {false, func(e *chain.Envelope) { e.ErrorRef = chain.Sum(nil) }},
		"last_error":      {false, func(e *chain.Envelope) { e.LastError += "!" }},
		"source":          {false, func(e *chain.Envelope) { e.Source = "fleet:2" }},
		"rule":            {false, func(e *chain.Envelope) { e.Rule = "classify:2/http" }},
		"where a text ends": {false, func(e *chain.Envelope) {
			e.LastError, e.Source = e.LastError+`","source":"`+e.Source, ""
		}},
	} {
		env := *l.Failure
		c.change(&env)
		_, ok := l.Occurred(&env)
		require.Equal(t, c.same, ok, name)
	}
}

func TestOccurrencesAreBounded(t *testing.T) {
	s := h(t, "A: dead_letter")
	fail := func(i int) chain.Letter {
		l := s.Letters["A"]
		env := *l.Failure
		env.Source = fmt.Sprint("fleet:", i)
		s.Add("A", chain.Event{Type: chain.TypeDeadLetter, Envelope: &env})
		return s.Letters["A"]
	}
	for i := range 2 * chain.MaxOccurrences {
		fail(i + 2)
	}
	l := s.Letters["A"]
	require.Len(t, l.Occurrences, chain.MaxOccurrences)
	for i, o := range l.Occurrences {
		require.Equal(t, l.LastSeq-uint64(chain.MaxOccurrences-1-i), o.Seq, "the oldest are gone")
	}
	oldest := l.Occurrences[0].Print
	l = fail(chain.MaxOccurrences + 2)
	require.Len(t, l.Occurrences, chain.MaxOccurrences)
	last := l.Occurrences[chain.MaxOccurrences-1]
	require.Equal(t, oldest, last.Print, "the same again takes no second place")
	require.Equal(t, l.LastSeq, last.Seq)
}

func TestTransitionErrorText(t *testing.T) {
	for _, typ := range allTypes {
		text := (&chain.TransitionError{From: chain.Resolved, To: typ}).Error()
		require.Regexp(t, `^a letter that is resolved cannot [a-z_ ]+$`, text)
		require.Equal(t, !typ.OfLetter(), strings.HasSuffix(text, "take the event "+string(typ)), text)
	}
	require.EqualError(t, &chain.TransitionError{From: chain.Resolved, To: chain.TypeReplayed}, "a letter that is resolved cannot be replayed")
	require.EqualError(t, &chain.TransitionError{To: chain.TypeAttempt}, "a new letter cannot be attempted")
	require.EqualError(t, &chain.TransitionError{From: chain.Received, To: chain.TypeAttempt, Why: "it is leased already"},
		"a letter that is received cannot be attempted: it is leased already")
}

// Apply shares nothing that a later Apply would change, neither with the letter before nor with the record.
func TestApplyLeavesTheLetterAlone(t *testing.T) {
	s := h(t, "A: received annotation submission poison override retrying attempt")
	for range 2 {
		s.Add("A", chain.Event{Type: chain.TypeAnnotation, Tag: fmt.Sprint("tag", s.Head.Size)})
	}
	base := s.Letters["A"]
	base.Tags = append(make([]string, 0, 10), base.Tags...) // room to write into, if Apply were careless
	base.Submissions = append(make([]chain.Submission, 0, 10), base.Submissions...)
	require.NotEmpty(t, base.Occurrences)
	base.Occurrences = append(make([]chain.Occurrence, 0, 10), base.Occurrences...)
	text, err := base.AppendText(nil)
	require.NoError(t, err)
	words := []string{"annotation", "untag", "submission", "extend", "attempt_lost", "retrying", "dead_letter", "resolved", "retention", "hold"}
	for _, word := range words {
		one, err := base.Apply(s.Would("A", word))
		require.NoError(t, err, word)
		oneText, err := one.AppendText(nil)
		require.NoError(t, err)
		for _, other := range words {
			_, err := base.Apply(s.Would("A", other))
			require.NoError(t, err, other)
		}
		after, err := one.AppendText(nil)
		require.NoError(t, err)
		require.Equal(t, string(oneText), string(after), word)
	}
	tagged, err := base.Apply(s.Would("A", "untag"))
	require.NoError(t, err)
	require.Equal(t, slices.Delete(slices.Clone(base.Tags), 0, 1), tagged.Tags)
	r := s.Would("A", "dead_letter")
	failed, err := base.Apply(r)
	require.NoError(t, err)
	r.Event.Envelope.Attempt = 99
	require.Equal(t, uint64(2), failed.Failure.Attempt)
	now, err := base.AppendText(nil)
	require.NoError(t, err)
	require.Equal(t, string(text), string(now))
}

func TestLetterText(t *testing.T) {
	for _, way := range ways {
		for _, more := range []string{"", " annotation submission hold", " submission payload_read annotation untag"} {
			if way.story == "" {
				continue
			}
			l := h(t, "A: "+way.story+more).Letters["A"]
			text, err := l.AppendText([]byte("before"))
			require.NoError(t, err)
			back, err := chain.ParseLetter(text[len("before"):])
			require.NoError(t, err)
			require.Equal(t, l, back, way.state)
		}
	}
	zero, err := chain.ParseLetter([]byte("{}"))
	require.NoError(t, err)
	require.Equal(t, chain.Letter{}, zero)
	for _, bad := range []string{"", "{", "{}{}", "{} ", `{"ref":"x"}`, `{"ref":1}`, `{"lease":[]}`, `{"tags":"x"}`, `{"notes":1.5}`, "{\"owner\":\"\xff\"}"} {
		l, err := chain.ParseLetter([]byte(bad))
		require.Error(t, err, bad)
		require.Equal(t, chain.Letter{}, l)
	}
}

// A letter says where its payload is, so that its events need not be told.
func TestNext(t *testing.T) {
	s := h(t, "A: received")
	l := s.Letters["A"]
	e := l.Next(chain.Event{Type: chain.TypeAnnotation, RetainUntil: l.RetainUntil.Add(-time.Hour)})
	require.Equal(t, l.RetainUntil, e.RetainUntil, "never shorter")
	require.Equal(t, l.CaseLeaf, e.CasePrev)
	require.Equal(t, l.CaseSize, e.CaseSeq)
	longer := l.RetainUntil.Add(time.Hour)
	require.Equal(t, longer, l.Next(chain.Event{RetainUntil: longer}).RetainUntil)
	first := receivedEvent()
	require.Equal(t, first, chain.Letter{}.Next(first))
}
