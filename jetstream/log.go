package jetstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-dvir/holdfast/chain"
)

const (
	// openTimeout bounds Open when its context does not.
	openTimeout = time.Minute
	// attemptTimeout is how long one publish may take before its outcome counts as unknown.
	attemptTimeout = 5 * time.Second
	// askTimeout is how long one question may take; clusters that are choosing leaders drop questions.
	askTimeout = 2 * time.Second
)

// Config says where the log is. The zero Config with a Dir is a log on an embedded server.
type Config struct {
	// Dir is the folder of the embedded server; it belongs to one Log at a time. Not used with URL.
	Dir string
	// URL names external servers, separated by commas; user and password may be part of it.
	URL string
	// Credentials is the path of a NATS credentials file for URL. Optional.
	Credentials string
	// SystemURL and SystemCredentials reach the same servers as a user of the system account. They are used
	// once, by Open, to see sync_always. Without them the connection to URL is asked, which works when the
	// account imports the service $SYS.REQ.SERVER.PING.JSZ.
	SystemURL, SystemCredentials string
	// AllowUnsynced accepts external servers that do not sync every write or do not tell: a power cut may then
	// take acknowledged blocks.
	AllowUnsynced bool
	// Stream is the name of the stream, DefaultStream when empty.
	Stream string
	// Replicas is how many servers keep the log. 0 makes a new stream with 1 and takes an old one as it is.
	Replicas int
	// ReadOnly neither creates nor appends.
	ReadOnly bool
	// Logger gets the warnings and errors of the embedded server. Optional.
	Logger *slog.Logger
}

// Log is the log in a JetStream stream. It is safe for concurrent use, with one Append at a time.
type Log struct {
	name     string
	readOnly bool
	lock     *os.File       // of the embedded server's folder
	server   *server.Server // nil when external
	nc       *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	logID    atomic.Pointer[string]
	// request is nc.RequestMsgWithContext: one message, one reply, no retries of its own.
	request func(context.Context, *nats.Msg) (*nats.Msg, error)
}

var _ chain.Log = (*Log)(nil)

// Open opens the log, and creates it unless Config.ReadOnly is set. It takes as long as the server needs to read
// its files back, at most a minute when ctx has no deadline. For its errors see the package documentation.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout)
		defer cancel()
	}
	l := &Log{name: cfg.Stream, readOnly: cfg.ReadOnly}
	if l.name == "" {
		l.name = DefaultStream
	}
	if err := l.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Log) open(ctx context.Context, cfg Config) (err error) {
	var known servers
	if cfg.URL == "" {
		err = l.connectEmbedded(ctx, cfg)
	} else {
		known, err = l.connectExternal(ctx, cfg)
	}
	if err != nil {
		return err
	}
	l.request = l.nc.RequestMsgWithContext
	if l.js, err = jetstream.New(l.nc); err != nil {
		return err
	}
	info, err := l.find(ctx, cfg)
	if err != nil {
		return err
	}
	if err := l.assure(ctx, cfg, info, known); err != nil {
		return err
	}
	l.stream, err = retried(ctx, func(ctx context.Context) (jetstream.Stream, error) { return l.js.Stream(ctx, l.name) })
	if err != nil {
		return err
	}
	return l.inspect(ctx, info)
}

func (l *Log) connectEmbedded(ctx context.Context, cfg Config) (err error) {
	if cfg.Dir == "" {
		return errors.New("open the log: neither a folder nor a server is given")
	}
	if cfg.ReadOnly {
		_, err := os.Stat(filepath.Join(cfg.Dir, server.JetStreamStoreDir))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("folder %s: %w", cfg.Dir, ErrMissing)
		}
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return err
	}
	if l.lock, err = lock(cfg.Dir); err != nil {
		return err
	}
	if err := syncFiles(cfg.Dir, l.name); err != nil {
		return err
	}
	if l.server, err = embed(ctx, cfg.Dir, cfg.Logger); err != nil {
		return err
	}
	l.nc, err = nats.Connect("", nats.InProcessServer(l.server), nats.ReconnectBufSize(-1), nats.Name("holdfast"))
	return err
}

// Close stops reading and, when the server is embedded, the server. Acknowledged blocks are durable before it.
func (l *Log) Close() error {
	if l.nc != nil {
		l.nc.Close()
	}
	if l.server != nil {
		stop(l.server)
	}
	if l.lock == nil {
		return nil
	}
	if err := l.lock.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// End is the position of the last block, as the leader of the stream knows it; 0 for an empty log.
func (l *Log) End(ctx context.Context) (chain.Position, error) {
	info, err := l.info(ctx)
	if err != nil {
		return 0, err
	}
	return chain.Position(info.State.LastSeq), nil
}

// LogID is the random id in the genesis event, once this Log has seen the first block; "" before, and for a log
// that does not begin with a genesis event.
func (l *Log) LogID() string {
	if id := l.logID.Load(); id != nil {
		return *id
	}
	return ""
}

// learn takes the log id from the first line of the first block.
func (l *Log) learn(at chain.Position, line []byte) {
	if at != 1 || l.logID.Load() != nil {
		return
	}
	if first, err := chain.Parse(line); err == nil && first.Event.Type == chain.TypeGenesis {
		l.logID.Store(&first.Event.LogID)
	}
}

// Healthy tells whether appends can be expected to work: the stream answers, has a leader and, on an embedded
// server, has met no disk error. A disk error stays until the server is restarted.
func (l *Log) Healthy(ctx context.Context) error {
	if l.server != nil {
		status := l.server.Healthz(&server.HealthzOptions{Account: server.DEFAULT_GLOBAL_ACCOUNT, Stream: l.name})
		if status.Error != "" {
			return fmt.Errorf("stream %s: %s", l.name, status.Error)
		}
	}
	info, err := l.info(ctx)
	if err != nil {
		return err
	}
	if len(info.Cluster.Replicas) > 0 && info.Cluster.Leader == "" {
		return fmt.Errorf("stream %s: no leader", l.name)
	}
	return nil
}
