package main

import (
	"context"
	"errors"
	"io"
	"os"
)

type payloadCmd struct {
	Ref    reference `arg:"" help:"Payload reference; 8 digits or more, if no other begins with them."`
	Reason string    `default:"read on the command line" help:"Why it is read; recorded." placeholder:"TEXT"`
	Out    string    `help:"Write to this file, which must not exist, instead of standard output." placeholder:"FILE" type:"path"`
	clientFlags
}

// Run writes the exact bytes. The file is made first: a reading is not to be recorded that cannot happen.
func (c *payloadCmd) Run(ctx context.Context) (err error) {
	out := os.Stdout
	if c.Out != "" {
		if out, err = os.OpenFile(c.Out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return err
		}
		defer func() {
			if err = errors.Join(err, out.Close()); err != nil {
				err = errors.Join(err, os.Remove(c.Out))
			}
		}()
	}
	body, err := c.client().Payload(ctx, string(string(c.Ref)), c.Reason)
	if err != nil {
		return c.told(err)
	}
	defer body.Close()
	if _, err := io.Copy(out, body); err != nil {
		return &exitError{exitFailed, "the bytes broke off: what was written is not whole"}
	}
	return nil
}
