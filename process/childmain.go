package process

import (
	"bufio"
	"encoding/gob"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/holdfast-dvir/holdfast/dvir"
)

// Exit codes of a child: its own for processor time that is used up, and that of Go programs for panics and fatal errors.
const (
	exitCPU = 90
	goFatal = 2
)

// ServeChild is the whole life of a child: it judges what comes in until in ends, and then ends the process at once,
// whatever is still going on. judge makes the judgement out of the rules; nil means that of package dvir.
func ServeChild(in io.Reader, out io.Writer, judge func(dvir.Config) (Judgement, error)) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // they are for the service, which ends its children
	hear := gob.NewDecoder(bufio.NewReader(in))
	var h hello
	if err := hear.Decode(&h); err != nil {
		return errors.New("child: no rules came")
	}
	if err := confine(h.Limits); err != nil {
		return err
	}
	if judge == nil {
		judge = func(c dvir.Config) (Judgement, error) {
			p, err := dvir.New(c)
			return p.Process, err
		}
	}
	decide, err := judge(h.Rules)
	if err != nil {
		return errors.New("child: the rules are not valid")
	}
	c := &serving{told: make(chan down), tell: gob.NewEncoder(out)}
	go c.listen(hear)
	return c.serve(decide, h.Limits)
}

// Judgement is what a child does with a payload.
type Judgement func(dvir.Input, dvir.History) dvir.Result

// confine sets the limits that last. Go collects harder before the limit is reached, so that what can be freed is.
func confine(l Limits) error {
	debug.SetMemoryLimit(l.Memory * 3 / 4)
	debug.SetMaxStack(int(l.Memory / 8))
	used := make(chan os.Signal, 1)
	signal.Notify(used, syscall.SIGXCPU)
	go func() {
		<-used
		os.Exit(exitCPU)
	}()
	return limitMemory(l.Memory)
}

// serving is a child at work.
type serving struct {
	told chan down
	tell *gob.Encoder
}

// listen ends the process when the service does: nobody waits for the result any more.
func (c *serving) listen(hear *gob.Decoder) {
	for {
		var d down
		if err := hear.Decode(&d); err != nil {
			os.Exit(0)
		}
		c.told <- d
	}
}

func (c *serving) serve(decide Judgement, l Limits) error {
	for d := range c.told {
		if d.Task == nil {
			return errors.New("child: an answer to no question")
		}
		if err := limitCPU(l.CPU); err != nil {
			return err
		}
		if err := c.tell.Encode(up{Began: true}); err != nil {
			return errors.New("child: nobody listens")
		}
		r := decide(*d.Task, c)
		if err := c.tell.Encode(up{Result: &r}); err != nil {
			return errors.New("child: nobody listens")
		}
	}
	return nil
}

// LastReading implements dvir.History: the service knows.
func (c *serving) LastReading(unit string) (dvir.Reading, bool) {
	if err := c.tell.Encode(up{Asks: true, Unit: unit}); err != nil {
		os.Exit(0)
	}
	d := <-c.told
	return d.Reading, d.Known
}
