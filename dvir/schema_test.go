package dvir

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAnnotations holds that the schema speaks of codes of the list and of known judges.
func TestAnnotations(t *testing.T) {
	judges := []string{"", "version", "vin", "instant", "score", "distance", "part"}
	named := map[string]bool{}
	for path, rule := range contract().rules {
		_, listed := ranks[rule.code]
		assert.True(t, listed || slices.Contains(judges, rule.code), path)
		named[rule.code] = true
	}
	for _, j := range judges {
		assert.True(t, named[j], j)
	}
}

// published is the contract as the corpus states it.
func published(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile("../testdata/corpus/dvir.schema.json")
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("urn:published", doc))
	return c.MustCompile("urn:published")
}

// places lists the paths of all values below v.
func places(v any, path []string) [][]string {
	var all [][]string
	below := func(name string, e any) {
		p := append(slices.Clone(path), name)
		all = append(append(all, p), places(e, p)...)
	}
	switch v := v.(type) {
	case object:
		for name, e := range v {
			below(name, e)
		}
	case []any:
		for i, e := range v {
			below(strconv.Itoa(i), e)
		}
	}
	return all
}

// replace puts value at path; the name "" of oddities deletes.
func replace(doc any, path []string, value any) {
	parent := lookup(doc, path[:len(path)-1]...)
	last := path[len(path)-1]
	switch parent := parent.(type) {
	case object:
		if value == remove {
			delete(parent, last)
		} else {
			parent[last] = value
		}
	case []any:
		if i, err := strconv.Atoi(last); err == nil && i < len(parent) && value != remove {
			parent[i] = value
		}
	}
}

type removal struct{}

var remove = any(removal{})

// oddities are put in the place of values.
func oddities() []any {
	return []any{
		remove, nil, true, false, json.Number("0"), json.Number("-1"), json.Number("0.5"), json.Number("1e300"), json.Number("9007199254740993"),
		"", " ", "x", "\x00", "Straße", "2026-03-10T18:09:40", "2016-12-31T23:59:60Z", "2025-11-02T01:30:00", "1970-01-01T00:00:00Z",
		"America/Chicago", "11111111111111111", []any{}, object{}, []any{"DOT_OOS_CRITERIA"}, []any{nil, object{"unit": "trailer"}}, object{"Jane Doe": "x"},
	}
}

// TestSameContract holds that our schema accepts and refuses what the published one does,
// for every value of the samples replaced by every oddity, every word by every word, every
// name added to every object, and for random sets of replacements; and that what the
// contract refuses is never admitted.
func TestSameContract(t *testing.T) {
	theirs := published(t)
	p, err := New(Config{})
	require.NoError(t, err)
	files, err := filepath.Glob("../testdata/corpus/a0[39]*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	dice := rand.New(rand.NewPCG(1, 2))
	odd := oddities()
	text, err := os.ReadFile("../testdata/corpus/dvir.schema.json")
	require.NoError(t, err)
	var words []string
	for _, w := range regexp.MustCompile(`"[A-Za-z_]{3,30}"`).FindAll(text, -1) {
		words = append(words, strings.Trim(string(w), `"`))
	}
	slices.Sort(words)
	words = slices.Compact(words)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		fresh := func() any {
			v, f := decode(data)
			require.Nil(t, f)
			return v
		}
		compare := func(doc any, why ...any) {
			valid := theirs.Validate(doc) == nil
			if ours := contract().schema.Validate(doc) == nil; ours != valid {
				assert.Equal(t, valid, ours, "%s %v", file, why)
			}
			r := p.Process(Input{Data: appendJSON(nil, doc), ContentType: "application/json"}, nil)
			if !valid {
				assert.Equal(t, Exception, r.Outcome, "%s %v", file, why)
			}
		}
		all := places(fresh(), nil)
		slices.SortFunc(all, func(a, b []string) int { return slices.Compare(a, b) })
		for _, path := range all {
			try := slices.Clone(odd)
			switch value := lookup(fresh(), path...).(type) {
			case string:
				if contract().words[value] {
					for _, word := range words {
						try = append(try, word)
					}
				}
			case object:
				for _, name := range slices.Sorted(maps.Keys(contract().names)) {
					doc := fresh()
					replace(doc, append(slices.Clone(path), name), "x")
					compare(doc, path, name)
				}
			}
			for _, value := range try {
				doc := fresh()
				replace(doc, path, value)
				compare(doc, path, value)
			}
		}
		for range 500 {
			doc := fresh()
			for range 3 {
				replace(doc, all[dice.IntN(len(all))], odd[dice.IntN(len(odd))])
			}
			compare(doc)
		}
	}
}
