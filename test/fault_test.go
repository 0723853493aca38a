package test

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fingerprint is the hash over the whole state, and the head it holds for.
type fingerprint struct {
	SHA256 string `json:"sha256"`
	Events uint64 `json:"events"`
}

func (s *server) fingerprint() fingerprint {
	s.t.Helper()
	s.settle()
	var stats struct{ Fingerprint fingerprint }
	s.get("/v1/stats?fingerprint=true", &stats)
	return stats.Fingerprint
}

// submit hands payloads over, some good, some broken, some that wait for their time, and looks them up.
func (s *server) submit(acked *ledger, n int) {
	s.t.Helper()
	for i := range n {
		path, body := "/v1/payloads", report(fmt.Sprint(i))
		switch i % 3 {
		case 1:
			body = body[:100]
		case 2:
			path = "/v1/failures?stage=dispatch&http_status=503&retry_after=3600"
		}
		status, answer, err := s.do(s.t.Context(), http.MethodPost, path, "application/json", body)
		require.NoError(s.t, err)
		require.Equal(s.t, http.StatusCreated, status, "%s", answer)
		acked.add(answer)
	}
	acked.check(s)
}

// filled is a folder with a history, and what it must keep. The service on it was killed.
func filled(t *testing.T) (data string, acked *ledger, want fingerprint) {
	data, acked = t.TempDir(), &ledger{known: map[string]bool{}}
	s := serve(t, data)
	s.submit(acked, 12)
	want = s.fingerprint()
	s.kill()
	return data, acked, want
}

// whole asserts that a service on data has everything, and that it verifies.
func whole(t *testing.T, data string, acked *ledger, want fingerprint) {
	t.Helper()
	s := serve(t, data)
	assert.Equal(t, want, s.fingerprint())
	acked.check(s)
	s.stop()
	verifies(t, data)
}

func verifies(t *testing.T, data string) {
	t.Helper()
	code, out, errs := holdfast(t, "verify", "--data", data)
	require.Zero(t, code, "%s%s", out, errs)
}

// refusedWith asserts that no service starts on data.
func refusedWith(t *testing.T, data string, code int, says ...string) {
	t.Helper()
	s, err := tryServe(t, data)
	require.Error(t, err)
	require.Equal(t, code, s.cmd.ProcessState.ExitCode(), err)
	for _, words := range says {
		assert.Contains(t, s.log.String(), words)
	}
	clean(t, s.log.String())
}

// TestSecondProcess: a folder has one owner, and others are told which.
func TestSecondProcess(t *testing.T) {
	data, acked := t.TempDir(), &ledger{known: map[string]bool{}}
	s := serve(t, data)
	s.submit(acked, 6)
	refusedWith(t, data, 5, filepath.Join(data, "log"), fmt.Sprintf("in use by process %d", s.cmd.Process.Pid))
	code, _, errs := holdfast(t, "rebuild", "--data", data)
	assert.Equal(t, 5, code)
	assert.Contains(t, errs, fmt.Sprintf("in use by process %d", s.cmd.Process.Pid))
	code, out, errs := s.cli("verify", "--data", data)
	assert.Zero(t, code, errs)
	assert.Contains(t, out, "ok: ")
	s.kill()
	code, _, errs = holdfast(t, "verify", "--data", data, "--server", s.url)
	assert.Zero(t, code, errs)
	whole(t, data, acked, serveFingerprint(t, data))
}

func serveFingerprint(t *testing.T, data string) fingerprint {
	s := serve(t, data)
	defer s.stop()
	return s.fingerprint()
}

// TestProjectionLost: whatever becomes of the projection, the log has everything.
func TestProjectionLost(t *testing.T) {
	data, acked, want := filled(t)
	state := filepath.Join(data, "state.db")
	for name, harm := range map[string]func() error{
		"deleted": func() error { return os.Remove(state) },
		"empty":   func() error { return os.Truncate(state, 0) },
		"cut":     func() error { return os.Truncate(state, 5000) },
		"random":  func() error { return os.WriteFile(state, randomBytes(1<<20), 0o600) },
		"middle overwritten": func() error {
			raw, err := os.ReadFile(state)
			if err != nil {
				return err
			}
			copy(raw[:16<<10], randomBytes(16<<10))
			return os.WriteFile(state, raw, 0o600)
		},
		"another file": func() error { return os.WriteFile(state, report("state"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, harm())
			whole(t, data, acked, want)
		})
	}
	t.Run("of another log", func(t *testing.T) {
		other, _, _ := filled(t)
		raw, err := os.ReadFile(filepath.Join(other, "state.db"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(state, raw, 0o600))
		refusedWith(t, data, 2)
		code, _, errs := holdfast(t, "rebuild", "--data", data)
		require.Zero(t, code, errs)
		whole(t, data, acked, want)
	})
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	crand.Read(b)
	return b
}

// lastBlock is the file with the end of the log.
func lastBlock(t *testing.T, data string) string {
	var blocks []string
	require.NoError(t, filepath.WalkDir(filepath.Join(data, "log"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".blk" {
			blocks = append(blocks, path)
		}
		return err
	}))
	require.Len(t, blocks, 1)
	return blocks[0]
}

// forgetEnd removes what the server noted about the end of its files.
func forgetEnd(t *testing.T, data string) {
	require.NoError(t, filepath.WalkDir(filepath.Join(data, "log"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Base(path) == "index.db" {
			return os.Remove(path)
		}
		return err
	}))
}

// cut takes bytes off the end of a file.
func cut(t *testing.T, path string, n int64) {
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()-n))
}

