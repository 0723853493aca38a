package web_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/projection"
	"github.com/holdfast-dvir/holdfast/web"
)

// TestIntakeIsFlat sends 64 MiB to a store on disk and counts what was allocated on the way.
func TestIntakeIsFlat(t *testing.T) {
	store := blobtest.Store(t, blobtest.Dir(t))
	state, err := projection.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	b := &bench{t: t, log: &chaintest.Log{}, state: state, logs: &logs{}}
	b.queue, err = deadletter.Open(t.Context(), deadletter.Config{Log: b.log, Store: store, State: state, Origin: "holdfast.example/test", Software: "holdfast/test"})
	require.NoError(t, err)
	b.run()
	tokens := web.OpenTokens(filepath.Join(t.TempDir(), "tokens.json"))
	secret, err := tokens.EnsureAdmin()
	require.NoError(t, err)
	handler := web.Handler(web.Config{Queue: b.queue, State: state, Tokens: tokens})

	form := "--B\r\nContent-Disposition: form-data; name=\"stage\"\r\n\r\nparse\r\n--B\r\nContent-Disposition: form-data; name=\"payload\"\r\n\r\n"
	for path, frame := range map[string][2]string{"/v1/payloads": {}, "/v1/failures?stage=parse": {}, "/v1/failures": {form, "\r\n--B--\r\n"}} {
		body := io.MultiReader(strings.NewReader(frame[0]), io.LimitReader(zeros{}, blob.DefaultMaxSize), strings.NewReader(frame[1]))
		r := httptest.NewRequest("POST", path, body)
		r.Header = http.Header{"Authorization": {"Bearer " + secret}, "Content-Type": {formType}}
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		handler.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		require.Less(t, w.Code, 300, w.Body.String())
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), "bytes allocated for 64 MiB at %s", path)
		t.Logf("%s: %d KiB", path, (after.TotalAlloc-before.TotalAlloc)>>10)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
