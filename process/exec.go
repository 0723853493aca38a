package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// ExecConfig is which program works on payloads, and how it is kept in bounds.
type ExecConfig struct {
	Command  []string // an absolute path or a name in PATH, and arguments
	Launcher []string // this program, so that it calls [Launch] with what follows
	Env      []string // beside the metadata: NAME=value
	Stage    chain.Stage
	Limits   Limits
}

// Exec is the processor that runs a program for each payload.
//
// The payload comes on its standard input. Its environment is PATH, HOME=/nonexistent, LANG, what is configured, and
// HOLDFAST_PAYLOAD_REF, HOLDFAST_CHANNEL, HOLDFAST_SOURCE, HOLDFAST_STAGE (of the last failure), HOLDFAST_ATTEMPT,
// HOLDFAST_CONTENT_TYPE and HOLDFAST_CONTENT_ENCODING. It ends with 0 and one JSON object, the record, on its
// standard output (nothing at all makes the record a delivery note), with 65 (EX_DATAERR) if the payload is at fault,
// or with 75 (EX_TEMPFAIL) if another try may help; other codes count as 65. Its standard error is the error text.
// A program that dies of a signal or breaks a limit has crashed on this payload. Whatever it started ends with it.
type Exec struct{ cfg ExecConfig }

// NewExec checks the configuration. The error is a *chain.FieldError that names the member.
func NewExec(cfg ExecConfig) (*Exec, error) {
	cfg.Limits = cfg.Limits.resolved()
	if cfg.Stage == "" {
		cfg.Stage = chain.StageParse
	}
	if !cfg.Stage.Valid() {
		return nil, &chain.FieldError{Field: "stage", Rule: "must be ingest, validate, parse, normalize or dispatch"}
	}
	if len(cfg.Command) == 0 {
		return nil, &chain.FieldError{Field: "command", Rule: "must name a program"}
	}
	path, err := exec.LookPath(cfg.Command[0])
	if err != nil {
		return nil, &chain.FieldError{Field: "command", Rule: "must begin with a program that can be run"}
	}
	cfg.Command = append([]string{path}, cfg.Command[1:]...)
	return &Exec{cfg}, nil
}

const (
	execRules  = "exec-1"
	maxStderr  = 1 << 20         // bytes of error text
	lingerFor  = 2 * time.Second // of a program that was asked to end, and of pipes that its children hold
	codeOutput = "bad_output"    // of the stage: the program said that all is well, and gave no record
)

// Codes are those that processors give beside the built-in one, for senders that know them.
func Codes() (codes []string) {
	for _, stage := range chain.Stages {
		codes = append(codes, string(stage)+"."+codeOutput)
	}
	return codes
}

// Process runs the program once. An error is not the payload's doing: the program could not be started, or ctx ended.
func (e *Exec) Process(ctx context.Context, job deadletter.Job, payload []byte) (Result, error) {
	// The program is to die with the service, which Linux takes to be the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	run := e.command(job, payload)
	late, err := run.do(ctx, e.cfg.Limits.Wall)
	switch {
	case err != nil:
		return Result{}, err
	case late:
		return e.crashed(run, "limit:wall"), nil
	case run.out.full:
		return e.crashed(run, "limit:output"), nil
	case run.cmd.ProcessState.ExitCode() < 0:
		return e.crashed(run, evidence(run.cmd.ProcessState)), nil
	case run.cmd.ProcessState.ExitCode() > 0:
		return broken(deadletter.Breakdown{Stage: e.cfg.Stage, Rules: execRules, Message: run.stderr.text(),
			Signal: deadletter.Signal{Type: "exit:" + strconv.Itoa(run.cmd.ProcessState.ExitCode())}}), nil
	}
	c, err := Delivered(job.Letter, "", "", run.out.data.Bytes())
	if err != nil {
		return broken(deadletter.Breakdown{Stage: e.cfg.Stage, Code: string(e.cfg.Stage) + "." + codeOutput, Rules: execRules,
			Summary: "the program ended well, and its output is not one JSON object"}), nil
	}
	c.Rules = execRules
	return Result{Completion: c}, nil
}

