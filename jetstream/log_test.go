package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
)

func open(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l
}

// refused opens what must not open.
func refused(t testing.TB, cfg Config) error {
	t.Helper()
	l, err := Open(t.Context(), cfg)
	if err == nil {
		require.NoError(t, l.Close())
	}
	require.Error(t, err)
	return err
}

func lines(texts ...string) [][]byte {
	var out [][]byte
	for _, text := range texts {
		out = append(out, []byte(text))
	}
	return out
}

// fill appends n blocks, one line each, that say which they are.
func fill(t testing.TB, l *Log, n int) {
	t.Helper()
	for i := range n {
		at, err := l.Append(t.Context(), chain.Position(i), lines(fmt.Sprint("block ", i+1)))
		require.NoError(t, err)
		require.EqualValues(t, i+1, at)
	}
}

// content reads the log as text, one string a block.
func content(t testing.TB, l *Log) (texts []string) {
	t.Helper()
	for b, err := range l.Read(t.Context(), 0) {
		require.NoError(t, err)
		require.EqualValues(t, len(texts)+1, b.Position)
		texts = append(texts, string(bytes.Join(b.Lines, []byte("|"))))
	}
	return texts
}

func end(t testing.TB, l *Log) chain.Position {
	t.Helper()
	at, err := l.End(t.Context())
	require.NoError(t, err)
	return at
}

func genesis(t testing.TB, id string) [][]byte {
	t.Helper()
	r, err := chain.Head{}.Seal(chain.Event{Type: chain.TypeGenesis, At: time.Unix(0, 0), Actor: "test",
		Origin: "holdfast.example/test", LogID: id})
	require.NoError(t, err)
	return [][]byte{r.Raw}
}

// outside is a server that is not ours, with an account for the log and a system account.
type outside struct {
	*server.Server
	app, system string // URLs
	conf        string
}

