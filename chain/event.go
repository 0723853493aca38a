package chain

import (
	"errors"
	"time"
	"unicode/utf8"
)

// Type is the kind of an event.
type Type string

// Types. The first six are the dispositions they bring about.
const (
	TypeReceived   = Type(Received)
	TypeRetrying   = Type(Retrying)
	TypeDeadLetter = Type(DeadLetter)
	TypeReplayed   = Type(Replayed)
	TypeResolved   = Type(Resolved)
	TypePoison     = Type(Poison)

	TypeGenesis      Type = "genesis"       // the first event: who this log is
	TypeAttempt      Type = "attempt"       // a worker took the letter: the lease
	TypeAttemptLost  Type = "attempt_lost"  // no outcome came
	TypeSubmission   Type = "submission"    // another sender submitted the same bytes
	TypeAnnotation   Type = "annotation"    // owner, tag, note
	TypePayloadRead  Type = "payload_read"  // who opened the bytes, and why
	TypeRetention    Type = "retention"     // extended, or legal hold set or lifted
	TypeReplayPlan   Type = "replay_plan"   // a bulk replay was ordered
	TypeReplayCancel Type = "replay_cancel" // and stopped
	TypeReplayDone   Type = "replay_done"   // and ended by itself
	TypeAlert        Type = "alert"         // someone was told
	TypeKeyRotate    Type = "key_rotate"    // the log signs with another key from here on
	TypeReanchor     Type = "reanchor"      // documents a confirmed break; history is never rewritten
)

// scope says whether an event belongs to one letter. ok is false for types of a newer version.
func (t Type) scope() (letter, ok bool) {
	switch t {
	case TypeReceived, TypeRetrying, TypeDeadLetter, TypeReplayed, TypeResolved, TypePoison, TypeAttempt,
		TypeAttemptLost, TypeSubmission, TypeAnnotation, TypePayloadRead, TypeRetention:
		return true, true
	case TypeGenesis, TypeReplayPlan, TypeReplayCancel, TypeReplayDone, TypeAlert, TypeKeyRotate, TypeReanchor:
		return false, true
	}
	return false, false
}

// OfLetter tells whether events of this type belong to one letter: they have its payload_ref and case link.
func (t Type) OfLetter() bool {
	letter, _ := t.scope()
	return letter
}

func (t Type) known() bool {
	_, ok := t.scope()
	return ok
}

// Disposition is the state an event of this type brings about, "" for the others.
func (t Type) Disposition() Disposition {
	if d := Disposition(t); d.Valid() {
		return d
	}
	return ""
}

// failure tells whether events of this type carry an envelope.
func (t Type) failure() bool {
	return t == TypeRetrying || t == TypeDeadLetter || t == TypePoison
}

// Outcome is what processing made of a payload.
type Outcome string

// Outcomes. Exception is not one of resolved, but the word for every failure in receipts and reports.
const (
	Admit            Outcome = "admit"              // a record was written
	AdmitWithWarning Outcome = "admit_with_warning" // with findings attached
	Duplicate        Outcome = "duplicate"          // the record exists already
	Ignored          Outcome = "ignored"            // provably not a report
	ByHand           Outcome = "by_hand"            // a person decided, with a reason
	Exception        Outcome = "exception"
)

func (o Outcome) resolves() bool {
	switch o {
	case Admit, AdmitWithWarning, Duplicate, Ignored, ByHand:
		return true
	case Exception:
	}
	return false
}

// Why an attempt was lost.
const (
	LostReleased = "released"        // the worker gave it back unstarted or unfinished: costs nothing
	LostService  = "service_died"    // the service that ran it ended without an outcome
	LostWorker   = "worker_vanished" // the lease ran out
)

// Finding is one thing wrong with a payload: a code of the closed list and a JSON pointer (RFC 6901) made of
// names that the schema knows.
type Finding struct {
	Code    string
	Pointer string
}

func (f *Finding) members(c *codec) {
	text(c, "code", &f.Code)
	text(c, "pointer", &f.Pointer)
}

// BlobRef names stored bytes other than the payload, and where they are: the version written, and until when it
// is protected.
type BlobRef struct {
	Ref         Digest
	BlobVersion string
	RetainUntil time.Time
}

func (b *BlobRef) members(c *codec) {
	c.digest("ref", &b.Ref)
	text(c, "blob_version", &b.BlobVersion)
	c.instant("retain_until", &b.RetainUntil)
}

