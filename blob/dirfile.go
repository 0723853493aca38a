//go:build linux

package blob

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dvir/holdfast/chain"
)

const (
	attribute  = "user.holdfast.retention"
	sidecar    = ".retention" // beside the file, where attributes are refused
	tempPrefix = ".tmp-"

	immutableFlag = 0x10 // FS_IMMUTABLE_FL of linux/fs.h

	fileMode   fs.FileMode = 0o440
	writable   fs.FileMode = 0o640 // an attribute can only be set on a file with owner write permission
	folderMode fs.FileMode = 0o700
)

// record is the stored retention of one file.
type record struct {
	until time.Time
	hold  bool
}

func (r *record) extend(until time.Time) {
	if until.After(r.until) {
		r.until = until
	}
}

// text is kept under 50 bytes, so that it fits into a 256-byte inode of ext4.
func (r record) text() string {
	hold := 0
	if r.hold {
		hold = 1
	}
	return fmt.Sprintf("until=%s hold=%d", r.until.UTC().Format(time.RFC3339), hold)
}

// parseRecord is the inverse of text; anything else is the zero record: no protection.
func parseRecord(text string) record {
	date, hold, _ := strings.Cut(strings.TrimPrefix(text, "until="), " ")
	until, err := time.Parse(time.RFC3339, date)
	r := record{until, hold == "hold=1"}
	if err != nil || r.text() != text {
		return record{}
	}
	return r
}

func location(digest chain.Digest, size int64, r record) Location {
	return Location{Ref: Ref{digest, DirVersion}, Size: size, RetainUntil: r.until, Hold: r.hold}
}

// path is where the bytes of digest stand.
func (d *Dir) path(digest chain.Digest) string {
	name := digest.String()
	return filepath.Join(d.root, name[:2], name[2:4], name)
}

// open opens the file of ref for reading and tells its size.
func (d *Dir) open(ref Ref) (*os.File, int64, error) {
	if ref.Version != "" && ref.Version != DirVersion {
		return nil, 0, ErrNotFound
	}
	// O_NONBLOCK: a pipe put in the file's place must not hang the reader.
	f, err := os.OpenFile(d.path(ref.Digest), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := d.present(); err != nil {
			return nil, 0, err
		}
		return nil, 0, ErrNotFound
	case errors.Is(err, unix.ELOOP):
		return nil, 0, &CorruptError{Ref: ref}
	case err != nil:
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &CorruptError{Ref: ref}
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// record reads the retention of f, wherever it was possible to keep it.
func (d *Dir) record(f *os.File, digest chain.Digest) (record, error) {
	var buf [64]byte
	n, err := unix.Fgetxattr(int(f.Fd()), attribute, buf[:])
	switch {
	case err == nil:
		return parseRecord(string(buf[:n])), nil
	case errors.Is(err, unix.ERANGE):
		return record{}, nil
	case !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP):
		return record{}, os.NewSyscallError("fgetxattr", err)
	}
	side, err := os.OpenFile(d.path(digest)+sidecar, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ELOOP):
		return record{}, nil
	case err != nil:
		return record{}, err
	}
	defer side.Close()
	text, err := io.ReadAll(io.LimitReader(side, int64(len(buf))))
	return parseRecord(string(text)), err
}

