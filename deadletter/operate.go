package deadletter

import (
	"context"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
)

// Order is what a person wants done with a letter, and why.
type Order struct {
	Actor    string // pseudonymous id of the person
	Reason   string // sanitised before it is recorded
	Override bool   // replay beyond the bound, or out of quarantine; needs a reason
}

// validate checks an order; need says that it takes a reason.
func (o Order) validate(need bool) error {
	switch {
	case !chain.ValidToken(o.Actor):
		return field("actor", "must be an identifier")
	case strings.TrimSpace(o.Reason) == "" && (need || o.Override):
		return field("reason", "is required here")
	case utf8.RuneCountInString(o.Reason) > chain.MaxReason:
		return field("reason", "must have at most 500 characters")
	}
	return nil
}

// event is the event of an order, its reason cleared of what the payload holds.
func (q *Queue) event(ctx context.Context, t chain.Type, ref chain.Digest, o Order) (chain.Event, error) {
	e := chain.Event{Type: t, Actor: o.Actor, Override: o.Override}
	reason, err := q.clear(ctx, ref, o.Reason)
	e.Reason, e.At = reason, time.Now()
	return e, err
}

// clear sanitises words of a person about the payload ref, which must be in custody. If its bytes are lost there
// is nothing to compare the words with, and a person must be able to say so.
func (q *Queue) clear(ctx context.Context, ref chain.Digest, text string) (string, error) {
	l, err := q.letter(ctx, ref)
	if err != nil {
		return "", err
	}
	cleared, err := q.sanitised(ctx, ref, l.BlobVersion, text)
	if lost(err) {
		return Sanitise(text, strings.NewReader(""), q.contract)
	}
	return cleared, err
}

// letter is the letter of ref as the log's head has it, or ErrNotFound.
func (q *Queue) letter(ctx context.Context, ref chain.Digest) (chain.Letter, error) {
	var l chain.Letter
	_, err := q.do(ctx, func(v *view) (e chain.Event, err error) {
		l, err = v.existing(ref)
		return e, err
	})
	if err != nil {
		return chain.Letter{}, err // and l is not touched: a caller who left early shares it with the appender
	}
	return l, nil
}

// Replay puts a dead letter, a waiting retry or, with an override, a quarantined letter back to work. A letter
// that was replayed MaxReplays times is parked as poison instead, unless the order overrides the bound.
// Errors: ErrNotFound, *chain.TransitionError if it is not waiting for anybody, *PlanConflictError if a running plan is
// still to replay it, *chain.FieldError.
func (q *Queue) Replay(ctx context.Context, ref chain.Digest, o Order) (Receipt, error) {
	if err := o.validate(false); err != nil {
		return Receipt{}, err
	}
	e, err := q.event(ctx, chain.TypeReplayed, ref, o)
	if err != nil {
		return Receipt{}, err
	}
	return q.step(ctx, ref, func(l chain.Letter, v *view) (decision, error) {
		if err := v.unplanned(l); err != nil {
			return decision{}, err
		}
		return record(q.replay(e, l))
	})
}

// replay is e, a replay of l, or what it comes to beyond the bound.
func (q *Queue) replay(e chain.Event, l chain.Letter) chain.Event {
	if l.Replays >= q.cfg.MaxReplays && !e.Override && l.Lease == nil &&
		(l.Disposition == chain.DeadLetter || l.Disposition == chain.Retrying) {
		return parked(e, l)
	}
	return e
}

// parked turns a replay beyond the bound into quarantine: cycling it again would repeat what never helped.
func parked(e chain.Event, l chain.Letter) chain.Event {
	env := *l.Failure
	env.Disposition, env.ErrorClass = chain.Poison, chain.Permanent
	env.ErrorCode = string(env.Stage) + ".replays_exhausted"
	env.Rule, env.NextAttemptAt = RulesVersion+"/max_replays", time.Time{}
	e.Type, e.Envelope = chain.TypePoison, &env
	return e
}

// Resolve closes a letter by a person's decision. The order needs a reason.
// Errors: ErrNotFound, *chain.TransitionError, *chain.FieldError.
func (q *Queue) Resolve(ctx context.Context, ref chain.Digest, o Order) (Receipt, error) {
	if err := o.validate(true); err != nil {
		return Receipt{}, err
	}
	e, err := q.event(ctx, chain.TypeResolved, ref, o)
	if err != nil {
		return Receipt{}, err
	}
	e.Outcome = chain.ByHand
	return q.step(ctx, ref, func(chain.Letter, *view) (decision, error) { return record(e) })
}

// Annotation is what a person notes about a letter. Owner and Tag are identifiers, Note is free text.
type Annotation struct {
	Actor string
	Owner string
	Tag   string
	Untag bool
	Note  string
}

// Annotate adds owner, tag or note to a letter, whatever its disposition.
// Errors: ErrNotFound, *chain.FieldError.
func (q *Queue) Annotate(ctx context.Context, ref chain.Digest, a Annotation) (Receipt, error) {
	if a.Owner == "" && a.Tag == "" && strings.TrimSpace(a.Note) == "" {
		return Receipt{}, field("annotation", "needs an owner, a tag or a note")
	}
	if utf8.RuneCountInString(a.Note) > chain.MaxReason {
		return Receipt{}, field("note", "must have at most 500 characters")
	}
	note, err := q.clear(ctx, ref, a.Note)
	if err != nil {
		return Receipt{}, err
	}
	e := chain.Event{Type: chain.TypeAnnotation, At: time.Now(), Actor: a.Actor,
		Owner: a.Owner, Tag: a.Tag, Untag: a.Untag, Note: note}
	return q.step(ctx, ref, func(chain.Letter, *view) (decision, error) { return record(e) })
}

// OpenPayload records that somebody reads the bytes, and why, and then gives them out, verified by hash as they
// are read. The caller closes the reader.
// Errors: ErrNotFound, *chain.FieldError, errors of the store.
func (q *Queue) OpenPayload(ctx context.Context, ref chain.Digest, o Order) (chain.Letter, io.ReadCloser, error) {
	if err := o.validate(true); err != nil {
		return chain.Letter{}, nil, err
	}
	e, err := q.event(ctx, chain.TypePayloadRead, ref, o)
	if err != nil {
		return chain.Letter{}, nil, err
	}
	var l chain.Letter
	_, err = q.step(ctx, ref, func(at chain.Letter, _ *view) (decision, error) {
		l = at
		return record(e)
	})
	if err != nil {
		return chain.Letter{}, nil, err
	}
	body, _, err := q.cfg.Store.Open(ctx, blob.Ref{Digest: ref, Version: l.BlobVersion})
	return l, body, err
}
