package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
)

type blobCmd struct {
	Copy blobCopyCmd `cmd:"" help:"Copy every payload from the data folder into the bucket, or back into a folder, and verify it there."`
}

type blobCopyCmd struct {
	Data         folder `default:"./holdfast-data" help:"Data folder whose payloads are copied into the bucket." placeholder:"DIR"`
	ToDirectory  string `help:"Copy from the bucket into this folder instead; the payloads of a data folder DIR are in DIR/blobs." placeholder:"DIR" type:"path"`
	MinRetention int    `default:"3" help:"Months for payloads whose retention date is missing or past, at least 3 (49 CFR 396.11(a)(4))." placeholder:"MONTHS"`
	NoImmutable  bool   `help:"Do not set the immutable flag on files of that folder, so that it can be removed."`
	s3Flags
	outputFlag
}

// Validate refuses a copy without a bucket, and dates that the law does not allow.
func (c *blobCopyCmd) Validate() error {
	switch {
	case c.MinRetention < minMonths || c.MinRetention > maxMonths:
		return fmt.Errorf("--min-retention: must be %d to %d months", minMonths, maxMonths)
	case c.NoImmutable && c.ToDirectory == "":
		return errors.New("--no-immutable: goes with --to-directory")
	case !c.set() && c.Bucket == "":
		return errors.New("--s3-endpoint and --s3-bucket: say which bucket")
	}
	return c.validate()
}

// Run copies, prints the report, and ends with exit code 2 if payloads are damaged, 1 if some could not be copied, 8 if
// a store went away. The same command continues a copy that broke off.
func (c *blobCopyCmd) Run(ctx context.Context) error {
	to, from, err := c.stores(ctx)
	if err != nil {
		return err
	}
	o := blob.CopyOptions{Retention: blob.Retention{Min: c.MinRetention}}
	if isTerminal(os.Stderr) {
		o.Progress = func(versions uint64, sent int64) {
			fmt.Fprintf(os.Stderr, "\r%d payloads, %d bytes sent", versions, sent)
		}
	}
	report, err := blob.Copy(ctx, to, from, o)
	if o.Progress != nil {
		fmt.Fprintln(os.Stderr)
	}
	if printed := c.print(report, err == nil); printed != nil {
		return errors.Join(err, printed)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return exitf(exitFailed, "interrupted; the same command continues the copy")
	case err != nil:
		return err
	case report.Damaged > 0:
		return exitf(exitTampered, "payloads whose bytes are not those of their names: %d; they were not copied", report.Damaged)
	case report.Failed > 0:
		return exitf(exitFailed, "payloads that could not be copied, or not protected: %d", report.Failed)
	}
	return nil
}

// stores opens both ends, the source for reading only.
func (c *blobCopyCmd) stores(ctx context.Context) (to, from blob.Backend, err error) {
	if c.ToDirectory != "" {
		if from, err = c.openToRead(ctx); err == nil {
			to, err = blob.OpenDir(c.ToDirectory, blob.DirConfig{NoImmutable: c.NoImmutable})
		}
		return to, from, err
	}
	if from, err = blob.OpenDir(c.Data.blobs(), blob.DirConfig{ReadOnly: true}); err == nil {
		to, err = c.open(ctx)
	}
	return to, from, err
}

// copyFinding is a finding in JSON.
type copyFinding struct {
	Ref     chain.Digest `json:"ref"`
	Version string       `json:"version,omitempty"`
	Problem blob.Problem `json:"problem"`
	Detail  string       `json:"detail"`
}

func (c *blobCopyCmd) print(r blob.CopyReport, complete bool) error {
	if c.json() {
		findings := []copyFinding{}
		for _, f := range r.Findings {
			findings = append(findings, copyFinding{f.Ref.Digest, f.Ref.Version, f.Problem, f.Detail})
		}
		return printJSON(struct {
			OK       bool          `json:"ok"`
			Complete bool          `json:"complete"`
			Copied   uint64        `json:"copied"`
			Present  uint64        `json:"present"`
			Damaged  uint64        `json:"damaged"`
			Failed   uint64        `json:"failed"`
			Bytes    int64         `json:"bytes_sent"`
			Findings []copyFinding `json:"findings"`
		}{complete && r.Damaged+r.Failed == 0, complete, r.Copied, r.Present, r.Damaged, r.Failed, r.Bytes, findings})
	}
	t := newTable("REF", "PROBLEM", "DETAIL")
	for _, f := range r.Findings {
		t.row(short(f.Ref.Digest), string(f.Problem), f.Detail)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if more := r.Damaged + r.Failed - uint64(len(r.Findings)); more > 0 {
		fmt.Printf("and %d more findings\n", more)
	}
	fmt.Printf("%d copied, %d already there, %d damaged, %d failed; %d bytes sent\n", r.Copied, r.Present, r.Damaged, r.Failed, r.Bytes)
	return nil
}
