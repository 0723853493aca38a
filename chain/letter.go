package chain

import (
	"slices"
	"time"
)

// Lease is a worker's hold on a letter: the attempt that is running.
type Lease struct {
	Seq     uint64 // of the attempt event; the lease's identity
	Attempt uint64
	Worker  string
	Since   time.Time // by the clock that wrote Until
	Until   time.Time
	Alone   bool
}

// Length is how long the lease holds, by whatever clock.
func (l *Lease) Length() time.Duration { return l.Until.Sub(l.Since) }

func (l *Lease) members(c *codec) {
	c.count("seq", &l.Seq, true)
	c.count("attempt", &l.Attempt, false)
	text(c, "worker", &l.Worker)
	c.instant("since", &l.Since)
	c.instant("until", &l.Until)
	c.flag("alone", &l.Alone)
}

// Submission is one sender of a letter's bytes, and the event that recorded it.
type Submission struct {
	Channel Channel
	Source  string
	Seq     uint64
	Leaf    Digest
}

func (s *Submission) members(c *codec) {
	text(c, "channel", &s.Channel)
	text(c, "source", &s.Source)
	c.count("seq", &s.Seq, false)
	c.digest("leaf", &s.Leaf)
}

// Occurrence is a failure that was handed over, and the event that recorded it.
type Occurrence struct {
	Print   Digest // of what the failure said, apart from counts and times
	Attempt uint64
	Seq     uint64
	Leaf    Digest
}

func (o *Occurrence) members(c *codec) {
	c.digest("print", &o.Print)
	c.count("attempt", &o.Attempt, false)
	c.count("seq", &o.Seq, false)
	c.digest("leaf", &o.Leaf)
}

// Letter is the custody case of one payload: the fold of its events. The zero Letter is one that does not exist.
type Letter struct {
	Ref         Digest
	Disposition Disposition
	FirstSeen   time.Time
	UpdatedAt   time.Time // of the last disposition change
	MovedSeq    uint64    // of the event that made it
	EnqueuedSeq uint64    // of the event that last put it to work: the first one, a replay or a reopening
	CaseSize    uint64    // number of events
	CaseLeaf    Digest    // leaf hash of the last
	FirstSeq    uint64
	FirstLeaf   Digest
	LastSeq     uint64

	Size            uint64
	BlobVersion     string
	RetainUntil     time.Time
	Hold            bool
	Channel         Channel
	Source          string
	ContentType     string
	ContentEncoding string
	Submissions     []Submission

	Attempt       uint64 // attempts with an outcome since the last (re)enqueue
	Replays       uint64
	Losses        uint64 // attempts lost without attribution since the last outcome
	LossesAlone   uint64 // of these, while nothing ran beside it
	NextAttemptAt time.Time
	Lease         *Lease
	Failure       *Envelope // the last one; stays when the letter moves on
	FailureSeq    uint64
	FailureLeaf   Digest
	Occurrences   []Occurrence // handed over since the letter was last replayed or resolved, latest last; see Occurred

	Outcome     Outcome
	OutcomeCode string
	RecordRef   Digest
	UnitKey     Digest

	Owner string
	Tags  []string
	Notes uint64
}

func (l *Letter) members(c *codec) {
	c.digest("ref", &l.Ref)
	text(c, "disposition", &l.Disposition)
	c.instant("first_seen", &l.FirstSeen)
	c.instant("updated_at", &l.UpdatedAt)
	c.count("moved_seq", &l.MovedSeq, false)
	c.count("enqueued_seq", &l.EnqueuedSeq, false)
	c.count("case_size", &l.CaseSize, false)
	c.digest("case_leaf", &l.CaseLeaf)
	c.count("first_seq", &l.FirstSeq, false)
	c.digest("first_leaf", &l.FirstLeaf)
	c.count("last_seq", &l.LastSeq, false)
	c.count("size", &l.Size, false)
	text(c, "blob_version", &l.BlobVersion)
	c.instant("retain_until", &l.RetainUntil)
	c.flag("hold", &l.Hold)
	text(c, "channel", &l.Channel)
	text(c, "source", &l.Source)
	text(c, "content_type", &l.ContentType)
	text(c, "content_encoding", &l.ContentEncoding)
	for i, n := 0, list(c, "submissions", &l.Submissions); i < n; i++ {
		c.item()
		l.Submissions[i].members(c)
		c.end(i == n-1)
	}
	l.work(c)
	text(c, "outcome", &l.Outcome)
	text(c, "outcome_code", &l.OutcomeCode)
	c.digest("record_ref", &l.RecordRef)
	c.digest("unit_key", &l.UnitKey)
	text(c, "owner", &l.Owner)
	c.texts("tags", &l.Tags)
	c.count("notes", &l.Notes, false)
}

