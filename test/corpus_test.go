package test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/dvir"
)

// sample is one input of the corpus and what has to become of it.
type sample struct {
	Name        string            `json:"name"`
	SHA256      string            `json:"sha256"`
	Channel     string            `json:"channel"`
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"http_headers"`
	Expected    string            `json:"expected"`
	Stage       *string           `json:"stage"`
	Code        *string           `json:"error_code"`
	Pointer     *string           `json:"schema_pointer"`
}

func readSamples(t testing.TB) (clock string, files []sample) {
	t.Helper()
	data, err := os.ReadFile(samplePath("manifest.json"))
	require.NoError(t, err)
	var m struct {
		Clock string   `json:"reference_clock"`
		Files []sample `json:"files"`
	}
	require.NoError(t, json.Unmarshal(data, &m))
	require.Len(t, m.Files, 96)
	return m.Clock, m.Files
}

func samplePath(name string) string { return filepath.Join("..", "testdata", "corpus", name) }

// id is the number of a sample, such as a01.
func (s sample) id() string { return s.Name[:3] }

// unread are the samples of formats that the built-in processor does not read yet: they have to wait for a human.
var unread = []string{"e50", "e52", "e57", "e58", "e59"}

// binding tells whether the manifest's verdict binds the built-in processor.
func (s sample) binding() bool { return !slices.Contains(unread, s.id()) }

// after is what has to be known before the sample, for its verdict.
func (s sample) after() string {
	if s.Name[0] == 'b' || s.id() == "f33" {
		return "a01_canonical_no_defect.json"
	}
	return ""
}

// declared are the flags that say how the sample came.
func (s sample) declared() []string {
	flags := []string{"--channel", s.Channel, "--content-type", s.ContentType, "--output", "json"}
	if coding := s.Headers["Content-Encoding"]; coding != "" {
		flags = append(flags, "--content-encoding", coding)
	}
	return flags
}

// checkWaits holds what has to become of a sample that the processor cannot read: a human gets it, with a code of
// the closed list, or it is judged as the manifest says.
func (s sample) checkWaits(t *testing.T, outcome, code string) {
	t.Helper()
	if outcome == s.Expected && code == deref(s.Code) {
		return
	}
	assert.Equal(t, "exception", outcome)
	assert.Contains(t, codeList, code)
}

var codeList = func() (all []string) {
	for _, c := range dvir.Codes() {
		all = append(all, c.Code)
	}
	return all
}()

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// roster says that the VIN of f08 belongs to another unit than the report claims.
func roster(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "roster.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"units":[{"unit_number":"512","vin":"1TSTTRK89RX000202"}]}`), 0o600))
	return path
}

// jsonLines decodes output of one JSON value a line.
func jsonLines[T any](t testing.TB, out string) (all []T) {
	t.Helper()
	for line := range strings.Lines(out) {
		var v T
		require.NoError(t, json.Unmarshal([]byte(line), &v), line)
		all = append(all, v)
	}
	return all
}

// TestCorpusChecked judges every sample offline, as the manifest says: alone, at its clock.
func TestCorpusChecked(t *testing.T) {
	clock, files := readSamples(t)
	for _, s := range files {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"dvir", "check", "--at", clock}, s.declared()...)
			if s.id() == "f08" {
				args = append(args, "--dvir-config", roster(t))
			}
			if s.after() != "" {
				args = append(args, samplePath(s.after()))
			}
			code, out, errs := holdfast(t, append(args, samplePath(s.Name))...)
			require.Zero(t, code, errs)
			require.Empty(t, errs)
			s.checkVerdict(t, out)
		})
	}
}

