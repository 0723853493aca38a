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
		if loc, err = b.Stat(ctx, ref); err != nil {
			body.Close()
			return nil, Location{}, err
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
	return locate(ref, info, shadowed), nil
}

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
	if err == nil && info.Headers.Get("X-Amz-Object-Lock-Mode") == string(minio.Compliance) {
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
// a [Dir] names none here.
func (b *Bucket) pinned(ctx context.Context, ref Ref) (Ref, error) {
	if ref.Version != "" && ref.Version != DirVersion {
		return ref, nil
	}
	all, err := b.versions(ctx, ref.Digest)
	if err != nil {
		return Ref{}, err
	}
	if len(all) == 0 {
		return Ref{}, ErrNotFound
	}
	ref.Version = all[0].VersionID // if none has the right bytes, the reader finds out
	if len(all) > 1 {
		found, err := b.matching(ctx, ref.Digest, all)
		if err == nil {
			ref.Version = found.VersionID
		} else if !errors.Is(err, ErrNotFound) {
			return Ref{}, err
		}
	}
	return ref, nil
}

// maxVersions is how many versions of one key are looked at: whoever may write could put
// any number over it.
const maxVersions = 100

// versions lists what is stored under a digest's key, oldest first, without delete
// markers. The order of the server's list is not trusted.
func (b *Bucket) versions(ctx context.Context, d chain.Digest) (all []minio.ObjectInfo, err error) {
	err = b.ask(ctx, func(ctx context.Context) error {
		all = all[:0]
		for o, err := range b.list(ctx, b.key(d)) {
			if err != nil {
				return err
			}
			if o.Key == b.key(d) && !o.IsDeleteMarker {
				all = append(all, o)
			}
			if len(all) == maxVersions {
				break
			}
		}
		return nil
	})
	slices.SortStableFunc(all, func(x, y minio.ObjectInfo) int { return x.LastModified.Compare(y.LastModified) })
	return all, err
}

// list yields every version and delete marker of the keys that begin with prefix.
func (b *Bucket) list(ctx context.Context, prefix string) iter.Seq2[minio.ObjectInfo, error] {
	return func(yield func(minio.ObjectInfo, error) bool) {
		listing, cancel := context.WithCancel(ctx)
		defer cancel() // ends the library's iterator
		limit := time.AfterFunc(b.config.Timeout, cancel)
		defer limit.Stop()
		options := minio.ListObjectsOptions{Prefix: prefix, WithVersions: true, Recursive: true}
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

// matching finds the first of candidates whose bytes hash to d, or ErrNotFound. One that
// the server cannot read does not match.
func (b *Bucket) matching(ctx context.Context, d chain.Digest, candidates []minio.ObjectInfo) (minio.ObjectInfo, error) {
	for _, o := range candidates {
		got, err := b.hash(ctx, d, o.VersionID)
		switch {
		case ctx.Err() != nil:
			return o, ctx.Err()
		case err != nil && b.Healthy() != nil:
			return o, err
		case err == nil && got == d:
			return o, nil
		}
	}
	return minio.ObjectInfo{}, ErrNotFound
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
				yield(Location{}, worded(ctx, err))
				return
			}
			b.health.answered()
			d, ours := b.digestOf(o.Key)
			if !ours || o.IsDeleteMarker {
				continue
			}
			ref := Ref{d, o.VersionID}
			info, err := b.head(ctx, d, o.VersionID)
			if ctx.Err() != nil || err != nil && b.Healthy() != nil {
				yield(Location{}, cmp.Or(ctx.Err(), err))
				return
			}
			loc := locate(ref, info, !o.IsLatest)
			if err != nil {
				loc, err = Location{Ref: ref}, fmt.Errorf("blob %s: %w", ref, err)
			}
			if !yield(loc, err) {
				return
			}
		}
	}
}
