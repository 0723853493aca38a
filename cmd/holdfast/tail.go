package main

import (
	"context"
	"fmt"
	"iter"
	"os"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

type tailCmd struct {
	From   int64 `default:"-10" help:"First sequence number, 0 for the whole log; a negative one counts from the end." placeholder:"SEQ"`
	Follow bool  `short:"f" help:"Go on with events to come."`
	Raw    bool  `help:"Print the stored lines, byte for byte: an exported log, as verify.py and verify --log read it."`
	clientFlags
}

// Run prints events.
func (c *tailCmd) Run(ctx context.Context) error {
	client := c.client()
	if c.From < 0 {
		stats, err := client.Stats(ctx, false)
		if err != nil {
			return c.told(err)
		}
		c.From = max(int64(stats.Events)+c.From, 0)
	}
	for line, err := range c.lines(ctx, client) {
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return c.told(err)
		}
		if err := c.print(line); err != nil {
			return err
		}
	}
	return nil
}

// lines are the events asked for. What is exported is read from the log itself, what is looked at from the
// service's copy, which finds the end at once.
func (c *tailCmd) lines(ctx context.Context, client *web.Client) iter.Seq2[[]byte, error] {
	switch {
	case c.Follow:
		return client.Follow(ctx, c.From-1)
	case c.Raw || c.json():
		return client.Entries(ctx, c.From-1)
	}
	return func(yield func([]byte, error) bool) {
		const page = 10_000
		for after, more := c.From-1, true; more; {
			last := after
			for line, err := range client.Events(ctx, after, page, 0) {
				if last++; !yield(line, err) || err != nil {
					return
				}
			}
			more, after = last-after == page, last
		}
	}
}

func (c *tailCmd) print(line []byte) error {
	if c.Raw || c.json() {
		_, err := fmt.Fprintf(os.Stdout, "%s\n", line)
		return err
	}
	r, err := chain.Parse(line)
	if err != nil {
		return err
	}
	_, err = fmt.Println(printable(fmt.Sprintf("%8d  %s  %-12s  %-12s  %s", r.Seq, stamp(r.Event.At), r.Event.Type,
		short(r.Event.PayloadRef), what(&r.Event))))
	return err
}
