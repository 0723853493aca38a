package web_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

// canary is a value that no answer and no log line may repeat.
const canary = "CANARY4711value"

func TestRefusals(t *testing.T) {
	b := newBench(t)
	ref := b.deadLetter("a payload").PayloadRef.String()
	long := strings.Repeat("x", 600)
	for _, c := range []struct {
		method, path, body, contentType string
		status                          int
		kind, field                     string
	}{
		{"GET", "/v1/letters/" + canary, "", "", 422, web.KindInvalid, "ref"},
		{"GET", "/v1/letters/abc", "", "", 422, web.KindInvalid, "ref"},
		{"GET", "/v1/letters/" + strings.ToUpper(ref), "", "", 422, web.KindInvalid, "ref"},
		{"GET", "/v1/letters/" + strings.Repeat("0", 64), "", "", 404, web.KindNotFound, ""},
		{"GET", "/v1/letters/" + ref + "/" + canary, "", "", 404, web.KindNotFound, ""},
		{"GET", "/v1/letters/", "", "", 404, web.KindNotFound, ""},
		{"GET", "//v1/letters", "", "", 404, web.KindNotFound, ""},
		{"GET", "/" + canary, "", "", 404, web.KindNotFound, ""},
		{"DELETE", "/v1/letters", "", "", 405, web.KindMethod, ""},
		{"GET", "/v1/payloads", "", "", 405, web.KindMethod, ""},
		{"GET", "/v1/letters?limit=501", "", "", 422, web.KindInvalid, "limit"},
		{"GET", "/v1/letters?limit=0", "", "", 422, web.KindInvalid, "limit"},
		{"GET", "/v1/letters?limit=-1", "", "", 422, web.KindInvalid, "limit"},
		{"GET", "/v1/letters?limit=" + canary, "", "", 422, web.KindInvalid, "limit"},
		{"GET", "/v1/letters?limit=99999999999999999999", "", "", 422, web.KindInvalid, "limit"},
		{"GET", "/v1/letters?cursor=" + canary, "", "", 422, web.KindInvalid, "cursor"},
		{"GET", "/v1/letters?disposition=" + canary, "", "", 422, web.KindInvalid, "disposition[0]"},
		{"GET", "/v1/letters?error_code=" + canary, "", "", 422, web.KindInvalid, "error_code"},
		{"GET", "/v1/letters?since=" + canary, "", "", 422, web.KindInvalid, "since"},
		{"GET", "/v1/letters?order=" + canary, "", "", 422, web.KindInvalid, "order"},
		{"GET", "/v1/letters?" + canary + "=1", "", "", 422, web.KindInvalid, "query"},
		{"GET", "/v1/groups?tag=x", "", "", 422, web.KindInvalid, "query"},
		{"GET", "/v1/stats?fingerprint=" + canary, "", "", 422, web.KindInvalid, "fingerprint"},
		{"GET", "/v1/events?after=-2", "", "", 422, web.KindInvalid, "after"},
		{"GET", "/v1/events?limit=10001", "", "", 422, web.KindInvalid, "limit"},
		{"GET", "/v1/events?wait=" + canary, "", "", 422, web.KindInvalid, "wait"},
		{"GET", "/v1/events?wait=61s", "", "", 422, web.KindInvalid, "wait"},
		{"GET", "/v1/letters/" + ref + "/payload", "", "", 422, web.KindInvalid, "reason"},
		{"POST", "/v1/payloads?wait=-1s", "x", "", 422, web.KindInvalid, "wait"},
		{"POST", "/v1/payloads?channel=" + canary, "x", "", 422, web.KindInvalid, "channel"},
		{"POST", "/v1/payloads?source=%20" + canary, "x", "", 422, web.KindInvalid, "source"},
		{"POST", "/v1/payloads", "x", canary, 422, web.KindInvalid, "content_type"},
		{"POST", "/v1/letters/" + ref + "/replay", `{"reason":1}`, "application/json", 422, web.KindInvalid, "/reason"},
		{"POST", "/v1/letters/" + ref + "/replay", `{"` + canary + `":1}`, "application/json", 422, web.KindInvalid, "body"},
		{"POST", "/v1/letters/" + ref + "/replay", `{"reason":` + canary, "application/json", 400, web.KindInvalid, ""},
		{"POST", "/v1/letters/" + ref + "/replay", `{"reason":"a","reason":"` + canary + `"}`, "application/json", 400, web.KindInvalid, ""},
		{"POST", "/v1/letters/" + ref + "/replay", `{"reason":"a","Reason":"` + canary + `"}`, "application/json", 400, web.KindInvalid, ""},
		{"POST", "/v1/letters/" + ref + "/resolve", `{"reason":"` + canary + `","r\u0065ason":"b"}`, "application/json", 400, web.KindInvalid, ""},
		{"POST", "/v1/letters/" + ref + "/annotations", `{"note":"` + canary + `","owner":"x","note":"b"}`, "application/json", 400, web.KindInvalid, ""},
		{"POST", "/v1/failures", `{"payload_ref":"` + ref + `","stage":"parse","stage":"ingest"}`, "application/json", 422, web.KindInvalid, "body"},
		{"POST", "/v1/letters/" + ref + "/replay", ``, "application/json", 400, web.KindInvalid, ""},
		{"POST", "/v1/letters/" + ref + "/replay", `{}`, "text/" + canary, 415, web.KindInvalid, ""},
		{"POST", "/v1/letters/" + ref + "/replay", `{"override":true}`, "application/json", 422, web.KindInvalid, "reason"},
		{"POST", "/v1/letters/" + ref + "/replay", strings.Repeat(" ", 64<<10+1), "application/json", 413, web.KindTooLarge, ""},
		{"POST", "/v1/letters/" + ref + "/resolve", `{}`, "application/json", 422, web.KindInvalid, "body"},
		{"POST", "/v1/letters/" + ref + "/resolve", `{"reason":"` + long + `"}`, "application/json", 422, web.KindInvalid, "/reason"},
		{"POST", "/v1/letters/" + ref + "/annotations", `{}`, "application/json", 422, web.KindInvalid, "annotation"},
		{"POST", "/v1/letters/" + ref + "/annotations", `{"owner":"` + canary + ` x"}`, "application/json", 422, web.KindInvalid, "owner"},
		{"POST", "/v1/failures", canary, "text/plain", 422, web.KindInvalid, "stage"},
		{"POST", "/v1/failures?stage=" + canary, "x", "", 422, web.KindInvalid, "stage"},
		{"POST", "/v1/failures?stage=parse&http_status=99", "x", "", 422, web.KindInvalid, "http_status"},
		{"POST", "/v1/failures?stage=parse&error_code=" + canary, "x", "", 422, web.KindInvalid, "error_code"},
		{"POST", "/v1/failures?stage=parse&payload_ref=" + ref, "x", "", 422, web.KindInvalid, "payload_ref"},
		{"POST", "/v1/failures?stage=parse&payload_ref=" + strings.Repeat("1", 64), "", "", 404, web.KindNotFound, ""},
		{"POST", "/v1/failures", `{"vehicle":"` + canary + `"}`, "application/json", 422, web.KindInvalid, "body"},
		{"POST", "/v1/failures", `{"stage":"parse"}`, "application/json", 422, web.KindInvalid, "payload_ref"},
		{"POST", "/v1/failures", "x", "multipart/form-data", 422, web.KindInvalid, "multipart"},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			tip := len(b.log.Lines())
			a := b.send(c.method, c.path, strings.NewReader(c.body), "Content-Type", c.contentType)
			p := a.problem(t, c.status, c.kind)
			var fields []string
			for _, f := range p.Fields {
				fields = append(fields, f.Name)
				assert.NotEmpty(t, f.Rule)
			}
			if c.field != "" {
				assert.Equal(t, []string{c.field}, fields)
			}
			assert.NotContains(t, a.body, canary)
			assert.Len(t, b.log.Lines(), tip, "nothing was recorded")
		})
	}
	assert.NotContains(t, b.logs.String(), canary)
}

