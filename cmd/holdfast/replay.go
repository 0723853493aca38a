package main

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dvir/holdfast/web"
)

type replayCmd struct {
	Refs     []reference   `arg:"" name:"ref" help:"Payload references; 8 digits or more, if no other begins with them."`
	Reason   string        `help:"What was fixed; recorded." placeholder:"TEXT"`
	Override bool          `help:"Replay beyond the bound, or out of quarantine; needs a reason."`
	Wait     bool          `help:"Wait for the outcome of each."`
	Timeout  time.Duration `default:"30s" help:"How long to wait for an outcome." placeholder:"TIME"`
	clientFlags
}

// Run replays the letters one after another and stops at the first that cannot be.
func (c *replayCmd) Run(ctx context.Context) (err error) {
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
