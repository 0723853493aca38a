package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/jetstream"
)

// custody is the folder of a stopped service, and what it holds.
type custody struct {
	data   string
	lines  [][]byte // of the log
	blocks []int    // how many lines each block has
	record string   // ref of a record
	refs   []string // of payloads, in order of arrival
}

// tell runs a service through letters of many kinds.
func tell(t *testing.T) *custody {
	t.Helper()
	c := &custody{data: t.TempDir()}
	s := serve(t, c.data)
	for i := range 9 {
		body := report(fmt.Sprint("t", i))
		if i%2 == 1 {
			body = bytes.Replace(body, []byte(`"stage":"submitted"`), []byte(`"stage":"nonsense"`), 1)
		}
		c.refs = append(c.refs, s.handed("/v1/payloads?wait=20s", body))
	}
	c.refs = append(c.refs,
		s.handed("/v1/failures?stage=dispatch&http_status=503&retry_after=86400", []byte("waits")),
		s.handed("/v1/failures?stage=parse&error_type=crash:SIGSEGV", []byte("crashed")))
	for _, args := range [][]string{
		{"replay", c.refs[1], "--reason", "mapping fixed", "--wait"},
		{"resolve", c.refs[1], "--reason", "settled by telephone"},
		{"annotate", c.refs[3], "--owner", "desk:2", "--tag", "urgent", "--note", "asked the sender"},
		{"annotate", c.refs[9], "--tag", "later"},
		{"replay", c.refs[10], "--override", "--reason", "parser replaced", "--wait"},
		{"payload", c.refs[10]},
	} {
		code, _, errs := s.cli(args...)
		require.Zero(t, code, "%v: %s", args, errs)
	}
	s.settle()
	c.record = run[struct {
		Letter struct {
			RecordRef string `json:"record_ref"`
		}
	}](s, "show", c.refs[0])[0].Letter.RecordRef
	exported := s.export()
	s.stop()
	c.read(t)
	require.Equal(t, exported, string(bytes.Join(c.lines, []byte("\n")))+"\n", "tail --raw and the stored lines")
	require.Greater(t, len(c.lines), 36)
	return c
}

// handed hands a body over and returns the reference of its letter.
func (s *server) handed(path string, body []byte) string {
	s.t.Helper()
	status, answer, err := s.do(s.t.Context(), http.MethodPost, path, "application/json", body)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusCreated, status, string(answer))
	var r receipt
	require.NoError(s.t, json.Unmarshal(answer, &r))
	return r.PayloadRef
}

// export is the log as tail --raw prints it.
func (s *server) export() string {
	s.t.Helper()
	code, out, errs := s.cli("tail", "--raw", "--from", "0")
	require.Zero(s.t, code, errs)
	return out
}

func (c *custody) logDir() string   { return filepath.Join(c.data, "log") }
func (c *custody) headFile() string { return filepath.Join(c.data, "head") }
func (c *custody) state() string    { return filepath.Join(c.data, "state.db") }

// read takes the lines out of the stored stream.
func (c *custody) read(t testing.TB) {
	t.Helper()
	log, err := jetstream.Open(t.Context(), jetstream.Config{Dir: c.logDir(), ReadOnly: true})
	require.NoError(t, err)
	defer log.Close()
	for block, err := range log.Read(t.Context(), 0) {
		require.NoError(t, err)
		c.lines = append(c.lines, block.Lines...)
		c.blocks = append(c.blocks, len(block.Lines))
	}
}

// copied is the same folder once more, to be spoilt.
func (c *custody) copied(t testing.TB) *custody {
	t.Helper()
	other := *c
	other.data = filepath.Join(t.TempDir(), "data")
	out, err := exec.Command("cp", "-a", c.data, other.data).CombinedOutput() // with extended attributes
	require.NoError(t, err, string(out))
	return &other
}

