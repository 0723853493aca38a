package deadletter

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Receipt is the answer to every accepted submission: proof that the payload is in custody, and where its event
// stands in the log.
type Receipt struct {
	PayloadRef    chain.Digest
	Seq           uint64       // of the event that this submission, or the first like it, led to
	LeafHash      chain.Digest // of that event
	Disposition   chain.Disposition
	Outcome       chain.Outcome
	ErrorCode     string
	NextAttemptAt time.Time
	Known         bool // nothing new was recorded
}

// receipt describes l at the event seq with the given leaf hash.
func receipt(l chain.Letter, seq uint64, leaf chain.Digest) Receipt {
	return Receipt{PayloadRef: l.Ref, Seq: seq, LeafHash: leaf, Disposition: l.Disposition,
		Outcome: l.Outcome, ErrorCode: l.OutcomeCode, NextAttemptAt: l.NextAttemptAt}
}

// decision is what a step wants at the letter it was shown: an event, or none if all is recorded already.
// known is the event that counts as its record in that case.
type decision struct {
	event chain.Event
	known struct {
		seq  uint64
		leaf chain.Digest
	}
}

func record(e chain.Event) (decision, error) { return decision{event: e}, nil }

func already(seq uint64, leaf chain.Digest) (decision, error) {
	var d decision
	d.known.seq, d.known.leaf = seq, leaf
	return d, nil
}

// step takes one decision about one letter at the head and answers with its receipt. Bytes that the event names are
// protected as well as the letter is, before it is recorded.
func (q *Queue) step(ctx context.Context, ref chain.Digest, decide func(l chain.Letter, v *view) (decision, error)) (Receipt, error) {
	var d decision
	var before chain.Letter
	var given guard
	take := func(v *view) (e chain.Event, err error) {
		if before, err = v.letter(ref); err != nil {
			return e, err
		}
		if d, err = decide(before, v); err != nil {
			return e, err
		}
		d.event.PayloadRef = ref
		d.event.Blobs, err = given.over(before, d.event.Blobs)
		return d.event, err
	}
	r, err := q.do(ctx, take)
	for errors.Is(err, errUnguarded) {
		if given, err = q.guard(ctx, before, d.event.Blobs); err == nil {
			r, err = q.do(ctx, take)
		}
	}
	if err != nil {
		return Receipt{}, err
	}
	if r.Raw == nil {
		known := receipt(before, d.known.seq, d.known.leaf)
		known.Known = true
		return known, nil
	}
	after, err := before.Apply(r)
	return receipt(after, r.Seq, r.Leaf), err
}
