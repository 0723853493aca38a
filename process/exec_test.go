package process_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/process"
)

// leased is a letter at its second attempt.
func leased(payload []byte) deadletter.Job {
	return deadletter.Job{Letter: chain.Letter{Ref: chain.Sum(payload), Channel: chain.MobileExport, Source: "phone-7",
		ContentType: "application/json", Lease: &chain.Lease{Attempt: 2},
		Failure: &chain.Envelope{Stage: chain.StageNormalize}}}
}

// sh runs a shell script as an exec processor.
func sh(t *testing.T, script string, limits process.Limits) *process.Exec {
	t.Helper()
	e, err := process.NewExec(process.ExecConfig{Command: []string{"sh", "-c", script}, Launcher: self("launch"),
		Env: []string{"GREETING=hello"}, Stage: chain.StageParse, Limits: limits})
	require.NoError(t, err)
	return e
}

// TestExec is the table of how programs end.
func TestExec(t *testing.T) {
	payload := []byte("a\x00b\xff\r\n")
	for name, test := range map[string]struct {
		script string
		want   process.Result
	}{
		"a record":         {`cat >/dev/null; echo '{"ok":true}'`, completed(payload, "{\"ok\":true}\n")},
		"stdin not read":   {`echo '{"ok":true}'`, completed(payload, "{\"ok\":true}\n")},
		"nothing said":     {`cat >/dev/null`, completed(payload, `{"delivered":"`+chain.Sum(payload).String()+`"}`)},
		"no record":        {`echo hello`, failed(deadletter.Breakdown{Code: "parse.bad_output", Summary: "the program ended well, and its output is not one JSON object"})},
		"at fault":         {`echo no >&2; exit 65`, failed(deadletter.Breakdown{Signal: deadletter.Signal{Type: "exit:65"}, Message: "no\n"})},
		"for now":          {`exit 75`, failed(deadletter.Breakdown{Signal: deadletter.Signal{Type: "exit:75"}})},
		"otherwise":        {`exit 3`, failed(deadletter.Breakdown{Signal: deadletter.Signal{Type: "exit:3"}})},
		"a signal":         {`echo where >&2; kill -SEGV $$`, failed(deadletter.Breakdown{Crash: "signal:SIGSEGV", Message: "where\n"})},
		"too long":         {`sleep 60 & wait`, failed(deadletter.Breakdown{Crash: "limit:wall"})},
		"too busy":         {`while :; do :; done`, failed(deadletter.Breakdown{Crash: "limit:cpu"})},
		"too much":         {`cat /dev/zero`, failed(deadletter.Breakdown{Crash: "limit:output"})},
		"what it knows":    {environment, completed(payload, "{\"env\":\"mobile_export phone-7 normalize 2 application/json hello /nonexistent /\"}\n")},
		"nothing of ours":  {`test -z "$HOLDFAST_TEST_SECRET" && echo '{}'`, completed(payload, "{}\n")},
		"more complaints":  {`head -c 3000000 /dev/zero >&2; exit 65`, failed(deadletter.Breakdown{Signal: deadletter.Signal{Type: "exit:65"}, Message: strings.Repeat("\x00", 1<<20)})},
		"a pipe left open": {`sleep 60 & echo '{}'`, completed(payload, "{}\n")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOLDFAST_TEST_SECRET", "hunter2")
			limits := process.Limits{CPU: time.Second, Output: 1 << 20}
			if name == "too long" {
				limits.Wall = 300 * time.Millisecond
			}
			got, err := sh(t, test.script, limits).Process(t.Context(), leased(payload), payload)
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

const environment = `echo "{\"env\":\"$HOLDFAST_CHANNEL $HOLDFAST_SOURCE $HOLDFAST_STAGE $HOLDFAST_ATTEMPT $HOLDFAST_CONTENT_TYPE $GREETING $HOME $PWD\"}"`

func completed(payload []byte, record string) process.Result {
	c := &deadletter.Completion{Outcome: chain.Admit, Rules: "exec-1", Record: []byte(record), Content: chain.Sum([]byte(record))}
	return process.Result{Completion: c}
}

func failed(b deadletter.Breakdown) process.Result {
	b.Stage, b.Rules = chain.StageParse, "exec-1"
	return process.Result{Breakdown: &b}
}

// TestExecBytes: the program gets the payload byte for byte.
func TestExecBytes(t *testing.T) {
	for _, payload := range []string{"", "\ufeff{}", "a\r\nb", "\xff\x00\xfe", `{"id":1970670598291982290,"id":1.0}`, strings.Repeat("x", 3<<20)} {
		got, err := sh(t, `printf '{"sum":"%s"}' $(sha256sum | cut -d' ' -f1)`, process.Limits{}).Process(t.Context(), leased(nil), []byte(payload))
		require.NoError(t, err)
		require.NotNil(t, got.Completion)
		assert.Equal(t, `{"sum":"`+chain.Sum([]byte(payload)).String()+`"}`, string(got.Completion.Record))
	}
}

// TestExecMemory: a program cannot take more than its limit; how it ends then is its own.
func TestExecMemory(t *testing.T) {
	got, err := sh(t, `v=x; while :; do v=$v$v; done`, process.Limits{Memory: 64 << 20}).Process(t.Context(), leased(nil), nil)
	require.NoError(t, err)
	require.NotNil(t, got.Breakdown)
	assert.True(t, got.Breakdown.Crash != "" || got.Breakdown.Signal.Type != "")
}

// TestExecStops: a service that stops asks the program to end, and nothing is the payload's fault; nothing goes on.
func TestExecStops(t *testing.T) {
	dir := t.TempDir()
	asked, left := filepath.Join(dir, "asked"), filepath.Join(dir, "left")
	script := `trap 'touch ` + asked + `; exit 65' TERM; sleep 60 & echo $! >` + left + `; wait`
	why := errors.New("stopping")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for {
			if text, err := os.ReadFile(left); err == nil && len(text) > 0 {
				cancel(why)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	got, err := sh(t, script, process.Limits{}).Process(ctx, leased(nil), nil)
	assert.ErrorIs(t, err, why)
	assert.Equal(t, process.Result{}, got)
	assert.FileExists(t, asked)
	text, err := os.ReadFile(left)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	assert.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) }, patience, time.Millisecond)
}

// zombie tells of a process that has ended and that nobody has waited for.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// TestExecNotStarted: a program that is gone is a fault of ours, and its path is not told.
func TestExecNotStarted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700))
	e, err := process.NewExec(process.ExecConfig{Command: []string{path}, Launcher: self("launch")})
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	_, err = e.Process(t.Context(), leased(nil), nil)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), path)

	_, err = process.NewExec(process.ExecConfig{Command: []string{path}})
	var wrong *chain.FieldError
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, "command", wrong.Field)
}
