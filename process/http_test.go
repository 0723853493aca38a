package process_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/process"
)

// arrival is a request as a target saw it.
type arrival struct {
	header http.Header
	length int64
	body   []byte
}

// target is a server that remembers what arrives and answers by the script.
type target struct {
	*httptest.Server
	mu       sync.Mutex
	arrivals []arrival
}

func newTarget(t testing.TB, answer http.HandlerFunc) *target {
	g := &target{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, http.MethodPost, r.Method)
		g.mu.Lock()
		g.arrivals = append(g.arrivals, arrival{r.Header, r.ContentLength, body})
		g.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *target) seen() []arrival {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.arrivals
}

func newHTTP(t testing.TB, url string, change ...func(*process.HTTPConfig)) *process.HTTP {
	cfg := process.HTTPConfig{Name: "warehouse", URL: url, Timeout: patience}
	for _, c := range change {
		c(&cfg)
	}
	h, err := process.NewHTTP(cfg)
	require.NoError(t, err)
	return h
}

// jobOf is a leased letter of the payload.
func jobOf(payload []byte) deadletter.Job {
	return deadletter.Job{LogID: "log", Letter: chain.Letter{Ref: chain.Sum(payload), Channel: chain.MobileExport,
		ContentType: "application/json", Lease: &chain.Lease{Seq: 2, Attempt: 1, Worker: "node-1/0"}}}
}

func deliver(t testing.TB, h *process.HTTP, payload string) process.Result {
	r, err := h.Process(t.Context(), jobOf([]byte(payload)), []byte(payload))
	require.NoError(t, err)
	require.NotEqual(t, r.Completion == nil, r.Breakdown == nil)
	return r
}

// fails delivers and tells the classifier's verdict on the failure.
func fails(t testing.TB, h *process.HTTP) (*deadletter.Breakdown, deadletter.Verdict) {
	t.Helper()
	b := deliver(t, h, "payload").Breakdown
	require.NotNil(t, b)
	require.Equal(t, chain.StageDispatch, b.Stage)
	require.Equal(t, "http-1", b.Rules)
	return b, deadletter.Classify(b.Stage, b.Signal, time.Now())
}

func answering(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// TestTC04BytesOverHTTP: what arrives is what is stored, through queue and pool.
func TestTC04BytesOverHTTP(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(`{"a":1}`))
	require.NoError(t, z.Close())
	bodies := map[string]string{"empty": "", "BOM": "\ufeff{}", "CRLF": "{\r\n}\r\n", "invalid UTF-8": "{\"a\":\"\xff\xfe\"}", "NUL": "a\x00b\x00",
		"gzip": zipped.String(), "protobuf": "\x08\x96\x01\x12\x07testing", "duplicate keys": `{"a":1,"a":2}`, "float": `{"a":1.0}`,
		"large number": `{"id":1970670598291982290}`, "escapes": `{"a":"<\/script>&"}`, "large": strings.Repeat("0123456789", 200_000)}
	g := newTarget(t, answering(204, ""))
	b := newBench(t)
	h := newHTTP(t, g.URL)
	b.start(func(c *process.Config) { c.Targets[0].Processor = h })
	for name, body := range bodies {
		encoding := ""
		if name == "gzip" {
			encoding = "gzip"
		}
		_, err := b.Ingest(t.Context(), deadletter.Submission{Body: strings.NewReader(body), ContentType: "application/octet-stream",
			ContentEncoding: encoding, Channel: chain.OCRDocument})
		require.NoError(t, err)
	}
	stored := map[string]string{}
	for name, body := range bodies {
		b.reaches(body, chain.Resolved)
		require.Equal(t, uint64(1), b.letter(body).Attempt, name)
		stored[chain.Sum([]byte(body)).String()] = name
	}
	require.Len(t, g.seen(), len(bodies))
	for _, a := range g.seen() {
		ref := a.header.Get("Holdfast-Payload-Ref")
		name, ok := stored[ref]
		require.True(t, ok, "delivered once")
		delete(stored, ref)
		assert.Equal(t, ref, chain.Sum(a.body).String(), name)
		assert.Equal(t, int64(len(bodies[name])), a.length, name)
		assert.Equal(t, name == "gzip", a.header.Get("Content-Encoding") == "gzip", name)
		assert.Equal(t, "application/octet-stream", a.header.Get("Content-Type"))
	}
}

