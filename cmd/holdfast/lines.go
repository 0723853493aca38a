package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"iter"

	"github.com/holdfast-dvir/holdfast/chain"
)

// lineLog reads a log from lines of text: an exported file, or what a server hands out. It is made to be read
// once, from its first event.
type lineLog struct {
	from io.Reader
}

var errOneWay = errors.New("an exported log is read from its first event")

// Read yields the lines in blocks. A line beyond every limit of the format is cut: the check refuses it.
func (l lineLog) Read(ctx context.Context, after chain.Position) iter.Seq2[chain.Block, error] {
	return func(yield func(chain.Block, error) bool) {
		if after != 0 {
			yield(chain.Block{}, errOneWay)
			return
		}
		in := bufio.NewReaderSize(l.from, 1<<20)
		for position := chain.Position(1); ; position++ {
			lines, err := nextLines(in)
			if len(lines) > 0 && !yield(chain.Block{Position: position, Lines: lines}, nil) {
				return
			}
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield(chain.Block{}, err)
				}
				return
			}
		}
	}
}

// Follow is Read: an exported log does not grow.
func (l lineLog) Follow(ctx context.Context, after chain.Position) iter.Seq2[chain.Block, error] {
	return l.Read(ctx, after)
}

// nextLines takes up to 100 lines. Empty ones count: in a log they are damage.
func nextLines(in *bufio.Reader) (lines [][]byte, err error) {
	for len(lines) < 100 {
		line, err := in.ReadSlice('\n')
		keep := bytes.Clone(bytes.TrimSuffix(line, []byte{'\n'}))
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return lines, io.EOF
		}
		lines = append(lines, keep)
		if err != nil {
			return lines, err
		}
	}
	return lines, nil
}