func startOutside(t testing.TB, sync string, more ...string) *outside {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "server.conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `
		listen: "127.0.0.1:-1"
		server_name: outside
		jetstream { store_dir: %q, sync_interval: %s }
		accounts {
			APP { jetstream: enabled, users: [{user: app, password: app}] }
			SYS { users: [{user: sys, password: sys}] }
		}
		system_account: SYS
		%s`, dir, sync, strings.Join(more, "\n")), 0o600))
	o := &outside{conf: conf}
	o.start(t, 0)
	t.Cleanup(func() { stop(o.Server) })
	return o
}

// start runs the server, on a given port when it has been stopped.
func (o *outside) start(t testing.TB, port int) {
	t.Helper()
	options, err := server.ProcessConfigFile(o.conf)
	require.NoError(t, err)
	options.NoSigs, options.NoLog = true, true
	if port != 0 {
		options.Port = port
	}
	o.Server, err = server.NewServer(options)
	require.NoError(t, err)
	o.Server.Start()
	require.True(t, o.ReadyForConnections(10*time.Second))
	o.app = "nats://app:app@" + o.Addr().String()
	o.system = "nats://sys:sys@" + o.Addr().String()
}

func (o *outside) config() Config { return Config{URL: o.app, SystemURL: o.system} }

// admin is a connection that may do what the log itself never does.
func (o *outside) admin(t testing.TB) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(o.app)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return nc, js
}

func TestEmbeddedConforms(t *testing.T) {
	chaintest.TestLog(t, func(t *testing.T) chain.Log { return open(t, Config{Dir: t.TempDir()}) })
}

func TestExternalConforms(t *testing.T) {
	o := startOutside(t, "always")
	cfg := o.config()
	cfg.AllowUnsynced = true // seen to elsewhere, and it takes its time
	chaintest.TestLog(t, func(t *testing.T) chain.Log { return open(t, cfg) })
}

func TestReopenKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir})
	require.Empty(t, l.LogID())
	require.EqualValues(t, 0, end(t, l))
	_, err := l.Append(t.Context(), 0, genesis(t, "00112233445566778899aabbccddeeff"))
	require.NoError(t, err)
	require.Equal(t, "00112233445566778899aabbccddeeff", l.LogID())
	_, err = l.Append(t.Context(), 1, lines("a", "b"))
	require.NoError(t, err)
	before := content(t, l)
	require.NoError(t, l.Close())

	again := open(t, Config{Dir: dir, ReadOnly: true})
	require.Equal(t, before, content(t, again))
	require.EqualValues(t, 2, end(t, again))
	require.Equal(t, "00112233445566778899aabbccddeeff", again.LogID())
	_, err = again.Append(t.Context(), 2, lines("c"))
	require.ErrorIs(t, err, ErrReadOnly)
}

func TestEmbeddedServerSyncs(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir()})
	require.True(t, l.server.JetStreamConfig().SyncAlways)
	require.NoError(t, l.Healthy(t.Context()))
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir})
	fill(t, l, 1)

	var held *LockedError
	err := refused(t, Config{Dir: dir})
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorAs(t, err, &held)
	require.Equal(t, LockedError{Dir: dir, PID: os.Getpid()}, *held)

	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=lock", "DIR="+dir)
	output, err := child.CombinedOutput()
	require.NoError(t, err, string(output))

	require.NoError(t, l.Close())
	require.EqualValues(t, 1, end(t, open(t, Config{Dir: dir})))
}

func TestReadOnlyCreatesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	require.ErrorIs(t, refused(t, Config{Dir: dir, ReadOnly: true}), ErrMissing)
	require.NoDirExists(t, dir)

	require.NoError(t, open(t, Config{Dir: dir, Stream: "OTHER"}).Close())
	require.ErrorIs(t, refused(t, Config{Dir: dir, ReadOnly: true}), ErrMissing)
}

func TestServerThatCannotStart(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, server.JetStreamStoreDir), nil, 0o600))
	require.ErrorContains(t, refused(t, Config{Dir: dir}), dir)
	require.NoError(t, os.Remove(filepath.Join(dir, server.JetStreamStoreDir)))
	open(t, Config{Dir: dir})
}

func TestUnsyncedServerIsRefused(t *testing.T) {
	lazy := startOutside(t, "2m")
	require.ErrorIs(t, refused(t, lazy.config()), ErrUnsynced)
	_, js := lazy.admin(t)
	_, err := js.Stream(t.Context(), DefaultStream)
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound, "nothing was created")
	open(t, Config{URL: lazy.app, AllowUnsynced: true})

	synced := startOutside(t, "always")
	require.ErrorIs(t, refused(t, Config{URL: synced.app}), ErrUnsynced, "cannot be seen without the system account")
	l := open(t, synced.config())
	fill(t, l, 2)
	require.NoError(t, l.Healthy(t.Context()))
}

// A server that does not take a whole block would make appends wait for ever, the first time that one is large.
func TestServerOfSmallMessagesIsRefused(t *testing.T) {
	small := startOutside(t, "always", "max_payload: 131072")
	require.ErrorIs(t, refused(t, small.config()), ErrMessageLimit)
	enough := startOutside(t, "always", fmt.Sprintf("max_payload: %d", leastPayload))
	l := open(t, enough.config())
	fill(t, l, 2)
	block := [][]byte{bytes.Repeat([]byte{'x'}, chain.MaxBlockBytes)}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := l.Append(ctx, 2, block)
	require.NoError(t, err, "the largest block goes through")
}

func TestServersThatDidNotAnswer(t *testing.T) {
	var info streamInfo
	info.Cluster.Leader = "a"
	info.Cluster.Replicas = append(info.Cluster.Replicas, struct {
		Name string `json:"name"`
	}{"b"})
	require.NoError(t, servers{"a": true, "b": true}.cover(&info))
	require.ErrorIs(t, servers{"a": true}.cover(&info), ErrUnsynced)
	require.ErrorIs(t, servers{"b": true}.cover(&info), ErrUnsynced)
}

func TestSettings(t *testing.T) {
	o := startOutside(t, "always")
	_, js := o.admin(t)
	cfg := Config{URL: o.app, AllowUnsynced: true}
	for setting, change := range map[string]func(*jetstream.StreamConfig){
		"subjects":             func(c *jetstream.StreamConfig) { c.Subjects = []string{"holdfast.>"} },
		"retention":            func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"storage":              func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"discard":              func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"max_msgs":             func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 },
		"max_bytes":            func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 30 },
		"max_age":              func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"max_msgs_per_subject": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 },
		"max_msg_size":         func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 },
		"max_consumers":        func(c *jetstream.StreamConfig) { c.MaxConsumers = 1 },
		"no_ack":               func(c *jetstream.StreamConfig) { c.NoAck = true },
		"duplicate_window":     func(c *jetstream.StreamConfig) { c.Duplicates = time.Minute },
		"deny_delete":          func(c *jetstream.StreamConfig) { c.DenyDelete = false },
		"deny_purge":           func(c *jetstream.StreamConfig) { c.DenyPurge = false },
		"allow_rollup_hdrs":    func(c *jetstream.StreamConfig) { c.AllowRollup, c.DenyPurge = true, false },
		"compression":          func(c *jetstream.StreamConfig) { c.Compression = jetstream.S2Compression },
		"first_seq":            func(c *jetstream.StreamConfig) { c.FirstSeq = 100 },
		"republish": func(c *jetstream.StreamConfig) {
			c.RePublish = &jetstream.RePublish{Source: Subject, Destination: "copy"}
		},
		"allow_direct":        func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"allow_msg_ttl":       func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
		"allow_msg_schedules": func(c *jetstream.StreamConfig) { c.AllowMsgSchedules, c.Discard = true, jetstream.DiscardOld },
		"allow_atomic":        func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true },
		"allow_batched":       func(c *jetstream.StreamConfig) { c.AllowBatchPublish = true },
		"persist_mode":        func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode },
		"consumer_limits":     func(c *jetstream.StreamConfig) { c.ConsumerLimits.MaxAckPending = 5 },
		"subject_transform": func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: Subject, Destination: "x"}
		},
		"discard_new_per_subject": func(c *jetstream.StreamConfig) {
			c.DiscardNewPerSubject, c.MaxMsgsPerSubject = true, 5
		},
	} {
		t.Run(setting, func(t *testing.T) {
			c := wanted(DefaultStream, 1)
			change(&c)
			_, err := js.CreateStream(t.Context(), c)
			require.NoError(t, err)
			defer func() { require.NoError(t, js.DeleteStream(context.Background(), DefaultStream)) }()
			var wrong *SettingError
			require.ErrorAs(t, refused(t, cfg), &wrong)
			require.NotEqual(t, wrong.Have, wrong.Want)
			if setting != "allow_rollup_hdrs" && setting != "discard_new_per_subject" && setting != "allow_msg_schedules" {
				require.Equal(t, setting, wrong.Setting) // these three bring others with them
			}
		})
	}
	t.Run("as wanted", func(t *testing.T) {
		c := wanted(DefaultStream, 1)
		c.Description, c.Metadata = "ours", map[string]string{"owner": "fleet"}
		_, err := js.CreateStream(t.Context(), c)
		require.NoError(t, err)
		open(t, cfg)
		cfg.Replicas = 3
		require.ErrorContains(t, refused(t, cfg), "num_replicas is 1 and must be 3")
	})
}

// TestLostBlocks: an administrator shortens the log and sets the stream back as it was.
func TestLostBlocks(t *testing.T) {
	o := startOutside(t, "always")
	_, js := o.admin(t)
	cfg := Config{URL: o.app, AllowUnsynced: true}
	l := open(t, cfg)
	fill(t, l, 5)
	c := wanted(DefaultStream, 1)
	c.MaxMsgs, c.Discard = 3, jetstream.DiscardOld
	_, err := js.UpdateStream(t.Context(), c)
	require.NoError(t, err)
	_, err = js.UpdateStream(t.Context(), wanted(DefaultStream, 1))
	require.NoError(t, err)

	var damage *DamageError
	require.ErrorAs(t, refused(t, cfg), &damage)
	require.EqualValues(t, 1, damage.Position)
	require.ErrorAs(t, readError(t, l, 0), &damage, "a reader that was open all the time")
	require.EqualValues(t, 1, damage.Position)
}

func TestForeignMessage(t *testing.T) {
	o := startOutside(t, "always")
	nc, _ := o.admin(t)
	cfg := Config{URL: o.app, AllowUnsynced: true}
	l := open(t, cfg)
	fill(t, l, 1)
	_, err := nc.Request(Subject, []byte("not\n\na block"), time.Second)
	require.NoError(t, err)
	var damage *DamageError
	require.ErrorAs(t, refused(t, cfg), &damage)
	require.EqualValues(t, 2, damage.Position)
	require.ErrorAs(t, readError(t, l, 0), &damage)
	require.EqualValues(t, 2, damage.Position)
}

// readError reads until there is an error, and there must be one.
func readError(t testing.TB, l *Log, after chain.Position) (last error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, err := range l.Read(ctx, after) {
		require.NoError(t, last, "an error ends the sequence")
		last = err
	}
	require.Error(t, last)
	require.NotErrorIs(t, last, context.DeadlineExceeded)
	return last
}

func streamDir(dir string) string {
	return filepath.Join(dir, server.JetStreamStoreDir, server.DEFAULT_GLOBAL_ACCOUNT, "streams", DefaultStream)
}

// filled makes a closed log of n blocks in a new folder and names its only block file.
func filled(t testing.TB, n int) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	l := open(t, Config{Dir: dir})
	fill(t, l, n)
	require.NoError(t, l.Close())
	files, err := blocks(dir, DefaultStream)
	require.NoError(t, err)
	require.Len(t, files, 1)
	return dir, files[0]
}

func cut(t testing.TB, file string, bytes int64) {
	t.Helper()
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(file, info.Size()-bytes))
}

func TestTornEnd(t *testing.T) {
	for name, index := range map[string]bool{"after a crash": false, "after a clean stop": true} {
		t.Run(name, func(t *testing.T) {
			dir, file := filled(t, 5)
			cut(t, file, 3)
			if !index {
				require.NoError(t, os.Remove(filepath.Join(streamDir(dir), "msgs", "index.db")))
			}
			l, err := Open(t.Context(), Config{Dir: dir})
			var damage *DamageError
			if errors.As(err, &damage) {
				require.Contains(t, damage.What, "1 of 5 messages")
				require.True(t, index, "a torn end that was never acknowledged is no reason to refuse")
				return
			}
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, l.Close()) })
			require.EqualValues(t, 4, end(t, l), "the end has visibly moved back")
			require.Len(t, content(t, l), 4)
			require.ErrorAs(t, readError(t, l, 5), &damage, "who has read block 5 is told")
			at, err := l.Append(t.Context(), 4, lines("another block 5"))
			require.NoError(t, err)
			require.EqualValues(t, 5, at)
		})
	}
}

func TestHoleAtTheEnd(t *testing.T) {
	dir, file := filled(t, 5)
	flip(t, file, "block 5")
	var damage *DamageError
	l, err := Open(t.Context(), Config{Dir: dir})
	if err == nil {
		t.Cleanup(func() { assert.NoError(t, l.Close()) })
		require.EqualValues(t, 4, end(t, l), "either refused or visibly shorter")
		return
	}
	require.ErrorAs(t, err, &damage)
	require.EqualValues(t, 5, damage.Position)
}

func TestHoleInTheMiddle(t *testing.T) {
	dir, file := filled(t, 5)
	flip(t, file, "block 3")
	var damage *DamageError
	l, err := Open(t.Context(), Config{Dir: dir})
	if err == nil {
		t.Cleanup(func() { assert.NoError(t, l.Close()) })
		err = readError(t, l, 0)
	}
	require.ErrorAs(t, err, &damage)
	require.EqualValues(t, 3, damage.Position)
}

func flip(t testing.TB, file, text string) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	at := bytes.Index(data, []byte(text))
	require.Positive(t, at)
	data[at] ^= 1
	require.NoError(t, os.WriteFile(file, data, 0o600))
}

// TestLostSettings: the server forgets a stream whose settings file it cannot read, and would adopt its blocks
// for a new one.
func TestLostSettings(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"gone":  os.Remove,
		"edited": func(path string) error {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, bytes.Replace(data, []byte(`"deny_purge":true`), []byte(`"deny_purge":null`), 1), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, file := filled(t, 3)
			require.NoError(t, harm(filepath.Join(streamDir(dir), "meta.inf")))
			var damage *DamageError
			require.ErrorAs(t, refused(t, Config{Dir: dir}), &damage)
			require.FileExists(t, file)
		})
	}
}