// TestTC05Headers: the target is told what the payload is and which delivery this is, and nothing else.
func TestTC05Headers(t *testing.T) {
	g := newTarget(t, answering(200, ""))
	h := newHTTP(t, g.URL, func(c *process.HTTPConfig) {
		c.Secrets = []process.Secret{secret(t, newSecret), secret(t, oldSecret)}
		c.Header = http.Header{"Authorization": {"Bearer of good news"}, "x-tenant": {"acme", "sub"}}
	})
	payload := []byte(`{"a":1}`)
	job := jobOf(payload)
	job.Letter.Lease.Attempt, job.Letter.Replays, job.Letter.ContentEncoding = 4, 2, "identity"
	job.Letter.Failure = &chain.Envelope{LastError: "canary", ErrorCode: "dispatch.http_503", Source: "canary"}
	job.Letter.Tags, job.Letter.Owner, job.Letter.Source = []string{"canary"}, "canary", "canary"
	before := time.Now()
	_, err := h.Process(t.Context(), job, payload)
	require.NoError(t, err)

	got := g.seen()[0].header
	require.NoError(t, process.Verify(got, []process.Secret{secret(t, oldSecret)}, before, payload))
	require.NoError(t, process.Verify(got, []process.Secret{secret(t, newSecret)}, before, payload))
	require.Equal(t, got.Get("Webhook-Id"), got.Get("Idempotency-Key"))
	require.Regexp(t, "^[0-9a-f]{64}$", got.Get("Idempotency-Key"))
	for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "Idempotency-Key"} {
		got.Del(name)
	}
	require.Equal(t, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"identity"}, "Content-Length": {"7"},
		"Holdfast-Payload-Ref": {chain.Sum(payload).String()}, "Holdfast-Attempt": {"4"}, "Holdfast-Channel": {"mobile_export"},
		"User-Agent": {"holdfast"}, "Connection": {"close"}, "Authorization": {"Bearer of good news"}, "X-Tenant": {"acme", "sub"}}, got)

	job.Letter.ContentType, job.Letter.ContentEncoding = "", ""
	_, err = newHTTP(t, g.URL).Process(t.Context(), job, payload)
	require.NoError(t, err)
	got = g.seen()[1].header
	for _, name := range []string{"Content-Type", "Content-Encoding", "Webhook-Id", "Webhook-Signature", "Accept-Encoding"} {
		require.NotContains(t, got, name)
	}
}

// TestIdempotencyKey: the same over the attempts of one chain, whatever happens on the way, and another after a replay
// and after a reopening.
func TestIdempotencyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ref := b.ingest("payload")
		attempt := func(end func(deadletter.Job) error) string {
			job, err := b.Lease(t.Context(), ref, "node-1/0", time.Minute)
			require.NoError(t, err)
			require.NoError(t, end(job))
			time.Sleep(time.Hour)
			return process.AttemptChain(job)
		}
		fail := func(status int) func(deadletter.Job) error {
			return func(j deadletter.Job) error {
				_, err := b.FailJob(t.Context(), j, deadletter.Breakdown{Stage: chain.StageDispatch, Signal: deadletter.Signal{HTTPStatus: status}})
				return err
			}
		}
		resolve := func(j deadletter.Job) error {
			_, err := b.Complete(t.Context(), j, deadletter.Completion{Outcome: chain.Admit, Rules: "http-1", Record: []byte("{}")})
			return err
		}
		first := attempt(fail(503))
		require.Equal(t, first, attempt(func(j deadletter.Job) error { return b.Release(t.Context(), j) }))
		require.Equal(t, first, attempt(func(j deadletter.Job) error { return b.Lose(t.Context(), j.Letter, chain.LostService) }))
		require.Equal(t, first, attempt(fail(503)))
		require.Equal(t, first, attempt(fail(400)))
		_, err := b.Replay(t.Context(), ref, deadletter.Order{Actor: "op", Reason: "corrected"})
		require.NoError(t, err)
		second := attempt(fail(503))
		require.Equal(t, second, attempt(resolve))
		_, err = b.Fail(t.Context(), deadletter.Failure{PayloadRef: ref, Stage: chain.StageDispatch, Signal: deadletter.Signal{HTTPStatus: 503}})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		third := attempt(fail(503))
		require.Equal(t, third, attempt(resolve))
		_, err = b.Fail(t.Context(), deadletter.Failure{PayloadRef: ref, Stage: chain.StageDispatch, Signal: deadletter.Signal{HTTPStatus: 503}})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		assert.NotEqual(t, third, attempt(resolve), "reopened once more")
		assert.NotEqual(t, first, second)
		assert.NotEqual(t, first, third)
		assert.NotEqual(t, second, third)
		other := jobOf([]byte("another payload"))
		require.NotEqual(t, first, process.AttemptChain(other))
		elsewhere := other
		elsewhere.LogID = "another log"
		require.NotEqual(t, process.AttemptChain(other), process.AttemptChain(elsewhere))
	})
}

