package test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

// odd are payloads that software between two ends likes to mend.
func odd() map[string][]byte {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(report("zipped"))
	_ = z.Close()
	return map[string][]byte{
		"nothing": {}, "byte order mark": []byte("\xef\xbb\xbf{}"), "line ends": []byte("a\r\nb\rc\n"), "not UTF-8": {0xff, 0xfe, 'a', 0xc3},
		"NUL": []byte("a\x00b"), "gzip": zipped.Bytes(), "protobuf": {0x08, 0x96, 0x01, 0x12, 0x00},
		"repeated names": []byte(`{"a":1,"a":2}`), "numbers": []byte(`{"id":1970670598291982290,"x":1.0,"y":1e400}`),
		"as it stands": []byte(" { \"b\" : \"<&>\\u00e9\" , \"a\" : null } \n"), "large": bytes.Repeat([]byte{0, 1, 2, 250}, 1<<19),
	}
}

// delivered is a target that keeps what comes, as digests, and answers with a status.
type delivered struct {
	mu     sync.Mutex
	status int
	bodies []chain.Digest
	keys   map[string]int
}

func (d *delivered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bodies = append(d.bodies, chain.Sum(body))
	d.keys[r.Header.Get("Idempotency-Key")]++
	w.WriteHeader(d.status)
}

func (d *delivered) answer(status int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status = status
}

func (d *delivered) got() []chain.Digest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]chain.Digest{}, d.bodies...)
}

// toWarehouse serves with a processor that has all letters.
func toWarehouse(t *testing.T, data string, d *delivered) *server {
	target := httptest.NewServer(d)
	t.Cleanup(target.Close)
	return serve(t, data, "--processors", configure(t, "processors:\n- {name: warehouse, kind: http, url: \"%s\"}\nroutes:\n- {processor: warehouse}\n", target.URL))
}

// until waits for the disposition of a letter.
func (s *server) until(ref chain.Digest, d chain.Disposition) (l web.Letter) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		c, err := s.client().Letter(s.t.Context(), ref.String())
		l = c.Letter
		return err == nil && l.Disposition == d
	}, time.Minute, 10*time.Millisecond, "%s: %s", ref, s.log)
	return l
}

// TestTC04RoundTrip: what is handed over comes back byte for byte, to a person who reads it and to the target of a replay,
// one by one and in bulk.
func TestTC04RoundTrip(t *testing.T) {
	d := &delivered{status: http.StatusUnprocessableEntity, keys: map[string]int{}}
	data := t.TempDir()
	s := toWarehouse(t, data, d)
	var refs []chain.Digest
	for name, body := range odd() {
		r, err := s.client().Submit(t.Context(), bytes.NewReader(body), web.SubmitOptions{ContentType: "application/octet-stream"})
		require.NoError(t, err, name)
		require.Equal(t, chain.Sum(body), r.PayloadRef, name)
		refs = append(refs, r.PayloadRef)
		s.until(r.PayloadRef, chain.DeadLetter)
		read, err := s.client().Payload(t.Context(), r.PayloadRef.String(), "looking at it")
		require.NoError(t, err)
		back, err := io.ReadAll(read)
		require.NoError(t, err)
		require.NoError(t, read.Close())
		require.True(t, bytes.Equal(body, back), name)
	}
	require.ElementsMatch(t, refs, d.got())
	_, err := s.client().Replay(t.Context(), refs[0].String(), web.Order{Reason: "alone"})
	require.NoError(t, err)
	s.until(refs[0], chain.DeadLetter)
	d.answer(http.StatusNoContent)
	s.replayAll("dispatch.http_422", len(refs))
	for _, ref := range refs {
		s.until(ref, chain.Resolved)
	}
	require.ElementsMatch(t, append(append(refs, refs...), refs[0]), d.got())
	s.stop()
	code, out, _ := holdfast(t, "verify", "--data", data)
	require.Zero(t, code, out)
}

// replayAll orders a plan for all letters with a code.
func (s *server) replayAll(code string, want int) {
	s.t.Helper()
	order := web.PlanOrder{ErrorCode: code, Reason: "fixed", Rate: 1000, NoRamp: true}
	seen, err := s.client().PreviewPlan(s.t.Context(), order)
	require.NoError(s.t, err)
	require.Equal(s.t, uint64(want), seen.Count)
	order.Snapshot, order.Expected = seen.Snapshot, seen.Count
	_, err = s.client().CreatePlan(s.t.Context(), order)
	require.NoError(s.t, err)
}

