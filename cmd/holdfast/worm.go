package main

import (
	"context"
	"errors"

	"github.com/holdfast-dvir/holdfast/blob"
)

type wormCmd struct {
	Check wormCheckCmd `cmd:"" help:"Try to destroy locked objects in the bucket with an administrator's credentials; all attempts must be refused."`
}

type wormCheckCmd struct {
	AdminCredentials string `required:"" help:"Credentials file of an administrator of the bucket, in the format of ~/.aws/credentials." placeholder:"FILE" type:"path"`
	s3Flags
	outputFlag
}

// Run makes the attempts and ends with exit code 2 if one was not refused. What is stored is not touched: the attempts
// are made on objects of their own.
func (c *wormCheckCmd) Run(ctx context.Context) error {
	if err := c.validate(); err != nil {
		return exitf(exitUsage, "%v", err)
	}
	if !c.set() {
		return exitf(exitUsage, "--s3-endpoint and --s3-bucket: say which bucket")
	}
	config := c.config()
	config.CredentialsFile = c.AdminCredentials
	attempts, err := blob.ProveWORM(ctx, config)
	if errors.Is(err, blob.ErrNoProof) {
		return &exitError{exitUncheckable, err.Error()}
	}
	if err != nil {
		return err
	}
	return c.print(attempts)
}

func (c *wormCheckCmd) print(attempts []blob.Attempt) error {
	worked := 0
	t := newTable("ATTEMPT", "RESULT", "ANSWER")
	for _, a := range attempts {
		result := "refused"
		if !a.Refused {
			worked++
			result = "DONE"
		}
		t.row(a.Name, result, a.Answer)
	}
	shown := t.flush
	if c.json() {
		shown = func() error {
			return printJSON(struct {
				OK       bool           `json:"ok"`
				Attempts []blob.Attempt `json:"attempts"`
			}{worked == 0, attempts})
		}
	}
	if err := shown(); err != nil {
		return err
	}
	if worked > 0 {
		return exitf(exitTampered, "%d of %d attempts were not refused: this bucket does not keep its promise", worked, len(attempts))
	}
	return nil
}
