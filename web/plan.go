package web

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/projection"
)

// PlanOrder is a bulk replay: of which letters, and how. Its filter has the words of the list of letters.
type PlanOrder struct {
	Disposition []chain.Disposition `json:"disposition,omitempty" enum:"dead_letter,retrying,poison" doc:"Any of these; dead_letter and retrying if absent. poison needs override"`
	Stage       chain.Stage         `json:"stage,omitempty" enum:"ingest,validate,parse,normalize,dispatch" doc:"Of the last failure"`
	ErrorCode   string              `json:"error_code,omitempty" maxLength:"80" doc:"Of the last failure"`
	Channel     chain.Channel       `json:"channel,omitempty" enum:"ocr_document,mobile_export,telematics_api,manual_entry,other"`
	Source      string              `json:"source,omitempty" maxLength:"80" doc:"Of any submission"`
	Owner       string              `json:"owner,omitempty" maxLength:"80"`
	Tag         string              `json:"tag,omitempty" maxLength:"80"`
	Since       time.Time           `json:"since,omitzero" doc:"First seen then or later"`
	Until       time.Time           `json:"until,omitzero" doc:"First seen before"`

	Reason   string  `json:"reason,omitempty" maxLength:"500" doc:"Recorded with each letter; required, except for a dry run"`
	Override bool    `json:"override,omitempty" doc:"Replay beyond the bound, and out of quarantine"`
	Rate     float64 `json:"rate,omitempty" minimum:"0.1" maximum:"10000" default:"10" doc:"Letters per second, at most"`
	NoRamp   bool    `json:"no_ramp,omitempty" doc:"Begin at the full rate instead of 1, 2, 4, ... letters per second"`
	Snapshot uint64  `json:"snapshot,omitempty" doc:"Of the dry run; required, except for a dry run"`
	Expected uint64  `json:"expected,omitempty" doc:"Count of the dry run; required, except for a dry run"`
}

func (o *PlanOrder) filter() projection.Filter {
	return projection.Filter{Dispositions: o.Disposition, Stage: o.Stage, ErrorCode: o.ErrorCode, Channel: o.Channel,
		Source: o.Source, Owner: o.Owner, Tag: o.Tag, Since: o.Since, Until: o.Until}
}

// PlanGroup is how many letters of a plan have a disposition, an error code and a channel.
type PlanGroup struct {
	Disposition chain.Disposition `json:"disposition"`
	ErrorCode   string            `json:"error_code"`
	Channel     chain.Channel     `json:"channel"`
	Count       uint64            `json:"count"`
}

// PlanPreview is what a plan would replay.
type PlanPreview struct {
	Filter   string         `json:"filter" doc:"As it would be recorded, a URL query"`
	Snapshot uint64         `json:"snapshot" doc:"Size of the log at which this was counted"`
	Count    uint64         `json:"count"`
	Parking  uint64         `json:"parking" doc:"Of these, letters that were replayed too often: they would be quarantined"`
	Groups   []PlanGroup    `json:"groups" doc:"The largest first"`
	Sample   []chain.Digest `json:"sample" doc:"References of the oldest"`
	Oldest   time.Time      `json:"oldest,omitzero" doc:"First seen"`
	Newest   time.Time      `json:"newest,omitzero"`
	Targets  []string       `json:"targets" doc:"Processors that the letters go to"`
}

