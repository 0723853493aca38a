package blobtest_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob/blobtest"
)

var servers = map[string]func(testing.TB) *blobtest.Server{"minio": blobtest.MinIO, "versitygw": blobtest.VersityGW}

// status is what S3 answered, 0 if it did not.
func status(err error) int {
	told, _ := errors.AsType[minio.ErrorResponse](err)
	return told.StatusCode
}

// TestServer: a server takes a locked put once, lets nobody undo it, and has it after a
// power cut.
func TestServer(t *testing.T) {
	for kind, start := range servers {
		t.Run(kind, func(t *testing.T) {
			s := start(t)
			assert.Equal(t, kind, s.Kind)
			bucket, data := s.NewBucket(t), bytes.Repeat([]byte("a locked payload "), 100)
			locked := s.BarePut(t, bucket)
			require.NoError(t, locked(t.Context(), data))
			assert.Equal(t, http.StatusPreconditionFailed, status(locked(t.Context(), data)))
			assert.Equal(t, http.StatusBadRequest, status(s.BarePut(t, s.NewPlainBucket(t))(t.Context(), data)), "a plain bucket takes no locked put")

			key := bareKey(data)
			info, err := s.Client(t).StatObject(t.Context(), bucket, key, minio.StatObjectOptions{})
			require.NoError(t, err)
			require.NotEmpty(t, info.VersionID)
			s.Kill()
			_, err = http.Get(s.URL)
			assert.ErrorIs(t, err, syscall.ECONNREFUSED)
			url := s.URL
			s.Start(t)
			assert.Equal(t, url, s.URL)

			version := minio.RemoveObjectOptions{VersionID: info.VersionID, GovernanceBypass: true}
			assert.NotZero(t, status(s.Client(t).RemoveObject(t.Context(), bucket, key, version)), "locked also after the restart")
			o, err := s.Client(t).GetObject(t.Context(), bucket, key, minio.GetObjectOptions{VersionID: info.VersionID})
			require.NoError(t, err)
			got, err := io.ReadAll(o)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(data, got))
		})
	}
}

// bareKey is where BarePut puts data.
func bareKey(data []byte) string {
	sum := sha256.Sum256(data)
	return "bare/" + hex.EncodeToString(sum[:])
}

func TestServerPaused(t *testing.T) {
	for kind, start := range servers {
		t.Run(kind, func(t *testing.T) {
			s := start(t)
			put := s.BarePut(t, s.NewBucket(t))
			s.Pause()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			assert.ErrorIs(t, put(ctx, []byte("into a black hole")), context.DeadlineExceeded)
			s.Resume()
			assert.NoError(t, put(t.Context(), []byte("and out of it")))
		})
	}
}

// TestServerRestricted: credentials can do what their policy says and nothing else.
func TestServerRestricted(t *testing.T) {
	for kind, start := range servers {
		t.Run(kind, func(t *testing.T) {
			s := start(t)
			bucket, data := s.NewBucket(t), []byte("to be read only")
			require.NoError(t, s.BarePut(t, bucket)(t.Context(), data))
			policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::` + bucket + `/bare/*"]}]}`
			r := s.Restricted(t, bucket, policy)
			assert.Equal(t, s.URL, r.Endpoint)
			c, err := minio.New(strings.TrimPrefix(r.Endpoint, "http://"), &minio.Options{Region: "us-east-1",
				Creds: credentials.NewStaticV4(r.AccessKey, r.SecretKey, r.SessionToken)})
			require.NoError(t, err)
			_, err = c.StatObject(t.Context(), bucket, bareKey(data), minio.StatObjectOptions{})
			assert.NoError(t, err)
			_, err = c.PutObject(t.Context(), bucket, "bare/more", strings.NewReader("x"), 1, minio.PutObjectOptions{})
			assert.Equal(t, http.StatusForbidden, status(err))
			_, err = c.StatObject(t.Context(), bucket, "other", minio.StatObjectOptions{})
			assert.Equal(t, http.StatusForbidden, status(err))
		})
	}
}

// TestServerFolder: what is changed in the gateway's folder is what it answers with.
func TestServerFolder(t *testing.T) {
	s := blobtest.VersityGW(t)
	bucket, data := s.NewBucket(t), []byte("as it was put")
	require.NoError(t, s.BarePut(t, bucket)(t.Context(), data))
	file := filepath.Join(s.Folder(), "root", bucket, bareKey(data))
	require.NoError(t, os.WriteFile(file, []byte("as it was not"), 0o600))
	o, err := s.Client(t).GetObject(t.Context(), bucket, bareKey(data), minio.GetObjectOptions{})
	require.NoError(t, err)
	got, err := io.ReadAll(o)
	require.NoError(t, err)
	assert.Equal(t, "as it was not", string(got))
}

// TestServerAddressTaken: a server that finds its address taken goes to another one, and
// does not take the answers of a stranger for its own.
func TestServerAddressTaken(t *testing.T) {
	for kind, start := range servers {
		t.Run(kind, func(t *testing.T) {
			s := start(t)
			s.Kill()
			l, err := net.Listen("tcp", strings.TrimPrefix(s.URL, "http://"))
			require.NoError(t, err)
			stranger := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })}}
			stranger.Start()
			defer stranger.Close()
			s.Forget()
			s.Start(t)
			assert.NotEqual(t, stranger.URL, s.URL)
			assert.NoError(t, s.BarePut(t, s.NewBucket(t))(t.Context(), []byte("here")))
		})
	}
}

// TestServerDiesWithTest: a test that is killed leaves no server behind.
func TestServerDiesWithTest(t *testing.T) {
	if kind := os.Getenv("BLOBTEST_LEAVE"); kind != "" {
		fmt.Printf("at %s\n", servers[kind](t).URL)
		select {}
	}
	for kind, start := range servers {
		t.Run(kind, func(t *testing.T) {
			start(t) // or skips
			cmd := again(t, "TestServerDiesWithTest", "BLOBTEST_LEAVE="+kind)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			var url string
			for said, started := bufio.NewScanner(out), false; !started; {
				require.True(t, said.Scan(), "the server did not start")
				url, started = strings.CutPrefix(said.Text(), "at ")
			}
			resp, err := http.Get(url)
			require.NoError(t, err)
			resp.Body.Close()
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			assert.Eventually(t, func() bool {
				_, err := http.Get(url)
				return errors.Is(err, syscall.ECONNREFUSED)
			}, 10*time.Second, 10*time.Millisecond)
		})
	}
}

// again runs one test of this binary in a process and with a folder for temporary files
// of its own.
func again(t *testing.T, name string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^"+name+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), "TMPDIR="+t.TempDir()), env...)
	return cmd
}

// TestServerMissing: without the binaries tests are skipped aloud, or fail where they are required.
func TestServerMissing(t *testing.T) {
	module := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte("module elsewhere\n"), 0o600))
	for required, want := range map[string]string{"": "NOT TESTED on a real minio", "1": "minio is required and not built: run .ci/run tools"} {
		cmd := again(t, "TestServerPaused", "HOLDFAST_REQUIRE_SERVERS="+required)
		cmd.Dir = module
		out, err := cmd.CombinedOutput()
		assert.Contains(t, string(out), want)
		assert.Equal(t, required == "", err == nil, "%s", out)
	}
}
