package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

// filterFlags are the filters of lists.
type filterFlags struct {
	Disposition []string  `short:"d" help:"Only these: received, retrying, dead_letter, replayed, resolved, poison." placeholder:"NAME"`
	ErrorCode   string    `help:"Only with this code." placeholder:"CODE"`
	Stage       string    `help:"Only failed in this stage." placeholder:"STAGE"`
	Channel     string    `help:"Only from this channel." placeholder:"CHANNEL"`
	Source      string    `help:"Only from this sender." placeholder:"ID"`
	Owner       string    `help:"Only of this owner." placeholder:"ID"`
	Tag         string    `help:"Only with this tag." placeholder:"TAG"`
	Since       time.Time `help:"First seen at or after (RFC 3339)." placeholder:"TIME"`
	Until       time.Time `help:"First seen before (RFC 3339)." placeholder:"TIME"`
}

func (f *filterFlags) query() web.Query {
	q := web.Query{Filter: web.Filter{Stage: chain.Stage(f.Stage), ErrorCode: f.ErrorCode, Channel: chain.Channel(f.Channel)},
		Source: f.Source, Owner: f.Owner, Tag: f.Tag, Since: f.Since, Until: f.Until}
	for _, d := range f.Disposition {
		q.Disposition = append(q.Disposition, chain.Disposition(d))
	}
	return q
}

// maxDays bounds what is asked for in days: no retention is longer.
const maxDays = 36_600

type listCmd struct {
	filterFlags
	ExpiresWithin *uint  `help:"Only open letters that lose their protection within so many days; those under legal hold do not." placeholder:"DAYS"`
	Newest        bool   `help:"Newest first; otherwise oldest first."`
	Limit         uint   `default:"50" help:"At most this many; 0 means all." placeholder:"N"`
	Cursor        string `help:"Go on where an earlier list ended." placeholder:"CURSOR"`
	clientFlags
}

// Run prints letters page by page: JSON as one object a line, tables with the cursor of what is left.
func (c *listCmd) Run(ctx context.Context) error {
	q := c.query()
	q.Cursor = c.Cursor
	if c.ExpiresWithin != nil {
		q.Ends = time.Now().AddDate(0, 0, int(min(*c.ExpiresWithin, maxDays)))
	}
	if c.Newest {
		q.Order = "newest"
	}
	t := newTable("REF", "DISPOSITION", "CODE", "ATTEMPT", "REPLAYS", "CHANNEL", "FIRST SEEN", "OWNER")
	for shown := uint(0); ; {
		q.Limit = 500
		if c.Limit > 0 {
			q.Limit = int(min(c.Limit-shown, 500))
		}
		page, err := c.client().Letters(ctx, q)
		if err != nil {
			return c.told(err)
		}
		for _, l := range page.Letters {
			if err := c.print(t, l); err != nil {
				return err
			}
		}
		shown += uint(len(page.Letters))
		q.Cursor = page.Next
		if q.Cursor == "" || c.Limit > 0 && shown >= c.Limit {
			if shown == 0 {
				none("no letters")
			}
			return end(t, q.Cursor)
		}
	}
}

func (c *listCmd) print(t *table, l web.Letter) error {
	if c.json() {
		return printJSON(l)
	}
	t.row(short(l.Ref), string(l.Disposition), l.OutcomeCode, number(l.Attempt), number(l.Replays), string(l.Channel),
		stamp(l.FirstSeen), l.Owner)
	return nil
}

// end says how to go on, after the table.
func end(t *table, next string) error {
	if err := t.flush(); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintf(os.Stderr, "holdfast: there are more: --cursor %s\n", next)
	}
	return nil
}
