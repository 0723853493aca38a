package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/testdata/corpus"
	"github.com/holdfast-dvir/holdfast/web"
)

type demoCmd struct {
	Keep   bool   `help:"Leave the service running at the end, with everything in it."`
	Data   folder `help:"Folder to use; if absent, a temporary one, removed at the end." placeholder:"DIR"`
	Listen string `default:"127.0.0.1:0" help:"Address of the HTTP API." placeholder:"ADDR"`
	s3Flags
	outputFlag
}

// Validate refuses half a bucket.
func (c *demoCmd) Validate() error { return c.s3Flags.validate() }

// demo is a running demonstration: a service, a client, and where it talks to.
type demo struct {
	cmd    *demoCmd
	out    io.Writer // the story, for people
	cfg    settings
	svc    *service
	client *web.Client
	stop   func() error // ends the service
	files  int
}

// sample is a corpus file with what is known of its delivery.
type sample struct {
	Name        string            `json:"name"`
	Channel     string            `json:"channel"`
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"http_headers"`
}

// Run tells the story from the first payload to the verified log.
func (c *demoCmd) Run(ctx context.Context) (err error) {
	d := &demo{cmd: c, out: os.Stdout}
	if c.json() {
		d.out = io.Discard
	}
	clean, err := d.folder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clean()) }()
	if err := d.start(ctx, "before"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	for _, chapter := range []func(context.Context) error{d.ingest, d.fail, d.repair, d.decide, d.settle} {
		if err := chapter(ctx); err != nil {
			return (&clientFlags{Server: address(d.svc.url())}).told(err)
		}
	}
	if err := d.verify(ctx); err != nil {
		return err
	}
	if c.Keep {
		d.keep(ctx)
	}
	return nil
}

// folder makes the folder of the demonstration and the two site configurations, before and after the repair.
func (d *demo) folder() (clean func() error, err error) {
	clean = func() error { return nil }
	if d.cmd.Data == "" {
		dir, err := os.MkdirTemp("", "holdfast-demo-*")
		if err != nil {
			return clean, err
		}
		d.cmd.Data = folder(dir)
		clean = func() error { return os.RemoveAll(dir) }
	}
	if err := os.MkdirAll(string(d.cmd.Data), 0o700); err != nil {
		return clean, err
	}
	roster := `{"units":[{"unit_number":"512","vin":"1TSTTRK89RX000202"}]`
	before := os.WriteFile(d.cmd.Data.part("before.json"), []byte(roster+`}`), 0o600)
	after := os.WriteFile(d.cmd.Data.part("after.json"), []byte(roster+`,"defect_aliases":{"BRAKE_SYS":"SERVICE_BRAKES"}}`), 0o600)
	return clean, errors.Join(before, after)
}

// start runs the service with one of the site configurations.
func (d *demo) start(ctx context.Context, site string) (err error) {
	d.cfg = settings{Data: d.cmd.Data, Listen: d.cmd.Listen, Origin: "holdfast.local/demo", Workers: 4,
		MaxPayload: 64 << 20, Retention: 18, NoImmutable: true, s3Flags: d.cmd.s3Flags, DvirConfig: d.cmd.Data.part(site + ".json")}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if d.svc, err = openService(ctx, d.cfg, log); err != nil {
		return err
	}
	token, err := os.ReadFile(d.cfg.Data.adminToken())
	if err != nil {
		return errors.Join(err, d.svc.close())
	}
	d.client = &web.Client{URL: d.svc.url(), Token: strings.TrimSpace(string(token))}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- d.svc.run(running) }()
	d.stop = func() error {
		cancel()
		return errors.Join(<-ended, d.svc.close())
	}
	return nil
}

// say tells a line of the story; whoever closed the output does not hear it.
func (d *demo) say(format string, args ...any) { _, _ = fmt.Fprintf(d.out, format+"\n", args...) }

// ingest hands over every file that ships with the project.
func (d *demo) ingest(ctx context.Context) error {
	raw, err := corpus.Files.ReadFile("manifest.json")
	if err != nil {
		return err
	}
	var manifest struct{ Files []sample }
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return err
	}
	d.say("1. Handing over %d sample files: reports from apps, scanners and telematics systems, many of them broken.\n", len(manifest.Files))
	t := tableTo(d.out, "FILE", "REF", "DISPOSITION", "OUTCOME", "CODE")
	for _, f := range manifest.Files {
		data, err := corpus.Files.ReadFile(f.Name)
		if err != nil {
			return err
		}
		done, err := ingest(ctx, d.client, f.Name, data, web.SubmitOptions{Channel: chain.Channel(f.Channel), Source: "demo",
			ContentType: f.ContentType, ContentEncoding: f.Headers["Content-Encoding"], Wait: 20 * time.Second})
		if err != nil {
			return err
		}
		d.files++
		t.row(strings.TrimSuffix(f.Name, path.Ext(f.Name)), short(done.PayloadRef), string(done.Disposition), deref(done.Outcome), deref(done.ErrorCode))
	}
	return t.flush()
}

// fail hands over failures of other systems, as their workers would.
func (d *demo) fail(ctx context.Context) error {
	d.say("\n2. Other systems hand over payloads that failed there. The table of error classes decides what becomes of them.\n")
	t := tableTo(d.out, "ERROR", "REF", "DISPOSITION", "CODE", "NEXT ATTEMPT")
	for _, f := range []web.Failure{
		{Stage: chain.StageDispatch, HTTPStatus: 503, RetryAfter: "1", Message: "maintenance system answered 503"},
		{Stage: chain.StageDispatch, ErrorType: "ECONNRESET", Message: "connection reset while sending"},
		{Stage: chain.StageDispatch, HTTPStatus: 422, Message: "work order refused for Test Driver Alpha, phone 555-0142"},
		{Stage: chain.StageParse, ErrorType: "crash:SIGSEGV", Message: "OCR worker died on this scan"},
		{Stage: chain.StageNormalize, ErrorType: "com.example.MapperException", Message: "no idea what this is"},
	} {
		what := cmp.Or(f.ErrorType, fmt.Sprintf("HTTP %d", f.HTTPStatus))
		f.Channel, f.Source, f.ContentType = chain.TelematicsAPI, "demo-worker", "application/json"
		r, err := d.client.Fail(ctx, f, bytes.NewReader(demoReport(what, "HORN")))
		if err != nil {
			return err
		}
		d.files++
		t.row(what, short(r.PayloadRef), string(r.Disposition), r.ErrorCode, stamp(r.NextAttemptAt))
	}
	return t.flush()
}

// repair shows a cause that is fixed: the payload is judged again, from the same bytes.
func (d *demo) repair(ctx context.Context) error {
	done, err := ingest(ctx, d.client, "alias", demoReport("alias", "BRAKE_SYS"), web.SubmitOptions{
		Channel: chain.MobileExport, ContentType: "application/json", Wait: 20 * time.Second})
	if err != nil {
		return err
	}
	d.files++
	d.say("\n3. A vendor calls a part BRAKE_SYS, which nobody here knows: %s is %s, %s.", short(done.PayloadRef), done.Disposition, deref(done.ErrorCode))
	d.say("   The site configuration learns the alias; the service restarts with it, on the same folder.")
	if err := d.stop(); err != nil {
		return err
	}
	if err := d.start(ctx, "after"); err != nil {
		return err
	}
	r, err := d.client.Replay(ctx, done.PayloadRef.String(), web.Order{Reason: "alias added"})
	if err == nil {
		r, err = awaitOutcome(ctx, d.client, r, 20*time.Second)
	}
	if err != nil {
		return err
	}
	d.say("   Replayed from the same bytes: %s is %s, %s.", short(r.PayloadRef), r.Disposition, r.Outcome)
	return nil
}

// decide closes the oldest dead letter by hand.
func (d *demo) decide(ctx context.Context) error {
	page, err := d.client.Letters(ctx, web.Query{Filter: web.Filter{Disposition: []chain.Disposition{chain.DeadLetter}}, Limit: 1})
	if err != nil || len(page.Letters) == 0 {
		return err
	}
	l := page.Letters[0]
	r, err := d.client.Resolve(ctx, l.Ref.String(), "the driver sent the report again")
	if err != nil {
		return err
	}
	d.say("\n4. A reviewer closes %s (%s) by hand, with a reason: %s.", short(r.PayloadRef), l.OutcomeCode, r.Disposition)
	return nil
}

// settle waits for the retries that are due within seconds.
func (d *demo) settle(ctx context.Context) error {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		s, err := d.client.Stats(ctx, false)
		if err != nil {
			return err
		}
		if s.Letters[chain.Retrying]+s.Letters[chain.Received]+s.Letters[chain.Replayed] == 0 {
			return nil
		}
	}
	return nil
}

// verify checks the log and every stored byte, and prints what the story came to.
func (d *demo) verify(ctx context.Context) error {
	report, err := audit.Verify(ctx, audit.Options{Log: d.svc.events, Store: d.svc.store, State: d.svc.state})
	if err != nil {
		return err
	}
	stats, err := d.client.Stats(ctx, false)
	if err != nil {
		return err
	}
	d.say("\n5. Verification says %s: %d events, each linked to the one before, %d payloads and records, each hashing to its name.",
		report.Verdict, report.Events, report.Blobs)
	d.say("\n%d files handed over: %d resolved, %d dead letters waiting for a human, %d in quarantine, %d waiting for a retry.\n"+
		"Files with the same bytes are one letter.", d.files, stats.Letters[chain.Resolved], stats.Letters[chain.DeadLetter],
		stats.Letters[chain.Poison], stats.Letters[chain.Retrying])
	if d.cmd.json() {
		if err := printJSON(d.result(report, stats)); err != nil {
			return err
		}
	} else if !d.cmd.Keep {
		d.say("\nNext: run it with --keep and look around with list, groups, show REF, payload REF and tail.")
	}
	if !report.OK() {
		return &exitError{int(report.Verdict), "the demonstration does not verify"}
	}
	return nil
}

// result is the demonstration in numbers. Files counts what was handed over; several may be one letter.
func (d *demo) result(r audit.Report, s web.Stats) any {
	type verified struct {
		OK       bool            `json:"ok"`
		Findings []audit.Finding `json:"findings"`
	}
	return struct {
		Files      int      `json:"files"`
		Resolved   uint64   `json:"resolved"`
		DeadLetter uint64   `json:"dead_letter"`
		Poison     uint64   `json:"poison"`
		Retrying   uint64   `json:"retrying"`
		Events     uint64   `json:"events"`
		Verify     verified `json:"verify"`
	}{d.files, s.Letters[chain.Resolved], s.Letters[chain.DeadLetter], s.Letters[chain.Poison], s.Letters[chain.Retrying],
		r.Events, verified{r.OK(), append([]audit.Finding{}, r.Findings...)}}
}

// keep leaves the service running until interrupted.
func (d *demo) keep(ctx context.Context) {
	d.say("\nThe service keeps running at %s until you press Ctrl-C. In another terminal:\n", d.svc.url())
	for _, verb := range []string{"groups", "list -d dead_letter", "tail -f"} {
		d.say("  go run ./cmd/holdfast %s --server %s --data %s", verb, d.svc.url(), d.cmd.Data)
	}
	<-ctx.Done()
}

// demoReport is a canonical report of its own with one defect.
func demoReport(name, code string) []byte {
	id := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name)
	return fmt.Appendf(nil, `{"schema_version":"1.0","dvir_id":"demo-%[1]s",
 "source":{"channel":"mobile_export","vendor":"demofleet","record_id":"demo-%[1]s","record_version":"1"},
 "stage":"submitted","inspection":{"type":"post_trip","reported_at":"2026-03-10T18:09:40-05:00"},
 "vehicle":{"unit_number":"demo-%[1]s"},"driver":{"driver_id":"drv-1001","name":"Test Driver Alpha"},
 "defects_found":true,"defects":[{"defect_id":"d1","code":%[2]q,"unit":"vehicle","description":"Found at the walk-around",
  "affects_safe_operation":false,"repair_status":"open"}],"safe_to_operate":true,
 "driver_signature":{"signer_id":"drv-1001","role":"driver","signed_at":"2026-03-10T18:09:41-05:00","method":"pin"}}
`, id, code)
}
