package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/process"
)

// WorkOrder is what a worker asks for.
type WorkOrder struct {
	Worker       string   `json:"worker" minLength:"1" maxLength:"60" doc:"Name of the worker, the same as long as it runs, of letters, digits, . _ : / -"`
	Processors   []string `json:"processors,omitempty" maxItems:"100" doc:"Whose letters; those of all processors of the kind pull if absent"`
	Max          int      `json:"max,omitempty" minimum:"1" maximum:"100" default:"1" doc:"Letters, at most"`
	WaitSeconds  int      `json:"wait_seconds,omitempty" minimum:"0" maximum:"60" doc:"Until there is one"`
	LeaseSeconds int      `json:"lease_seconds,omitempty" minimum:"5" maximum:"900" default:"60" doc:"Without a heartbeat for so long, the worker is taken to be gone"`
}

// Work is a letter that a worker has.
type Work struct {
	Lease           string        `json:"lease" doc:"Id of the lease; all that is said about the letter names it"`
	LeaseUntil      time.Time     `json:"lease_until" doc:"Send a heartbeat well before"`
	PayloadRef      chain.Digest  `json:"payload_ref" doc:"SHA-256 of the bytes"`
	Size            uint64        `json:"size" doc:"Bytes"`
	Channel         chain.Channel `json:"channel"`
	Source          string        `json:"source,omitempty"`
	ContentType     string        `json:"content_type,omitempty"`
	ContentEncoding string        `json:"content_encoding,omitempty"`
	FirstSeen       time.Time     `json:"first_seen"`
	Attempt         uint64        `json:"attempt" doc:"Since the letter was last put to work, from 1"`
	Replays         uint64        `json:"replays"`
	Stage           chain.Stage   `json:"stage,omitempty" doc:"Of the last failure"`
	ErrorCode       string        `json:"error_code,omitempty" doc:"Of the last failure"`
}

func workOf(j deadletter.Job) Work {
	l := j.Letter
	w := Work{Lease: process.LeaseID{Ref: l.Ref, Seq: l.Lease.Seq}.String(), LeaseUntil: l.Lease.Until, PayloadRef: l.Ref, Size: l.Size,
		Channel: l.Channel, Source: l.Source, ContentType: l.ContentType, ContentEncoding: l.ContentEncoding, FirstSeen: l.FirstSeen,
		Attempt: l.Lease.Attempt, Replays: l.Replays}
	if l.Failure != nil {
		w.Stage, w.ErrorCode = l.Failure.Stage, l.Failure.ErrorCode
	}
	return w
}

// WorkList is the answer to a WorkOrder.
type WorkList struct {
	Work []Work `json:"work" doc:"Empty if there was nothing in time"`
}

// WorkFailure is what a worker says about a payload that it could not process, in the words of POST /v1/failures.
type WorkFailure struct {
	Stage      chain.Stage `json:"stage" doc:"Where it failed" enum:"ingest,validate,parse,normalize,dispatch"`
	ErrorType  string      `json:"error_type,omitempty" maxLength:"200" doc:"Error as its system names it, or the class of an exception; see docs/handover.md"`
	ErrorCode  string      `json:"error_code,omitempty" maxLength:"80" doc:"Code of the vocabulary, if the worker knows it"`
	HTTPStatus int         `json:"http_status,omitempty" minimum:"100" maximum:"599" doc:"Answer of a server"`
	RetryAfter string      `json:"retry_after,omitempty" maxLength:"200" doc:"Header of that name, as it came"`
	Message    string      `json:"message,omitempty" maxLength:"1048576" doc:"Error text; kept in the payload store, and a summary without personal data in the log"`
}

func (f *WorkFailure) breakdown() deadletter.Breakdown {
	return deadletter.Breakdown{Stage: f.Stage, Message: f.Message,
		Signal: deadletter.Signal{Code: f.ErrorCode, HTTPStatus: f.HTTPStatus, Type: f.ErrorType, RetryAfter: f.RetryAfter}}
}

// Beat is the answer to a heartbeat.
type Beat struct {
	LeaseUntil time.Time `json:"lease_until" doc:"Send the next one well before"`
}

// desk answers the requests of workers, whatever road they come by.
type desk struct{ *process.Desk }

func (d desk) lease(ctx context.Context, who string, o WorkOrder) (WorkList, error) {
	out := WorkList{Work: []Work{}}
	jobs, err := d.Lease(ctx, process.LeaseOrder{Worker: process.Worker{Actor: who, Name: o.Worker}, Targets: o.Processors, Max: o.Max,
		Wait: time.Duration(o.WaitSeconds) * time.Second, For: time.Duration(o.LeaseSeconds) * time.Second})
	for _, j := range jobs {
		out.Work = append(out.Work, workOf(j))
	}
	return out, err
}

func (d desk) beat(ctx context.Context, who, lease string) (Beat, error) {
	id, err := process.ParseLeaseID(lease)
	if err != nil {
		return Beat{}, err
	}
	until, err := d.Heartbeat(ctx, who, id)
	return Beat{until.UTC()}, err
}

func (d desk) complete(ctx context.Context, who, lease string, outcome chain.Outcome, code string, record []byte) (Receipt, error) {
	id, err := process.ParseLeaseID(lease)
	if err != nil {
		return Receipt{}, err
	}
	r, err := d.Complete(ctx, who, id, outcome, code, record)
	return receiptOf(r), err
}

func (d desk) fail(ctx context.Context, who, lease string, f WorkFailure) (Receipt, error) {
	id, err := process.ParseLeaseID(lease)
	if err != nil {
		return Receipt{}, err
	}
	r, err := d.Fail(ctx, who, id, f.breakdown())
	return receiptOf(r), err
}