// TestReplayIsIdempotent: however often and from how many hands a replay comes, what follows is one delivery for each time
// the letter was put to work, and one record in the end.
func TestReplayIsIdempotent(t *testing.T) {
	d := &delivered{status: http.StatusUnprocessableEntity, keys: map[string]int{}}
	data := t.TempDir()
	s := toWarehouse(t, data, d)
	r, err := s.client().Submit(t.Context(), strings.NewReader("payload"), web.SubmitOptions{})
	require.NoError(t, err)
	s.until(r.PayloadRef, chain.DeadLetter)
	d.answer(http.StatusOK)
	var hands sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for range 20 {
		hands.Go(func() {
			_, err := s.client().Replay(t.Context(), r.PayloadRef.String(), web.Order{Reason: "fixed"})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				taken++
			}
		})
	}
	hands.Wait()
	require.Equal(t, 1, taken)
	first := s.until(r.PayloadRef, chain.Resolved)
	require.Len(t, d.got(), 2)
	require.Len(t, d.keys, 2, "a replay is a new chain of attempts")

	for range 3 { // the same bytes again are known, and make no second record
		again, err := s.client().Submit(t.Context(), strings.NewReader("payload"), web.SubmitOptions{})
		require.NoError(t, err)
		require.True(t, again.Known)
	}
	f := web.Failure{Stage: chain.StageDispatch, HTTPStatus: 422}
	_, err = s.client().Fail(t.Context(), f, strings.NewReader("payload"))
	require.NoError(t, err)
	_, err = s.client().Replay(t.Context(), r.PayloadRef.String(), web.Order{Reason: "fixed again"})
	require.NoError(t, err)
	require.Equal(t, first.RecordRef, s.until(r.PayloadRef, chain.Resolved).RecordRef)
	require.Len(t, d.got(), 3)
	s.stop()
	checkHistory(t, data, &ledger{known: map[string]bool{r.PayloadRef.String(): true}})
}

// TestPoisonStops: a payload that takes a worker down is quarantined at the first crash. Nothing runs it again, neither a
// restart nor a list, a bulk replay or a person in a hurry, but an override with a reason.
func TestPoisonStops(t *testing.T) {
	data, ran := t.TempDir(), t.TempDir()+"/ran"
	file := configure(t, `
processors:
  - {name: fragile, kind: exec, command: [sh, -c, 'echo x >>%s; read word; case $word in good*) ;; *) kill -KILL $$;; esac']}
routes: [{processor: fragile}]
`, ran)
	s := serve(t, data, "--processors", file)
	var bad web.Receipt
	for _, body := range []string{"good 1\n", "bad\n", "good 2\n"} {
		r, err := s.client().Submit(t.Context(), strings.NewReader(body), web.SubmitOptions{})
		require.NoError(t, err)
		if body == "bad\n" {
			bad = r
			l := s.until(r.PayloadRef, chain.Poison)
			require.Equal(t, "parse.crash", l.Failure.ErrorCode)
			continue
		}
		require.Equal(t, uint64(1), s.until(r.PayloadRef, chain.Resolved).Attempt)
	}
	c, err := s.client().Letter(t.Context(), bad.PayloadRef.String())
	require.NoError(t, err)
	require.Contains(t, string(c.Events[len(c.Events)-1].Event), `"evidence":"signal:SIGKILL"`)
	s.stop()
	s = serve(t, data, "--processors", file)
	s.get("/v1/letters?limit=10", &struct{}{})
	s.get("/v1/groups", &struct{}{})
	read, err := s.client().Payload(t.Context(), bad.PayloadRef.String(), "looking at it")
	require.NoError(t, err)
	require.NoError(t, read.Close())
	seen, err := s.client().PreviewPlan(t.Context(), web.PlanOrder{ErrorCode: "parse.crash"})
	require.NoError(t, err)
	require.Zero(t, seen.Count)
	for _, o := range []web.Order{{}, {Reason: "now"}, {Override: true}} {
		_, err := s.client().Replay(t.Context(), bad.PayloadRef.String(), o)
		require.Error(t, err, fmt.Sprint(o))
	}
	assert.Equal(t, 3, runs(t, ran))
	_, err = s.client().Replay(t.Context(), bad.PayloadRef.String(), web.Order{Reason: "the program was mended", Override: true})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return runs(t, ran) == 4 }, time.Minute, 10*time.Millisecond)
	s.until(bad.PayloadRef, chain.Poison)
	s.stop()
}

// runs counts what the program wrote down.
func runs(t *testing.T, path string) int {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.Count(string(text), "x")
}