func TestFaultsBecomeProblems(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		status int
		kind   string
	}{
		{"full", blob.ErrNoSpace, 507, web.KindFull},
		{"read-only", blob.ErrReadOnly, 503, web.KindReadOnly},
		{"unknown", errors.New("the disk hums"), 500, web.KindInternal},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.backend.Fail = func(string, chain.Digest) error { return c.err }
			a := b.send("POST", "/v1/payloads?source=gate-1", strings.NewReader(canary))
			p := a.problem(t, c.status, c.kind)
			assert.NotContains(t, a.body, "hums")
			logged := b.logs.String()
			assert.Equal(t, 1, strings.Count(logged, "request failed"))
			assert.Contains(t, logged, "request_id="+p.RequestID)
			assert.Contains(t, logged, "route=/v1/payloads")
			assert.NotContains(t, logged, "gate-1")
			assert.NotContains(t, logged, canary)
		})
	}
}

func TestLogThatFails(t *testing.T) {
	b := newBench(t)
	r := b.deadLetter("before")
	b.log.Fail = func([][]byte) (bool, error) { return false, errors.New("no leader") }
	a := b.send("POST", "/v1/payloads", strings.NewReader("after"))
	a.problem(t, 503, web.KindUnavailable)
	assert.Equal(t, "1", a.header.Get("Retry-After"))
	_, err := b.client(web.Reviewer).Letter(t.Context(), r.PayloadRef.String())
	assert.NoError(t, err, "reading goes on")
}

