package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/process"
	"github.com/holdfast-dvir/holdfast/projection"
	"github.com/holdfast-dvir/holdfast/web"
)

// limit is the payload limit of test servers, in bytes.
const limit = 1 << 20

// bench is a server over a real queue, a real projection, a log and a store in memory.
type bench struct {
	t       *testing.T
	log     *chaintest.Log
	backend *blobtest.Memory
	queue   *deadletter.Queue
	state   *projection.DB
	tokens  *web.Tokens
	config  web.Config
	server  *httptest.Server
	secrets map[web.Role]string
	logs    *logs
}

// logs collects what the server logs, from any goroutine.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func newBench(t *testing.T, change ...func(*web.Config)) *bench {
	b := newQuietBench(t, change...)
	b.serve()
	return b
}

// newQuietBench has no listener.
func newQuietBench(t *testing.T, change ...func(*web.Config)) *bench {
	b := &bench{t: t, log: &chaintest.Log{}, backend: &blobtest.Memory{}, secrets: map[web.Role]string{}, logs: &logs{}}
	store, err := blob.NewStore(b.backend, blob.Config{MaxSize: limit})
	require.NoError(t, err)
	b.state, err = projection.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	b.state.Pause = time.Millisecond
	b.queue, err = deadletter.Open(t.Context(), deadletter.Config{Log: b.log, Store: store, State: b.state,
		Origin: "holdfast.example/test", Software: "holdfast/test"})
	require.NoError(t, err)
	b.run()
	b.tokens = web.OpenTokens(filepath.Join(t.TempDir(), "tokens.json"))
	for _, role := range web.Roles {
		b.secrets[role], err = b.tokens.Create("the-"+string(role), role)
		require.NoError(t, err)
	}
	routes, err := process.NewRoutes([]process.Route{{Channel: chain.ManualEntry, Target: "field"}}, []string{"field"})
	require.NoError(t, err)
	desk := process.NewDesk(process.DeskConfig{Queue: b.queue, State: b.state, Store: store, Routes: routes, Targets: []string{"field"}})
	b.config = web.Config{Desk: desk, Queue: b.queue, State: b.state, Tokens: b.tokens, Events: b.log, MaxPayload: limit, Version: "test",
		Log: slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, c := range change {
		c(&b.config)
	}
	return b
}

// run keeps queue and projection going until the test ends.
func (b *bench) run() {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { assert.ErrorIs(b.t, b.queue.Run(ctx), context.Canceled) })
	wg.Go(func() { assert.ErrorIs(b.t, b.state.Follow(ctx, b.log), context.Canceled) })
	b.t.Cleanup(func() {
		stop()
		wg.Wait()
		assert.NoError(b.t, b.state.Close())
	})
}

func (b *bench) serve() {
	ctx, stop := context.WithCancel(context.Background())
	b.server = httptest.NewUnstartedServer(web.Handler(b.config))
	b.server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	b.server.Start()
	b.t.Cleanup(func() { stop(); b.server.Close() })
}

func (b *bench) client(role web.Role) *web.Client {
	return &web.Client{URL: b.server.URL, Token: b.secrets[role]}
}

// folded waits until the projection has seen event seq.
func (b *bench) folded(seq uint64) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(b.t, b.state.Wait(ctx, seq))
}

// answer is a response read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

// send makes one request as admin; header pairs follow the body, and an Authorization among them goes before.
func (b *bench) send(method, path string, body io.Reader, header ...string) answer {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.server.URL+path, body)
	require.NoError(b.t, err)
	r.Header.Set("Authorization", "Bearer "+b.secrets[web.Admin])
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(b.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	return answer{res.StatusCode, res.Header, string(raw)}
}

// problem checks that an answer is a well-formed problem, and returns it.
func (a answer) problem(t *testing.T, status int, kind string) web.Problem {
	t.Helper()
	require.Equal(t, status, a.status, a.body)
	assert.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	var p web.Problem
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	assert.Equal(t, kind, p.Kind())
	assert.Equal(t, status, p.Status)
	assert.Equal(t, http.StatusText(status), p.Title)
	assert.Equal(t, a.header.Get("X-Request-Id"), p.RequestID)
	assert.NotEmpty(t, p.RequestID)
	return p
}

