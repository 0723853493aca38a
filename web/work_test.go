package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

// field hands over a payload for the workers of the processor of that name.
func (b *bench) field(payload string) chain.Digest {
	b.t.Helper()
	r, err := b.client(web.Submitter).Submit(b.t.Context(), strings.NewReader(payload), web.SubmitOptions{Channel: chain.ManualEntry})
	require.NoError(b.t, err)
	b.folded(r.Seq)
	return r.PayloadRef
}

func (b *bench) letter(ref chain.Digest) web.Letter {
	b.t.Helper()
	c, err := b.client(web.Admin).Letter(b.t.Context(), ref.String())
	require.NoError(b.t, err)
	return c.Letter
}

func TestWork(t *testing.T) {
	b := newBench(t)
	c := b.client(web.Worker)
	ref := b.field("the payload")
	_, err := b.client(web.Submitter).Submit(t.Context(), strings.NewReader("not for workers"), web.SubmitOptions{})
	require.NoError(t, err)
	work, err := c.Lease(t.Context(), web.WorkOrder{Worker: "w-1", Max: 10, LeaseSeconds: 600})
	require.NoError(t, err)
	require.Len(t, work, 1)
	w := work[0]
	require.Equal(t, ref, w.PayloadRef)
	require.Equal(t, uint64(len("the payload")), w.Size)
	require.Equal(t, uint64(1), w.Attempt)
	require.Equal(t, "pull/the-worker/w-1", b.letter(ref).Lease.Worker)
	payload, err := c.WorkPayload(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, "the payload", string(payload))
	beat, err := c.Heartbeat(t.Context(), w.Lease)
	require.NoError(t, err)
	require.Greater(t, time.Until(beat.LeaseUntil), 9*time.Minute)

	const record = "{ \"b\":1.0,\n\"a\":\"\\u00e9\" }"
	done, err := c.Tell(t.Context(), w.Lease, web.Done{Outcome: chain.AdmitWithWarning, OutcomeCode: "validate.odd", Record: []byte(record)})
	require.NoError(t, err)
	require.Equal(t, chain.Resolved, done.Disposition)
	require.False(t, done.Known)
	require.Equal(t, chain.Sum([]byte(record)), b.letter(ref).RecordRef)
	again, err := c.Tell(t.Context(), w.Lease, web.Done{})
	require.NoError(t, err)
	require.True(t, again.Known)
	require.Equal(t, done.Seq, again.Seq)
	for _, late := range []error{
		c.Release(t.Context(), w.Lease),
		fails(c.Heartbeat(t.Context(), w.Lease)),
		fails(c.Tell(t.Context(), w.Lease, web.Done{Failure: &web.WorkFailure{Stage: chain.StageParse}})),
		fails(c.WorkPayload(t.Context(), w)),
	} {
		var p *web.Problem
		require.ErrorAs(t, late, &p)
		require.Equal(t, http.StatusConflict, p.Status)
		require.Equal(t, web.KindLease, p.Kind())
		require.Contains(t, p.Detail, "nothing was changed")
	}
	other := b.client(web.Admin)
	require.Error(t, other.Release(t.Context(), w.Lease))
}

func fails[T any](_ T, err error) error { return err }

func TestWorkThatFails(t *testing.T) {
	b := newBench(t)
	c := b.client(web.Worker)
	ref := b.field("driver Jane Q. Canary")
	work, err := c.Lease(t.Context(), web.WorkOrder{Worker: "w-1"})
	require.NoError(t, err)
	r, err := c.Tell(t.Context(), work[0].Lease, web.Done{Failure: &web.WorkFailure{Stage: chain.StageDispatch, HTTPStatus: 503, RetryAfter: "5",
		Message: "could not send Jane Q. Canary: " + strings.Repeat("x", 1<<19)}})
	require.NoError(t, err)
	require.Equal(t, chain.Retrying, r.Disposition)
	require.False(t, r.NextAttemptAt.IsZero())
	require.NotContains(t, b.letter(ref).Failure.LastError, "Canary")
	ref = b.field("crash")
	work, err = c.Lease(t.Context(), web.WorkOrder{Worker: "w-1"})
	require.NoError(t, err)
	r, err = c.Tell(t.Context(), work[0].Lease, web.Done{Failure: &web.WorkFailure{Stage: chain.StageParse, ErrorType: "crash:SIGSEGV"}})
	require.NoError(t, err)
	require.Equal(t, chain.Poison, b.letter(ref).Disposition, r)
}

