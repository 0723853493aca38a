package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Lease takes letters to work on, see WorkOrder.
func (c *Client) Lease(ctx context.Context, o WorkOrder) ([]Work, error) {
	var list WorkList
	err := c.post(ctx, "/v1/work/lease", o, &list)
	return list.Work, err
}

func ofLease(lease, what string) string { return "/v1/work/" + url.PathEscape(lease) + "/" + what }

// WorkPayload reads the bytes of a leased letter. Their SHA-256 is the letter's PayloadRef, or reading them fails.
func (c *Client) WorkPayload(ctx context.Context, w Work) ([]byte, error) {
	res, err := c.send(ctx, call{"GET", ofLease(w.Lease, "payload"), nil, nil, nil})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	payload, err := io.ReadAll(res.Body)
	if err == nil && chain.Sum(payload) != w.PayloadRef {
		err = errors.New("the payload's bytes are not those that were handed over")
	}
	return payload, err
}

// Heartbeat says that the worker is at it.
func (c *Client) Heartbeat(ctx context.Context, lease string) (b Beat, err error) {
	return b, c.do(ctx, call{"POST", ofLease(lease, "heartbeat"), nil, nil, nil}, &b)
}

// Done is what a worker made of a payload. With a Failure it is one, and nothing else counts.
type Done struct {
	Outcome     chain.Outcome // admit, admit_with_warning or ignored; "" means admit
	OutcomeCode string
	Record      []byte // one JSON object, kept byte for byte; none makes a note that the payload was delivered
	Failure     *WorkFailure
}

// Tell tells what came of a letter. Telling it again is harmless.
func (c *Client) Tell(ctx context.Context, lease string, d Done) (r Receipt, err error) {
	if d.Failure != nil {
		err = c.post(ctx, ofLease(lease, "fail"), d.Failure, &r)
		return r, err
	}
	q := url.Values{}
	put(q, "outcome", string(d.Outcome))
	put(q, "outcome_code", d.OutcomeCode)
	header := http.Header{"Content-Type": {"application/json"}}
	err = c.do(ctx, call{"POST", ofLease(lease, "complete"), q, header, bytes.NewReader(d.Record)}, &r)
	return r, err
}

// Release gives a letter back at no cost.
func (c *Client) Release(ctx context.Context, lease string) error {
	res, err := c.send(ctx, call{"POST", ofLease(lease, "release"), nil, nil, nil})
	if err == nil {
		err = res.Body.Close()
	}
	return err
}

// WorkFunc makes something of a payload. Its error says that it is not the payload's doing: the letter is given back. Its
// ctx ends when the lease is lost, or the worker is to stop.
type WorkFunc func(ctx context.Context, w Work, payload []byte) (Done, error)

// codeRefused is of records that the service refuses.
const codeRefused = "parse.bad_output"

const (
	workWait  = 30               // seconds that a request for work waits
	askFor    = 30 * time.Second // beyond that, until a request counts as lost
	stopFor   = 30 * time.Second // an outcome is told again for so long after the worker was to stop
	tellPause = time.Second
	maxPause  = 30 * time.Second // between requests to a service that is away
)

// Work takes letters one at a time, with heartbeats, and has handle work on them until ctx is done; what is being worked on
// then is given back. A service that is away is asked again, and told of outcomes when it is back. The error is a *Problem
// that asking again does not help.
func (c *Client) Work(ctx context.Context, o WorkOrder, handle WorkFunc) error {
	o.Max, o.WaitSeconds, o.LeaseSeconds = 1, workWait, cmp.Or(o.LeaseSeconds, 60)
	every := time.Duration(o.LeaseSeconds) * time.Second / 3
	for pause := tellPause; ctx.Err() == nil; {
		work, err := c.come(ctx, o)
		for _, w := range work {
			err = errors.Join(err, c.workOn(ctx, w, every, handle))
		}
		if ctx.Err() != nil {
			break
		}
		if p, refused := errors.AsType[*Problem](err); refused && p.final() && p.Kind() != KindLease {
			return p
		}
		if err == nil {
			pause = tellPause
			continue
		}
		wait(ctx, pause)
		pause = min(2*pause, maxPause)
	}
	return nil
}

// final tells whether the same request would be refused again.
func (p *Problem) final() bool { return p.Status < 500 && p.Status != http.StatusTooManyRequests }

func (c *Client) come(ctx context.Context, o WorkOrder) ([]Work, error) {
	ctx, cancel := context.WithTimeout(ctx, workWait*time.Second+askFor)
	defer cancel()
	return c.Lease(ctx, o)
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// workOn works on one letter, and beats until its outcome is told or it is given back: a lease that just ends looks as if the
// letter had taken the worker down. A lease that was lost meanwhile needs nothing more: somebody else has the letter.
func (c *Client) workOn(stopping context.Context, w Work, every time.Duration, handle WorkFunc) error {
	ctx, lost := context.WithCancel(stopping)
	defer lost()
	telling, told := outlasting(stopping, stopFor)
	var beating sync.WaitGroup
	beating.Go(func() { c.beat(telling, w, every, lost) })
	defer beating.Wait()
	defer told()
	payload, err := c.WorkPayload(ctx, w)
	var done Done
	if err == nil {
		done, err = handle(ctx, w, payload)
	}
	if err == nil {
		err = c.tell(telling, w, done)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, insist(telling, func(ctx context.Context) error { return c.Release(ctx, w.Lease) }))
}

// outlasting is a context that ends when stopping has been done for d.
func outlasting(stopping context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(stopping))
	stop := context.AfterFunc(stopping, func() {
		wait(ctx, d)
		cancel()
	})
	return ctx, func() { stop(); cancel() }
}

// beat sends heartbeats until ctx is done. If the lease is over it calls lost.
func (c *Client) beat(ctx context.Context, w Work, every time.Duration, lost func()) {
	for {
		if wait(ctx, every); ctx.Err() != nil {
			return
		}
		asking, cancel := context.WithTimeout(ctx, every)
		_, err := c.Heartbeat(asking, w.Lease)
		cancel()
		if p, refused := errors.AsType[*Problem](err); refused && p.Status == http.StatusConflict {
			lost()
			return
		}
	}
}

// tell tells the outcome until it is taken, or refused for good. A record that is refused is a failure to tell.
func (c *Client) tell(ctx context.Context, w Work, d Done) error {
	err := insist(ctx, func(ctx context.Context) error {
		_, err := c.Tell(ctx, w.Lease, d)
		return err
	})
	p, refused := errors.AsType[*Problem](err)
	if refused && d.Failure == nil && (p.Status == http.StatusUnprocessableEntity || p.Status == http.StatusRequestEntityTooLarge) {
		return c.tell(ctx, w, Done{Failure: &WorkFailure{Stage: chain.StageParse, ErrorCode: codeRefused, Message: p.Error()}})
	}
	return err
}

// insist asks until the service agrees, or refuses for good, or ctx is done.
func insist(ctx context.Context, ask func(context.Context) error) error {
	for pause := tellPause; ; pause = min(2*pause, maxPause) {
		asking, cancel := context.WithTimeout(ctx, askFor)
		err := ask(asking)
		cancel()
		if p, refused := errors.AsType[*Problem](err); err == nil || refused && p.final() || ctx.Err() != nil {
			return err
		}
		wait(ctx, pause)
	}
}
