package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// fold gathers what the events amount to: the tree, the letters, the bytes they name.
type fold struct {
	report *Report
	want   Options
	tree   tree
	broken bool    // the lines read are not a chain: the tree over them says nothing
	last   Finding // the latest

	state    *witness // nil when not compared
	letters  *letters // nil in fast mode
	objects  *objects // nil when stored bytes are not checked
	plans    map[string]chain.Plan
	breakAt  uint64 // one more than the last place where the log was found broken; 0: none
	lastTime time.Time
	backward uint64 // events with a clock behind the one before
	head     chain.Head
}

// find reports something wrong at seq. What follows from a finding at the same event is not reported again.
func (f *fold) find(kind Kind, seq uint64, detail string) {
	f.findIn(kind, seq, chain.Digest{}, detail)
}

// unchain is find for what breaks the chain.
func (f *fold) unchain(kind Kind, seq uint64, detail string) {
	f.broken = true
	f.find(kind, seq, detail)
}

func (f *fold) findIn(kind Kind, seq uint64, ref chain.Digest, detail string) {
	if kind != Lifecycle { // which explains nothing about other letters
		f.breakAt = max(f.breakAt, seq+1)
	}
	if ofOneEvent(kind) && ofOneEvent(f.last.Kind) && f.last.Seq == seq {
		return
	}
	f.last = Finding{Kind: kind, Seq: seq, Ref: ref, Detail: detail}
	f.report.add(f.last)
}

// ofOneEvent tells the kinds that say of an event that it is not right, for one reason or another.
func ofOneEvent(k Kind) bool { return k == Changed || k == Grammar || k == Field || k == Lifecycle }

// take adds the event at seq; r is nil when it was not read.
func (f *fold) take(seq uint64, leaf chain.Digest, r *chain.Record) {
	f.head = chain.Head{Size: seq + 1, Leaf: leaf}
	f.tree.add(leaf)
	if f.state != nil && f.state.size == seq+1 {
		f.state.root = f.tree.root()
	}
	if h := f.want.Head; h != nil && h.Size == seq+1 {
		f.meetHead(leaf)
	}
	if r == nil {
		return
	}
	if seq == 0 {
		f.meetGenesis(&r.Event)
	}
	if f.letters == nil {
		return
	}
	if r.Event.At.Before(f.lastTime) {
		f.backward++
	}
	f.lastTime = r.Event.At
	f.planned(r)
	if !r.Event.Type.OfLetter() {
		return
	}
	c, err := f.letters.take(r, f.breakAt)
	if err != nil {
		f.findIn(Lifecycle, seq, r.Event.PayloadRef, err.Error())
		c.loose = true
	}
	if f.objects != nil {
		f.objects.take(r, c)
	}
}

// planned follows bulk replays to their ends. Where the log is broken, events of theirs may be missing.
func (f *fold) planned(r *chain.Record) {
	id := r.Event.Plan
	if id == "" {
		return
	}
	before := f.plans[id]
	after := before.Apply(*r)
	f.plans[id] = after
	if before.State != chain.PlanRunning || after.State == chain.PlanRunning || f.breakAt > 0 {
		return
	}
	counts := after.Counts
	if counts.Replayed != before.Counts.Replayed || counts.Parked != before.Counts.Parked || counts.Sum() != after.Terms.Expected {
		f.find(Plan, r.Seq, fmt.Sprintf("the plan replayed %d letters and parked %d of %d, and ends with other counts",
			before.Counts.Replayed, before.Counts.Parked, after.Terms.Expected))
	}
}

func (f *fold) meetHead(leaf chain.Digest) {
	if f.report.Anchored = leaf == f.want.Head.Leaf; !f.report.Anchored {
		f.find(Changed, f.want.Head.Size-1, "it is not the event of the stored head: it, or anything before it, was rewritten")
	}
}

func (f *fold) meetGenesis(e *chain.Event) {
	f.report.LogID, f.report.Origin = e.LogID, e.Origin
	if id := f.want.LogID; id != "" && e.LogID != id {
		f.find(Identity, 0, "the log has another id than the one asked for")
	}
}

// finish says what the end of the log tells.
func (f *fold) finish() {
	r := f.report
	r.Head = f.head
	if h := f.want.Head; h == nil {
		r.note("no stored head was given: events cut off the end, or a history rewritten as a whole, would not show")
	} else if h.Size > f.head.Size {
		f.find(Truncated, f.head.Size, fmt.Sprintf("the stored head has %d events, the log ends after %d", h.Size, f.head.Size))
	} else if h.Size == 0 {
		r.Anchored = true
	}
	if !f.broken {
		r.Root = f.tree.root()
	}
	if f.backward > 0 {
		r.note("%d events have a time before that of the event they follow; order is by sequence alone", f.backward)
	}
	if f.letters == nil {
		r.note("fast: grammar, envelopes and letters were not checked")
		return
	}
	r.Letters = f.letters.count()
}

func (f *fold) finishState(ctx context.Context) error {
	switch {
	case f.state == nil:
		f.report.note("no projection was given to compare")
	case f.broken:
		f.report.note("the projection was not compared: the links of the log are broken")
	default:
		return f.state.compare(ctx, f.want, f)
	}
	return nil
}

func (f *fold) finishObjects(ctx context.Context) error {
	if f.objects == nil {
		f.report.note("stored bytes were not checked")
		return nil
	}
	return f.objects.check(ctx, f.want.Store, f.letters, f.report)
}

// errCase is a case link that does not follow.
var errCase = errors.New("case_seq and case_prev do not follow the letter's events")
