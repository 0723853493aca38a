package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob/blobtest"
)

// TestScripts tells stories of the command line: script/*.txtar. Besides the commands of testscript they have
//
//	serve [flags]        start the service on ./data, and set HOLDFAST_SERVER and HOLDFAST_DATA
//	unserve              end it as an operator would
//	crash                end it as a power switch would
//	exits CODE PROGRAM   run a program that must end with this exit code
//	let NAME MEMBER      set a variable from a member of the JSON object on the first line of stdout
//	bucket               start a MinIO server, and set ENDPOINT, BUCKET and CREDENTIALS for a new bucket; [minio] tells
//	                     whether that server is built
//	members NAME...      the JSON object on the first line of stdout has these members and no others
func TestScripts(t *testing.T) {
	path, err := binary()
	require.NoError(t, err)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{
		Dir: "script", RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(path)+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("CORPUS", filepath.Join(root, "testdata", "corpus"))
			e.Setenv("ROOT", root)
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			return os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o700)
		},
		Condition: func(name string) (bool, error) {
			if name != "minio" {
				return false, fmt.Errorf("unknown condition %s", name)
			}
			_, err := os.Stat(filepath.Join(root, ".tools", "bin", name))
			return err == nil, nil
		},
		Cmds: (&scripts{t: t, running: map[string]*server{}}).commands(),
	})
}

// scripts holds the services of scripts that run at the same time.
type scripts struct {
	t       *testing.T
	mu      sync.Mutex
	running map[string]*server // by script
}

func (s *scripts) commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"serve": s.serve, "unserve": s.unserve, "crash": s.crash, "exits": exits, "let": let, "members": members,
		"bucket": s.bucket,
	}
}

func (s *scripts) serve(ts *testscript.TestScript, _ bool, args []string) {
	data := ts.MkAbs("data")
	running, err := tryServe(s.t, data, args...)
	ts.Check(err)
	ts.Defer(running.kill)
	ts.Setenv("HOLDFAST_SERVER", running.url)
	ts.Setenv("HOLDFAST_DATA", data)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[ts.Name()] = running
}

func (s *scripts) of(ts *testscript.TestScript) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[ts.Name()] == nil {
		ts.Fatalf("serve first")
	}
	return s.running[ts.Name()]
}

func (s *scripts) unserve(ts *testscript.TestScript, _ bool, _ []string) {
	running := s.of(ts)
	ts.Check(running.cmd.Process.Signal(os.Interrupt))
	<-running.ended
	if code := running.cmd.ProcessState.ExitCode(); code != 0 {
		ts.Fatalf("serve ended with %d:\n%s", code, running.log)
	}
}

func (s *scripts) crash(ts *testscript.TestScript, _ bool, _ []string) { s.of(ts).kill() }

func (s *scripts) bucket(ts *testscript.TestScript, _ bool, _ []string) {
	minio := blobtest.MinIO(s.t)
	flags := blobtest.Flags(s.t, minio.Config(minio.NewBucket(s.t)))
	ts.Setenv("ENDPOINT", flags[1])
	ts.Setenv("BUCKET", flags[3])
	ts.Setenv("CREDENTIALS", flags[5])
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGUMENT...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// object is the JSON object on the first line of stdout.
func object(ts *testscript.TestScript) (o map[string]any) {
	line, _, _ := strings.Cut(ts.ReadFile("stdout"), "\n")
	ts.Check(json.Unmarshal([]byte(line), &o))
	return o
}

func let(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: let NAME MEMBER")
	}
	v, ok := object(ts)[args[1]]
	if !ok {
		ts.Fatalf("no member %s", args[1])
	}
	ts.Setenv(args[0], fmt.Sprint(v))
}

func members(ts *testscript.TestScript, _ bool, args []string) {
	have := slices.Sorted(maps.Keys(object(ts)))
	if slices.Sort(args); !slices.Equal(have, args) {
		ts.Fatalf("members are %v", have)
	}
}
