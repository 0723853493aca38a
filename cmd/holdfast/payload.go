package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

type payloadCmd struct {
	Ref    string `arg:"" help:"Payload reference; 8 digits or more that no other begins with."`
	Reason string `default:"read on the command line" help:"Why it is read; recorded." placeholder:"TEXT"`
	Out    string `help:"Write to this file, which must not exist, instead of standard output." placeholder:"FILE" type:"path"`
	clientFlags
}

// Run writes the exact bytes.
func (c *payloadCmd) Run(ctx context.Context) error {
	body, err := c.client().Payload(ctx, c.Ref, c.Reason)
	if err != nil {
		return told(err)
	}
	defer body.Close()
	out := os.Stdout
	if c.Out != "" {
		if out, err = os.OpenFile(c.Out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return err
		}
		defer out.Close()
	}
	if _, err := io.Copy(out, body); err != nil {
		return fmt.Errorf("the bytes broke off: %w", told(err))
	}
	return nil
}
