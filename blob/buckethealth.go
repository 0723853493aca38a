package blob

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// health is what is known of the server without asking it. While it is away, calls fail
// at once instead of each waiting for its deadline; one a second goes through to see.
type health struct {
	mu    sync.Mutex
	away  error     // why nothing is sent; nil: all is well
	unfit error     // why the bucket takes no payloads; only an examination mends that
	trial time.Time // when the next call may go through
}

const trialEvery = time.Second

// pass lets a call through, or says why not.
func (h *health) pass() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.away == nil || !now.Before(h.trial) {
		h.trial = now.Add(trialEvery)
		return nil
	}
	return h.away
}

// takes is pass for a put: an unfit bucket takes none.
func (h *health) takes() error {
	h.mu.Lock()
	unfit := h.unfit
	h.mu.Unlock()
	if unfit != nil {
		return unfit
	}
	return h.pass()
}

// look has the next call go through.
func (h *health) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trial = time.Time{}
}

// lost notes that no answer came, and answered that one did.
func (h *health) lost(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away, h.trial = why, time.Now().Add(trialEvery)
}

func (h *health) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = nil
}

// examined notes what an examination found.
func (h *health) examined(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unfit = err
}

// state is nil if payloads can be taken.
func (h *health) state() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unfit != nil {
		return h.unfit
	}
	return h.away
}

// Healthy implements [Monitor].
func (b *Bucket) Healthy() error { return b.health.state() }

// How often the bucket is looked at.
const (
	lookEvery    = time.Second
	examineEvery = time.Hour
	shortest     = 2 * time.Second // between two examinations of a bucket that is away or unfit
	longest      = time.Minute
)

// Watch implements [Monitor]: it examines the bucket every hour, and when a call finds it
// away, at growing intervals until it is back. What an examination does not confirm is
// not told: it concerned one object, or a moment.
func (b *Bucket) Watch(ctx context.Context, told func(error)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	wait, last, well := shortest, time.Now(), true
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := b.Healthy()
		switch since := time.Since(last); {
		case now != nil && since >= wait:
			wait, last = min(2*wait, longest), time.Now()
			now = b.Examine(ctx)
		case now != nil:
			continue
		case since >= examineEvery:
			last = time.Now()
			now = b.Examine(ctx)
		case since >= longest:
			wait = shortest
		}
		if ctx.Err() == nil && (now == nil) != well {
			well = now == nil
			told(now)
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
