package web

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// Receipt is the answer to every accepted submission and decision.
type Receipt struct {
	PayloadRef    chain.Digest      `json:"payload_ref" doc:"SHA-256 of the payload's bytes"`
	Seq           uint64            `json:"seq" doc:"Sequence number of the event that records it"`
	LeafHash      chain.Digest      `json:"leaf_hash" doc:"Leaf hash of that event (RFC 6962)"`
	Disposition   chain.Disposition `json:"disposition" enum:"received,retrying,dead_letter,replayed,resolved,poison"`
	Outcome       chain.Outcome     `json:"outcome,omitempty" enum:"admit,admit_with_warning,duplicate,ignored,by_hand,exception"`
	ErrorCode     string            `json:"error_code,omitempty"`
	NextAttemptAt time.Time         `json:"next_attempt_at,omitzero" doc:"When retrying"`
	Known         bool              `json:"known" doc:"All of it was recorded before"`
}

func receiptOf(r deadletter.Receipt) Receipt { return Receipt(r) }

type receiptOutput struct {
	Status int
	Body   Receipt
}

// intakeOutput answers 201 for what is new and 200 for what is known.
func intakeOutput(r deadletter.Receipt) *receiptOutput {
	status := http.StatusCreated
	if r.Known {
		status = http.StatusOK
	}
	return &receiptOutput{status, receiptOf(r)}
}

// Failure is a payload that failed elsewhere, and what went wrong with it.
type Failure struct {
	PayloadRef  string        `query:"payload_ref" json:"payload_ref,omitempty" doc:"Payload in custody, instead of a body" pattern:"^[0-9a-f]{64}$"`
	Stage       chain.Stage   `query:"stage" json:"stage,omitempty" doc:"Where it failed" enum:"ingest,validate,parse,normalize,dispatch"`
	ErrorType   string        `query:"error_type" json:"error_type,omitempty" doc:"Error as its system names it, such as ECONNRESET, timeout, grpc:UNAVAILABLE, sqlstate:40001, exit:75, crash:SIGSEGV, or the class of an exception" maxLength:"200"`
	ErrorCode   string        `query:"error_code" json:"error_code,omitempty" doc:"Code of the closed vocabulary, stage.symbol" maxLength:"80"`
	HTTPStatus  int           `query:"http_status" json:"http_status,omitempty" doc:"Answer of the server that refused it" minimum:"100" maximum:"599"`
	RetryAfter  string        `query:"retry_after" json:"retry_after,omitempty" doc:"Header of that name, or delay of a gRPC RetryInfo, as it came" maxLength:"200"`
	Attempt     uint64        `query:"attempt" json:"attempt,omitempty" doc:"Attempts made elsewhere" maximum:"1000000"`
	FirstSeen   time.Time     `query:"first_seen" json:"first_seen,omitzero" doc:"When the payload was first seen elsewhere"`
	Channel     chain.Channel `query:"channel" json:"channel,omitempty" enum:"ocr_document,mobile_export,telematics_api,manual_entry,other"`
	Source      string        `query:"source" json:"source,omitempty" doc:"Opaque id of the sender" maxLength:"80"`
	ContentType string        `query:"content_type" json:"content_type,omitempty" doc:"Of the payload; else that of the body or part" maxLength:"200"`
	Message     string        `json:"message,omitempty" doc:"Error text, kept apart and access-controlled; a masked summary goes into the event" maxLength:"1048576"`
}

// Bounds of the parts of a multipart failure besides the payload.
const (
	maxMessage = 1 << 20 // bytes of error text
	maxValue   = 4 << 10 // bytes of any other field
	maxParts   = 32
)

