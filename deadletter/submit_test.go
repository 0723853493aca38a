package deadletter_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

func TestIngestAgain(t *testing.T) {
	b := newBench(t)
	first := b.ingest("payload")
	require.False(t, first.Known)
	require.Equal(t, chain.Received, first.Disposition)
	require.Equal(t, chain.Sum([]byte("payload")), first.PayloadRef)
	again := b.ingest("payload")
	require.True(t, again.Known)
	first.Known = true
	require.Equal(t, first, again)
	require.Equal(t, 2, b.size())
}

func TestTC17ManySenders(t *testing.T) {
	b := newBench(t)
	ref := b.ingest("payload").PayloadRef
	for i := range 2 * chain.MaxSubmissions {
		s := submission("payload")
		s.Source = fmt.Sprint("app-", i)
		for range 2 {
			_, err := b.Ingest(t.Context(), s)
			require.NoError(t, err)
			s.Body = strings.NewReader("payload")
		}
	}
	require.Len(t, b.letter(ref).Submissions, chain.MaxSubmissions)
	require.Len(t, b.events(ref), chain.MaxSubmissions)
	require.Equal(t, chain.TypeSubmission, b.last().Type)
}

// Every sender's receipt names the event that recorded this sender.
func TestSecondSendersReceipt(t *testing.T) {
	b := newBench(t)
	first := b.ingest("payload")
	b.ingest("other")
	second := func() deadletter.Receipt {
		s := submission("payload")
		s.Source = "app-2"
		r, err := b.Ingest(t.Context(), s)
		require.NoError(t, err)
		return r
	}
	r := second()
	require.False(t, r.Known)
	require.Equal(t, uint64(3), r.Seq)
	require.Equal(t, chain.TypeSubmission, b.last().Type)
	r.Known = true
	require.Equal(t, r, second())
	b.lease(first.PayloadRef)
	require.Equal(t, r, second())
	first.Known = true
	require.Equal(t, first, b.ingest("payload"))
}

func TestIngestNothing(t *testing.T) {
	b := newBench(t)
	r := b.ingest("")
	require.Equal(t, chain.Received, r.Disposition)
	job := b.lease(r.PayloadRef)
	require.Zero(t, job.Letter.Size)
	r = b.fail(failure(""))
	require.Equal(t, chain.DeadLetter, r.Disposition)
}

func TestIngestAtOnce(t *testing.T) {
	b := newBench(t)
	var receipts [50]deadletter.Receipt
	each(len(receipts), func(i int) {
		r, err := b.Ingest(t.Context(), submission("payload"))
		assert.NoError(t, err)
		r.Known = true
		receipts[i] = r
	})
	require.Equal(t, 2, b.size())
	for _, r := range receipts {
		require.Equal(t, receipts[0], r)
	}
}

func TestIngestTooLarge(t *testing.T) {
	b := newBenchOf(t, parts{max: 10})
	b.ingest("0123456789")
	_, err := b.Ingest(t.Context(), submission("0123456789a"))
	var large *deadletter.PayloadTooLargeError
	require.ErrorAs(t, err, &large)
	require.Equal(t, 2, b.size())
}

// broken is a stream that breaks off.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestIngestBrokenStream(t *testing.T) {
	b := newBench(t)
	s := submission("")
	s.Body = io.MultiReader(strings.NewReader("begin"), broken{})
	_, err := b.Ingest(t.Context(), s)
	require.ErrorIs(t, err, deadletter.ErrUpload)
	require.Equal(t, 1, b.size())
}

func TestContentType(t *testing.T) {
	b := newBench(t)
	for i, c := range []struct{ declared, want string }{
		{"", ""},
		{"application/json", "application/json"},
		{"Application/JSON", "application/json"},
		{"application/json; charset=UTF-8; version=2; user=jqp", "application/json; charset=UTF-8"},
		{"multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW", "multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW"},
		{`multipart/mixed; boundary="gc0pJq0M:08jU534c0p"`, `multipart/mixed; boundary="gc0pJq0M:08jU534c0p"`},
		{`text/plain; charset="John Q. Public"`, "text/plain"},
		{"text/plain; charset=jqp@example.org", "text/plain"},
		{"text/plain; charset=JOHNDOE", "text/plain"},
		{"text/plain; charset=" + strings.Repeat("x", 71), "text/plain"},
		{"text/plain; =", "text/plain"},
		{"application/x-" + strings.Repeat("x", 186), "application/x-" + strings.Repeat("x", 186)},
	} {
		s := submission(fmt.Sprint(i))
		s.ContentType = c.declared
		r, err := b.Ingest(t.Context(), s)
		require.NoError(t, err, c.declared)
		require.Equal(t, c.want, b.letter(r.PayloadRef).ContentType)
	}
}