// TestTornBlock: bytes that a power cut left behind the last acknowledged block are dropped.
func TestTornBlock(t *testing.T) {
	for name, torn := range map[string]func(block []byte) []byte{
		"random":         func([]byte) []byte { return randomBytes(300) },
		"zeroes":         func([]byte) []byte { return make([]byte, 4096) },
		"half a message": func(block []byte) []byte { return block[:len(block)/2] },
		"one byte":       func([]byte) []byte { return []byte{1} },
	} {
		t.Run(name, func(t *testing.T) {
			data, acked, want := filled(t)
			path := lastBlock(t, data)
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			first := raw[:int(raw[0])|int(raw[1])<<8|int(raw[2])<<16] // of a message: its length, little-endian
			require.NoError(t, os.WriteFile(path, append(bytes.Clone(raw), torn(first)...), 0o600))
			whole(t, data, acked, want)
		})
	}
}

// TestLogCut: a log that ends before what was acknowledged is not continued.
func TestLogCut(t *testing.T) {
	t.Run("below the projection", func(t *testing.T) {
		data, _, _ := filled(t)
		cut(t, lastBlock(t, data), 100)
		refusedWith(t, data, 2, "the log ends before the events already seen")
		refusedWith(t, data, 2)
		code, out, _ := holdfast(t, "verify", "--data", data)
		assert.Equal(t, 2, code, out)
	})
	t.Run("below the server's own count", func(t *testing.T) {
		data, _, _ := filled(t)
		serveFingerprint(t, data) // a stop in order notes where the files end
		cut(t, lastBlock(t, data), 100)
		require.NoError(t, os.Remove(filepath.Join(data, "state.db")))
		refusedWith(t, data, 2, "messages are missing: keep the files and restore the log from a copy")
		code, _, errs := holdfast(t, "verify", "--data", data)
		assert.Equal(t, 2, code)
		assert.Contains(t, errs, "messages are missing")
	})
	t.Run("below the stored head", func(t *testing.T) {
		data, _, _ := filled(t)
		serveFingerprint(t, data) // a stop stores the head
		cut(t, lastBlock(t, data), 100)
		forgetEnd(t, data)
		require.NoError(t, os.Remove(filepath.Join(data, "state.db")))
		refusedWith(t, data, 2, "events where it had")
		code, out, _ := holdfast(t, "verify", "--data", data)
		assert.Equal(t, 2, code, out)
		assert.Contains(t, out, "first bad event: ")
	})
	t.Run("and nothing knows", func(t *testing.T) {
		data, acked, _ := filled(t)
		cut(t, lastBlock(t, data), 100) // the outcome of the last attempt
		require.NoError(t, os.Remove(filepath.Join(data, "state.db")))
		require.NoFileExists(t, filepath.Join(data, "head"))
		s := serve(t, data)
		s.settle()
		acked.check(s)
		s.stop()
		verifies(t, data)
	})
}