// set takes a field from the text form it has in multipart.
func (f *Failure) set(name, value string) error {
	var err error
	switch name {
	case "payload_ref":
		f.PayloadRef = value
	case "stage":
		f.Stage = chain.Stage(value)
	case "error_type":
		f.ErrorType = value
	case "error_code":
		f.ErrorCode = value
	case "http_status":
		f.HTTPStatus, err = strconv.Atoi(value)
	case "retry_after":
		f.RetryAfter = value
	case "attempt":
		f.Attempt, err = strconv.ParseUint(value, 10, 64)
	case "first_seen":
		f.FirstSeen, err = time.Parse(time.RFC3339, value)
	case "channel":
		f.Channel = chain.Channel(value)
	case "source":
		f.Source = value
	case "content_type":
		f.ContentType = value
	case "message":
		f.Message = value
	default:
		return &chain.FieldError{Field: "multipart", Rule: "must have the documented parts only"}
	}
	if err != nil {
		return &chain.FieldError{Field: name, Rule: "cannot be read"}
	}
	return nil
}

// failure is f as the queue takes it, still without a body.
func (f *Failure) failure(actor string) (deadletter.Failure, error) {
	out := deadletter.Failure{
		Submission: deadletter.Submission{Channel: f.Channel, Source: f.Source, ContentType: f.ContentType, Actor: actor},
		Stage:      f.Stage, Message: f.Message, Attempt: f.Attempt, FirstSeen: f.FirstSeen,
		Signal: deadletter.Signal{Code: f.ErrorCode, HTTPStatus: f.HTTPStatus, Type: f.ErrorType, RetryAfter: f.RetryAfter},
	}
	if f.PayloadRef == "" {
		return out, nil
	}
	var err error
	if out.PayloadRef, err = chain.ParseDigest(f.PayloadRef); err != nil {
		err = &chain.FieldError{Field: "payload_ref", Rule: "must be 64 lowercase hexadecimal digits"}
	}
	return out, err
}

// upload is embedded by inputs whose body the operation reads itself, as a stream; huma would read it whole.
type upload struct {
	w http.ResponseWriter
	r *http.Request
}

// Resolve implements huma.Resolver.
func (u *upload) Resolve(ctx huma.Context) []error {
	u.r, u.w = humago.Unwrap(ctx)
	return nil
}

type submitInput struct {
	upload
	Channel chain.Channel `query:"channel" enum:"ocr_document,mobile_export,telematics_api,manual_entry,other" doc:"Road the payload came by; other if absent"`
	Source  string        `query:"source" maxLength:"80" doc:"Opaque id of the sender"`
	Wait    string        `query:"wait" doc:"Wait up to this long, at most 60s, for the outcome" example:"5s"`
}

type failureInput struct {
	upload
	Failure
	ErrorMessage string `header:"Holdfast-Error-Message" doc:"Error text, for a raw body"`
}

func (a *api) intakeRoutes() {
	binary := &huma.Schema{Type: "string", Format: "binary"}
	created := map[string]*huma.Response{"200": {Description: "Known: nothing new was recorded"}}
	register(a, huma.Operation{Method: "POST", Path: "/v1/payloads", OperationID: "submit", DefaultStatus: http.StatusCreated,
		Summary: "Hand over a payload", Description: "The body is the payload, whatever its content type. The receipt says that bytes and event are durable.",
		Responses: created}, a.submit)
	a.document("/v1/payloads", map[string]*huma.MediaType{"*/*": {Schema: binary}})

	registry := a.huma.OpenAPI().Components.Schemas
	fields := huma.SchemaFromType(registry, reflect.TypeFor[Failure]())
	form := *fields
	form.Properties = map[string]*huma.Schema{"payload": binary}
	for name, schema := range fields.Properties {
		form.Properties[name] = schema
	}
	register(a, huma.Operation{Method: "POST", Path: "/v1/failures", OperationID: "fail", DefaultStatus: http.StatusCreated,
		Summary: "Hand over a failure",
		Description: "Either a raw payload with the fields as query parameters (stage is then required), or multipart/form-data with the fields " +
			"before the part payload, or application/json without a stage parameter for a payload_ref in custody.",
		Responses: map[string]*huma.Response{"200": {Description: "Known: nothing new was recorded"}}}, a.takeFailure)
	a.document("/v1/failures", map[string]*huma.MediaType{
		"*/*": {Schema: binary}, "multipart/form-data": {Schema: &form}, "application/json": {Schema: fields}})
}

