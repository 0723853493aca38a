package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/jetstream"
	"github.com/holdfast-dvir/holdfast/projection"
)

type verifyCmd struct {
	Log        string `help:"Verify an exported log (one event a line, - for standard input) instead of the data folder." placeholder:"FILE"`
	Head       string `help:"File with a stored head that the log must contain; if absent, the one in the data folder." placeholder:"FILE" type:"path"`
	Fast       bool   `help:"Links, sequence and Merkle root only."`
	NoPayloads bool   `help:"Do not read the stored payloads."`
	s3Flags
	clientFlags
}

// Validate refuses half a bucket.
func (c *verifyCmd) Validate() error { return c.s3Flags.validate() }

// Run verifies, prints the report and ends with the exit code of its verdict. The log is read from the data folder,
// or, if a service has it open, from the service; the payloads are read from the folder or the bucket in both cases.
func (c *verifyCmd) Run(ctx context.Context) (err error) {
	o := audit.Options{Fast: c.Fast, TempDir: os.TempDir()}
	if c.NoPayloads {
		o.Payloads = audit.NoPayloads
	}
	if isTerminal(os.Stderr) {
		o.Progress = func(events uint64) { fmt.Fprintf(os.Stderr, "\r%d events", events) }
	}
	if err := c.anchor(&o); err != nil {
		return err
	}
	if c.Log != "" {
		return c.verifyFile(ctx, o)
	}
	closeAll, err := c.open(ctx, &o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	return c.verify(ctx, o)
}

// anchor takes the stored head, if there is one. A head of the data folder says nothing about an exported log that
// may be of another service.
func (c *verifyCmd) anchor(o *audit.Options) error {
	path := c.Head
	if path == "" && c.Log != "" {
		return nil
	}
	if path == "" {
		path = c.Data.anchor()
	}
	a, err := audit.ReadAnchor(path)
	if errors.Is(err, fs.ErrNotExist) && c.Head == "" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stored head: %w", err)
	}
	o.Head, o.LogID = &a.Head, a.LogID
	return nil
}

func (c *verifyCmd) verifyFile(ctx context.Context, o audit.Options) error {
	in := io.ReadCloser(os.Stdin)
	if c.Log != "-" {
		var err error
		if in, err = os.Open(c.Log); err != nil {
			return err
		}
		defer in.Close()
	}
	o.Log = lineLog{in}
	return c.verify(ctx, o)
}

// open opens what there is to verify.
func (c *verifyCmd) open(ctx context.Context, o *audit.Options) (closeAll func() error, err error) {
	log, err := jetstream.Open(ctx, jetstream.Config{Dir: c.Data.logDir(), ReadOnly: true})
	closeLog := func() error { return nil }
	switch {
	case errors.Is(err, jetstream.ErrLocked):
		o.Log = serverLog{c}
	case errors.Is(err, jetstream.ErrMissing) && o.Head != nil: // the stored head knows of events
		o.Log = lineLog{strings.NewReader("")}
	case err != nil:
		return nil, err
	default:
		o.Log, closeLog = log, c.openState(o, log)
	}
	clean, err := c.openPayloads(ctx, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("payloads: %w", err), closeLog())
	}
	return func() error { return errors.Join(closeLog(), clean()) }, nil
}

// openPayloads opens the payloads for reading, unless they are not to be read. A folder that is gone is an empty one:
// every payload is missing then.
func (c *verifyCmd) openPayloads(ctx context.Context, o *audit.Options) (clean func() error, err error) {
	clean = func() error { return nil }
	var backend blob.Backend
	switch {
	case c.NoPayloads:
		return clean, nil
	case c.s3Flags.set():
		backend, err = c.openToRead(ctx)
	default:
		backend, clean, err = openFolder(c.Data.blobs())
	}
	if err != nil {
		return nil, err
	}
	o.Store, err = blob.NewStore(backend, blob.Config{})
	return clean, err
}

func openFolder(root string) (backend blob.Backend, clean func() error, err error) {
	clean = func() error { return nil }
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		if root, err = os.MkdirTemp("", "holdfast-no-payloads-*"); err != nil {
			return nil, nil, err
		}
		clean = func() error { return os.Remove(root) }
	}
	dir, err := blob.OpenDir(root, blob.DirConfig{ReadOnly: true})
	if err != nil {
		return nil, nil, errors.Join(err, clean())
	}
	return dir, clean, nil
}

// openState adds the projection, if it can be read; it is no evidence, and its loss no finding.
func (c *verifyCmd) openState(o *audit.Options, log *jetstream.Log) (closeAll func() error) {
	state, err := projection.OpenReadOnly(c.Data.state())
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfast: the projection is not compared: it cannot be read")
		return log.Close
	}
	o.State = state
	return func() error { return errors.Join(state.Close(), log.Close()) }
}

func (c *verifyCmd) verify(ctx context.Context, o audit.Options) error {
	report, err := audit.Verify(ctx, o)
	if o.Progress != nil {
		fmt.Fprintln(os.Stderr)
	}
	if err != nil {
		return err
	}
	if err := c.print(report); err != nil {
		return err
	}
	switch {
	case report.OK():
		return nil
	case slices.ContainsFunc(report.Findings, func(f audit.Finding) bool { return f.Kind == audit.BlobElsewhere }):
		return &exitError{int(report.Verdict), "the payloads are in a bucket: name it with --s3-endpoint and --s3-bucket, as for holdfast serve"}
	}
	return &exitError{int(report.Verdict), ""}
}

func (c *verifyCmd) print(r audit.Report) error {
	if c.json() {
		return printJSON(struct {
			OK       bool            `json:"ok"`
			FirstBad *uint64         `json:"first_bad,omitempty"`
			Head     head            `json:"head"`
			Findings []audit.Finding `json:"findings"`
			audit.Report
		}{r.OK(), firstBad(r), head(r.Head), append([]audit.Finding{}, r.Findings...), r})
	}
	fmt.Printf("%s: %d events, %d payloads and records, head %s, root %s\n", r.Verdict, r.Events, r.Blobs, r.Head.Leaf, r.Root)
	if seq := firstBad(r); seq != nil {
		fmt.Printf("first bad event: %d\n", *seq)
	}
	for _, f := range r.Findings {
		line := f.String()
		if !f.Ref.IsZero() {
			line += ", " + f.Ref.String()
		}
		fmt.Println(printable(line))
	}
	if more := r.Total - uint64(len(r.Findings)); more > 0 {
		fmt.Printf("and %d more findings\n", more)
	}
	for _, n := range r.Notes {
		fmt.Println("note:", n)
	}
	return nil
}

// head is the end of a log, in JSON.
type head struct {
	Size uint64       `json:"size"`
	Leaf chain.Digest `json:"leaf_hash"`
}

func firstBad(r audit.Report) *uint64 {
	if seq, ok := r.FirstBad(); ok {
		return &seq
	}
	return nil
}

// serverLog reads the log of a running service.
type serverLog struct{ *verifyCmd }

// Read yields every line as a block of its own: what is verified are lines.
func (s serverLog) Read(ctx context.Context, after chain.Position) iter.Seq2[chain.Block, error] {
	return func(yield func(chain.Block, error) bool) {
		for line, err := range s.client().Entries(ctx, int64(after)-1) {
			after++
			if !yield(chain.Block{Position: after, Lines: [][]byte{append([]byte(nil), line...)}}, s.told(err)) || err != nil {
				return
			}
		}
	}
}

// Follow is not needed to verify.
func (s serverLog) Follow(ctx context.Context, after chain.Position) iter.Seq2[chain.Block, error] {
	return s.Read(ctx, after)
}