func TestBadSubmission(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		field string
		spoil func(*deadletter.Submission)
	}{
		{"channel", func(s *deadletter.Submission) { s.Channel = "fax" }},
		{"source", func(s *deadletter.Submission) { s.Source = "two words" }},
		{"source", func(s *deadletter.Submission) { s.Source = strings.Repeat("x", chain.MaxToken+1) }},
		{"actor", func(s *deadletter.Submission) { s.Actor = "two words" }},
		{"content_encoding", func(s *deadletter.Submission) { s.ContentEncoding = "gzip, br" }},
		{"content_type", func(s *deadletter.Submission) { s.ContentType = "json" }},
		{"content_type", func(s *deadletter.Submission) { s.ContentType = "a/b/c" }},
		{"content_type", func(s *deadletter.Submission) { s.ContentType = "text/plain; charset=a; charset=b" }},
		{"content_type", func(s *deadletter.Submission) { s.ContentType = "application/" + strings.Repeat("x", 189) }},
	} {
		s := submission("never stored " + c.field)
		c.spoil(&s)
		_, err := b.Ingest(t.Context(), s)
		requireField(t, c.field, err)
		_, err = b.store.Get(t.Context(), blob.Ref{Digest: chain.Sum([]byte("never stored " + c.field))})
		require.ErrorIs(t, err, deadletter.ErrPayloadMissing, "a bad request stores nothing")
	}
	require.Equal(t, 1, b.size())
}

func requireField(t *testing.T, name string, err error) {
	t.Helper()
	var wrong *chain.FieldError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, name, wrong.Field)
}

func TestBadFailure(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		field string
		spoil func(*deadletter.Failure)
	}{
		{"stage", func(f *deadletter.Failure) { f.Stage = "" }},
		{"stage", func(f *deadletter.Failure) { f.Stage = "printing" }},
		{"payload", func(f *deadletter.Failure) { f.Body = nil }},
		{"payload_ref", func(f *deadletter.Failure) { f.PayloadRef = chain.Sum(nil) }},
		{"attempt", func(f *deadletter.Failure) { f.Attempt = 1_000_001 }},
		{"first_seen", func(f *deadletter.Failure) { f.FirstSeen = time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"http_status", func(f *deadletter.Failure) { f.Signal.HTTPStatus = 99 }},
		{"http_status", func(f *deadletter.Failure) { f.Signal.HTTPStatus = 600 }},
		{"error_code", func(f *deadletter.Failure) { f.Signal.Code = "no code" }},
		{"error_type", func(f *deadletter.Failure) { f.Signal.Type = strings.Repeat("x", 201) }},
		{"retry_after", func(f *deadletter.Failure) { f.Signal.RetryAfter = strings.Repeat("1", 201) }},
		{"source", func(f *deadletter.Failure) { f.Source = "two words" }},
	} {
		f := failure("payload")
		c.spoil(&f)
		_, err := b.Fail(t.Context(), f)
		requireField(t, c.field, err)
	}
	require.Equal(t, 1, b.size())
	_, err := b.Fail(t.Context(), deadletter.Failure{PayloadRef: chain.Sum(nil), Stage: chain.StageParse})
	require.ErrorIs(t, err, deadletter.ErrNotFound)
}

// in brings a letter into a disposition.
func (b *bench) in(d chain.Disposition, body string) chain.Digest {
	ref := b.ingest(body).PayloadRef
	switch d {
	case chain.Received:
	case chain.Retrying:
		b.fail(transient(body))
	case chain.DeadLetter:
		b.fail(failure(body))
	case chain.Replayed:
		b.fail(failure(body))
		_, err := b.Replay(b.t.Context(), ref, operator)
		require.NoError(b.t, err)
	case chain.Poison:
		f := failure(body)
		f.Signal.Type = "crash:SIGSEGV"
		b.fail(f)
	case chain.Resolved:
		_, err := b.Complete(b.t.Context(), b.lease(ref), completion(body, body))
		require.NoError(b.t, err)
	}
	require.Equal(b.t, d, b.letter(ref).Disposition)
	return ref
}

