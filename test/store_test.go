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

// TestOtherStore: a service that finds another store than its log knows says so once, and serves.
func TestOtherStore(t *testing.T) {
	const words = "payloads of this log are not in this store"
	data, acked := t.TempDir(), &ledger{known: map[string]bool{}}
	s := serve(t, data)
	s.submit(acked, 3)
	s.settle()
	assert.NotContains(t, s.log.String(), words)
	s.stop()
	blobs, kept := filepath.Join(data, "blobs"), filepath.Join(t.TempDir(), "kept")
	require.NoError(t, os.Rename(blobs, kept))
	s = serve(t, data)
	assert.Equal(t, 1, strings.Count(s.log.String(), words), s.log.String())
	s.stop()
	require.NoError(t, os.RemoveAll(blobs))
	require.NoError(t, os.Rename(kept, blobs))
	s = serve(t, data)
	assert.NotContains(t, s.log.String(), words)
	acked.check(s)
	s.stop()
	verifies(t, data)
}
