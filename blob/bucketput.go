package blob

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/holdfast-dvir/holdfast/chain"
)

// firstLook is the size from which it pays to ask whether bytes are there before they
// are sent.
const firstLook = 1 << 20

// object is what a put wants stored.
type object struct {
	key    string
	digest chain.Digest
	bytes  io.ReaderAt
	size   int64
	until  time.Time
}

// errPatience ends a put, with all its tries and looks.
var errPatience = errors.New("the put took too long")

// Put implements [Backend]. A put whose answer was lost reports the version that it finds,
// as one that was there.
func (b *Bucket) Put(ctx context.Context, d chain.Digest, r io.ReaderAt, size int64, until time.Time) (Location, bool, error) {
	if b.config.ReadOnly {
		return Location{}, false, ErrReadOnly
	}
	if err := b.health.takes(); err != nil {
		return Location{}, false, err
	}
	o := object{b.key(d), d, r, size, until}
	ctx, cancel := context.WithTimeoutCause(ctx, b.allow(size)+b.config.Timeout/3, errPatience)
	defer cancel()
	if size >= firstLook && b.health.gone() == nil { // else a put is what finds out whether the server is back
		if loc, err := b.kept(ctx, o); !errors.Is(err, ErrNotFound) {
			return loc, false, err
		}
	}
	loc, created, err := b.store(ctx, o)
	b.health.put(err)
	return loc, created, err
}

// store puts o on the condition that its key is free. A taken key is looked into, and so
// is one after an answer that did not come: the bytes may be ours. Where what is there is
// not these bytes, or its protection cannot be seen to, o goes on top of it as a version
// of its own.
func (b *Bucket) store(ctx context.Context, o object) (Location, bool, error) {
	free := true
	for n := 0; ; n++ {
		loc, err := b.send(ctx, o, free)
		a := b.heard(ctx, err)
		if a == refused && free && response(err).Status == http.StatusBadRequest {
			a = present // the condition cannot be judged: what is there has a key that the server does not know
		}
		switch a {
		case done:
			return loc, true, nil
		case present, racing, unknown:
			loc, missing := b.kept(ctx, o)
			if missing == nil {
				return loc, false, nil
			}
			if !errors.Is(missing, ErrNotFound) {
				return Location{}, false, missing
			}
			// Some servers say no to the condition while the body is still coming, and hang up: after the second
			// time without an answer, it is left out.
			free = free && a != present && !(a == unknown && n > 0)
		case corrupted:
			// If they are not what was announced, the damage is on this side.
			if got, failed := sum(&contextReader{ctx, io.NewSectionReader(o.bytes, 0, o.size)}); failed != nil || got != o.digest {
				return Location{}, false, errors.Join(failed, &CorruptError{Ref: Ref{Digest: o.digest}, Got: got})
			}
		case transient:
		case oversize:
			return Location{}, false, &TooLargeError{Limit: o.size - 1}
		case absent: // of a put, this is no answer about the object
			return Location{}, false, response(err)
		case full, refused, cancelled:
			return Location{}, false, worded(ctx, err)
		}
		if n == tries-1 {
			return Location{}, false, worded(ctx, err)
		}
		if err := backOff(ctx, n); err != nil {
			return Location{}, false, err
		}
	}
}

