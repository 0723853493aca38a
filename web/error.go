package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/projection"
)

// Problem is the answer to a request that failed, as application/problem+json (RFC 9457). It never holds a value of
// the request.
type Problem struct {
	Type      string  `json:"type" doc:"Names the kind of problem for programs" example:"urn:holdfast:problem:not-found"`
	Title     string  `json:"title" doc:"The status in words"`
	Status    int     `json:"status" doc:"HTTP status code"`
	Detail    string  `json:"detail,omitempty" doc:"What is wrong, for a person"`
	Fields    []Field `json:"fields,omitempty" doc:"The parts of the request that break a rule"`
	Plan      string  `json:"plan,omitempty" doc:"The running plan that is in the way"`
	RequestID string  `json:"request_id,omitempty" doc:"Finds the request in the log"`

	header http.Header
}

// Field is a part of a request and the rule that it breaks.
type Field struct {
	Name string `json:"name" doc:"A parameter, or a JSON pointer into the body"`
	Rule string `json:"rule"`
}

// Kinds of problems: what Problem.Type ends in.
const (
	KindInvalid      = "invalid"      // 400, 415, 422: the request breaks a rule
	KindUnauthorised = "unauthorised" // 401
	KindForbidden    = "forbidden"    // 403: the token's role may not do this
	KindNotFound     = "not-found"    // 404: no such letter, or no such path
	KindMethod       = "method"       // 405
	KindAmbiguous    = "ambiguous"    // 409: a short reference fits several letters
	KindState        = "state"        // 409: the letter, or the plan, cannot take this step now
	KindPlan         = "plan"         // 409: a running plan is in the way
	KindLease        = "lease"        // 409: the lease is over, or another worker's
	KindCount        = "count"        // 409: a filter no longer means as many letters as were counted
	KindTooLarge     = "too-large"    // 413
	KindUpload       = "upload"       // 400: the body broke off
	KindDamaged      = "damaged"      // 500: stored bytes are missing or not what they were
	KindInternal     = "internal"     // 500
	KindUnavailable  = "unavailable"  // 503: repeat the request later
	KindReadOnly     = "read-only"    // 503: the store takes nothing
	KindFull         = "storage-full" // 507
	KindNotReady     = "not-ready"    // 503: of /readyz
	kindPrefix       = "urn:holdfast:problem:"
)

// Kind is what Type ends in, "" for problems of somebody else, such as a proxy.
func (p *Problem) Kind() string {
	kind, ok := strings.CutPrefix(p.Type, kindPrefix)
	if !ok {
		return ""
	}
	return kind
}

// Error implements error: status, detail and fields in one line.
func (p *Problem) Error() string {
	text := fmt.Sprintf("%d %s", p.Status, p.Title)
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	for _, f := range p.Fields {
		text += "; " + f.Name + ": " + f.Rule
	}
	return text
}

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header { return p.header }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

func problem(status int, kind, detail string, fields ...Field) *Problem {
	return &Problem{Type: kindPrefix + kind, Title: http.StatusText(status), Status: status, Detail: detail, Fields: fields}
}

func (p *Problem) with(header, value string) *Problem {
	p.header = http.Header{header: {value}}
	return p
}

// write answers with p where huma does not.
func (p *Problem) write(w http.ResponseWriter, requestID string) {
	p.RequestID = requestID
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client is gone otherwise
}

