package deadletter

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/projection"
)

// PlanOrder is a bulk replay, ordered.
type PlanOrder struct {
	Order              // the reason is required
	Filter             projection.Filter
	Snapshot, Expected uint64 // of the preview
	RateMilli          uint64 // letters per 1000 seconds at most; 0 means DefaultPlanRate
	Ramp               bool   // begin with 1, 2, 4, ... letters per second
}

// DefaultPlanRate is ten letters a second.
const DefaultPlanRate = 10_000

// PlanGroup is how many letters of a plan have a disposition, an error code and a channel.
type PlanGroup struct {
	Disposition chain.Disposition
	ErrorCode   string
	Channel     chain.Channel
	Count       uint64
}

// PlanPreview is what a plan would replay.
type PlanPreview struct {
	Filter         string // in its canonical form
	Snapshot       uint64
	Count          uint64
	Parking        uint64 // of these, quarantined instead: replayed too often
	Groups         []PlanGroup
	Sample         []chain.Digest // the oldest
	Oldest, Newest time.Time      // first seen
	Targets        []string
}

// sampleSize is how many letters a preview names.
const sampleSize = 10

// PreviewPlan counts what f means now. A filter without dispositions means dead letters and waiting retries.
// Quarantined letters must be named in f and need an override.
// Errors: ErrEmptyFilter, *chain.FieldError, that of ctx.
func (q *Queue) PreviewPlan(ctx context.Context, f projection.Filter, override bool) (PlanPreview, error) {
	f, text, err := planFilter(f, override)
	if err != nil {
		return PlanPreview{}, err
	}
	return q.survey(ctx, f, text, 0, override)
}

func (q *Queue) survey(ctx context.Context, f projection.Filter, text string, snapshot uint64, override bool) (PlanPreview, error) {
	p := PlanPreview{Filter: text}
	groups, targets := map[PlanGroup]uint64{}, map[string]bool{}
	size, err := q.cfg.State.Survey(ctx, f, snapshot, func(l *chain.Letter, member bool) {
		if !member {
			return
		}
		if p.Count++; len(p.Sample) < sampleSize {
			p.Sample = append(p.Sample, l.Ref)
		}
		if l.Replays >= q.cfg.MaxReplays && !override {
			p.Parking++
		}
		if p.Oldest.IsZero() {
			p.Oldest = l.FirstSeen
		}
		p.Newest = l.FirstSeen
		targets[q.cfg.Target(*l)] = true
		groups[PlanGroup{Disposition: l.Disposition, ErrorCode: l.Failure.ErrorCode, Channel: l.Channel}]++
	})
	for g, n := range groups {
		g.Count = n
		p.Groups = append(p.Groups, g)
	}
	slices.SortFunc(p.Groups, func(a, b PlanGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ErrorCode, b.ErrorCode),
			cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.Disposition, b.Disposition))
	})
	p.Snapshot, p.Targets = cmp.Or(snapshot, size), slices.Sorted(maps.Keys(targets))
	return p, err
}

// planFilter is f as a plan takes it, and its text.
func planFilter(f projection.Filter, override bool) (projection.Filter, string, error) {
	text, err := f.Text()
	switch {
	case err != nil:
		return f, "", err
	case text == "":
		return f, "", ErrEmptyFilter
	case len(f.Dispositions) == 0:
		f.Dispositions = []chain.Disposition{chain.DeadLetter, chain.Retrying}
	}
	for _, d := range f.Dispositions {
		switch d {
		case chain.DeadLetter, chain.Retrying:
			continue
		case chain.Poison:
			if override {
				continue
			}
			return f, "", field("override", "is required for quarantined letters, with a reason")
		case chain.Received, chain.Replayed, chain.Resolved:
		}
		return f, "", field("disposition", "of a plan must be dead_letter, retrying or poison")
	}
	if text, err = f.Text(); err != nil {
		return f, "", err
	}
	f, err = projection.ParseFilter(text)
	return f, text, err
}

// CreatePlan orders a bulk replay. This instance carries it out, in RunPlans. The reason is compared with the payloads
// of the sample, not with all.
// Errors: ErrEmptyFilter, *chain.FieldError, *PlanCountError if there are not as many letters as expected,
// *PlanConflictError if a plan is running for one of its targets, errors of the store, ErrUnavailable.
func (q *Queue) CreatePlan(ctx context.Context, o PlanOrder) (chain.Plan, error) {
	f, text, err := planFilter(o.Filter, o.Override)
	if err == nil {
		err = o.validate(q.Size())
	}
	if err != nil {
		return chain.Plan{}, err
	}
	if err := q.cfg.State.Wait(ctx, q.Size()-1); err != nil {
		return chain.Plan{}, err
	}
	seen, err := q.survey(ctx, f, text, o.Snapshot, o.Override)
	switch {
	case err != nil:
		return chain.Plan{}, err
	case seen.Count != o.Expected:
		_, err := q.do(ctx, func(v *view) (chain.Event, error) { return chain.Event{}, v.free(seen.Targets) }) // which would explain it
		return chain.Plan{}, cmp.Or[error](err, &PlanCountError{Expected: o.Expected, Count: seen.Count, Snapshot: o.Snapshot})
	case len(seen.Targets) > chain.MaxTargets:
		return chain.Plan{}, field("filter", "must mean letters of at most 64 processors")
	}
	e := chain.Event{Type: chain.TypeReplayPlan, Actor: o.Actor, Override: o.Override, Worker: q.cfg.Node,
		Terms: &chain.PlanTerms{Filter: text, Snapshot: o.Snapshot, Expected: o.Expected,
			RateMilli: cmp.Or(o.RateMilli, DefaultPlanRate), Ramp: o.Ramp, Targets: seen.Targets}}
	e.Reason = o.Reason
	for _, ref := range seen.Sample {
		if e.Reason, err = q.clear(ctx, ref, e.Reason); err != nil {
			return chain.Plan{}, err
		}
	}
	r, err := q.do(ctx, func(v *view) (chain.Event, error) {
		e.At, e.Plan = time.Now(), "p"+strconv.FormatUint(v.head.Size, 10)
		return e, v.free(seen.Targets)
	})
	return chain.Plan{}.Apply(r), err
}

