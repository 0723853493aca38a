//go:build linux

package blob

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dvir/holdfast/chain"
)

// temp is a file being written: without a name where the file system can (O_TMPFILE),
// else under a temporary one.
type temp struct {
	*os.File
	name  string
	named bool // name exists and must go
}

func (t *temp) discard() {
	if t.named {
		_ = os.Remove(t.name) // what stays is swept at the next start
	}
	t.Close()
}

// newTemp makes a temp in the root, so that any folder below can take it in.
func (d *Dir) newTemp() (*temp, error) {
	if d.config.ReadOnly {
		return nil, ErrReadOnly
	}
	t := &temp{name: d.tempName(), named: !d.anonymous}
	path, flags := d.root, unix.O_TMPFILE
	if t.named {
		path, flags = t.name, os.O_CREATE|os.O_EXCL
	}
	var err error
	if t.File, err = os.OpenFile(path, flags|os.O_WRONLY, 0o600); err != nil {
		return nil, writeError(err)
	}
	// The lock tells sweep, in any process, that the writer is alive, and keeps protect
	// of the linked file waiting until the writer is done with it.
	if err := lock(t.File, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.discard()
		return nil, err
	}
	return t, nil
}

func (d *Dir) tempName() string { return filepath.Join(d.root, tempPrefix+rand.Text()) }

// link gives t the path of digest with a suffix, making its folder if need be.
// Nothing is replaced: a taken name is fs.ErrExist. A temporary name is gone afterwards.
func (d *Dir) link(t *temp, digest chain.Digest, suffix string) error {
	path := d.path(digest) + suffix
	err := t.linkTo(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.makeShard(digest); err == nil {
			err = t.linkTo(path)
		}
	}
	if err == nil && t.named {
		err = os.Remove(t.name)
		t.named = err != nil
	}
	return err
}

func (t *temp) linkTo(path string) error {
	if t.named {
		return os.Link(t.name, path)
	}
	self := fmt.Sprintf("/proc/self/fd/%d", t.Fd())
	if err := unix.Linkat(unix.AT_FDCWD, self, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW); err != nil {
		return &os.LinkError{Op: "linkat", Old: self, New: path, Err: err}
	}
	return nil
}

// sweep removes temporary names whose writers are gone.
func (d *Dir) sweep() error {
	entries, err := os.ReadDir(d.root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		if err := removeUnlocked(filepath.Join(d.root, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func removeUnlocked(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	err = lock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = os.Remove(path)
	}
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
