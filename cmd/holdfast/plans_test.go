package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/web"
)

// told is what a progress says of a plan that does 100 letters a second, looked at for seconds.
func told(t *testing.T, bar bool, seconds int) string {
	path := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(path)
	require.NoError(t, err)
	defer out.Close()
	s := newProgress(out)
	require.False(t, s.bar, "a file is no terminal")
	s.bar = bar
	start := time.Date(2026, 3, 2, 6, 30, 0, 0, time.UTC)
	for i := range seconds + 1 {
		s.update(web.Plan{ID: "p7", Expected: 2000, Remaining: 2000 - 100*uint64(i)}, start.Add(time.Duration(i)*time.Second))
	}
	s.end()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// A plan is followed over a restart of its service, and not for ever.
func TestFollowOverARestart(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		switch requests {
		case 1, 4:
			_, _ = w.Write([]byte(`{"id":"p7","state":"` + map[int]string{1: "running", 4: "done"}[requests] + `"}`))
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	c := clientFlags{Server: address(server.URL), Token: "t"}
	require.NoError(t, c.follow(t.Context(), "p7"))
	require.Equal(t, 4, requests)
	require.Equal(t, exitNotFound, exitCode(c.follow(t.Context(), "p7")))
}

func TestProgress(t *testing.T) {
	require.Equal(t, "holdfast: plan p7: 500 of 2000 (25 %), 100.0/s, 15s left\nholdfast: plan p7: 1000 of 2000 (50 %), 100.0/s, 10s left\n",
		told(t, false, 12))
	require.Empty(t, told(t, false, 4))
	bar := told(t, true, 10)
	require.Contains(t, bar, "\r\x1b[K[###############...............] 1000 of 2000 (50 %), 100.0/s, 10s left")
	require.Equal(t, 1, strings.Count(bar, "\n"))
}