// falsify puts other lines in place of the stored ones, in blocks like those before, in a new stream with the
// settings of the old one.
func (c *custody) falsify(t *testing.T, lines [][]byte) {
	t.Helper()
	require.NoError(t, os.RemoveAll(c.logDir()))
	log, err := jetstream.Open(t.Context(), jetstream.Config{Dir: c.logDir()})
	require.NoError(t, err)
	defer log.Close()
	var at chain.Position
	for i := 0; len(lines) > 0; i++ {
		n := len(lines)
		if i < len(c.blocks)-1 {
			n = min(n, c.blocks[i])
		}
		at, err = log.Append(t.Context(), at, lines[:n])
		require.NoError(t, err)
		lines = lines[n:]
	}
}

// verdict is what verify prints.
type verdict struct {
	OK       bool
	FirstBad *int `json:"first_bad"`
	Events   int
	Anchored bool
	Findings []struct {
		Kind string
		Seq  int
		Ref  string
	}
}

// verify runs the verb and holds that exit code and report say the same.
func verify(t testing.TB, args ...string) (int, verdict) {
	t.Helper()
	code, out, errs := holdfast(t, append([]string{"verify", "--output", "json"}, args...)...)
	var v verdict
	require.NoError(t, json.Unmarshal([]byte(out), &v), "exit code %d: %s %s", code, out, errs)
	assert.Empty(t, errs)
	assert.Equal(t, code == 0, v.OK, out)
	return code, v
}

// good is the first bad sequence of a log in which nothing is seen to be wrong.
const good = -1

// requireFirstBad verifies and holds the exit code and the sequence that is named.
func requireFirstBad(t testing.TB, want int, args ...string) verdict {
	t.Helper()
	code, v := verify(t, args...)
	if want == good {
		require.Zero(t, code, "%+v", v)
		require.Nil(t, v.FirstBad)
		return v
	}
	require.Equal(t, 2, code, "%+v", v)
	require.NotNil(t, v.FirstBad, "%+v", v)
	require.Equal(t, want, *v.FirstBad, "%+v", v)
	return v
}

// tampering is a way to falsify a log of n lines at one of them, and what then has to be said. verify.py reads in
// order and stops where the log breaks off, which is one event later where a changed event shows by the next.
type tampering struct {
	name   string
	do     func(lines [][]byte, at int) [][]byte
	at     func(n int) []int
	folder func(at, n int) int // verify with stored head and projection
	head   func(at, n int) int // verify of an export with the stored head
	alone  func(at, n int) int // verify of an export with nothing else
	python func(at, n int) int // verify.py with the stored head
}

func here(at, _ int) int  { return at }
func after(at, _ int) int { return at + 1 }
func last(_, n int) int   { return n - 1 }
func never(int, int) int  { return good }

// shown is want, unless the line is the last one, whose fate only a stored head tells.
func shown(want func(at, n int) int) func(at, n int) int {
	return func(at, n int) int {
		if at == n-1 {
			return good
		}
		return want(at, n)
	}
}

func everywhere(n int) []int { return []int{0, n / 2, n - 1} }

var tamperings = []tampering{
	{"change a value", chaintest.Change, func(n int) []int { return []int{0, n / 2, n - 2, n - 1} },
		here, here, shown(here), func(at, n int) int { return min(at+1, n-1) }},
	{"break the JSON", func(lines [][]byte, at int) [][]byte { return chaintest.Flip(lines, at, len(lines[at])-1, '}'^']') },
		everywhere, here, here, here, here},
	{"remove", chaintest.Remove, everywhere, here, here, shown(here), here},
	{"insert", insert, everywhere, here, here, here, func(at, n int) int { return min(at+1, n-1) }},
	{"swap with the next", chaintest.Swap, func(n int) []int { return []int{0, n / 2, n - 2} }, here, here, here, here},
	{"repeat", chaintest.Repeat, everywhere, after, after, after, after},
	{"cut", chaintest.Cut, func(n int) []int { return []int{0, 1, n / 2, n - 1} }, here, here, never, here},
	{"seal anew", chaintest.Rewrite, everywhere, here, last, never, last},
}

