//go:build linux

package blob_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// tampered is a directory backend with the hands of an intruder.
type tampered struct {
	*blob.Dir
	root string
}

func (d tampered) Tamper(ref blob.Ref, data []byte) error {
	path := pathOf(d.root, ref.Digest)
	if err := thaw(path); err != nil {
		return err
	}
	return errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, data, 0), os.Chmod(path, 0o440))
}

func pathOf(root string, d chain.Digest) string {
	name := d.String()
	return filepath.Join(root, name[:2], name[2:4], name)
}

// thaw clears the immutable flag.
func thaw(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil || flags&0x10 == 0 {
		return nil
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags&^0x10))
}

// folder is a temporary folder that can be removed even when it holds immutable files.
func folder(t testing.TB) string {
	root := t.TempDir()
	t.Cleanup(func() {
		filepath.WalkDir(root, func(path string, e fs.DirEntry, _ error) error {
			if e != nil && e.Type().IsRegular() {
				thaw(path)
			}
			return nil
		})
	})
	return root
}

func openDir(t testing.TB, root string, c blob.DirConfig) *blob.Dir {
	t.Helper()
	d, err := blob.OpenDir(root, c)
	require.NoError(t, err)
	return d
}

var layout = regexp.MustCompile(`^([0-9a-f]{2}(/[0-9a-f]{2})?|([0-9a-f]{2})/([0-9a-f]{2})/[0-9a-f]{64}(\.retention)?)$`)

// tidy makes sure that nothing but the layout, with its modes, is in root.
func tidy(t testing.TB, root string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		assert.Regexp(t, layout, rel)
		info, err := e.Info()
		if err == nil && e.IsDir() {
			assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), rel)
		} else if err == nil {
			assert.Equal(t, fs.FileMode(0o440), info.Mode().Perm(), rel)
		}
		return err
	}))
}

var variants = map[string]blob.DirConfig{
	"full":         {},
	"noImmutable":  {NoImmutable: true},
	"noTempFile":   blob.DirConfig{}.WithoutTempFile(),
	"noXattr":      blob.DirConfig{}.WithoutXattr(),
	"neither":      blob.DirConfig{}.WithoutTempFile().WithoutXattr(),
	"neitherPlain": blob.DirConfig{NoImmutable: true}.WithoutTempFile().WithoutXattr(),
}

func TestDir(t *testing.T) {
	for name, config := range variants {
		t.Run(name, func(t *testing.T) {
			blobtest.TestBackend(t, func(t *testing.T) blob.Backend {
				root := folder(t)
				t.Cleanup(func() { tidy(t, root) })
				return tampered{openDir(t, root, config), root}
			})
		})
	}
}

