package blobtest_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math/bits"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob/blobtest"
)

// far is a server that keeps what it is sent and answers with reply.
type far struct {
	*httptest.Server
	reply []byte

	mu  sync.Mutex
	got [][]byte // guarded by mu
}

func newFar(t *testing.T) (*far, *blobtest.Faults, *http.Client) {
	t.Helper()
	s := &far{reply: []byte("these are the bytes of the answer")}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	f := &blobtest.Faults{}
	return s, f, &http.Client{Transport: f.Wrap(s.Client().Transport)}
}

func (s *far) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.got = append(s.got, data)
	s.mu.Unlock()
	_, _ = w.Write(s.reply)
}

func (s *far) received() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

var sent = []byte("these are the bytes of the request")

func (s *far) request(ctx context.Context, t *testing.T, method, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(sent))
	require.NoError(t, err)
	return r
}

// do makes a request and reads the answer.
func (s *far) do(t *testing.T, c *http.Client, method, path string) (int, []byte, error) {
	t.Helper()
	resp, err := c.Do(s.request(t.Context(), t, method, path))
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

// bitsApart is in how many bits two texts of one length differ.
func bitsApart(t *testing.T, a, b []byte) (n int) {
	t.Helper()
	require.Len(t, b, len(a))
	for i := range a {
		n += bits.OnesCount8(a[i] ^ b[i])
	}
	return n
}

// TestFaultsFit: a fault happens to the next requests that fit, and to no others.
func TestFaultsFit(t *testing.T) {
	s, f, c := newFar(t)
	f.Next(2, blobtest.Puts, blobtest.Answer(503, "SlowDown"))
	f.Next(1, blobtest.Puts, blobtest.Answer(500, "InternalError"))
	f.Next(1, blobtest.Gets, blobtest.Answer(404, "NoSuchKey"))
	f.Next(1, blobtest.Lists, blobtest.Answer(403, "AccessDenied"))
	f.Next(1, blobtest.Retentions, blobtest.Answer(400, "InvalidRequest"))
	for i, step := range []struct {
		method, path string
		status, left int
	}{
		{"PUT", "/b/sha256/k?legal-hold=", 200, 6},
		{"GET", "/b?location=", 200, 6},
		{"PUT", "/b/sha256/k", 503, 5},
		{"GET", "/b/sha256/k", 404, 4},
		{"GET", "/b/sha256/k", 200, 4},
		{"PUT", "/b/sha256/k", 503, 3},
		{"PUT", "/b/sha256/k?retention=", 400, 2},
		{"PUT", "/b/sha256/k", 500, 1},
		{"PUT", "/b/sha256/k", 200, 1},
		{"GET", "/b?versions=", 403, 0},
	} {
		status, _, err := s.do(t, c, step.method, step.path)
		require.NoError(t, err, "step %d", i)
		assert.Equal(t, step.status, status, "step %d", i)
		assert.Equal(t, step.left, f.Left(), "step %d", i)
	}
	assert.Equal(t, 10, f.Requests())
	assert.Len(t, s.received(), 4, "what is answered by order does not reach the server")

	f.Next(3, blobtest.Any, blobtest.Refuse)
	f.Clear()
	assert.Zero(t, f.Left())
	status, _, err := s.do(t, c, "PUT", "/b/sha256/k")
	require.NoError(t, err)
	assert.Equal(t, 200, status)
}

func TestAnswer(t *testing.T) {
	s, f, c := newFar(t)
	f.Next(2, blobtest.Any, blobtest.Answer(503, "SlowDown"))
	_, text, err := s.do(t, c, "PUT", "/")
	require.NoError(t, err)
	var told struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	require.NoError(t, xml.Unmarshal(text, &told))
	assert.Equal(t, "SlowDown", told.Code)
	status, text, err := s.do(t, c, "HEAD", "/")
	require.NoError(t, err)
	assert.Equal(t, 503, status)
	assert.Empty(t, text)
}

func TestLostConnections(t *testing.T) {
	s, f, c := newFar(t)
	f.Next(1, blobtest.Any, blobtest.LoseReply)
	_, _, err := s.do(t, c, "PUT", "/")
	assert.ErrorIs(t, err, syscall.ECONNRESET)
	assert.ErrorAs(t, err, new(*net.OpError))
	assert.Equal(t, [][]byte{sent}, s.received(), "it was carried out")

	f.Next(1, blobtest.Any, blobtest.Refuse)
	_, _, err = s.do(t, c, "PUT", "/")
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.ErrorAs(t, err, new(*net.OpError))
	assert.Len(t, s.received(), 1)

	f.Next(1, blobtest.Any, blobtest.BreakOff)
	status, text, err := s.do(t, c, "GET", "/")
	assert.Equal(t, 200, status)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, s.reply[:len(s.reply)/2], text)
}