// protect edits the retention of f and restores its mode and flag. The lock on f
// orders this among processes; closing f releases it.
func (d *Dir) protect(f *os.File, digest chain.Digest, edit func(*record)) (record, error) {
	if err := lock(f, unix.LOCK_EX); err != nil {
		return record{}, err
	}
	old, err := d.record(f, digest)
	if err != nil {
		return record{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return record{}, err
	}
	next := old
	if edit(&next); next != old || info.Mode().Perm() != fileMode {
		if err := d.rewrite(f, digest, next); err != nil {
			return record{}, err
		}
	}
	if d.immutable {
		if err := setImmutable(f, true); err != nil {
			return record{}, err
		}
	}
	return next, nil
}

func (d *Dir) rewrite(f *os.File, digest chain.Digest, rec record) error {
	if d.immutable {
		if err := setImmutable(f, false); err != nil {
			return err
		}
	}
	if !d.xattrs {
		return errors.Join(f.Chmod(fileMode), d.replaceSidecar(digest, rec))
	}
	if err := f.Chmod(writable); err != nil {
		return err
	}
	if err := unix.Fsetxattr(int(f.Fd()), attribute, []byte(rec.text()), 0); err != nil {
		return os.NewSyscallError("fsetxattr", err)
	}
	return f.Chmod(fileMode)
}

// addSidecar writes the sidecar of digest unless there is one.
func (d *Dir) addSidecar(digest chain.Digest, rec record) error {
	t, err := d.newSidecar(rec)
	if err != nil {
		return err
	}
	defer t.discard()
	if err := d.link(t, digest, sidecar); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// replaceSidecar writes the sidecar of digest anew.
func (d *Dir) replaceSidecar(digest chain.Digest, rec record) error {
	t, err := d.newSidecar(rec)
	if err != nil {
		return err
	}
	defer t.discard()
	if !t.named {
		name := d.tempName()
		if err := t.linkTo(name); err != nil {
			return err
		}
		t.name, t.named = name, true
	}
	if err := os.Rename(t.name, d.path(digest)+sidecar); err != nil {
		return err
	}
	t.named = false
	return syncFolder(filepath.Dir(d.path(digest)))
}

func (d *Dir) newSidecar(rec record) (*temp, error) {
	t, err := d.newTemp()
	if err != nil {
		return nil, err
	}
	_, err = t.WriteString(rec.text())
	if err == nil {
		err = errors.Join(t.Chmod(fileMode), t.Sync())
	}
	if err != nil {
		t.discard()
		return nil, err
	}
	return t, nil
}

// bitset is a fixed set of small numbers for concurrent use.
type bitset []atomic.Uint64

func (b bitset) has(i int) bool { return b[i/64].Load()>>(i%64)&1 == 1 }
func (b bitset) add(i int)      { b[i/64].Or(1 << (i % 64)) }
func (b bitset) remove(i int)   { b[i/64].And(^uint64(1 << (i % 64))) }

// shards holds the first bytes and the first two bytes of digests whose folders
// this process has seen on disk.
type shards struct{ top, leaf bitset }

func newShards() shards { return shards{make(bitset, 256/64), make(bitset, 65536/64)} }

func leafOf(digest chain.Digest) int { return int(digest[0])<<8 | int(digest[1]) }

// settle makes the name of digest durable: its folder, and the folders above unless
// this process has seen them on disk. That mkdir said "exists" is no proof of that:
// another process may have made the folder and not synced it yet.
func (d *Dir) settle(digest chain.Digest) error {
	leaf := filepath.Dir(d.path(digest))
	if err := syncFolder(leaf); err != nil {
		return err
	}
	if d.onDisk.leaf.has(leafOf(digest)) {
		return nil
	}
	return d.settleTop(filepath.Dir(leaf), int(digest[0]))
}

// settleTop syncs the folder of a first byte and notes the leaves it held before.
func (d *Dir) settleTop(folder string, top int) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	if err := syncFolder(folder); err != nil {
		return err
	}
	if !d.onDisk.top.has(top) {
		if err := syncFolder(d.root); err != nil {
			return err
		}
		d.onDisk.top.add(top)
	}
	for _, e := range entries {
		if b, err := hex.DecodeString(e.Name()); err == nil && len(b) == 1 {
			d.onDisk.leaf.add(top<<8 | int(b[0]))
		}
	}
	return nil
}

// makeShard makes the folders for digest.
func (d *Dir) makeShard(digest chain.Digest) error {
	if err := d.present(); err != nil {
		return err
	}
	d.onDisk.leaf.remove(leafOf(digest))
	d.onDisk.top.remove(int(digest[0]))
	leaf := filepath.Dir(d.path(digest))
	for _, folder := range []string{filepath.Dir(leaf), leaf} {
		if err := os.Mkdir(folder, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func lock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return os.NewSyscallError("flock", err)
		}
	}
}

// setImmutable sets or clears the immutable flag.
func setImmutable(f *os.File, on bool) error {
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return os.NewSyscallError("ioctl FS_IOC_GETFLAGS", err)
	}
	want := flags &^ immutableFlag
	if on {
		want |= immutableFlag
	}
	if want == flags {
		return nil
	}
	return os.NewSyscallError("ioctl FS_IOC_SETFLAGS", unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(want)))
}
