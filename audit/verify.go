package audit

import (
	"context"
	"errors"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/projection"
)

// Payloads says which stored bytes are read.
type Payloads int

// Choices of payloads.
const (
	AllPayloads Payloads = iota
	NoPayloads
)

// Options of a verification. Only Log is needed.
type Options struct {
	Log   chain.Reader
	Store *blob.Store // where the payloads are; nil: not checked, and the report says so
	// State is a projection of the log; nil: not compared. It may be in use.
	State *projection.DB
	// TempDir, if set, is where the log is folded anew for the comparison with State, and removed again; without it
	// State is checked against its own events, once these are known to be the log's.
	TempDir string
	// Head is an end of the log that was stored outside it, see Anchor: the log must contain it. Without one, events
	// cut off the end do not show.
	Head     *chain.Head
	LogID    string // the log it must be; "": any
	Fast     bool   // links, sequence and Merkle root only
	Payloads Payloads
	Progress func(events uint64) // called after every few thousand events, and at the end
}

// Verify reads the whole log, as it is when it begins, and reports everything it finds. An error means that it could
// not be carried through; the report then holds what was found until there.
func Verify(ctx context.Context, o Options) (Report, error) {
	var report Report
	f := &fold{report: &report, want: o, plans: map[string]chain.Plan{}}
	if !o.Fast {
		f.letters = &letters{byRef: map[chain.Digest]*custody{}}
		if o.Store != nil && o.Payloads == AllPayloads {
			f.objects = &objects{byRef: map[objectRef]*object{}}
		}
	}
	if o.State != nil {
		f.state = &witness{db: o.State, size: o.State.Tip().Size, root: new(tree).root()}
	}
	w := &walk{fold: f, strict: !o.Fast}
	err := w.read(ctx, o)
	w.finish()
	f.finish()
	if err == nil {
		err = f.finishState(ctx)
	}
	if err == nil {
		err = f.finishObjects(ctx)
	}
	report.sort()
	return report, err
}

// progressEvery is how many events pass between two calls of Progress, about.
const progressEvery = 8192

func (w *walk) read(ctx context.Context, o Options) error {
	report, told := w.fold.report, uint64(0)
	for block, err := range o.Log.Read(ctx, 0) {
		if kind, why := unreadable(err); why != "" {
			w.finish()
			w.fold.unchain(kind, w.head.Size, why+"; nothing after it was read")
			return nil
		}
		if err != nil {
			return err
		}
		for _, raw := range block.Lines {
			w.feed(raw)
		}
		report.Events += uint64(len(block.Lines))
		if o.Progress != nil && report.Events-told >= progressEvery {
			told = report.Events
			o.Progress(told)
		}
	}
	if o.Progress != nil {
		o.Progress(report.Events)
	}
	return nil
}

// unreadable tells what it says about the log itself that a block could not be read; "" is nothing.
func unreadable(err error) (kind Kind, why string) {
	switch {
	case errors.Is(err, chain.ErrFraming):
		return Framing, "a block is not lines of text"
	case errors.Is(err, chain.ErrDamaged):
		return Damaged, "a stored block cannot be read back"
	}
	return "", ""
}