// TestDirInMemory repeats the suite on tmpfs, the other file system at hand.
func TestDirInMemory(t *testing.T) {
	root, err := os.MkdirTemp("/dev/shm", "blob-*")
	if err != nil {
		t.Skipf("NOT TESTED: no /dev/shm: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	d := openDir(t, root, blob.DirConfig{NoImmutable: true})
	blobtest.TestBackend(t, func(*testing.T) blob.Backend { return tampered{d, root} })
	tidy(t, root)
}

// TestTwoProcesses: two backends over one folder share nothing in memory.
func TestTwoProcesses(t *testing.T) {
	for name, config := range variants {
		t.Run(name, func(t *testing.T) {
			root := folder(t)
			a := blobtest.Store(t, openDir(t, root, config))
			b := blobtest.Store(t, openDir(t, root, config))
			var group sync.WaitGroup
			const payloads, each = 24, 8
			var created [payloads * each]bool
			var errs [payloads * each]error
			for i := range errs {
				group.Go(func() {
					store, data := a, []byte{byte(i / each)}
					if i%2 == 1 {
						store = b
					}
					_, created[i], errs[i] = store.PutBytes(t.Context(), data, noon.Add(time.Duration(i)*time.Hour))
				})
			}
			group.Wait()
			require.NoError(t, errors.Join(errs[:]...))
			for i := range payloads {
				news := 0
				for _, c := range created[each*i : each*(i+1)] {
					if c {
						news++
					}
				}
				assert.Equal(t, 1, news)
				loc, err := a.Stat(t.Context(), blob.Ref{Digest: chain.Sum([]byte{byte(i)})})
				require.NoError(t, err)
				want := blob.AddMonths(noon.Add(time.Duration(each*(i+1)-1)*time.Hour), 18)
				assert.True(t, want.Equal(loc.RetainUntil), "the latest date holds: %s, want %s", loc.RetainUntil, want)
			}
			tidy(t, root)
		})
	}
}

func TestStoredForm(t *testing.T) {
	root := folder(t)
	s := blobtest.Store(t, openDir(t, root, blob.DirConfig{}))
	loc, _, err := s.PutBytes(t.Context(), []byte("report"), time.Date(2026, 11, 30, 20, 45, 7, 160156000, time.UTC))
	require.NoError(t, err)
	assert.Equal(t, "dir-1", loc.Version)
	path := filepath.Join(root, loc.Digest.String()[:2], loc.Digest.String()[2:4], loc.Digest.String())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "report", string(data))
	assert.Equal(t, "until=2028-05-30T20:45:08Z hold=0", attribute(t, path))
	_, err = s.Hold(t.Context(), loc.Ref, true)
	require.NoError(t, err)
	assert.Equal(t, "until=2028-05-30T20:45:08Z hold=1", attribute(t, path))
}

func attribute(t *testing.T, path string) string {
	var buf [100]byte
	n, err := unix.Getxattr(path, "user.holdfast.retention", buf[:])
	if errors.Is(err, unix.ENOTSUP) {
		t.Skip("NOT TESTED: no extended attributes here")
	}
	require.NoError(t, err)
	return string(buf[:n])
}

func TestImmutable(t *testing.T) {
	root := folder(t)
	d := openDir(t, root, blob.DirConfig{})
	if !trait(t, d, "immutable flag").OK {
		t.Skip("NOT TESTED: the immutable flag is not permitted here")
	}
	s := blobtest.Store(t, d)
	loc, _, err := s.PutBytes(t.Context(), []byte("report"), noon)
	require.NoError(t, err)
	path := pathOf(root, loc.Digest)
	frozen := func(when string) {
		assert.ErrorIs(t, os.Remove(path), syscall.EPERM, when)
		assert.ErrorIs(t, os.WriteFile(path, nil, 0), syscall.EPERM, when)
	}
	frozen("put")
	_, err = s.Extend(t.Context(), loc.Ref, noon.AddDate(5, 0, 0), noon)
	require.NoError(t, err)
	frozen("extend")
	_, err = s.Hold(t.Context(), loc.Ref, true)
	require.NoError(t, err)
	frozen("hold")

	// As if a crash had come between clearing the flag and setting it again.
	require.NoError(t, thaw(path))
	require.NoError(t, os.Chmod(path, 0o640))
	_, _, err = s.PutBytes(t.Context(), []byte("report"), noon)
	require.NoError(t, err)
	frozen("put again")
	tidy(t, root)
}

func trait(t *testing.T, d *blob.Dir, name string) blob.Trait {
	t.Helper()
	for _, trait := range d.Describe().Traits {
		if trait.Name == name {
			assert.NotEmpty(t, trait.Note)
			return trait
		}
	}
	t.Fatalf("no trait %q in %+v", name, d.Describe())
	return blob.Trait{}
}

func TestDescribe(t *testing.T) {
	root := folder(t)
	d := openDir(t, root, blob.DirConfig{NoImmutable: true}.WithoutTempFile().WithoutXattr())
	assert.Equal(t, root, d.Describe().Place)
	for _, name := range []string{"unnamed temporary files", "retention in an extended attribute", "immutable flag"} {
		assert.False(t, trait(t, d, name).OK, name)
	}
	d, err := blob.OpenDir("/dev/shm/blob-describe", blob.DirConfig{NoImmutable: true})
	if err != nil {
		t.Skipf("NOT TESTED: no /dev/shm: %v", err)
	}
	defer os.Remove("/dev/shm/blob-describe")
	assert.False(t, trait(t, d, "local file system").OK)
	assert.Contains(t, trait(t, d, "local file system").Note, "tmpfs")
}

func TestRemoteFilesystem(t *testing.T) {
	defer blob.PretendRemote()()
	root := folder(t)
	_, err := blob.OpenDir(root, blob.DirConfig{})
	remote, ok := errors.AsType[*blob.FilesystemError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "nfs", remote.Type)
	d := openDir(t, root, blob.DirConfig{AllowAnyFilesystem: true})
	assert.False(t, trait(t, d, "local file system").OK)
}

func TestNotPlainFiles(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"symlink":   func(path string) error { return os.Symlink("/etc/hostname", path) },
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			root := folder(t)
			s := blobtest.Store(t, openDir(t, root, blob.DirConfig{}))
			good, _, err := s.PutBytes(t.Context(), []byte("good"), noon)
			require.NoError(t, err)
			ref := blob.Ref{Digest: chain.Sum([]byte("report"))}
			path := pathOf(root, ref.Digest)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, plant(path))

			_, err = s.Get(t.Context(), ref)
			assert.ErrorAs(t, err, new(*blob.CorruptError))
			_, _, err = s.PutBytes(t.Context(), []byte("report"), noon)
			assert.ErrorAs(t, err, new(*blob.CorruptError))
			findings, err := s.Check(t.Context(), blob.Location{Ref: ref, RetainUntil: noon})
			require.NoError(t, err)
			require.Len(t, findings, 1)
			assert.Equal(t, blob.Corrupt, findings[0].Problem)

			listed := map[chain.Digest]bool{}
			for loc, err := range s.List(t.Context(), "") {
				listed[loc.Digest] = err == nil
			}
			assert.Equal(t, map[chain.Digest]bool{good.Digest: true, ref.Digest: false}, listed)
		})
	}
}

