//go:build linux

package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FilesystemError reports a file system on which syncs, links or locks may not hold
// what the directory backend promises; [DirConfig] can override it.
type FilesystemError struct {
	Type string
}

func (e *FilesystemError) Error() string {
	return fmt.Sprintf("%s is a network or user-space file system: its syncs and locks may not hold; use a local one, or allow it explicitly", e.Type)
}

type filesystem struct {
	name  string
	fit   bool   // a local disk file system
	doubt string // else: why not
}

const (
	remote  = "remote: syncs, links and locks depend on the server"
	layered = "the upper layer of a container: use a volume, for it is gone with the container"
	memory  = "memory: gone at the next boot"
)

// filesystems is by the type that statfs(2) gives.
var filesystems = map[int64]filesystem{
	unix.EXT4_SUPER_MAGIC:      {"ext4", true, ""},
	unix.XFS_SUPER_MAGIC:       {"xfs", true, ""},
	unix.BTRFS_SUPER_MAGIC:     {"btrfs", true, ""},
	unix.F2FS_SUPER_MAGIC:      {"f2fs", true, ""},
	0x2fc12fc1:                 {"zfs", true, ""},
	0xca451a4e:                 {"bcachefs", true, ""},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlay", false, layered},
	unix.TMPFS_MAGIC:           {"tmpfs", false, memory},
	unix.RAMFS_MAGIC:           {"ramfs", false, memory},
	unix.NFS_SUPER_MAGIC:       {"nfs", false, remote},
	unix.CIFS_SUPER_MAGIC:      {"cifs", false, remote},
	unix.SMB2_SUPER_MAGIC:      {"smb2", false, remote},
	unix.SMB_SUPER_MAGIC:       {"smb", false, remote},
	unix.CEPH_SUPER_MAGIC:      {"ceph", false, remote},
	unix.AFS_SUPER_MAGIC:       {"afs", false, remote},
	unix.V9FS_MAGIC:            {"9p", false, remote},
	unix.FUSE_SUPER_MAGIC:      {"fuse", false, remote},
}

func filesystemOf(kind int64) filesystem {
	kind &= 0xffffffff // 32-bit platforms extend the sign
	if f, ok := filesystems[kind]; ok {
		return f
	}
	return filesystem{fmt.Sprintf("type %#x", kind), false, "unknown to this program"}
}

// examine finds out what the folder allows and fills in the description.
func (d *Dir) examine() error {
	var st unix.Statfs_t
	if err := unix.Statfs(d.root, &st); err != nil {
		return os.NewSyscallError("statfs", err)
	}
	kind := filesystemOf(int64(st.Type))
	if kind.doubt == remote && !d.config.AllowAnyFilesystem {
		return &FilesystemError{Type: kind.name}
	}
	d.about = Description{Kind: "directory", Place: d.root}
	note := kind.name
	if !kind.fit {
		note += ", " + kind.doubt
	}
	d.trait("local file system", kind.fit, note, note)
	if d.config.ReadOnly {
		d.trait("writing", false, "", "opened for reading only; what it allows was not tried")
		return nil
	}
	if err := d.sweep(); err != nil {
		return writeError(err)
	}
	return writeError(d.probe())
}

func (d *Dir) trait(name string, ok bool, good, bad string) {
	note := bad
	if ok {
		note = good
	}
	d.about.Traits = append(d.about.Traits, Trait{name, ok, note})
}

// probe tries on a file of its own what each Put will do.
func (d *Dir) probe() error {
	d.anonymous = !d.config.noTempFile && d.canLinkAnonymous()
	t, err := d.newTemp()
	if err != nil {
		return err
	}
	defer t.discard()
	d.xattrs = !d.config.noXattr && unix.Fsetxattr(int(t.Fd()), attribute, []byte(record{}.text()), 0) == nil
	d.immutable = !d.config.NoImmutable && setImmutable(t.File, true) == nil && setImmutable(t.File, false) == nil
	if err := d.probeLink(t); err != nil {
		return err
	}
	d.trait("unnamed temporary files", d.anonymous,
		"a crash leaves no litter", "temporary names instead, removed at the next start")
	d.trait("retention in an extended attribute", d.xattrs,
		"one file holds bytes and retention", "sidecar files instead, at about half the speed")
	refused := "not permitted here (needs CAP_LINUX_IMMUTABLE): the owner and root may remove files"
	if d.config.NoImmutable {
		refused = "switched off: the owner and root may remove files"
	}
	d.trait("immutable flag", d.immutable, "even root must clear it before it can change a file", refused)
	return syncFolder(d.root)
}

// canLinkAnonymous tries O_TMPFILE and a link through /proc.
func (d *Dir) canLinkAnonymous() bool {
	f, err := os.OpenFile(d.root, unix.O_TMPFILE|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	defer f.Close()
	t := &temp{File: f}
	name := d.tempName()
	return t.linkTo(name) == nil && os.Remove(name) == nil
}

// probeLink makes sure that a link does not replace.
func (d *Dir) probeLink(t *temp) error {
	name := d.tempName()
	if err := t.linkTo(name); err != nil {
		return err
	}
	err := t.linkTo(name)
	if rm := os.Remove(name); rm != nil {
		return rm
	}
	if !errors.Is(err, fs.ErrExist) {
		return errors.New("a second link to the same name was not refused")
	}
	return nil
}

// fileID tells one folder from another that took its place.
type fileID struct{ dev, ino uint64 }

func identify(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileID{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return fileID{uint64(st.Dev), st.Ino}, nil
}

// present makes sure that the folder is still the one that was opened. An unmounted
// disk must read as a failure, not as "no such bytes".
func (d *Dir) present() error {
	id, err := identify(d.root)
	if err != nil {
		return err
	}
	if id != d.self {
		return fmt.Errorf("blob directory %s is not the folder that was opened", d.root)
	}
	return nil
}

// makeDirs is os.MkdirAll with durable names.
func makeDirs(path string) error {
	err := os.Mkdir(path, folderMode)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		if err := makeDirs(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, folderMode)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(filepath.Dir(path))
}