// refusals says what becomes of the errors that rooms name by a value; those that carry data follow in problemOf.
var refusals = []struct {
	is     error
	status int
	kind   string
	detail string
	header string // of Retry-After
}{
	{deadletter.ErrNotFound, 404, KindNotFound, "there is no letter with this reference", ""},
	{projection.ErrNotFound, 404, KindNotFound, "there is no letter with this reference", ""},
	{deadletter.ErrNoPlan, 404, KindNotFound, "there is no plan of this name", ""},
	{deadletter.ErrEmptyFilter, 400, KindInvalid, "the filter is empty; say which letters are meant, if all of them then by their dispositions", ""},
	{deadletter.ErrStaleLease, 409, KindLease, "the lease is over, or another worker's; nothing was changed", ""},
	{deadletter.ErrUnavailable, 503, KindUnavailable, "the log cannot be written now; repeat the request, it is recorded once", "1"},
	{deadletter.ErrDiverged, 503, KindUnavailable, "the log and the state folded from it do not agree", ""},
	{projection.ErrClosed, 503, KindUnavailable, "the service is shutting down", "1"},
	{deadletter.ErrNoSpace, 507, KindFull, "the payload store is full; nothing was kept, repeat the request when there is room", "30"},
	{deadletter.ErrStoreReadOnly, 503, KindReadOnly, "the payload store cannot be written; nothing was kept", ""},
	{deadletter.ErrStoreUnavailable, 503, KindUnavailable, "the payload store does not answer; repeat the request later", "5"},
	{deadletter.ErrPayloadMissing, 500, KindDamaged, "the payload's bytes are not in the store", ""},
	{deadletter.ErrUpload, 400, KindUpload, "the body broke off; nothing was kept", ""},
	{syscall.EMFILE, 503, KindUnavailable, "the service has too many files open; nothing was kept", "1"},
	{syscall.ENFILE, 503, KindUnavailable, "the machine has too many files open; nothing was kept", "1"},
	{context.DeadlineExceeded, 503, KindUnavailable, "this took too long; repeat the request", "1"},
	{context.Canceled, 503, KindUnavailable, "the request was given up", "1"},
}

// problemOf is the one place where errors become statuses. What it does not know is a 500 that says nothing.
func problemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if p := problemOfType(err); p != nil {
		return p
	}
	for _, r := range refusals {
		if errors.Is(err, r.is) {
			p := problem(r.status, r.kind, r.detail)
			if r.header != "" {
				p = p.with("Retry-After", r.header)
			}
			return p
		}
	}
	return problem(http.StatusInternalServerError, KindInternal, "")
}

func problemOfType(err error) *Problem {
	if e, ok := errors.AsType[*chain.FieldError](err); ok {
		return problem(http.StatusUnprocessableEntity, KindInvalid, "the request breaks a rule", Field{e.Field, e.Rule})
	}
	if p := problemOfPlan(err); p != nil {
		return p
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(e.Limit)
	}
	if e, ok := errors.AsType[*deadletter.PayloadTooLargeError](err); ok {
		return tooLarge(e.Limit)
	}
	if e, ok := errors.AsType[*deadletter.RetentionError](err); ok {
		return problem(http.StatusUnprocessableEntity, KindInvalid, "the request breaks a rule",
			Field{"retain_until", "must not be after the cap of retention, " + e.Latest.Format(time.RFC3339)})
	}
	if e, ok := errors.AsType[*chain.TransitionError](err); ok && !errors.Is(err, deadletter.ErrStaleLease) {
		return problem(http.StatusConflict, KindState, e.Error())
	}
	if _, ok := errors.AsType[*deadletter.PayloadCorruptError](err); ok {
		return problem(http.StatusInternalServerError, KindDamaged, "the stored bytes no longer match their reference")
	}
	return nil
}

func problemOfPlan(err error) *Problem {
	if e, ok := errors.AsType[*deadletter.PlanConflictError](err); ok {
		p := problem(http.StatusConflict, KindPlan, e.Error())
		p.Plan = e.Plan
		return p
	}
	if e, ok := errors.AsType[*deadletter.PlanCountError](err); ok {
		return problem(http.StatusConflict, KindCount, e.Error())
	}
	if e, ok := errors.AsType[*deadletter.PlanEndedError](err); ok {
		return problem(http.StatusConflict, KindState, e.Error())
	}
	return nil
}

// tooLarge also ends the connection: what follows of the body is not worth reading.
func tooLarge(limit int64) *Problem {
	return problem(http.StatusRequestEntityTooLarge, KindTooLarge, fmt.Sprintf("the body is larger than %d bytes; nothing was kept", limit)).
		with("Connection", "close")
}