// insert puts a forged event, linked as the log stands there, before the one at a place.
func insert(lines [][]byte, at int) [][]byte {
	if at > 0 {
		return chaintest.Insert(lines, at)
	}
	forged := `{"v":1,"prev":"` + chain.Digest{}.String() + `","seq":0,"type":"alert","at":"2026-03-02T06:30:00.000000Z","actor":"test"}`
	return slices.Insert(slices.Clone(lines), 0, []byte(forged))
}

// TestTamperedLog falsifies the stored log of a real service in every way, and asks all who verify.
func TestTamperedLog(t *testing.T) {
	c := tell(t)
	n := len(c.lines)
	t.Run("untouched", func(t *testing.T) {
		c := c.copied(t)
		v := requireFirstBad(t, good, "--data", c.data)
		assert.Equal(t, n, v.Events)
		assert.True(t, v.Anchored)
		c.falsify(t, c.lines)
		requireFirstBad(t, good, "--data", c.data)
		c.checkExport(t, c.lines, good, good, good, good)
	})
	for _, tamper := range tamperings {
		for _, at := range tamper.at(n) {
			t.Run(fmt.Sprintf("%s/%d of %d", tamper.name, at, n), func(t *testing.T) {
				t.Parallel()
				c := c.copied(t)
				lines := tamper.do(c.lines, at)
				c.checkExport(t, lines, tamper.head(at, n), tamper.alone(at, n), tamper.python(at, n), tamper.alone(at, n))
				c.falsify(t, lines)
				requireFirstBad(t, tamper.folder(at, n), "--data", c.data)
			})
		}
	}
}

// checkExport verifies lines as an exported log: with the program and with the script, with the stored head and
// without. The script alone is only asked whether it sees anything, since it may see it one event later.
func (c *custody) checkExport(t *testing.T, lines [][]byte, head, alone, python, pythonAlone int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, bytes.Join(append(slices.Clone(lines), nil), []byte("\n")), 0o600))
	requireFirstBad(t, head, "--log", path, "--head", c.headFile())
	requireFirstBad(t, alone, "--log", path)

	text, err := os.ReadFile(c.headFile())
	require.NoError(t, err)
	words := strings.Fields(string(text))
	code, out := script(t, path, "--head", words[2]+":"+words[3])
	require.Equal(t, python == good, code == 0, out)
	if python != good {
		require.Equal(t, 2, code)
		require.True(t, strings.HasPrefix(out, fmt.Sprintf("BROKEN at %d: ", python)), "%s, want %d", out, python)
	}
	code, out = script(t, path)
	require.Equal(t, pythonAlone == good, code == 0, out)
}

// script runs verify.py.
func script(t testing.TB, args ...string) (int, string) {
	t.Helper()
	cmd := exec.Command("python3", append([]string{"../verify.py"}, args...)...)
	out, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// blob is where the bytes of a reference are.
func (c *custody) blob(ref string) string {
	return filepath.Join(c.data, "blobs", ref[:2], ref[2:4], ref)
}

// spoil changes one byte of the stored bytes.
func (c *custody) spoil(t testing.TB, ref string) {
	t.Helper()
	path := c.blob(ref)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, os.WriteFile(path, data, 0o640))
	require.NoError(t, os.Chmod(path, 0o440))
}

// release moves the date until which bytes are protected.
func (c *custody) release(t testing.TB, ref string) {
	t.Helper()
	const attribute, shorter = "user.holdfast.retention", "until=2026-12-01T00:00:00Z hold=0"
	path := c.blob(ref)
	require.NoError(t, os.Chmod(path, 0o640))
	if err := syscall.Setxattr(path, attribute, []byte(shorter), 0); err != nil {
		require.NoError(t, os.WriteFile(path+".retention", []byte(shorter), 0o640))
	}
	require.NoError(t, os.Chmod(path, 0o440))
}

