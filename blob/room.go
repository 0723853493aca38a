package blob

import (
	"context"
	"errors"
	"sync"
	"time"
)

// room is whether a backend that does not look after itself has any.
type room struct {
	mu    sync.Mutex
	since time.Time // the first put that found none; zero: the last one found some
	last  time.Time // the last one that found none
}

const (
	fullFor = 5 * time.Second // after a put that found no room, until the next is worth a try
	fullAgo = time.Minute     // after which it is not known any more whether there is room
)

// put notes what became of a put.
func (r *room) put(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.since = time.Time{}
	case errors.Is(err, ErrNoSpace):
		r.last = time.Now()
		if r.since.IsZero() {
			r.since = r.last
		}
	}
}

func (r *room) healthy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() || time.Since(r.last) >= fullFor {
		return nil
	}
	return ErrNoSpace
}

// full is since when there is no room, zero if there is or nobody asked for long.
func (r *room) full() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.last) >= fullAgo {
		r.since = time.Time{}
	}
	return r.since
}

// watch tells when the room ends and when there is some again; see [Monitor].
func (r *room) watch(ctx context.Context, told func(since time.Time, why error)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for began := (time.Time{}); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		switch since := r.full(); {
		case !since.IsZero() && began.IsZero():
			began = since
			told(began, ErrNoSpace)
		case since.IsZero() && !began.IsZero():
			told(began, nil)
			began = time.Time{}
		}
	}
}