// document describes a body that huma must not read, which it would if it knew of it earlier.
func (a *api) document(path string, content map[string]*huma.MediaType) {
	op := a.huma.OpenAPI().Paths[path].Post
	op.RequestBody = &huma.RequestBody{Required: true, Content: content}
	op.Responses["200"].Content = op.Responses["201"].Content
}

func (a *api) submit(ctx context.Context, in *submitInput) (*receiptOutput, error) {
	wait, err := parseWait(in.Wait)
	if err != nil {
		return nil, err
	}
	r, err := a.Queue.Ingest(ctx, deadletter.Submission{
		Body:    http.MaxBytesReader(in.w, in.r.Body, a.MaxPayload),
		Channel: in.Channel, Source: in.Source, Actor: actor(ctx),
		ContentType: in.r.Header.Get("Content-Type"), ContentEncoding: in.r.Header.Get("Content-Encoding"),
	})
	if err != nil {
		return nil, err
	}
	return intakeOutput(a.settled(ctx, r, wait)), nil
}

// maxWait is the longest that a request may ask to wait.
const maxWait = 60 * time.Second

func parseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > maxWait {
		return 0, &chain.FieldError{Field: "wait", Rule: "must be a duration of 0s to 60s"}
	}
	return wait, nil
}

// settled waits until the letter of r is not about to be processed any more, and tells what came of it. After
// wait it tells what is known by then: the submission is recorded whatever happens here.
func (a *api) settled(ctx context.Context, r deadletter.Receipt, wait time.Duration) deadletter.Receipt {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for pending(r.Disposition) && ctx.Err() == nil {
		_ = a.catchUp(ctx) // somebody waits: what was appended is folded at once
		if l, err := a.State.Letter(r.PayloadRef); err == nil && l.LastSeq >= r.Seq && !pending(l.Disposition) {
			r.Disposition, r.Outcome, r.ErrorCode, r.NextAttemptAt = l.Disposition, l.Outcome, l.OutcomeCode, l.NextAttemptAt
			return r
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
		}
	}
	return r
}

// lookAgain is how often the log is looked at for an outcome that somebody waits for.
const lookAgain = 5 * time.Millisecond

// pending tells whether processing is still to come.
func pending(d chain.Disposition) bool { return d == chain.Received || d == chain.Replayed }

func (a *api) takeFailure(ctx context.Context, in *failureInput) (*receiptOutput, error) {
	f, err := a.readFailure(ctx, in)
	if err != nil {
		return nil, err
	}
	r, err := a.Queue.Fail(ctx, f)
	if err != nil {
		return nil, err
	}
	return intakeOutput(r), nil
}

// readFailure tells the three forms apart.
func (a *api) readFailure(ctx context.Context, in *failureInput) (deadletter.Failure, error) {
	kind, _, _ := mime.ParseMediaType(in.r.Header.Get("Content-Type"))
	switch {
	case kind == "multipart/form-data" && in.Stage == "":
		return a.multipartFailure(ctx, in)
	case kind == "application/json" && in.Stage == "":
		return a.jsonFailure(ctx, in)
	}
	return a.rawFailure(ctx, in)
}

func (a *api) rawFailure(ctx context.Context, in *failureInput) (deadletter.Failure, error) {
	in.Message = in.ErrorMessage
	if in.ContentType == "" && in.PayloadRef == "" {
		in.ContentType = in.r.Header.Get("Content-Type")
	}
	f, err := in.failure(actor(ctx))
	f.ContentEncoding = in.r.Header.Get("Content-Encoding")
	body := http.MaxBytesReader(in.w, in.r.Body, a.MaxPayload)
	if in.PayloadRef == "" {
		f.Body = body
		return f, err
	}
	if n, _ := io.ReadFull(body, make([]byte, 1)); n > 0 && err == nil {
		err = &chain.FieldError{Field: "payload_ref", Rule: "stands instead of a payload, not beside it"}
	}
	return f, err
}