// TestRecordRemoved: bytes without a readable record are unprotected, and a finding.
func TestRecordRemoved(t *testing.T) {
	root := folder(t)
	s := blobtest.Store(t, openDir(t, root, blob.DirConfig{NoImmutable: true}))
	loc, _, err := s.PutBytes(t.Context(), []byte("report"), noon)
	require.NoError(t, err)
	path := pathOf(root, loc.Digest)
	attribute(t, path)
	require.NoError(t, os.Chmod(path, 0o640))
	for _, text := range []string{"until=never hold=0", strings.Repeat("x", 90), ""} {
		require.NoError(t, unix.Setxattr(path, "user.holdfast.retention", []byte(text), 0))
		findings, err := s.Check(t.Context(), loc)
		require.NoError(t, err)
		require.Len(t, findings, 1, text)
		assert.Equal(t, blob.Shortened, findings[0].Problem)
	}
	require.NoError(t, unix.Removexattr(path, "user.holdfast.retention"))
	stored, err := s.Stat(t.Context(), loc.Ref)
	require.NoError(t, err)
	assert.True(t, stored.RetainUntil.IsZero())
	again, created, err := s.PutBytes(t.Context(), []byte("report"), noon)
	require.NoError(t, err)
	assert.False(t, created)
	assert.Equal(t, loc, again)
}

func TestFolderReplaced(t *testing.T) {
	root := filepath.Join(folder(t), "blobs")
	d := openDir(t, root, blob.DirConfig{NoImmutable: true})
	s := blobtest.Store(t, d)
	loc, _, err := s.PutBytes(t.Context(), []byte("report"), noon)
	require.NoError(t, err)
	gone := func(when string) {
		_, err := s.Check(t.Context(), loc)
		require.Error(t, err, when)
		assert.NotErrorIs(t, err, blob.ErrNotFound, when)
		_, _, err = s.PutBytes(t.Context(), []byte("other"), noon)
		assert.Error(t, err, when)
		for _, err := range s.List(t.Context(), "") {
			assert.Error(t, err, when)
		}
	}
	require.NoError(t, os.Rename(root, root+".away"))
	gone("no folder")
	require.NoError(t, os.Mkdir(root, 0o700))
	_, err = s.Check(t.Context(), loc)
	require.Error(t, err, "an empty folder in its place is not proof of loss")
	_, _, err = s.PutBytes(t.Context(), []byte("other"), noon)
	assert.Error(t, err)
	require.NoError(t, os.Remove(root))
	require.NoError(t, os.Rename(root+".away", root))
	_, err = s.Get(t.Context(), loc.Ref)
	require.NoError(t, err)
}

