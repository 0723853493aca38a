package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-dvir/holdfast/chain"
)

// leastPayload is what the servers must take in one message, in bytes: a block and its headers.
const leastPayload = chain.MaxBlockBytes + 4<<10

// connectExternal reaches the servers and, unless that is waived, sees to it that they sync every write.
func (l *Log) connectExternal(ctx context.Context, cfg Config) (servers, error) {
	var err error
	if l.nc, err = dial(ctx, cfg.URL, cfg.Credentials); err != nil {
		return nil, fmt.Errorf("connect to the server of the log: %w", err)
	}
	if have := l.nc.MaxPayload(); have < leastPayload && !cfg.ReadOnly {
		return nil, fmt.Errorf("%w: they take %d bytes, and blocks of the log have up to %d with their headers: raise max_payload on every server",
			ErrMessageLimit, have, leastPayload)
	}
	if cfg.AllowUnsynced {
		return nil, nil
	}
	return l.survey(ctx, cfg)
}

// assure sees to it that every server that keeps the stream syncs. Servers that have just found each other may
// not answer the first time.
func (l *Log) assure(ctx context.Context, cfg Config, info *streamInfo, known servers) error {
	if l.server != nil || cfg.AllowUnsynced {
		return nil
	}
	for range 10 {
		err := known.cover(info)
		if err == nil {
			return nil
		}
		if known, err = l.survey(ctx, cfg); err != nil {
			return err
		}
	}
	return known.cover(info)
}

// dial connects without a buffer for outages: what cannot be sent now must not be sent later.
func dial(ctx context.Context, url, credentials string) (*nats.Conn, error) {
	options := []nats.Option{nats.Name("holdfast"), nats.ReconnectBufSize(-1), nats.MaxReconnects(-1)}
	if credentials != "" {
		options = append(options, nats.UserCredentials(credentials))
	}
	if deadline, ok := ctx.Deadline(); ok {
		options = append(options, nats.Timeout(min(time.Until(deadline), attemptTimeout)))
	}
	return nats.Connect(url, options...)
}

// servers are the names of servers known to sync every write.
type servers map[string]bool

// survey asks all servers for their JetStream options. sync_always belongs to the whole server, cannot be
// changed while it runs, and is shown to the system account only.
func (l *Log) survey(ctx context.Context, cfg Config) (servers, error) {
	system := l.nc
	if cfg.SystemURL != "" || cfg.SystemCredentials != "" {
		var err error
		system, err = dial(ctx, cmp.Or(cfg.SystemURL, cfg.URL), cmp.Or(cfg.SystemCredentials, cfg.Credentials))
		if err != nil {
			return nil, fmt.Errorf("connect to the system account: %w", err)
		}
		defer system.Close()
	}
	inbox, err := system.SubscribeSync(nats.NewInbox())
	if err != nil {
		return nil, err
	}
	defer inbox.Unsubscribe() //nolint:errcheck // nothing depends on it
	if err := system.PublishRequest("$SYS.REQ.SERVER.PING.JSZ", inbox.Subject, nil); err != nil {
		return nil, err
	}
	known := servers{}
	for wait := askTimeout; ; wait = 300 * time.Millisecond {
		once, cancel := context.WithTimeout(ctx, wait)
		reply, err := inbox.NextMsgWithContext(once)
		cancel()
		if err != nil {
			break // no more answers; who is missing shows in cover
		}
		if err := known.add(reply.Data); err != nil {
			return nil, err
		}
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("%w: no server shows its options; give a user of the system account, or accept the risk explicitly", ErrUnsynced)
	}
	return known, nil
}

func (k servers) add(answer []byte) error {
	var jsz struct {
		Server struct {
			Name string `json:"name"`
		} `json:"server"`
		Data *struct {
			Disabled bool `json:"disabled"`
			Config   struct {
				SyncAlways bool `json:"sync_always"`
			} `json:"config"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer, &jsz); err != nil || jsz.Data == nil || jsz.Data.Disabled {
		return nil // not a server that could keep the log
	}
	if !jsz.Data.Config.SyncAlways {
		return fmt.Errorf("%w: server %s: set sync_interval to always in its jetstream block and restart it", ErrUnsynced, jsz.Server.Name)
	}
	k[jsz.Server.Name] = true
	return nil
}

// cover checks that every server that keeps the stream is known to sync.
func (k servers) cover(info *streamInfo) error {
	names := []string{info.Cluster.Leader}
	for _, replica := range info.Cluster.Replicas {
		names = append(names, replica.Name)
	}
	for _, name := range names {
		if name != "" && !k[name] {
			return fmt.Errorf("%w: server %s keeps the log and did not answer", ErrUnsynced, name)
		}
	}
	return nil
}
