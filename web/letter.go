package web

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/projection"
)

// Letter is the custody case of one payload.
type Letter struct {
	Ref             chain.Digest      `json:"ref" doc:"SHA-256 of the payload's bytes"`
	Disposition     chain.Disposition `json:"disposition" enum:"received,retrying,dead_letter,replayed,resolved,poison"`
	FirstSeen       time.Time         `json:"first_seen"`
	UpdatedAt       time.Time         `json:"updated_at" doc:"Of the last change of disposition"`
	FirstSeq        uint64            `json:"first_seq"`
	LastSeq         uint64            `json:"last_seq"`
	Events          uint64            `json:"events" doc:"How many there are"`
	Size            uint64            `json:"size" doc:"Bytes of the payload"`
	Channel         chain.Channel     `json:"channel"`
	Source          string            `json:"source,omitempty"`
	ContentType     string            `json:"content_type,omitempty"`
	ContentEncoding string            `json:"content_encoding,omitempty"`
	Submissions     []Submission      `json:"submissions" doc:"Everyone who handed these bytes over"`
	RetainUntil     time.Time         `json:"retain_until"`
	Hold            bool              `json:"hold" doc:"Legal hold"`
	Attempt         uint64            `json:"attempt" doc:"Attempts with an outcome since the last (re)enqueue"`
	Replays         uint64            `json:"replays"`
	NextAttemptAt   time.Time         `json:"next_attempt_at,omitzero"`
	Lease           *Lease            `json:"lease,omitempty"`
	Failure         *Envelope         `json:"failure,omitempty" doc:"The last one; it stays when the letter moves on"`
	Outcome         chain.Outcome     `json:"outcome,omitempty"`
	OutcomeCode     string            `json:"outcome_code,omitempty"`
	RecordRef       chain.Digest      `json:"record_ref,omitzero"`
	Owner           string            `json:"owner,omitempty"`
	Tags            []string          `json:"tags,omitempty"`
	Notes           uint64            `json:"notes" doc:"How many there are"`
}

// Submission is one sender of a letter's bytes.
type Submission struct {
	Channel chain.Channel `json:"channel"`
	Source  string        `json:"source,omitempty"`
	Seq     uint64        `json:"seq" doc:"Of the event"`
}

// Lease is the attempt that is running.
type Lease struct {
	Seq     uint64    `json:"seq" doc:"Of the attempt event"`
	Attempt uint64    `json:"attempt"`
	Worker  string    `json:"worker"`
	Since   time.Time `json:"since" doc:"Began, or was extended, then"`
	Until   time.Time `json:"until"`
	Alone   bool      `json:"alone"`
}

// Envelope is the record of a failure.
type Envelope struct {
	Stage      chain.Stage `json:"stage"`
	ErrorClass chain.Class `json:"error_class" enum:"transient,permanent"`
	ErrorCode  string      `json:"error_code"`
	Attempt    uint64      `json:"attempt"`
	LastError  string      `json:"last_error,omitempty" doc:"Summary, with what could be personal data masked"`
	Rule       string      `json:"rule" doc:"Of the classifier or processor that decided"`
	Seq        uint64      `json:"seq" doc:"Of the event"`
}

func letterOf(l chain.Letter) Letter {
	out := Letter{Ref: l.Ref, Disposition: l.Disposition, FirstSeen: l.FirstSeen, UpdatedAt: l.UpdatedAt,
		FirstSeq: l.FirstSeq, LastSeq: l.LastSeq, Events: l.CaseSize, Size: l.Size, Channel: l.Channel, Source: l.Source,
		ContentType: l.ContentType, ContentEncoding: l.ContentEncoding, RetainUntil: l.RetainUntil, Hold: l.Hold,
		Attempt: l.Attempt, Replays: l.Replays, NextAttemptAt: l.NextAttemptAt, Outcome: l.Outcome, OutcomeCode: l.OutcomeCode,
		RecordRef: l.RecordRef, Owner: l.Owner, Tags: l.Tags, Notes: l.Notes, Submissions: []Submission{}}
	for _, s := range l.Submissions {
		out.Submissions = append(out.Submissions, Submission{s.Channel, s.Source, s.Seq})
	}
	if l.Lease != nil {
		out.Lease = new(Lease(*l.Lease))
	}
	if f := l.Failure; f != nil {
		out.Failure = &Envelope{f.Stage, f.ErrorClass, f.ErrorCode, f.Attempt, f.LastError, f.Rule, l.FailureSeq}
	}
	return out
}