// deadLetter puts a letter into dead_letter.
func (b *bench) deadLetter(payload string) web.Receipt {
	b.t.Helper()
	r, err := b.client(web.Submitter).Fail(b.t.Context(), web.Failure{Stage: chain.StageParse, ErrorType: "schema",
		Channel: chain.MobileExport, Source: "gate-1"}, strings.NewReader(payload))
	require.NoError(b.t, err)
	require.Equal(b.t, chain.DeadLetter, r.Disposition)
	b.folded(r.Seq)
	return r
}

func TestSubmitAndShow(t *testing.T) {
	b := newBench(t)
	c := b.client(web.Submitter)
	payload := `{"vehicle":"unit 7"}`
	first, err := c.Submit(t.Context(), strings.NewReader(payload), web.SubmitOptions{Channel: chain.TelematicsAPI, Source: "gate-1", ContentType: "application/json; q=1"})
	require.NoError(t, err)
	assert.Equal(t, chain.Sum([]byte(payload)), first.PayloadRef)
	assert.Equal(t, chain.Received, first.Disposition)
	assert.Equal(t, chain.LeafHash(b.log.Lines()[first.Seq]), first.LeafHash)
	assert.False(t, first.Known)

	again, err := c.Submit(t.Context(), strings.NewReader(payload), web.SubmitOptions{Channel: chain.TelematicsAPI, Source: "gate-1"})
	require.NoError(t, err)
	assert.True(t, again.Known)
	assert.Equal(t, first.Seq, again.Seq)

	for _, ref := range []string{first.PayloadRef.String(), first.PayloadRef.String()[:8]} {
		l, err := b.client(web.Reviewer).Letter(t.Context(), ref)
		require.NoError(t, err, "a receipt in hand finds its letter at once")
		assert.Equal(t, first.PayloadRef, l.Letter.Ref)
		assert.Equal(t, "application/json", l.Letter.ContentType)
		assert.Equal(t, []web.Submission{{Channel: chain.TelematicsAPI, Source: "gate-1", Seq: first.Seq}}, l.Letter.Submissions)
		require.Len(t, l.Events, 1)
		assert.Equal(t, string(b.log.Lines()[first.Seq]), string(l.Events[0].Event))
		assert.Equal(t, first.LeafHash, l.Events[0].LeafHash)
	}
}

func TestStatusTellsNewFromKnown(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{"/v1/payloads", "/v1/failures?stage=parse&error_type=schema"} {
		body := "payload of " + path
		assert.Equal(t, 201, b.send("POST", path, strings.NewReader(body)).status)
		assert.Equal(t, 200, b.send("POST", path, strings.NewReader(body)).status)
	}
}

func TestSubmitWaits(t *testing.T) {
	b := newBench(t)
	payload := "to be resolved while its sender waits"
	ref := chain.Sum([]byte(payload))
	go func() {
		for changed := b.state.Changed(); ; changed = b.state.Changed() {
			if _, err := b.state.Letter(ref); err == nil {
				break
			}
			<-changed
		}
		job, err := b.queue.Lease(context.Background(), ref, "worker-1", time.Minute)
		if err == nil {
			_, _ = b.queue.FailJob(context.Background(), job, deadletter.Breakdown{Stage: chain.StageParse, Signal: deadletter.Signal{Type: "schema"}})
		}
	}()
	r, err := b.client(web.Submitter).Submit(t.Context(), strings.NewReader(payload), web.SubmitOptions{Wait: 30 * time.Second})
	require.NoError(t, err)
	assert.Equal(t, chain.DeadLetter, r.Disposition)
	assert.Equal(t, chain.Exception, r.Outcome)
	assert.Equal(t, "parse.schema", r.ErrorCode)

	r, err = b.client(web.Submitter).Submit(t.Context(), strings.NewReader("nobody processes this"), web.SubmitOptions{Wait: time.Millisecond})
	require.NoError(t, err, "the receipt holds although the outcome did not come in time")
	assert.Equal(t, chain.Received, r.Disposition)
}

