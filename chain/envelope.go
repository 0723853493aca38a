package chain

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Disposition is the state of a letter; the type of the event that brings it about has the same name.
type Disposition string

// Dispositions. Every letter is in exactly one of them, and no edge leads out of custody.
const (
	Received   Disposition = "received"    // waiting to be processed
	Retrying   Disposition = "retrying"    // waiting for a bounded retry
	DeadLetter Disposition = "dead_letter" // waiting for a human
	Replayed   Disposition = "replayed"    // waiting to be processed again
	Resolved   Disposition = "resolved"    // a record exists, or a person decided
	Poison     Disposition = "poison"      // quarantined: crashed a worker, or replayed too often
)

// Dispositions lists all of them in the order of the lifecycle.
var Dispositions = []Disposition{Received, Retrying, DeadLetter, Replayed, Resolved, Poison}

// Valid tells whether d is one of the six.
func (d Disposition) Valid() bool {
	switch d {
	case Received, Retrying, DeadLetter, Replayed, Resolved, Poison:
		return true
	}
	return false
}

// Open tells whether somebody or something still has to act on the letter.
func (d Disposition) Open() bool { return d != Resolved }

// Stage is where in the pipeline a failure happened.
type Stage string

// Stages, in pipeline order.
const (
	StageIngest    Stage = "ingest"
	StageValidate  Stage = "validate"
	StageParse     Stage = "parse"
	StageNormalize Stage = "normalize"
	StageDispatch  Stage = "dispatch"
)

// Stages lists them.
var Stages = []Stage{StageIngest, StageValidate, StageParse, StageNormalize, StageDispatch}

// Valid tells whether s is one of the five.
func (s Stage) Valid() bool {
	switch s {
	case StageIngest, StageValidate, StageParse, StageNormalize, StageDispatch:
		return true
	}
	return false
}

// Class says whether trying again can help.
type Class string

// Classes.
const (
	Transient Class = "transient"
	Permanent Class = "permanent"
)

// Channel is the road a payload came by.
type Channel string

// Channels.
const (
	OCRDocument   Channel = "ocr_document"
	MobileExport  Channel = "mobile_export"
	TelematicsAPI Channel = "telematics_api"
	ManualEntry   Channel = "manual_entry"
	OtherChannel  Channel = "other"
)

// Channels lists them.
var Channels = []Channel{OCRDocument, MobileExport, TelematicsAPI, ManualEntry, OtherChannel}

// Valid tells whether c is one of the five.
func (c Channel) Valid() bool {
	switch c {
	case OCRDocument, MobileExport, TelematicsAPI, ManualEntry, OtherChannel:
		return true
	}
	return false
}

// Envelope is the failure record: all that a reviewer needs to understand a failure, and nothing of the payload.
// It is validated when it is written and when it is read.
type Envelope struct {
	PayloadRef    Digest
	Stage         Stage
	ErrorClass    Class
	ErrorCode     string // "stage.symbol"
	Attempt       uint64 // attempts made since the last (re)enqueue, from 1
	Replays       uint64
	FirstSeen     time.Time // starts the backlog-age clock
	LastError     string    // sanitised, at most MaxLastError characters
	Disposition   Disposition
	Channel       Channel
	Source        string
	NextAttemptAt time.Time // set when retrying
	Rule          string    // classifier or processor rule and version that decided
	ErrorRef      Digest    // blob with the unsanitised error text, access-controlled
}

func (e *Envelope) members(c *codec) {
	c.digest("payload_ref", &e.PayloadRef)
	text(c, "stage", &e.Stage)
	text(c, "error_class", &e.ErrorClass)
	text(c, "error_code", &e.ErrorCode)
	c.count("attempt", &e.Attempt, true)
	c.count("replays", &e.Replays, true)
	c.instant("first_seen", &e.FirstSeen)
	text(c, "last_error", &e.LastError)
	text(c, "disposition", &e.Disposition)
	text(c, "channel", &e.Channel)
	text(c, "source", &e.Source)
	c.instant("next_attempt_at", &e.NextAttemptAt)
	text(c, "rule", &e.Rule)
	c.digest("error_ref", &e.ErrorRef)
}

// print tells failures that say the same from others: whatever counts and times they give, and whatever became of
// their letter.
func (e *Envelope) print() Digest {
	said := Envelope{Stage: e.Stage, ErrorCode: e.ErrorCode, LastError: e.LastError, Source: e.Source, Rule: e.Rule,
		ErrorRef: e.ErrorRef}
	c := codec{out: []byte{'{'}}
	said.members(&c)
	return Sum(c.out)
}

// Validate reports the first member that breaks its rule, as a *FieldError.
func (e *Envelope) Validate() error {
	switch {
	case e.PayloadRef.IsZero():
		return &FieldError{"payload_ref", "is missing"}
	case !e.Stage.Valid():
		return &FieldError{"stage", "must be ingest, validate, parse, normalize or dispatch"}
	case e.ErrorClass != Transient && e.ErrorClass != Permanent:
		return &FieldError{"error_class", "must be transient or permanent"}
	case !ValidCode(e.ErrorCode) || !strings.HasPrefix(e.ErrorCode, string(e.Stage)+"."):
		return &FieldError{"error_code", "must be the stage, a dot and a lower_snake symbol"}
	case e.Attempt < 1:
		return &FieldError{"attempt", "must be at least 1"}
	case e.FirstSeen.IsZero():
		return &FieldError{"first_seen", "is missing"}
	case utf8.RuneCountInString(e.LastError) > MaxLastError:
		return &FieldError{"last_error", "must have at most 500 characters"}
	case !e.Channel.Valid():
		return &FieldError{"channel", channelRule}
	case e.Source != "" && !ValidToken(e.Source):
		return &FieldError{"source", tokenRule}
	case !ValidToken(e.Rule):
		return &FieldError{"rule", tokenRule}
	}
	return e.validateDisposition()
}

func (e *Envelope) validateDisposition() error {
	retrying := e.Disposition == Retrying
	switch {
	case !retrying && e.Disposition != DeadLetter && e.Disposition != Poison:
		return &FieldError{"disposition", "of a failure must be retrying, dead_letter or poison"}
	case retrying != (e.ErrorClass == Transient):
		return &FieldError{"error_class", "transient failures retry, permanent ones do not"}
	case retrying == e.NextAttemptAt.IsZero():
		return &FieldError{"next_attempt_at", "stands in an envelope exactly when it is retrying"}
	}
	return nil
}

// Rules that several members share.
const (
	channelRule = "must be ocr_document, mobile_export, telematics_api, manual_entry or other"
	tokenRule   = "must be 1 to 80 of A-Z a-z 0-9 . _ : / - and begin with a letter or digit"
)

// ValidToken tells whether s can serve as an identifier in events: short, printable, and too narrow for
// names, mail addresses and free text.
func ValidToken(s string) bool {
	if s == "" || len(s) > MaxToken {
		return false
	}
	for i := range len(s) {
		if classes[s[i]]&inToken == 0 {
			return false
		}
	}
	return classes[s[0]]&alnum != 0
}

// ValidCode tells whether s has the form of an error code, "stage.symbol" in lower snake.
func ValidCode(s string) bool {
	stage, symbol, ok := strings.Cut(s, ".")
	if !ok || !Stage(stage).Valid() || symbol == "" || len(s) > MaxToken {
		return false
	}
	for i := range len(symbol) {
		c := symbol[i]
		if !('a' <= c && c <= 'z' || i > 0 && ('0' <= c && c <= '9' || c == '_')) {
			return false
		}
	}
	return true
}
