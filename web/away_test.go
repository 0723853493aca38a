package web_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

// told counts the lines that a server logs above the level debug.
func (b *bench) told() (lines int) {
	for line := range strings.Lines(b.logs.String()) {
		if !strings.Contains(line, "level=DEBUG") {
			lines++
		}
	}
	return lines
}

// TestStoreAway: while the payload store is away, whatever needs it is refused for now, without a line for each, and
// nothing is recorded; when it is back, the repeated request is taken once.
func TestStoreAway(t *testing.T) {
	b := newBench(t, func(c *web.Config) {
		c.Ready = func(context.Context) error { return nil }
	})
	ref := b.deadLetter("there before").PayloadRef.String()
	before, told := len(b.log.Lines()), b.told()
	submissions := []string{"/v1/payloads", "/v1/failures?stage=parse&error_type=schema"}
	b.backend.Away(true)
	for range 20 {
		for _, path := range submissions {
			a := b.send("POST", path, strings.NewReader("payload of "+path))
			p := a.problem(t, http.StatusServiceUnavailable, web.KindUnavailable)
			assert.Equal(t, "5", a.header.Get("Retry-After"))
			assert.Contains(t, p.Detail, "the payload store does not answer")
		}
		a := b.send("POST", "/v1/payloads", strings.NewReader(strings.Repeat("long ", 100<<10)))
		a.problem(t, http.StatusServiceUnavailable, web.KindUnavailable)
	}
	assert.Len(t, b.log.Lines(), before, "nothing is recorded of what was refused")
	a := b.send("GET", "/v1/letters/"+ref+"/payload?reason=look", nil)
	a.problem(t, http.StatusServiceUnavailable, web.KindUnavailable)
	assert.Equal(t, "5", a.header.Get("Retry-After"))
	assert.Equal(t, http.StatusOK, b.send("GET", "/v1/letters/"+ref, nil).status, "what needs no payload goes on")
	assert.Equal(t, http.StatusOK, b.send("GET", "/healthz", nil).status)
	assert.Equal(t, told, b.told(), b.logs.String())

	b.backend.Away(false)
	before = len(b.log.Lines())
	for _, path := range submissions {
		assert.Equal(t, http.StatusCreated, b.send("POST", path, strings.NewReader("payload of "+path)).status)
		assert.Equal(t, http.StatusOK, b.send("POST", path, strings.NewReader("payload of "+path)).status)
	}
	assert.Len(t, b.log.Lines(), before+len(submissions))
	a = b.send("GET", "/v1/letters/"+ref+"/payload?reason=look", nil)
	require.Equal(t, http.StatusOK, a.status)
	assert.Equal(t, ref, chain.Sum([]byte(a.body)).String())
}

// TestStoreFull: a full store is answered with the hint to come back, without a line for each.
func TestStoreFull(t *testing.T) {
	b := newBench(t)
	told := b.told()
	b.backend.Fail = func(op string, _ chain.Digest) error {
		if op == "put" {
			return blob.ErrNoSpace
		}
		return nil
	}
	for range 20 {
		a := b.send("POST", "/v1/payloads", strings.NewReader("payload"))
		a.problem(t, http.StatusInsufficientStorage, web.KindFull)
		assert.Equal(t, "30", a.header.Get("Retry-After"))
	}
	assert.Equal(t, told, b.told(), b.logs.String())
}

// TestNotReadyWhileStoreIsAway: who asks without a token learns the fact alone, and the log is not filled by probes.
func TestNotReadyWhileStoreIsAway(t *testing.T) {
	var b *bench
	b = newBench(t, func(c *web.Config) {
		c.Ready = func(context.Context) error { return b.backend.Healthy() }
	})
	for range 3 {
		assert.Equal(t, http.StatusOK, b.send("GET", "/readyz", nil).status)
		b.backend.Away(true)
		a := b.send("GET", "/readyz", nil)
		a.problem(t, http.StatusServiceUnavailable, web.KindNotReady)
		assert.NotEmpty(t, a.header.Get("Retry-After"))
		b.backend.Away(false)
	}
	assert.Zero(t, b.told(), b.logs.String())
}

// TestMetricsNeedNoToken: the page is what the program gives, and a page of its own is no problem of ours.
func TestMetricsNeedNoToken(t *testing.T) {
	b := newBench(t, func(c *web.Config) {
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = w.Write([]byte("holdfast_store_up 1\n"))
		})
	})
	a := b.send("GET", "/metrics", nil, "Authorization", "")
	require.Equal(t, http.StatusOK, a.status)
	assert.Equal(t, "holdfast_store_up 1\n", a.body)
	assert.Equal(t, "text/plain; version=0.0.4", a.header.Get("Content-Type"))
	b.send("POST", "/metrics", nil).problem(t, http.StatusMethodNotAllowed, web.KindMethod)
}