func TestDecisions(t *testing.T) {
	b := newBench(t)
	c := b.client(web.Reviewer)
	dead := b.deadLetter("one that failed")

	r, err := c.Annotate(t.Context(), dead.PayloadRef.String()[:10], web.Annotation{Owner: "desk-2", Tag: "odometer", Note: "ask the terminal"})
	require.NoError(t, err)
	assert.Equal(t, chain.DeadLetter, r.Disposition)
	l, err := c.Letter(t.Context(), dead.PayloadRef.String())
	require.NoError(t, err)
	assert.Equal(t, "desk-2", l.Letter.Owner)
	assert.Equal(t, []string{"odometer"}, l.Letter.Tags)

	page, err := c.Letters(t.Context(), web.Query{Tag: "odometer", Filter: web.Filter{Disposition: []chain.Disposition{chain.DeadLetter}}})
	require.NoError(t, err)
	require.Len(t, page.Letters, 1)

	r, err = c.Replay(t.Context(), dead.PayloadRef.String(), web.Order{Reason: "mapping was corrected"})
	require.NoError(t, err)
	assert.Equal(t, chain.Replayed, r.Disposition)
	l, err = c.Letter(t.Context(), dead.PayloadRef.String())
	require.NoError(t, err)
	assert.Equal(t, chain.Replayed, l.Letter.Disposition, "who decided sees it")
	record, err := chain.Parse(l.Events[len(l.Events)-1].Event)
	require.NoError(t, err)
	assert.Equal(t, "the-reviewer", record.Event.Actor)

	_, err = c.Replay(t.Context(), dead.PayloadRef.String(), web.Order{})
	assertProblem(t, err, 409, web.KindState)

	other := b.deadLetter("another that failed")
	r, err = c.Resolve(t.Context(), other.PayloadRef.String(), "entered by hand")
	require.NoError(t, err)
	assert.Equal(t, chain.Resolved, r.Disposition)
	assert.Equal(t, chain.ByHand, r.Outcome)
}

func assertProblem(t *testing.T, err error, status int, kind string) *web.Problem {
	t.Helper()
	p, ok := errors.AsType[*web.Problem](err)
	require.True(t, ok, "want a problem, got %v", err)
	assert.Equal(t, status, p.Status)
	assert.Equal(t, kind, p.Kind())
	return p
}