// TestRecords: an object is the record as it came; anything else is a note that every delivery of the payload gives.
func TestRecords(t *testing.T) {
	note := `{"delivered":{"payload_ref":"` + chain.Sum([]byte("payload")).String() + `","target":"warehouse"}}`
	object := func(bytes int) string { return `{"a":"` + strings.Repeat("x", bytes-8) + `"}` }
	for name, c := range map[string]struct {
		answer string
		record bool
	}{
		"object": {`{"id":1970670598291982290,"a":1.0}`, true}, "spaced object": {" \r\n{ }\n", true}, "largest": {object(1000), true},
		"too large": {object(1001), false}, "too large by a line end": {object(1000) + "\n", false}, "nothing": {"", false}, "array": {`[{}]`, false}, "text": {"ok", false}, "string": {`"{}"`, false},
		"null": {"null", false}, "cut object": {`{"a":`, false}, "two objects": {"{}{}", false}, "BOM": {"\ufeff{}", false},
		"invalid UTF-8": {"{\"a\":\"\xff\"}", false}, "other space": {"\u00a0{}", false},
	} {
		for _, status := range []int{200, 201, 202, 299} {
			h := newHTTP(t, newTarget(t, answering(status, c.answer)).URL, func(cfg *process.HTTPConfig) { cfg.MaxAnswer = 1000 })
			want := note
			if c.record {
				want = c.answer
			}
			require.Equal(t, &deadletter.Completion{Outcome: chain.Admit, Rules: "http-1", Record: []byte(want)}, deliver(t, h, "payload").Completion, name)
		}
	}
	other := deliver(t, newHTTP(t, newTarget(t, answering(204, "")).URL), "other").Completion.Record
	require.Equal(t, strings.ReplaceAll(note, chain.Sum([]byte("payload")).String(), chain.Sum([]byte("other")).String()), string(other))
}

// TestAnswersAreCapped: neither a record nor a complaint is read beyond what is kept.
func TestAnswersAreCapped(t *testing.T) {
	for _, status := range []int{200, 500} {
		g := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			for r.Context().Err() == nil {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
					return
				}
			}
		})
		r := deliver(t, newHTTP(t, g.URL), "payload")
		if status == 200 {
			require.Contains(t, string(r.Completion.Record), "delivered")
		} else {
			require.Equal(t, "HTTP 500: "+strings.Repeat("x", 8<<10), r.Breakdown.Message)
		}
	}
}

// TestStatuses: what is not 2xx is a failure that the table judges.
func TestStatuses(t *testing.T) {
	for status, code := range map[int]string{400: "http_4xx", 401: "http_credentials", 408: "http_408", 409: "http_409", 422: "http_422",
		429: "http_429", 500: "http_500", 501: "unclassified", 502: "http_502", 503: "http_503", 504: "http_504", 511: "unclassified", 304: "http_3xx"} {
		b, v := fails(t, newHTTP(t, newTarget(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "120")
			answering(status, "")(w, r)
		}).URL))
		require.Equal(t, "dispatch."+code, v.Code)
		require.Equal(t, "120", b.Signal.RetryAfter)
		require.Equal(t, v.Class == chain.Transient, v.RetryAfter == 2*time.Minute)
		require.Equal(t, fmt.Sprintf("HTTP %d: ", status), b.Message)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := newTarget(t, answering(200, ""))
	for _, status := range []int{301, 302, 303, 307, 308} {
		_, v := fails(t, newHTTP(t, newTarget(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, status)
		}).URL))
		require.Equal(t, "dispatch.http_3xx", v.Code)
		require.Equal(t, chain.Permanent, v.Class)
	}
	require.Empty(t, elsewhere.seen())
}

// reluctant is a server that answers the first request of a connection, keeps the connection, and closes it upon the
// second; a wholly reluctant one closes it upon the first. It counts the requests that it got.
func reluctant(t *testing.T, wholly bool) (url string, count func() int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	var requests atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for i := 0; ; i++ {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					requests.Add(1)
					if wholly || i > 0 {
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}()
		}
	}()
	return "http://" + l.Addr().String(), requests.Load
}

