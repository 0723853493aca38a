package process_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/dvir"
	"github.com/holdfast-dvir/holdfast/process"
)

const corpus = "../testdata/corpus"

// sample is one line of the corpus's manifest.
type sample struct {
	Name        string
	ContentType string            `json:"content_type"`
	Channel     string            `json:"channel"`
	Headers     map[string]string `json:"http_headers"`
	Stage       string
	Expected    string
	Code        string `json:"error_code"`
}

func samples(t *testing.T) (clock time.Time, all []sample) {
	data, err := os.ReadFile(filepath.Join(corpus, "manifest.json"))
	require.NoError(t, err)
	var m struct {
		Clock time.Time `json:"reference_clock"`
		Files []sample
	}
	require.NoError(t, json.Unmarshal(data, &m))
	return m.Clock, m.Files
}

func named(t *testing.T, all []sample, prefix string) sample {
	for _, s := range all {
		if strings.HasPrefix(s.Name, prefix) {
			return s
		}
	}
	require.Fail(t, "no sample "+prefix)
	return sample{}
}

// builtin makes b's pools run the DVIR processor.
func builtin(b *bench) func(*process.Config) {
	children := process.NewChildren(self("rules"), dvir.Config{}, process.Limits{Memory: memoryLimit})
	b.t.Cleanup(children.Close)
	return func(c *process.Config) {
		c.Targets[0].Processor = &process.Builtin{Children: children, Queue: b.Queue, Records: b.state, Store: b.store}
	}
}

// run hands a sample over and waits for its outcome. The clock of the corpus is the time it was first seen.
func (b *bench) run(s sample) (chain.Letter, []byte) {
	data, err := os.ReadFile(filepath.Join(corpus, s.Name))
	require.NoError(b.t, err)
	r, err := b.Ingest(b.t.Context(), deadletter.Submission{Body: bytes.NewReader(data), ContentType: s.ContentType,
		ContentEncoding: s.Headers["Content-Encoding"], Channel: chain.Channel(s.Channel)})
	require.NoError(b.t, err)
	var l chain.Letter
	b.eventually(func() bool { l = b.letters()[r.PayloadRef]; return l.Outcome != "" })
	return l, data
}

func TestBuiltinAdmits(t *testing.T) {
	_, all := samples(t)
	b := newBench(t)
	b.start(builtin(b))
	l, _ := b.run(named(t, all, "a01"))
	require.Equal(t, chain.Admit, l.Outcome)
	record, err := b.store.Get(t.Context(), blob.Ref{Digest: l.RecordRef})
	require.NoError(t, err)
	require.True(t, json.Valid(record))
	_, ok := dvir.ReadingOf(record)
	require.True(t, ok)
	require.NoError(t, b.state.Wait(t.Context(), l.LastSeq))
	latest, ok, err := b.state.LatestRecord(l.UnitKey)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, l.RecordRef, latest)
}

func TestBuiltinAfterTheFirstReport(t *testing.T) {
	_, all := samples(t)
	for _, prefix := range []string{"b01", "b02", "b03", "b04", "b06", "b07", "f33"} {
		b := newBench(t)
		b.start(builtin(b))
		first, _ := b.run(named(t, all, "a01"))
		require.Equal(t, chain.Admit, first.Outcome)
		require.NoError(t, b.state.Wait(t.Context(), first.LastSeq))
		s := named(t, all, prefix)
		l, data := b.run(s)
		require.Equal(t, chain.Sum(data), l.Ref)
		switch {
		case l.Ref == first.Ref: // the same bytes: one letter, one record
			require.Equal(t, "duplicate", s.Expected, s.Name)
			require.Equal(t, first, l)
		default:
			require.Equal(t, s.Expected, string(l.Outcome), s.Name)
			require.Equal(t, s.Code, l.OutcomeCode, s.Name)
		}
		if l.Outcome == chain.Duplicate {
			require.Equal(t, first.RecordRef, l.RecordRef)
		}
	}
}

// The whole corpus through queue and pool: every payload ends where its manifest says that the rules put it, and
// nothing of any payload is in the log.
func TestBuiltinCorpus(t *testing.T) {
	_, all := samples(t)
	b := newBench(t)
	b.start(builtin(b))
	words := map[string]bool{}
	for w := range dvir.Vocabulary() {
		words[w] = true
	}
	var log string
	tokens := map[string]string{}
	for _, s := range all {
		l, data := b.run(s)
		require.Contains(t, []chain.Disposition{chain.Resolved, chain.DeadLetter}, l.Disposition, s.Name)
		require.Equal(t, l.Disposition == chain.DeadLetter, l.Outcome == chain.Exception, s.Name)
		require.Equal(t, l.Outcome == chain.Admit || l.Outcome == chain.AdmitWithWarning || l.Outcome == chain.Duplicate,
			!l.RecordRef.IsZero(), s.Name)
		for token := range strings.FieldsFuncSeq(string(data), func(r rune) bool { return strings.ContainsRune("\"{}[],:<>=;\\/ \r\n\t", r) }) {
			if len(token) >= 6 && !words[token] {
				tokens[token] = s.Name
			}
		}
	}
	for _, line := range b.log.Lines() {
		r, err := chain.Parse(line)
		require.NoError(t, err)
		for _, f := range r.Event.Findings {
			log += " " + f.Pointer
		}
		if r.Event.Envelope != nil {
			log += " " + r.Event.Envelope.LastError
		}
		log += " " + r.Event.Reason
	}
	for said := range strings.FieldsFuncSeq(log, func(r rune) bool { return strings.ContainsRune(" /;", r) }) {
		require.NotContains(t, tokens, said)
	}
}

