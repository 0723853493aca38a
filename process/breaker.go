package process

import (
	"context"
	"sync"
	"time"
)

// gate lets letters through to one target, no faster than its rate, and not while it is down. Whoever waits at it holds
// no lease, so waiting costs no attempt.
//
// It has a circuit breaker, which opens when five attempts in a row failed for now, or half of twenty or more within a
// minute. Then nobody passes, until one letter is let through as a probe, after a while that doubles up to a minute. If that
// one is answered, the breaker closes, and 1, 2, 4, ... letters a second pass until the gate is at its rate again.
type gate struct {
	rate float64 // letters begun per second at most; 0 sets no limit

	mu      sync.Mutex    // owns what follows
	next    time.Time     // when the next letter may pass
	changed chan struct{} // closed when who waits should look again
	circuit
}

// circuit is what a gate knows of its target.
type circuit struct {
	window    [windowSlots]slot
	failures  int           // in a row
	since     time.Time     // open since then; zero: closed
	until     time.Time     // no probe before then
	openFor   time.Duration // the last time
	probing   bool
	recovered time.Time // when it last closed
}

// slot counts the outcomes of a stretch of the window.
type slot struct {
	began        time.Time
	good, failed int
}

const (
	windowSlots = 6
	slotLength  = 10 * time.Second
	tripInARow  = 5
	tripFrom    = 20 // outcomes in the window, of which half failed
	openFirst   = 5 * time.Second
	openMost    = time.Minute
	parkMost    = 24 * time.Hour // that a target may ask to be left alone
	rampTop     = 1024           // letters a second, from which on a target without a rate is not held back
)

func newGate(rate float64) *gate { return &gate{rate: rate, changed: make(chan struct{})} }

// verdict is what an attempt says about its target.
type verdict byte

const (
	untold  verdict = iota // nothing: it was not asked
	healthy                // it answered, if only to say that the payload is bad
	failing                // it failed for now
)

// pass is the leave of one letter to go through.
type pass struct {
	gate  *gate
	probe bool
}

// enter waits until a letter may go through, or for the end of ctx, whose error it returns.
func (g *gate) enter(ctx context.Context) (pass, error) {
	for {
		p, ok, at, changed := g.try(time.Now())
		if ok {
			return p, nil
		}
		if err := g.sleep(ctx, at, changed); err != nil {
			return pass{}, err
		}
	}
}

func (g *gate) sleep(ctx context.Context, at time.Time, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-when(at):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try lets a letter through, or tells when to ask again: at a time, if there is one, or when something has changed.
func (g *gate) try(now time.Time) (p pass, ok bool, at time.Time, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := !g.since.IsZero()
	switch {
	case open && g.probing:
		return pass{}, false, time.Time{}, g.changed
	case open && now.Before(g.until):
		return pass{}, false, g.until, g.changed
	case now.Before(g.next):
		return pass{}, false, g.next, g.changed
	}
	g.probing = open
	if every := g.interval(now); every > 0 {
		g.next = now.Add(every)
	}
	return pass{g, open}, true, time.Time{}, nil
}

// interval is the least time between two letters at now.
func (g *gate) interval(now time.Time) time.Duration {
	rate := g.rate
	if !g.recovered.IsZero() {
		ramp := float64(uint64(1) << min(max(now.Sub(g.recovered), 0)/time.Second, 10))
		switch {
		case rate == 0 && ramp >= rampTop, rate > 0 && ramp >= rate:
			g.recovered = time.Time{}
		default:
			rate = ramp
		}
	}
	if rate == 0 {
		return 0
	}
	return time.Duration(float64(time.Second) / rate)
}

// done tells what came of the letter. park is how long the target asked to be left alone, if that is longer than a letter
// waits for a retry. turned tells that the target has just been found to be down, or to be back.
func (p pass) done(v verdict, park time.Duration) (turned bool) {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	now, before := time.Now(), g.since.IsZero()
	switch {
	case p.probe:
		g.probed(now, v)
	case !g.since.IsZero():
		// It passed before the breaker opened: the probe tells more.
	case v == healthy:
		g.failures = 0
		g.slot(now).good++
	case v == failing:
		g.failures++
		g.slot(now).failed++
		if park > 0 || g.trips(now) {
			g.since, g.until, g.openFor = now, now.Add(openFirst), openFirst
		}
	}
	if v == failing && park > 0 {
		g.until = later(g.until, now.Add(min(park, parkMost)))
	}
	return g.since.IsZero() != before
}

// probed is the end of a probe, and the beginning of the next wait or of the ramp.
func (g *gate) probed(now time.Time, v verdict) {
	g.probing = false
	switch v {
	case healthy:
		g.circuit, g.next = circuit{recovered: now}, now.Add(time.Second)
	case failing:
		g.openFor = min(2*g.openFor, openMost)
		g.until = now.Add(g.openFor)
	case untold: // the next one is the probe
	}
	close(g.changed)
	g.changed = make(chan struct{})
}

// slot is the stretch of the window that now falls into.
func (g *gate) slot(now time.Time) *slot {
	oldest := &g.window[0]
	for i := range g.window {
		s := &g.window[i]
		if age := now.Sub(s.began); !s.began.IsZero() && age >= 0 && age < slotLength {
			return s
		}
		if s.began.Before(oldest.began) {
			oldest = s
		}
	}
	*oldest = slot{began: now}
	return oldest
}

// trips tells whether the failures are enough to take the target for down.
func (g *gate) trips(now time.Time) bool {
	good, failed := 0, 0
	for _, s := range g.window {
		if age := now.Sub(s.began); age < windowSlots*slotLength {
			good, failed = good+s.good, failed+s.failed
		}
	}
	return g.failures >= tripInARow || good+failed >= tripFrom && 2*failed >= good+failed
}

// openSince is since when the breaker is open; zero if it is not.
func (g *gate) openSince() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.since
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
