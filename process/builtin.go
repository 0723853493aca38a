package process

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/dvir"
)

// Records finds what the queue admitted before. *projection.DB is one.
type Records interface {
	LatestRecord(unit chain.Digest) (recordRef chain.Digest, ok bool, err error)
}

// Builtin is the DVIR processor as a Processor, in child processes.
type Builtin struct {
	Children *Children
	Queue    *deadletter.Queue
	Records  Records
	Store    *blob.Store
}

// Process judges the payload by the time at which it was first seen.
func (b *Builtin) Process(ctx context.Context, job deadletter.Job, payload []byte) (Result, error) {
	l := job.Letter
	past := &history{ctx: ctx, b: b}
	r, crash, err := b.Children.Judge(ctx, dvir.Input{Data: payload, ContentType: l.ContentType, ContentEncoding: l.ContentEncoding,
		Channel: string(l.Channel), ReceivedAt: l.FirstSeen}, past)
	if err = errors.Join(err, past.err); err != nil {
		return Result{}, err
	}
	if crash != nil {
		return Result{Breakdown: &deadletter.Breakdown{Stage: chain.StageParse, Crash: crash.Evidence, Message: crash.Message,
			Rules: dvir.Version}}, nil
	}
	if r.Outcome == dvir.Exception {
		return Result{Breakdown: b.breakdown(r)}, nil
	}
	return Result{Completion: b.completion(r)}, nil
}

func (b *Builtin) completion(r dvir.Result) *deadletter.Completion {
	c := &deadletter.Completion{Outcome: chain.Outcome(r.Outcome), OutcomeCode: r.Code,
		Findings: findings(r.Findings), Rules: dvir.Version}
	if rec := r.Record; rec != nil {
		c.Record, c.Content = rec.JSON, rec.Content
		c.Key = b.Queue.Pseudonym("report", rec.Vendor, rec.RecordID)
		c.Version = b.Queue.Pseudonym("report_version", rec.Vendor, rec.RecordID, rec.Version)
		if rec.Unit != "" {
			c.Unit = b.unit(rec.Unit)
		}
	}
	return c
}

func (b *Builtin) unit(identity string) chain.Digest { return b.Queue.Pseudonym("unit", identity) }

func (b *Builtin) breakdown(r dvir.Result) *deadletter.Breakdown {
	return &deadletter.Breakdown{Stage: chain.Stage(r.Stage), Code: r.Code, Findings: findings(r.Findings),
		Rules: dvir.Version, Summary: summary(r)}
}

func findings(all []dvir.Finding) []chain.Finding {
	out := make([]chain.Finding, 0, len(all))
	for _, f := range all {
		out = append(out, chain.Finding{Code: f.Code, Pointer: shortened(f.Pointer)})
	}
	return out
}

// shortened cuts a pointer to what an event may carry, at a reference token.
func shortened(pointer string) string {
	for len(pointer) > chain.MaxPointer {
		pointer = pointer[:strings.LastIndexByte(pointer, '/')]
	}
	return pointer
}

// summary says what is wrong in words of the contract: codes and pointers, never values.
func summary(r dvir.Result) string {
	var out strings.Builder
	for i, f := range r.Findings {
		if i == 5 {
			fmt.Fprintf(&out, "; and %d more", len(r.Findings)-i)
			break
		}
		if i > 0 {
			out.WriteString("; ")
		}
		out.WriteString(f.Code)
		if f.Pointer != "" {
			out.WriteString(" at " + shortened(f.Pointer))
		}
	}
	return out.String()
}

// history looks up the last odometer reading of a unit in the record stored last. It keeps the first error of
// the store: rules that could not look back must not judge. A record that is lost or damaged is for verify to
// find, and one larger than the limit of today stays so; neither holds up the unit's later reports.
type history struct {
	ctx context.Context
	b   *Builtin
	err error
}

// LastReading implements dvir.History.
func (h *history) LastReading(unit string) (dvir.Reading, bool) {
	ref, ok, err := h.b.Records.LatestRecord(h.b.unit(unit))
	if err != nil || !ok {
		h.err = errors.Join(h.err, err)
		return dvir.Reading{}, false
	}
	record, err := h.b.Store.Get(h.ctx, blob.Ref{Digest: ref})
	_, damaged := errors.AsType[*blob.CorruptError](err)
	_, large := errors.AsType[*blob.TooLargeError](err)
	if damaged || large || errors.Is(err, blob.ErrNotFound) {
		return dvir.Reading{}, false
	}
	if err != nil {
		h.err = errors.Join(h.err, err)
		return dvir.Reading{}, false
	}
	return dvir.ReadingOf(record)
}
