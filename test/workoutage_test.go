package test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

// python finds the interpreter of the examples.
func python(t *testing.T) string {
	t.Helper()
	found, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("HOLDFAST_REQUIRE_SERVERS") != "" {
			t.Fatal("python3 is missing")
		}
		t.Skip("SKIPPED: python3 is missing")
	}
	return found
}

// blameless holds that no attempt at the letter was ever counted as lost.
func (s *server) blameless(ref chain.Digest) web.Letter {
	s.t.Helper()
	c, err := s.client().Letter(s.t.Context(), ref.String())
	require.NoError(s.t, err)
	for _, e := range c.Events {
		for _, cause := range []string{chain.LostWorker, chain.LostService} {
			require.NotContains(s.t, string(e.Event), cause)
		}
	}
	return c.Letter
}

// badRoad leads to the service, and spoils the first requests of a kind.
type badRoad struct {
	*httputil.ReverseProxy
	mu     sync.Mutex
	spoil  func(w http.ResponseWriter, kind string, nth int) (spoilt bool)
	counts map[string]int
}

func newBadRoad(t *testing.T, to string, spoil func(http.ResponseWriter, string, int) bool) string {
	target, err := url.Parse(to)
	require.NoError(t, err)
	r := &badRoad{ReverseProxy: httputil.NewSingleHostReverseProxy(target), spoil: spoil, counts: map[string]int{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return server.URL
}

func (r *badRoad) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	kind := path.Base(q.URL.Path)
	r.mu.Lock()
	r.counts[kind]++
	nth := r.counts[kind]
	r.mu.Unlock()
	if !r.spoil(w, kind, nth) {
		r.ReverseProxy.ServeHTTP(w, q)
	}
}

// TestPythonWorkerOnABadRoad: what the road does to requests is not blamed on letters. The lease of five seconds would be over
// before any of them is asked for again by another worker.
func TestPythonWorkerOnABadRoad(t *testing.T) {
	interpreter := python(t)
	refuse := func(w http.ResponseWriter) { http.Error(w, "busy", http.StatusServiceUnavailable) }
	for name, spoil := range map[string]func(http.ResponseWriter, string, int) bool{
		"refused for now": func(w http.ResponseWriter, kind string, nth int) bool {
			if kind != "complete" && kind != "payload" || nth > 3 {
				return false
			}
			refuse(w)
			return true
		},
		"cut": func(_ http.ResponseWriter, kind string, nth int) bool {
			if kind == "complete" && nth <= 2 {
				panic(http.ErrAbortHandler)
			}
			return false
		},
		"damaged": func(w http.ResponseWriter, kind string, nth int) bool {
			if kind != "payload" || nth > 1 {
				return false
			}
			_, _ = w.Write([]byte("unit: 18\n"))
			return true
		},
		"cut short": func(w http.ResponseWriter, kind string, nth int) bool {
			if kind != "payload" || nth > 1 {
				return false
			}
			w.Header().Set("Content-Length", "9")
			_, _ = w.Write([]byte("unit"))
			panic(http.ErrAbortHandler)
		},
		"heartbeat unanswered": func(_ http.ResponseWriter, kind string, nth int) bool {
			if kind == "complete" && nth <= 8 {
				panic(http.ErrAbortHandler)
			}
			if kind != "heartbeat" || nth > 1 {
				return false
			}
			time.Sleep(9 * time.Second)
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			s := serve(t, data, "--processors", configure(t, pullAll))
			_, stop := s.worker(s.workerToken(data), interpreter, "../examples/worker.py", "--server", newBadRoad(t, s.url, spoil), "--lease", "5")
			ref := s.submitText("unit: 17\n")
			s.until(ref, chain.Resolved)
			require.Equal(t, uint64(1), s.blameless(ref).Attempt)
			stop()
			s.stop()
		})
	}
}

// TestPythonWorkerStopped: a worker that is stopped in the middle of a long piece of work gives it back at once.
func TestPythonWorkerStopped(t *testing.T) {
	interpreter := python(t)
	data := t.TempDir()
	s := serve(t, data, "--processors", configure(t, pullAll))
	long := strings.Join([]string{"import sys, time", "sys.path.insert(0, '../examples')", "import worker",
		"worker.work = lambda job, payload: time.sleep(60)", "worker.main()"}, "\n")
	_, stop := s.worker(s.workerToken(data), interpreter, "-c", long, "--server", s.url, "--lease", "60")
	ref := s.submitText("unit: 17\n")
	require.Eventually(t, func() bool { return s.blameless(ref).Lease != nil }, time.Minute, 10*time.Millisecond)
	time.Sleep(500 * time.Millisecond) // it is at work
	began := time.Now()
	stop()
	require.Less(t, time.Since(began), 50*time.Second)
	l := s.blameless(ref)
	require.Nil(t, l.Lease)
	require.Equal(t, chain.Received, l.Disposition)
	s.stop()
}