func (o *PlanOrder) validate(size uint64) error {
	if err := o.Order.validate(true); err != nil {
		return err
	}
	switch {
	case o.RateMilli != 0 && (o.RateMilli < chain.MinPlanRate || o.RateMilli > chain.MaxPlanRate):
		return field("rate", "must be 0.1 to 10000 letters a second")
	case o.Expected == 0:
		return field("expected", "must be the count of a dry run, and at least 1")
	case o.Snapshot == 0 || o.Snapshot > size:
		return field("snapshot", "must be that of a dry run")
	}
	return nil
}

// plain clears words of a person without a payload to compare them with.
func (q *Queue) plain(text string) (string, error) {
	return Sanitise(text, strings.NewReader(""), q.contract)
}

// free tells whether no plan is running for any of targets.
func (v *view) free(targets []string) error {
	plans, err := v.running()
	for _, p := range plans {
		for _, t := range targets {
			if slices.Contains(p.Terms.Targets, t) {
				return &PlanConflictError{Plan: p.ID, Target: t}
			}
		}
	}
	return err
}

// unplanned tells whether no running plan is still to replay l.
func (v *view) unplanned(l chain.Letter) error {
	if l.Lease != nil {
		return nil
	}
	plans, err := v.running()
	for _, p := range plans {
		f, err := projection.ParseFilter(p.Terms.Filter)
		if err != nil || !f.Means(&l) { // a filter of a newer version is for that to judge
			continue
		}
		if meant, err := v.q.cfg.State.Meant(f, &l, p.Terms.Snapshot); meant || err != nil {
			return cmp.Or[error](err, &PlanConflictError{Plan: p.ID})
		}
	}
	return err
}

// CancelPlan ends a plan before its time. The order needs a reason.
// Errors: ErrNoPlan, *PlanEndedError, *chain.FieldError, ErrUnavailable.
func (q *Queue) CancelPlan(ctx context.Context, id string, o Order) (chain.Plan, error) {
	e, err := q.planEvent(chain.TypeReplayCancel, id, o)
	if err != nil {
		return chain.Plan{}, err
	}
	if err := q.cfg.State.Wait(ctx, q.Size()-1); err != nil {
		return chain.Plan{}, err
	}
	then, members, _, err := q.cfg.State.PlanProgress(ctx, id)
	if errors.Is(err, projection.ErrNotFound) {
		err = ErrNoPlan
	}
	if err == nil && then.State != chain.PlanRunning {
		err = &PlanEndedError{Plan: id, State: then.State}
	}
	if err != nil {
		return chain.Plan{}, err
	}
	skipped := then.Remaining() - min(then.Remaining(), members)
	return q.movePlan(ctx, id, func(p chain.Plan) (chain.Event, error) {
		counts := p.Counts
		counts.Skipped = min(skipped, p.Remaining())
		counts.Cancelled = p.Remaining() - counts.Skipped
		e.At, e.Counts = time.Now(), &counts
		return e, nil
	})
}

// ResumePlan has this instance carry out a plan whose own is gone. The order needs a reason.
// Errors: ErrNoPlan, *PlanEndedError, *chain.FieldError, ErrUnavailable.
func (q *Queue) ResumePlan(ctx context.Context, id string, o Order) (chain.Plan, error) {
	e, err := q.planEvent(chain.TypeReplayPlan, id, o)
	if err != nil {
		return chain.Plan{}, err
	}
	e.Worker = q.cfg.Node
	return q.movePlan(ctx, id, func(p chain.Plan) (chain.Event, error) {
		if p.Worker == q.cfg.Node {
			return chain.Event{}, nil
		}
		e.At = time.Now()
		return e, nil
	})
}

func (q *Queue) planEvent(t chain.Type, id string, o Order) (chain.Event, error) {
	if err := o.validate(true); err != nil {
		return chain.Event{}, err
	}
	reason, err := q.plain(o.Reason)
	return chain.Event{Type: t, Plan: id, Actor: o.Actor, Reason: reason}, err
}

// movePlan takes a decision about a running plan at the head, and tells the plan after it.
func (q *Queue) movePlan(ctx context.Context, id string, decide func(chain.Plan) (chain.Event, error)) (chain.Plan, error) {
	var p chain.Plan
	r, err := q.do(ctx, func(v *view) (e chain.Event, err error) {
		switch p, err = v.plan(id); {
		case err != nil:
			return e, err
		case !p.Exists():
			return e, ErrNoPlan
		case p.State != chain.PlanRunning:
			return e, &PlanEndedError{Plan: id, State: p.State}
		}
		return decide(p)
	})
	if err != nil {
		return chain.Plan{}, err
	}
	return p.Apply(r), nil
}
