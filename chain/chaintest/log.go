// Package chaintest holds what tests of logs and of their readers share: a log in memory that can be made to fail,
// the conformance suite for logs, a small language for histories, and ways to tamper with them.
package chaintest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Log is a chain.Log in memory, safe for concurrent use. The zero Log is empty. Positions count blocks from 1.
type Log struct {
	// Fail, when set, decides what becomes of an append before the log looks at it. With an error the append
	// fails, and the block is stored all the same if stored is true and prev is the tail; without one the append
	// goes on. An error that is not chain.ErrConflict is wrapped in chain.ErrUnknown. Fail runs unlocked, so it
	// may append a rival's block or block for a while. Set it before the log is shared.
	Fail func(lines [][]byte) (stored bool, err error)

	mu     sync.Mutex
	blocks []chain.Block
	grown  chan struct{} // closed at the next append; made by whoever waits
}

// Append implements chain.Appender.
func (l *Log) Append(ctx context.Context, prev chain.Position, lines [][]byte) (chain.Position, error) {
	if err := chain.CheckBlock(lines); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, unknown(err)
	}
	if l.Fail != nil {
		if stored, err := l.Fail(lines); err != nil {
			if stored {
				_, _ = l.store(prev, lines)
			}
			return 0, unknown(err)
		}
	}
	return l.store(prev, lines)
}

func unknown(err error) error {
	if errors.Is(err, chain.ErrConflict) || errors.Is(err, chain.ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", chain.ErrUnknown, err)
}

func (l *Log) store(prev chain.Position, lines [][]byte) (chain.Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if prev != chain.Position(len(l.blocks)) {
		return 0, chain.ErrConflict
	}
	l.blocks = append(l.blocks, chain.Block{Position: prev + 1, Lines: clone(lines)})
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
	return prev + 1, nil
}

// after returns the blocks after a position, and a channel that is closed when there are more.
func (l *Log) after(p chain.Position) ([]chain.Block, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return l.blocks[min(int(p), len(l.blocks)):], l.grown
}

// Read implements chain.Reader.
func (l *Log) Read(ctx context.Context, after chain.Position) iter.Seq2[chain.Block, error] {
	blocks, _ := l.after(after)
	return func(yield func(chain.Block, error) bool) {
		for _, b := range blocks {
			if err := ctx.Err(); err != nil {
				yield(chain.Block{}, err)
				return
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}

// Follow implements chain.Reader.
func (l *Log) Follow(ctx context.Context, after chain.Position) iter.Seq2[chain.Block, error] {
	return func(yield func(chain.Block, error) bool) {
		at := after
		for {
			blocks, grown := l.after(at)
			for _, b := range blocks {
				if ctx.Err() != nil {
					break
				}
				if at = b.Position; !yield(b, nil) {
					return
				}
			}
			select {
			case <-grown:
			case <-ctx.Done():
				yield(chain.Block{}, ctx.Err())
				return
			}
		}
	}
}

// Lines are the events of the whole log, copied.
func (l *Log) Lines() [][]byte {
	blocks, _ := l.after(0)
	var lines [][]byte
	for _, b := range blocks {
		lines = append(lines, clone(b.Lines)...)
	}
	return lines
}

// clone copies lines, so that nobody can change what somebody else has stored.
func clone(lines [][]byte) [][]byte {
	out := make([][]byte, len(lines))
	for i, line := range lines {
		out[i] = bytes.Clone(line)
	}
	return out
}