// fail turns the error of an operation into its answer. Faults of ours are logged here, and only here.
func (a *api) fail(ctx context.Context, op *huma.Operation, err error) *Problem {
	p := problemOf(err)
	p.RequestID = requestID(ctx)
	if p.Status >= http.StatusInternalServerError && ctx.Err() == nil {
		level := slog.LevelWarn
		switch {
		case p.Status == http.StatusInternalServerError:
			level = slog.LevelError
		case errors.Is(err, deadletter.ErrStoreUnavailable):
			level = slog.LevelDebug // the service tells once that the store is away, and once that it is back
		}
		a.Log.LogAttrs(ctx, level, "request failed", slog.String("method", op.Method), slog.String("route", op.Path),
			slog.Int("status", p.Status), slog.String("request_id", p.RequestID), slog.String("error", err.Error()))
	}
	return p
}

// cut ends a connection whose answer turned out wrong after it began: the client sees that it is not whole.
func (a *api) cut(ctx huma.Context, err error) {
	_ = a.fail(ctx.Context(), ctx.Operation(), err) // for the log
	panic(http.ErrAbortHandler)
}

// huma asks package variables for its errors. They are set once, for the only room that uses it.
func init() {
	huma.NewErrorWithContext = func(ctx huma.Context, status int, _ string, errs ...error) huma.StatusError {
		p := refused(status, ctx.Operation(), errs)
		p.RequestID = requestID(ctx.Context())
		return p
	}
	huma.NewError = func(status int, _ string, _ ...error) huma.StatusError {
		return problem(status, KindInvalid, "")
	}
}

// refused words what huma found wrong with a request. Its own texts quote values.
func refused(status int, op *huma.Operation, errs []error) *Problem {
	for _, err := range errs {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
		}
	}
	switch status {
	case http.StatusRequestEntityTooLarge:
		return tooLarge(op.MaxBodyBytes - 1)
	case http.StatusUnsupportedMediaType:
		return problem(status, KindInvalid, "the body must be application/json")
	case http.StatusRequestTimeout:
		return problem(status, KindUpload, "the body did not come in time")
	case http.StatusBadRequest:
		return problem(status, KindInvalid, "the body must be a JSON object, with each member once")
	case http.StatusInternalServerError: // huma's name for a body that broke off
		return problem(http.StatusBadRequest, KindUpload, "the body broke off")
	}
	p := problem(http.StatusUnprocessableEntity, KindInvalid, "the request breaks a rule")
	for _, err := range errs {
		if d, ok := errors.AsType[*huma.ErrorDetail](err); ok {
			p.Fields = append(p.Fields, fieldOf(d))
		}
	}
	return p
}

// wording turns huma's rules, which stand in the API's own description, into ours.
var wording = strings.NewReplacer("expected required property ", "must have the member ", " to be present", "",
	"expected string to be ", "must be ", "expected value to be ", "must be ", "expected number ", "must be ",
	"expected length ", "must have a length ", "expected ", "must be ")

// fieldOf keeps of d what comes from the API's own description.
func fieldOf(d *huma.ErrorDetail) Field {
	in, name, _ := strings.Cut(d.Location, ".")
	switch {
	case d.Message == "unexpected property":
		return Field{"body", "must have the documented members only"}
	case d.Message == "unknown query parameter":
		return Field{"query", "must have the documented parameters only"}
	case in == "body" && name != "":
		name = "/" + strings.ReplaceAll(name, ".", "/")
	case name == "":
		name = in
	}
	rule := "is not valid"
	switch {
	case strings.HasPrefix(d.Message, "expected ") && !strings.Contains(d.Message, ": "):
		rule = wording.Replace(d.Message)
	case strings.HasPrefix(d.Message, "required "):
		rule = "is required"
	case d.Message == "invalid integer":
		rule = "must be an integer"
	case d.Message == "invalid boolean":
		rule = "must be true or false"
	case strings.HasPrefix(d.Message, "invalid date/time"):
		rule = "must be a time such as 2026-03-02T06:30:00Z (RFC 3339)"
	}
	return Field{name, rule}
}
