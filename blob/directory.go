//go:build linux

package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dvir/holdfast/chain"
)

// DirVersion is the version of everything in a [Dir]: names are never replaced, so
// there is only one.
const DirVersion = "dir-1"

// DirConfig of a [Dir]. The zero value is for the service.
type DirConfig struct {
	ReadOnly           bool // writes nothing, not even to find out what is possible: for an audit beside the service
	NoImmutable        bool // no immutable flag even where permitted, so that the folder can be removed: demonstrations, tests
	AllowAnyFilesystem bool // accept network and FUSE file systems, whose syncs and locks may not hold

	noTempFile, noXattr bool
}

// Dir is the directory backend; the package documentation tells its layout. Any
// number of processes may use one directory.
type Dir struct {
	root      string
	self      fileID
	config    DirConfig
	anonymous bool // O_TMPFILE works
	xattrs    bool // else retention stands in sidecar files
	immutable bool
	about     Description
	onDisk    shards
	turns     [64]sync.Mutex // by digest, see turn
}

var (
	_ Backend = (*Dir)(nil)
	_ Spooler = (*Dir)(nil)
)

// OpenDir opens the directory, which it creates unless opened read-only, and finds
// out what the file system and the permissions allow; [Dir.Describe] tells. Errors:
// *FilesystemError, ErrReadOnly, ErrNoSpace.
func OpenDir(root string, c DirConfig) (*Dir, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	d := &Dir{root: root, config: c, onDisk: newShards()}
	if !c.ReadOnly {
		if err := makeDirs(root); err != nil {
			return nil, writeError(err)
		}
	}
	if d.self, err = identify(root); err != nil {
		return nil, err
	}
	if err := d.examine(); err != nil {
		return nil, fmt.Errorf("blob directory %s: %w", root, err)
	}
	return d, nil
}

// Describe implements [Backend].
func (d *Dir) Describe() Description { return d.about }

// Put implements [Backend].
func (d *Dir) Put(ctx context.Context, digest chain.Digest, r io.ReaderAt, size int64, retainUntil time.Time) (Location, bool, error) {
	if loc, err := d.confirm(digest, retainUntil); !errors.Is(err, ErrNotFound) {
		return loc, false, err
	}
	t, err := d.newTemp()
	if err != nil {
		return Location{}, false, err
	}
	defer t.discard()
	h := sha256.New()
	src := &contextReader{ctx, io.NewSectionReader(r, 0, size)}
	buf := make([]byte, min(size+1, 128<<10))
	if _, err := io.CopyBuffer(io.MultiWriter(h, t.File), src, buf); err != nil {
		return Location{}, false, writeError(err)
	}
	if got := chain.Digest(h.Sum(nil)); got != digest {
		return Location{}, false, &CorruptError{Ref: Ref{Digest: digest}, Got: got}
	}
	return d.commit(ctx, t, digest, size, retainUntil)
}

// Spool implements [Spooler]: the bytes go straight into the file that will be linked.
func (d *Dir) Spool(ctx context.Context) (Spool, error) {
	t, err := d.newTemp()
	if err != nil {
		return nil, err
	}
	return &dirSpool{temp: t, dir: d}, nil
}

type dirSpool struct {
	temp *temp
	dir  *Dir
	size int64
}

func (s *dirSpool) Write(p []byte) (int, error) {
	n, err := s.temp.Write(p)
	s.size += int64(n)
	return n, writeError(err)
}

func (s *dirSpool) Commit(ctx context.Context, digest chain.Digest, retainUntil time.Time) (Location, bool, error) {
	return s.dir.commit(ctx, s.temp, digest, s.size, retainUntil)
}

func (s *dirSpool) Discard() { s.temp.discard() }

// commit gives t its name. From the link on, an error may leave the bytes stored.
func (d *Dir) commit(ctx context.Context, t *temp, digest chain.Digest, size int64, until time.Time) (Location, bool, error) {
	rec := record{until: until}
	err := d.name(ctx, t, digest, rec)
	created := err == nil
	switch {
	case errors.Is(err, fs.ErrExist), created && !d.xattrs:
		// A sidecar may be older than the file, so its date is checked like that of
		// present bytes. The lock on t would be in the way.
		t.discard()
		loc, err := d.confirm(digest, until)
		return loc, created && err == nil, err
	case err != nil:
		return Location{}, false, writeError(err)
	}
	return location(digest, size, rec), true, nil
}

// name seals and links t, durably unless its date stands in a sidecar, which confirm
// sees to. A taken name is fs.ErrExist.
func (d *Dir) name(ctx context.Context, t *temp, digest chain.Digest, rec record) error {
	defer d.turn(digest)()
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := os.Lstat(d.path(digest)); err == nil {
		return fs.ErrExist // no need to sync the bytes once more
	}
	if err := d.seal(t, digest, rec); err != nil {
		return err
	}
	if err := d.link(t, digest, ""); err != nil || !d.xattrs {
		return err
	}
	// Only now: a file with the flag cannot be linked.
	if d.immutable {
		if err := setImmutable(t.File, true); err != nil {
			return err
		}
	}
	return d.settle(digest)
}

