package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/web"
)

type plansCmd struct {
	List   plansListCmd   `cmd:"" default:"withargs" help:"List plans, the latest first."`
	Show   plansShowCmd   `cmd:"" help:"Show one plan and how far it is."`
	Cancel plansCancelCmd `cmd:"" help:"Cancel a running plan; what it has replayed stays replayed."`
	Resume plansResumeCmd `cmd:"" help:"Have this service carry out a plan of an instance that is gone."`
}

type plansListCmd struct {
	Limit  uint   `default:"50" help:"At most this many, up to 500." placeholder:"N"`
	Before uint64 `help:"Go on where an earlier list ended." placeholder:"SEQ"`
	clientFlags
}

// Run prints plans: JSON as one object a line, tables with what is left.
func (c *plansListCmd) Run(ctx context.Context) error {
	page, err := c.client().Plans(ctx, c.Before, int(min(max(c.Limit, 1), 500)))
	if err != nil {
		return c.told(err)
	}
	if len(page.Plans) == 0 {
		none("no plans")
	}
	t := planTable()
	for _, p := range page.Plans {
		if c.json() {
			if err := printJSON(p); err != nil {
				return err
			}
			continue
		}
		planRow(t, p)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if page.Next != 0 {
		fmt.Fprintf(os.Stderr, "holdfast: there are more: --before %d\n", page.Next)
	}
	return nil
}

func planTable() *table {
	return newTable("PLAN", "STATE", "EXPECTED", "REPLAYED", "PARKED", "SKIPPED", "CANCELLED", "REMAINING", "RATE", "CREATED", "ACTOR", "FILTER")
}

func planRow(t *table, p web.Plan) {
	t.row(p.ID, string(p.State), number(p.Expected), number(p.Replayed), number(p.Parked), number(p.Skipped), number(p.Cancelled),
		number(p.Remaining), strconv.FormatFloat(p.Rate, 'f', -1, 64)+"/s", stamp(p.CreatedAt), p.Actor, p.Filter)
}

type plansShowCmd struct {
	ID   string `arg:"" name:"plan" help:"Name of the plan, such as p1234."`
	Wait bool   `help:"Wait for its end, and show progress."`
	clientFlags
}

// Run prints the plan.
func (c *plansShowCmd) Run(ctx context.Context) error {
	if c.Wait {
		return c.follow(ctx, c.ID)
	}
	p, err := c.client().Plan(ctx, c.ID, true)
	if err != nil {
		return c.told(err)
	}
	if err := c.print(p); err != nil {
		return err
	}
	if p.Later != nil && *p.Later > 0 && !c.json() {
		fmt.Fprintf(os.Stderr, "holdfast: %d letters came later and are not part of it\n", *p.Later)
	}
	return nil
}

type plansCancelCmd struct {
	ID     string `arg:"" name:"plan" help:"Name of the plan, such as p1234."`
	Reason string `required:"" help:"Why; recorded." placeholder:"TEXT"`
	clientFlags
}

// Run cancels the plan and prints what came of it.
func (c *plansCancelCmd) Run(ctx context.Context) error {
	p, err := c.client().CancelPlan(ctx, c.ID, c.Reason)
	if err != nil {
		return c.told(err)
	}
	return c.print(p)
}

type plansResumeCmd struct {
	ID     string `arg:"" name:"plan" help:"Name of the plan, such as p1234."`
	Reason string `required:"" help:"Why; recorded." placeholder:"TEXT"`
	Wait   bool   `help:"Wait for its end, and show progress."`
	clientFlags
}

// Run takes the plan over.
func (c *plansResumeCmd) Run(ctx context.Context) error {
	p, err := c.client().ResumePlan(ctx, c.ID, c.Reason)
	switch {
	case err != nil:
		return c.told(err)
	case c.Wait:
		return c.follow(ctx, c.ID)
	}
	return c.print(p)
}

// progress tells how far a plan is: a bar on a terminal, elsewhere a line every five seconds.
type progress struct {
	out    *os.File
	bar    bool
	every  time.Duration // between two looks at the plan
	told   time.Time
	before time.Time // of the pace
	done   uint64
}

func newProgress(out *os.File) *progress {
	if isTerminal(out) {
		return &progress{out: out, bar: true, every: 500 * time.Millisecond}
	}
	return &progress{out: out, every: time.Second}
}

const (
	tellEvery = 5 * time.Second
	barWidth  = 30
)

// update shows p as it is now.
func (s *progress) update(p web.Plan, now time.Time) {
	if s.before.IsZero() {
		s.told, s.before, s.done = now, now, p.Expected-p.Remaining
	}
	if !s.bar && now.Sub(s.told) < tellEvery {
		return
	}
	s.told = now
	done := p.Expected - p.Remaining
	share := float64(done) / float64(max(p.Expected, 1))
	text := fmt.Sprintf("%d of %d (%.0f %%)", done, p.Expected, 100*share)
	if took := now.Sub(s.before).Seconds(); took > 1 && done > s.done {
		speed := float64(done-s.done) / took
		left := time.Duration(float64(p.Remaining) / speed * float64(time.Second)).Round(time.Second)
		text += fmt.Sprintf(", %.1f/s, %s left", speed, left)
	}
	if !s.bar {
		s.say("holdfast: plan " + p.ID + ": " + text + "\n")
		return
	}
	full := int(share * barWidth)
	s.say("\r\x1b[K[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "] " + text)
}

// end leaves the terminal on a line of its own.
func (s *progress) end() {
	if s.bar && !s.before.IsZero() {
		s.say("\n")
	}
}

func (s *progress) say(text string) {
	_, _ = s.out.WriteString(text) // if nobody reads it, nobody misses it
}
