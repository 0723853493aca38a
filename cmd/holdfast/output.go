package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// outputFlag is the choice every verb has.
type outputFlag struct {
	Output string `enum:"table,json" default:"table" short:"o" help:"Output: table or json."`
}

func (o outputFlag) json() bool { return o.Output == "json" }

// printJSON writes v as one line.
func printJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table prints rows under a head, columns aligned.
type table struct{ w *tabwriter.Writer }

func newTable(head ...string) table { return tableTo(os.Stdout, head...) }

func tableTo(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)}
	t.row(head...)
	return t
}

func (t table) row(cells ...string) { fmt.Fprintln(t.w, printable(strings.Join(cells, "\t"))) }

func (t table) flush() error { return t.w.Flush() }

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
