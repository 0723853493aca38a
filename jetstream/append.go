package jetstream

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Headers of a block. Only HeaderBlock is ever read back, to recognise a block of our own.
const (
	HeaderBlock    = "Holdfast-Block"     // 128 random bits, hexadecimal
	HeaderLog      = "Holdfast-Log"       // the log id; absent from the first block
	HeaderFirstSeq = "Holdfast-First-Seq" // seq of the first event
	HeaderCount    = "Holdfast-Count"     // number of events
)

// Append stores lines as one block right after the block at prev, as chain.Appender says. Without a deadline it
// tries for as long as the server gives no usable answer. ErrReadOnly and the errors of chain.CheckBlock mean that nothing
// was sent.
//
// Every attempt expects prev to be the last position, so the block can land at prev+1 and nowhere else. An
// acknowledgement of prev+1 is therefore success, and whatever is unclear is settled by reading prev+1 from the
// leader: our block id there is success; another one means that ours can never land; nothing there means that
// trying again with the same block is safe, because the position takes at most one of the attempts.
func (l *Log) Append(ctx context.Context, prev chain.Position, lines [][]byte) (chain.Position, error) {
	msg, err := l.block(prev, lines)
	if err != nil {
		return 0, err
	}
	at := prev + 1
	if err = l.publish(ctx, msg, at); isWrongSequence(err) {
		return 0, fmt.Errorf("append at position %d: %w", at, chain.ErrConflict)
	}
	for wait := 10 * time.Millisecond; err != nil; wait = min(2*wait, time.Second) {
		stored, lookErr := l.get(ctx, at)
		switch {
		case lookErr == nil && stored.Header.Get(HeaderBlock) == msg.Header.Get(HeaderBlock):
			err = nil
		case lookErr == nil:
			return 0, fmt.Errorf("append at position %d: %w", at, chain.ErrConflict)
		case !pause(ctx, wait):
			return 0, fmt.Errorf("append at position %d: %w: %w", at, chain.ErrUnknown, errors.Join(err, ctx.Err()))
		case errors.Is(lookErr, jetstream.ErrMsgNotFound):
			err = l.publish(ctx, msg, at)
		}
	}
	l.learn(at, lines[0])
	return at, nil
}

// block is the message that stores lines after prev.
func (l *Log) block(prev chain.Position, lines [][]byte) (*nats.Msg, error) {
	if l.readOnly {
		return nil, ErrReadOnly
	}
	if err := chain.CheckBlock(lines); err != nil {
		return nil, err
	}
	var id [16]byte
	rand.Read(id[:])
	msg := nats.NewMsg(Subject)
	msg.Data = chain.JoinLines(lines)
	msg.Header.Set(HeaderBlock, hex.EncodeToString(id[:]))
	msg.Header.Set(HeaderCount, strconv.Itoa(len(lines)))
	if first, err := chain.Parse(lines[0]); err == nil {
		msg.Header.Set(HeaderFirstSeq, strconv.FormatUint(first.Seq, 10))
	}
	if id := l.LogID(); id != "" {
		msg.Header.Set(HeaderLog, id)
	}
	msg.Header.Set(jetstream.ExpectedStreamHeader, l.name)
	msg.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(uint64(prev), 10))
	return msg, nil
}

// publish makes one attempt. nil means stored at the position and synced; isWrongSequence means that this
// attempt was refused; anything else leaves it open.
func (l *Log) publish(ctx context.Context, msg *nats.Msg, at chain.Position) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	reply, err := l.request(ctx, msg)
	if err != nil {
		return err
	}
	var ack struct {
		jetstream.PubAck
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return errors.New("the acknowledgement is not understood")
	}
	if ack.Error != nil {
		return ack.Error
	}
	if ack.Stream != l.name || ack.Sequence != uint64(at) {
		return fmt.Errorf("acknowledged as position %d of stream %s", ack.Sequence, ack.Stream)
	}
	return nil
}

func isWrongSequence(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
