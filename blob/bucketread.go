package blob

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Open implements [Backend]. What a read without a version gives is the pinned version
// unless something covers it: one request tells both.
func (b *Bucket) Open(ctx context.Context, ref Ref) (io.ReadCloser, Location, error) {
	ref, err := b.pinned(ctx, ref)
	if err != nil {
		return nil, Location{}, err
	}
	body, info, err := b.get(ctx, ref.Digest, "")
	shadowed := covers(info, err, ref)
	if beside(info, err, ref) {
		if err == nil {
			body.Close()
		}
		body, info, err = b.get(ctx, ref.Digest, ref.Version)
	}
	if err != nil {
		return nil, Location{}, err
	}
	loc := locate(ref, info, shadowed)
	if loc.RetainUntil.IsZero() { // some servers tell of the lock by HEAD alone
		told, err := b.Stat(ctx, ref)
		if err != nil && !errors.As(err, new(*RefusedError)) { // whoever may not see the lock may read
			body.Close()
			return nil, Location{}, err
		}
		if err == nil {
			loc = told
		}
	}
	return body, loc, nil
}

// Stat implements [Backend].
func (b *Bucket) Stat(ctx context.Context, ref Ref) (Location, error) {
	ref, err := b.pinned(ctx, ref)
	if err != nil {
		return Location{}, err
	}
	info, err := b.head(ctx, ref.Digest, "")
	shadowed := covers(info, err, ref)
	if beside(info, err, ref) {
		info, err = b.head(ctx, ref.Digest, ref.Version)
	}
	if err != nil {
		return Location{}, err
	}
	return b.locked(ctx, locate(ref, info, shadowed), info)
}

// locked adds to loc the lock that info says nothing of: to credentials without the right
// to see it, and of versions that are covered, some servers tell it only when asked for it.
// What may not be seen is an error, not missing.
func (b *Bucket) locked(ctx context.Context, loc Location, info minio.ObjectInfo) (Location, error) {
	if info.Headers.Get(lockHeader) != "" {
		return loc, nil
	}
	var mode *minio.RetentionMode
	var until *time.Time
	var hold *minio.LegalHoldStatus
	err := b.settled(ctx, func(ctx context.Context) (err error) {
		mode, until, err = b.client.GetObjectRetention(ctx, b.config.Bucket, b.key(loc.Digest), loc.Version)
		return err
	})
	if err == nil {
		err = b.settled(ctx, func(ctx context.Context) (err error) {
			hold, err = b.client.GetObjectLegalHold(ctx, b.config.Bucket, b.key(loc.Digest), minio.GetObjectLegalHoldOptions{VersionID: loc.Version})
			return err
		})
	}
	if mode != nil && until != nil && *mode == minio.Compliance {
		loc.RetainUntil = until.UTC()
	}
	loc.Hold = loc.Hold || hold != nil && *hold == minio.LegalHoldEnabled
	return loc, err
}

// settled asks for a setting that may not be there.
func (b *Bucket) settled(ctx context.Context, request func(context.Context) error) error {
	err := b.ask(ctx, request)
	refused, is := errors.AsType[*RefusedError](err)
	if errors.Is(err, ErrNotFound) || is && refused.Status == http.StatusBadRequest { // 400: the bucket has no lock
		return nil
	}
	return err
}

const lockHeader = "X-Amz-Object-Lock-Mode"

// beside tells whether ref must be asked for itself: what is on top is something else, or
// is not to be had, as an object that somebody encrypted with a key of his own.
func beside(top minio.ObjectInfo, err error, ref Ref) bool {
	return hidden(err) || err == nil && top.VersionID != ref.Version
}

func hidden(err error) bool { return errors.Is(err, ErrNotFound) || errors.As(err, new(*RefusedError)) }

// covers tells whether what is on top hides ref: a delete marker or other bytes. A further
// version of the same bytes, as the server vouches for them, hides nothing.
func covers(top minio.ObjectInfo, err error, ref Ref) bool {
	same := top.VersionID == ref.Version || top.Headers.Get(checksumHeader) == checksum(ref.Digest)
	return hidden(err) || err == nil && !same
}

// checksumHeader goes with every put, and comes back with what is read.
const checksumHeader = "x-amz-checksum-sha256"

func checksum(d chain.Digest) string { return base64.StdEncoding.EncodeToString(d[:]) }

// locate reads what a GET or HEAD says of ref. Only COMPLIANCE counts as protection: of
// GOVERNANCE, privileged users can let go.
func locate(ref Ref, info minio.ObjectInfo, shadowed bool) Location {
	loc := Location{Ref: ref, Size: info.Size, Shadowed: shadowed,
		Hold: info.Headers.Get("X-Amz-Object-Lock-Legal-Hold") == "ON"}
	until, err := time.Parse(time.RFC3339, info.Headers.Get("X-Amz-Object-Lock-Retain-Until-Date"))
	if err == nil && info.Headers.Get(lockHeader) == string(minio.Compliance) {
		loc.RetainUntil = until.UTC()
	}
	return loc
}

