package main

import "context"

type groupsCmd struct {
	Disposition []string `short:"d" help:"Only these dispositions; those of open letters if absent." placeholder:"NAME"`
	Stage       string   `help:"Only failed in this stage." placeholder:"STAGE"`
	Channel     string   `help:"Only from this channel." placeholder:"CHANNEL"`
	clientFlags
}

// Run prints letters by cause, the largest group first.
func (c *groupsCmd) Run(ctx context.Context) error {
	f := filterFlags{Disposition: c.Disposition, Stage: c.Stage, Channel: c.Channel}
	groups, err := c.client().Groups(ctx, f.query().Filter)
	if err != nil {
		return c.told(err)
	}
	if len(groups) == 0 {
		none("no letters")
	}
	t := newTable("COUNT", "DISPOSITION", "CODE", "OLDEST", "NEWEST", "SAMPLE")
	for _, g := range groups {
		if c.json() {
			if err := printJSON(g); err != nil {
				return err
			}
			continue
		}
		t.row(number(g.Count), string(g.Disposition), g.ErrorCode, stamp(g.Oldest), stamp(g.Newest), short(g.Sample))
	}
	return t.flush()
}
