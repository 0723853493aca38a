package chain

import "time"

// PlanTerms are what a replay plan is bound to. Its members are the letters that Filter meant when the log had
// Snapshot events and whose disposition has not changed since; Expected is how many these were.
type PlanTerms struct {
	Filter    string   // canonical text, a URL query
	Snapshot  uint64   // size of the log at which the members were counted
	Expected  uint64   // members at Snapshot
	RateMilli uint64   // letters per 1000 seconds, at most
	Ramp      bool     // begins with 1, 2, 4, ... letters per second
	Targets   []string // processors that the members go to
}

func (p *PlanTerms) members(c *codec) {
	text(c, "filter", &p.Filter)
	c.count("snapshot", &p.Snapshot, false)
	c.count("expected", &p.Expected, false)
	c.count("rate_milli", &p.RateMilli, false)
	c.flag("ramp", &p.Ramp)
	c.texts("targets", &p.Targets)
}

// Bounds of plans.
const (
	MaxFilter   = 2000 // bytes of a filter's text
	MaxTargets  = 64
	MinPlanRate = 100        // RateMilli: one letter in ten seconds
	MaxPlanRate = 10_000_000 // ten thousand letters a second
)

func (p *PlanTerms) validate() error {
	switch {
	case p.Filter == "" || len(p.Filter) > MaxFilter:
		return &FieldError{"terms.filter", "must have 1 to 2000 bytes"}
	case p.Snapshot == 0 || p.Expected == 0:
		return &FieldError{"terms.expected", "snapshot and expected must be at least 1"}
	case p.RateMilli < MinPlanRate || p.RateMilli > MaxPlanRate:
		return &FieldError{"terms.rate_milli", "must be 100 to 10000000"}
	case len(p.Targets) == 0 || len(p.Targets) > MaxTargets:
		return &FieldError{"terms.targets", "must be 1 to 64"}
	}
	for i := range len(p.Filter) {
		if b := p.Filter[i]; b <= ' ' || b > '~' {
			return &FieldError{"terms.filter", "must be a URL query"}
		}
	}
	for _, t := range p.Targets {
		if !ValidToken(t) {
			return &FieldError{"terms.targets", tokenRule}
		}
	}
	return nil
}

// PlanCounts is what became of the members of a plan. When it has ended, they add up to what was expected.
type PlanCounts struct {
	Replayed  uint64 // put back to work
	Parked    uint64 // quarantined instead: replayed too often
	Skipped   uint64 // changed meanwhile by somebody else, or being processed
	Cancelled uint64 // still to be replayed when the plan was cancelled
}

// Sum is how many members are accounted for.
func (p PlanCounts) Sum() uint64 { return p.Replayed + p.Parked + p.Skipped + p.Cancelled }

func (p *PlanCounts) members(c *codec) {
	c.count("replayed", &p.Replayed, true)
	c.count("parked", &p.Parked, true)
	c.count("skipped", &p.Skipped, true)
	c.count("cancelled", &p.Cancelled, true)
}

// planning is the part of Event.members that the events of plans have.
func (e *Event) planning(c *codec) {
	text(c, "worker", &e.Worker)
	if c.begin("terms", e.Terms != nil) {
		if c.reading {
			e.Terms = new(PlanTerms)
		}
		e.Terms.members(c)
		c.end(false)
	}
	if c.begin("counts", e.Counts != nil) {
		if c.reading {
			e.Counts = new(PlanCounts)
		}
		e.Counts.members(c)
		c.end(false)
	}
}

func (e *Event) validatePlan() error {
	switch {
	case e.Terms != nil && (e.Type != TypeReplayPlan || e.Plan == "" || e.Worker == ""):
		return &FieldError{"terms", "stand in replay_plan events with a plan and a worker, and only there"}
	case e.Counts != nil && e.Type == TypeReplayPlan:
		return &FieldError{"counts", "stand where a plan ends, and only there"}
	case e.Type == TypeReplayDone && (e.Plan == "" || e.Counts == nil):
		return &FieldError{"counts", "plan and counts must stand in replay_done"}
	case e.Terms != nil:
		return e.Terms.validate()
	}
	return nil
}

// PlanState is how far a plan is.
type PlanState string

