package web_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

func TestLinesAreExact(t *testing.T) {
	b := newBench(t)
	b.deadLetter("one")
	r := b.deadLetter("two")
	_, err := b.client(web.Admin).Annotate(t.Context(), r.PayloadRef.String(), web.Annotation{Note: "<&> \u2028 ünïcode"})
	require.NoError(t, err)
	want := append(chain.JoinLines(b.log.Lines()), '\n')
	for _, path := range []string{"/v1/events", "/v1/events?after=-1&limit=100", "/v1/log/entries"} {
		a := b.send("GET", path, nil)
		assert.Equal(t, "application/x-ndjson", a.header.Get("Content-Type"))
		assert.Equal(t, string(want), a.body, path)
	}
	for _, path := range []string{"/v1/events?after=0&limit=1", "/v1/log/entries?after=0&limit=1"} {
		assert.Equal(t, string(b.log.Lines()[1])+"\n", b.send("GET", path, nil).body, path)
	}
	assert.Empty(t, b.send("GET", "/v1/events?after=1000", nil).body)

	var got [][]byte
	for line, err := range b.client(web.Auditor).Entries(t.Context(), -1) {
		require.NoError(t, err)
		got = append(got, bytes.Clone(line))
	}
	assert.Equal(t, b.log.Lines(), got)
}

func TestLongPoll(t *testing.T) {
	b := newBench(t)
	last := b.deadLetter("before")
	polled := make(chan string, 1)
	go func() {
		for line, err := range b.client(web.Auditor).Events(context.Background(), int64(last.Seq), 10, time.Minute) {
			if err == nil {
				polled <- string(line)
				return
			}
		}
		polled <- ""
	}()
	r := b.deadLetter("after")
	assert.Equal(t, string(b.log.Lines()[r.Seq]), <-polled)

	assert.Empty(t, b.send("GET", "/v1/events?after=100&wait=1ms", nil).body, "an empty page when nothing comes")
}

func TestServerSentEvents(t *testing.T) {
	b := newBench(t)
	b.deadLetter("before")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seq := uint64(0)
	for line, err := range b.client(web.Auditor).Follow(ctx, -1) {
		require.NoError(t, err)
		assert.Equal(t, string(b.log.Lines()[seq]), string(line))
		if seq++; seq == 2 {
			b.deadLetter("while following")
		}
		if seq == 3 {
			break
		}
	}
	assert.Equal(t, uint64(3), seq)

	r, err := http.NewRequestWithContext(ctx, "GET", b.server.URL+"/v1/events", nil)
	require.NoError(t, err)
	r.Header = http.Header{"Accept": {"text/event-stream"}, "Last-Event-Id": {"1"}, "Authorization": {"Bearer " + b.secrets[web.Admin]}}
	res, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	defer res.Body.Close()
	assert.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	want := "id: 2\ndata: " + string(b.log.Lines()[2]) + "\n\n"
	got := make([]byte, len(want))
	_, err = io.ReadFull(res.Body, got)
	require.NoError(t, err)
	assert.Equal(t, want, string(got))

	b.send("GET", "/v1/events", nil, "Accept", "text/event-stream", "Last-Event-ID", canary).problem(t, 422, web.KindInvalid)
}

// payloads of both roads: verified before the first byte, and while they are sent.
func payloads() map[string][]byte {
	large := make([]byte, 700<<10)
	rand.Read(large)
	return map[string][]byte{"empty": {}, "small": []byte("\x00\xff<script>"), "large": large}
}

func TestPayload(t *testing.T) {
	for name, payload := range payloads() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r, err := b.client(web.Submitter).Submit(t.Context(), bytes.NewReader(payload), web.SubmitOptions{ContentType: "text/html"})
			require.NoError(t, err)
			a := b.send("GET", "/v1/letters/"+r.PayloadRef.String()[:12]+"/payload?reason=odometer", nil)
			require.Equal(t, 200, a.status)
			assert.Equal(t, string(payload), a.body)
			assert.Equal(t, "application/octet-stream", a.header.Get("Content-Type"))
			assert.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
			assert.True(t, strings.HasPrefix(a.header.Get("Content-Disposition"), "attachment"))
			lines := b.log.Lines()
			record, err := chain.Parse(lines[len(lines)-1])
			require.NoError(t, err)
			assert.Equal(t, chain.TypePayloadRead, record.Event.Type)
			assert.Equal(t, "the-admin", record.Event.Actor)
			assert.Equal(t, "odometer", record.Event.Reason)

			body, err := b.client(web.Auditor).Payload(t.Context(), r.PayloadRef.String(), "again")
			require.NoError(t, err)
			got, err := io.ReadAll(body)
			require.NoError(t, err)
			assert.Equal(t, payload, got)
		})
	}
}

// TestDamagedPayload flips the last byte, the worst case for a stream: all but it were sent as good.
func TestDamagedPayload(t *testing.T) {
	for name, payload := range payloads() {
		if name == "empty" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r, err := b.client(web.Submitter).Submit(t.Context(), bytes.NewReader(payload), web.SubmitOptions{})
			require.NoError(t, err)
			b.folded(r.Seq)
			damaged := bytes.Clone(payload)
			damaged[len(damaged)-1] ^= 1
			ref := blob.Ref{Digest: r.PayloadRef, Version: "mem-1"}
			require.NoError(t, b.backend.Tamper(ref, damaged))
			l, err := b.state.Letter(r.PayloadRef)
			require.NoError(t, err)
			require.Equal(t, ref.Version, l.BlobVersion)

			body, err := b.client(web.Auditor).Payload(t.Context(), r.PayloadRef.String(), "")
			assertProblem(t, err, 422, web.KindInvalid)
			require.Nil(t, body)
			body, err = b.client(web.Auditor).Payload(t.Context(), r.PayloadRef.String()[:16], "7")
			if err == nil {
				var got []byte
				got, err = io.ReadAll(body)
				assert.Less(t, len(got), len(payload))
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
			} else {
				assertProblem(t, err, 500, web.KindDamaged)
			}
			assert.Equal(t, name == "large", err != nil && strings.Contains(err.Error(), "unexpected EOF"))
			assert.Contains(t, b.logs.String(), "request failed")
		})
	}
}

func TestMissingPayload(t *testing.T) {
	b := newBench(t)
	r := b.deadLetter("to go missing")
	b.backend.Remove(blob.Ref{Digest: r.PayloadRef})
	_, err := b.client(web.Auditor).Payload(t.Context(), r.PayloadRef.String(), "7")
	assertProblem(t, err, 500, web.KindDamaged)
}
