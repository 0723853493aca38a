package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

type ingestCmd struct {
	Files       []string      `arg:"" name:"file" help:"Files to hand over, - for standard input."`
	Channel     string        `enum:"ocr_document,mobile_export,telematics_api,manual_entry,other" default:"other" help:"Road they came by." placeholder:"CHANNEL"`
	Source      string        `help:"Opaque id of the sender." placeholder:"ID"`
	ContentType string        `help:"Content type of the files; if absent, by their names." placeholder:"TYPE"`
	Encoding    string        `name:"content-encoding" help:"Content encoding of the files, such as gzip." placeholder:"CODING"`
	Wait        bool          `help:"Wait for the outcome of each file before the next."`
	Timeout     time.Duration `default:"30s" help:"How long to wait for an outcome, at most a minute." placeholder:"TIME"`
	clientFlags
}

// ingested is what became of one file. Outcome is exception for every failure; for bytes that have a record already
// it is duplicate. Outcome and code are null where there is nothing to name.
type ingested struct {
	File        string            `json:"file"`
	PayloadRef  chain.Digest      `json:"payload_ref"`
	Disposition chain.Disposition `json:"disposition"`
	Outcome     *string           `json:"outcome"`
	ErrorCode   *string           `json:"error_code"`
}

// Run hands the files over one after another. A file that is refused does not keep the next ones back; one that
// finds no service does.
func (c *ingestCmd) Run(ctx context.Context) (err error) {
	client := c.client()
	t := newTable("FILE", "REF", "DISPOSITION", "OUTCOME", "CODE")
	defer func() { err = errors.Join(err, t.flush()) }()
	var refused error
	for _, file := range c.Files {
		done, err := c.ingest(ctx, client, file)
		if err != nil {
			refused = ofFile(file, err)
			fmt.Fprintln(os.Stderr, "holdfast:", printable(errorText(refused)))
			if exitCode(refused) == exitUnavailable || exitCode(refused) == exitDenied {
				break
			}
			continue
		}
		if c.json() {
			if err := printJSON(done); err != nil {
				return err
			}
			continue
		}
		t.row(file, short(done.PayloadRef), string(done.Disposition), deref(done.Outcome), deref(done.ErrorCode))
	}
	return said(refused)
}

func (c *ingestCmd) ingest(ctx context.Context, client *web.Client, file string) (ingested, error) {
	data, err := readFile(file)
	if err != nil {
		return ingested{}, err
	}
	o := web.SubmitOptions{Channel: chain.Channel(c.Channel), Source: c.Source, ContentEncoding: c.Encoding,
		ContentType: contentType(file, c.ContentType)}
	if c.Wait {
		o.Wait = c.Timeout
	}
	done, err := ingest(ctx, client, file, data, o)
	return done, c.told(err)
}

func hasRecord(o chain.Outcome) bool {
	return o == chain.Admit || o == chain.AdmitWithWarning || o == chain.Duplicate
}

func ingest(ctx context.Context, client *web.Client, file string, data []byte, o web.SubmitOptions) (ingested, error) {
	r, err := client.Submit(ctx, bytes.NewReader(data), o)
	if err != nil {
		return ingested{}, err
	}
	outcome, code := string(r.Outcome), r.ErrorCode
	if r.Known && r.Disposition == chain.Resolved && hasRecord(r.Outcome) {
		outcome, code = string(chain.Duplicate), "ingest.exact_bytes"
	}
	return ingested{file, r.PayloadRef, r.Disposition, orNull(outcome), orNull(code)}, nil
}