// States of plans. The last two are for good.
const (
	PlanRunning   PlanState = "running"
	PlanDone      PlanState = "done"
	PlanCancelled PlanState = "cancelled"
)

// Plan is a bulk replay: the fold of its events, and of the events of letters that name it. The zero Plan is one that
// does not exist.
type Plan struct {
	ID        string
	State     PlanState
	Actor     string // who ordered it
	Reason    string
	Override  bool
	Terms     PlanTerms
	Worker    string // the instance that carries it out
	Seq       uint64 // of the event that ordered it
	LastSeq   uint64
	CreatedAt time.Time
	Counts    PlanCounts
	EndedAt   time.Time
	EndedBy   string
	EndReason string
}

func (p *Plan) members(c *codec) {
	text(c, "id", &p.ID)
	text(c, "state", &p.State)
	text(c, "actor", &p.Actor)
	text(c, "reason", &p.Reason)
	c.flag("override", &p.Override)
	if c.begin("terms", true) {
		p.Terms.members(c)
		c.end(false)
	}
	text(c, "worker", &p.Worker)
	c.count("seq", &p.Seq, false)
	c.count("last_seq", &p.LastSeq, false)
	c.instant("created_at", &p.CreatedAt)
	if c.begin("counts", true) {
		p.Counts.members(c)
		c.end(false)
	}
	c.instant("ended_at", &p.EndedAt)
	text(c, "ended_by", &p.EndedBy)
	text(c, "end_reason", &p.EndReason)
}

// AppendText writes p as one line for a store; equal plans have equal lines.
func (p Plan) AppendText(out []byte) ([]byte, error) {
	c := codec{out: append(out, '{')}
	p.members(&c)
	return append(c.out, '}'), c.err
}

// ParsePlan reads what AppendText wrote. Errors are *GrammarError or *FieldError.
func ParsePlan(raw []byte) (p Plan, err error) {
	room := rooms.Get().(*[64]node)
	defer rooms.Put(room)
	nodes, err := scan(raw, room[:0])
	if err != nil {
		return Plan{}, err
	}
	var c codec
	c.read(raw, nodes, 0)
	p.members(&c)
	if c.err != nil {
		return Plan{}, c.err
	}
	return p, nil
}

// Exists tells whether any event ordered this plan.
func (p Plan) Exists() bool { return p.State != "" }

// Remaining is how many members may still be to be replayed: those that are not accounted for.
func (p Plan) Remaining() uint64 {
	return p.Terms.Expected - min(p.Terms.Expected, p.Counts.Sum())
}

// Apply is the plan after r. What r says of another plan, or of one that does not exist or has ended, changes nothing:
// plans are a reading of the log, and what they may do is decided letter by letter.
func (p Plan) Apply(r Record) Plan {
	e := &r.Event
	switch {
	case e.Plan == "" || p.Exists() && (e.Plan != p.ID || r.Seq <= p.LastSeq):
		return p
	case !p.Exists():
		if e.Type != TypeReplayPlan || e.Terms == nil {
			return p
		}
		return Plan{ID: e.Plan, State: PlanRunning, Actor: e.Actor, Reason: e.Reason, Override: e.Override, Terms: *e.Terms,
			Worker: e.Worker, Seq: r.Seq, LastSeq: r.Seq, CreatedAt: e.At}
	case p.State != PlanRunning:
		return p
	}
	switch e.Type {
	case TypeReplayed:
		p.Counts.Replayed++
	case TypePoison:
		p.Counts.Parked++
	case TypeReplayPlan:
		if e.Terms != nil || e.Worker == "" {
			return p
		}
		p.Worker = e.Worker
	case TypeReplayDone, TypeReplayCancel:
		if e.Counts == nil {
			return p
		}
		p.end(r)
	default:
		return p
	}
	p.LastSeq = r.Seq
	return p
}

func (p *Plan) end(r Record) {
	p.State, p.Counts = PlanDone, *r.Event.Counts
	if r.Event.Type == TypeReplayCancel {
		p.State = PlanCancelled
	}
	p.EndedAt, p.EndedBy, p.EndReason = r.Event.At, r.Event.Actor, r.Event.Reason
}