func TestFailInEveryDisposition(t *testing.T) {
	b := newBench(t)
	for i, c := range []struct {
		from               chain.Disposition
		permanent, waiting chain.Disposition
		attempt            uint64
	}{
		{chain.Received, chain.DeadLetter, chain.Retrying, 1},
		{chain.Retrying, chain.DeadLetter, chain.Retrying, 2},
		{chain.DeadLetter, chain.DeadLetter, chain.DeadLetter, 1},
		{chain.Replayed, chain.DeadLetter, chain.Retrying, 1},
		{chain.Resolved, chain.DeadLetter, chain.Retrying, 1},
	} {
		for j, f := range []deadletter.Failure{failure(""), transient("")} {
			body := fmt.Sprint(i, j, c.from)
			ref := b.in(c.from, body)
			before := b.letter(ref)
			f.Body, f.Message = strings.NewReader(body), "another time"
			r := b.fail(f)
			l := b.letter(ref)
			want := []chain.Disposition{c.permanent, c.waiting}[j]
			require.Equal(t, want, r.Disposition, "%s %d", c.from, j)
			require.Equal(t, want, l.Disposition)
			require.Equal(t, c.attempt, l.Attempt, "%s %d", c.from, j)
			require.Equal(t, want == chain.Retrying, l.Failure.ErrorClass == chain.Transient)
			require.Equal(t, want == chain.Retrying, !r.NextAttemptAt.IsZero())
			require.Equal(t, before.FirstSeen, l.FirstSeen)
			require.Equal(t, before.RecordRef, l.RecordRef)
			require.Equal(t, chain.Exception, r.Outcome)
			size := b.size()
			f.Body = strings.NewReader(body)
			again := b.fail(f)
			require.True(t, again.Known)
			r.Known = true
			require.Equal(t, r, again)
			require.Equal(t, size, b.size())
		}
	}
}

func TestFailOfTheQuarantined(t *testing.T) {
	b := newBench(t)
	ref := b.in(chain.Poison, "payload")
	e := b.last()
	require.Equal(t, "crash_sigsegv", e.Evidence)
	require.Equal(t, "validate.crash_sigsegv", e.Envelope.ErrorCode)
	again := failure("payload")
	again.Signal.Type = "crash:SIGSEGV"
	require.True(t, b.fail(again).Known)
	_, err := b.Annotate(t.Context(), ref, deadletter.Annotation{Actor: "op", Tag: "seen"})
	require.NoError(t, err)
	for _, f := range []func() deadletter.Failure{
		func() deadletter.Failure { return failure("payload") },
		func() deadletter.Failure { return transient("payload") },
		func() deadletter.Failure { return deadletter.Failure{PayloadRef: ref, Stage: chain.StageParse} },
	} {
		size := b.size()
		r := b.fail(f())
		require.False(t, r.Known, "another failure is not swallowed")
		require.Equal(t, chain.Poison, r.Disposition)
		require.Equal(t, size+1, b.size())
		require.Equal(t, uint64(size), r.Seq)
		e := b.last()
		require.Equal(t, chain.TypePoison, e.Type)
		require.Equal(t, chain.Permanent, e.Envelope.ErrorClass)
		require.Equal(t, uint64(1), e.Envelope.Attempt)
		r.Known = true
		require.Equal(t, r, b.fail(f()))
		require.Equal(t, size+1, b.size())
	}
	l := b.letter(ref)
	require.Equal(t, chain.Poison, l.Disposition)
	require.Len(t, l.Occurrences, 4)
}

// Two senders that repeat themselves in turns add nothing to the log.
func TestFailuresInTurns(t *testing.T) {
	for name, of := range map[string]func(string) deadletter.Failure{"permanent": failure, "transient": transient} {
		b := newBench(t)
		var first [2]deadletter.Receipt
		for i := range 8 {
			f := of("payload")
			f.Source = fmt.Sprint("app-", i%2)
			r := b.fail(f)
			if i < 2 {
				first[i] = r
				continue
			}
			require.True(t, r.Known, name)
			require.Equal(t, first[i%2].Seq, r.Seq)
			require.Equal(t, first[i%2].LeafHash, r.LeafHash)
		}
		require.Equal(t, 3, b.size(), name)
	}
}