func TestReadOnlyOpen(t *testing.T) {
	root := folder(t)
	_, err := blob.OpenDir(filepath.Join(root, "none"), blob.DirConfig{ReadOnly: true})
	assert.ErrorIs(t, err, fs.ErrNotExist)

	writer := blobtest.Store(t, openDir(t, root, blob.DirConfig{}))
	loc, _, err := writer.PutBytes(t.Context(), []byte("report"), noon)
	require.NoError(t, err)
	alive := filepath.Join(root, ".tmp-alive")
	require.NoError(t, os.WriteFile(alive, nil, 0o600))
	before := modified(t, root)

	d := openDir(t, root, blob.DirConfig{ReadOnly: true})
	s := blobtest.Store(t, d)
	assert.Equal(t, before, modified(t, root), "opening for reading leaves no trace")
	assert.False(t, trait(t, d, "writing").OK)
	findings, err := s.Check(t.Context(), loc)
	require.NoError(t, err)
	assert.Empty(t, findings)
	_, _, err = writer.PutBytes(t.Context(), []byte("later"), noon)
	require.NoError(t, err)
	_, err = s.Get(t.Context(), blob.Ref{Digest: chain.Sum([]byte("later"))})
	require.NoError(t, err)

	_, _, err = s.PutBytes(t.Context(), []byte("report"), noon)
	assert.ErrorIs(t, err, blob.ErrReadOnly)
	_, _, err = s.PutBytes(t.Context(), []byte("other"), noon)
	assert.ErrorIs(t, err, blob.ErrReadOnly)
	_, _, err = s.Put(t.Context(), bytes.NewReader(make([]byte, 1<<20)), noon)
	assert.ErrorIs(t, err, blob.ErrReadOnly)
	_, err = s.Extend(t.Context(), loc.Ref, noon.AddDate(3, 0, 0), noon)
	assert.ErrorIs(t, err, blob.ErrReadOnly)
	_, err = s.Hold(t.Context(), loc.Ref, true)
	assert.ErrorIs(t, err, blob.ErrReadOnly)
}

func modified(t *testing.T, path string) time.Time {
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.ModTime()
}

func TestSweep(t *testing.T) {
	root := folder(t)
	litter, alive := filepath.Join(root, ".tmp-LITTER"), filepath.Join(root, ".tmp-ALIVE")
	require.NoError(t, os.WriteFile(litter, []byte("half a payload"), 0o600))
	f, err := os.Create(alive)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	spool, err := openDir(t, root, blob.DirConfig{}.WithoutTempFile()).Spool(t.Context())
	require.NoError(t, err)
	defer spool.Discard()
	_, err = spool.Write([]byte("report"))
	require.NoError(t, err)

	openDir(t, root, blob.DirConfig{})
	assert.NoFileExists(t, litter)
	assert.FileExists(t, alive, "its writer lives")
	_, created, err := spool.Commit(t.Context(), chain.Sum([]byte("report")), noon)
	require.NoError(t, err, "so does this one")
	assert.True(t, created)
}

func TestReadOnlyFolder(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write anywhere; TestUnprivileged runs this test as another user")
	}
	root := folder(t)
	s := blobtest.Store(t, openDir(t, root, blob.DirConfig{}))
	loc, _, err := s.PutBytes(t.Context(), []byte("report"), noon)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(root, 0o500))
	defer os.Chmod(root, 0o700)

	_, _, err = s.PutBytes(t.Context(), []byte("other"), noon)
	assert.ErrorIs(t, err, blob.ErrReadOnly)
	_, _, err = s.Put(t.Context(), bytes.NewReader(make([]byte, 1<<20)), noon)
	assert.ErrorIs(t, err, blob.ErrReadOnly)
	_, err = s.Get(t.Context(), loc.Ref)
	assert.NoError(t, err)
	_, err = blob.OpenDir(root, blob.DirConfig{})
	assert.ErrorIs(t, err, blob.ErrReadOnly)
	_, err = blob.OpenDir(filepath.Join(root, "new"), blob.DirConfig{})
	assert.ErrorIs(t, err, blob.ErrReadOnly)
	openDir(t, root, blob.DirConfig{ReadOnly: true})
	require.NoError(t, os.Chmod(root, 0o700))
	tidy(t, root)
}

// TestUnprivileged runs the tests of this file as a user without capabilities: mode
// 0440 then binds its owner too, and the immutable flag is refused.
func TestUnprivileged(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: the other tests are unprivileged already")
	}
	const nobody = 65534
	home, err := os.MkdirTemp("", "blob-nobody-*")
	require.NoError(t, err)
	defer os.RemoveAll(home)
	require.NoError(t, os.Chown(home, nobody, nobody))
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^(TestDir|TestTwoProcesses|TestStoredForm|TestReadOnlyFolder|TestReadOnlyOpen|TestSweep|TestRecordRemoved)$", "-test.v")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "TMPDIR="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) {
		t.Skipf("NOT TESTED: cannot run as another user: %v", err)
	}
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "--- PASS: TestReadOnlyFolder")
}

