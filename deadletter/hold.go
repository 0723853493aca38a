package deadletter

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/projection"
)

// Protection is what a person wants of the protection of a letter's bytes: its payload, its record and the error
// texts kept with it. The order needs a reason.
type Protection struct {
	Order
	Hold  string    // legal hold: HoldOn, HoldOff, or empty to leave it
	Until time.Time // retained at least until then; zero to leave it
}

// The two states of a legal hold.
const (
	HoldOn  = "on"
	HoldOff = "off"
)

func (p Protection) validate(now time.Time) error {
	switch err := p.Order.validate(true); {
	case err != nil:
		return err
	case p.Hold != "" && p.Hold != HoldOn && p.Hold != HoldOff:
		return field("hold", "must be on or off")
	case p.Hold == "" && p.Until.IsZero():
		return field("hold", "needs hold, retain_until or both")
	case !p.Until.IsZero() && !p.Until.After(now):
		return field("retain_until", "must be in the future")
	}
	return nil
}

// Hold sets or lifts the legal hold of a letter, and extends its retention, which is never shortened.
//
// What protects more is done before the event that says so, what protects less after it. So a crash between the two
// leaves bytes protected better than is recorded, never worse; the same order again does what is missing, and records
// nothing twice. Orders of one process follow one another.
// Errors: ErrNotFound, *chain.FieldError, *RetentionError, errors of the store.
func (q *Queue) Hold(ctx context.Context, ref chain.Digest, p Protection) (Receipt, error) {
	now := time.Now()
	if err := p.validate(now); err != nil {
		return Receipt{}, err
	}
	q.holding.Lock()
	defer q.holding.Unlock()
	e, err := q.event(ctx, chain.TypeRetention, ref, p.Order)
	if err != nil {
		return Receipt{}, err
	}
	kept, err := q.kept(ctx, ref)
	if err != nil {
		return Receipt{}, err
	}
	if !p.Until.IsZero() && kept[0].RetainUntil.Sub(p.Until) >= time.Second { // the store keeps whole seconds
		return Receipt{}, field("retain_until", "must not be before the date that holds; retention is only extended")
	}
	if e.RetainUntil, e.Blobs, err = q.strengthen(ctx, kept, p, now); err != nil {
		return Receipt{}, err
	}
	e.Hold = p.Hold
	receipt, err := q.step(ctx, ref, func(l chain.Letter, _ *view) (decision, error) {
		held := HoldOff
		if l.Hold {
			held = HoldOn
		}
		if (p.Hold == "" || p.Hold == held) && !e.RetainUntil.After(l.RetainUntil) {
			return already(l.LastSeq, l.CaseLeaf)
		}
		return record(e)
	})
	if err != nil || p.Hold != HoldOff {
		return receipt, err
	}
	return receipt, q.release(ctx, kept[0])
}

// kept is where a letter's bytes are: the payload first, then what its events name besides.
func (q *Queue) kept(ctx context.Context, ref chain.Digest) ([]chain.BlobRef, error) {
	l, err := q.letter(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := q.cfg.State.Wait(ctx, l.LastSeq); err != nil {
		return nil, err
	}
	events, err := q.cfg.State.Timeline(ref)
	if err != nil {
		return nil, err
	}
	all := []chain.BlobRef{{Ref: l.Ref, BlobVersion: l.BlobVersion, RetainUntil: l.RetainUntil}}
	seen := map[chain.Digest]bool{l.Ref: true}
	for _, r := range events {
		for _, b := range r.Event.Blobs {
			if !seen[b.Ref] {
				seen[b.Ref] = true
				all = append(all, b)
			}
		}
	}
	return all, nil
}

// strengthen extends and holds what is kept, and tells the dates that hold now: of the payload, and of the rest. Bytes
// other than the payload that are lost are for verify to find.
func (q *Queue) strengthen(ctx context.Context, kept []chain.BlobRef, p Protection, now time.Time) (until time.Time, rest []chain.BlobRef, err error) {
	for i, b := range kept {
		loc, err := q.protect(ctx, blob.Ref{Digest: b.Ref, Version: b.BlobVersion}, p, now)
		if i > 0 && errors.Is(err, blob.ErrNotFound) {
			continue
		}
		if err != nil {
			return until, nil, err
		}
		b.RetainUntil = chain.Instant(loc.RetainUntil)
		if i == 0 {
			until = b.RetainUntil
			continue
		}
		rest = append(rest, b)
	}
	if p.Until.IsZero() {
		return time.Time{}, nil, nil
	}
	return until, rest, nil
}

// protect does to one version what the order strengthens.
func (q *Queue) protect(ctx context.Context, ref blob.Ref, p Protection, now time.Time) (loc blob.Location, err error) {
	if !p.Until.IsZero() {
		if loc, err = q.cfg.Store.Extend(ctx, ref, p.Until, now); err != nil {
			return loc, err
		}
	}
	if p.Hold == HoldOn {
		return q.cfg.Store.Hold(ctx, ref, true)
	}
	return loc, nil
}

// put stores bytes that belong to the letter of ref besides its payload, protected as well as the letter is.
func (q *Queue) put(ctx context.Context, ref chain.Digest, data []byte) (blob.Location, error) {
	now := time.Now()
	loc, _, err := q.cfg.Store.PutBytes(ctx, data, now)
	if err != nil {
		return loc, err
	}
	l, err := q.cfg.State.Letter(ref)
	if err != nil && !errors.Is(err, projection.ErrNotFound) {
		return loc, err
	}
	if err = nil; l.Hold {
		loc, err = q.cfg.Store.Hold(ctx, loc.Ref, true)
	}
	if err == nil && l.RetainUntil.After(loc.RetainUntil) {
		loc, err = q.cfg.Store.Extend(ctx, loc.Ref, l.RetainUntil, now)
	}
	return loc, err
}

// release lifts the hold of a payload. The letter's other bytes stay held: another letter that is held may have the
// same ones, since bytes have their digest as name, and too much protection is no loss.
func (q *Queue) release(ctx context.Context, payload chain.BlobRef) error {
	_, err := q.cfg.Store.Hold(ctx, blob.Ref{Digest: payload.Ref, Version: payload.BlobVersion}, false)
	return err
}
