package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

type replayCmd struct {
	Refs     []reference   `arg:"" optional:"" name:"ref" help:"Payload references; 8 digits or more, if no other begins with them. Instead of them, filters say which letters."`
	Reason   string        `help:"What was fixed; recorded." placeholder:"TEXT"`
	Override bool          `help:"Replay beyond the bound, or out of quarantine; needs a reason."`
	Wait     bool          `help:"Wait for the outcome of each, or for the end of the plan."`
	Timeout  time.Duration `default:"30s" help:"How long to wait for an outcome; a plan is waited for until it ends." placeholder:"TIME"`
	filterFlags
	DryRun bool    `help:"With filters: count, and replay nothing."`
	Yes    bool    `help:"With filters: replay whatever was counted, without a question."`
	Expect uint64  `help:"With filters: replay if exactly so many were counted." placeholder:"N"`
	Rate   float64 `default:"10" help:"With filters: letters per second, at most." placeholder:"N"`
	NoRamp bool    `help:"With filters: begin at the full rate instead of 1, 2, 4, ... per second."`
	clientFlags
}

// Validate refuses a rate that no plan has.
func (c *replayCmd) Validate() error {
	if c.Rate < 0.1 || c.Rate > 10_000 {
		return errors.New("--rate: must be 0.1 to 10000")
	}
	return nil
}

// Run replays the letters one after another and stops at the first that cannot be; or those that filters mean, by a
// plan.
func (c *replayCmd) Run(ctx context.Context) (err error) {
	order, filtered := c.order()
	switch {
	case filtered && len(c.Refs) > 0:
		return &exitError{exitUsage, "replay takes references or filters, not both"}
	case filtered:
		return c.plan(ctx, order)
	case c.DryRun && len(c.Refs) > 0:
		return &exitError{exitUsage, "--dry-run goes with filters; nothing was replayed"}
	case len(c.Refs) == 0:
		return &exitError{exitUsage, "replay takes references or filters, such as --error-code; see holdfast replay --help"}
	}
	client := c.client()
	t := receiptTable()
	defer func() { err = errors.Join(err, t.flush()) }()
	for _, ref := range c.Refs {
		r, err := client.Replay(ctx, string(ref), web.Order{Reason: c.Reason, Override: c.Override})
		if err == nil && c.Wait {
			r, err = awaitOutcome(ctx, client, r, c.Timeout)
		}
		if err != nil {
			return c.told(err)
		}
		if err := c.receipt(t, r); err != nil {
			return err
		}
	}
	return nil
}

// order is the order that the flags say, and whether any of them is a filter.
func (c *replayCmd) order() (o web.PlanOrder, filtered bool) {
	q := c.query()
	filtered = len(q.Disposition) > 0 || q.Stage != "" || q.ErrorCode != "" || q.Channel != "" || q.Source != "" ||
		q.Owner != "" || q.Tag != "" || !q.Since.IsZero() || !q.Until.IsZero()
	return web.PlanOrder{Disposition: q.Disposition, Stage: q.Stage, ErrorCode: q.ErrorCode, Channel: q.Channel, Source: q.Source,
		Owner: q.Owner, Tag: q.Tag, Since: q.Since, Until: q.Until, Reason: c.Reason, Override: c.Override, Rate: c.Rate, NoRamp: c.NoRamp}, filtered
}

// plan counts, shows the count, and orders the plan if that is what is wanted.
func (c *replayCmd) plan(ctx context.Context, order web.PlanOrder) error {
	client := c.client()
	seen, err := client.PreviewPlan(ctx, order)
	if err != nil {
		return c.told(err)
	}
	if err := c.show(seen); err != nil || c.DryRun || seen.Count == 0 && c.Expect == 0 {
		return err
	}
	if err := c.agreed(ctx, seen.Count); err != nil {
		return err
	}
	order.Snapshot, order.Expected = seen.Snapshot, seen.Count
	p, err := client.CreatePlan(ctx, order)
	if err != nil {
		return c.told(err)
	}
	if c.Wait {
		return c.follow(ctx, p.ID)
	}
	return c.print(p)
}

