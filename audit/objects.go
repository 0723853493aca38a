package audit

import (
	"context"
	"errors"
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
}

func (o *objects) take(r *chain.Record) {
	for _, b := range r.Event.Blobs {
		ref := objectRef{b.Ref, unique.Make(b.BlobVersion)}
		known := o.byRef[ref]
		if known == nil {
			known = &object{firstSeq: r.Seq}
			o.byRef[ref] = known
			o.arrived = append(o.arrived, ref)
		}
		known.retainUntil = max(known.retainUntil, micros(b.RetainUntil))
	}
}

// recorded is what the log says of one object, and where it first says so.
type recorded struct {
	blob.Location
	seq uint64
}

// all yields payloads first, then the rest, each in order of arrival.
func (o *objects) all(a *letters, yield func(recorded) bool) {
	for _, c := range a.arrived {
		ref := blob.Ref{Digest: c.ref, Version: c.blobVersion.Value()}
		if !yield(recorded{blob.Location{Ref: ref, RetainUntil: instant(c.retainUntil), Hold: c.hold}, c.firstSeq}) {
			return
		}
	}
	for _, ref := range o.arrived {
		known := o.byRef[ref]
		want := blob.Location{Ref: blob.Ref{Digest: ref.digest, Version: ref.version.Value()}, RetainUntil: instant(known.retainUntil)}
		if !yield(recorded{want, known.firstSeq}) {
			return
		}
	}
}

// readers is how many objects are read at the same time, enough for a store that is far away; a batch is how many are
// handed out before their findings are reported, in order.
const (
	readers   = 16
	readBatch = 128
)

// check reads and hashes every object.
func (o *objects) check(ctx context.Context, store *blob.Store, a *letters, report *Report) error {
	batch := make([]recorded, 0, readBatch)
	var err error
	flush := func() bool {
		err = checkBatch(ctx, store, batch, report)
		batch = batch[:0]
		return err == nil
	}
	o.all(a, func(r recorded) bool {
		batch = append(batch, r)
		return len(batch) < readBatch || flush()
	})
	if err == nil {
		flush()
	}
	return err
}

func checkBatch(ctx context.Context, store *blob.Store, batch []recorded, report *Report) error {
	found := make([][]Finding, len(batch))
	var wg sync.WaitGroup
	for reader := range readers {
		wg.Go(func() {
			for i := reader; i < len(batch) && ctx.Err() == nil; i += readers {
				found[i] = checkObject(ctx, store, batch[i])
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, findings := range found {
		report.Blobs++
		for _, f := range findings {
			report.add(f)
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

func checkObject(ctx context.Context, store *blob.Store, r recorded) (findings []Finding) {
	problems, err := store.Check(ctx, r.Location)
	if err != nil {
		return []Finding{{BlobUnreadable, r.seq, r.Digest, "the store did not answer: " + reason(err)}}
	}
	for _, p := range problems {
		findings = append(findings, Finding{blobKinds[p.Problem], r.seq, r.Digest, p.Detail})
	}
	return findings
}

// reason keeps to causes that are known to quote nothing.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "in time"
	}
	return "it reports an error of its own"
}
