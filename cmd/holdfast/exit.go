package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/blob"
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
	exitNotFound    = 4  // no such letter or token
	exitConflict    = 5  // the letter cannot take the step, or folder or address are in use
	exitRefused     = 6  // bad input, named in the message
	exitDenied      = 7  // no token, or its role does not allow it
	exitUnavailable = 8  // the server cannot be reached or is not ready; try again
	exitUsage       = 64 // EX_USAGE of sysexits.h
)

const exitHelp = `Exit codes: 0 ok, 1 could not run, 2 tampered or truncated, 3 not checkable,
4 not found, 5 conflict or in use, 6 input refused, 7 not allowed,
8 unavailable, try again, 64 usage.`

// exitError ends a verb with a code of its own; its text may be empty when all is said.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

func exitf(code int, format string, args ...any) error {
	return &exitError{code, fmt.Sprintf(format, args...)}
}

// errorText is what people read of an error, "" if all is said. Of the server's refusals they read the words and not
// the status; the number of a request that failed there finds it in the server's log.
func errorText(err error) string {
	problem, ok := errors.AsType[*web.Problem](err)
	if !ok {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	text := cmp.Or(problem.Detail, problem.Title)
	if len(problem.Fields) > 0 {
		text = ""
	}
	for i, f := range problem.Fields {
		if i > 0 {
			text += "; "
		}
		text += f.Name + ": " + f.Rule
	}
	if problem.Status >= http.StatusInternalServerError && problem.RequestID != "" {
		text += " (request " + problem.RequestID + ")"
	}
	return text
}

// exitCode is the table from errors to exit codes.
func exitCode(err error) int {
	var own *exitError
	var problem *web.Problem
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &problem):
		return exitOfStatus(problem.Status)
	case errors.Is(err, jetstream.ErrLocked), errors.Is(err, projection.ErrLocked), errors.Is(err, syscall.EADDRINUSE):
		return exitConflict
	case errors.As(err, new(*blob.UnfitError)):
		return exitRefused
	case errors.Is(err, blob.ErrUnavailable):
		return exitUnavailable
	case errors.Is(err, deadletter.ErrDiverged), errors.As(err, new(*audit.AnchorError)), errors.As(err, new(*jetstream.DamageError)):
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

// ofFile names the file that an error is about.
func ofFile(file string, err error) error {
	return &exitError{exitCode(err), file + ": " + errorText(err)}
}

// said is err with its words left out: they were said already, and only the exit code is left to tell.
func said(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitCode(err), ""}
}
