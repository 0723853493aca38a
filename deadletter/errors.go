package deadletter

import (
	"errors"

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
	// ErrStaleLease: the lease is over, by completion, loss or an operator. Nothing was changed.
	ErrStaleLease = errors.New("the lease is over; its outcome was not recorded")
	// ErrDiverged: the projection was folded from another log than the one at hand, or from more of it.
	ErrDiverged = errors.New("the log ends before the events already seen, or holds others in their place")
)

func field(name, rule string) error { return &chain.FieldError{Field: name, Rule: rule} }