// Plan is a bulk replay. Replayed, parked, skipped, cancelled and remaining add up to expected.
type Plan struct {
	ID        string          `json:"id"`
	State     chain.PlanState `json:"state" enum:"running,done,cancelled"`
	Filter    string          `json:"filter" doc:"A URL query"`
	Snapshot  uint64          `json:"snapshot" doc:"Size of the log at which the letters were counted"`
	Expected  uint64          `json:"expected" doc:"Letters at the snapshot"`
	Replayed  uint64          `json:"replayed"`
	Parked    uint64          `json:"parked" doc:"Quarantined instead: replayed too often"`
	Skipped   uint64          `json:"skipped" doc:"Changed meanwhile by somebody else, or being processed; known at the end, or when counted"`
	Cancelled uint64          `json:"cancelled" doc:"Still to be replayed when the plan was cancelled"`
	Remaining uint64          `json:"remaining" doc:"Not accounted for yet"`
	Later     *uint64         `json:"later,omitempty" doc:"Letters that came to the filter after the snapshot; the plan leaves them alone. Of a running plan, when counted"`
	Rate      float64         `json:"rate" doc:"Letters per second, at most"`
	Ramp      bool            `json:"ramp" doc:"Begins slowly"`
	Override  bool            `json:"override"`
	Targets   []string        `json:"targets"`
	Node      string          `json:"node" doc:"The instance that carries it out"`
	Actor     string          `json:"actor"`
	Reason    string          `json:"reason"`
	Seq       uint64          `json:"seq" doc:"Of the event that ordered it"`
	CreatedAt time.Time       `json:"created_at"`
	EndedAt   time.Time       `json:"ended_at,omitzero"`
	EndedBy   string          `json:"ended_by,omitempty"`
	EndReason string          `json:"end_reason,omitempty" doc:"Of a cancelled plan"`
}

func planOf(p chain.Plan) Plan {
	return Plan{ID: p.ID, State: p.State, Filter: p.Terms.Filter, Snapshot: p.Terms.Snapshot, Expected: p.Terms.Expected,
		Replayed: p.Counts.Replayed, Parked: p.Counts.Parked, Skipped: p.Counts.Skipped, Cancelled: p.Counts.Cancelled, Remaining: p.Remaining(),
		Rate: float64(p.Terms.RateMilli) / 1000, Ramp: p.Terms.Ramp, Override: p.Override, Targets: p.Terms.Targets, Node: p.Worker,
		Actor: p.Actor, Reason: p.Reason, Seq: p.Seq, CreatedAt: p.CreatedAt, EndedAt: p.EndedAt, EndedBy: p.EndedBy, EndReason: p.EndReason}
}

// PlanAnswer is the answer to an order: the plan, or after a dry run its preview.
type PlanAnswer struct {
	Preview *PlanPreview `json:"preview,omitempty"`
	Plan    *Plan        `json:"plan,omitempty"`
}

// Plans is a stretch of the list of plans, the latest first.
type Plans struct {
	Plans []Plan `json:"plans"`
	Next  uint64 `json:"next,omitempty" doc:"before of the following stretch; absent at the end"`
}

type planInput struct {
	DryRun bool `query:"dry_run" doc:"Count, and order nothing"`
	Body   PlanOrder
}

type planAnswerOutput struct {
	Status int
	Body   PlanAnswer
}

type showPlanInput struct {
	PlanPath
	Count bool `query:"count" doc:"Count the letters of a running plan as they are now; this looks at all of them"`
}

type plansInput struct {
	Before uint64 `query:"before" doc:"next of the stretch before"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
}

type plansOutput struct{ Body Plans }

// PlanPath is the plan in the path of its operations.
type PlanPath struct {
	ID string `path:"id" maxLength:"80" doc:"Name of the plan"`
}

type cancelInput struct {
	PlanPath
	Reason string `query:"reason" required:"true" minLength:"1" maxLength:"500" doc:"Recorded"`
}

type resumeInput struct {
	PlanPath
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"Recorded"`
	}
}

type planOutput struct{ Body Plan }

func (a *api) planRoutes() {
	register(a, huma.Operation{Method: "POST", Path: "/v1/plans", OperationID: "plan", DefaultStatus: http.StatusCreated, Summary: "Replay all letters that a filter means",
		Description: "First with dry_run, which counts. Then with snapshot and expected of that count: the plan replays those letters, and of them " +
			"only those that nobody has changed meanwhile. One plan runs for a target at a time.",
		Responses: map[string]*huma.Response{"200": {Description: "What the dry run counted"}}}, a.plan)
	answers := a.huma.OpenAPI().Paths["/v1/plans"].Post.Responses
	answers["200"].Content = answers["201"].Content
	register(a, huma.Operation{Method: "GET", Path: "/v1/plans", OperationID: "plans", Summary: "List plans, the latest first"}, a.plans)
	register(a, huma.Operation{Method: "GET", Path: "/v1/plans/{id}", OperationID: "show-plan", Summary: "A plan and how far it is"}, a.showPlan)
	register(a, huma.Operation{Method: "DELETE", Path: "/v1/plans/{id}", OperationID: "cancel-plan", Summary: "Cancel a running plan",
		Description: "What it has replayed stays replayed."}, a.cancelPlan)
	register(a, huma.Operation{Method: "POST", Path: "/v1/plans/{id}/resume", OperationID: "resume-plan", Summary: "Have this instance carry out a plan",
		Description: "For a plan of an instance that is gone. An instance goes on with its own plans by itself."}, a.resumePlan)
}