// Event is one fact of the log.
//
// Rules of evolution: types and member names never change meaning. New members are optional and absent when
// unset; one that an old reader must not overlook is listed in Crit. Reports of people and machines carry no
// floats, no nulls, no maps. The golden bytes in testdata are never regenerated: if that test fails, the change
// is wrong.
type Event struct {
	Type  Type
	At    time.Time // the writer's clock; order is given by seq alone
	Actor string    // pseudonymous id of who caused it
	Crit  []string  // members a reader must understand

	// Of every event of a letter. BlobVersion and RetainUntil locate the payload.
	PayloadRef  Digest
	CaseSeq     uint64 // number of this event in its letter, from 0
	CasePrev    Digest // leaf hash of the letter's event before; absent in the first
	BlobVersion string
	RetainUntil time.Time
	Blobs       []BlobRef // other bytes named by this event

	// Of submissions: received, submission, and the first event of a failure handed over.
	Size            uint64 // bytes
	Channel         Channel
	Source          string
	ContentType     string
	ContentEncoding string

	Envelope *Envelope // of retrying, dead_letter and poison

	// Of processing. Lease is the seq of the attempt event that an outcome or an extension belongs to.
	Lease         uint64
	Attempt       uint64
	Worker        string
	LeaseUntil    time.Time
	Alone         bool // runs with nothing beside it
	Attributed    bool // the loss was this payload's doing
	Evidence      string
	Outcome       Outcome
	OutcomeCode   string // the most basic warning, when there is one
	Findings      []Finding
	FindingsTotal uint64
	Rules         string // processor rules and version
	RecordRef     Digest
	RecordKey     Digest // pseudonym of the report's identity, without its version
	RecordVersion Digest // pseudonym of identity and version
	RecordContent Digest // digest of the decoded report, for telling duplicates from conflicts
	UnitKey       Digest // pseudonym of the vehicle

	// Of people.
	Reason   string
	Override bool   // a bound was overridden, with a reason
	Plan     string // the bulk replay that this belongs to
	Owner    string
	Tag      string
	Untag    bool
	Note     string
	Hold     string // "on" or "off", of retention

	// Of replay plans; Worker is the instance that carries one out.
	Terms  *PlanTerms  // of replay_plan: what was ordered
	Counts *PlanCounts // of replay_done and replay_cancel: what came of it

	// Of genesis.
	Origin   string
	LogID    string
	Keys     []string
	Software string
}

// members is the one order of members; v, prev and seq come before, see Seal.
func (e *Event) members(c *codec) {
	text(c, "type", &e.Type)
	c.instant("at", &e.At)
	c.texts("crit", &e.Crit)
	text(c, "actor", &e.Actor)
	if letter, _ := e.Type.scope(); letter {
		c.digest("payload_ref", &e.PayloadRef)
		c.count("case_seq", &e.CaseSeq, true)
		c.digest("case_prev", &e.CasePrev)
		text(c, "blob_version", &e.BlobVersion)
		c.instant("retain_until", &e.RetainUntil)
		for i, n := 0, list(c, "blobs", &e.Blobs); i < n; i++ {
			c.item()
			e.Blobs[i].members(c)
			c.end(i == n-1)
		}
		c.count("size", &e.Size, e.Type == TypeReceived)
		text(c, "channel", &e.Channel)
		text(c, "source", &e.Source)
		text(c, "content_type", &e.ContentType)
		text(c, "content_encoding", &e.ContentEncoding)
		if c.begin("envelope", e.Envelope != nil) {
			if c.reading {
				e.Envelope = new(Envelope)
			}
			e.Envelope.members(c)
			c.end(false)
		}
		e.processing(c)
	}
	e.people(c)
	switch e.Type {
	case TypeReplayPlan, TypeReplayCancel, TypeReplayDone:
		e.planning(c)
	case TypeGenesis:
		text(c, "origin", &e.Origin)
		text(c, "log_id", &e.LogID)
		c.texts("keys", &e.Keys)
		text(c, "software", &e.Software)
	default:
	}
}

func (e *Event) processing(c *codec) {
	c.count("lease", &e.Lease, false)
	c.count("attempt", &e.Attempt, false)
	text(c, "worker", &e.Worker)
	c.instant("lease_until", &e.LeaseUntil)
	c.flag("alone", &e.Alone)
	c.flag("attributed", &e.Attributed)
	text(c, "evidence", &e.Evidence)
	text(c, "outcome", &e.Outcome)
	text(c, "outcome_code", &e.OutcomeCode)
	for i, n := 0, list(c, "findings", &e.Findings); i < n; i++ {
		c.item()
		e.Findings[i].members(c)
		c.end(i == n-1)
	}
	c.count("findings_total", &e.FindingsTotal, false)
	text(c, "rules", &e.Rules)
	c.digest("record_ref", &e.RecordRef)
	c.digest("record_key", &e.RecordKey)
	c.digest("record_version", &e.RecordVersion)
	c.digest("record_content", &e.RecordContent)
	c.digest("unit_key", &e.UnitKey)
}

func (e *Event) people(c *codec) {
	text(c, "reason", &e.Reason)
	c.flag("override", &e.Override)
	text(c, "plan", &e.Plan)
	text(c, "owner", &e.Owner)
	text(c, "tag", &e.Tag)
	c.flag("untag", &e.Untag)
	text(c, "note", &e.Note)
	text(c, "hold", &e.Hold)
}

