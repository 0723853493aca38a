package chain

import (
	"errors"
	"fmt"
)

// Errors of a log, see Appender.
var (
	// ErrConflict: the block was certainly not stored, another one follows prev.
	ErrConflict = errors.New("the log has moved on: another block was appended first")
	// ErrUnknown: the block may or may not be stored; read the log before doing anything else.
	ErrUnknown = errors.New("the outcome of the append is unknown")
)

// GrammarError says that bytes do not follow the event grammar. It never repeats the bytes.
type GrammarError struct {
	Offset int    // where, in bytes from the start of the event
	What   string // which rule, in words
}

func (e *GrammarError) Error() string {
	return fmt.Sprintf("event grammar: %s at byte %d", e.What, e.Offset)
}

// FieldError says that a member of an event, envelope or request breaks its rule. It never repeats the value.
type FieldError struct {
	Field string // the member's name
	Rule  string // what it must be
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Rule }

// BreakKind names what is wrong at a place of the log.
type BreakKind string

// Kinds of breaks.
const (
	BreakGrammar   BreakKind = "grammar"   // not an event by its bytes
	BreakLink      BreakKind = "link"      // prev is not the leaf hash of the event before
	BreakSequence  BreakKind = "sequence"  // seq is not the next number
	BreakField     BreakKind = "field"     // a member or the envelope breaks its rule
	BreakLifecycle BreakKind = "lifecycle" // the letter could not take this step
	BreakNewer     BreakKind = "newer"     // written by a newer version: not checkable here
)

// BrokenError is the first thing wrong at one place of the log.
type BrokenError struct {
	Seq  uint64 // the sequence expected at this place
	Kind BreakKind
	Err  error // the rule broken; holds no values
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("event %d: %s: %v", e.Seq, e.Kind, e.Err)
}

func (e *BrokenError) Unwrap() error { return e.Err }

// TransitionError is a step that the lifecycle does not have. It is the answer to a request that came too late,
// and a finding when it stands in a log.
type TransitionError struct {
	From Disposition // "" for a letter that does not exist
	To   Type
	Why  string
}

func (e *TransitionError) Error() string {
	text := "a new letter cannot "
	if e.From != "" {
		text = "a letter that is " + string(e.From) + " cannot "
	}
	deed, ok := deeds[e.To]
	if !ok {
		deed = "take the event " + string(e.To)
	}
	if text += deed; e.Why != "" {
		text += ": " + e.Why
	}
	return text
}

// deeds are what the events of letters do, as words after "cannot".
var deeds = map[Type]string{
	TypeReceived:    "be received",
	TypeRetrying:    "wait for a retry",
	TypeDeadLetter:  "become a dead letter",
	TypePoison:      "be quarantined",
	TypeReplayed:    "be replayed",
	TypeResolved:    "be resolved",
	TypeAttempt:     "be attempted",
	TypeAttemptLost: "lose an attempt",
	TypeSubmission:  "be submitted again",
	TypeAnnotation:  "be annotated",
	TypePayloadRead: "be read",
	TypeRetention:   "change its retention",
}
