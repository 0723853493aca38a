package deadletter

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
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
// nothing twice: it is answered with the event since which the letter is as ordered. Orders of one process follow one
// another.
// Errors: ErrNotFound, *chain.FieldError, *RetentionError, errors of the store.
func (q *Queue) Hold(ctx context.Context, ref chain.Digest, p Protection) (Receipt, error) {
	if err := p.validate(time.Now()); err != nil {
		return Receipt{}, err
	}
	q.holding.Lock()
	defer q.holding.Unlock()
	e, err := q.event(ctx, chain.TypeRetention, ref, p.Order)
	if err != nil {
		return Receipt{}, err
	}
	e.Hold = p.Hold
	for {
		receipt, err := q.order(ctx, ref, e, p)
		if !errors.Is(err, errMoved) {
			return receipt, err
		}
	}
}

// errMoved: the letter has an event more than it had when it was looked up.
var errMoved = errors.New("the letter has moved on")

// order carries p out on the letter as it is now, and records e. It ends in errMoved if the letter gets an event
// before that: it may name bytes that are to be protected too.
func (q *Queue) order(ctx context.Context, ref chain.Digest, e chain.Event, p Protection) (Receipt, error) {
	events, err := q.history(ctx, ref)
	if err != nil {
		return Receipt{}, err
	}
	kept := objects(events)
	if !p.Until.IsZero() && kept[0].RetainUntil.Sub(p.Until) >= time.Second { // the store keeps whole seconds
		return Receipt{}, field("retain_until", "must not be before the date that holds; retention is only extended")
	}
	if e.RetainUntil, e.Blobs, err = q.strengthen(ctx, kept, p, time.Now()); err != nil {
		return Receipt{}, err
	}
	since, done := p.since(events, e.RetainUntil)
	receipt, err := q.step(ctx, ref, func(l chain.Letter, _ *view) (decision, error) {
		switch {
		case l.LastSeq != events[len(events)-1].Seq:
			return decision{}, errMoved
		case done:
			return already(since.Seq, since.Leaf)
		}
		return record(e)
	})
	if err != nil || p.Hold != HoldOff {
		return receipt, err
	}
	return receipt, q.release(ctx, kept[0])
}

// since finds the event from which on a letter has been as p wants it, with until as its date; ok is false if it
// is not.
func (p Protection) since(events []chain.Record, until time.Time) (at chain.Record, ok bool) {
	hold := HoldOff
	for _, r := range events {
		if r.Event.Hold != "" {
			hold = r.Event.Hold
		}
		fits := (p.Hold == "" || p.Hold == hold) && !r.Event.RetainUntil.Before(until)
		if fits && !ok {
			at = r
		}
		ok = fits
	}
	return at, ok
}

// history is the events of a letter up to the head of the log.
func (q *Queue) history(ctx context.Context, ref chain.Digest) ([]chain.Record, error) {
	l, err := q.letter(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := q.cfg.State.Wait(ctx, l.LastSeq); err != nil {
		return nil, err
	}
	return q.cfg.State.Timeline(ref)
}

// objects are where a letter's bytes are: the payload first, with the date that holds, then what events name besides.
func objects(events []chain.Record) []chain.BlobRef {
	e := events[len(events)-1].Event
	payload := chain.BlobRef{Ref: e.PayloadRef, BlobVersion: e.BlobVersion, RetainUntil: e.RetainUntil}
	all, seen := []chain.BlobRef{payload}, map[blob.Ref]bool{stored(payload): true}
	for _, r := range events {
		for _, b := range r.Event.Blobs {
			if !seen[stored(b)] {
				seen[stored(b)] = true
				all = append(all, b)
			}
		}
	}
	return all
}

// stored is the version that b names.
func stored(b chain.BlobRef) blob.Ref { return blob.Ref{Digest: b.Ref, Version: b.BlobVersion} }

// strengthen extends and holds what is kept, and tells the dates that hold now: of the payload, and of the rest. Bytes
// other than the payload that are lost are for verify to find.
func (q *Queue) strengthen(ctx context.Context, kept []chain.BlobRef, p Protection, now time.Time) (until time.Time, rest []chain.BlobRef, err error) {
	for i, b := range kept {
		loc, err := q.protect(ctx, stored(b), p, now)
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

// guard is protection that bytes were given beyond what they got when they were stored.
type guard struct {
	hold  bool
	until time.Time
}

// errUnguarded: bytes that an event is to name are protected less than its letter.
var errUnguarded = errors.New("the bytes are protected less than their letter")

// over is blobs with the dates that g gave them, or errUnguarded if l is protected better than they are.
func (g guard) over(l chain.Letter, blobs []chain.BlobRef) ([]chain.BlobRef, error) {
	blobs = slices.Clone(blobs)
	for i := range blobs {
		if blobs[i].RetainUntil.Before(g.until) {
			blobs[i].RetainUntil = g.until
		}
		if l.Hold && !g.hold || blobs[i].RetainUntil.Before(l.RetainUntil) {
			return blobs, errUnguarded
		}
	}
	return blobs, nil
}

// guard protects blobs as well as l is.
func (q *Queue) guard(ctx context.Context, l chain.Letter, blobs []chain.BlobRef) (guard, error) {
	p, now := Protection{Until: l.RetainUntil}, time.Now()
	if l.Hold {
		p.Hold = HoldOn
	}
	for _, b := range blobs {
		if _, err := q.protect(ctx, stored(b), p, now); err != nil {
			return guard{}, err
		}
	}
	return guard{l.Hold, l.RetainUntil}, nil
}

// release lifts the hold of a payload. The letter's other bytes stay held: another letter that is held may have the
// same ones, since bytes have their digest as name, and too much protection is no loss.
func (q *Queue) release(ctx context.Context, payload chain.BlobRef) error {
	_, err := q.cfg.Store.Hold(ctx, stored(payload), false)
	return err
}
