package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"os"
	"sync/atomic"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// DefaultMaxSize is the payload limit when none is configured, in bytes.
const DefaultMaxSize = 64 << 20

// inMemory is how much of a stream is gathered before it is spooled to disk.
const inMemory = 256 << 10

// Config of a [Store]. The zero value is usable.
type Config struct {
	MaxSize   int64 // bytes; 0 is DefaultMaxSize
	Retention Retention
	SpoolDir  string // for streams a backend cannot take directly; empty: the system's folder for temporary files
}

// Store puts and gets payload bytes over a [Backend]: no bytes go in without being
// hashed, none come out without being verified. It is safe for concurrent use.
type Store struct {
	backend   Backend
	maxSize   int64
	retention Retention
	spoolDir  string
	shadowed  atomic.Uint64
	refused   atomic.Uint64
	taken     atomic.Uint64 // what refused was at the last put that was taken
	room      room          // of a backend that is no Monitor
}

// NewStore checks the configuration, most of all the retention policy.
func NewStore(b Backend, c Config) (*Store, error) {
	policy, err := c.Retention.resolve()
	if err != nil {
		return nil, err
	}
	if c.MaxSize < 0 {
		return nil, fmt.Errorf("payload limit of %d bytes is negative", c.MaxSize)
	}
	return &Store{backend: b, maxSize: cmp.Or(c.MaxSize, DefaultMaxSize), retention: policy, spoolDir: c.SpoolDir}, nil
}

// PutBytes stores data if it is not there yet, and tells whether it was new. Its
// retention counts from now. Errors: *TooLargeError, *CorruptError (the stored bytes
// are damaged), ErrReadOnly, ErrNoSpace.
func (s *Store) PutBytes(ctx context.Context, data []byte, now time.Time) (Location, bool, error) {
	if int64(len(data)) > s.maxSize {
		return Location{}, false, &TooLargeError{Limit: s.maxSize}
	}
	d := chain.Sum(data)
	loc, created, err := s.backend.Put(ctx, d, bytes.NewReader(data), int64(len(data)), s.retention.until(now))
	return loc, created, s.putting(d, err)
}

// Put is PutBytes for a stream of unknown length, read to its end in flat memory. A
// stream that breaks off is ErrSource, and nothing is stored.
func (s *Store) Put(ctx context.Context, r io.Reader, now time.Time) (Location, bool, error) {
	src := &contextReader{ctx, &source{io.LimitReader(r, s.maxSize+1)}}
	var head bytes.Buffer
	switch _, err := io.CopyN(&head, src, inMemory); {
	case errors.Is(err, io.EOF):
		return s.PutBytes(ctx, head.Bytes(), now)
	case err != nil:
		return Location{}, false, fmt.Errorf("put blob: %w", err)
	}
	return s.putLong(ctx, io.MultiReader(&head, src), now)
}

func (s *Store) putLong(ctx context.Context, r io.Reader, now time.Time) (Location, bool, error) {
	spool, err := s.spool(ctx)
	if err != nil {
		return Location{}, false, fmt.Errorf("put blob: %w", err)
	}
	defer spool.Discard()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(h, spool), r)
	switch {
	case err != nil:
		return Location{}, false, fmt.Errorf("put blob: %w", err)
	case n > s.maxSize:
		return Location{}, false, &TooLargeError{Limit: s.maxSize}
	}
	d := chain.Digest(h.Sum(nil))
	loc, created, err := spool.Commit(ctx, d, s.retention.until(now))
	return loc, created, s.putting(d, err)
}

// putting names what was put when err came.
func (s *Store) putting(d chain.Digest, err error) error {
	s.room.put(err)
	if err == nil {
		s.taken.Store(s.refused.Load())
		return nil
	}
	if errors.Is(err, ErrUnavailable) {
		s.refused.Add(1)
	}
	return fmt.Errorf("put blob %s: %w", d, err)
}

func (s *Store) spool(ctx context.Context) (Spool, error) {
	if sp, ok := s.backend.(Spooler); ok {
		return sp.Spool(ctx)
	}
	f, err := os.CreateTemp(s.spoolDir, "holdfast-spool-*")
	if err != nil {
		return nil, writeError(err)
	}
	// Without a name it cannot outlive the process.
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return &fileSpool{file: f, backend: s.backend}, nil
}