// A redelivered failure ends no attempt that is running.
func TestRedeliveryLeavesTheLeaseAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		first := b.fail(transient("payload"))
		time.Sleep(time.Until(first.NextAttemptAt))
		job := b.lease(first.PayloadRef)
		size := b.size()
		r := b.fail(transient("payload"))
		require.True(t, r.Known)
		require.Equal(t, first.LeafHash, r.LeafHash)
		require.Equal(t, size, b.size())
		_, err := b.FailJob(t.Context(), job, deadletter.Breakdown{Stage: chain.StageDispatch, Signal: deadletter.Signal{HTTPStatus: 502}})
		require.NoError(t, err)
		require.True(t, b.fail(transient("payload")).Known, "nor after it")
		f := transient("payload")
		f.Attempt = 2
		r = b.fail(f)
		require.False(t, r.Known, "a higher count says that it was tried once more")
		require.Equal(t, uint64(3), b.letter(r.PayloadRef).Attempt)
	})
}

// What was resolved or replayed can fail again in the same way: that is news.
func TestTC16SameFailureAfterADecision(t *testing.T) {
	b := newBench(t)
	ref := b.fail(failure("payload")).PayloadRef
	for _, decide := range []func(context.Context, chain.Digest, deadletter.Order) (deadletter.Receipt, error){b.Resolve, b.Replay, b.Resolve} {
		require.True(t, b.fail(failure("payload")).Known)
		_, err := decide(t.Context(), ref, operator)
		require.NoError(t, err)
		r := b.fail(failure("payload"))
		require.False(t, r.Known)
		require.Equal(t, chain.DeadLetter, r.Disposition)
	}
	require.Len(t, b.events(ref), 7)
}

func TestFailOfANewPayload(t *testing.T) {
	b := newBench(t)
	f := transient("payload")
	f.FirstSeen = time.Now().Add(-time.Hour)
	r := b.fail(f)
	l := b.letter(r.PayloadRef)
	require.Equal(t, chain.Retrying, l.Disposition)
	require.Equal(t, chain.Instant(f.FirstSeen), l.FirstSeen)
	require.Equal(t, uint64(len("payload")), l.Size)
	require.Equal(t, "application/json", l.ContentType)
	require.Equal(t, "app-1", l.Failure.Source)
	known := b.ingest("payload")
	require.True(t, known.Known, "its sender is known by the failure")
	f = deadletter.Failure{PayloadRef: r.PayloadRef, Stage: chain.StageParse, Signal: deadletter.Signal{Type: "parse"}}
	require.Equal(t, chain.DeadLetter, b.fail(f).Disposition)
}

func TestAttemptsElsewhereCount(t *testing.T) {
	b := newBench(t)
	for stated, want := range map[uint64]chain.Disposition{
		1: chain.Retrying, 5: chain.Retrying, 6: chain.DeadLetter, 1_000_000: chain.DeadLetter,
	} {
		f := transient(fmt.Sprint(stated))
		f.Attempt = stated
		r := b.fail(f)
		require.Equal(t, want, r.Disposition, stated)
		env := b.letter(r.PayloadRef).Failure
		require.Equal(t, stated, env.Attempt)
		require.Equal(t, "dispatch.http_503", env.ErrorCode)
		require.Equal(t, want == chain.Retrying, env.ErrorClass == chain.Transient)
	}
}

func TestRetriesAreBounded(t *testing.T) {
	b := newBench(t)
	ref := b.ingest("payload").PayloadRef
	for attempt := uint64(1); ; attempt++ {
		f := deadletter.Failure{PayloadRef: ref, Stage: chain.StageDispatch, Attempt: attempt}
		f.Signal.Type = "ECONNRESET"
		r := b.fail(f)
		if r.Disposition == chain.DeadLetter {
			require.Equal(t, uint64(6), attempt)
			break
		}
		require.Equal(t, chain.Retrying, r.Disposition)
	}
}

// A sender that repeats its hand-over is answered alike, also if its count of attempts is behind ours.
func TestRepeatedFailureWithAttempts(t *testing.T) {
	b := newBench(t)
	ref := b.ingest("payload").PayloadRef
	for range 2 {
		f := deadletter.Failure{PayloadRef: ref, Stage: chain.StageParse, Signal: deadletter.Signal{Type: "timeout"}}
		f.Message = fmt.Sprint(b.size())
		b.fail(f)
	}
	f := transient("payload")
	f.Attempt = 1
	first := b.fail(f)
	require.Equal(t, uint64(3), b.letter(ref).Attempt)
	for range 10 {
		f.Body = strings.NewReader("payload")
		require.Equal(t, first.LeafHash, b.fail(f).LeafHash)
	}
	require.Equal(t, chain.Retrying, b.letter(ref).Disposition)
}