// firstNamed is the sequence of the first event that names a reference.
func (c *custody) firstNamed(t testing.TB, ref string) int {
	t.Helper()
	at := slices.IndexFunc(c.lines, func(line []byte) bool { return bytes.Contains(line, []byte(ref)) })
	require.Positive(t, at)
	return at
}

// TestTamperedBytes damages stored bytes of payloads and records behind the back of the service.
func TestTamperedBytes(t *testing.T) {
	c := tell(t)
	for _, d := range []struct {
		name, ref, kind string
		do              func(*custody, testing.TB, string)
	}{
		{"payload changed", c.refs[1], "blob_corrupt", (*custody).spoil},
		{"payload removed", c.refs[3], "blob_missing", (*custody).remove},
		{"payload released", c.refs[5], "blob_shortened", (*custody).release},
		{"record changed", c.record, "blob_corrupt", (*custody).spoil},
		{"record removed", c.record, "blob_missing", (*custody).remove},
		{"record released", c.record, "blob_shortened", (*custody).release},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			c := c.copied(t)
			d.do(c, t, d.ref)
			v := requireFirstBad(t, c.firstNamed(t, d.ref), "--data", c.data)
			require.Len(t, v.Findings, 1)
			assert.Equal(t, d.kind, v.Findings[0].Kind)
			assert.Equal(t, d.ref, v.Findings[0].Ref)
			requireFirstBad(t, good, "--data", c.data, "--no-payloads")
			code, out, _ := holdfast(t, "verify", "--data", c.data)
			assert.Equal(t, 2, code)
			assert.Contains(t, out, d.ref)
		})
	}
	t.Run("while a service runs", func(t *testing.T) {
		c := c.copied(t)
		s := serve(t, c.data)
		requireFirstBad(t, good, "--data", c.data, "--server", s.url)
		c.spoil(t, c.refs[3])
		v := requireFirstBad(t, c.firstNamed(t, c.refs[3]), "--data", c.data, "--server", s.url)
		require.Len(t, v.Findings, 1)
		assert.Equal(t, c.refs[3], v.Findings[0].Ref)
		s.stop()
	})
}

func (c *custody) remove(t testing.TB, ref string) {
	t.Helper()
	require.NoError(t, os.Remove(c.blob(ref)))
}

// edits are ways to falsify the projection in its own file.
var edits = map[string]func(*bbolt.Tx) error{
	"letter changed": func(tx *bbolt.Tx) error {
		key, value := tx.Bucket([]byte("letters")).Cursor().First()
		changed := bytes.Replace(value, []byte("resolved"), []byte("received"), 1)
		if bytes.Equal(changed, value) {
			return fmt.Errorf("the letter holds no disposition in words: %q", value)
		}
		return tx.Bucket([]byte("letters")).Put(bytes.Clone(key), changed)
	},
	"letter removed": func(tx *bbolt.Tx) error {
		key, _ := tx.Bucket([]byte("letters")).Cursor().Last()
		return tx.Bucket([]byte("letters")).Delete(bytes.Clone(key))
	},
	"index entry removed": func(tx *bbolt.Tx) error {
		key, _ := tx.Bucket([]byte("by_facet")).Cursor().First()
		return tx.Bucket([]byte("by_facet")).Delete(bytes.Clone(key))
	},
	"event changed": func(tx *bbolt.Tx) error {
		events := tx.Bucket([]byte("events")).Cursor()
		events.First()
		key, value := events.Next()
		return tx.Bucket([]byte("events")).Put(bytes.Clone(key), bytes.Replace(value, []byte(`"v":1`), []byte(`"v":2`), 1))
	},
}