func TestListPages(t *testing.T) {
	b := newBench(t)
	for _, p := range []string{"a", "b", "c", "d", "e"} {
		b.deadLetter("payload " + p)
	}
	c := b.client(web.Auditor)
	for _, order := range []string{"oldest", "newest"} {
		var refs []chain.Digest
		q := web.Query{Limit: 2, Order: order, Filter: web.Filter{ErrorCode: "parse.schema", Stage: chain.StageParse, Channel: chain.MobileExport}, Source: "gate-1"}
		for page := 0; page == 0 || q.Cursor != ""; page++ {
			p, err := c.Letters(t.Context(), q)
			require.NoError(t, err)
			for _, l := range p.Letters {
				refs = append(refs, l.Ref)
			}
			q.Cursor = p.Next
			require.Less(t, page, 10)
		}
		require.Len(t, refs, 5)
		first := map[string]string{"oldest": "payload a", "newest": "payload e"}[order]
		assert.Equal(t, chain.Sum([]byte(first)), refs[0])
	}
	none, err := c.Letters(t.Context(), web.Query{Since: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	assert.Empty(t, none.Letters)
	assert.NotNil(t, none.Letters)
}

func TestGroupsAndStats(t *testing.T) {
	b := newBench(t)
	b.deadLetter("x")
	last := b.deadLetter("y")
	groups, err := b.client(web.Reviewer).Groups(t.Context(), web.Filter{})
	require.NoError(t, err)
	require.Len(t, groups, 1)
	assert.Equal(t, uint64(2), groups[0].Count)
	assert.Equal(t, "parse.schema", groups[0].ErrorCode)

	s, err := b.client(web.Auditor).Stats(t.Context(), false)
	require.NoError(t, err)
	assert.Equal(t, last.Seq+1, s.Events)
	assert.Equal(t, last.LeafHash, s.Leaf)
	assert.Equal(t, b.queue.LogID(), s.LogID)
	assert.Equal(t, uint64(2), s.Letters[chain.DeadLetter])
	assert.Nil(t, s.Fingerprint)

	s, err = b.client(web.Auditor).Stats(t.Context(), true)
	require.NoError(t, err)
	want, _, err := b.state.Fingerprint(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, s.Fingerprint.SHA256)
}

func TestAmbiguousReference(t *testing.T) {
	b := newBench(t)
	one, two := collision(t)
	b.deadLetter(one)
	b.deadLetter(two)
	prefix := chain.Sum([]byte(one)).String()[:8]
	b.send("GET", "/v1/letters/"+prefix, nil).problem(t, 409, web.KindAmbiguous)
	_, err := b.client(web.Admin).Letter(t.Context(), chain.Sum([]byte(two)).String())
	assert.NoError(t, err)
}

// collision finds two payloads whose references begin alike; about 2^16 tries by the birthday rule.
func collision(t *testing.T) (string, string) {
	seen := map[[4]byte]int{}
	for i := range 1 << 20 {
		d := chain.Sum([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
		if j, ok := seen[[4]byte(d[:4])]; ok {
			return string([]byte{byte(j), byte(j >> 8), byte(j >> 16)}), string([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
		}
		seen[[4]byte(d[:4])] = i
	}
	t.Fatal("no collision")
	return "", ""
}

func TestHealthReadyDescription(t *testing.T) {
	var notReady error
	var mu sync.Mutex
	b := newBench(t, func(c *web.Config) {
		c.Ready = func(context.Context) error { mu.Lock(); defer mu.Unlock(); return notReady }
	})
	assert.Equal(t, 200, b.send("GET", "/healthz", nil, "Authorization", "").status)
	assert.Equal(t, 200, b.send("GET", "/readyz", nil, "Authorization", "").status)
	mu.Lock()
	notReady = errors.New("the log has no leader")
	mu.Unlock()
	a := b.send("GET", "/readyz", nil, "Authorization", "")
	a.problem(t, 503, web.KindNotReady)
	assert.NotContains(t, a.body, "leader")
	assert.Contains(t, b.logs.String(), "leader")
	assert.Equal(t, "1", a.header.Get("Retry-After"))

	a = b.send("GET", "/openapi.json", nil, "Authorization", "")
	require.Equal(t, 200, a.status)
	var spec struct {
		OpenAPI string                    `json:"openapi"`
		Paths   map[string]map[string]any `json:"paths"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &spec))
	assert.Equal(t, "3.1.0", spec.OpenAPI)
	assert.NotContains(t, a.body, "http://", "nothing from elsewhere")
	assert.NotContains(t, a.body, "https://")
	body := spec.Paths["/v1/failures"]["post"].(map[string]any)["requestBody"].(map[string]any)["content"].(map[string]any)
	assert.Contains(t, body, "multipart/form-data")
	assert.Contains(t, body, "application/json")
	for path, operations := range spec.Paths {
		for method, operation := range operations {
			answers := operation.(map[string]any)["responses"].(map[string]any)
			if assert.Contains(t, answers, "default", method+" "+path) {
				assert.Contains(t, answers["default"].(map[string]any)["content"], "application/problem+json", method+" "+path)
			}
		}
	}
	for _, path := range []string{"/docs", "/schemas/Letter.json", "/openapi.yaml", "/openapi-3.0.json"} {
		assert.Equal(t, 404, b.send("GET", path, nil).status, path)
	}
}

func TestSecurityHeaders(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{"/healthz", "/nowhere", "/v1/stats"} {
		h := b.send("GET", path, nil).header
		assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), path)
		assert.Equal(t, "no-store", h.Get("Cache-Control"), path)
		assert.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'", path)
	}
}
