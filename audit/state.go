package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/projection"
)

// witness is the projection beside the log: what it had folded before the log was read, which the log must contain.
type witness struct {
	db   *projection.DB
	size uint64
	root chain.Digest // of the log at size, once the log has come that far
}

// recalls is the leaf of the event at size-1 as the projection has it.
func (w *witness) recalls(size uint64) (chain.Digest, bool) {
	if w == nil || size == 0 || size > w.size {
		return chain.Digest{}, false
	}
	lines, err := w.db.Events(size-1, 1)
	if err != nil || len(lines) == 0 {
		return chain.Digest{}, false
	}
	return chain.LeafHash(lines[0]), true
}

// compare reports where the projection is not the fold of the log. The log's own links are known to hold.
func (w *witness) compare(ctx context.Context, o Options, f *fold) error {
	switch behind := f.head.Size - min(w.size, f.head.Size); {
	case w.size > f.head.Size:
		f.find(Truncated, f.head.Size, fmt.Sprintf("the projection has %d events, the log ends after %d", w.size, f.head.Size))
		return nil
	case behind > 0:
		f.report.note("the projection is %d events behind the log; these were not compared", behind)
	}
	root, err := w.db.RootAt(w.size)
	switch {
	case err != nil:
		return w.unusable(ctx, f, err)
	case root != w.root:
		return w.locate(ctx, o.Log, f)
	case o.TempDir != "":
		return w.refold(ctx, o, f)
	}
	if found := w.db.Check(ctx); len(found) > 0 && ctx.Err() == nil {
		w.wrong(f, fmt.Sprintf("it contradicts its own events in %d places", len(found)))
	}
	return ctx.Err()
}

// wrong reports what concerns no single event.
func (w *witness) wrong(f *fold, detail string) {
	f.report.add(Finding{Kind: Fold, Seq: w.size, Detail: detail})
}

// unusable tells damage, which is a finding, from being kept from looking.
func (w *witness) unusable(ctx context.Context, f *fold, err error) error {
	if _, damaged := errors.AsType[*projection.UnusableError](err); damaged && ctx.Err() == nil {
		w.wrong(f, "its file is damaged")
		return nil
	}
	return err
}

// locate finds the first event that is not the same in both.
func (w *witness) locate(ctx context.Context, log chain.Reader, f *fold) error {
	seq := uint64(0)
	var have [][]byte
	for line, err := range upTo(log, w.size).lines(ctx) {
		if err != nil {
			return err
		}
		if len(have) == 0 {
			if have, err = w.db.Events(seq, chain.MaxBlockEvents); err != nil {
				return w.unusable(ctx, f, err)
			}
		}
		if len(have) == 0 || string(have[0]) != string(line) {
			f.find(State, seq, "the projection has another event here")
			return nil
		}
		seq, have = seq+1, have[1:]
	}
	w.wrong(f, "its events are those of the log, the hashes of its tree are not")
	return nil
}

// refold makes another projection of the same events and compares fingerprints.
func (w *witness) refold(ctx context.Context, o Options, f *fold) (err error) {
	was, head, err := w.db.Fingerprint(ctx)
	if err != nil {
		return w.unusable(ctx, f, err)
	}
	dir, err := os.MkdirTemp(o.TempDir, "holdfast-verify-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	is, err := fingerprint(ctx, upTo(o.Log, head.Size), filepath.Join(dir, "projection"))
	if _, broken := errors.AsType[*chain.BrokenError](err); broken {
		f.report.note("the projection was compared by its events only: the log cannot be folded anew")
		return nil
	}
	if err == nil && is != was {
		w.wrong(f, "it is not what its events fold to")
	}
	return err
}

func fingerprint(ctx context.Context, log chain.Reader, path string) (sum chain.Digest, err error) {
	if _, err = projection.Rebuild(ctx, log, path); err != nil {
		return sum, err
	}
	db, err := projection.OpenReadOnly(path)
	if err != nil {
		return sum, err
	}
	sum, _, err = db.Fingerprint(ctx)
	return sum, errors.Join(err, db.Close())
}

// prefix is the first size events of a log.
type prefix struct {
	chain.Reader
	size uint64
}

func upTo(log chain.Reader, size uint64) prefix { return prefix{log, size} }

// Read implements chain.Reader for a reader that begins at the beginning.
func (p prefix) Read(ctx context.Context, after chain.Position) iter.Seq2[chain.Block, error] {
	return func(yield func(chain.Block, error) bool) {
		left := p.size
		for b, err := range p.Reader.Read(ctx, after) {
			if left == 0 && err == nil {
				return
			}
			b.Lines = b.Lines[:min(uint64(len(b.Lines)), left)]
			left -= uint64(len(b.Lines))
			if !yield(b, err) {
				return
			}
		}
	}
}

func (p prefix) lines(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for b, err := range p.Read(ctx, 0) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, line := range b.Lines {
				if !yield(line, nil) {
					return
				}
			}
		}
	}
}