func (s sample) checkVerdict(t *testing.T, out string) {
	type finding struct{ Code, Pointer string }
	type verdict struct {
		File      string
		Outcome   string
		Stage     *string
		ErrorCode *string `json:"error_code"`
		Findings  []finding
	}
	lines := jsonLines[verdict](t, out)
	v := lines[len(lines)-1]
	assert.Equal(t, samplePath(s.Name), v.File)
	if s.after() != "" {
		require.Len(t, lines, 2)
		assert.Equal(t, verdict{File: samplePath(s.after()), Outcome: "admit", Findings: []finding{}}, lines[0])
	}
	if !s.binding() {
		s.checkWaits(t, v.Outcome, deref(v.ErrorCode))
		return
	}
	assert.Equal(t, s.Expected, v.Outcome)
	assert.Equal(t, s.Stage, v.Stage)
	assert.Equal(t, s.Code, v.ErrorCode)
	if s.Pointer == nil {
		return
	}
	// The manifest names the parent where several members are at fault.
	assert.Condition(t, func() bool {
		for _, f := range v.Findings {
			if f.Code == *s.Code && (f.Pointer == *s.Pointer || strings.HasPrefix(f.Pointer, *s.Pointer+"/")) {
				return true
			}
		}
		return false
	}, "no finding at %q in %v", *s.Pointer, v.Findings)
}

// receipt is what ingest prints of one file.
type receipt struct {
	PayloadRef  string `json:"payload_ref"`
	Disposition string `json:"disposition"`
	Outcome     string `json:"outcome"`
	ErrorCode   string `json:"error_code"`
}

// shared are the samples that a store with the others before them has to judge otherwise than an empty one.
var shared = map[string]receipt{
	// a01 with a byte order mark: the same report once more.
	"e06": {Disposition: "resolved", Outcome: "duplicate", ErrorCode: "ingest.logical"},
	// c01 by another road, which adds a VIN: the same id with other content.
	"c02": {Disposition: "dead_letter", Outcome: "exception", ErrorCode: "ingest.conflict"},
	// a01 in gzip, and the same bytes under another declaration.
	"e30": {Disposition: "resolved", Outcome: "duplicate", ErrorCode: "ingest.logical"},
	"e31": {Disposition: "resolved", Outcome: "duplicate", ErrorCode: "ingest.exact_bytes"},
	// Id and version of a01 with another content: found before the roster is asked, and instead of a warning.
	"f08": {Disposition: "dead_letter", Outcome: "exception", ErrorCode: "ingest.conflict"},
	"f52": {Disposition: "dead_letter", Outcome: "exception", ErrorCode: "ingest.conflict"},
}

// TestCorpusServed hands all samples to one service, in their order, and looks at what it has of them.
func TestCorpusServed(t *testing.T) {
	_, files := readSamples(t)
	data := t.TempDir()
	s := serve(t, data)
	served, first := map[string]receipt{}, map[string]sample{} // by payload
	for _, f := range files {
		r := s.ingest(f)
		assert.Equal(t, f.SHA256, r.PayloadRef, f.Name)
		f.checkReceipt(t, r, shared)
		if was, again := served[r.PayloadRef]; again && f.id() != "b01" && f.id() != "e31" {
			assert.Equal(t, was, r, "%s: known bytes", f.Name)
			continue
		}
		if _, again := first[r.PayloadRef]; !again {
			served[r.PayloadRef], first[r.PayloadRef] = r, f
		}
	}
	for _, f := range files {
		s.checkBytes(f)
	}
	s.checkDeclared(first)
	s.checkLists(served)
	s.stop()
	code, out, errs := holdfast(t, "verify", "--data", data)
	require.Zero(t, code, "%s\n%s", out, errs)
}

// TestCorpusAlone gives every sample whose outcome depends on the others a service of its own.
func TestCorpusAlone(t *testing.T) {
	_, files := readSamples(t)
	for _, f := range files {
		if _, depends := shared[f.id()]; !depends {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			s := serve(t, t.TempDir(), "--dvir-config", roster(t))
			f.checkReceipt(t, s.ingest(f), nil)
			s.stop()
		})
	}
}

// ingest hands one sample over with the command line and waits for the outcome.
func (s *server) ingest(f sample) receipt {
	s.t.Helper()
	code, out, errs := s.cli(append([]string{"ingest", samplePath(f.Name), "--wait"}, f.declared()...)...)
	require.Zero(s.t, code, "%s: %s", f.Name, errs)
	require.Empty(s.t, errs)
	lines := jsonLines[receipt](s.t, out)
	require.Len(s.t, lines, 1)
	return lines[0]
}