// History that cannot be read is a fault of ours: nobody is judged without it.
func TestBuiltinWithoutHistory(t *testing.T) {
	_, all := samples(t)
	b := newBench(t)
	stop := b.start(builtin(b))
	first, _ := b.run(named(t, all, "a01"))
	require.NoError(t, b.state.Wait(t.Context(), first.LastSeq))
	stop()
	var down atomic.Bool
	down.Store(true)
	b.memory.Fail = func(op string, d chain.Digest) error {
		if down.Load() && d == first.RecordRef {
			return errors.New("the disk does not answer")
		}
		return nil
	}
	data, r := b.handOver(named(t, all, "f33"))
	b.start(builtin(b))
	b.eventually(func() bool { return b.events(string(data))[chain.TypeAttemptLost] > 0 })
	require.Equal(t, chain.Received, b.letters()[r.PayloadRef].Disposition)
	down.Store(false)
	b.eventually(func() bool { return b.letters()[r.PayloadRef].Disposition == chain.DeadLetter })
	require.Equal(t, uint64(1), b.letters()[r.PayloadRef].Attempt)
}

// A record that is lost or damaged is for verify to find: the unit's later reports are judged without it. So they
// are when the record is larger than today's limit.
func TestBuiltinLostHistory(t *testing.T) {
	_, all := samples(t)
	for name, spoil := range map[string]func(b *bench, first blob.Ref){
		"lost":    func(b *bench, first blob.Ref) { b.memory.Remove(first) },
		"damaged": func(b *bench, first blob.Ref) { require.NoError(b.t, b.memory.Tamper(first, []byte("x"))) },
		"too large": func(b *bench, _ blob.Ref) {
			var err error
			b.store, err = blob.NewStore(b.memory, blob.Config{MaxSize: 10_000})
			require.NoError(b.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			stop := b.start(builtin(b))
			first := b.ingestJSON(extended(t, named(t, all, "a01"), 20_000)).PayloadRef
			b.eventually(func() bool { return b.letters()[first].Disposition == chain.Resolved })
			l := b.letters()[first]
			require.NoError(t, b.state.Wait(t.Context(), l.LastSeq))
			stop()
			spoil(b, blob.Ref{Digest: l.RecordRef})
			_, r := b.handOver(named(t, all, "f33"))
			b.start(builtin(b))
			b.eventually(func() bool { return b.letters()[r.PayloadRef].OutcomeCode == "ingest.conflict" })
		})
	}
}

// A record that the store does not take goes to a person: no later attempt makes it smaller.
func TestBuiltinRecordTooLarge(t *testing.T) {
	_, all := samples(t)
	data := extended(t, named(t, all, "a01"), 10)
	b := newBenchOver(t, &chaintest.Log{}, blob.Config{MaxSize: int64(len(data))})
	b.start(builtin(b))
	ref := b.ingestJSON(data).PayloadRef
	b.eventually(func() bool { return b.letters()[ref].Disposition == chain.DeadLetter })
	require.Equal(t, "parse.expansion_limit", b.letters()[ref].OutcomeCode)
	require.Equal(t, 1, b.events(string(data))[chain.TypeAttempt])
}

// extended is a sample without white space and with an extension of so many bytes.
func extended(t *testing.T, s sample, size int) []byte {
	data, err := os.ReadFile(filepath.Join(corpus, s.Name))
	require.NoError(t, err)
	var report map[string]any
	require.NoError(t, json.Unmarshal(data, &report))
	report["extensions"] = map[string]any{"x": strings.Repeat("a", size)}
	data, err = json.Marshal(report)
	require.NoError(t, err)
	return data
}

// handOver ingests a sample as JSON.
func (b *bench) handOver(s sample) ([]byte, deadletter.Receipt) {
	data, err := os.ReadFile(filepath.Join(corpus, s.Name))
	require.NoError(b.t, err)
	return data, b.ingestJSON(data)
}

func (b *bench) ingestJSON(data []byte) deadletter.Receipt {
	r, err := b.Ingest(b.t.Context(), deadletter.Submission{Body: bytes.NewReader(data), ContentType: "application/json"})
	require.NoError(b.t, err)
	return r
}