// Event is one event of a letter.
type Event struct {
	Seq      uint64          `json:"seq"`
	LeafHash chain.Digest    `json:"leaf_hash"`
	Event    json.RawMessage `json:"event" doc:"The stored line"`
}

// Case is a letter with its history.
type Case struct {
	Letter Letter  `json:"letter"`
	Events []Event `json:"timeline" doc:"Oldest first"`
}

// Page is a stretch of a list. It may be short, even empty, and not the last: Next tells.
type Page struct {
	Letters []Letter `json:"letters"`
	Next    string   `json:"next,omitempty" doc:"Cursor of what follows; absent at the end"`
}

// Filter says which letters are meant: those that all of its set members hold for.
type Filter struct {
	Disposition []chain.Disposition `query:"disposition,explode" enum:"received,retrying,dead_letter,replayed,resolved,poison" doc:"Any of these; repeatable"`
	Stage       chain.Stage         `query:"stage" enum:"ingest,validate,parse,normalize,dispatch" doc:"Of the last failure"`
	ErrorCode   string              `query:"error_code" maxLength:"80" doc:"Of the last failure"`
	Channel     chain.Channel       `query:"channel" enum:"ocr_document,mobile_export,telematics_api,manual_entry,other"`
}

func (f Filter) filter() projection.Filter {
	return projection.Filter{Dispositions: f.Disposition, Stage: f.Stage, ErrorCode: f.ErrorCode, Channel: f.Channel}
}

// Query is a filter with what lists can take besides.
type Query struct {
	Filter
	Source string    `query:"source" maxLength:"80" doc:"Of any submission"`
	Owner  string    `query:"owner" maxLength:"80"`
	Tag    string    `query:"tag" maxLength:"80"`
	Since  time.Time `query:"since" doc:"First seen then or later"`
	Until  time.Time `query:"until" doc:"First seen before"`
	Ends   time.Time `query:"retention_ends_before" doc:"Of open letters not under legal hold: protected until then at most"`
	Order  string    `query:"order" enum:"oldest,newest" doc:"By first seen; oldest first if absent"`
	Cursor string    `query:"cursor" maxLength:"100" doc:"next of the page before"`
	Limit  int       `query:"limit" minimum:"1" maximum:"500" default:"50"`
}

type listInput struct{ Query }
type pageOutput struct{ Body Page }

// LetterPath is the reference in the path of a letter's operations.
type LetterPath struct {
	Ref string `path:"ref" pattern:"^[0-9a-f]{8,64}$" patternDescription:"8 to 64 lowercase hexadecimal digits" doc:"Payload reference, or its beginning if that is unique"`
}

type caseOutput struct{ Body Case }

type payloadInput struct {
	LetterPath
	Reason string `query:"reason" required:"true" maxLength:"500" doc:"Why the bytes are read; recorded"`
}

// Order is what a person decides about a letter, and why.
type Order struct {
	Reason   string `json:"reason,omitempty" maxLength:"500" doc:"Recorded, with what could be personal data masked"`
	Override bool   `json:"override,omitempty" doc:"Replay beyond the bound, or out of quarantine; needs a reason"`
}

type replayInput struct {
	LetterPath
	Body Order
}