func TestErrorText(t *testing.T) {
	b := newBench(t)
	for name, message := range map[string]string{
		"short":         "cannot read the third page",
		"4 KiB and 1":   strings.Repeat("x ", 2048) + "y",
		"8 KiB":         strings.Repeat("é", 4096) + "é",
		"invalid UTF-8": "broken \xff\xfe text \xc3",
		"NUL":           "a\x00b",
		"blank":         " \t ",
		"1 MiB":         strings.Repeat("e", 1<<20),
	} {
		f := failure(name)
		f.Message = message
		l := b.letter(b.fail(f).PayloadRef)
		require.Equal(t, chain.DeadLetter, l.Disposition, name)
		require.LessOrEqual(t, utf8.RuneCountInString(l.Failure.LastError), chain.MaxLastError, name)
		require.True(t, utf8.ValidString(l.Failure.LastError), name)
		text, err := b.store.Get(t.Context(), blob.Ref{Digest: l.Failure.ErrorRef})
		require.NoError(t, err, name)
		require.Equal(t, message, string(text), name)
		e := b.last()
		require.Len(t, e.Blobs, 1)
		require.Equal(t, l.Failure.ErrorRef, e.Blobs[0].Ref)
		require.False(t, e.Blobs[0].RetainUntil.IsZero())
	}
}

// Whatever its length, an error text never keeps a payload out of the queue: it is cut, and says so.
func TestTC06LongErrorText(t *testing.T) {
	for _, limit := range []int64{0, 300} {
		b := newBenchOf(t, parts{max: limit})
		want := 1 << 20
		if limit != 0 {
			want = int(limit)
		}
		f := failure("payload")
		f.Message = strings.Repeat("ä€", 1<<20)
		l := b.letter(b.fail(f).PayloadRef)
		text, err := b.store.Get(t.Context(), blob.Ref{Digest: l.Failure.ErrorRef})
		require.NoError(t, err)
		require.LessOrEqual(t, len(text), want)
		require.Greater(t, len(text), want-8)
		require.True(t, utf8.Valid(text))
		require.True(t, strings.HasSuffix(string(text), fmt.Sprintf(" [cut, had %d bytes]", len(f.Message))), string(text[len(text)-40:]))
		require.Equal(t, chain.MaxLastError, utf8.RuneCountInString(l.Failure.LastError))
		require.Contains(t, l.Failure.LastError, "[cut]")
		job := b.lease(b.ingest("other").PayloadRef)
		r, err := b.FailJob(t.Context(), job, deadletter.Breakdown{Stage: chain.StageParse, Message: f.Message})
		require.NoError(t, err)
		require.Equal(t, chain.DeadLetter, r.Disposition)
	}
}

// A payload that is lost or damaged can still fail, be annotated and be closed: that is when it matters most.
func TestLostPayload(t *testing.T) {
	b := newBench(t)
	for i, lose := range []func(blob.Ref){
		b.memory.Remove,
		func(r blob.Ref) { require.NoError(t, b.memory.Tamper(r, []byte("John Q. Public was here"))) },
	} {
		ref := b.ingest(fmt.Sprint("John Q. Public ", i)).PayloadRef
		lose(blob.Ref{Digest: ref})
		r := b.fail(deadletter.Failure{PayloadRef: ref, Stage: chain.StageParse, Message: "no such file: John Q. Public"})
		require.Equal(t, chain.DeadLetter, r.Disposition)
		require.NotContains(t, b.letter(ref).Failure.LastError, "Public")
		require.False(t, b.letter(ref).Failure.ErrorRef.IsZero())
		_, err := b.Annotate(t.Context(), ref, deadletter.Annotation{Actor: "op", Note: "the disk failed"})
		require.NoError(t, err)
		require.Equal(t, "the disk failed", b.last().Note)
		_, err = b.Resolve(t.Context(), ref, deadletter.Order{Actor: "op", Reason: "sent again on paper"})
		require.NoError(t, err)
		require.Equal(t, "sent again on paper", b.last().Reason)
	}
}

// A store that cannot be read is another matter: nothing is decided on what is not known.
func TestUnreadableStore(t *testing.T) {
	b := newBench(t)
	ref := b.ingest("payload").PayloadRef
	b.memory.Fail = func(op string, _ chain.Digest) error {
		if op == "open" {
			return context.DeadlineExceeded
		}
		return nil
	}
	_, err := b.Fail(t.Context(), deadletter.Failure{PayloadRef: ref, Stage: chain.StageParse, Message: "text"})
	require.Error(t, err)
	require.Equal(t, chain.Received, b.letter(ref).Disposition)
}
