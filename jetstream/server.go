package jetstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"
)

const lockName = "holdfast.lock"

// lock takes the folder for this process until the file is closed; the server itself does not look whether
// another one works on the same files, and two of them acknowledge different blocks at one position.
// The lock goes with the process, however it ends.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		var pid [20]byte
		n, _ := f.ReadAt(pid[:], 0)
		f.Close()
		holder, _ := strconv.Atoi(strings.TrimSpace(string(pid[:n])))
		return nil, &LockedError{Dir: dir, PID: holder}
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// streamFolder is the folder in which the server keeps a stream.
func streamFolder(dir, stream string) string {
	return filepath.Join(dir, server.JetStreamStoreDir, server.DEFAULT_GLOBAL_ACCOUNT, "streams", stream)
}

// blocks are the server's block files of a stream; the newest is the one with the highest number.
func blocks(dir, stream string) ([]string, error) {
	return filepath.Glob(filepath.Join(streamFolder(dir, stream), "msgs", "*.blk"))
}

// holdsBlocks tells whether anything was ever written to the stream's block files.
func holdsBlocks(dir, stream string) (bool, error) {
	files, err := blocks(dir, stream)
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return false, err
		}
		if info.Size() > 0 {
			return true, nil
		}
	}
	return false, err
}

// syncFiles makes durable what the last process wrote but may not have synced: the newest two block files, and
// every folder, which the server never syncs when it adds a file.
func syncFiles(dir, stream string) error {
	files, err := blocks(dir, stream)
	if err != nil {
		return err
	}
	newest := [2]int{-1, -1}
	for _, file := range files {
		n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".blk"))
		if err == nil && n > newest[0] {
			newest = [2]int{n, newest[0]}
		} else if err == nil && n > newest[1] {
			newest[1] = n
		}
	}
	for _, file := range files {
		base := filepath.Base(file)
		if base == fmt.Sprint(newest[0], ".blk") || base == fmt.Sprint(newest[1], ".blk") {
			if err := syncPath(file); err != nil {
				return err
			}
		}
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = syncPath(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the server tidied it away meanwhile
		}
		return err
	})
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// embed starts a server on the folder that nobody but this process can reach.
func embed(ctx context.Context, dir string, logger *slog.Logger) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{
		ServerName:         "holdfast",
		DontListen:         true,
		NoSigs:             true,
		JetStream:          true,
		StoreDir:           dir,
		SyncAlways:         true,
		JetStreamMaxStore:  1 << 50, // the disk is the limit
		JetStreamMaxMemory: 64 << 20,
		MaxPayload:         1 << 20,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the server: %w", err)
	}
	voice := &voice{logger: logger}
	s.SetLoggerV2(voice, false, false, false)
	s.Start()
	patience := 30 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	if !voice.dead.Load() && s.ReadyForConnections(patience) && s.JetStreamEnabled() {
		return s, nil
	}
	stop(s)
	why := "it did not become ready"
	if last := voice.last.Load(); last != nil {
		why = *last
	}
	return nil, fmt.Errorf("start the server on %s: %s", dir, why)
}

func stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// voice hands what the server reports to the operator's log, and keeps the last complaint: the server has no
// other way to tell that it did not start, and why.
type voice struct {
	logger *slog.Logger
	last   atomic.Pointer[string]
	dead   atomic.Bool
}

func (v *voice) complain(level slog.Level, format string, args []any) {
	text := fmt.Sprintf(format, args...)
	v.last.Store(&text)
	if v.logger != nil {
		v.logger.Log(context.Background(), level, "nats-server", slog.String("report", text))
	}
}

// Fatalf is called for what keeps the server from starting; it goes on to return from Start.
func (v *voice) Fatalf(format string, args ...any) {
	v.complain(slog.LevelError, format, args)
	v.dead.Store(true)
}

func (v *voice) Warnf(format string, args ...any)  { v.complain(slog.LevelWarn, format, args) }
func (v *voice) Errorf(format string, args ...any) { v.complain(slog.LevelError, format, args) }
func (v *voice) Noticef(string, ...any)            {}
func (v *voice) Debugf(string, ...any)             {}
func (v *voice) Tracef(string, ...any)             {}
