package main

import (
	"context"
	"fmt"
	"iter"
	"os"

	"github.com/holdfast-dvir/holdfast/chain"
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
	var lines iter.Seq2[[]byte, error]
	if c.Follow {
		lines = client.Follow(ctx, c.From-1)
	} else {
		lines = client.Entries(ctx, c.From-1)
	}
	for line, err := range lines {
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
