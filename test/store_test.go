package test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMetricsOfTheStore: every metric is there from the start, for who has no token, and none names a letter.
func TestMetricsOfTheStore(t *testing.T) {
	s := serve(t, t.TempDir())
	acked := &ledger{known: map[string]bool{}}
	s.submit(acked, 3)
	s.settle()
	s.token = ""
	status, page, err := s.do(t.Context(), http.MethodGet, "/metrics", "", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	for _, line := range []string{"holdfast_store_up 1", "holdfast_store_refused_puts_total 0", "holdfast_store_shadowed_reads_total 0"} {
		assert.Contains(t, string(page), "\n"+line+"\n")
	}
	for ref := range acked.known {
		assert.NotContains(t, string(page), ref[:8])
	}
	assert.Equal(t, 1, strings.Count(s.log.String(), `"msg":"payload store","kind":"directory"`), s.log.String())
	s.stop()
}

// TestOtherStore: a service does not start on a store that lacks the first, the newest or a waiting payload of its log,
// and changes nothing then. Told to, it serves, and says so once.
func TestOtherStore(t *testing.T) {
	const words = "payloads of this log are not in this store"
	data, acked := t.TempDir(), &ledger{known: map[string]bool{}}
	s := serve(t, data)
	s.submit(acked, 1)
	status, answer, err := s.do(t.Context(), http.MethodPost, "/v1/failures?stage=dispatch&http_status=503&retry_after=3600", "text/plain", []byte("waits"))
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status)
	waiting := acked.add(answer)
	status, answer, err = s.do(t.Context(), http.MethodPost, "/v1/payloads", "text/plain", []byte("newest"))
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status)
	acked.add(answer)
	want := s.fingerprint()
	assert.NotContains(t, s.log.String(), words)
	s.stop()
	blobs, kept := filepath.Join(data, "blobs"), filepath.Join(t.TempDir(), "kept")
	move := func(from, to string) {
		require.NoError(t, os.RemoveAll(to))
		require.NoError(t, os.Rename(from, to))
	}

	move(blobs, kept)
	refusedWith(t, data, 6, words, blobs, "holdfast blob copy", "--accept-missing-payloads")
	move(kept, blobs)
	one := filepath.Join(waiting[:2], waiting[2:4], waiting)
	move(filepath.Join(blobs, one), filepath.Join(data, "aside"))
	refusedWith(t, data, 6, words, waiting)
	move(filepath.Join(data, "aside"), filepath.Join(blobs, one))
	whole(t, data, acked, want)

	move(blobs, kept)
	s = serve(t, data, "--accept-missing-payloads")
	assert.Equal(t, 1, strings.Count(s.log.String(), words), s.log.String())
	s.stop()
}
