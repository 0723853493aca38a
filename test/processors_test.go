package test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/process"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// warehouse is a server that letters are delivered to. It keeps what it got, by Idempotency-Key.
type warehouse struct {
	mu   sync.Mutex
	got  map[string][]string
	down bool
}

func (w *warehouse) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	body, _ := io.ReadAll(in.Body)
	secret, _ := process.ParseSecret(webhookSecret)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch err := process.Verify(in.Header, []process.Secret{secret}, time.Now(), body); {
	case err != nil:
		out.WriteHeader(http.StatusUnauthorized)
	case w.down:
		out.WriteHeader(http.StatusServiceUnavailable)
	default:
		key := in.Header.Get("Idempotency-Key")
		w.got[key] = append(w.got[key], string(body))
		_, _ = io.WriteString(out, `{"stored":true}`)
	}
}

func (w *warehouse) set(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

// configure writes a file of processors.
func configure(t *testing.T, text string, args ...any) (path string) {
	path = filepath.Join(t.TempDir(), "processors.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, text, args...), 0o600))
	return path
}

// TestProcessors: letters take their routes to a program, to a server and to the built-in processor, and a server that is
// down holds up nobody else's.
func TestProcessors(t *testing.T) {
	w := &warehouse{got: map[string][]string{}}
	w.set(true)
	target := httptest.NewServer(w)
	defer target.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(webhookSecret+"\n"), 0o600))
	s := serve(t, t.TempDir(), "--processors", configure(t, `
processors:
  - name: ocr
    kind: exec
    command: [sh, -c, 'read word; case $word in read*) echo "{\"text\":\"$word\"}";; bad*) exit 65;; *) kill -SEGV $$;; esac']
    memory: 64MiB
    wall: 10s
  - {name: warehouse, kind: http, url: "%s", secret_files: [%s], timeout: 5s, workers: 2}
routes:
  - {content_type: image/*, processor: ocr}
  - {channel: telematics_api, processor: warehouse}
`, target.URL, secret))
	submit := func(channel, contentType string, body string) chain.Digest {
		status, answer, err := s.do(t.Context(), http.MethodPost, "/v1/payloads?channel="+channel, contentType, []byte(body))
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, status, string(answer))
		return chain.Sum([]byte(body))
	}
	var waiting []chain.Digest
	for i := range 20 {
		waiting = append(waiting, submit("telematics_api", "application/json", fmt.Sprintf(`{"n":%d}`, i)))
	}
	read, bad, crash := submit("ocr_document", "image/png", "read it\n"), submit("ocr_document", "image/png", "bad one\n"), submit("ocr_document", "image/tiff", "crash\n")
	own := submit("mobile_export", "application/json", string(report("own")))
	assert.False(t, s.until(read, chain.Resolved).RecordRef.IsZero())
	assert.Equal(t, "parse.exit_dataerr", s.until(bad, chain.DeadLetter).Failure.ErrorCode)
	assert.Equal(t, "parse.crash", s.until(crash, chain.Poison).Failure.ErrorCode)
	s.until(own, chain.Resolved)
	require.Eventually(t, func() bool { return s.metric(`holdfast_processor_up{processor="warehouse"}`) == "0" }, time.Minute, 10*time.Millisecond)
	assert.Equal(t, "1", s.metric(`holdfast_processor_up{processor="ocr"}`))
	require.Eventually(t, func() bool { // but for a moment, while one of them is the probe
		return s.metric(`holdfast_processor_waiting_letters{processor="warehouse"}`) == "20"
	}, time.Minute, 10*time.Millisecond)

	w.set(false)
	for _, ref := range waiting {
		require.LessOrEqual(t, s.until(ref, chain.Resolved).Attempt, uint64(3))
	}
	require.Len(t, w.got, len(waiting))
	for _, bodies := range w.got {
		require.Len(t, bodies, 1)
	}
	s.stop()
	assert.Equal(t, 1, strings.Count(s.log.String(), "its letters wait"))
	assert.Equal(t, 1, strings.Count(s.log.String(), "its letters go on"))
}

// metric is the value of a series.
func (s *server) metric(series string) string {
	_, page, err := s.do(s.t.Context(), http.MethodGet, "/metrics", "", nil)
	require.NoError(s.t, err)
	_, rest, _ := strings.Cut(string(page), "\n"+series+" ")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

// TestProcessorsFileIsChecked: what is wrong is named, and values are not repeated: there may be secrets among them.
func TestProcessorsFileIsChecked(t *testing.T) {
	for says, file := range map[string]string{
		"line 2: there is no member colour":        "processors:\n- {name: a, colour: red}",
		"line 2: a value is not of the right form": "processors:\n- {name: a, kind: exec, workers: hunter2}",
		"line 3: a value is not of the right form": "processors:\n- name: a\n  memory: hunter2",
		"is not YAML": "processors: [",
		"processor 2: kind: must be builtin, exec, http or pull":          "processors:\n- {name: a, kind: ftp}",
		"processor 2: name: must be":                                      "processors:\n- {name: a/b, kind: exec}",
		"processor 2: kind: is builtin for the processor of that name":    "processors:\n- {name: other, kind: builtin}",
		"processor 3: name: is taken by another one":                      "processors:\n- {name: a, kind: pull}\n- {name: a, kind: pull}",
		"processor 2: url: is no member of a processor of this kind":      "processors:\n- {name: a, kind: exec, url: http://x}",
		"processor 2: cpu: must be whole seconds":                         "processors:\n- {name: a, kind: exec, cpu: 100ms}",
		"processor 2: wall: must be positive and at most 1h":              "processors:\n- {name: a, kind: exec, wall: 2h}",
		"processor 2: rate: must be above 0":                              "processors:\n- {name: a, kind: exec, rate: -1}",
		"processor a: command: must begin with a program that can be run": "processors:\n- {name: a, kind: exec, command: [/hunter2]}",
		"processor a: url: must be an http or https URL":                  "processors:\n- {name: a, kind: http, url: hunter2}",
		"processor a: headers: must not set":                              "processors:\n- {name: a, kind: http, url: http://x, headers: {Webhook-Id: hunter2}}",
		"content_type: must be a media type":                              "routes:\n- {content_type: png, processor: builtin}",
		"processor: must be the name of a processor":                      "routes:\n- {processor: hunter2}",
	} {
		_, err := tryServe(t, t.TempDir(), "--processors", configure(t, "%s", file))
		require.ErrorContains(t, err, says)
		assert.ErrorContains(t, err, "ended with 6")
		assert.NotContains(t, err.Error(), "hunter2")
	}
}
