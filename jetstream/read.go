package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-dvir/holdfast/chain"
)

// What the server may send ahead. The limit in bytes keeps memory flat whatever the size of the blocks: a limit
// in messages alone makes the server stall on large ones.
const (
	aheadBlocks = 1024
	aheadBytes  = 8 << 20
	// idle is how long a reader waits for a block that is known to exist before it looks what is wrong.
	idle = 2 * time.Second
	// patience is how often Read goes on after an interruption that gave it nothing.
	patience = 5
)

var (
	// errEnough ends a pull: the consumer of the sequence, or the end of the log, asked for no more.
	errEnough = errors.New("enough")
	// errStalled ends a pull whose server-side consumer is gone, as happens with the server that had it.
	errStalled = errors.New("the server sends nothing although there is more")
)

// Read yields the blocks after the given one up to the end of the log at the time of the call. A position
// that is missing, unreadable, not a block, or beyond the end is a *DamageError. Lines stay valid.
func (l *Log) Read(ctx context.Context, after chain.Position) iter.Seq2[chain.Block, error] {
	return l.sequence(ctx, after, false)
}

// Follow does what Read does and goes on with further blocks until ctx is done, through outages of an external
// server, with ctx's error last.
func (l *Log) Follow(ctx context.Context, after chain.Position) iter.Seq2[chain.Block, error] {
	return l.sequence(ctx, after, true)
}

func (l *Log) sequence(ctx context.Context, after chain.Position, live bool) iter.Seq2[chain.Block, error] {
	return func(yield func(chain.Block, error) bool) {
		p := &pull{log: l, at: after, live: live, yield: yield}
		var damage *DamageError
		for failures := 0; ; failures++ {
			before := p.at
			err := p.run(ctx)
			if p.at > before {
				failures = 0
			}
			switch {
			case errors.Is(err, errEnough):
				return
			case ctx.Err() != nil:
				yield(chain.Block{}, ctx.Err())
				return
			case errors.As(err, &damage), l.nc.IsClosed(), !live && failures >= patience:
				yield(chain.Block{}, fmt.Errorf("read after position %d: %w", p.at, err))
				return
			}
			pause(ctx, min(100*time.Millisecond<<min(failures, 5), 2*time.Second))
		}
	}
}

// pull is one reader on its way through the log.
type pull struct {
	log   *Log
	at    chain.Position // the last block yielded
	end   chain.Position // where Read stops
	live  bool
	yield func(chain.Block, error) bool
}

// run reads on from where p is until there is enough, or something is in the way.
func (p *pull) run(ctx context.Context) error {
	if err := p.aim(ctx); err != nil {
		return err
	}
	consumer, err := p.consumer(ctx)
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(aheadBlocks, aheadBytes))
	if err != nil {
		return err
	}
	defer p.log.forget(consumer)
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		msg, err := messages.Next(jetstream.NextMaxWait(idle))
		if errors.Is(err, nats.ErrTimeout) && ctx.Err() == nil {
			err = p.probe(ctx)
		} else if err == nil {
			err = p.take(msg)
		}
		if err != nil {
			return err
		}
	}
}

// consumer asks for messages from the next one on.
func (p *pull) consumer(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return p.log.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       uint64(p.at) + 1,
		MaxResetAttempts:  1,
		InactiveThreshold: time.Minute,
	})
}

// aim finds the end, once. The last block must be readable, or the server would never send it and p would wait.
func (p *pull) aim(ctx context.Context) error {
	if p.end == 0 {
		end, err := p.log.End(ctx)
		if err != nil {
			return err
		}
		if end < p.at {
			return p.log.damaged(p.at, fmt.Sprintf("the log ends at %d: blocks that were read before are gone", end))
		}
		p.end = end
	}
	if p.at >= p.end {
		if p.live {
			return nil
		}
		return errEnough
	}
	return p.readable(ctx, p.end)
}

// probe tells an idle log, which is no error, from one whose next block cannot be read or does not come.
func (p *pull) probe(ctx context.Context) error {
	end, err := p.log.End(ctx)
	if err != nil || end <= p.at {
		return err
	}
	if err := p.readable(ctx, p.at+1); err != nil {
		return err
	}
	return errStalled
}

func (p *pull) readable(ctx context.Context, at chain.Position) error {
	_, err := p.log.get(ctx, at)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return p.log.damaged(at, "the message cannot be read")
	}
	return err
}

// take yields one message.
func (p *pull) take(msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return errors.New("a message came without its position")
	}
	at := chain.Position(meta.Sequence.Stream)
	if at != p.at+1 {
		return p.log.damaged(p.at+1, fmt.Sprintf("the message is missing, the next one is %d", at))
	}
	lines, err := chain.SplitLines(msg.Data())
	if err != nil {
		return p.log.damaged(at, "the message is not a block")
	}
	p.log.learn(at, lines[0])
	p.at = at
	if !p.yield(chain.Block{Position: at, Lines: lines}, nil) || !p.live && at >= p.end {
		return errEnough
	}
	return nil
}

// forget removes the consumer of a finished reader; the server would do so by itself after a minute.
func (l *Log) forget(consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if info := consumer.CachedInfo(); info != nil {
		_ = l.js.DeleteConsumer(ctx, l.name, info.Name)
	}
}
