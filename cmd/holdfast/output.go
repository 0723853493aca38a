package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// outputFlag is the choice every verb has.
type outputFlag struct {
	Output string `enum:"table,json" default:"table" short:"o" help:"How to print." placeholder:"FORMAT"`
}

func (o outputFlag) json() bool { return o.Output == "json" }

// printJSON writes v as one line.
func printJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table prints rows under a head, columns aligned, when it is flushed; without a row it prints nothing.
type table struct {
	out  io.Writer
	head []string
	rows bytes.Buffer
	w    *tabwriter.Writer
}

func newTable(head ...string) *table { return tableTo(os.Stdout, head...) }

func tableTo(w io.Writer, head ...string) *table {
	t := &table{out: w, head: head}
	t.w = tabwriter.NewWriter(&t.rows, 2, 8, 2, ' ', 0)
	return t
}

func (t *table) row(cells ...string) {
	if t.head != nil {
		_, _ = fmt.Fprintln(t.w, strings.Join(t.head, "\t")) // into memory
		t.head = nil
	}
	_, _ = fmt.Fprintln(t.w, strings.Join(one(cells), "\t"))
}

// one keeps each cell on its line and in its column.
func one(cells []string) []string {
	out := make([]string, 0, len(cells))
	for _, c := range cells {
		out = append(out, strings.NewReplacer("\n", "�", "\t", "�").Replace(printable(c)))
	}
	return out
}

func (t *table) flush() error {
	if err := t.w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(t.rows.String()) {
		if _, err := fmt.Fprintln(t.out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	t.rows.Reset()
	return nil
}

// none tells people that a list is empty; programs see that there is no line.
func none(what string) { fmt.Fprintln(os.Stderr, "holdfast:", what) }

// stamp spells a time in UTC to the second; the zero time is empty.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// short is a reference as tables show it; verbs accept it as long as it is unique.
func short(ref chain.Digest) string {
	if ref.IsZero() {
		return ""
	}
	return ref.String()[:12]
}

// isTerminal tells whether f is a terminal: progress is shown only there.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
