package process

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-dvir/holdfast/dvir"
)

// Limits bound what one payload may cost the process that works on it.
type Limits struct {
	Memory int64         // bytes of data (RLIMIT_DATA); 0 is 512 MiB
	CPU    time.Duration // of processor time, in whole seconds; 0 is 10 seconds
	Wall   time.Duration // 0 is 30 seconds
	Output int64         // bytes; 0 is 16 MiB
}

func (l Limits) resolved() Limits {
	if l.Memory == 0 {
		l.Memory = 512 << 20
	}
	if l.CPU == 0 {
		l.CPU = 10 * time.Second
	}
	if l.Wall == 0 {
		l.Wall = 30 * time.Second
	}
	if l.Output == 0 {
		l.Output = 16 << 20
	}
	return l
}

// Crash is the end of a process that worked on one payload and on nothing else.
type Crash struct {
	// Evidence is what ended it: limit:memory, limit:cpu, limit:wall, limit:output, signal:SIGSEGV, exit:3,
	// panic or stack_overflow.
	Evidence string
	Message  string // what it wrote to its standard error; it may hold payload content
}

// Children judge payloads by the rules of package dvir, each in a process of its own that works on one payload at a
// time, so that a payload that brings its process down harms no other one. Processes are started when they are wanted
// and kept for the next payload. It is safe for concurrent use.
type Children struct {
	command []string
	hello   hello

	mu     sync.Mutex
	idle   []*child
	closed bool
}

// NewChildren prepares children that command starts: this program, so that it calls [ServeChild].
func NewChildren(command []string, rules dvir.Config, limits Limits) *Children {
	return &Children{command: command, hello: hello{rules, limits.resolved()}}
}

// What goes over a child's standard input and output, as gob: a hello, then for each payload a task, answered by
// began, any number of questions, each answered, and a result.
type (
	hello struct {
		Rules  dvir.Config
		Limits Limits
	}
	down struct {
		Task    *dvir.Input
		Reading dvir.Reading
		Known   bool
	}
	up struct {
		Began  bool
		Asks   bool
		Unit   string
		Result *dvir.Result
	}
)

const (
	fewest   = 3       // starts of a child, before it is given up to bring one up
	retireAt = 20_000  // payloads
	retireOn = 4 << 20 // bytes of payload, after which a child is larger than it need be
	stderrAt = 8 << 10 // bytes of a child's standard error that are kept
)

// Judge has a child judge in. A crash is that of this payload: its child had taken it and did nothing else. An error
// is not the payload's doing; it is that of ctx if ctx is done.
func (c *Children) Judge(ctx context.Context, in dvir.Input, past dvir.History) (dvir.Result, *Crash, error) {
	var err error
	for range fewest {
		var p *child
		if p, err = c.take(); err != nil {
			break
		}
		r, crash, failed := p.judge(ctx, in, past, c.hello.Limits)
		if failed == nil && crash == nil && p.tasks < retireAt && len(in.Data) < retireOn {
			c.give(p)
		} else {
			p.end()
		}
		if err = failed; err == nil || ctx.Err() != nil {
			return r, crash, err
		}
	}
	return dvir.Result{}, nil, err
}

// Close ends the children that wait for work. Those that work end with it.
func (c *Children) Close() {
	c.mu.Lock()
	idle := c.idle
	c.idle, c.closed = nil, true
	c.mu.Unlock()
	for _, p := range idle {
		p.end()
	}
}

// take is a child that waits, the one that did last, or a new one.
func (c *Children) take() (*child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := len(c.idle); n > 0; n = len(c.idle) {
		p := c.idle[n-1]
		c.idle = c.idle[:n-1]
		select {
		case <-p.ended: // idle: nobody's doing
		default:
			return p, nil
		}
	}
	return startChild(c.command, c.hello)
}

func (c *Children) give(p *child) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		go p.end()
		return
	}
	c.idle = append(c.idle, p)
}

// child is one process.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *budget
	tell   *gob.Encoder
	hear   *gob.Decoder
	stderr head
	tasks  int
	ended  chan struct{} // closed once the process has been waited for
}

