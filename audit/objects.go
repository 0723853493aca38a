package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"unique"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
)

// objects are the stored bytes that events name besides payloads, which letters know.
type objects struct {
	byRef   map[objectRef]*object
	arrived []objectRef
}

type objectRef struct {
	digest  chain.Digest
	version unique.Handle[string]
}

type object struct {
	retainUntil int64
	firstSeq    uint64
	of          []*custody // the letters whose events name it
}

func (o *objects) take(r *chain.Record, c *custody) {
	for _, b := range r.Event.Blobs {
		ref := objectRef{b.Ref, unique.Make(b.BlobVersion)}
		known := o.byRef[ref]
		if known == nil {
			known = &object{firstSeq: r.Seq}
			o.byRef[ref] = known
			o.arrived = append(o.arrived, ref)
		}
		known.retainUntil = max(known.retainUntil, micros(b.RetainUntil))
		if !slices.Contains(known.of, c) {
			known.of = append(slices.Clip(known.of), c)
		}
	}
}

func held(c *custody) bool    { return c.hold }
func wasHeld(c *custody) bool { return c.wasHeld }

// recorded is what the log says of one object, and where it first says so.
type recorded struct {
	blob.Location
	seq uint64
	// mayHold: a hold is or was recorded and nobody lifts it. Lifting one concerns the payload alone.
	mayHold bool
}

// all yields payloads first, then the rest, each in order of arrival.
func (o *objects) all(a *letters) iter.Seq[recorded] {
	return func(yield func(recorded) bool) {
		for _, c := range a.arrived {
			ref := blob.Ref{Digest: c.ref, Version: c.blobVersion.Value()}
			if !yield(recorded{blob.Location{Ref: ref, RetainUntil: instant(c.retainUntil), Hold: c.hold}, c.firstSeq, c.hold}) {
				return
			}
		}
		for _, ref := range o.arrived {
			known := o.byRef[ref]
			want := blob.Location{Ref: blob.Ref{Digest: ref.digest, Version: ref.version.Value()},
				RetainUntil: instant(known.retainUntil), Hold: slices.ContainsFunc(known.of, held)}
			if !yield(recorded{want, known.firstSeq, slices.ContainsFunc(known.of, wasHeld)}) {
				return
			}
		}
	}
}

// elsewhere counts what was put into a bucket, if store is a folder that has nothing of that, and tells the first event
// about it. It is 0 when the folder has any of it: then it was copied there, and is to be checked.
func (o *objects) elsewhere(ctx context.Context, store *blob.Store, a *letters) (n int, seq uint64, err error) {
	if store.Describe().Kind != "directory" {
		return 0, 0, nil
	}
	for r := range o.all(a) {
		if r.Version == blob.DirVersion {
			continue
		}
		if _, err := store.Stat(ctx, r.Ref); !errors.Is(err, blob.ErrNotFound) {
			return 0, 0, ctx.Err()
		}
		if n++; n == 1 {
			seq = r.seq
		}
	}
	return n, seq, nil
}

// readers is how many objects are read at the same time, enough for a store that is far away; a batch is how many are
// handed out before their findings are reported, in order.
const (
	readers   = 16
	readBatch = 128
)

// check reads and hashes every object.
func (o *objects) check(ctx context.Context, store *blob.Store, a *letters, report *Report) error {
	n, seq, err := o.elsewhere(ctx, store, a)
	if n > 0 {
		report.add(Finding{Kind: BlobElsewhere, Seq: seq, Detail: fmt.Sprintf(
			"%d payloads and other bytes were put into a bucket, and the folder has none of them; no stored bytes were checked", n)})
	}
	if n > 0 || err != nil {
		return err
	}
	check := objectCheck{store: store, report: report}
	batch := make([]recorded, 0, readBatch)
	for r := range o.all(a) {
		if batch = append(batch, r); len(batch) == readBatch {
			if err := check.batch(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	if err := check.batch(ctx, batch); err != nil {
		return err
	}
	if check.heldMore > 0 {
		report.note("%d payloads or other bytes are under a legal hold that no event records, the first %s", check.heldMore, check.firstHeld)
	}
	return nil
}

// objectCheck gathers what the store says.
type objectCheck struct {
	store     *blob.Store
	report    *Report
	heldMore  int // objects under a hold that is not recorded
	firstHeld chain.Digest
}

func (c *objectCheck) batch(ctx context.Context, batch []recorded) error {
	found, hold := make([][]Finding, len(batch)), make([]bool, len(batch))
	var wg sync.WaitGroup
	for reader := range readers {
		wg.Go(func() {
			for i := reader; i < len(batch) && ctx.Err() == nil; i += readers {
				found[i], hold[i] = checkObject(ctx, c.store, batch[i])
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, findings := range found {
		c.report.Blobs++
		for _, f := range findings {
			c.report.add(f)
		}
		if hold[i] && !batch[i].mayHold {
			if c.heldMore++; c.heldMore == 1 {
				c.firstHeld = batch[i].Digest
			}
		}
	}
	return nil
}

var blobKinds = map[blob.Problem]Kind{
	blob.Missing:   BlobMissing,
	blob.Corrupt:   BlobCorrupt,
	blob.Shortened: BlobShortened,
	blob.Released:  BlobReleased,
	blob.Shadowed:  BlobShadowed,
}

// checkObject finds what is wrong with one object, and whether it is under legal hold. The store is asked for the hold
// in any case: it says so if there is none.
func checkObject(ctx context.Context, store *blob.Store, r recorded) (findings []Finding, held bool) {
	want := r.Location
	want.Hold = true
	problems, err := store.Check(ctx, want)
	if err != nil {
		return []Finding{{BlobUnreadable, r.seq, r.Digest, "the store did not answer: " + reason(err)}}, false
	}
	held = true
	for _, p := range problems {
		if p.Problem != blob.Shortened && p.Problem != blob.Shadowed {
			held = false // or cannot be told
		}
		if p.Problem != blob.Released || r.Hold {
			findings = append(findings, Finding{blobKinds[p.Problem], r.seq, r.Digest, p.Detail})
		}
	}
	return findings, held
}

// reason keeps to causes that are known to quote nothing.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "in time"
	}
	return "it reports an error of its own"
}