// send makes one conditional or unconditional put. Its signature covers the digest, so
// that a server which stores other bytes than these breaks the protocol. Longer bodies
// than a single put takes do not exist, and parts would lose the condition.
func (b *Bucket) send(ctx context.Context, o object, free bool) (loc Location, err error) {
	options := minio.PutObjectOptions{
		ContentType:          "application/octet-stream",
		Mode:                 minio.Compliance,
		RetainUntilDate:      o.until,
		DisableContentSha256: true, // the library is given the digest instead of computing one
		UserMetadata:         map[string]string{checksumHeader: checksum(o.digest)},
	}
	if free {
		options.SetMatchETagExcept("*")
	}
	var info minio.UploadInfo
	answered := http.Header{}
	err = b.once(context.WithValue(ctx, headersKey{}, &answered), o.size, func(ctx context.Context) (err error) {
		body := io.NewSectionReader(o.bytes, 0, o.size)
		info, err = b.core.PutObject(ctx, b.config.Bucket, o.key, body, o.size, "", o.digest.String(), options)
		return err
	})
	if err == nil && (info.VersionID == "" || info.VersionID == "null") {
		return Location{}, minio.ErrorResponse{StatusCode: http.StatusForbidden, Code: "VersioningDisabled"} // since the last examination
	}
	if err == nil && b.config.RequireEncryption && answered.Get(encryptionHeader) == "" {
		b.health.examined(&UnfitError{b.place(), []string{notEncrypted}}) // and so is this version; no more follow
		return Location{}, minio.ErrorResponse{StatusCode: http.StatusForbidden, Code: "NotEncrypted"}
	}
	return Location{Ref: Ref{o.digest, info.VersionID}, Size: o.size, RetainUntil: o.until}, err
}

// kept finds a stored version of o and sees to its protection. ErrNotFound if there is
// none, or none that can be read and protected.
func (b *Bucket) kept(ctx context.Context, o object) (Location, error) {
	for page, err := range b.versions(ctx, o.digest) {
		if err != nil {
			return Location{}, err
		}
		for _, v := range page {
			if loc, err := b.protected(ctx, o, v); !hidden(err) {
				return loc, err
			}
		}
	}
	return Location{}, ErrNotFound
}

// protected is v as o should be, or why it is not.
func (b *Bucket) protected(ctx context.Context, o object, v minio.ObjectInfo) (Location, error) {
	if v.Size != o.size {
		return Location{}, ErrNotFound
	}
	matches, err := b.matches(ctx, o.digest, v)
	switch {
	case err != nil && (ctx.Err() != nil || b.health.gone() != nil):
		return Location{}, err
	case !matches:
		return Location{}, ErrNotFound
	}
	return b.Extend(ctx, Ref{o.digest, v.VersionID}, o.until)
}

// Extend implements [Backend]. A refusal can come from somebody who extended further in
// the meantime.
func (b *Bucket) Extend(ctx context.Context, ref Ref, until time.Time) (Location, error) {
	loc, err := b.Stat(ctx, ref)
	if err != nil || !until.After(loc.RetainUntil) {
		return loc, err
	}
	if b.config.ReadOnly {
		return loc, ErrReadOnly
	}
	// One after another: not every server compares and sets a date in one step, and then the shorter of two may win.
	select {
	case b.extending <- struct{}{}:
		defer func() { <-b.extending }()
	case <-ctx.Done():
		return loc, ctx.Err()
	}
	if loc, err = b.Stat(ctx, ref); err != nil || !until.After(loc.RetainUntil) {
		return loc, err
	}
	mode := minio.Compliance
	refusal := b.ask(ctx, func(ctx context.Context) error {
		return b.client.PutObjectRetention(ctx, b.config.Bucket, b.key(ref.Digest),
			minio.PutObjectRetentionOptions{Mode: &mode, RetainUntilDate: &until, VersionID: loc.Version})
	})
	if refusal == nil {
		loc.RetainUntil = until
		return loc, nil
	}
	if loc, err = b.Stat(ctx, ref); err == nil && loc.RetainUntil.Before(until) {
		err = refusal
	}
	return loc, err
}

// Hold implements [Backend].
func (b *Bucket) Hold(ctx context.Context, ref Ref, on bool) (Location, error) {
	loc, err := b.Stat(ctx, ref)
	if err != nil {
		return Location{}, err
	}
	if b.config.ReadOnly {
		return loc, ErrReadOnly
	}
	status := minio.LegalHoldDisabled
	if on {
		status = minio.LegalHoldEnabled
	}
	err = b.ask(ctx, func(ctx context.Context) error {
		return b.client.PutObjectLegalHold(ctx, b.config.Bucket, b.key(ref.Digest),
			minio.PutObjectLegalHoldOptions{Status: &status, VersionID: loc.Version})
	})
	loc.Hold = on
	return loc, err
}