// get requests the bytes of a version, or of whatever is on top.
func (b *Bucket) get(ctx context.Context, d chain.Digest, version string) (io.ReadCloser, minio.ObjectInfo, error) {
	reading, cancel := context.WithCancel(ctx)
	var body io.ReadCloser
	var info minio.ObjectInfo
	err := b.ask(ctx, func(context.Context) (err error) {
		limit := time.AfterFunc(b.config.Timeout, cancel)
		defer limit.Stop()
		options := minio.GetObjectOptions{VersionID: version}
		options.Set("x-amz-checksum-mode", "ENABLED") // not the library's option, which would also judge the bytes
		body, info, _, err = b.core.GetObject(reading, b.config.Bucket, b.key(d), options)
		return unversioned(err, version)
	})
	if err == nil && info.Size < 0 {
		body.Close()
		err = fmt.Errorf("%w: the S3 server does not tell how long an object is", ErrUnavailable)
	}
	if err != nil {
		cancel()
		return nil, info, err
	}
	return &stream{body: body, ctx: ctx, cancel: cancel, patience: b.config.Timeout, left: b.allow(info.Size)}, info, nil
}

func (b *Bucket) head(ctx context.Context, d chain.Digest, version string) (info minio.ObjectInfo, err error) {
	err = b.ask(ctx, func(ctx context.Context) (err error) {
		info, err = b.client.StatObject(ctx, b.config.Bucket, b.key(d), minio.StatObjectOptions{VersionID: version, Checksum: true})
		return unversioned(err, version)
	})
	return info, err
}

// unversioned reads 400 InvalidArgument, which HEAD gives without its code, as an answer to
// a version that is not one of this server's.
func unversioned(err error, version string) error {
	var e minio.ErrorResponse
	if version != "" && errors.As(err, &e) && e.StatusCode == http.StatusBadRequest &&
		(e.Code == "InvalidArgument" || strings.HasPrefix(e.Code, "400")) {
		return minio.ErrorResponse{StatusCode: http.StatusNotFound, Code: minio.NoSuchVersion}
	}
	return err
}

// stream is the body of an answer. Every read has a deadline of its own, and all of them
// have one together, so that a server that falls silent or drips is noticed, however long
// the reader takes in between.
type stream struct {
	body     io.ReadCloser
	ctx      context.Context // the caller's
	cancel   context.CancelFunc
	patience time.Duration
	left     time.Duration
}

func (s *stream) Read(p []byte) (int, error) {
	began := time.Now()
	limit := time.AfterFunc(min(s.patience, max(s.left, 0)), s.cancel)
	n, err := s.body.Read(p)
	limit.Stop()
	s.left -= time.Since(began)
	if err != nil && !errors.Is(err, io.EOF) {
		err = worded(s.ctx, err)
	}
	return n, err
}

func (s *stream) Close() error {
	s.cancel()
	return s.body.Close()
}

// pinned is ref with a version: if it names none, one with the right bytes. A version of
// a [Dir] names none here. If none has them, the reader finds out at the oldest; if some
// could not be read, they may be those.
func (b *Bucket) pinned(ctx context.Context, ref Ref) (Ref, error) {
	if ref.Version != "" && ref.Version != DirVersion {
		return ref, nil
	}
	var unread error
	ref.Version = ""
	for page, err := range b.versions(ctx, ref.Digest) {
		if err != nil {
			return Ref{}, err
		}
		if ref.Version == "" && len(page) == 1 { // the only one
			return Ref{ref.Digest, page[0].VersionID}, nil
		}
		ref.Version = cmp.Or(ref.Version, page[0].VersionID)
		for _, o := range page {
			matches, err := b.matches(ctx, ref.Digest, o)
			switch {
			case matches:
				return Ref{ref.Digest, o.VersionID}, nil
			case err != nil && !errors.Is(err, ErrNotFound):
				unread = err
			}
		}
	}
	if ref.Version == "" {
		return Ref{}, ErrNotFound
	}
	return ref, unread
}

// pageSize is how many versions of one key are in memory at a time: whoever may write could
// put any number over it.
const pageSize = 100