func (e *Exec) crashed(run *program, evidence string) Result {
	return broken(deadletter.Breakdown{Stage: e.cfg.Stage, Crash: evidence, Rules: execRules, Message: run.stderr.text()})
}

// program is a program on its way.
type program struct {
	cmd    *exec.Cmd
	out    capped
	stderr capped
}

func (e *Exec) command(job deadletter.Job, payload []byte) *program {
	l := &e.cfg.Limits
	args := append(append([]string{}, e.cfg.Launcher[1:]...), strconv.FormatInt(l.Memory, 10), strconv.FormatInt(int64(l.CPU/time.Second), 10))
	run := &program{cmd: exec.Command(e.cfg.Launcher[0], append(args, e.cfg.Command...)...)}
	run.out.most, run.stderr.most, run.stderr.forgiving = l.Output, maxStderr, true
	run.cmd.Stdin, run.cmd.Stdout, run.cmd.Stderr = bytes.NewReader(payload), &run.out, &run.stderr
	run.cmd.Dir, run.cmd.Env = "/", append(metadata(job.Letter), e.cfg.Env...)
	run.cmd.SysProcAttr = ownGroup()
	run.cmd.WaitDelay = lingerFor
	return run
}

func metadata(l chain.Letter) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LANG=C.UTF-8", "HOLDFAST_PAYLOAD_REF=" + l.Ref.String(),
		"HOLDFAST_CHANNEL=" + string(l.Channel), "HOLDFAST_SOURCE=" + l.Source,
		"HOLDFAST_CONTENT_TYPE=" + l.ContentType, "HOLDFAST_CONTENT_ENCODING=" + l.ContentEncoding}
	if l.Lease != nil {
		env = append(env, "HOLDFAST_ATTEMPT="+strconv.FormatUint(l.Lease.Attempt, 10))
	}
	if l.Failure != nil {
		env = append(env, "HOLDFAST_STAGE="+string(l.Failure.Stage))
	}
	return env
}

// errLaunch is why a program did not run.
var errLaunch = errors.New("the program of an exec processor cannot be started")

// do runs the program to its end, for wall at most, and tells whether that was too short.
func (run *program) do(ctx context.Context, wall time.Duration) (late bool, err error) {
	started, w, err := os.Pipe()
	if err != nil {
		return false, errLaunch
	}
	defer started.Close()
	run.cmd.ExtraFiles = []*os.File{w}
	run.out.exceeded = func() { _ = syscall.Kill(-run.cmd.Process.Pid, syscall.SIGKILL) }
	err = run.cmd.Start()
	w.Close()
	if err != nil {
		return false, errLaunch
	}
	group := -run.cmd.Process.Pid
	var timedOut atomic.Bool
	timer := time.AfterFunc(wall, func() {
		timedOut.Store(true)
		_ = syscall.Kill(group, syscall.SIGKILL)
	})
	stopped := context.AfterFunc(ctx, func() { // a chance to clean up
		_ = syscall.Kill(group, syscall.SIGTERM)
		time.AfterFunc(lingerFor, func() { _ = run.cmd.Process.Kill() })
	})
	_ = run.cmd.Wait() // ProcessState tells
	timer.Stop()
	stopped()
	_ = syscall.Kill(group, syscall.SIGKILL) // what it left behind
	if no, _ := io.ReadAll(started); len(no) > 0 {
		return false, errLaunch
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return timedOut.Load(), nil
}

// capped keeps at most so many bytes; more are dropped by one that is forgiving, and refused by another.
type capped struct {
	data      bytes.Buffer
	most      int64
	forgiving bool
	full      bool
	exceeded  func()
}

func (c *capped) Write(p []byte) (int, error) {
	room := c.most - int64(c.data.Len())
	c.data.Write(p[:min(int64(len(p)), room)])
	if int64(len(p)) > room && !c.forgiving {
		c.full = true
		c.exceeded()
		return 0, errOutput
	}
	return len(p), nil
}

func (c *capped) text() string { return strings.ToValidUTF8(c.data.String(), "\uFFFD") }
