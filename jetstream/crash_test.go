package jetstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dvir/holdfast/chain"
)

// childEnv makes the test binary play a part of its own.
const childEnv = "HOLDFAST_JETSTREAM_CHILD"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(m.Run())
	case "lock":
		if _, err = Open(context.Background(), Config{Dir: os.Getenv("DIR")}); errors.Is(err, ErrLocked) {
			os.Exit(0)
		}
		err = fmt.Errorf("opened a folder in use: %w", err)
	case "write":
		err = writeForever(os.Getenv("DIR"))
	case "full":
		err = fillDisk(os.Getenv("DIR"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// writeForever appends blocks and prints the position of each when it is acknowledged.
func writeForever(dir string) error {
	ctx := context.Background()
	l, err := Open(ctx, Config{Dir: dir})
	if err != nil {
		return err
	}
	at, err := l.End(ctx)
	for err == nil {
		text := strconv.FormatUint(uint64(at)+1, 10)
		if at, err = l.Append(ctx, at, lines(text, text)); err == nil {
			fmt.Println(at)
		}
	}
	return err
}

// TestKill: what was acknowledged before kill -9 is there, in order.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	acknowledged := uint64(0)
	for round := range 3 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childEnv+"=write", "DIR="+dir)
		child.Stderr = os.Stderr
		child.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		scanner := bufio.NewScanner(out)
		for n := 0; scanner.Scan(); n++ {
			acknowledged, err = strconv.ParseUint(scanner.Text(), 10, 64)
			require.NoError(t, err)
			if n == 40+17*round {
				require.NoError(t, child.Process.Kill())
			}
		}
		_ = child.Wait()

		l := open(t, Config{Dir: dir})
		texts := content(t, l)
		require.GreaterOrEqual(t, uint64(len(texts)), acknowledged)
		require.LessOrEqual(t, uint64(len(texts)), acknowledged+1, "at most the one in flight")
		for i, text := range texts {
			require.Equal(t, fmt.Sprintf("%d|%d", i+1, i+1), text)
		}
		require.NoError(t, l.Close())
	}
	require.Positive(t, acknowledged)
}

// fillDisk appends until the operating system refuses to write, then expects the truth about it.
func fillDisk(dir string) error {
	signal.Ignore(unix.SIGXFSZ)
	l, err := Open(context.Background(), Config{Dir: dir})
	if err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	line := [][]byte{bytes.Repeat([]byte("x"), 100<<10)}
	at := chain.Position(0)
	for err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		if at, err = l.Append(ctx, at, line); err == nil {
			fmt.Println(at)
		}
		cancel()
	}
	if !errors.Is(err, chain.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("append on a full disk: %w", err)
	}
	if l.Healthy(context.Background()) == nil {
		return errors.New("the log calls itself healthy on a full disk")
	}
	return nil
}

func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=full", "DIR="+dir)
	var complaint bytes.Buffer
	child.Stderr = &complaint
	out, err := child.Output()
	require.NoError(t, err, complaint.String())
	stored := bytes.Count(out, []byte("\n"))
	require.Positive(t, stored)
	l := open(t, Config{Dir: dir})
	require.Len(t, content(t, l), stored, "with room again, the log is what was acknowledged")
	fresh, err := l.Append(t.Context(), end(t, l), lines("goes on"))
	require.NoError(t, err)
	require.EqualValues(t, stored+1, fresh)
}