// TestTamperedProjection edits the current state, which is no evidence: verify tells, rebuild repairs.
func TestTamperedProjection(t *testing.T) {
	c := tell(t)
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			c := c.copied(t)
			db, err := bbolt.Open(c.state(), 0o600, nil)
			require.NoError(t, err)
			require.NoError(t, db.Update(edit))
			require.NoError(t, db.Close())
			code, v := verify(t, "--data", c.data)
			assert.Equal(t, 2, code, "%+v", v)
			require.NotEmpty(t, v.Findings)
			assert.Contains(t, []string{"fold", "state"}, v.Findings[0].Kind)
			code, _, errs := holdfast(t, "rebuild", "--data", c.data)
			require.Zero(t, code, errs)
			requireFirstBad(t, good, "--data", c.data)
		})
	}
	t.Run("unreadable", func(t *testing.T) {
		c := c.copied(t)
		require.NoError(t, os.WriteFile(c.state(), []byte("no database"), 0o600))
		code, _, errs := holdfast(t, "verify", "--data", c.data)
		assert.Zero(t, code, "the log and the bytes are whole")
		assert.Equal(t, "holdfast: the projection is not compared: it cannot be read\n", errs)
		serve(t, c.data).stop() // rebuilds it
		requireFirstBad(t, good, "--data", c.data)
	})
}

// TestServeRefusesOtherLog starts the service on logs that do not continue what it knew: with its projection, and
// without, when the head file alone remembers.
func TestServeRefusesOtherLog(t *testing.T) {
	c := tell(t)
	n := len(c.lines)
	for name, lines := range map[string][][]byte{
		"cut by its last block": c.lines[:n-c.blocks[len(c.blocks)-1]],
		"cut in half":           c.lines[:n/2],
		"cut to nothing":        nil,
		"sealed anew":           chaintest.Rewrite(c.lines, n/2),
		"of another service":    tell(t).lines,
	} {
		for _, forget := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/projection lost %t", name, forget), func(t *testing.T) {
				c := c.copied(t)
				c.falsify(t, lines)
				if forget {
					require.NoError(t, os.Remove(c.state()))
				}
				s, err := tryServe(t, c.data)
				require.Error(t, err)
				assert.Equal(t, 2, s.cmd.ProcessState.ExitCode(), err.Error())
				assert.Regexp(t, "\nholdfast: .*the log (ends before the events already seen, or holds others in their place|ends at [0-9]+: blocks that were read before are gone)", err.Error())
				stored := &custody{data: c.data}
				stored.read(t)
				assert.Equal(t, lines, stored.lines, "a refused log is left as it is")
			})
		}
	}
	t.Run("projection and head lost", func(t *testing.T) {
		c := c.copied(t)
		require.NoError(t, os.Remove(c.state()))
		require.NoError(t, os.Remove(c.headFile()))
		serve(t, c.data).stop() // nothing is left to tell, and the log is whole
		requireFirstBad(t, good, "--data", c.data)
	})
}

// TestServeRefusesOtherHead puts heads beside a log that is not theirs.
func TestServeRefusesOtherHead(t *testing.T) {
	c := tell(t)
	n := len(c.lines)
	for name, h := range map[string]struct {
		text string
		code int
		says string
	}{
		"head of a longer log": {fmt.Sprintf("holdfast-head ab %d %s\n", n+1, chain.Sum(nil)), 2, fmt.Sprintf("the log has %d events where it had %d: ", n, n+1)},
		"head of another log":  {fmt.Sprintf("holdfast-head ab %d %s\n", n, chain.Sum(nil)), 2, fmt.Sprintf("event %d is not the one that was stored: ", n-1)},
		"head unreadable":      {"holdfast-head ab\n", 1, "not a stored head"},
	} {
		t.Run(name, func(t *testing.T) {
			c := c.copied(t)
			require.NoError(t, os.WriteFile(c.headFile(), []byte(h.text), 0o600))
			s, err := tryServe(t, c.data)
			require.ErrorContains(t, err, h.says)
			assert.Equal(t, h.code, s.cmd.ProcessState.ExitCode(), err.Error())
			code, _, _ := holdfast(t, "verify", "--data", c.data)
			assert.Equal(t, h.code, code)
			left, err := os.ReadFile(c.headFile())
			require.NoError(t, err)
			assert.Equal(t, h.text, string(left), "what was stored is not overwritten")
		})
	}
}