// work is the part of members that attempts and failures change.
func (l *Letter) work(c *codec) {
	c.count("attempt", &l.Attempt, false)
	c.count("replays", &l.Replays, false)
	c.count("losses", &l.Losses, false)
	c.count("losses_alone", &l.LossesAlone, false)
	c.instant("next_attempt_at", &l.NextAttemptAt)
	if c.begin("lease", l.Lease != nil) {
		if c.reading {
			l.Lease = new(Lease)
		}
		l.Lease.members(c)
		c.end(false)
	}
	if c.begin("failure", l.Failure != nil) {
		if c.reading {
			l.Failure = new(Envelope)
		}
		l.Failure.members(c)
		c.end(false)
	}
	c.count("failure_seq", &l.FailureSeq, false)
	c.digest("failure_leaf", &l.FailureLeaf)
	for i, n := 0, list(c, "occurrences", &l.Occurrences); i < n; i++ {
		c.item()
		l.Occurrences[i].members(c)
		c.end(i == n-1)
	}
}

// AppendText writes l as one line for a store; equal letters have equal lines.
func (l Letter) AppendText(out []byte) ([]byte, error) {
	c := codec{out: append(out, '{')}
	l.members(&c)
	return append(c.out, '}'), c.err
}

// ParseLetter reads what AppendText wrote. Errors are *GrammarError or *FieldError.
func ParseLetter(raw []byte) (l Letter, err error) {
	room := rooms.Get().(*[64]node)
	defer rooms.Put(room)
	nodes, err := scan(raw, room[:0])
	if err != nil {
		return Letter{}, err
	}
	var c codec
	c.read(raw, nodes, 0)
	l.members(&c)
	if c.err != nil {
		return Letter{}, c.err
	}
	return l, nil
}

// Exists tells whether any event made this letter.
func (l Letter) Exists() bool { return l.Disposition != "" }

// Sender finds the submission of a sender. Only the first MaxSubmissions senders are remembered.
func (l Letter) Sender(channel Channel, source string) (Submission, bool) {
	for _, s := range l.Submissions {
		if s.Channel == channel && s.Source == source {
			return s, true
		}
	}
	return Submission{}, false
}

// Occurred finds the hand-over of a failure that said what env says: the same stage, error code, error text,
// source and rule. Only the latest MaxOccurrences since the letter was last replayed or resolved are remembered.
func (l Letter) Occurred(env *Envelope) (Occurrence, bool) {
	said := env.print()
	for _, o := range l.Occurrences {
		if o.Print == said {
			return o, true
		}
	}
	return Occurrence{}, false
}

// Next fills in what every event of this letter carries besides its own facts: the case link and where the
// payload is. The first event brings its own payload reference and location.
func (l Letter) Next(e Event) Event {
	if l.Exists() {
		e.PayloadRef, e.BlobVersion = l.Ref, l.BlobVersion
		if e.RetainUntil.Before(l.RetainUntil) {
			e.RetainUntil = l.RetainUntil
		}
		e.CaseSeq, e.CasePrev = l.CaseSize, l.CaseLeaf
	}
	return e
}

// edges is the lifecycle: from a disposition, the disposition events it takes. "" is a letter that does not exist.
var edges = map[Disposition][]Disposition{
	"":         {Received, Retrying, DeadLetter, Poison},
	Received:   {Resolved, Retrying, DeadLetter, Poison},
	Retrying:   {Resolved, Retrying, DeadLetter, Poison, Replayed},
	DeadLetter: {Replayed, Resolved, DeadLetter, Poison},
	Replayed:   {Resolved, Retrying, DeadLetter, Poison},
	Poison:     {Replayed, Resolved, Poison},
	Resolved:   {Retrying, DeadLetter, Poison},
}

// MaxWait is longer than any retry waits: one that is further away was written by a clock that stood wrong, and is due.
const MaxWait = 2 * time.Hour

// Due tells whether the letter waits to be processed at t: it may be leased.
func (l Letter) Due(t time.Time) bool {
	switch l.Disposition {
	case Received, Replayed:
		return l.Lease == nil
	case Retrying:
		return l.Lease == nil && (!t.Before(l.NextAttemptAt) || l.NextAttemptAt.After(t.Add(MaxWait)))
	case DeadLetter, Resolved, Poison:
	}
	return false
}

