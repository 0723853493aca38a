package main

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

type failCmd struct {
	File        string    `arg:"" optional:"" help:"File with the payload, - for standard input; or use --ref."`
	Ref         string    `help:"Payload in custody already, by its full reference." placeholder:"REF"`
	Stage       string    `required:"" enum:"ingest,validate,parse,normalize,dispatch" help:"Where it failed." placeholder:"STAGE"`
	ErrorType   string    `help:"Error as its system names it: ECONNRESET, timeout, grpc:UNAVAILABLE, sqlstate:40001, crash:SIGSEGV." placeholder:"TYPE"`
	ErrorCode   string    `help:"Code of the closed vocabulary, such as validate.vin_length." placeholder:"CODE"`
	HTTPStatus  int       `name:"http-status" help:"Answer of the server that refused it." placeholder:"STATUS"`
	RetryAfter  string    `help:"Retry-After header of that answer." placeholder:"VALUE"`
	Message     string    `help:"Error text; kept apart, a masked summary goes into the event." placeholder:"TEXT"`
	Attempt     uint64    `help:"Attempts made elsewhere." placeholder:"N"`
	FirstSeen   time.Time `help:"When the payload was first seen elsewhere (RFC 3339)." placeholder:"TIME"`
	Channel     string    `enum:"ocr_document,mobile_export,telematics_api,manual_entry,other" default:"other" help:"Road it came by." placeholder:"CHANNEL"`
	Source      string    `help:"Opaque id of the sender." placeholder:"ID"`
	ContentType string    `help:"Content type of the payload; if absent, by its name." placeholder:"TYPE"`
	clientFlags
}

// Run hands the failure over.
func (c *failCmd) Run(ctx context.Context) error {
	if (c.File == "") == (c.Ref == "") {
		return &exitError{exitUsage, "fail takes a file, or --ref for a payload in custody"}
	}
	f := web.Failure{PayloadRef: c.Ref, Stage: chain.Stage(c.Stage), ErrorType: c.ErrorType, ErrorCode: c.ErrorCode,
		HTTPStatus: c.HTTPStatus, RetryAfter: c.RetryAfter, Message: c.Message, Attempt: c.Attempt, FirstSeen: c.FirstSeen,
		Channel: chain.Channel(c.Channel), Source: c.Source}
	var body io.Reader
	if c.File != "" {
		data, err := readFile(c.File)
		if err != nil {
			return err
		}
		body, f.ContentType = bytes.NewReader(data), contentType(c.File, c.ContentType)
	}
	r, err := c.client().Fail(ctx, f, body)
	return c.printReceipt(r, err)
}
