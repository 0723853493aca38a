package deadletter

import (
	"errors"
	"fmt"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Errors of the queue. Besides these, callers meet *chain.FieldError (a bad request), *chain.TransitionError
// (the letter cannot take the step) and the errors of the blob store.
var (
	// ErrUnavailable: the log could not be written, or the outcome of a write is not known yet. Nothing was
	// acknowledged; the same request may be repeated and is then recorded once.
	ErrUnavailable = errors.New("the log is not available; repeat the request later")
	// ErrNotFound: there is no letter for the payload reference.
	ErrNotFound = errors.New("no letter has this payload reference")
	// ErrNoPlan: there is no bulk replay of this name.
	ErrNoPlan = errors.New("there is no such plan")
	// ErrEmptyFilter: a bulk replay of everything was asked for without saying so.
	ErrEmptyFilter = errors.New("the filter of a plan must say which letters are meant")
	// ErrStaleLease: the lease is over, by completion, loss or an operator. Nothing was changed.
	ErrStaleLease = errors.New("the lease is over; its outcome was not recorded")
	// ErrDiverged: the projection was folded from another log than the one at hand, or from more of it.
	ErrDiverged = errors.New("the log ends before the events already seen, or holds others in their place")
)

// PlanConflictError says that a running plan is in the way: it has the same target, or the letter is one of those it
// is still to replay.
type PlanConflictError struct {
	Plan   string
	Target string // "" if it is about a letter
}

func (e *PlanConflictError) Error() string {
	if e.Target != "" {
		return "plan " + e.Plan + " is running for the target " + e.Target + "; one runs at a time"
	}
	return "plan " + e.Plan + " is running and will replay this letter"
}

// PlanCountError says that a filter no longer means as many letters as were counted.
type PlanCountError struct {
	Expected uint64 // as the order says
	Count    uint64 // of those of the snapshot that are still as they were
	Snapshot uint64
}

func (e *PlanCountError) Error() string {
	return fmt.Sprintf("%d letters were expected, and %d are as they were at event %d; count them again", e.Expected, e.Count, e.Snapshot)
}

// PlanEndedError says that a plan is over and cannot be changed.
type PlanEndedError struct {
	Plan  string
	State chain.PlanState
}

func (e *PlanEndedError) Error() string { return "plan " + e.Plan + " is " + string(e.State) }

func field(name, rule string) error { return &chain.FieldError{Field: name, Rule: rule} }