func TestWorkRefused(t *testing.T) {
	b := newBench(t)
	b.field("payload")
	work, err := b.client(web.Admin).Lease(t.Context(), web.WorkOrder{Worker: "w-1"})
	require.NoError(t, err)
	at := "/v1/work/" + work[0].Lease
	for _, c := range []struct {
		path, body, field string
		status            int
	}{
		{"/v1/work/lease", `{}`, "body", 422},
		{"/v1/work/lease", `{"worker":"a b"}`, "worker", 422},
		{"/v1/work/lease", `{"worker":"a","processors":["builtin"]}`, "processors", 422},
		{"/v1/work/lease", `{"worker":"a","wait_seconds":61}`, "/wait_seconds", 422},
		{"/v1/work/nonsense/heartbeat", ``, "lease", 422},
		{at + "/complete", `[]`, "record", 422},
		{at + "/complete?outcome=ignored", `{}`, "record", 422},
		{at + "/complete?outcome=by_hand", ``, "outcome", 422},
		{at + "/fail", `{}`, "stage", 422},
		{at + "/fail", `{"stage":"parse","stage":"parse"}`, "body", 422},
		{at + "/fail", `{"stage":"parse","colour":1}`, "body", 422},
		{at + "/fail", `{"stage":"parse","http_status":7}`, "http_status", 422},
	} {
		a := b.send("POST", c.path, strings.NewReader(c.body), "Content-Type", "application/json")
		p := a.problem(t, c.status, web.KindInvalid)
		require.NotEmpty(t, p.Fields, c.path+c.body)
		assert.Equal(t, c.field, p.Fields[0].Name, c.path+c.body)
	}
	large := strings.NewReader(`{"a":"` + strings.Repeat("x", 16<<20) + `"}`)
	b.send("POST", at+"/complete", large).problem(t, 413, web.KindTooLarge)
	unknown := "/v1/work/" + chain.Sum([]byte("?")).String() + "-3/heartbeat"
	b.send("POST", unknown, nil).problem(t, 404, web.KindNotFound)
	require.NotNil(t, b.letter(work[0].PayloadRef).Lease, "and the lease goes on")
}

// TestWorkLoop: workers of the client take everything, tell what came of it, and give back what they are at when they stop.
func TestWorkLoop(t *testing.T) {
	b := newBench(t)
	for i := range 20 {
		b.field(fmt.Sprint("payload ", i))
	}
	stuck := b.field("stuck")
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	reached := make(chan struct{})
	for i := range 3 {
		workers.Go(func() {
			assert.NoError(t, b.client(web.Worker).Work(ctx, web.WorkOrder{Worker: fmt.Sprint("w-", i)}, func(ctx context.Context, w web.Work, payload []byte) (web.Done, error) {
				switch string(payload) {
				case "stuck":
					close(reached)
					<-ctx.Done()
					return web.Done{}, ctx.Err()
				case "payload 7":
					return web.Done{Failure: &web.WorkFailure{Stage: chain.StageParse, ErrorType: "ValueError"}}, nil
				}
				return web.Done{}, nil
			}))
		})
	}
	<-reached
	require.Eventually(t, func() bool {
		s, err := b.client(web.Admin).Stats(t.Context(), false)
		return err == nil && s.Letters["resolved"] == 19 && s.Letters["dead_letter"] == 1
	}, 20*time.Second, 5*time.Millisecond)
	stop()
	workers.Wait()
	l := b.letter(stuck)
	require.Nil(t, l.Lease)
	require.Equal(t, chain.Received, l.Disposition)
	require.Zero(t, l.Attempt)

	unknown := &web.Client{URL: b.server.URL, Token: "nobody"}
	err := unknown.Work(t.Context(), web.WorkOrder{Worker: "w"}, nil)
	var p *web.Problem
	require.True(t, errors.As(err, &p))
	require.Equal(t, http.StatusUnauthorized, p.Status)
}
