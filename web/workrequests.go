package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/process"
)

// WorkRequests are the operations on leases for roads other than HTTP, by name: lease, payload, heartbeat, complete, fail
// and release. Their bodies are those of HTTP with the lease as a member; a record is a member as well, and kept byte for
// byte. payload answers with a stretch of the bytes that begins at the member offset, and with nothing at their end. An
// answer with a *Problem is a refusal. Who asks is called who in events: the road must see to it that nobody else comes by.
func WorkRequests(d *process.Desk, who string, log *slog.Logger) map[string]func(context.Context, []byte) ([]byte, *Problem) {
	at := desk{d}
	return map[string]func(context.Context, []byte) ([]byte, *Problem){
		"lease": request(log, func(ctx context.Context, o WorkOrder) (any, error) { return at.lease(ctx, who, o) }),
		"heartbeat": request(log, func(ctx context.Context, r leaseRequest) (any, error) {
			return at.beat(ctx, who, r.Lease)
		}),
		"complete": request(log, func(ctx context.Context, r completeRequest) (any, error) {
			return at.complete(ctx, who, r.Lease, r.Outcome, r.OutcomeCode, r.Record)
		}),
		"fail": request(log, func(ctx context.Context, r failRequest) (any, error) {
			return at.fail(ctx, who, r.Lease, r.WorkFailure)
		}),
		"release": request(log, func(ctx context.Context, r leaseRequest) (any, error) {
			return nil, at.release(ctx, who, r.Lease)
		}),
		"payload": request(log, func(ctx context.Context, r payloadRequest) (any, error) { return at.stretch(ctx, who, r) }),
	}
}

type leaseRequest struct {
	Lease string `json:"lease"`
}

type completeRequest struct {
	leaseRequest
	Outcome     chain.Outcome   `json:"outcome,omitempty"`
	OutcomeCode string          `json:"outcome_code,omitempty"`
	Record      json.RawMessage `json:"record,omitempty"`
}

type failRequest struct {
	leaseRequest
	WorkFailure
}

type payloadRequest struct {
	leaseRequest
	Offset int64 `json:"offset,omitempty"`
}

// maxStretch fits into a message of a server with the usual limits.
const maxStretch = 512 << 10

// bytesAnswer is an answer that is not JSON.
type bytesAnswer []byte

func (d desk) stretch(ctx context.Context, who string, r payloadRequest) (bytesAnswer, error) {
	id, err := process.ParseLeaseID(r.Lease)
	if err != nil {
		return nil, err
	}
	_, body, err := d.Payload(ctx, who, id)
	if err != nil {
		return nil, err
	}
	_, err = io.CopyN(io.Discard, body, r.Offset)
	var out []byte
	if err == nil {
		out, err = io.ReadAll(io.LimitReader(body, maxStretch))
	}
	if errors.Is(err, io.EOF) {
		err = nil // beyond the end
	}
	return out, errors.Join(err, body.Close())
}

// request reads the body of one request, and words what goes wrong.
func request[I any](log *slog.Logger, do func(context.Context, I) (any, error)) func(context.Context, []byte) ([]byte, *Problem) {
	return func(ctx context.Context, raw []byte) ([]byte, *Problem) {
		var in I
		err := decodeStrictly(raw, &in)
		var out any
		if err == nil {
			out, err = do(ctx, in)
		}
		if err != nil {
			p := problemOf(err)
			if p.Status >= 500 && ctx.Err() == nil {
				log.LogAttrs(ctx, slog.LevelWarn, "request of a worker failed", slog.Int("status", p.Status), slog.String("error", fmt.Sprintf("%T", err)))
			}
			return nil, p
		}
		if stretch, ok := out.(bytesAnswer); ok || out == nil {
			return stretch, nil
		}
		answer, err := json.Marshal(out)
		if err != nil {
			return nil, problemOf(err)
		}
		return answer, nil
	}
}
