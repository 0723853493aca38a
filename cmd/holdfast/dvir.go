package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/dvir"
)

type dvirCmd struct {
	Check dvirCheckCmd `cmd:"" group:"Commands:" help:"Judge files as the service would, in their order, without a service."`
}

type dvirCheckCmd struct {
	Files       []string  `arg:"" name:"file" help:"Files to judge, - for standard input."`
	ContentType string    `help:"Content type of the files; if absent, by their names." placeholder:"TYPE"`
	Encoding    string    `name:"content-encoding" help:"Content encoding of the files, such as gzip." placeholder:"CODING"`
	Channel     string    `enum:"ocr_document,mobile_export,telematics_api,manual_entry,other" default:"mobile_export" help:"Road they came by." placeholder:"CHANNEL"`
	At          time.Time `help:"Time of receipt to judge by (RFC 3339); if absent, now." placeholder:"TIME"`
	DvirConfig  string    `help:"Roster and defect aliases (JSON)." placeholder:"FILE" type:"path"`
	outputFlag
}

// verdict is the judgement of one file. Stage and code are null where there is nothing to name.
type verdict struct {
	File      string    `json:"file"`
	Outcome   string    `json:"outcome"`
	Stage     *string   `json:"stage"`
	ErrorCode *string   `json:"error_code"`
	Findings  []finding `json:"findings"`
}

type finding struct {
	Code    string `json:"code"`
	Pointer string `json:"pointer"`
}

// Run judges the files one after another: a file sees what was admitted before it.
func (c *dvirCheckCmd) Run() (err error) {
	cfg, err := loadRules(c.DvirConfig)
	if err != nil {
		return err
	}
	rules, err := dvir.New(cfg)
	if err != nil {
		return err
	}
	if c.At.IsZero() {
		c.At = time.Now()
	}
	var seen dvir.Memory
	t := newTable("FILE", "OUTCOME", "CODE", "FINDINGS")
	defer func() { err = errors.Join(err, t.flush()) }()
	var refused error
	for _, file := range c.Files {
		data, err := readFile(file)
		if err != nil {
			refused = ofFile(file, err)
			fmt.Fprintln(os.Stderr, "holdfast:", printable(errorText(refused)))
			continue
		}
		in := dvir.Input{Data: data, ContentType: contentType(file, c.ContentType), ContentEncoding: c.Encoding,
			Channel: c.Channel, ReceivedAt: c.At}
		v := judged(file, seen.Settle(in, rules.Process(in, &seen)))
		if c.json() {
			if err := printJSON(v); err != nil {
				return err
			}
			continue
		}
		t.row(file, v.Outcome, deref(v.ErrorCode), v.places())
	}
	return said(refused)
}

func judged(file string, r dvir.Result) verdict {
	v := verdict{File: file, Outcome: string(r.Outcome), Stage: orNull(r.Stage), ErrorCode: orNull(r.Code), Findings: []finding{}}
	for _, f := range r.Findings {
		v.Findings = append(v.Findings, finding{f.Code, f.Pointer})
	}
	return v
}

// places lists on one line the findings that say more than the code.
func (v verdict) places() string {
	var out []string
	for _, f := range v.Findings {
		if f.Pointer == "" && f.Code == deref(v.ErrorCode) {
			continue
		}
		out = append(out, strings.TrimSuffix(f.Code+" "+f.Pointer, " "))
	}
	return strings.Join(out, ", ")
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// readFile reads a file, or standard input for "-".
func readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(os.Stdin)
	}
	data, err := os.ReadFile(name)
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err // the caller names the file
	}
	return data, err
}

// contentTypes are the declarations for files by their names; the processor looks at the bytes as well.
var contentTypes = []struct{ suffix, kind string }{
	{".json", "application/json"}, {".xml", "text/xml"}, {".csv", "text/csv"}, {".pdf", "application/pdf"},
	{".zip", "application/zip"}, {".gz", "application/gzip"}, {".html", "text/html"}, {".png", "image/png"},
	{".jpg", "image/jpeg"}, {".jpeg", "image/jpeg"}, {".tif", "image/tiff"}, {".tiff", "image/tiff"}, {".txt", "text/plain"},
}

// contentType is what was declared, or what the name suggests.
func contentType(file, declared string) string {
	if declared != "" {
		return declared
	}
	for _, t := range contentTypes {
		if strings.HasSuffix(strings.ToLower(file), t.suffix) {
			return t.kind
		}
	}
	return "application/octet-stream"
}
