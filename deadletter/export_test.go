package deadletter

import (
	"iter"
	"strings"
)

// Row is a row of the classifier table, for tests.
type Row struct{ Family, Signals, Effect, Symbol string }

// Rows are the rows of the classifier table, in its order.
func Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for _, f := range table {
			for _, r := range f.rows {
				if !yield(Row{f.name, r.signals, string(r.effect), r.symbol}) {
					return
				}
			}
		}
	}
}

// Patterns are the signals of the classifier table, as they stand in it.
func Patterns() (all []string) {
	for r := range Rows() {
		all = append(all, strings.Fields(r.Signals)...)
	}
	return all
}
