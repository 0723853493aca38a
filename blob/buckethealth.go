package blob

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// health is what is known of the server without asking it. While it is away, calls fail
// at once instead of each waiting for its deadline.
type health struct {
	mu        sync.Mutex
	unfit     trouble // the bucket should take no payloads; only an examination mends that
	away      trouble // no answers come
	puts      trouble // answers come, but no payload is taken
	confirmed bool    // that it is away, by the last examination
	watched   bool    // Watch looks whether the server is back; else a call each second does
}

// trouble is a kind of failure, until something succeeds that speaks against it.
type trouble struct {
	why   error     // of the last failure; nil: there was none
	since time.Time // the first failure
	again time.Time // the first one after the last examination that went well; zero: none
	well  int       // examinations that went well in spite of it
	shut  bool      // calls are turned away
	trial time.Time // when one may go through all the same
}

const (
	trialEvery = time.Second
	idle       = time.Minute // without a trial, after which somebody should make one
	persistent = 2           // examinations that do not see what fails on after them
)

func (t *trouble) failed(why error, shut bool) {
	now := time.Now()
	if t.why == nil {
		t.since = now
	}
	if t.again.IsZero() {
		t.again = now
	}
	t.why, t.shut, t.trial = why, t.shut || shut, now.Add(trialEvery)
}

// doubt notes an examination that went well, and tells whether the trouble is as true.
func (t *trouble) doubt() bool {
	if !t.again.IsZero() {
		t.well, t.again = t.well+1, time.Time{}
	}
	return t.well >= persistent
}

// pass lets a call through, or says why not.
func (t *trouble) pass(trials bool) error {
	switch now := time.Now(); {
	case !t.shut:
	case !trials, now.Before(t.trial):
		return t.why
	default:
		t.trial = now.Add(trialEvery)
	}
	return nil
}

// pass lets a call through, or says why not.
func (h *health) pass() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.away.pass(!h.watched || h.away.well >= persistent)
}

// takes is pass for a put.
func (h *health) takes() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unfit.shut {
		return h.unfit.why
	}
	if err := h.away.pass(!h.watched || h.away.well >= persistent); err != nil {
		return err
	}
	return h.puts.pass(true)
}

// lost notes that no answer came, and answered that one did.
func (h *health) lost(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away.failed(why, true)
}

func (h *health) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = trouble{}
}

// put notes what became of a put. A refusal may concern one payload: it turns others away
// when it turns out to persist. A full server has no room for any.
func (h *health) put(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.puts = trouble{}
	case errors.As(err, new(noAnswer)):
		h.away.failed(err, true)
	case errors.Is(err, ErrUnavailable):
		h.puts.failed(err, errors.Is(err, ErrNoSpace))
	}
}

// examined notes what an examination found.
func (h *health) examined(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fails := errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrNoSpace) && !errors.As(err, new(*UnfitError))
	if !fails && (err != nil || h.confirmed) {
		h.away = trouble{}
	}
	h.confirmed = fails
	switch {
	case err == nil:
		h.unfit = trouble{}
		h.away.shut = h.away.doubt()
		h.puts.shut = h.puts.doubt() || h.puts.shut
	case errors.Is(err, ErrNoSpace):
		h.puts.failed(err, true)
	case fails:
		h.away.failed(err, true)
		h.away.since, h.away.well = h.away.again, 0 // what came before is over
	default:
		h.unfit.failed(err, true)
	}
}

// state is why payloads are not taken, and since when. It is nil if they are.
func (h *health) state() (since time.Time, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range []trouble{h.unfit, h.away, h.puts} {
		if t.why != nil && (since.IsZero() || t.since.Before(since)) {
			since = t.since
		}
		if t.shut {
			why = cmp.Or(why, t.why)
		}
	}
	return since, why
}

// gone is why nothing is sent, not even a read.
func (h *health) gone() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away.shut {
		return h.away.why
	}
	return nil
}

// examine tells whether an examination could tell more.
func (h *health) examine() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unfit.shut || h.away.shut || h.puts.shut || !h.away.again.IsZero() || !h.puts.again.IsZero()
}

func (h *health) watch(is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watched = is
}

// Healthy implements [Monitor]. It is nil also when nobody tried for a minute whether what
// only a call can find out is still so.
func (b *Bucket) Healthy() error {
	h := &b.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unfit.shut {
		return h.unfit.why
	}
	for _, t := range []trouble{h.away, h.puts} {
		if t.shut && time.Since(t.trial) < idle {
			return t.why
		}
	}
	return nil
}

// How often the bucket is looked at.
const (
	lookEvery    = time.Second
	examineEvery = time.Hour
	shortest     = lookEvery / 2 // between two examinations of a bucket that is away or unfit
	longest      = 5 * time.Second
)

// Watch implements [Monitor]: it examines the bucket every hour, and when calls fail, at
// growing intervals until they do not. What an examination does not confirm is not told,
// since it concerned one object, or a moment, unless calls still fail after a second one.
// While Watch runs, no call waits to find out whether the server is back.
func (b *Bucket) Watch(ctx context.Context, told func(since time.Time, why error)) error {
	b.health.watch(true)
	defer b.health.watch(false)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var began time.Time // of the outage that was told
	wait, last, well := shortest, time.Now(), true
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		since, why := b.health.state()
		if why != nil && well {
			wait = shortest
		}
		well = why == nil
		switch pause := time.Since(last); {
		case b.health.examine() && pause >= wait, pause >= examineEvery:
			wait, last = min(2*wait, longest), time.Now()
			_ = b.Examine(ctx) // health keeps it
			since, why = b.health.state()
		case !well && began.IsZero():
			continue
		}
		if ctx.Err() != nil || (why == nil) == began.IsZero() {
			continue
		}
		if why != nil {
			began = since
		}
		told(began, why)
		if why == nil {
			began = time.Time{}
		}
	}
}

// skew carries requests out and compares the clocks by the answers' dates.
type skew struct {
	next http.RoundTripper
	by   atomic.Int64 // nanoseconds that the server's clock is ahead
}

// headersKey is where a request carries a place for the headers of its answer, which the
// client library does not give for a put.
type headersKey struct{}

// RoundTrip implements http.RoundTripper.
func (s *skew) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if headers, ok := r.Context().Value(headersKey{}).(*http.Header); ok {
		*headers = resp.Header
	}
	// The date has whole seconds, so half a second is added on average.
	if at, bad := http.ParseTime(resp.Header.Get("Date")); bad == nil {
		s.by.Store(int64(time.Until(at.Add(time.Second / 2))))
	}
	if r.Method == http.MethodGet && strings.HasPrefix(r.URL.RawQuery, "retention=") {
		err = standardRetention(resp)
	}
	return resp, err
}

// standardRetention gives an answer to GetObjectRetention the element of the S3 API:
// versitygw calls it ObjectLockRetention, which the client library does not read.
func standardRetention(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	text = bytes.ReplaceAll(text, []byte("ObjectLockRetention>"), []byte("Retention>"))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(text), resp.Body}
	resp.ContentLength = int64(len(text))
	return err
}

// ahead is how far the server's clock is ahead of this host's.
func (s *skew) ahead() time.Duration { return time.Duration(s.by.Load()) }
