package deadletter

import (
	"errors"
	"maps"
	"slices"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/projection"
)

// overlay is state newer than the projection's.
type overlay struct {
	letters map[chain.Digest]chain.Letter
	records map[chain.Digest]projection.RecordEntry // by record_version
	plans   map[string]chain.Plan
}

func newOverlay() overlay {
	return overlay{map[chain.Digest]chain.Letter{}, map[chain.Digest]projection.RecordEntry{}, map[string]chain.Plan{}}
}

func (o overlay) merge(newer overlay) {
	maps.Copy(o.letters, newer.letters)
	maps.Copy(o.records, newer.records)
	maps.Copy(o.plans, newer.plans)
}

// forget drops what a projection of size events knows itself.
func (o overlay) forget(size uint64) {
	maps.DeleteFunc(o.letters, func(_ chain.Digest, l chain.Letter) bool { return l.LastSeq < size })
	maps.DeleteFunc(o.records, func(_ chain.Digest, r projection.RecordEntry) bool { return r.Seq < size })
	maps.DeleteFunc(o.plans, func(_ string, p chain.Plan) bool { return p.LastSeq < size })
}

// view is the state at a head of the log: the projection, what came after it, and what this block adds.
type view struct {
	q     *Queue
	head  chain.Head
	local overlay
}

func (q *Queue) view() *view { return &view{q: q, head: q.tip.Head, local: newOverlay()} }

// letter is the letter of a payload at this head; the zero Letter if there is none.
func (v *view) letter(ref chain.Digest) (chain.Letter, error) {
	if l, ok := v.local.letters[ref]; ok {
		return l, nil
	}
	if l, ok := v.q.recent.letters[ref]; ok {
		return l, nil
	}
	l, err := v.q.cfg.State.Letter(ref)
	if errors.Is(err, projection.ErrNotFound) {
		return chain.Letter{}, nil
	}
	return l, err
}

// existing is letter, or ErrNotFound.
func (v *view) existing(ref chain.Digest) (chain.Letter, error) {
	l, err := v.letter(ref)
	if err == nil && !l.Exists() {
		err = ErrNotFound
	}
	return l, err
}

// admitted finds the first record of a report's identity and version.
func (v *view) admitted(version chain.Digest) (projection.RecordEntry, bool, error) {
	if r, ok := v.local.records[version]; ok {
		return r, true, nil
	}
	if r, ok := v.q.recent.records[version]; ok {
		return r, true, nil
	}
	return v.q.cfg.State.RecordVersion(version)
}

// plan is a bulk replay at this head; the zero Plan if there is none.
func (v *view) plan(id string) (chain.Plan, error) {
	if p, ok := v.local.plans[id]; ok {
		return p, nil
	}
	if p, ok := v.q.recent.plans[id]; ok {
		return p, nil
	}
	p, err := v.q.cfg.State.Plan(id)
	if errors.Is(err, projection.ErrNotFound) {
		return chain.Plan{}, nil
	}
	return p, err
}

// running are the bulk replays that have not ended at this head.
func (v *view) running() (plans []chain.Plan, err error) {
	stored, err := v.q.cfg.State.RunningPlans()
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, p := range stored {
		ids[p.ID] = true
	}
	for _, newer := range []map[string]chain.Plan{v.q.recent.plans, v.local.plans} {
		for id := range newer {
			ids[id] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		p, err := v.plan(id)
		if err != nil {
			return nil, err
		}
		if p.State == chain.PlanRunning {
			plans = append(plans, p)
		}
	}
	return plans, nil
}

// pass moves the head past record, and the plan that record names.
func (v *view) pass(record chain.Record) error {
	if id := record.Event.Plan; id != "" {
		p, err := v.plan(id)
		if err != nil {
			return err
		}
		if p = p.Apply(record); p.Exists() {
			v.local.plans[id] = p
		}
	}
	v.head = record.Head()
	return nil
}

// fold moves the view past record.
func (v *view) fold(record chain.Record) error {
	e := &record.Event
	if e.PayloadRef.IsZero() {
		return v.pass(record)
	}
	l, err := v.letter(e.PayloadRef)
	if err != nil {
		return err
	}
	if l.Exists() && l.LastSeq >= record.Seq {
		return v.pass(record) // the projection was faster, and knows it already
	}
	if l, err = l.Apply(record); err != nil {
		return &chain.BrokenError{Seq: record.Seq, Kind: chain.BreakLifecycle, Err: err}
	}
	if err := v.pass(record); err != nil {
		return err
	}
	v.local.letters[l.Ref] = l
	if e.RecordVersion.IsZero() || e.Outcome != chain.Admit && e.Outcome != chain.AdmitWithWarning {
		return nil
	}
	if _, known, err := v.admitted(e.RecordVersion); err != nil || known {
		return err
	}
	v.local.records[e.RecordVersion] = projection.RecordEntry{PayloadRef: e.PayloadRef, RecordRef: e.RecordRef,
		Content: e.RecordContent, Seq: record.Seq}
	return nil
}

// block is what one round of decisions came to.
type block struct {
	view  *view
	taken []*request
	lines [][]byte
}

// decide takes the decisions of batch one after another, each on the state the one before left, until a block
// is full. A refused request is taken too: its answer is the refusal.
func (q *Queue) decide(batch []*request) block {
	b := block{view: q.view()}
	size := 0
	for _, r := range batch {
		r.record, r.err = chain.Record{}, r.ctx.Err()
		if r.err == nil {
			r.record, r.err = b.view.try(r.decide)
		}
		b.taken = append(b.taken, r)
		if r.record.Raw == nil {
			continue
		}
		b.lines = append(b.lines, r.record.Raw)
		if size += len(r.record.Raw) + 1; size > chain.MaxBlockBytes-chain.MaxEvent || len(b.lines) == chain.MaxBlockEvents {
			break
		}
	}
	return b
}

// try takes one decision: it seals the event that decide wants, if any, and folds it. An event that its letter
// refuses leaves the view as it was.
func (v *view) try(decide func(*view) (chain.Event, error)) (chain.Record, error) {
	e, err := decide(v)
	if err != nil || e.Type == "" {
		return chain.Record{}, err
	}
	return v.seal(e)
}

func (v *view) seal(e chain.Event) (chain.Record, error) {
	if !e.PayloadRef.IsZero() {
		l, err := v.letter(e.PayloadRef)
		if err != nil {
			return chain.Record{}, err
		}
		e = l.Next(e)
	}
	record, err := v.head.Seal(e)
	if err != nil {
		return chain.Record{}, err
	}
	if err := v.fold(record); err != nil {
		var broken *chain.BrokenError
		if errors.As(err, &broken) {
			err = broken.Err
		}
		return chain.Record{}, err
	}
	return record, nil
}