// versions yields what is stored under a digest's key, by the page, without delete markers
// and each page oldest first. The order of the server's list is not trusted.
func (b *Bucket) versions(ctx context.Context, d chain.Digest) iter.Seq2[[]minio.ObjectInfo, error] {
	return func(yield func([]minio.ObjectInfo, error) bool) {
		if err := b.health.pass(); err != nil {
			yield(nil, err)
			return
		}
		var page []minio.ObjectInfo
		flush := func() bool {
			slices.SortStableFunc(page, func(x, y minio.ObjectInfo) int { return x.LastModified.Compare(y.LastModified) })
			full := page
			page = nil
			return len(full) == 0 || yield(full, nil)
		}
		for o, err := range b.list(ctx, b.key(d)) {
			if err != nil {
				yield(nil, err)
				return
			}
			if o.Key == b.key(d) && !o.IsDeleteMarker {
				page = append(page, o)
			}
			if len(page) == pageSize && !flush() {
				return
			}
		}
		flush()
	}
}

// list yields every version and delete marker of the keys that begin with prefix. A page
// that does not come is asked for again, from the last key on: the client library resumes
// at keys, not at versions, and what was yielded of that key is passed over.
func (b *Bucket) list(ctx context.Context, prefix string) iter.Seq2[minio.ObjectInfo, error] {
	return func(yield func(minio.ObjectInfo, error) bool) {
		var before, last string   // keys
		seen := map[string]bool{} // versions of last
		for n := 0; ; n++ {
			var failed error
			for o, err := range b.pages(ctx, prefix, before) {
				if failed = err; err != nil {
					break
				}
				if o.Key != last {
					before, last = last, o.Key
					clear(seen)
				}
				if seen[o.VersionID] {
					continue
				}
				n, seen[o.VersionID] = 0, true
				if !yield(o, nil) {
					return
				}
			}
			a := b.heard(ctx, failed)
			if a == done {
				return
			}
			failed = worded(ctx, failed)
			if a == unknown || a == transient {
				if n < tries-1 {
					if failed = backOff(ctx, n); failed == nil {
						continue
					}
				} else if a == unknown {
					b.health.lost(failed)
				}
			}
			yield(minio.ObjectInfo{}, failed)
			return
		}
	}
}

// pages makes the requests of a list that begins behind a key; each has a deadline.
func (b *Bucket) pages(ctx context.Context, prefix, after string) iter.Seq2[minio.ObjectInfo, error] {
	return func(yield func(minio.ObjectInfo, error) bool) {
		listing, cancel := context.WithCancel(ctx)
		defer cancel() // ends the library's iterator
		limit := time.AfterFunc(b.config.Timeout, cancel)
		defer limit.Stop()
		options := minio.ListObjectsOptions{Prefix: prefix, WithVersions: true, Recursive: true, StartAfter: after}
		for o := range b.client.ListObjectsIter(listing, b.config.Bucket, options) {
			if limit.Stop(); listing.Err() != nil {
				break
			}
			if !yield(o, o.Err) || o.Err != nil {
				return
			}
			limit.Reset(b.config.Timeout)
		}
		if listing.Err() != nil { // the iterator may end without a word
			yield(minio.ObjectInfo{}, cmp.Or(ctx.Err(), context.DeadlineExceeded))
		}
	}
}

// matches tells whether the bytes of a version hash to d. An error leaves that open.
func (b *Bucket) matches(ctx context.Context, d chain.Digest, o minio.ObjectInfo) (bool, error) {
	got, err := b.hash(ctx, d, o.VersionID)
	return err == nil && got == d, cmp.Or(ctx.Err(), err)
}

func (b *Bucket) hash(ctx context.Context, d chain.Digest, version string) (chain.Digest, error) {
	body, _, err := b.get(ctx, d, version)
	if err != nil {
		return chain.Digest{}, err
	}
	defer body.Close()
	return sum(body)
}

// List implements [Backend]. Lists carry no protection, so each version is asked for its own.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[Location, error] {
	return func(yield func(Location, error) bool) {
		if err := b.health.pass(); err != nil {
			yield(Location{}, err)
			return
		}
		for o, err := range b.list(ctx, b.keys(prefix)) {
			if err != nil {
				yield(Location{}, err)
				return
			}
			d, ours := b.digestOf(o.Key)
			if !ours || o.IsDeleteMarker {
				continue
			}
			ref := Ref{d, o.VersionID}
			info, err := b.head(ctx, d, o.VersionID)
			if ctx.Err() != nil || err != nil && b.health.gone() != nil {
				yield(Location{}, cmp.Or(ctx.Err(), err))
				return
			}
			loc := locate(ref, info, !o.IsLatest)
			if err == nil {
				loc, err = b.locked(ctx, loc, info)
			}
			if err != nil {
				loc, err = Location{Ref: ref}, fmt.Errorf("blob %s: %w", ref, err)
			}
			if !yield(loc, err) {
				return
			}
		}
	}
}
