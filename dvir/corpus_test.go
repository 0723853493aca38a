package dvir_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/dvir"
)

const corpus = "../testdata/corpus"

type entry struct {
	Name        string
	ContentType string            `json:"content_type"`
	Channel     string            `json:"channel"`
	Headers     map[string]string `json:"http_headers"`
	Stage       string
	Expected    dvir.Outcome
	Code        string `json:"error_code"`
	Replay      dvir.Replay
	Pointer     *string `json:"schema_pointer"`
}

type manifest struct {
	Clock time.Time `json:"reference_clock"`
	Files []entry
}

func readManifest(t testing.TB) manifest {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(corpus, "manifest.json"))
	require.NoError(t, err)
	var m manifest
	require.NoError(t, json.Unmarshal(data, &m))
	require.NotEmpty(t, m.Files)
	return m
}

func (m manifest) input(t testing.TB, e entry) dvir.Input {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(corpus, e.Name))
	require.NoError(t, err)
	return dvir.Input{
		Data:            data,
		ContentType:     e.ContentType,
		ContentEncoding: e.Headers["Content-Encoding"],
		Channel:         e.Channel,
		ReceivedAt:      m.Clock,
	}
}

// unread are the entries of formats that nothing reads yet.
var unread = []string{"e50", "e52", "e57", "e58", "e59"}

// golden tells whether the manifest binds today's formats.
func (e entry) golden() bool { return !slices.Contains(unread, e.Name[:3]) }

func newProcessor(t testing.TB, c dvir.Config) *dvir.Processor {
	t.Helper()
	p, err := dvir.New(c)
	require.NoError(t, err)
	return p
}

var fleet = dvir.Config{Units: []dvir.Unit{
	{UnitNumber: "417", VIN: "1TSTTRK83RX000101"},
	{UnitNumber: "512", VIN: "1TSTTRK89RX000202"},
}}

func TestCorpus(t *testing.T) {
	m := readManifest(t)
	plain, rostered := newProcessor(t, dvir.Config{}), newProcessor(t, fleet)
	first := m.input(t, m.Files[0])
	judged := 0
	for _, e := range m.Files {
		t.Run(e.Name, func(t *testing.T) {
			p, in := plain, m.input(t, e)
			var memory dvir.Memory
			switch e.Name[:3] {
			case "f08":
				p = rostered
			case "b01", "b02", "b03", "b04", "b06", "b07", "f33":
				r := memory.Settle(first, p.Process(first, &memory))
				require.Equal(t, dvir.Admit, r.Outcome)
			}
			r := memory.Settle(in, p.Process(in, &memory))
			checkShape(t, r)
			if !e.golden() {
				assert.Equal(t, dvir.Exception, r.Outcome)
				return
			}
			judged++
			assert.Equal(t, e.Expected, r.Outcome)
			assert.Equal(t, e.Stage, r.Stage)
			assert.Equal(t, e.Code, r.Code)
			e.assertMapped(t, r)
			if e.Pointer != nil {
				assertNear(t, *e.Pointer, r)
			}
		})
	}
	assert.Equal(t, 91, judged)
}

// assertMapped holds that a report of a vendor became the one that the corpus gives, if it gives one.
func (e entry) assertMapped(t *testing.T, r dvir.Result) {
	want, err := os.ReadFile(filepath.Join(corpus, "expected", e.Name))
	if err != nil || r.Record == nil {
		return
	}
	var record struct{ Report json.RawMessage }
	require.NoError(t, json.Unmarshal(r.Record.JSON, &record))
	assert.JSONEq(t, string(want), string(record.Report))
}

// assertNear holds that a finding with the result's code lies at the pointer. The manifest
// gives the parent where several members are at fault.
func assertNear(t *testing.T, pointer string, r dvir.Result) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Code == r.Code && (f.Pointer == pointer || strings.HasPrefix(f.Pointer, pointer+"/")) {
			return
		}
	}
	assert.Fail(t, "no finding at the pointer", "%s in %v", pointer, r.Findings)
}

// checkShape holds what is true of every result.
func checkShape(t testing.TB, r dvir.Result) {
	t.Helper()
	listed, words := map[string]bool{}, map[string]bool{}
	for _, c := range dvir.Codes() {
		listed[c.Code] = true
	}
	for w := range dvir.Vocabulary() {
		words[w] = true
	}
	stage, _, _ := strings.Cut(r.Code, ".")
	assert.Equal(t, stage, r.Stage)
	assert.True(t, r.Code == "" || listed[r.Code], "unlisted code")
	admitted := r.Outcome == dvir.Admit || r.Outcome == dvir.AdmitWithWarning
	assert.Equal(t, admitted, r.Record != nil)
	assert.Equal(t, r.Outcome == dvir.Admit, len(r.Findings) == 0)
	for _, f := range r.Findings {
		assert.True(t, listed[f.Code], "unlisted code")
		if f.Pointer == "" {
			continue
		}
		require.Equal(t, byte('/'), f.Pointer[0])
		for token := range strings.SplitSeq(f.Pointer[1:], "/") {
			_, err := strconv.ParseUint(token, 10, 32)
			assert.True(t, err == nil || words[token], "pointer with a foreign name")
		}
	}
}

// TestNoContentInFindings looks for every longer text of every payload, and every number,
// in all that a result shows.
func TestNoContentInFindings(t *testing.T) {
	m := readManifest(t)
	p := newProcessor(t, fleet)
	words := map[string]bool{}
	for w := range dvir.Vocabulary() {
		words[w] = true
	}
	for _, e := range m.Files {
		in := m.input(t, e)
		r := p.Process(in, nil)
		var shown strings.Builder
		shown.WriteString(r.Stage + " " + r.Code)
		for _, f := range r.Findings {
			shown.WriteString(" " + f.Code + " " + f.Pointer)
		}
		_, err := dvir.ParseConfig(in.Data)
		require.Error(t, err)
		shown.WriteString(" " + err.Error())
		for token := range strings.FieldsFuncSeq(string(in.Data), func(r rune) bool { return strings.ContainsRune("\"{}[],:<>=;\\ \r\n\t", r) }) {
			if len(token) >= 6 && !words[token] {
				assert.NotContains(t, shown.String(), token, e.Name)
			}
		}
	}
}