func TestFullDisk(t *testing.T) {
	for name, config := range variants {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=512k"); err != nil {
				t.Skipf("NOT TESTED: cannot mount a small file system: %v", err)
			}
			defer unix.Unmount(root, unix.MNT_DETACH)
			config.NoImmutable = true
			s := blobtest.Store(t, openDir(t, root, config))
			small, _, err := s.PutBytes(t.Context(), []byte("report"), noon)
			require.NoError(t, err)

			for range 3 {
				_, _, err = s.PutBytes(t.Context(), make([]byte, 2<<20), noon)
				assert.ErrorIs(t, err, blob.ErrNoSpace)
				_, _, err = s.Put(t.Context(), bytes.NewReader(make([]byte, 2<<20)), noon)
				assert.ErrorIs(t, err, blob.ErrNoSpace)
			}
			listed := 0
			for _, err := range s.List(t.Context(), "") {
				require.NoError(t, err)
				listed++
			}
			assert.Equal(t, 1, listed)
			_, err = s.Get(t.Context(), small.Ref)
			require.NoError(t, err)
			_, _, err = s.PutBytes(t.Context(), make([]byte, 200<<10), noon)
			assert.NoError(t, err, "the space was given back")
			tidy(t, root)
		})
	}
}

// TestFlatMemory counts all allocations of a 64 MiB payload, not the heap left over.
func TestFlatMemory(t *testing.T) {
	const size = blob.DefaultMaxSize
	const budget = 4 << 20
	s := blobtest.Store(t, blobtest.Dir(t))
	var loc blob.Location
	spent := allocated(func() {
		var err error
		loc, _, err = s.Put(t.Context(), io.LimitReader(&counter{}, size), noon)
		require.NoError(t, err)
	})
	assert.Equal(t, int64(size), loc.Size)
	assert.Less(t, spent, uint64(budget), "put")
	spent = allocated(func() {
		r, _, err := s.Open(t.Context(), loc.Ref)
		require.NoError(t, err)
		defer r.Close()
		n, err := io.Copy(io.Discard, r)
		require.NoError(t, err)
		assert.Equal(t, int64(size), n)
	})
	assert.Less(t, spent, uint64(budget), "read")
}

func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// counter is an endless stream that does not repeat.
type counter struct{ n uint64 }

func (c *counter) Read(p []byte) (int, error) {
	p = p[:len(p)&^7]
	for i := 0; i < len(p); i += 8 {
		c.n++
		binary.LittleEndian.PutUint64(p[i:], c.n)
	}
	return len(p), nil
}

const tortureRoot = "HOLDFAST_BLOB_TORTURE"

// TestTorture kills a writing process and then looks for all it had acknowledged.
func TestTorture(t *testing.T) {
	if root := os.Getenv(tortureRoot); root != "" {
		writeForever(t, root)
	}
	if testing.Short() {
		t.Skip("NOT TESTED: -short")
	}
	for name, config := range map[string]blob.DirConfig{"full": {}, "neither": variants["neither"]} {
		t.Run(name, func(t *testing.T) {
			root := folder(t)
			acknowledged := map[string]bool{}
			for range 3 {
				tortureRound(t, root, name, acknowledged)
				s := blobtest.Store(t, openDir(t, root, config))
				for name := range acknowledged {
					d, err := chain.ParseDigest(name)
					require.NoError(t, err)
					findings, err := s.Check(t.Context(), blob.Location{Ref: blob.Ref{Digest: d, Version: blob.DirVersion}, RetainUntil: blob.AddMonths(noon, 18)})
					require.NoError(t, err)
					require.Empty(t, findings)
				}
				for loc, err := range s.List(t.Context(), "") {
					require.NoError(t, err)
					_, err = s.Get(t.Context(), loc.Ref)
					require.NoError(t, err, "unacknowledged bytes are whole too")
				}
			}
			t.Logf("%d acknowledged, none missing or damaged", len(acknowledged))
			require.NotEmpty(t, acknowledged)
			for _, e := range must(os.ReadDir(root)) {
				assert.False(t, strings.HasPrefix(e.Name(), "."), "litter: %s", e.Name())
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func tortureRound(t *testing.T, root, variant string, acknowledged map[string]bool) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestTorture$")
	cmd.Env = append(os.Environ(), tortureRoot+"="+root, tortureRoot+"_VARIANT="+variant,
		fmt.Sprintf("%s_START=%d", tortureRoot, len(acknowledged)))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(time.Second, func() { cmd.Process.Kill() })
	defer kill.Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if len(lines.Text()) == 64 {
			acknowledged[lines.Text()] = true
		}
	}
	assert.Error(t, cmd.Wait(), "it was killed")
}

// writeForever puts small and large payloads and prints what was acknowledged.
func writeForever(t *testing.T, root string) {
	s := blobtest.Store(t, openDir(t, root, variants[os.Getenv(tortureRoot+"_VARIANT")]))
	start := os.Getenv(tortureRoot + "_START")
	var out sync.Mutex
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for n := 0; ; n++ {
				size := 500 + n*17%3000
				if n%16 == 15 {
					size = 400 << 10
				}
				text := fmt.Appendf(nil, "%s/%d/%d ", start, i/2, n) // writers in pairs: same bytes
				loc, _, err := s.Put(context.Background(), bytes.NewReader(bytes.Repeat(text, size/len(text))), noon)
				if err != nil {
					panic(err)
				}
				out.Lock()
				fmt.Println(loc.Digest)
				out.Unlock()
			}
		})
	}
	group.Wait()
}

