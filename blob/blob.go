// Package blob keeps payload bytes: written once, named by their SHA-256,
// protected until a date, and verified whenever they are read.
//
// # The promise
//
// When [Store.Put] returns without error, the bytes survive a crash of the
// process and a loss of power (as far as the backend's medium keeps its own
// word), they are protected until the returned RetainUntil, and the returned
// [Location] names the very version written. Nothing in this package deletes or
// replaces bytes. Every read is hashed; bytes that no longer hash to their name
// are answered with [*CorruptError], never handed out as good.
//
// # Versions
//
// S3 Object Lock protects versions, not keys: whoever may write can put a newer
// version or a delete marker over a protected one. A caller therefore records
// [Location.Version] beside the digest and reads through a pinned [Ref]. A Ref
// with an empty version asks for any version with the right bytes. A version
// that is covered by another one is still read; [Location.Shadowed] tells of it.
//
// # Retention
//
// 49 CFR 396.11(a)(4) asks for three months, 396.3(c) for a year and six months
// beyond the vehicle; eighteen calendar months cover both without knowing when a
// vehicle was disposed of. [Retention] holds the policy: dates are extended, never
// brought forward, capped because a mistake cannot be undone, and rounded up to
// whole seconds of UTC because S3 keeps no fractions. A legal hold has no date: it
// is on or off. Putting bytes that are there already extends their retention to
// the later date.
//
// # Away
//
// A medium behind a network can be away. Calls then fail with ErrUnavailable, the later
// ones at once; [Store.Healthy] tells, [Store.Watch] looks for its return. One that has no
// room, or refuses one payload after the other, takes one put a second to see, and is read
// as ever. A version that is not in the store is looked for under any other version with the same bytes:
// a store that was moved has versions of its own.
//
// # The directory backend
//
// Layout: <root>/<2 hex>/<2 hex>/<64 hex>, the digest's first two bytes naming the
// folders. Files have mode 0440, folders 0700. "sha256sum" of a file prints its name.
// Beside the shard folders the root may hold names that start with a dot, which
// are temporary and removed when the directory is next opened for writing.
//
// A file is written without a name (O_TMPFILE), gets its retention, is synced,
// and only then linked, which never replaces; its folder, and the folders above
// that this process has not yet seen on disk, are synced before Put returns. So a
// name always leads to whole bytes. Retention stands in the extended attribute
// user.holdfast.retention as "until=2028-05-30T20:45:08Z hold=0"; a missing or
// unreadable record reads as no retention, which [Store.Check] reports. Where
// extended attributes are refused, the same text stands in <64 hex>.retention.
// Where the process may (CAP_LINUX_IMMUTABLE), files also get the immutable flag;
// "chattr -R -i" is then needed before the folder can be removed.
//
// The only version is [DirVersion]. The claim is honest protection from defects,
// accidents and other accounts. It is no protection from root on the same host.
//
// # The bucket backend
//
// Layout: <prefix>sha256/<2 hex>/<2 hex>/<64 hex>, in a bucket with versioning and Object
// Lock. Every put is a single request (parts would lose its condition) that carries
//
//	If-None-Match: *                     saves space; nothing depends on it
//	x-amz-content-sha256: <64 hex>       signed: the server refuses other bytes
//	x-amz-checksum-sha256: <base64>      kept by the server beside the bytes
//	x-amz-object-lock-mode: COMPLIANCE   and a date, in whole seconds
//
// and answers with the version, which callers pin. A key that is taken, and an answer that
// did not come, are looked into: the versions under the key are listed and hashed, and the
// oldest with the right bytes gets its date extended. If there is none, since somebody put
// other bytes or a delete marker there, or if its protection cannot be seen to, the bytes
// are put on top as a version of their own. So an error may leave a version that nobody
// names; it is locked, and costs its space.
//
// A read asks for whatever is on top, which is the pinned version unless something covers
// it: one request tells both. What happens to a request that fails stands in one table,
// in bucketerror.go; the client library's own retries are off, since it would report its
// own put as somebody else's.
//
// [OpenBucket] refuses a bucket that would not keep payloads, and [Bucket.Watch] repeats
// that hourly. [ProveWORM] tries to destroy objects, for whoever runs the server. The
// claim is as good as the server: root there, and its clock, beat any lock.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"syscall"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Ref names one stored version of some bytes.
type Ref struct {
	Digest  chain.Digest
	Version string // as returned by Put; empty: any version with these bytes
}

// String is the digest, with the version if there is one.
func (r Ref) String() string {
	if r.Version == "" {
		return r.Digest.String()
	}
	return r.Digest.String() + "@" + r.Version
}

// Location is one stored version and its protection.
type Location struct {
	Ref
	Size        int64     // bytes
	RetainUntil time.Time // whole seconds UTC; zero: no date protects it
	Hold        bool      // legal hold
	Shadowed    bool      // a newer version or a delete marker stands over it under the same key
}