// Apply is the lifecycle: the letter after r, or why r cannot follow. It is pure and knows no clock, no
// configuration and no randomness: what was decided stands in the event. Errors are *TransitionError or
// *FieldError. Apply never changes l.
func (l Letter) Apply(r Record) (Letter, error) {
	e := &r.Event
	if err := l.fits(r); err != nil {
		return l, err
	}
	n, err := l.step(r)
	if err != nil {
		return l, err
	}
	if !l.Exists() {
		n.Ref, n.FirstSeq, n.FirstLeaf, n.Size = e.PayloadRef, r.Seq, r.Leaf, e.Size
		n.Channel, n.Source = e.Channel, e.Source
		n.ContentType, n.ContentEncoding = e.ContentType, e.ContentEncoding
		n.BlobVersion = e.BlobVersion
	}
	n.RetainUntil = e.RetainUntil
	n.CaseSize, n.CaseLeaf, n.LastSeq = l.CaseSize+1, r.Leaf, r.Seq
	return n, nil
}

// fits checks what every event of a letter must have right, whatever it does.
func (l Letter) fits(r Record) error {
	e := &r.Event
	refuse := func(why string) error { return &TransitionError{l.Disposition, e.Type, why} }
	letter, _ := e.Type.scope()
	switch {
	case !letter:
		return refuse("it is not an event of a letter")
	case e.CaseSeq != l.CaseSize || e.CasePrev != l.CaseLeaf:
		return refuse("case_seq and case_prev do not follow the letter's events")
	case l.Exists() && e.PayloadRef != l.Ref:
		return refuse("it names another payload")
	case l.Exists() && (e.BlobVersion != l.BlobVersion || e.RetainUntil.Before(l.RetainUntil)):
		return refuse("it moves the payload or shortens its retention")
	case !l.Exists() && (e.Channel == "" || e.Type.Disposition() == ""):
		return refuse("a letter begins with a submission or a failure")
	case e.Lease != 0 && (l.Lease == nil || l.Lease.Seq != e.Lease):
		return refuse("its lease is over")
	case e.Lease != 0 && e.Attempt != 0 && e.Attempt != l.Lease.Attempt:
		return refuse("it names another attempt than the lease")
	}
	return nil
}

// step is the table of events.
func (l Letter) step(r Record) (Letter, error) {
	e := &r.Event
	if e.Type.Disposition() != "" {
		return l.move(r)
	}
	switch e.Type {
	case TypeAttempt:
		return l.attempt(r)
	case TypeAttemptLost:
		return l.attemptLost(r)
	case TypeSubmission:
		return l.submission(r)
	case TypeAnnotation:
		return l.annotate(e)
	case TypeRetention:
		if e.Hold != "" {
			l.Hold = e.Hold == "on"
		}
	default: // payload_read changes nothing but the count of events
	}
	return l, nil
}

// move takes an edge between dispositions.
func (l Letter) move(r Record) (Letter, error) {
	e := &r.Event
	to := e.Type.Disposition()
	if !slices.Contains(edges[l.Disposition], to) {
		return l, &TransitionError{l.Disposition, e.Type, ""}
	}
	if why := l.mayMove(e); why != "" {
		return l, &TransitionError{l.Disposition, e.Type, why}
	}
	n := l
	n.Disposition, n.UpdatedAt, n.MovedSeq = to, e.At, r.Seq
	if !l.Exists() || to == Replayed || l.Disposition == Resolved {
		n.EnqueuedSeq = r.Seq
	}
	n.Lease, n.NextAttemptAt, n.Losses, n.LossesAlone = nil, time.Time{}, 0, 0
	if !l.Exists() {
		n.FirstSeen = e.At
		n.Submissions = []Submission{{e.Channel, e.Source, r.Seq, r.Leaf}}
	}
	switch {
	case e.Envelope != nil:
		n.fail(r)
	case to == Replayed:
		n.Attempt, n.Replays, n.Occurrences = 0, l.Replays+1, nil
		n.Outcome, n.OutcomeCode = "", ""
	case to == Resolved:
		n.resolve(e)
	}
	return n, nil
}

func (l *Letter) fail(r Record) {
	failure := *r.Event.Envelope
	l.Failure, l.FailureSeq, l.FailureLeaf = &failure, r.Seq, r.Leaf
	l.FirstSeen, l.Attempt, l.NextAttemptAt = failure.FirstSeen, failure.Attempt, failure.NextAttemptAt
	l.Outcome, l.OutcomeCode = Exception, failure.ErrorCode
	if r.Event.Lease == 0 {
		l.Occurrences = latest(l.Occurrences, Occurrence{failure.print(), failure.Attempt, r.Seq, r.Leaf})
	}
}

// latest is a new list of the occurrences before, without the one that o repeats, and o at its end.
func latest(before []Occurrence, o Occurrence) []Occurrence {
	all := make([]Occurrence, 0, len(before)+1)
	for _, b := range before {
		if b.Print != o.Print {
			all = append(all, b)
		}
	}
	return append(all[max(0, len(all)+1-MaxOccurrences):], o)
}