// TestOrderOfSyncs reads the system calls of two Puts of the same bytes by different
// processes: what must be on disk before the name, and what before either
// acknowledgement. A killed process cannot show it.
func TestOrderOfSyncs(t *testing.T) {
	if root := os.Getenv(tortureRoot + "_ONE"); root != "" {
		s := blobtest.Store(t, openDir(t, root, blob.DirConfig{NoImmutable: true}))
		_, _, err := s.PutBytes(t.Context(), []byte("report"), noon)
		require.NoError(t, err)
		fmt.Println("acknowledged")
		return
	}
	root := folder(t)
	path := pathOf(root, chain.Sum([]byte("report")))
	leaf := filepath.Dir(path)
	folders := []string{"fsync(", leaf + ">", "fsync(", filepath.Dir(leaf) + ">", "fsync(", root + ">", "acknowledged"}
	inOrder(t, traced(t, root), append([]string{
		`, "report", 6)`, `"user.holdfast.retention", "until=2027-11-01T12:00:00Z hold=0"`,
		"fsync(", "linkat(", path}, folders...))
	inOrder(t, traced(t, root), append([]string{"fsync(", path + ">"}, folders...))
}

// traced runs the test above on root in a process of its own.
func traced(t *testing.T, root string) string {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("NOT TESTED: no strace")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-s", "200",
		"-e", "trace=fsync,linkat,write,fsetxattr", self, "-test.run=^TestOrderOfSyncs$")
	cmd.Env = append(os.Environ(), tortureRoot+"_ONE="+root)
	out, err := cmd.CombinedOutput()
	if err != nil && !bytes.Contains(out, []byte("fsync(")) {
		t.Skipf("NOT TESTED: strace does not work here: %v", err)
	}
	require.NoError(t, err, "%s", out)
	return string(out)
}

func inOrder(t *testing.T, trace string, steps []string) {
	t.Helper()
	rest := trace
	for _, step := range steps {
		var found bool
		_, rest, found = strings.Cut(rest, step)
		require.True(t, found, "no %q where it belongs, in\n%s", step, trace)
	}
}

// Threads are scarcer than goroutines, and a program that has 10,000 of them dies: thousands of writers must not
// hold one each while they wait, neither for the same file nor for the disk.
func TestDirManyWritersFewThreads(t *testing.T) {
	for name, body := range map[string]func(int) string{
		"the same bytes": func(int) string { return "payload" },
		"other bytes":    func(i int) string { return fmt.Sprint("payload ", i) },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := blob.NewStore(openDir(t, folder(t), blob.DirConfig{NoImmutable: true}), blob.Config{})
			require.NoError(t, err)
			before := threads(t)
			var all sync.WaitGroup
			for i := range 3000 {
				all.Go(func() {
					_, _, err := s.Put(t.Context(), strings.NewReader(body(i)), noon)
					assert.NoError(t, err)
				})
			}
			all.Wait()
			assert.Less(t, threads(t)-before, 200, "the runtime keeps a thread once it has made it")
		})
	}
}

func threads(t testing.TB) int {
	tasks, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	return len(tasks)
}