func (d desk) release(ctx context.Context, who, lease string) error {
	id, err := process.ParseLeaseID(lease)
	if err != nil {
		return err
	}
	return d.Release(ctx, who, id)
}

// LeasePath is the lease in the path of its operations.
type LeasePath struct {
	Lease string `path:"lease" maxLength:"100" doc:"Id of the lease"`
}

type leaseInput struct{ Body WorkOrder }

type leaseOutput struct{ Body WorkList }

type beatOutput struct{ Body Beat }

type completeInput struct {
	upload
	LeasePath
	Outcome     chain.Outcome `query:"outcome" enum:"admit,admit_with_warning,ignored" doc:"admit if absent"`
	OutcomeCode string        `query:"outcome_code" maxLength:"80" doc:"Code of a warning, or why the payload is ignored"`
}

type workFailureInput struct {
	upload
	LeasePath
}

// maxRecord bounds the record that a worker gives, in bytes.
const maxRecord = 16 << 20

func (a *api) workRoutes() {
	register(a, huma.Operation{Method: "POST", Path: "/v1/work/lease", OperationID: "lease", Summary: "Take letters to work on",
		Description: "For workers outside of the service, on letters whose route leads to a processor of the kind pull. A letter is one worker's " +
			"until it tells what came of it, gives it back, or is not heard of for the length of the lease."}, a.takeWork)
	register(a, huma.Operation{Method: "GET", Path: "/v1/work/{lease}/payload", OperationID: "work-payload", Summary: "The bytes of a leased letter",
		Description: "A connection that is cut means that the bytes are damaged.",
		Responses: map[string]*huma.Response{"200": {Description: "The bytes", Content: map[string]*huma.MediaType{
			"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}}}}, a.workPayload)
	register(a, huma.Operation{Method: "POST", Path: "/v1/work/{lease}/heartbeat", OperationID: "heartbeat", Summary: "Say that the worker is at it"}, a.heartbeat)
	register(a, huma.Operation{Method: "POST", Path: "/v1/work/{lease}/complete", OperationID: "complete", Summary: "The payload was processed",
		Description: "The body is the record, one JSON object, kept byte for byte; without one, the record is a note that the payload was delivered. " +
			"Telling it again under the same lease changes nothing and answers the same receipt, marked as known."}, a.complete)
	register(a, huma.Operation{Method: "POST", Path: "/v1/work/{lease}/fail", OperationID: "fail-work", Summary: "The payload could not be processed",
		Description: "The error is classified as one handed over is. Telling it again is harmless, as for complete."}, a.failWork)
	register(a, huma.Operation{Method: "POST", Path: "/v1/work/{lease}/release", OperationID: "release", DefaultStatus: http.StatusNoContent,
		Summary: "Give the letter back", Description: "At no cost: the worker stops, or was wrong to take it."}, a.release)
	paths := a.huma.OpenAPI().Paths
	registry := a.huma.OpenAPI().Components.Schemas
	paths["/v1/work/{lease}/complete"].Post.RequestBody = &huma.RequestBody{Content: map[string]*huma.MediaType{
		"application/json": {Schema: &huma.Schema{Type: "object", AdditionalProperties: true}}}}
	paths["/v1/work/{lease}/fail"].Post.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: huma.SchemaFromType(registry, reflect.TypeFor[WorkFailure]())}}}
}

func (a *api) takeWork(ctx context.Context, in *leaseInput) (*leaseOutput, error) {
	work, err := desk{a.Desk}.lease(ctx, actor(ctx), in.Body)
	return &leaseOutput{work}, err
}

func (a *api) workPayload(ctx context.Context, in *LeasePath) (*huma.StreamResponse, error) {
	id, err := process.ParseLeaseID(in.Lease)
	if err != nil {
		return nil, err
	}
	l, body, err := a.Desk.Payload(ctx, actor(ctx), id)
	if err != nil {
		return nil, err
	}
	return a.bytesOf(l, body)
}

func (a *api) heartbeat(ctx context.Context, in *LeasePath) (*beatOutput, error) {
	beat, err := desk{a.Desk}.beat(ctx, actor(ctx), in.Lease)
	return &beatOutput{beat}, err
}

func (a *api) complete(ctx context.Context, in *completeInput) (*decisionOutput, error) {
	record, err := io.ReadAll(http.MaxBytesReader(in.w, in.r.Body, maxRecord))
	if err != nil {
		return nil, broken(err)
	}
	r, err := desk{a.Desk}.complete(ctx, actor(ctx), in.Lease, in.Outcome, in.OutcomeCode, record)
	return &decisionOutput{r}, err
}

func (a *api) failWork(ctx context.Context, in *workFailureInput) (*decisionOutput, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(in.w, in.r.Body, maxMessage+maxJSON))
	if err != nil {
		return nil, broken(err)
	}
	var f WorkFailure
	if err := decodeStrictly(raw, &f); err != nil {
		return nil, err
	}
	r, err := desk{a.Desk}.fail(ctx, actor(ctx), in.Lease, f)
	return &decisionOutput{r}, err
}

func (a *api) release(ctx context.Context, in *LeasePath) (*struct{}, error) {
	return nil, desk{a.Desk}.release(ctx, actor(ctx), in.Lease)
}

// decodeStrictly reads one JSON object whose members are all known and stand once. The decoder's own errors quote.
func decodeStrictly(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if repeats(raw) || d.Decode(into) != nil || !errors.Is(d.Decode(&struct{}{}), io.EOF) {
		return &chain.FieldError{Field: "body", Rule: "must be one JSON object of the documented members, each once"}
	}
	return nil
}