// Validate reports the first member that breaks its rule, as a *FieldError. Whether the letter can take the
// step is not its business, see Letter.Apply.
func (e *Event) Validate() error {
	letter, _ := e.Type.scope()
	switch {
	case e.Type == "":
		return &FieldError{"type", "is missing"}
	case e.At.IsZero():
		return &FieldError{"at", "is missing"}
	case !ValidToken(e.Actor):
		return &FieldError{"actor", tokenRule}
	case len(e.Crit) > 0:
		return &FieldError{"crit", "names members this version does not know"}
	}
	if err := e.validateTexts(); err != nil {
		return err
	}
	if letter {
		return e.validateLetter()
	}
	if e.Type == TypeGenesis && (e.Origin == "" || e.LogID == "") {
		return &FieldError{"origin", "origin and log_id must stand in the genesis event"}
	}
	return e.validatePlan()
}

// field is a text and the name of its member.
type field struct{ name, value string }

func (e *Event) validateTexts() error {
	for _, f := range [...]field{
		{"source", e.Source}, {"worker", e.Worker}, {"outcome_code", e.OutcomeCode}, {"rules", e.Rules},
		{"plan", e.Plan}, {"owner", e.Owner}, {"tag", e.Tag}, {"evidence", e.Evidence},
	} {
		if f.value != "" && !ValidToken(f.value) {
			return &FieldError{f.name, tokenRule}
		}
	}
	for _, f := range [...]field{
		{"blob_version", e.BlobVersion}, {"content_type", e.ContentType}, {"content_encoding", e.ContentEncoding},
		{"origin", e.Origin}, {"log_id", e.LogID}, {"software", e.Software},
	} {
		if len(f.value) > MaxText {
			return &FieldError{f.name, textRule}
		}
	}
	for _, key := range e.Keys {
		if key == "" || len(key) > MaxText {
			return &FieldError{"keys", "must have 1 to 200 bytes each"}
		}
	}
	for _, f := range [...]field{{"reason", e.Reason}, {"note", e.Note}} {
		if utf8.RuneCountInString(f.value) > MaxReason {
			return &FieldError{f.name, "must have at most 500 characters"}
		}
	}
	return nil
}

const textRule = "must have at most 200 bytes"

func (e *Event) validateLetter() error {
	switch {
	case e.PayloadRef.IsZero():
		return &FieldError{"payload_ref", "is missing"}
	case e.BlobVersion == "" || e.RetainUntil.IsZero():
		return &FieldError{"blob_version", "blob_version and retain_until must locate the payload"}
	case (e.CaseSeq == 0) != e.CasePrev.IsZero():
		return &FieldError{"case_prev", "is absent in the first event of a letter, and only there"}
	case e.Channel != "" && !e.Channel.Valid():
		return &FieldError{"channel", channelRule}
	case (e.Envelope != nil) != e.Type.failure():
		return &FieldError{"envelope", "stands in retrying, dead_letter and poison events, and only there"}
	case e.Type == TypeResolved && !e.Outcome.resolves():
		return &FieldError{"outcome", "of a resolved letter must be admit, admit_with_warning, duplicate, ignored or by_hand"}
	case e.Type == TypeAttempt && (e.Attempt == 0 || e.Worker == "" || e.LeaseUntil.IsZero()):
		return &FieldError{"attempt", "attempt, worker and lease_until must stand in an attempt"}
	case e.Hold != "" && (e.Type != TypeRetention || e.Hold != "on" && e.Hold != "off"):
		return &FieldError{"hold", "is on or off, and stands in retention events only"}
	}
	if err := e.validateLists(); err != nil || e.Envelope == nil {
		return err
	}
	return e.validateEnvelope()
}

func (e *Event) validateLists() error {
	if len(e.Findings) > MaxFindings || uint64(len(e.Findings)) > e.FindingsTotal {
		return &FieldError{"findings", "are at most 48, and no more than findings_total"}
	}
	for _, f := range e.Findings {
		if !ValidToken(f.Code) || !validPointer(f.Pointer) {
			return &FieldError{"findings", "must have a code and a JSON pointer of plain names, at most 200 bytes"}
		}
	}
	for _, b := range e.Blobs {
		if b.Ref.IsZero() || len(b.BlobVersion) > MaxText {
			return &FieldError{"blobs", "must have a ref and a version of at most 200 bytes"}
		}
	}
	return nil
}

// validPointer tells whether s points to the whole document or is made of names as narrow as tokens.
func validPointer(s string) bool {
	if len(s) > MaxPointer || s != "" && s[0] != '/' {
		return false
	}
	for i := range len(s) {
		if classes[s[i]]&inToken == 0 {
			return false
		}
	}
	return true
}

func (e *Event) validateEnvelope() error {
	err := e.Envelope.Validate()
	switch {
	case err != nil:
		return nested("envelope", err)
	case e.Envelope.PayloadRef != e.PayloadRef:
		return &FieldError{"envelope", "names another payload than its event"}
	case e.Envelope.Disposition != e.Type.Disposition():
		return &FieldError{"envelope", "names another disposition than its event"}
	}
	return nil
}

// nested puts the name of the object before the name of its member.
func nested(name string, err error) error {
	if fe, ok := errors.AsType[*FieldError](err); ok {
		return &FieldError{name + "." + fe.Field, fe.Rule}
	}
	return err
}
