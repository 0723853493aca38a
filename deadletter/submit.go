package deadletter

import (
	"context"
	"errors"
	"io"
	"mime"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
)

// Submission is a payload handed over by a sender.
type Submission struct {
	Body            io.Reader
	Channel         chain.Channel // default other
	Source          string        // opaque id of the sender, optional
	ContentType     string        // as the sender declared it, optional
	ContentEncoding string
	Actor           string // who handed it over, for the event
}

// Ingest takes a payload into custody: bytes first, then the event. The same bytes from the same sender again
// give the event of the first time and no further one; from another sender, the letter gets a further submission,
// as long as it has room for senders.
// Errors: *chain.FieldError, blob.ErrTooLarge and other errors of the store, ErrUnavailable.
func (q *Queue) Ingest(ctx context.Context, s Submission) (Receipt, error) {
	if err := s.normalise(); err != nil {
		return Receipt{}, err
	}
	loc, _, err := q.cfg.Store.Put(ctx, s.Body, time.Now())
	if err != nil {
		return Receipt{}, err
	}
	return q.step(ctx, loc.Digest, func(l chain.Letter, _ *view) (decision, error) {
		e := s.event(loc)
		if !l.Exists() {
			e.Type = chain.TypeReceived
			return record(e)
		}
		known, ok := l.Sender(s.Channel, s.Source)
		switch {
		case ok:
			return already(known.Seq, known.Leaf)
		case len(l.Submissions) < chain.MaxSubmissions:
			return record(s.sighting())
		}
		return already(l.FirstSeq, l.FirstLeaf)
	})
}

// event is the first event of a letter for the payload at loc, its type left open.
func (s *Submission) event(loc blob.Location) chain.Event {
	return chain.Event{At: time.Now(), Actor: s.Actor, Size: uint64(loc.Size), Channel: s.Channel, Source: s.Source,
		ContentType: s.ContentType, ContentEncoding: s.ContentEncoding,
		BlobVersion: loc.Version, RetainUntil: chain.Instant(loc.RetainUntil)}
}

// sighting records a further sender of known bytes.
func (s *Submission) sighting() chain.Event {
	return chain.Event{Type: chain.TypeSubmission, At: time.Now(), Actor: s.Actor, Channel: s.Channel, Source: s.Source}
}

// normalise checks what the sender says about the payload and reduces the content type to what matters: its
// other parameters could hold anything.
func (s *Submission) normalise() error {
	if s.Channel == "" {
		s.Channel = chain.OtherChannel
	}
	if s.Actor == "" {
		s.Actor = "anonymous"
	}
	switch {
	case !s.Channel.Valid():
		return field("channel", "must be ocr_document, mobile_export, telematics_api, manual_entry or other")
	case s.Source != "" && !chain.ValidToken(s.Source):
		return field("source", "must be 1 to 80 of A-Z a-z 0-9 . _ : / - and begin with a letter or digit")
	case !chain.ValidToken(s.Actor):
		return field("actor", "must be an identifier")
	case s.ContentEncoding != "" && !chain.ValidToken(s.ContentEncoding):
		return field("content_encoding", "must be a content coding of RFC 9110, such as gzip")
	}
	var err error
	s.ContentType, err = mediaType(s.ContentType)
	return err
}

// kept are the parameters of a content type that a processor needs, and how they must look: a charset that senders
// use, and a boundary of the characters of RFC 2046 section 5.1.1, but without blanks, so that no sentence passes.
var kept = map[string]*regexp.Regexp{
	"charset":  regexp.MustCompile(`(?i)^(utf-(8|16|16le|16be|32)|us-ascii|iso-8859-\d{1,2}|windows-125\d|shift_jis|gb18030|big5)$`),
	"boundary": regexp.MustCompile(`^[A-Za-z0-9'()+_,./:=?-]{1,70}$`),
}

// mediaType keeps type, subtype, charset and boundary of a content type (RFC 9110 section 8.3).
func mediaType(declared string) (string, error) {
	if declared == "" {
		return "", nil
	}
	kind, params, err := mime.ParseMediaType(declared)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) || !strings.Contains(kind, "/") {
		return "", field("content_type", "must be a media type such as application/json")
	}
	short := mime.FormatMediaType(kind, needed(params))
	if short == "" || len(short) > chain.MaxContentType {
		return "", field("content_type", "must be a media type of at most 200 bytes")
	}
	return short, nil
}

func needed(params map[string]string) map[string]string {
	out := map[string]string{}
	for name, form := range kept {
		if v := params[name]; form.MatchString(v) {
			out[name] = v
		}
	}
	return out
}

// Failure is a payload that failed elsewhere, handed over with what went wrong.
type Failure struct {
	Submission
	PayloadRef chain.Digest // instead of Body: a payload that is in custody already
	Stage      chain.Stage
	Signal     Signal
	Message    string    // error text as the sender has it; kept as a blob, up to 1 MiB, and summarised in the event
	Attempt    uint64    // attempts made elsewhere; 0 means not stated
	FirstSeen  time.Time // when the payload was first seen elsewhere; zero means now, and so does what a fast clock makes later
}