// Backend stores bytes under their digest. [Store] is the only intended caller;
// it has hashed the bytes and decided the retention before it calls.
// Implementations are safe for concurrent use and pass blobtest.TestBackend.
type Backend interface {
	// Put stores size bytes of r if no version with these bytes is there, and tells
	// whether it did. Present bytes are read and compared, and get retainUntil if that
	// is later than theirs. On return bytes, name and retention are durable. Bytes of r
	// that do not hash to d, or stored bytes that do not, are a *CorruptError; stored
	// bytes are never overwritten. An error may leave the bytes stored (retry: Put is
	// idempotent), but never partly.
	Put(ctx context.Context, d chain.Digest, r io.ReaderAt, size int64, retainUntil time.Time) (Location, bool, error)
	// Open reads the bytes as they are, not verified. ErrNotFound if there are none.
	Open(ctx context.Context, ref Ref) (io.ReadCloser, Location, error)
	// Stat tells of a version without reading its bytes. ErrNotFound if there is none.
	Stat(ctx context.Context, ref Ref) (Location, error)
	// Extend moves the retention date later. An earlier date changes nothing and is no
	// error: the later date wins, and the returned Location tells it.
	Extend(ctx context.Context, ref Ref, until time.Time) (Location, error)
	// Hold sets or lifts the legal hold.
	Hold(ctx context.Context, ref Ref, on bool) (Location, error)
	// List yields every version whose hexadecimal digest starts with prefix, in digest
	// order. An error beside a Ref concerns that version alone, and the sequence goes on;
	// an error without a Ref ends it.
	List(ctx context.Context, prefix string) iter.Seq2[Location, error]
	// Describe tells what the backend can and cannot do where it runs.
	Describe() Description
}

// Spooler is a [Backend] that can take bytes before their digest is known, so that
// a long stream is written only once.
type Spooler interface {
	Spool(ctx context.Context) (Spool, error)
}

// Spool is an unnamed object being written. It has one user.
type Spool interface {
	io.Writer
	// Commit gives the written bytes their name, with the contract of Backend.Put; the
	// caller answers for d being their digest.
	Commit(ctx context.Context, d chain.Digest, retainUntil time.Time) (Location, bool, error)
	// Discard releases the spool: without a Commit before it, nothing stays behind.
	Discard()
}

// Monitor is a [Backend] whose medium can go away and come back.
type Monitor interface {
	// Healthy is nil while the medium takes payloads, as far as is known without asking it,
	// and ErrUnavailable with the reason otherwise.
	Healthy() error
	// Watch looks after the medium until ctx is done, and tells every change: why it takes
	// no payloads any more, or nil when it takes them again. In both cases since is when
	// the first call failed. It returns the error of ctx.
	Watch(ctx context.Context, told func(since time.Time, why error)) error
}

// Description is what an operator should know of a backend.
type Description struct {
	Kind   string  // "directory", "memory"
	Place  string  // path or address, without credentials
	Traits []Trait // in a fixed order
}

// Trait is one property that strengthens or weakens a backend's promise.
type Trait struct {
	Name string
	OK   bool   // false: a fallback or a weakness, worth a line at start
	Note string // what is so, for a human
}

// ErrNotFound reports that no version answers to the reference.
var ErrNotFound = errors.New("not found")

// ErrReadOnly reports that the backend may not be written here: it was opened for
// reading, or the file system or its permissions refuse.
var ErrReadOnly = errors.New("storage is read-only")

// ErrUnavailable reports a medium that cannot be reached, or is not fit to keep
// payloads. Nothing was acknowledged; the same request may be repeated.
var ErrUnavailable = errors.New("storage is not available")

// ErrNoSpace reports a full medium or an exhausted quota. It wraps ErrUnavailable: the
// same request succeeds once there is room.
var ErrNoSpace = fmt.Errorf("%w: no space left", ErrUnavailable)

// writeError adds ErrReadOnly or ErrNoSpace to an operating system's refusal.
func writeError(err error) error {
	switch {
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// ErrSource reports that the stream given to Put broke off; the store is not to blame.
var ErrSource = errors.New("payload stream failed")

// CorruptError reports bytes that do not hash to their name.
type CorruptError struct {
	Ref Ref
	Got chain.Digest // what the bytes hash to; zero: not a plain file, so not hashed
}

func (e *CorruptError) Error() string {
	if e.Got.IsZero() {
		return fmt.Sprintf("blob %s is corrupt: not a plain file", e.Ref)
	}
	return fmt.Sprintf("blob %s is corrupt: its bytes hash to %s", e.Ref, e.Got)
}

// TooLargeError reports more bytes than the limit. Nothing was stored.
type TooLargeError struct {
	Limit int64 // bytes; a payload of exactly this size is accepted
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("payload is larger than %d bytes", e.Limit)
}