// TestNoRetriesOfTheClient: net/http would send some requests twice; here each attempt is one request, and the queue
// alone decides on the next.
func TestNoRetriesOfTheClient(t *testing.T) {
	for _, payload := range []string{"payload", ""} {
		url, count := reluctant(t, false)
		usual := http.Client{Transport: &http.Transport{}}
		for range 2 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(payload))
			require.NoError(t, err)
			r.Header.Set("Idempotency-Key", "key")
			res, err := usual.Do(r)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
		}
		require.Equal(t, int64(3), count(), "two requests of a usual client")
		usual.CloseIdleConnections()

		url, count = reluctant(t, false)
		h := newHTTP(t, url)
		for i := range 5 {
			require.NotNil(t, deliver(t, h, payload).Completion)
			require.Equal(t, int64(i+1), count())
		}
		url, count = reluctant(t, true)
		h = newHTTP(t, url)
		for i := range 5 {
			require.Equal(t, "unexpected_eof", deliver(t, h, payload).Breakdown.Signal.Type)
			require.Equal(t, int64(i+1), count())
		}
	}
}

// TestDeliveryStops: the end of the service is no failure of the letter; the end of its time is.
func TestDeliveryStops(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	entered := make(chan struct{}, 3)
	g := newTarget(t, func(http.ResponseWriter, *http.Request) { entered <- struct{}{}; <-release })
	payload := []byte("payload")
	why := errors.New("stopping")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-entered; cancel(why) }()
	r, err := newHTTP(t, g.URL).Process(ctx, jobOf(payload), payload)
	require.ErrorIs(t, err, why)
	require.Zero(t, r)

	_, v := fails(t, newHTTP(t, g.URL, func(c *process.HTTPConfig) { c.Timeout = 20 * time.Millisecond }))
	require.Equal(t, "dispatch.timeout", v.Code)
	ctx, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer end()
	r, err = newHTTP(t, g.URL).Process(ctx, jobOf(payload), payload)
	require.NoError(t, err)
	require.Equal(t, "timeout", r.Breakdown.Signal.Type)
}

// TestAnswerThatBreaksOff: a record may be lost, so that the delivery is not taken for done.
func TestAnswerThatBreaksOff(t *testing.T) {
	g := newTarget(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"a":`)
	})
	_, v := fails(t, newHTTP(t, g.URL))
	require.Equal(t, "dispatch.net_unexpected_eof", v.Code)
	require.Equal(t, chain.Transient, v.Class)
}

func TestHTTPConfigs(t *testing.T) {
	for field, configs := range map[string][]process.HTTPConfig{
		"url": {{}, {URL: "warehouse.example"}, {URL: "ftp://warehouse.example"}, {URL: "http://"}, {URL: "http://%zz"}, {URL: "/canary"},
			{URL: "https://user:canary@warehouse.example"}, {URL: "https://warehouse.example/#canary"}},
		"timeout": {{URL: "http://a", Timeout: -1}},
		"output":  {{URL: "http://a", MaxAnswer: -1}},
		"headers": {{URL: "http://a", Header: http.Header{"Idempotency-key": {"canary"}}}, {URL: "http://a", Header: http.Header{"holdfast-canary": {""}}},
			{URL: "http://a", Header: http.Header{"Webhook-Id": {""}}}, {URL: "http://a", Header: http.Header{"host": {""}}},
			{URL: "http://a", Header: http.Header{"": {""}}}, {URL: "http://a", Header: http.Header{"X Canary": {""}}},
			{URL: "http://a", Header: http.Header{"X-A": {"canary\r\nX-B: c"}}}, {URL: "http://a", Header: http.Header{"X-A": {"fine", "a\x00"}}}},
	} {
		for _, cfg := range configs {
			_, err := process.NewHTTP(cfg)
			var refused *chain.FieldError
			require.ErrorAs(t, err, &refused, cfg.URL)
			require.Equal(t, field, refused.Field)
			require.NotContains(t, strings.ToLower(err.Error()), "canary")
		}
	}
}

// BenchmarkHTTP compares deliveries, each on a connection of its own, with a client that keeps its connection.
func BenchmarkHTTP(b *testing.B) {
	s := httptest.NewTLSServer(answering(204, ""))
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	h, payload := newHTTP(b, s.URL, func(c *process.HTTPConfig) { c.Roots = roots }), bytes.Repeat([]byte("x"), 2<<10)
	var own, kept time.Duration
	for b.Loop() {
		start := time.Now()
		require.NotNil(b, deliver(b, h, string(payload)).Completion)
		own += time.Since(start)
		start = time.Now()
		res, err := s.Client().Post(s.URL, "", bytes.NewReader(payload))
		require.NoError(b, err)
		require.NoError(b, res.Body.Close())
		kept += time.Since(start)
	}
	b.ReportMetric(float64(own)/float64(kept), "ratio")
	b.ReportMetric(float64(own.Microseconds())/float64(b.N), "us/delivery")
}