func (l *Letter) resolve(e *Event) {
	l.Occurrences = nil
	if e.Lease != 0 {
		l.Attempt++
	}
	l.Outcome, l.OutcomeCode = e.Outcome, e.OutcomeCode
	if !e.RecordRef.IsZero() {
		l.RecordRef, l.UnitKey = e.RecordRef, e.UnitKey
	}
}

// mayMove says what, besides the edge, stands against a move; "" is nothing.
func (l Letter) mayMove(e *Event) (why string) {
	byHand := e.Outcome == ByHand
	switch to := e.Type.Disposition(); {
	case l.Lease != nil && (to == Replayed || to == Resolved && byHand):
		return "it is being processed"
	case to == Resolved && byHand && e.Reason == "":
		return "a resolution by hand needs a reason"
	case to == Resolved && byHand && (l.Disposition == Received || l.Disposition == Replayed):
		return "it is about to be processed"
	case to == Resolved && !byHand && e.Lease == 0:
		return "only the holder of the lease resolves by processing"
	case to == Replayed && l.Disposition == Poison && !(e.Override && e.Reason != ""):
		return "a quarantined letter is replayed only with an override and a reason"
	case e.Envelope != nil:
		return l.mayFail(e.Envelope, e)
	}
	return ""
}

func (l Letter) mayFail(env *Envelope, e *Event) (why string) {
	switch {
	case l.Exists() && (env.Replays != l.Replays || !env.FirstSeen.Equal(l.FirstSeen)):
		return "its envelope does not continue the letter's"
	case !l.Exists() && (env.Replays != 0 || env.FirstSeen.After(e.At)):
		return "a first envelope has no replays and was not seen in the future"
	case e.Lease != 0 && env.Attempt != l.Lease.Attempt:
		return "its envelope names another attempt than the lease"
	}
	return ""
}

func (l Letter) attempt(r Record) (Letter, error) {
	e := &r.Event
	refuse := func(why string) (Letter, error) { return l, &TransitionError{l.Disposition, e.Type, why} }
	switch {
	case e.Lease != 0 && (e.Attempt != l.Lease.Attempt || e.Worker != l.Lease.Worker || e.LeaseUntil.Before(l.Lease.Until)):
		return refuse("an extension keeps attempt and worker and does not shorten the lease")
	case e.Lease != 0:
		extended := *l.Lease
		extended.Since, extended.Until = e.At, e.LeaseUntil
		l.Lease = &extended
		return l, nil
	case l.Lease != nil:
		return refuse("it is leased already")
	case !l.Due(e.At):
		return refuse("it is not due")
	case e.Attempt != l.Attempt+1:
		return refuse("it is not the next attempt")
	}
	l.Lease = &Lease{Seq: r.Seq, Attempt: e.Attempt, Worker: e.Worker, Since: e.At, Until: e.LeaseUntil, Alone: e.Alone}
	return l, nil
}

func (l Letter) attemptLost(r Record) (Letter, error) {
	e := &r.Event
	switch {
	case e.Lease == 0:
		return l, &TransitionError{l.Disposition, e.Type, "it names no lease"}
	case e.Reason != LostReleased && e.Reason != LostService && e.Reason != LostWorker:
		return l, &TransitionError{l.Disposition, e.Type, "its reason is not one of released, service_died, worker_vanished"}
	}
	if e.Reason != LostReleased && !e.Attributed {
		l.Losses++
		if l.Lease.Alone {
			l.LossesAlone++
		}
	}
	l.Lease = nil
	return l, nil
}

func (l Letter) submission(r Record) (Letter, error) {
	e := &r.Event
	_, known := l.Sender(e.Channel, e.Source)
	if !l.Exists() || e.Channel == "" || known || len(l.Submissions) >= MaxSubmissions {
		return l, &TransitionError{l.Disposition, e.Type, "it adds no new sender"}
	}
	l.Submissions = append(slices.Clip(l.Submissions), Submission{e.Channel, e.Source, r.Seq, r.Leaf})
	return l, nil
}

func (l Letter) annotate(e *Event) (Letter, error) {
	if e.Owner != "" {
		l.Owner = e.Owner
	}
	if e.Note != "" {
		l.Notes++
	}
	at := slices.Index(l.Tags, e.Tag)
	switch {
	case e.Tag == "" || e.Untag == (at < 0):
	case e.Untag && len(l.Tags) == 1:
		l.Tags = nil
	case e.Untag:
		l.Tags = slices.Delete(slices.Clone(l.Tags), at, at+1)
	case len(l.Tags) >= MaxTags:
		return l, &TransitionError{l.Disposition, e.Type, "it has as many tags as a letter carries"}
	default:
		l.Tags = append(slices.Clip(l.Tags), e.Tag)
	}
	return l, nil
}
