package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-dvir/holdfast/chain"
)

// The stream's name unless Config.Stream says otherwise, and the one subject it takes.
const (
	DefaultStream = "HOLDFAST_LOG"
	Subject       = "holdfast.log"
)

// headerRoom is what the headers of a block may take beside its body; the server counts both.
const headerRoom = 4 << 10

// wanted is how the stream has to be. Limits are spelled out, since the server's spelling of "none" differs.
func wanted(name string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              name,
		Description:       "Holdfast log: every message is a block of events. Do not edit.",
		Subjects:          []string{Subject},
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardNew,
		MaxConsumers:      -1,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgsPerSubject: -1,
		MaxMsgSize:        chain.MaxBlockBytes + headerRoom,
		Replicas:          max(replicas, 1),
		// No message carries a deduplication id; this is the shortest window the server takes.
		Duplicates: 100 * time.Millisecond,
		DenyDelete: true,
		DenyPurge:  true,
	}
}

// streamInfo is what $JS.API.STREAM.INFO answers, with the configuration as the server spells it: settings that
// the client library does not know are compared too.
type streamInfo struct {
	Error  *jetstream.APIError `json:"error"`
	Config map[string]any      `json:"config"`
	State  struct {
		Messages uint64 `json:"messages"`
		FirstSeq uint64 `json:"first_seq"`
		LastSeq  uint64 `json:"last_seq"`
		Deleted  int    `json:"num_deleted"`
	} `json:"state"`
	Cluster struct {
		Leader   string `json:"leader"`
		Replicas []struct {
			Name string `json:"name"`
		} `json:"replicas"`
	} `json:"cluster"`
}

// info asks the leader of the stream.
func (l *Log) info(ctx context.Context) (*streamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := l.nc.RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"STREAM.INFO."+l.name, nil)
	if err != nil {
		return nil, fmt.Errorf("stream %s: ask for its state: %w", l.name, err)
	}
	var info streamInfo
	if err := json.Unmarshal(reply.Data, &info); err != nil {
		return nil, fmt.Errorf("stream %s: the server's answer is not understood", l.name)
	}
	if info.Error != nil {
		return nil, fmt.Errorf("stream %s: %w", l.name, info.Error)
	}
	return &info, nil
}

// find makes sure of the stream: creates it where it may, and compares what is there with what is wanted.
func (l *Log) find(ctx context.Context, cfg Config) (*streamInfo, error) {
	info, err := retried(ctx, l.info)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err := l.create(ctx, cfg); err != nil {
			return nil, err
		}
		info, err = retried(ctx, l.info)
	}
	if err != nil {
		return nil, err
	}
	return info, l.compare(info, cfg.Replicas)
}

// create makes the stream. Block files without a stream belong to a log whose settings file was lost or edited;
// the server would quietly adopt them. Empty ones, and settings written half, are what a first start leaves that was
// cut short before anything was stored: they go.
func (l *Log) create(ctx context.Context, cfg Config) error {
	if l.server != nil {
		held, err := holdsBlocks(cfg.Dir, l.name)
		if err != nil {
			return err
		}
		if held {
			return l.damaged(0, "there are block files but no readable stream settings")
		}
	}
	if cfg.ReadOnly {
		return fmt.Errorf("stream %s: %w", l.name, ErrMissing)
	}
	if l.server != nil {
		if err := os.RemoveAll(streamFolder(cfg.Dir, l.name)); err != nil {
			return fmt.Errorf("stream %s: what a first start left unfinished: %w", l.name, err)
		}
	}
	_, err := retried(ctx, func(ctx context.Context) (jetstream.Stream, error) {
		return l.js.CreateStream(ctx, wanted(l.name, cfg.Replicas))
	})
	if err != nil {
		return fmt.Errorf("stream %s: create: %w", l.name, err)
	}
	if l.server != nil {
		return syncFiles(cfg.Dir, l.name)
	}
	return nil
}

// free are the settings that are the operator's business.
var free = []string{"description", "metadata", "placement"}

// compare checks every setting the stream has or should have. replicas 0 takes any number.
func (l *Log) compare(info *streamInfo, replicas int) error {
	spelled, err := json.Marshal(wanted(l.name, replicas))
	if err != nil {
		return err
	}
	var want map[string]any
	if err := json.Unmarshal(spelled, &want); err != nil {
		return err
	}
	for _, name := range append(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(info.Config))...) {
		if slices.Contains(free, name) || name == "num_replicas" && replicas == 0 {
			continue
		}
		if have := info.Config[name]; !(unset(have) && unset(want[name])) && !reflect.DeepEqual(have, want[name]) {
			return &SettingError{l.name, name, spell(have), spell(want[name])}
		}
	}
	return nil
}

// unset tells whether a setting has the value it has when nobody sets it.
func unset(setting any) bool {
	switch v := setting.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return setting == nil || reflect.ValueOf(setting).IsZero()
}

func spell(setting any) string {
	if setting == nil {
		return "unset"
	}
	text, err := json.Marshal(setting)
	if err != nil {
		return "unreadable"
	}
	return string(text)
}

// inspect checks that the stream holds every message from 1 to its last, as far as its own account and the
// first and the last message tell, and takes the log id from the first.
func (l *Log) inspect(ctx context.Context, info *streamInfo) error {
	st := info.State
	switch {
	case st.LastSeq == 0:
		return nil
	case st.FirstSeq != 1:
		return l.damaged(1, fmt.Sprintf("the stream begins at %d", st.FirstSeq))
	case st.Deleted != 0 || st.Messages != st.LastSeq:
		return l.damaged(0, fmt.Sprintf("%d of %d messages are missing", st.LastSeq-st.Messages, st.LastSeq))
	}
	for _, at := range []uint64{1, st.LastSeq} {
		msg, err := retried(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
			return l.get(ctx, chain.Position(at))
		})
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return l.damaged(chain.Position(at), "the message cannot be read")
		case err != nil:
			return err
		}
		lines, err := chain.SplitLines(msg.Data)
		if err != nil {
			return l.damaged(chain.Position(at), "the message is not a block")
		}
		l.learn(chain.Position(at), lines[0])
	}
	return nil
}

func (l *Log) damaged(at chain.Position, what string) *DamageError {
	return &DamageError{Stream: l.name, Position: at, What: what}
}

// get reads one message from the leader of the stream. A direct get would be answered by any replica, also by
// one that lags; compare refuses streams that allow it.
func (l *Log) get(ctx context.Context, at chain.Position) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return l.stream.GetMsg(ctx, uint64(at))
}

// retried asks again while nobody answers.
func retried[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	for {
		once, cancel := context.WithTimeout(ctx, askTimeout)
		answer, err := ask(once)
		cancel()
		var api *jetstream.APIError
		again := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) ||
			errors.As(err, &api) && api.Code == 503
		if !again || !pause(ctx, 100*time.Millisecond) {
			return answer, err
		}
	}
}

// pause waits for d and reports whether ctx is still good.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