func TestFlippedBits(t *testing.T) {
	s, f, c := newFar(t)
	before := bytes.Clone(sent)
	f.Next(1, blobtest.Any, blobtest.FlipSent)
	_, text, err := s.do(t, c, "PUT", "/")
	require.NoError(t, err)
	assert.Equal(t, s.reply, text)
	require.Len(t, s.received(), 1)
	assert.Equal(t, 1, bitsApart(t, sent, s.received()[0]))
	assert.Equal(t, before, sent, "the caller's own bytes stay")

	f.Next(1, blobtest.Any, blobtest.FlipReceived)
	_, text, err = s.do(t, c, "GET", "/")
	require.NoError(t, err)
	assert.Equal(t, 1, bitsApart(t, s.reply, text))

	bare, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	s.reply = nil
	for _, fault := range []blobtest.Fault{blobtest.FlipSent, blobtest.FlipReceived} {
		f.Next(1, blobtest.Any, fault)
		assert.Panics(t, func() { _, _ = f.RoundTrip(bare) }, "a fault that changes nothing tests nothing")
	}
}

// near carries nothing out and notes when it was asked.
type near struct{ asked []time.Time }

func (n *near) RoundTrip(r *http.Request) (*http.Response, error) {
	n.asked = append(n.asked, time.Now())
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("half and half")), Request: r}, nil
}

// TestWaiting: what makes a caller wait ends with the caller's patience.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, next := time.Now(), &near{}
		f := &blobtest.Faults{}
		f.Wrap(next)
		ask := func(patience time.Duration) (*http.Response, error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			t.Cleanup(cancel)
			r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://s3/", bytes.NewReader(sent))
			require.NoError(t, err)
			return f.RoundTrip(r)
		}
		f.Next(2, blobtest.Any, blobtest.Slow(time.Minute))
		_, err := ask(time.Hour)
		require.NoError(t, err)
		assert.Equal(t, []time.Time{began.Add(time.Minute)}, next.asked)
		_, err = ask(time.Second)
		assert.ErrorIs(t, err, context.DeadlineExceeded)

		f.Next(1, blobtest.Any, blobtest.BlackHole)
		before := time.Now()
		_, err = ask(time.Hour)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Hour, time.Since(before))
		assert.Len(t, next.asked, 1)

		f.Next(1, blobtest.Any, blobtest.Silent)
		before = time.Now()
		resp, err := ask(time.Hour)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, "half a", string(text))
		assert.Equal(t, time.Hour, time.Since(before))
	})
}

func TestFaultsAtOnce(t *testing.T) {
	s, f, c := newFar(t)
	f.Next(10, blobtest.Any, blobtest.Refuse)
	var refused, carriedOut atomic.Int32
	var done sync.WaitGroup
	for range 32 {
		r := s.request(t.Context(), t, "PUT", "/")
		done.Go(func() {
			resp, err := c.Do(r)
			if errors.Is(err, syscall.ECONNREFUSED) {
				refused.Add(1)
				return
			}
			if err == nil {
				resp.Body.Close()
				carriedOut.Add(1)
			}
		})
	}
	done.Wait()
	assert.EqualValues(t, 10, refused.Load())
	assert.EqualValues(t, 22, carriedOut.Load())
	assert.Equal(t, 32, f.Requests())
	assert.Len(t, s.received(), 22)
}
