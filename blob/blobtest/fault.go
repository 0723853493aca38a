package blobtest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Faults is a connection to an S3 server on which things go wrong by order. It is safe
// for concurrent use. Wrap it around the real connection.
type Faults struct {
	next http.RoundTripper

	mu       sync.Mutex
	orders   []*order // guarded by mu
	requests int      // guarded by mu
}

// Wrap is what blob.BucketConfig.Wrap takes.
func (f *Faults) Wrap(next http.RoundTripper) http.RoundTripper {
	f.next = next
	return f
}

// order is a fault for the next n requests that it fits.
type order struct {
	n     int
	fits  func(*http.Request) bool
	fault Fault
}

// Fault carries a request out, or not.
type Fault func(r *http.Request, next http.RoundTripper) (*http.Response, error)

// Next has fault happen to the next n requests that fit.
func (f *Faults) Next(n int, fits func(*http.Request) bool, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.orders = append(f.orders, &order{n, fits, fault})
}

// Left is how many faults have not happened.
func (f *Faults) Left() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.orders {
		n += o.n
	}
	return n
}

// Clear drops the faults that have not happened.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.orders = nil
}

// Requests is how many requests were made.
func (f *Faults) Requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// RoundTrip implements http.RoundTripper.
func (f *Faults) RoundTrip(r *http.Request) (*http.Response, error) {
	if fault := f.take(r); fault != nil {
		return fault(r, f.next)
	}
	return f.next.RoundTrip(r)
}

func (f *Faults) take(r *http.Request) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	for _, o := range f.orders {
		if o.n > 0 && o.fits(r) {
			o.n--
			return o.fault
		}
	}
	return nil
}

// Any fits all requests.
func Any(*http.Request) bool { return true }

// Puts fits puts of objects.
func Puts(r *http.Request) bool {
	q := r.URL.Query()
	return r.Method == http.MethodPut && !q.Has("retention") && !q.Has("legal-hold")
}

// Gets fits reads of objects.
func Gets(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/sha256/")
}

// Lists fits lists of versions.
func Lists(r *http.Request) bool { return r.URL.Query().Has("versions") }

// Retentions fits changes of a version's retention.
func Retentions(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Query().Has("retention")
}

// LoseReply carries the request out and loses the answer.
func LoseReply(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	resp, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}

// Refuse is a connection that is not taken.
func Refuse(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
	swallow(r)
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// Answer is an error of S3, without the request being carried out. A HEAD gets the status alone.
func Answer(status int, code string) Fault {
	return func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		swallow(r)
		text := `<?xml version="1.0" encoding="UTF-8"?><Error><Code>` + code + `</Code><Message>by order</Message></Error>`
		if r.Method == http.MethodHead {
			text = ""
		}
		return &http.Response{Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {"application/xml"}}, Body: io.NopCloser(strings.NewReader(text)),
			ContentLength: int64(len(text)), Request: r}, nil
	}
}

// BlackHole takes the request and never answers.
func BlackHole(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
	swallow(r)
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Slow delays the request.
func Slow(by time.Duration) Fault {
	return func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		select {
		case <-time.After(by):
			return next.RoundTrip(r)
		case <-r.Context().Done():
			swallow(r)
			return nil, r.Context().Err()
		}
	}
}

// FlipSent changes one bit of the body on its way to the server. It panics if there is no
// body: such a fault would test nothing.
func FlipSent(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	var data []byte
	if r.Body != nil {
		var err error
		if data, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(flipped(data))
	r.GetBody = nil // or the connection could send the unchanged body at a second try
	return next.RoundTrip(r)
}

// FlipReceived changes one bit of the answer's body. It panics if there is no body.
func FlipReceived(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	return received(r, next, flipped)
}

func flipped(data []byte) io.Reader {
	if len(data) == 0 {
		panic("blobtest: there is no body to flip a bit of")
	}
	data[len(data)/2] ^= 1
	return bytes.NewReader(data)
}

// BreakOff ends the answer's body half-way.
func BreakOff(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	return received(r, next, func(data []byte) io.Reader {
		return io.MultiReader(bytes.NewReader(data[:len(data)/2]), broken{})
	})
}

// broken is a connection that is gone.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Silent has the answer's body stop half-way, without an end.
func Silent(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	return received(r, next, func(data []byte) io.Reader {
		return io.MultiReader(bytes.NewReader(data[:len(data)/2]), silence{r})
	})
}

type silence struct{ r *http.Request }

func (s silence) Read([]byte) (int, error) {
	<-s.r.Context().Done()
	return 0, s.r.Context().Err()
}

func received(r *http.Request, next http.RoundTripper, body func([]byte) io.Reader) (*http.Response, error) {
	resp, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(body(data))
	return resp, nil
}

// swallow reads what the client sends, as a server would before it fails.
func swallow(r *http.Request) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
}
