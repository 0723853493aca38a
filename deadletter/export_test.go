package deadletter

import "strings"

// Patterns are the signals of the classifier table, as they stand in it.
func Patterns() (all []string) {
	for _, r := range table {
		all = append(all, strings.Fields(r.patterns)...)
	}
	return all
}
