package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// binary is the program under test, built once.
var binary = sync.OnceValues(func() (string, error) {
	if err := readSources(); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "holdfast-test-*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "holdfast")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../cmd/holdfast").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

// readSources opens every source file of the program, so that the test cache knows what the results depend on.
func readSources() error {
	return filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2:
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go") || filepath.Ext(path) != ".go":
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return f.Close()
	})
}

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// holdfast runs a verb to its end and returns its exit code and what it printed.
func holdfast(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// server is a running "holdfast serve" on a folder.
type server struct {
	t     testing.TB
	cmd   *exec.Cmd
	url   string
	token string
	log   *syncBuffer
	ended chan struct{}
}

var served = regexp.MustCompile(`"msg":"serving","url":"([^"]+)"`)

// serve starts the service on a folder and waits until it listens.
func serve(t testing.TB, data string, args ...string) *server {
	t.Helper()
	s, err := tryServe(t, data, args...)
	require.NoError(t, err)
	return s
}

func tryServe(t testing.TB, data string, args ...string) (*server, error) {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	s := &server{t: t, log: &syncBuffer{}, ended: make(chan struct{})}
	s.cmd = exec.Command(path, append([]string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--no-immutable"}, args...)...)
	s.cmd.Stderr = s.log
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if m := served.FindStringSubmatch(s.log.String()); m != nil {
			token, err := os.ReadFile(filepath.Join(data, "admin-token"))
			require.NoError(t, err)
			s.url, s.token = m[1], strings.TrimSpace(string(token))
			return s, nil
		}
		select {
		case <-s.ended:
			return s, fmt.Errorf("serve ended with %d:\n%s", s.cmd.ProcessState.ExitCode(), s.log.String())
		default:
		}
	}
	return s, fmt.Errorf("serve did not listen:\n%s", s.log.String())
}

// kill ends the service as a power switch would.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// stop ends the service as an operator would.
func (s *server) stop() {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		s.t.Fatal("serve did not stop")
	}
	require.Zero(s.t, s.cmd.ProcessState.ExitCode(), s.log.String())
}

// do sends a request and returns status and body.
func (s *server) do(ctx context.Context, method, path, contentType string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

// get reads a JSON answer.
func (s *server) get(path string, into any) {
	s.t.Helper()
	status, body, err := s.do(s.t.Context(), http.MethodGet, path, "", nil)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, status, string(body))
	require.NoError(s.t, json.Unmarshal(body, into))
}

// cli runs a client verb against the service.
func (s *server) cli(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	return holdfast(s.t, append(args, "--server", s.url, "--token", s.token)...)
}

// syncBuffer may be written and read at once.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
