package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

// envelope is the last failure recorded.
func (b *bench) envelope() *chain.Envelope {
	b.t.Helper()
	lines := b.log.Lines()
	r, err := chain.Parse(lines[len(lines)-1])
	require.NoError(b.t, err)
	require.NotNil(b.t, r.Event.Envelope)
	return r.Event.Envelope
}

func form(parts ...string) string {
	var s strings.Builder
	for i := 0; i < len(parts); i += 2 {
		s.WriteString("--B\r\nContent-Disposition: form-data; name=\"" + parts[i] + "\"\r\n\r\n" + parts[i+1] + "\r\n")
	}
	return s.String() + "--B--\r\n"
}

const formType = "multipart/form-data; boundary=B"

func TestFormsOfFailure(t *testing.T) {
	seen := "2026-03-02T06:30:00Z"
	for name, send := range map[string]func(b *bench) answer{
		"raw": func(b *bench) answer {
			return b.send("POST", "/v1/failures?stage=dispatch&http_status=503&retry_after=120&attempt=2&channel=ocr_document&source=gate-1&first_seen="+seen,
				strings.NewReader("=41 bytes"), "Content-Type", "text/plain", "Holdfast-Error-Message", "upstream is away")
		},
		"multipart": func(b *bench) answer {
			return b.send("POST", "/v1/failures", strings.NewReader(form("stage", "dispatch", "http_status", "503", "retry_after", "120", "attempt", "2",
				"channel", "ocr_document", "source", "gate-1", "first_seen", seen, "content_type", "text/plain", "message", "upstream is away",
				"payload", "=41 bytes")), "Content-Type", formType)
		},
		"json": func(b *bench) answer {
			require.Equal(b.t, 201, b.send("POST", "/v1/payloads?channel=ocr_document&source=gate-1", strings.NewReader("=41 bytes")).status)
			return b.send("POST", "/v1/failures", strings.NewReader(`{"payload_ref":"`+chain.Sum([]byte("=41 bytes")).String()+
				`","stage":"dispatch","http_status":503,"retry_after":"120","attempt":2,"source":"gate-1","message":"upstream is away"}`),
				"Content-Type", "application/json")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			a := send(b)
			require.Equal(t, 201, a.status, a.body)
			env := b.envelope()
			assert.Equal(t, chain.Sum([]byte("=41 bytes")), env.PayloadRef, "no decoding, whatever the form")
			assert.Equal(t, chain.Retrying, env.Disposition)
			assert.Equal(t, "dispatch.http_503", env.ErrorCode)
			assert.Equal(t, uint64(2), env.Attempt)
			assert.Equal(t, chain.OCRDocument, env.Channel)
			assert.Equal(t, "gate-1", env.Source)
			assert.Equal(t, "upstream is away", env.LastError)
			assert.False(t, env.ErrorRef.IsZero())
			assert.Contains(t, a.body, `"next_attempt_at"`)
			if name != "json" {
				assert.Equal(t, seen, env.FirstSeen.Format(time.RFC3339))
			}
		})
	}
}

func TestClientFails(t *testing.T) {
	b := newBench(t)
	c := b.client(web.Worker)
	f := web.Failure{Stage: chain.StageDispatch, HTTPStatus: 400, Attempt: 3, FirstSeen: time.Date(2026, 3, 2, 6, 30, 0, 0, time.UTC),
		ContentType: "application/json", Message: "line one\nline two"}
	r, err := c.Fail(t.Context(), f, strings.NewReader(`{"a":1}`))
	require.NoError(t, err)
	assert.Equal(t, chain.DeadLetter, r.Disposition)
	env := b.envelope()
	assert.Equal(t, "dispatch.http_4xx", env.ErrorCode)
	assert.Equal(t, f.FirstSeen, env.FirstSeen)

	f.PayloadRef, f.ContentType, f.HTTPStatus = r.PayloadRef.String(), "", 422
	r, err = c.Fail(t.Context(), f, nil)
	require.NoError(t, err)
	assert.Equal(t, "dispatch.http_422", r.ErrorCode)
}

func TestMultipartRefusals(t *testing.T) {
	b := newBench(t)
	tip := len(b.log.Lines())
	for name, c := range map[string]struct{ body, kind, field string }{
		"field after the payload": {form("stage", "parse", "payload", "x", "source", "gate"), web.KindInvalid, "payload"},
		"field twice":             {form("stage", "parse", "stage", "parse", "payload", "x"), web.KindInvalid, "multipart"},
		"unknown field":           {form("stage", "parse", canary, "1", "payload", "x"), web.KindInvalid, "multipart"},
		"no payload":              {form("stage", "parse"), web.KindInvalid, "payload"},
		"no number":               {form("stage", "parse", "http_status", canary, "payload", "x"), web.KindInvalid, "http_status"},
		"no time":                 {form("stage", "parse", "first_seen", canary, "payload", "x"), web.KindInvalid, "first_seen"},
		"unknown stage":           {form("stage", canary, "payload", "x"), web.KindInvalid, "stage"},
		"long field":              {form("source", strings.Repeat("x", 5<<10), "payload", "x"), web.KindInvalid, "multipart"},
		"many fields":             {form(strings.Split(strings.Repeat("message,x,", 40), ",")[:80]...), web.KindInvalid, "multipart"},
		"bad header":              {"--B\r\n" + canary + "\r\n\r\nx\r\n--B--\r\n", web.KindInvalid, "multipart"},
		"cut in the payload":      {strings.TrimSuffix(form("stage", "parse", "payload", "x"), "\r\n--B--\r\n"), web.KindUpload, ""},
		"cut in a field":          {"--B\r\nContent-Disposition: form-data; name=\"stage\"\r\n\r\npar", web.KindUpload, ""},
	} {
		t.Run(name, func(t *testing.T) {
			status := 422
			if c.kind == web.KindUpload {
				status = 400
			}
			a := b.send("POST", "/v1/failures", strings.NewReader(c.body), "Content-Type", formType)
			p := a.problem(t, status, c.kind)
			if c.field != "" {
				require.Len(t, p.Fields, 1)
				assert.Equal(t, c.field, p.Fields[0].Name)
			}
			assert.NotContains(t, a.body, canary)
			assert.Len(t, b.log.Lines(), tip, "nothing was recorded")
		})
	}
	assert.NotContains(t, b.logs.String(), canary)
}