// show prints what was counted: as the output of a dry run, otherwise for the person who is asked.
func (c *replayCmd) show(p web.PlanPreview) error {
	if c.json() {
		if c.DryRun || p.Count == 0 {
			return printJSON(p)
		}
		return nil
	}
	out := os.Stderr
	if c.DryRun {
		out = os.Stdout
	}
	t := tableTo(out, "COUNT", "DISPOSITION", "CODE", "CHANNEL")
	for _, g := range p.Groups {
		t.row(number(g.Count), string(g.Disposition), g.ErrorCode, string(g.Channel))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if p.Count == 0 {
		none("no letters")
		return nil
	}
	text := fmt.Sprintf("%d letters, first seen %s to %s, such as %s; to %s; counted at event %d", p.Count, stamp(p.Oldest), stamp(p.Newest),
		short(p.Sample[0]), strings.Join(p.Targets, ", "), p.Snapshot)
	if p.Parking > 0 {
		text += fmt.Sprintf("; %d of them were replayed too often and will be quarantined", p.Parking)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// agreed tells whether the count is what the person wants: by a flag, or by typing it.
func (c *replayCmd) agreed(ctx context.Context, count uint64) error {
	switch {
	case c.Expect != 0 && c.Expect != count:
		return exitf(exitConflict, "%d letters were expected, and there are %d; nothing was replayed", c.Expect, count)
	case c.Expect != 0 || c.Yes:
		return nil
	case !isTerminal(os.Stdin) || !isTerminal(os.Stderr):
		return &exitError{exitUsage, "nothing was replayed: give --expect with the count, or --yes"}
	}
	fmt.Fprintf(os.Stderr, "Type the count to replay them: ")
	typed := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		typed <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return exitf(exitFailed, "interrupted; nothing was replayed")
	case line := <-typed:
		if line != strconv.FormatUint(count, 10) {
			return &exitError{exitConflict, "that is not the count; nothing was replayed"}
		}
	}
	return nil
}

// awaitOutcome looks at a letter until it is no longer waiting to be processed.
func awaitOutcome(ctx context.Context, client *web.Client, r web.Receipt, timeout time.Duration) (web.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !awaited(r.Disposition) {
		l, err := client.Letter(ctx, r.PayloadRef.String())
		if err != nil {
			return r, err
		}
		r.Disposition, r.Outcome, r.ErrorCode = l.Letter.Disposition, l.Letter.Outcome, l.Letter.OutcomeCode
		r.NextAttemptAt = l.Letter.NextAttemptAt
		select {
		case <-ctx.Done():
			return r, exitf(exitUnavailable, "no outcome within %s; the letter waits for its turn", timeout)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return r, nil
}

// print prints a plan.
func (c *clientFlags) print(p web.Plan) error {
	if c.json() {
		return printJSON(p)
	}
	t := planTable()
	planRow(t, p)
	return t.flush()
}

// follow waits for the end of a plan and prints it; progress goes to standard error. It waits a while for a service that
// is being restarted: the plan goes on afterwards. A cancelled plan is a conflict: it did not do what it was to do.
func (c *clientFlags) follow(ctx context.Context, id string) error {
	client := c.client()
	show := newProgress(os.Stderr)
	for seen := time.Now(); ; {
		p, err := client.Plan(ctx, id, false)
		switch {
		case err != nil && (exitCode(c.told(err)) != exitUnavailable || time.Since(seen) > restartTime):
			show.end()
			return c.told(err)
		case err == nil:
			seen = time.Now()
			if show.update(p, seen); p.State != chain.PlanRunning {
				show.end()
				return c.ended(p)
			}
		}
		select {
		case <-ctx.Done():
			show.end()
			return exitf(exitFailed, "interrupted; plan %s goes on: holdfast plans show %s --wait", id, id)
		case <-time.After(show.every):
		}
	}
}

// restartTime is how long a service may be away while a plan is followed.
const restartTime = 30 * time.Second

func (c *clientFlags) ended(p web.Plan) error {
	if err := c.print(p); err != nil || p.State == chain.PlanDone {
		return err
	}
	return exitf(exitConflict, "plan %s was cancelled", p.ID)
}