// turn waits until no other goroutine works on the file of digest, before the lock that
// orders processes: waiting for a file's lock takes a thread, waiting here does not. It
// also bounds the threads that wait for the disk.
func (d *Dir) turn(digest chain.Digest) (unlock func()) {
	mu := &d.turns[int(digest[0])%len(d.turns)]
	mu.Lock()
	return mu.Unlock
}

// seal makes the content of t durable, with its retention.
func (d *Dir) seal(t *temp, digest chain.Digest, rec record) error {
	if d.xattrs {
		if err := unix.Fsetxattr(int(t.Fd()), attribute, []byte(rec.text()), 0); err != nil {
			return os.NewSyscallError("fsetxattr", err)
		}
	} else if err := d.addSidecar(digest, rec); err != nil {
		return err
	}
	if err := t.Chmod(fileMode); err != nil {
		return err
	}
	return t.Sync()
}

// confirm makes sure that bytes found under the digest are the right ones, durable and
// protected until then: whoever linked them may not have got that far.
func (d *Dir) confirm(digest chain.Digest, until time.Time) (Location, error) {
	f, size, err := d.open(Ref{Digest: digest})
	if err != nil {
		return Location{}, err
	}
	defer f.Close()
	if got, err := sum(f); err != nil {
		return Location{}, err
	} else if got != digest {
		return Location{}, &CorruptError{Ref: Ref{digest, DirVersion}, Got: got}
	}
	if d.config.ReadOnly {
		return Location{}, ErrReadOnly
	}
	defer d.turn(digest)()
	rec, err := d.protect(f, digest, func(r *record) { r.extend(until) })
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = d.settle(digest)
	}
	return location(digest, size, rec), writeError(err)
}

// Open implements [Backend].
func (d *Dir) Open(ctx context.Context, ref Ref) (io.ReadCloser, Location, error) {
	f, loc, err := d.find(ctx, ref)
	if err != nil {
		return nil, Location{}, err
	}
	return f, loc, nil
}

// Stat implements [Backend].
func (d *Dir) Stat(ctx context.Context, ref Ref) (Location, error) {
	f, loc, err := d.find(ctx, ref)
	if err != nil {
		return Location{}, err
	}
	return loc, f.Close()
}

func (d *Dir) find(ctx context.Context, ref Ref) (*os.File, Location, error) {
	if err := ctx.Err(); err != nil {
		return nil, Location{}, err
	}
	f, size, err := d.open(ref)
	if err != nil {
		return nil, Location{}, err
	}
	rec, err := d.record(f, ref.Digest)
	if err != nil {
		f.Close()
		return nil, Location{}, err
	}
	return f, location(ref.Digest, size, rec), nil
}

// Extend implements [Backend].
func (d *Dir) Extend(ctx context.Context, ref Ref, until time.Time) (Location, error) {
	return d.change(ctx, ref, func(r *record) { r.extend(until) })
}

// Hold implements [Backend].
func (d *Dir) Hold(ctx context.Context, ref Ref, on bool) (Location, error) {
	return d.change(ctx, ref, func(r *record) { r.hold = on })
}

func (d *Dir) change(ctx context.Context, ref Ref, edit func(*record)) (Location, error) {
	if err := ctx.Err(); err != nil {
		return Location{}, err
	}
	f, size, err := d.open(ref)
	if err != nil {
		return Location{}, err
	}
	defer f.Close()
	if d.config.ReadOnly {
		return Location{}, ErrReadOnly
	}
	defer d.turn(ref.Digest)()
	rec, err := d.protect(f, ref.Digest, edit)
	if err == nil {
		err = f.Sync()
	}
	return location(ref.Digest, size, rec), writeError(err)
}

// List implements [Backend]. Names that are not of this layout are passed over;
// bytes stored while it runs may or may not appear.
func (d *Dir) List(ctx context.Context, prefix string) iter.Seq2[Location, error] {
	return func(yield func(Location, error) bool) {
		d.walk(d.root, "", prefix, func(digest chain.Digest, err error) bool {
			err = errors.Join(err, ctx.Err())
			if err != nil {
				yield(Location{}, err)
				return false
			}
			loc, err := d.Stat(ctx, Ref{Digest: digest})
			if err != nil {
				loc.Ref = Ref{digest, DirVersion}
			}
			return yield(loc, err)
		})
	}
}

// walk visits the digests in folder, which holds those that start with shard.
func (d *Dir) walk(folder, shard, prefix string, visit func(chain.Digest, error) bool) bool {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		err = d.present()
	}
	if err != nil {
		return visit(chain.Digest{}, err)
	}
	for _, e := range entries {
		name := e.Name()
		if len(shard) == 4 {
			digest, err := chain.ParseDigest(name)
			if err == nil && strings.HasPrefix(name, shard) && strings.HasPrefix(name, prefix) && !visit(digest, nil) {
				return false
			}
		} else if sub := shard + name; len(name) == 2 && e.IsDir() && overlap(sub, prefix) {
			if !d.walk(filepath.Join(folder, name), sub, prefix, visit) {
				return false
			}
		}
	}
	return true
}

func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }
