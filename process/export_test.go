package process

import (
	"net/http"

	"github.com/holdfast-dvir/holdfast/dvir"
)

// Faulty counts the letters at which faults of ours are remembered.
func (p *Pool) Faulty() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.faults)
}

// Idle is the process ids of the children that wait for work.
func (c *Children) Idle() (pids []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.idle {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

// Abandon has a child work on data, and lets go of it as a service that dies does. gone is closed at its end.
func (c *Children) Abandon(data []byte) (gone <-chan struct{}, err error) {
	p, err := startChild(c.command, c.hello)
	if err != nil {
		return nil, err
	}
	if err := p.tell.Encode(down{Task: &dvir.Input{Data: data}}); err != nil {
		return nil, err
	}
	var said up
	if err := p.hear.Decode(&said); err != nil {
		return nil, err
	}
	return p.ended, p.in.Close()
}

// Transport is where the requests of h go.
func (h *HTTP) Transport() *http.Transport { return h.transport }

// AttemptChain names the attempts that share an Idempotency-Key.
var AttemptChain = attemptChain
