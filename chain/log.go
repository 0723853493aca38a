package chain

import (
	"bytes"
	"context"
	"errors"
	"iter"
)

// Position is where a block stands in its log, as the log itself counts; 0 is before the first.
// It is transport, not evidence: no event holds it.
type Position uint64

// Block is what a log stores in one piece: the bytes of one or more events that follow each other.
type Block struct {
	Position Position
	Lines    [][]byte
}

// Tip is a head and the position of the block that ends there: what an append builds on.
type Tip struct {
	Head
	Position Position
}

// Appender is the writing side of a log.
type Appender interface {
	// Append stores lines as one block right after the block at prev, all or none. It returns nil only when the
	// block survives a crash and a power cut. ErrConflict means it was certainly not stored and another block
	// follows prev. Lines that no log may store are refused with CheckBlock's error, nothing sent. Any other error
	// wraps ErrUnknown: the block may be stored, now or later, and the caller must read the log from prev before
	// it does anything else. Callers keep one append in flight.
	Append(ctx context.Context, prev Position, lines [][]byte) (Position, error)
}

// Reader is the reading side of a log. Blocks arrive in order, without gaps, as they were stored; the lines are
// not checked. An error ends the sequence.
type Reader interface {
	// Read yields the blocks after the given one up to the end of the log at the time of the call.
	Read(ctx context.Context, after Position) iter.Seq2[Block, error]
	// Follow does the same and then waits for further blocks until ctx is done, with ctx's error last.
	Follow(ctx context.Context, after Position) iter.Seq2[Block, error]
}

// Log is both sides.
type Log interface {
	Appender
	Reader
}

// Errors of framing.
var (
	// ErrFraming reports a block that is not lines of text.
	ErrFraming = errors.New("a block is events with one newline between them, none empty")
	// ErrDamaged reports a block that was stored and cannot be read back as it was.
	ErrDamaged = errors.New("a stored block cannot be read back")
	// ErrBlockSize reports a block beyond MaxBlockEvents or MaxBlockBytes.
	ErrBlockSize = errors.New("a block holds at most 1000 events and 700 KiB")
)

// CheckBlock tells whether lines can be stored as one block: ErrFraming or ErrBlockSize. It does not look into
// the lines beyond their newlines.
func CheckBlock(lines [][]byte) error {
	if len(lines) == 0 {
		return ErrFraming
	}
	size := len(lines) - 1
	for _, line := range lines {
		if len(line) == 0 || bytes.IndexByte(line, '\n') >= 0 {
			return ErrFraming
		}
		size += len(line)
	}
	if len(lines) > MaxBlockEvents || size > MaxBlockBytes {
		return ErrBlockSize
	}
	return nil
}

// JoinLines is the body of a block: the events with one newline between them. No event holds a newline.
func JoinLines(lines [][]byte) []byte { return bytes.Join(lines, []byte{'\n'}) }

// SplitLines undoes JoinLines. The newline byte is the only separator; U+2028 and its like are text.
func SplitLines(body []byte) ([][]byte, error) {
	lines := bytes.Split(body, []byte{'\n'})
	for _, line := range lines {
		if len(line) == 0 {
			return nil, ErrFraming
		}
	}
	return lines, nil
}