// Fail takes a failure into custody: payload, error text, then the event that says what becomes of the letter.
// The same failure again, its attempt not stated or not higher, gives the event of the first time and no further
// one, until the letter is replayed or resolved: a redelivery never disturbs who works on it.
// Errors: *chain.FieldError, ErrNotFound for an unknown PayloadRef, errors of the store, ErrUnavailable.
func (q *Queue) Fail(ctx context.Context, f Failure) (Receipt, error) {
	if err := f.normalise(); err != nil {
		return Receipt{}, err
	}
	loc, err := q.locate(ctx, &f)
	if err != nil {
		return Receipt{}, err
	}
	told, err := q.tell(ctx, loc.Digest, loc.Version, f.Message)
	if err != nil {
		return Receipt{}, err
	}
	verdict := q.Classify(f.Stage, f.Signal)
	r, err := q.step(ctx, loc.Digest, func(l chain.Letter, _ *view) (decision, error) {
		e := f.event(loc)
		env := q.envelope(l, &f, verdict, told, e.At)
		if known, ok := l.Occurred(env); ok && f.Attempt <= known.Attempt {
			return already(known.Seq, known.Leaf)
		}
		e.Type, e.Envelope, e.Blobs, e.Evidence = chain.Type(env.Disposition), env, told.blobs(), verdict.Evidence
		return record(e)
	})
	q.count(r)
	return r, err
}

// normalise checks a failure before anything is stored.
func (f *Failure) normalise() error {
	switch {
	case !f.Stage.Valid():
		return field("stage", "must be ingest, validate, parse, normalize or dispatch")
	case f.Body == nil && f.PayloadRef.IsZero():
		return field("payload", "a failure brings its payload, or names one in custody by payload_ref")
	case f.Body != nil && !f.PayloadRef.IsZero():
		return field("payload_ref", "stands instead of a payload, not beside it")
	case f.Attempt > 1_000_000:
		return field("attempt", "must be at most 1000000")
	case !f.FirstSeen.IsZero() && f.FirstSeen.Year() < 1970:
		return field("first_seen", "must not lie before 1970")
	}
	if err := f.Signal.Validate(); err != nil {
		return err
	}
	return f.Submission.normalise()
}

// locate stores the payload, or finds where a known one is.
func (q *Queue) locate(ctx context.Context, f *Failure) (blob.Location, error) {
	if f.Body != nil {
		loc, _, err := q.cfg.Store.Put(ctx, f.Body, time.Now())
		return loc, err
	}
	l, err := q.letter(ctx, f.PayloadRef)
	ref := blob.Ref{Digest: l.Ref, Version: l.BlobVersion}
	return blob.Location{Ref: ref, Size: int64(l.Size), RetainUntil: l.RetainUntil}, err
}

// envelope is the failure record of f at letter l.
func (q *Queue) envelope(l chain.Letter, f *Failure, v Verdict, told testimony, at time.Time) *chain.Envelope {
	env := &chain.Envelope{PayloadRef: told.payload, Stage: f.Stage, ErrorClass: v.Class, ErrorCode: v.Code,
		Attempt: max(f.Attempt, 1), FirstSeen: chain.Instant(at), LastError: told.summary,
		Channel: f.Channel, Source: f.Source, Rule: v.Rule, ErrorRef: told.ref}
	if l.Exists() {
		env.Attempt = max(f.Attempt, l.Attempt+1)
		env.Replays, env.FirstSeen, env.Channel = l.Replays, l.FirstSeen, l.Channel
	} else if !f.FirstSeen.IsZero() && f.FirstSeen.Before(at) {
		env.FirstSeen = chain.Instant(f.FirstSeen)
	}
	switch l.Disposition {
	case chain.DeadLetter, chain.Poison, chain.Resolved: // nothing waits to be tried, there is no count to go on
		env.Attempt = max(f.Attempt, 1)
	case chain.Received, chain.Retrying, chain.Replayed:
	}
	q.settle(env, l, v, at)
	return env
}

// settle decides between retry, dead letter and poison. A failure never leads out of quarantine.
func (q *Queue) settle(env *chain.Envelope, l chain.Letter, v Verdict, at time.Time) {
	env.Disposition = chain.DeadLetter
	switch {
	case v.Poison || l.Disposition == chain.Poison:
		env.Disposition = chain.Poison
	case v.Class == chain.Transient && env.Attempt <= q.cfg.MaxRetries && l.Disposition != chain.DeadLetter:
		env.Disposition = chain.Retrying
		env.NextAttemptAt = chain.Instant(RetryAt(at, env.Attempt, v.RetryAfter, q.cfg.Jitter()))
		return
	}
	env.ErrorClass = chain.Permanent
}