// startChild starts a process that knows its rules and limits. It gets nothing of this process's environment: there
// are credentials in it.
func startChild(command []string, h hello) (*child, error) {
	p := &child{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	p.cmd.Env = []string{"GOTRACEBACK=single", "GOMAXPROCS=2"}
	p.cmd.Dir = "/"
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // signals of a terminal are for the service
	p.cmd.Stderr = &p.stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, notStarted(err)
	}
	out, w, err := os.Pipe() // not StdoutPipe: Wait would close it while it is read
	if err != nil {
		return nil, errors.Join(notStarted(err), in.Close())
	}
	p.cmd.Stdout = w
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		return nil, errors.Join(notStarted(err), in.Close(), out.Close())
	}
	p.in, p.out = in, &budget{r: out, left: h.Limits.Output}
	p.tell, p.hear = gob.NewEncoder(in), gob.NewDecoder(p.out)
	go func() {
		_ = p.cmd.Wait() // ProcessState tells
		close(p.ended)
	}()
	if err := p.tell.Encode(h); err != nil {
		p.end()
		return nil, notStarted(err)
	}
	return p, nil
}

var errChild = errors.New("a process for the built-in processor cannot be started, or ended before it had work")

// notStarted keeps of err what cannot quote anything.
func notStarted(err error) error {
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return fmt.Errorf("%w: %w", errChild, no)
	}
	return errChild
}

// end makes the process end, and waits for it.
func (p *child) end() {
	p.in.Close()
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
	p.out.r.Close()
}

// judge gives the process one payload. An error without a crash tells that the process had not taken it.
func (p *child) judge(ctx context.Context, in dvir.Input, past dvir.History, limits Limits) (dvir.Result, *Crash, error) {
	var late atomic.Bool
	wall := time.AfterFunc(limits.Wall, func() {
		late.Store(true)
		_ = p.cmd.Process.Kill()
	})
	defer wall.Stop()
	defer context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })()
	p.out.left = limits.Output
	p.tasks++
	r, began, err := p.converse(in, past)
	switch {
	case err == nil:
		return r, nil, nil
	case ctx.Err() != nil:
		return dvir.Result{}, nil, context.Cause(ctx)
	case !began && !late.Load():
		return dvir.Result{}, nil, errChild
	}
	if p.out.left <= 0 {
		_ = p.cmd.Process.Kill()
	}
	<-p.ended // it has closed its output, or was killed
	return dvir.Result{}, p.crash(late.Load()), nil
}

// converse gives the payload and answers questions until the result comes.
func (p *child) converse(in dvir.Input, past dvir.History) (r dvir.Result, began bool, err error) {
	if err := p.tell.Encode(down{Task: &in}); err != nil {
		return r, false, err
	}
	for {
		var said up
		if err := p.hear.Decode(&said); err != nil {
			return r, began, err
		}
		switch {
		case said.Began:
			began = true
		case said.Asks:
			var answer down
			answer.Reading, answer.Known = past.LastReading(said.Unit)
			if err := p.tell.Encode(answer); err != nil {
				return r, began, err
			}
		case said.Result != nil:
			return *said.Result, began, nil
		}
	}
}

// crash is what ended the process.
func (p *child) crash(late bool) *Crash {
	said := p.stderr.String()
	c := &Crash{Evidence: evidence(p.cmd.ProcessState), Message: said}
	switch {
	case late:
		c.Evidence = "limit:wall"
	case p.out.left <= 0:
		c.Evidence = "limit:output"
	case p.cmd.ProcessState.ExitCode() == exitCPU:
		c.Evidence = "limit:cpu"
	case p.cmd.ProcessState.ExitCode() != goFatal:
	case strings.Contains(said, "out of memory"), strings.Contains(said, "cannot allocate memory"):
		c.Evidence = "limit:memory"
	case strings.Contains(said, "stack overflow"):
		c.Evidence = "stack_overflow"
	case strings.HasPrefix(said, "panic: "):
		c.Evidence = "panic"
	case strings.Contains(said, "SIGSEGV"):
		c.Evidence = "signal:SIGSEGV"
	}
	return c
}

// evidence names the end of a process by its signal or exit code.
func evidence(s *os.ProcessState) string {
	status, ok := s.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return fmt.Sprintf("exit:%d", s.ExitCode())
	}
	if status.Signal() == syscall.SIGXCPU {
		return "limit:cpu"
	}
	return "signal:" + signalName(status.Signal())
}

// budget reads until left is used up.
type budget struct {
	r    io.ReadCloser
	left int64
}

var errOutput = errors.New("the limit of output is reached")

func (b *budget) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errOutput
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// head keeps the beginning of what is written.
type head struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(p[:min(len(p), stderrAt-h.text.Len())])
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.ToValidUTF8(h.text.String(), "\uFFFD")
}
