package process

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"

	"github.com/holdfast-dvir/holdfast/deadletter"
)

// exchange is how far a request got.
type exchange struct {
	connected atomic.Bool
	answered  atomic.Bool // a first byte came back
}

func (x *exchange) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(httptrace.GotConnInfo) { x.connected.Store(true) },
		GotFirstResponseByte: func() { x.answered.Store(true) },
	})
}

// signal names the error of a request in the words of the classifier. It goes by types, never by texts; what it does
// not know stays without a name. net/http has errors without a type for a connection that is closed before the answer:
// that is known from how far the request got.
func (x *exchange) signal(err error) deadletter.Signal {
	if refused, ok := errors.AsType[*proxyError](err); ok {
		return deadletter.Signal{HTTPStatus: refused.status, RetryAfter: refused.retryAfter}
	}
	for _, name := range []func(error) string{ofTLS, ofDNS, ofSystem, ofTime, ofStream} {
		if n := name(err); n != "" {
			return deadletter.Signal{Type: n}
		}
	}
	if x.connected.Load() && !x.answered.Load() {
		return deadletter.Signal{Type: "unexpected_eof"}
	}
	return deadletter.Signal{}
}

func ofTLS(err error) string {
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	op, isOp := errors.AsType[*net.OpError](err)
	switch {
	case is[x509.UnknownAuthorityError](err):
		return "tls:unknown_authority"
	case is[x509.HostnameError](err):
		return "tls:hostname"
	case isInvalid && invalid.Reason == x509.Expired:
		return "tls:expired"
	case isInvalid, is[*tls.CertificateVerificationError](err):
		return "tls:certificate_invalid"
	case is[tls.RecordHeaderError](err), errors.Is(err, http.ErrSchemeMismatch):
		return "tls:not_tls"
	case isOp && (op.Op == "remote error" || op.Op == "local error"): // crypto/tls marks alerts so; their type is its own
		return "tls:alert"
	}
	return ""
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func ofDNS(err error) string {
	e, ok := errors.AsType[*net.DNSError](err)
	switch {
	case !ok:
	case e.IsNotFound:
		return "dns:not_found"
	case e.IsTimeout:
		return "dns:timeout"
	case e.IsTemporary:
		return "dns:servfail"
	}
	return ""
}

// systemErrors are those that a connection can end with.
var systemErrors = map[syscall.Errno]string{
	syscall.ECONNRESET: "ECONNRESET", syscall.ECONNABORTED: "ECONNABORTED", syscall.ECONNREFUSED: "ECONNREFUSED",
	syscall.EPIPE: "EPIPE", syscall.ETIMEDOUT: "ETIMEDOUT", syscall.EHOSTUNREACH: "EHOSTUNREACH", syscall.EHOSTDOWN: "EHOSTDOWN",
	syscall.ENETUNREACH: "ENETUNREACH", syscall.ENETDOWN: "ENETDOWN", syscall.ENETRESET: "ENETRESET",
}

func ofSystem(err error) string {
	errno, _ := errors.AsType[syscall.Errno](err)
	return systemErrors[errno]
}

func ofTime(err error) string {
	e, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case ok && e.Timeout():
		return "io_timeout"
	}
	return ""
}

func ofStream(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "unexpected_eof"
	}
	return ""
}

// proxyError is the refusal of a proxy to connect to the target.
type proxyError struct {
	status     int
	retryAfter string
}

// Error implements error.
func (e *proxyError) Error() string { return "the proxy does not connect to the target" }

// throughProxy keeps the status of a proxy's refusal, which net/http would make a text of.
func throughProxy(res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyError{res.StatusCode, res.Header.Get("Retry-After")}
}