type resolveInput struct {
	LetterPath
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"Recorded, with what could be personal data masked"`
	}
}

// Annotation is what a person notes about a letter.
type Annotation struct {
	Owner string `json:"owner,omitempty" maxLength:"80" doc:"Identifier of who takes care"`
	Tag   string `json:"tag,omitempty" maxLength:"80"`
	Untag bool   `json:"untag,omitempty" doc:"Take the tag off"`
	Note  string `json:"note,omitempty" maxLength:"500" doc:"Recorded, with what could be personal data masked"`
}

type annotateInput struct {
	LetterPath
	Body Annotation
}

// Protection is what a person decides about how long a letter's bytes are kept, and why.
type Protection struct {
	Reason      string    `json:"reason" minLength:"1" maxLength:"500" doc:"Recorded, with what could be personal data masked"`
	Hold        string    `json:"hold,omitempty" enum:"on,off" doc:"Set the legal hold, or lift it, which takes the role admin"`
	RetainUntil time.Time `json:"retain_until,omitzero" doc:"Keep at least until then; never shortens"`
}

type holdInput struct {
	LetterPath
	Body Protection
}

type decisionOutput struct{ Body Receipt }

func (a *api) letterRoutes() {
	register(a, huma.Operation{Method: "GET", Path: "/v1/letters", OperationID: "list", Summary: "List letters"}, a.list)
	register(a, huma.Operation{Method: "GET", Path: "/v1/letters/{ref}", OperationID: "show", Summary: "A letter and its history"}, a.show)
	register(a, huma.Operation{Method: "GET", Path: "/v1/letters/{ref}/payload", OperationID: "payload", Summary: "The bytes of a letter",
		Description: "That they are read, by whom and why, is recorded first. A connection that is cut means that the bytes are damaged.",
		Responses: map[string]*huma.Response{"200": {Description: "The bytes", Content: map[string]*huma.MediaType{
			"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}}}}, a.payload)
	register(a, huma.Operation{Method: "POST", Path: "/v1/letters/{ref}/replay", OperationID: "replay", Summary: "Put a letter back to work"}, a.replay)
	register(a, huma.Operation{Method: "POST", Path: "/v1/letters/{ref}/resolve", OperationID: "resolve", Summary: "Close a letter by hand"}, a.resolve)
	register(a, huma.Operation{Method: "POST", Path: "/v1/letters/{ref}/annotations", OperationID: "annotate", Summary: "Note something about a letter"}, a.annotate)
	register(a, huma.Operation{Method: "POST", Path: "/v1/letters/{ref}/hold", OperationID: "hold", Summary: "Set or lift the legal hold of a letter, or extend its retention",
		Description: "It applies to all bytes of the letter: payload, record and error texts. Nothing shortens a retention."}, a.hold)
}

func (a *api) list(ctx context.Context, in *listInput) (*pageOutput, error) {
	_ = a.catchUp(ctx)
	f := in.filter()
	f.Source, f.Owner, f.Tag, f.Since, f.Until, f.EndsBefore = in.Source, in.Owner, in.Tag, in.Since, in.Until, in.Ends
	if in.Order == "newest" {
		f.Order = projection.NewestFirst
	}
	page, err := a.State.List(f, in.Cursor, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &pageOutput{Page{Letters: []Letter{}, Next: page.Next}}
	for _, l := range page.Letters {
		out.Body.Letters = append(out.Body.Letters, letterOf(l))
	}
	return out, nil
}

func (a *api) show(ctx context.Context, in *LetterPath) (*caseOutput, error) {
	ref, err := a.find(ctx, in.Ref)
	if err != nil {
		return nil, err
	}
	l, err := a.State.Letter(ref)
	if err != nil {
		return nil, err
	}
	records, err := a.State.Timeline(ref)
	if err != nil {
		return nil, err
	}
	out := &caseOutput{Case{Letter: letterOf(l)}}
	for _, r := range records {
		out.Body.Events = append(out.Body.Events, Event{r.Seq, r.Leaf, r.Raw})
	}
	return out, nil
}

// find resolves a reference that may be short.
func (a *api) find(ctx context.Context, prefix string) (chain.Digest, error) {
	late := a.catchUp(ctx)
	refs, err := a.State.Find(prefix)
	switch {
	case err != nil:
		return chain.Digest{}, err
	case len(refs) == 0 && late != nil:
		return chain.Digest{}, late
	case len(refs) == 0:
		return chain.Digest{}, deadletter.ErrNotFound
	case len(refs) > 1:
		return chain.Digest{}, problem(http.StatusConflict, KindAmbiguous, "several letters begin with this reference; give more of it")
	}
	return refs[0], nil
}

// catchUp waits for the projection, if it lags behind what this instance has appended: whoever was answered finds
// what the answer was about. A projection that does not come up in time is ErrUnavailable; lists then show what
// there is.
func (a *api) catchUp(ctx context.Context) error {
	size := a.Queue.Size()
	if a.State.Tip().Size >= size {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookBack)
	defer cancel()
	if a.State.Wait(ctx, size-1) != nil {
		return deadletter.ErrUnavailable
	}
	return nil
}

// lookBack is how long an answer waits for the projection.
const lookBack = 2 * time.Second

func decided(r deadletter.Receipt, err error) (*decisionOutput, error) {
	if err != nil {
		return nil, err
	}
	return &decisionOutput{receiptOf(r)}, nil
}

func (a *api) replay(ctx context.Context, in *replayInput) (*decisionOutput, error) {
	ref, err := a.find(ctx, in.Ref)
	if err != nil {
		return nil, err
	}
	r, err := a.Queue.Replay(ctx, ref, deadletter.Order{Actor: actor(ctx), Reason: in.Body.Reason, Override: in.Body.Override})
	return decided(r, err)
}

func (a *api) resolve(ctx context.Context, in *resolveInput) (*decisionOutput, error) {
	ref, err := a.find(ctx, in.Ref)
	if err != nil {
		return nil, err
	}
	r, err := a.Queue.Resolve(ctx, ref, deadletter.Order{Actor: actor(ctx), Reason: in.Body.Reason})
	return decided(r, err)
}

func (a *api) annotate(ctx context.Context, in *annotateInput) (*decisionOutput, error) {
	ref, err := a.find(ctx, in.Ref)
	if err != nil {
		return nil, err
	}
	b := in.Body
	r, err := a.Queue.Annotate(ctx, ref, deadletter.Annotation{Actor: actor(ctx), Owner: b.Owner, Tag: b.Tag, Untag: b.Untag, Note: b.Note})
	return decided(r, err)
}

func (a *api) hold(ctx context.Context, in *holdInput) (*decisionOutput, error) {
	ref, err := a.find(ctx, in.Ref)
	if err != nil {
		return nil, err
	}
	b := in.Body
	if b.Hold == deadletter.HoldOff && role(ctx) != Admin {
		return nil, problem(http.StatusForbidden, KindForbidden, "lifting a legal hold takes the role admin")
	}
	r, err := a.Queue.Hold(ctx, ref, deadletter.Protection{Hold: b.Hold, Until: b.RetainUntil,
		Order: deadletter.Order{Actor: actor(ctx), Reason: b.Reason}})
	return decided(r, err)
}

// firstLook is how much of a payload is verified before the first byte is sent; smaller ones are damaged or
// whole, never cut off.
const firstLook = 256 << 10

func (a *api) payload(ctx context.Context, in *payloadInput) (*huma.StreamResponse, error) {
	ref, err := a.find(ctx, in.Ref)
	if err != nil {
		return nil, err
	}
	l, body, err := a.Queue.OpenPayload(ctx, ref, deadletter.Order{Actor: actor(ctx), Reason: in.Reason})
	if err != nil {
		return nil, err
	}
	return a.bytesOf(l, body)
}

// bytesOf answers with the bytes of l, and closes body.
func (a *api) bytesOf(l chain.Letter, body io.ReadCloser) (*huma.StreamResponse, error) {
	head, err := io.ReadAll(io.LimitReader(body, firstLook+1))
	if err != nil {
		return nil, errors.Join(err, body.Close())
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		defer body.Close()
		_, w := humago.Unwrap(ctx)
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Disposition", `attachment; filename="`+l.Ref.String()+`.bin"`)
		h.Set("Content-Length", strconv.FormatUint(l.Size, 10))
		h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(l.Ref[:])+":") // RFC 9530
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		if err := trickle(w, io.MultiReader(bytes.NewReader(head), body)); err != nil {
			a.cut(ctx, err)
		}
	}}, nil
}

// trickle copies r and holds every chunk back until the next one has come without error: the last bytes are
// written only after r has said that all of it was good. A writer that fails ends it: the client is gone.
func trickle(w io.Writer, r io.Reader) error {
	var held []byte
	buf, next := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if err != nil && err != io.EOF {
			return err
		}
		if n > 0 {
			if _, err := w.Write(held); err != nil {
				return nil
			}
			held = buf[:n]
			buf, next = next, buf
		}
		if err == io.EOF {
			_, _ = w.Write(held)
			return nil
		}
	}
}