func (a *api) plan(ctx context.Context, in *planInput) (*planAnswerOutput, error) {
	late := a.catchUp(ctx)
	if in.DryRun {
		p, err := a.Queue.PreviewPlan(ctx, in.Body.filter(), in.Body.Override)
		if err != nil {
			return nil, err
		}
		out := &PlanPreview{Filter: p.Filter, Snapshot: p.Snapshot, Count: p.Count, Parking: p.Parking, Groups: []PlanGroup{},
			Sample: append([]chain.Digest{}, p.Sample...), Oldest: p.Oldest, Newest: p.Newest, Targets: append([]string{}, p.Targets...)}
		for _, g := range p.Groups {
			out.Groups = append(out.Groups, PlanGroup(g))
		}
		return &planAnswerOutput{http.StatusOK, PlanAnswer{Preview: out}}, nil
	}
	if late != nil {
		return nil, late
	}
	p, err := a.Queue.CreatePlan(ctx, deadletter.PlanOrder{Order: deadletter.Order{Actor: actor(ctx), Reason: in.Body.Reason, Override: in.Body.Override},
		Filter: in.Body.filter(), Snapshot: in.Body.Snapshot, Expected: in.Body.Expected,
		RateMilli: uint64(math.Round(in.Body.Rate * 1000)), Ramp: !in.Body.NoRamp})
	if err != nil {
		return nil, err
	}
	out := planOf(p)
	return &planAnswerOutput{http.StatusCreated, PlanAnswer{Plan: &out}}, nil
}

func (a *api) plans(ctx context.Context, in *plansInput) (*plansOutput, error) {
	_ = a.catchUp(ctx)
	if in.Before == 0 {
		in.Before = math.MaxInt64
	}
	plans, next, err := a.State.Plans(in.Before, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &plansOutput{Plans{Plans: []Plan{}, Next: next}}
	for _, p := range plans {
		out.Body.Plans = append(out.Body.Plans, planOf(p))
	}
	return out, nil
}

func (a *api) showPlan(ctx context.Context, in *showPlanInput) (*planOutput, error) {
	_ = a.catchUp(ctx)
	p, err := a.State.Plan(in.ID)
	if errors.Is(err, projection.ErrNotFound) {
		err = deadletter.ErrNoPlan
	}
	if err != nil || !in.Count || p.State != chain.PlanRunning {
		return moved(p, err)
	}
	p, members, later, err := a.State.PlanProgress(ctx, in.ID)
	if err != nil || p.State != chain.PlanRunning {
		return moved(p, err)
	}
	out := planOf(p)
	members = min(members, out.Remaining)
	out.Skipped, out.Remaining, out.Later = out.Remaining-members, members, &later
	return &planOutput{out}, nil
}

func (a *api) cancelPlan(ctx context.Context, in *cancelInput) (*planOutput, error) {
	if err := a.catchUp(ctx); err != nil {
		return nil, err
	}
	p, err := a.Queue.CancelPlan(ctx, in.ID, deadletter.Order{Actor: actor(ctx), Reason: in.Reason})
	return moved(p, err)
}

func (a *api) resumePlan(ctx context.Context, in *resumeInput) (*planOutput, error) {
	p, err := a.Queue.ResumePlan(ctx, in.ID, deadletter.Order{Actor: actor(ctx), Reason: in.Body.Reason})
	return moved(p, err)
}

func moved(p chain.Plan, err error) (*planOutput, error) {
	if err != nil {
		return nil, err
	}
	return &planOutput{planOf(p)}, nil
}