func (s sample) checkReceipt(t *testing.T, r receipt, otherwise map[string]receipt) {
	t.Helper()
	want := receipt{PayloadRef: s.SHA256, Disposition: "resolved", Outcome: s.Expected, ErrorCode: deref(s.Code)}
	if s.Expected == "exception" {
		want.Disposition = "dead_letter"
	}
	if o, depends := otherwise[s.id()]; depends {
		want = o
		want.PayloadRef = s.SHA256
	}
	if s.binding() {
		assert.Equal(t, want, r, s.Name)
		return
	}
	s.checkWaits(t, r.Outcome, r.ErrorCode)
	assert.Equal(t, r.Outcome == "exception", r.Disposition == "dead_letter", s.Name)
	assert.Contains(t, []string{"dead_letter", "resolved"}, r.Disposition, s.Name)
}

// checkBytes holds that what comes out is what went in.
func (s *server) checkBytes(f sample) {
	s.t.Helper()
	code, out, errs := s.cli("payload", f.SHA256)
	require.Zero(s.t, code, "%s: %s", f.Name, errs)
	stored, err := os.ReadFile(samplePath(f.Name))
	require.NoError(s.t, err)
	sum := sha256.Sum256([]byte(out))
	assert.Equal(s.t, f.SHA256, hex.EncodeToString(sum[:]), f.Name)
	assert.True(s.t, bytes.Equal(stored, []byte(out)), f.Name)
}

// checkDeclared holds that letters keep what was declared of them.
func (s *server) checkDeclared(first map[string]sample) {
	s.t.Helper()
	type declared struct {
		Ref             string
		Channel         string
		ContentType     string `json:"content_type"`
		ContentEncoding string `json:"content_encoding"`
		Size            int64
	}
	for _, l := range run[declared](s, "list", "--limit", "0", "--newest") {
		f := first[l.Ref]
		info, err := os.Stat(samplePath(f.Name))
		require.NoError(s.t, err)
		assert.Equal(s.t, declared{f.SHA256, f.Channel, f.ContentType, f.Headers["Content-Encoding"], info.Size()}, l)
	}
}

// checkLists holds that list, show, groups and stats agree with what ingest said.
func (s *server) checkLists(served map[string]receipt) {
	t := s.t
	t.Helper()
	type letter struct {
		Ref         string
		Disposition string
		Outcome     string
		OutcomeCode string `json:"outcome_code"`
	}
	type group struct {
		Disposition, ErrorCode string
	}
	listed, counted := map[string]letter{}, map[group]uint64{}
	for _, l := range run[letter](s, "list", "--limit", "0") {
		assert.NotContains(t, listed, l.Ref, "listed twice")
		listed[l.Ref] = l
	}
	require.Len(t, listed, len(served))
	for ref, r := range served {
		assert.Equal(t, letter{ref, r.Disposition, r.Outcome, r.ErrorCode}, listed[ref])
		shown := run[struct {
			Letter letter
			Events []json.RawMessage `json:"timeline"`
		}](s, "show", ref)[0]
		assert.Equal(t, listed[ref], shown.Letter)
		assert.GreaterOrEqual(t, len(shown.Events), 3, "received, attempt, outcome")
		if r.Disposition == "dead_letter" {
			counted[group{r.Disposition, r.ErrorCode}]++
		}
	}
	grouped := map[group]uint64{}
	for _, g := range run[struct {
		Disposition string
		ErrorCode   string `json:"error_code"`
		Count       uint64
		Sample      string
	}](s, "groups") {
		grouped[group{g.Disposition, g.ErrorCode}] = g.Count
		assert.Equal(t, g.ErrorCode, listed[g.Sample].OutcomeCode)
	}
	assert.Equal(t, counted, grouped)
	s.checkStats(served)
}

func (s *server) checkStats(served map[string]receipt) {
	want := map[string]uint64{}
	for _, r := range served {
		want[r.Disposition]++
	}
	var stats struct {
		Letters map[string]uint64
	}
	s.get("/v1/stats", &stats)
	maps.DeleteFunc(stats.Letters, func(_ string, count uint64) bool { return count == 0 })
	assert.Equal(s.t, want, stats.Letters)
}

// run runs a client verb that must succeed, and decodes its JSON lines.
func run[T any](s *server, args ...string) []T {
	s.t.Helper()
	code, out, errs := s.cli(append(args, "--output", "json")...)
	require.Zero(s.t, code, "%v: %s", args, errs)
	require.Empty(s.t, errs, "%v", args)
	return jsonLines[T](s.t, out)
}