func TestTC06PayloadLimit(t *testing.T) {
	b := newBench(t)
	form := "--B\r\nContent-Disposition: form-data; name=\"stage\"\r\n\r\nparse\r\n--B\r\nContent-Disposition: form-data; name=\"payload\"\r\n\r\n%\r\n--B--\r\n"
	for path, wrap := range map[string]string{"/v1/payloads": "%", "/v1/failures?stage=parse": "%", "/v1/failures": form} {
		exact := strings.Replace(wrap, "%", strings.Repeat("a", limit), 1)
		over := strings.Replace(wrap, "%", strings.Repeat("b", limit+1), 1)
		kind := "multipart/form-data; boundary=B"
		// readers of unknown length: no Content-Length gives the size away
		a := b.send("POST", path, io.MultiReader(strings.NewReader(exact)), "Content-Type", kind)
		assert.Less(t, a.status, 300, path+a.body)
		tip := len(b.log.Lines())
		p := b.send("POST", path, io.MultiReader(strings.NewReader(over)), "Content-Type", kind).problem(t, 413, web.KindTooLarge)
		assert.Contains(t, p.Detail, "1048576 bytes")
		assert.Len(t, b.log.Lines(), tip)
	}
	assert.Equal(t, 201, b.send("POST", "/v1/payloads", nil).status, "nothing is a payload too")
}

func TestBrokenUpload(t *testing.T) {
	b := newBench(t)
	tip := len(b.log.Lines())
	for _, path := range []string{"/v1/payloads", "/v1/failures?stage=parse"} {
		conn, err := net.Dial("tcp", b.server.Listener.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+b.secrets[web.Admin]+"\r\nContent-Length: 100\r\n\r\nhalf")
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		raw, _ := io.ReadAll(conn)
		assert.True(t, bytes.HasPrefix(raw, []byte("HTTP/1.1 400")) || len(raw) == 0, string(raw))
		conn.Close()
	}
	assert.Len(t, b.log.Lines(), tip, "half a payload is none")
}

func TestPanicIsAProblem(t *testing.T) {
	b := newBench(t, func(c *web.Config) {
		c.Ready = func(context.Context) error { panic(canary) }
	})
	a := b.send("GET", "/readyz", nil)
	a.problem(t, 500, web.KindInternal)
	assert.NotContains(t, a.body, canary)
	assert.Contains(t, b.logs.String(), "request panicked")
	assert.NotContains(t, b.logs.String(), canary)
}
