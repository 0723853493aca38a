package web_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

// road leads from a client to the service without a network. What wrong says happens to a request instead.
type road struct {
	service http.Handler
	mu      sync.Mutex
	wrong   func(*http.Request) error
}

func (r *road) RoundTrip(q *http.Request) (*http.Response, error) {
	r.mu.Lock()
	wrong := r.wrong
	r.mu.Unlock()
	if wrong != nil {
		if err := wrong(q); err != nil {
			return nil, err
		}
	}
	if q.Body == nil {
		q.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	r.service.ServeHTTP(w, q)
	return w.Result(), nil
}

func (r *road) set(wrong func(*http.Request) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = wrong
}

func away(*http.Request) error { return errors.New("connection refused") }

// yard is one letter and one worker on the road.
type yard struct {
	*bench
	*road
	ref  chain.Digest
	stop context.CancelFunc
	end  chan error
}

// work has a worker of leases of ten minutes begin; the desk judges it.
func work(t *testing.T, handle func(*road) web.WorkFunc) *yard {
	b := newQuietBench(t)
	y := &yard{bench: b, road: &road{service: web.Handler(b.config)}, end: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, b.config.Desk.Run(ctx)) })
	t.Cleanup(func() { stop(); running.Wait() })
	client := func(role web.Role) *web.Client {
		return &web.Client{URL: "http://service", Token: b.secrets[role], HTTP: &http.Client{Transport: y.road}}
	}
	r, err := client(web.Submitter).Submit(t.Context(), strings.NewReader("payload"), web.SubmitOptions{Channel: chain.ManualEntry})
	require.NoError(t, err)
	y.ref = r.PayloadRef
	working, stopWork := context.WithCancel(context.Background())
	y.stop = stopWork
	running.Go(func() {
		y.end <- client(web.Worker).Work(working, web.WorkOrder{Worker: "w-1", LeaseSeconds: 600}, handle(y.road))
	})
	t.Cleanup(stopWork)
	return y
}

func (y *yard) now() chain.Letter {
	l, err := y.state.Letter(y.ref)
	require.NoError(y.t, err)
	return l
}

// An outcome is told when the service is there again.
func TestWorkOutcomeAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := work(t, func(r *road) web.WorkFunc {
			return func(context.Context, web.Work, []byte) (web.Done, error) {
				r.set(away)
				return web.Done{}, nil
			}
		})
		time.Sleep(5 * time.Minute)
		require.NotNil(t, y.now().Lease)
		y.set(nil)
		time.Sleep(time.Minute)
		require.Equal(t, chain.Resolved, y.now().Disposition)
		y.stop()
		require.NoError(t, <-y.end)
	})
}

// So is that it is given back.
func TestWorkReleaseAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		y := work(t, func(r *road) web.WorkFunc {
			return func(context.Context, web.Work, []byte) (web.Done, error) {
				if tries++; tries > 1 {
					return web.Done{}, nil
				}
				r.set(away)
				return web.Done{}, errors.New("no room on the disk")
			}
		})
		time.Sleep(5 * time.Minute)
		y.set(nil)
		time.Sleep(2 * time.Minute)
		require.Equal(t, chain.Resolved, y.now().Disposition)
		y.stop()
		require.NoError(t, <-y.end)
		require.Equal(t, 2, tries)
	})
}

// A request that is never answered does not end the heartbeats.
func TestWorkHeartbeatUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := work(t, func(*road) web.WorkFunc {
			return func(ctx context.Context, _ web.Work, _ []byte) (web.Done, error) {
				select {
				case <-time.After(time.Hour):
					return web.Done{}, nil
				case <-ctx.Done():
					return web.Done{}, ctx.Err()
				}
			}
		})
		var once sync.Once
		y.set(func(q *http.Request) (err error) {
			if strings.HasSuffix(q.URL.Path, "/heartbeat") {
				once.Do(func() { <-q.Context().Done(); err = q.Context().Err() })
			}
			return err
		})
		time.Sleep(2 * time.Hour)
		require.Equal(t, chain.Resolved, y.now().Disposition)
		y.stop()
		require.NoError(t, <-y.end)
	})
}

// An outcome that is refused for good ends the work, and leaves no letter to look as if it had taken the worker down.
func TestWorkOutcomeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := work(t, func(*road) web.WorkFunc {
			return func(context.Context, web.Work, []byte) (web.Done, error) {
				return web.Done{Failure: &web.WorkFailure{Stage: "no stage"}}, nil
			}
		})
		var refused *web.Problem
		require.ErrorAs(t, <-y.end, &refused)
		require.Equal(t, http.StatusUnprocessableEntity, refused.Status)
		time.Sleep(time.Hour)
		require.Equal(t, chain.Received, y.now().Disposition)
		require.Nil(t, y.now().Lease)
		require.Zero(t, y.now().Losses)
	})
}

// A worker that is stopped while the service is away does not wait for it for long.
func TestWorkStoppedInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := work(t, func(r *road) web.WorkFunc {
			return func(context.Context, web.Work, []byte) (web.Done, error) {
				r.set(away)
				return web.Done{}, nil
			}
		})
		time.Sleep(time.Minute)
		y.stop()
		began := time.Now()
		require.NoError(t, <-y.end)
		require.LessOrEqual(t, time.Since(began), 35*time.Second)
	})
}
