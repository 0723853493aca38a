package main

import (
	"context"

	"github.com/holdfast-dvir/holdfast/web"
)

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