// jsonFailure reads a failure of a payload in custody. The decoder's own errors quote what it read.
func (a *api) jsonFailure(ctx context.Context, in *failureInput) (deadletter.Failure, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(in.w, in.r.Body, maxMessage+maxJSON))
	if err != nil {
		return deadletter.Failure{}, broken(err)
	}
	var f Failure
	if decodeStrictly(raw, &f) != nil {
		return deadletter.Failure{}, &chain.FieldError{Field: "body",
			Rule: "must be one JSON object of the documented members, each once; a JSON payload needs its stage as a query parameter"}
	}
	if f.PayloadRef == "" {
		return deadletter.Failure{}, &chain.FieldError{Field: "payload_ref",
			Rule: "is required in this form; a JSON payload needs its stage as a query parameter"}
	}
	return f.failure(actor(ctx))
}

// broken is the error of reading a body: too much of it, or it broke off.
func broken(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return deadletter.ErrUpload
}

// multipartFailure reads the fields up to the payload, which stays a stream.
func (a *api) multipartFailure(ctx context.Context, in *failureInput) (deadletter.Failure, error) {
	in.r.Body = http.MaxBytesReader(in.w, in.r.Body, a.MaxPayload+maxMessage+maxParts*maxValue)
	parts, err := in.r.MultipartReader()
	if err != nil {
		return deadletter.Failure{}, &chain.FieldError{Field: "multipart", Rule: "must have a boundary (RFC 7578)"}
	}
	set := map[string]bool{}
	for range maxParts {
		part, err := parts.NextRawPart()
		switch {
		case err == io.EOF:
			return in.failure(actor(ctx))
		case err != nil:
			return deadletter.Failure{}, malformed(err)
		case part.FormName() == "payload":
			return a.withPayload(ctx, &in.Failure, part, parts)
		case set[part.FormName()]:
			return deadletter.Failure{}, &chain.FieldError{Field: "multipart", Rule: "must have each part once"}
		}
		set[part.FormName()] = true
		if err := readPart(&in.Failure, part); err != nil {
			return deadletter.Failure{}, err
		}
	}
	return deadletter.Failure{}, &chain.FieldError{Field: "multipart", Rule: "has too many parts"}
}

func readPart(f *Failure, part *multipart.Part) error {
	limit := int64(maxValue)
	if part.FormName() == "message" {
		limit = maxMessage
	}
	value, err := io.ReadAll(io.LimitReader(part, limit+1))
	if err != nil {
		return malformed(err)
	}
	if int64(len(value)) > limit {
		return &chain.FieldError{Field: "multipart", Rule: "has a field that is too long"}
	}
	return f.set(part.FormName(), string(value))
}

// malformed is the error of reading parts. The reader's own texts quote what it read.
func malformed(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return deadletter.ErrUpload
	}
	return &chain.FieldError{Field: "multipart", Rule: "must be well-formed multipart/form-data (RFC 7578)"}
}

func (a *api) withPayload(ctx context.Context, in *Failure, part *multipart.Part, parts *multipart.Reader) (deadletter.Failure, error) {
	if in.ContentType == "" {
		in.ContentType = part.Header.Get("Content-Type")
	}
	f, err := in.failure(actor(ctx))
	f.Body = http.MaxBytesReader(nil, io.NopCloser(&lastPart{part: part, parts: parts}), a.MaxPayload)
	return f, err
}

// lastPart is a part that must be followed by the end of the body and nothing else. It tells while it is read, so
// that nothing is recorded of a request that goes on.
type lastPart struct {
	part  *multipart.Part
	parts *multipart.Reader
	end   error
}

func (l *lastPart) Read(p []byte) (int, error) {
	if l.end != nil {
		return 0, l.end
	}
	n, err := l.part.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		l.end = l.nothingFollows()
	case err != nil:
		l.end = malformed(err)
	}
	return n, l.end
}

func (l *lastPart) nothingFollows() error {
	switch _, err := l.parts.NextRawPart(); {
	case err == nil:
		return &chain.FieldError{Field: "payload", Rule: "must be the last part"}
	case err != io.EOF:
		return malformed(err)
	}
	return io.EOF
}