// TestKilledAtStart kills services that are opening the folder.
func TestKilledAtStart(t *testing.T) {
	data, acked, want := filled(t)
	path, err := binary()
	require.NoError(t, err)
	for range 25 {
		cmd := exec.Command(path, "serve", "--data", data, "--listen", "127.0.0.1:0", "--no-immutable")
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(rand.IntN(120)) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	whole(t, data, acked, want)
}

// TestKilledAtFirstStart kills services on a folder that has no log yet: whatever they leave, the next can begin.
func TestKilledAtFirstStart(t *testing.T) {
	path, err := binary()
	require.NoError(t, err)
	fresh := t.TempDir()
	for range 25 {
		cmd := exec.Command(path, "serve", "--data", fresh, "--listen", "127.0.0.1:0", "--no-immutable")
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	s := serve(t, fresh)
	s.submit(&ledger{known: map[string]bool{}}, 3)
	s.stop()
	verifies(t, fresh)
}

// TestProjectionPages damages single pages of the projection. A service may notice at once or only when it meets the
// page; then it ends, and the next one folds the state anew. None goes on failing.
func TestProjectionPages(t *testing.T) {
	data, acked, _ := filled(t)
	good, err := os.ReadFile(filepath.Join(data, "state.db"))
	require.NoError(t, err)
	const page = 4096
	for at := 2; at < 40; at += 3 {
		if bytes.Equal(good[at*page:(at+1)*page], make([]byte, page)) {
			continue
		}
		bad := bytes.Clone(good)
		copy(bad[at*page+8:(at+1)*page], bytes.Repeat([]byte{0xff}, 200))
		require.NoError(t, os.WriteFile(filepath.Join(data, "state.db"), bad, 0o600))
		served := false
		for try := 0; try < 3 && !served; try++ {
			s, err := tryServe(t, data)
			if err != nil {
				continue
			}
			if status, answer, err := s.do(t.Context(), http.MethodPost, "/v1/payloads", "", fmt.Append(nil, at, try)); err == nil && status == http.StatusCreated {
				acked.add(answer)
			}
			select {
			case <-s.ended:
			case <-time.After(300 * time.Millisecond):
				require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
				<-s.ended
				served = s.cmd.ProcessState.ExitCode() == 0 // the page may be met at the very end
			}
		}
		require.True(t, served, "page %d", at)
	}
	require.NoError(t, os.Remove(filepath.Join(data, "state.db")))
	s := serve(t, data)
	acked.check(s)
	s.stop()
	verifies(t, data)
}

// TestStoppedUnderLoad: an operator's stop uses up no attempt and loses nothing.
func TestStoppedUnderLoad(t *testing.T) {
	data, acked := t.TempDir(), &ledger{known: map[string]bool{}}
	for round := range 4 {
		s := serve(t, data)
		ctx, cancel := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		for c := range 8 {
			clients.Go(func() { s.load(ctx, fmt.Sprintf("%d-%d", round, c), acked) })
		}
		time.Sleep(time.Duration(100+rand.IntN(300)) * time.Millisecond)
		s.stop()
		cancel()
		clients.Wait()
		clean(t, s.log.String())
	}
	s := serve(t, data)
	s.settle()
	acked.check(s)
	status, lines, err := s.do(t.Context(), http.MethodGet, "/v1/log/entries", "", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	assert.NotContains(t, string(lines), `"type":"attempt_lost"`)
	assert.NotContains(t, string(lines), `"type":"poison"`)
	s.stop()
	verifies(t, data)
	t.Logf("%d payloads acknowledged", len(acked.known))
}

// TestFolderMoved: a folder is whole in itself; a copy verifies and serves elsewhere.
func TestFolderMoved(t *testing.T) {
	data, acked, want := filled(t)
	copied := filepath.Join(t.TempDir(), "elsewhere")
	out, err := exec.Command("cp", "-a", data, copied).CombinedOutput() // the times of payload files say how long they are kept
	require.NoError(t, err, "%s", out)
	verifies(t, copied)
	whole(t, copied, acked, want)
	whole(t, data, acked, want)
}

// small mounts a file system of its own, which can be full or read-only.
func small(t *testing.T, size string) string {
	dir := t.TempDir()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root can mount a small file system")
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no file system can be mounted here: %s", out)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fill writes until nothing fits.
func fill(t *testing.T, path string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer f.Close()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			chunk = chunk[:len(chunk)/2]
		}
	}
}

// refusal asserts that a submission is refused for now, in the words of the API.
func (s *server) refusal(body []byte) (status int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	status, answer, err := s.do(ctx, http.MethodPost, "/v1/payloads", "text/plain", body)
	require.NoError(s.t, err)
	require.Contains(s.t, []int{http.StatusServiceUnavailable, http.StatusInsufficientStorage}, status, "%s", answer)
	var p struct{ Type, Detail string }
	require.NoError(s.t, json.Unmarshal(answer, &p))
	assert.True(s.t, strings.HasPrefix(p.Type, "urn:holdfast:problem:"), "%s", answer)
	assert.NotEmpty(s.t, p.Detail)
	return status
}

// TestFullDisk fills the disk under a running service, more than once.
func TestFullDisk(t *testing.T) {
	disk := small(t, "48m")
	data, filler := filepath.Join(disk, "data"), filepath.Join(disk, "filler")
	acked := &ledger{known: map[string]bool{}}
	s := serve(t, data)
	s.submit(acked, 6)
	for round := range 3 {
		fill(t, filler)
		var statuses []int
		for i := range 5 {
			statuses = append(statuses, s.refusal(bytes.Repeat(fmt.Appendf(nil, "full %d %d ", round, i), 1000)))
		}
		t.Logf("full: %v", statuses)
		acked.checkWhile(s) // if the log met the error too, the service ends within seconds
		require.NoError(t, os.Remove(filler))
		again := bytes.Repeat(fmt.Appendf(nil, "full %d 0 ", round), 1000)
		require.Eventually(t, func() bool {
			select {
			case <-s.ended:
				s = serve(t, data)
			default:
			}
			status, answer, err := s.do(t.Context(), http.MethodPost, "/v1/payloads", "text/plain", again)
			return err == nil && (status == http.StatusCreated || status == http.StatusOK) && acked.add(answer) != ""
		}, time.Minute, 100*time.Millisecond, "space came back, and the service did not: %s", s.log)
		acked.check(s) // and waits until the projection has caught up
	}
	s.settle()
	s.stop()
	clean(t, s.log.String())
	verifies(t, data)
	s = serve(t, data)
	acked.check(s)
	s.stop()
}

// TestFilledByPayloads runs the disk full with what is submitted.
func TestFilledByPayloads(t *testing.T) {
	disk := small(t, "24m")
	data, spare := filepath.Join(disk, "data"), filepath.Join(disk, "spare")
	require.NoError(t, os.WriteFile(spare, randomBytes(2<<20), 0o600))
	acked := &ledger{known: map[string]bool{}}
	s := serve(t, data)
	var refused []int
	for i := 0; i < 400 && len(refused) < 10; i++ {
		status, answer, err := s.do(t.Context(), http.MethodPost, "/v1/payloads", "text/plain", randomBytes(300<<10))
		require.NoError(t, err, "%s", s.log)
		if status == http.StatusCreated {
			acked.add(answer)
			continue
		}
		require.Contains(t, []int{http.StatusServiceUnavailable, http.StatusInsufficientStorage}, status, "%s", answer)
		refused = append(refused, status)
	}
	t.Logf("%d acknowledged, then %v", len(acked.known), refused)
	s.kill()
	verifies(t, data)
	require.NoError(t, os.Remove(spare))
	s = serve(t, data)
	acked.check(s)
	s.stop()
}

// TestReadOnlyFolder: a folder that cannot be written is refused at start, in clear words, and nothing happens to it.
func TestReadOnlyFolder(t *testing.T) {
	disk := small(t, "64m")
	data := filepath.Join(disk, "data")
	acked := &ledger{known: map[string]bool{}}
	s := serve(t, data)
	s.submit(acked, 6)
	want := s.fingerprint()
	s.stop()
	remount(t, disk, "remount,ro")
	refusedWith(t, data, 1, "read-only file system")
	for _, verb := range []string{"verify", "rebuild"} {
		code, _, errs := holdfast(t, verb, "--data", data)
		assert.Equal(t, 1, code)
		assert.Contains(t, errs, "read-only file system")
	}
	remount(t, disk, "remount,rw")
	whole(t, data, acked, want)
}

func remount(t *testing.T, dir, options string) {
	out, err := exec.Command("mount", "-o", options, dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestReadOnlyPayloads: a payload store that turns read-only takes nothing, loses nothing and recovers.
func TestReadOnlyPayloads(t *testing.T) {
	data, blobs := t.TempDir(), small(t, "64m")
	require.NoError(t, os.Symlink(blobs, filepath.Join(data, "blobs")))
	acked := &ledger{known: map[string]bool{}}
	s := serve(t, data)
	s.submit(acked, 6)
	s.settle()
	remount(t, blobs, "remount,ro")
	for i := range 3 {
		s.refusal(fmt.Appendf(nil, "read-only %d", i))
	}
	acked.check(s)
	var page struct{ Letters []struct{ Ref string } }
	s.get("/v1/letters?limit=1", &page)
	status, bytes, err := s.do(t.Context(), http.MethodGet, "/v1/letters/"+page.Letters[0].Ref+"/payload?reason=look", "", nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.NotEmpty(t, bytes)
	remount(t, blobs, "remount,rw")
	status, answer, err := s.do(t.Context(), http.MethodPost, "/v1/payloads", "text/plain", []byte("read-only 0"))
	require.NoError(t, err)
	require.True(t, slices.Contains([]int{http.StatusCreated, http.StatusOK}, status), "%s", answer)
	acked.add(answer)
	acked.check(s)
	s.stop()
	verifies(t, data)
}
