package main

import (
	"context"
)

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