// TestStreamErased tries what a client of the log's server could do, and then what only its administrator can.
func TestStreamErased(t *testing.T) {
	c := tell(t).copied(t)
	c.administer(t, func(js natsjs.JetStream) {
		stream, err := js.Stream(t.Context(), jetstream.DefaultStream)
		require.NoError(t, err)
		require.Error(t, stream.DeleteMsg(t.Context(), 3))
		require.Error(t, stream.SecureDeleteMsg(t.Context(), 3))
		require.Error(t, stream.Purge(t.Context()))
		open := stream.CachedInfo().Config
		open.DenyDelete, open.DenyPurge = false, false
		_, err = js.UpdateStream(t.Context(), open)
		require.Error(t, err)
	})
	requireFirstBad(t, good, "--data", c.data)

	c.administer(t, func(js natsjs.JetStream) { require.NoError(t, js.DeleteStream(t.Context(), jetstream.DefaultStream)) })
	code, out, _ := holdfast(t, "verify", "--data", c.data)
	require.NotZero(t, code, out)
	s, err := tryServe(t, c.data)
	require.Error(t, err)
	require.Equal(t, 2, s.cmd.ProcessState.ExitCode(), err.Error())
}

// administer runs the log's server as it is, without the rules that Holdfast binds itself by.
func (c *custody) administer(t testing.TB, do func(natsjs.JetStream)) {
	t.Helper()
	s, err := natsserver.NewServer(&natsserver.Options{ServerName: "holdfast", DontListen: true, JetStream: true, StoreDir: c.logDir(), SyncAlways: true})
	require.NoError(t, err)
	s.Start()
	defer func() {
		s.Shutdown()
		s.WaitForShutdown()
	}()
	require.True(t, s.ReadyForConnections(10*time.Second))
	nc, err := nats.Connect("", nats.InProcessServer(s))
	require.NoError(t, err)
	defer nc.Close()
	js, err := natsjs.New(nc)
	require.NoError(t, err)
	do(js)
}

// TestDamagedBlockFile changes one byte of the file in which the server keeps the log.
func TestDamagedBlockFile(t *testing.T) {
	c := tell(t)
	for _, part := range []float64{0.1, 0.5, 0.99} {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			c := c.copied(t)
			found, err := filepath.Glob(filepath.Join(c.logDir(), "jetstream", "$G", "streams", "*", "msgs", "1.blk"))
			require.NoError(t, err)
			require.Len(t, found, 1)
			data, err := os.ReadFile(found[0])
			require.NoError(t, err)
			data[int(part*float64(len(data)))] ^= 1
			require.NoError(t, os.WriteFile(found[0], data, 0o600))
			code, out, errs := holdfast(t, "verify", "--data", c.data)
			assert.Equal(t, 2, code, "%s\n%s", out, errs)
			assert.Regexp(t, "first bad event: [0-9]+|position [0-9]+: the message ", out+errs)
			left, err := os.ReadFile(found[0])
			require.NoError(t, err)
			assert.True(t, bytes.Equal(data, left), "verify changes no evidence")
			if part < 0.9 { // the service reads no further back than it has to; verify does
				s := serve(t, c.data)
				code, out, errs = s.cli("verify", "--data", c.data)
				assert.Equal(t, 2, code, "%s\n%s\n%s", out, errs, s.log)
				assert.Contains(t, out, "first bad event: ")
				s.stop()
			}
			require.NoError(t, os.Remove(c.state()))
			s, err := tryServe(t, c.data)
			require.Error(t, err)
			assert.Equal(t, 2, s.cmd.ProcessState.ExitCode(), err.Error())
		})
	}
}