// Get reads the whole of ref and verifies it. Bytes that come damaged are read once more,
// from any version that has the right ones. Errors: ErrNotFound, *CorruptError, and
// *TooLargeError for bytes stored under a higher limit, which Open still reads.
func (s *Store) Get(ctx context.Context, ref Ref) ([]byte, error) {
	data, err := s.get(ctx, ref)
	if _, corrupt := errors.AsType[*CorruptError](err); corrupt {
		if again, other := s.get(ctx, Ref{Digest: ref.Digest}); other == nil {
			return again, nil
		}
	}
	return data, err
}

func (s *Store) get(ctx context.Context, ref Ref) ([]byte, error) {
	r, loc, err := s.open(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("get blob %s: %w", ref, err)
	}
	defer r.Close()
	if loc.Size > s.maxSize {
		return nil, &TooLargeError{Limit: s.maxSize}
	}
	data := make([]byte, loc.Size)
	n, err := io.ReadFull(r, data)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("get blob %s: %w", ref, err)
	}
	if got := chain.Sum(data[:n]); got != ref.Digest {
		return nil, &CorruptError{Ref: loc.Ref, Got: got}
	}
	return data[:n], nil
}

// Open reads ref as a stream. Its reader answers *CorruptError in place of io.EOF when
// the bytes do not hash to their name: bytes are good only once io.EOF was seen.
func (s *Store) Open(ctx context.Context, ref Ref) (io.ReadCloser, Location, error) {
	r, loc, err := s.open(ctx, ref)
	if err != nil {
		return nil, Location{}, fmt.Errorf("open blob %s: %w", ref, err)
	}
	return &verifier{ReadCloser: r, hash: sha256.New(), ref: loc.Ref}, loc, nil
}

// anywhere does something with the pinned version, or, where that is not, with any that
// has these bytes: stores are moved, and the copy has versions of its own.
func anywhere(ref Ref, do func(Ref) (Location, error)) (Location, error) {
	loc, err := do(ref)
	if errors.Is(err, ErrNotFound) && ref.Version != "" {
		loc, err = do(Ref{Digest: ref.Digest})
	}
	return loc, err
}

func (s *Store) open(ctx context.Context, ref Ref) (r io.ReadCloser, loc Location, err error) {
	loc, err = anywhere(ref, func(ref Ref) (loc Location, err error) {
		r, loc, err = s.backend.Open(ctx, ref)
		return loc, err
	})
	if err == nil && loc.Shadowed {
		s.shadowed.Add(1)
	}
	return r, loc, err
}

// Stat tells of a version without reading its bytes; of any with these bytes, as the
// returned Location says, if ref's own is not there.
func (s *Store) Stat(ctx context.Context, ref Ref) (Location, error) {
	loc, err := anywhere(ref, func(ref Ref) (Location, error) { return s.backend.Stat(ctx, ref) })
	if err != nil {
		return Location{}, fmt.Errorf("stat blob %s: %w", ref, err)
	}
	return loc, nil
}

// Extend moves the retention of ref to until, rounded up to a whole second. A date
// earlier than the present one changes nothing: the returned Location tells which
// date holds. A date beyond the cap as counted from now is *RetentionError.
func (s *Store) Extend(ctx context.Context, ref Ref, until, now time.Time) (Location, error) {
	until, err := s.retention.limit(until, now)
	if err != nil {
		return Location{}, fmt.Errorf("extend blob %s: %w", ref, err)
	}
	loc, err := anywhere(ref, func(ref Ref) (Location, error) { return s.backend.Extend(ctx, ref, until) })
	if err != nil {
		return Location{}, fmt.Errorf("extend blob %s: %w", ref, err)
	}
	return loc, nil
}

// Hold sets or lifts the legal hold of ref.
func (s *Store) Hold(ctx context.Context, ref Ref, on bool) (Location, error) {
	loc, err := anywhere(ref, func(ref Ref) (Location, error) { return s.backend.Hold(ctx, ref, on) })
	if err != nil {
		return Location{}, fmt.Errorf("hold blob %s: %w", ref, err)
	}
	return loc, nil
}

// List yields every stored version whose hexadecimal digest starts with prefix, in
// digest order. An error beside a Ref concerns that version alone, and the sequence
// goes on; an error without a Ref ends it.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[Location, error] {
	return s.backend.List(ctx, prefix)
}

// Describe tells what the backend can and cannot do.
func (s *Store) Describe() Description { return s.backend.Describe() }

// Healthy is nil while payloads can be taken, as far as is known without asking the
// medium, and ErrUnavailable with the reason otherwise.
func (s *Store) Healthy() error {
	if m, ok := s.backend.(Monitor); ok {
		return m.Healthy()
	}
	return s.room.healthy()
}

