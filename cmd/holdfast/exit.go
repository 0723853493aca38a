package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/jetstream"
	"github.com/holdfast-dvir/holdfast/projection"
	"github.com/holdfast-dvir/holdfast/web"
)

// Exit codes, the same for every verb.
const (
	exitOK          = 0
	exitFailed      = 1  // could not run
	exitTampered    = 2  // verify: tampered or truncated
	exitUncheckable = 3  // verify: not anchored or not checkable
	exitNotFound    = 4  // no such letter
	exitConflict    = 5  // the letter cannot take the step, or the folder is in use
	exitRefused     = 6  // bad input, named in the message
	exitDenied      = 7  // no token, or its role does not allow it
	exitUnavailable = 8  // the server cannot be reached or is not ready; try again
	exitUsage       = 64 // EX_USAGE of sysexits.h
)

const exitHelp = "Exit codes: 0 ok, 1 could not run, 2 tampered or truncated, 3 not checkable, 4 not found, " +
	"5 conflict or in use, 6 refused input, 7 not allowed, 8 unavailable, 64 usage."

// exitError ends a verb with a code of its own; its text may be empty when all is said.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

func exitf(code int, format string, args ...any) error {
	return &exitError{code, fmt.Sprintf(format, args...)}
}

// exitCode is the table from errors to exit codes.
func exitCode(err error) int {
	var own *exitError
	var problem *web.Problem
	var unreached *url.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &problem):
		return exitOfStatus(problem.Status)
	case errors.As(err, &unreached):
		return exitUnavailable
	case errors.Is(err, jetstream.ErrLocked), errors.Is(err, projection.ErrLocked):
		return exitConflict
	case errors.Is(err, deadletter.ErrDiverged), errors.As(err, new(*audit.AnchorError)):
		return exitTampered
	}
	return exitFailed
}

func exitOfStatus(status int) int {
	switch status {
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusConflict:
		return exitConflict
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitDenied
	case http.StatusServiceUnavailable, http.StatusInsufficientStorage, http.StatusTooManyRequests:
		return exitUnavailable
	}
	if status >= 400 && status < 500 {
		return exitRefused
	}
	return exitFailed
}
