package main

import (
	"context"
	"errors"
	"strconv"
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

type resolveCmd struct {
	Ref    reference `arg:"" help:"Payload reference; 8 digits or more, if no other begins with them."`
	Reason string    `required:"" help:"Why it is closed; recorded." placeholder:"TEXT"`
	clientFlags
}

// Run closes the letter.
func (c *resolveCmd) Run(ctx context.Context) error {
	r, err := c.client().Resolve(ctx, string(string(c.Ref)), c.Reason)
	return c.printReceipt(r, err)
}

type annotateCmd struct {
	Ref   reference `arg:"" help:"Payload reference; 8 digits or more, if no other begins with them."`
	Owner string    `help:"Who looks after it: an identifier." placeholder:"ID"`
	Tag   string    `help:"A tag to add." placeholder:"TAG"`
	Untag string    `help:"A tag to take off." placeholder:"TAG"`
	Note  string    `help:"Words about it; what could be personal data is masked." placeholder:"TEXT"`
	clientFlags
}

// Run adds the annotation.
func (c *annotateCmd) Run(ctx context.Context) error {
	if c.Tag != "" && c.Untag != "" {
		return &exitError{exitUsage, "annotate takes --tag or --untag, not both"}
	}
	n := web.Annotation{Owner: c.Owner, Tag: c.Tag, Note: c.Note}
	if c.Untag != "" {
		n.Tag, n.Untag = c.Untag, true
	}
	r, err := c.client().Annotate(ctx, string(string(c.Ref)), n)
	return c.printReceipt(r, err)
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