// Watch looks after the medium until ctx is done; see [Monitor].
func (s *Store) Watch(ctx context.Context, told func(since time.Time, why error)) error {
	if m, ok := s.backend.(Monitor); ok {
		return m.Watch(ctx, told)
	}
	return s.room.watch(ctx, told)
}

// Shadowed is how many reads so far met a version or a delete marker over the one read.
func (s *Store) Shadowed() uint64 { return s.shadowed.Load() }

// Refused is how many puts so far were not taken because the medium was away, full or unfit.
func (s *Store) Refused() uint64 { return s.refused.Load() }

// RefusedInARow is how many of them came after the last put that was taken.
func (s *Store) RefusedInARow() uint64 { return s.refused.Load() - s.taken.Load() }

// Problem is a way in which a stored version falls short of what was recorded of it.
type Problem string

// The problems Check can find.
const (
	Missing   Problem = "missing"   // no such version
	Corrupt   Problem = "corrupt"   // the bytes do not hash to their name
	Shortened Problem = "shortened" // protected for less long than recorded
	Released  Problem = "released"  // recorded as under legal hold, and is not
	Shadowed  Problem = "shadowed"  // covered by another version or a delete marker
)

// Finding is a Problem in words; it holds digests, versions and dates only.
type Finding struct {
	Problem Problem
	Detail  string
}

// Check compares the stored version want.Ref with what was recorded when it was put,
// extended or held: bytes, RetainUntil and Hold (Size follows from the digest). It
// returns all findings; an error means that it could not be checked.
func (s *Store) Check(ctx context.Context, want Location) ([]Finding, error) {
	got, err := s.drain(ctx, want.Ref)
	found := got.Version != ""
	if !found {
		if _, gone := s.Stat(ctx, want.Ref); errors.Is(gone, ErrNotFound) {
			err = gone // even if reading fails for another reason
		}
	}
	var findings []Finding
	if corrupt, ok := errors.AsType[*CorruptError](err); ok {
		findings = append(findings, Finding{Corrupt, corrupt.Error()})
	} else if errors.Is(err, ErrNotFound) {
		return []Finding{{Missing, fmt.Sprintf("blob %s is not in the store", want.Ref)}}, nil
	} else if err != nil {
		return nil, fmt.Errorf("check blob %s: %w", want.Ref, err)
	}
	if found {
		findings = append(findings, shortfalls(want, got)...)
	}
	return findings, nil
}

// drain reads ref to its end, so that it is verified. Without a Location, it could not be
// opened.
func (s *Store) drain(ctx context.Context, ref Ref) (Location, error) {
	r, loc, err := s.Open(ctx, ref)
	if err != nil {
		return Location{}, err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, &contextReader{ctx, r})
	return loc, err
}

func shortfalls(want, got Location) (findings []Finding) {
	if got.RetainUntil.Before(want.RetainUntil) {
		findings = append(findings, Finding{Shortened, fmt.Sprintf("blob %s is retained until %s, recorded was %s",
			want.Ref, got.RetainUntil.Format(time.RFC3339), want.RetainUntil.Format(time.RFC3339))})
	}
	if want.Hold && !got.Hold {
		findings = append(findings, Finding{Released, fmt.Sprintf("blob %s is not under legal hold", want.Ref)})
	}
	if got.Shadowed {
		findings = append(findings, Finding{Shadowed, fmt.Sprintf("blob %s is covered by another version", want.Ref)})
	}
	return findings
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// source marks the errors of a stream that was given to us.
type source struct{ r io.Reader }

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrSource, err)
	}
	return n, err
}

// sum hashes r to its end.
func sum(r io.Reader) (chain.Digest, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return chain.Digest(h.Sum(nil)), err
}

// verifier hashes what it reads and judges at the end.
type verifier struct {
	io.ReadCloser
	hash hash.Hash
	ref  Ref
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	v.hash.Write(p[:n])
	if err == io.EOF {
		if got := chain.Digest(v.hash.Sum(nil)); got != v.ref.Digest {
			return n, &CorruptError{Ref: v.ref, Got: got}
		}
	}
	return n, err
}

// fileSpool is the spool of a backend that needs the digest first.
type fileSpool struct {
	file    *os.File // not embedded: its ReadFrom would pass Write by
	backend Backend
	size    int64
}

func (s *fileSpool) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	s.size += int64(n)
	return n, writeError(err)
}

func (s *fileSpool) Commit(ctx context.Context, d chain.Digest, retainUntil time.Time) (Location, bool, error) {
	return s.backend.Put(ctx, d, s.file, s.size, retainUntil)
}

func (s *fileSpool) Discard() { s.file.Close() }
