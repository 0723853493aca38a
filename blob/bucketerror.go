package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
)

// RefusedError is a refusal by the S3 server that repeating does not help: the
// credentials' policy, the bucket, or a setting is in the way. It wraps ErrUnavailable:
// what was asked for is not done, and can be once a person has mended the cause.
type RefusedError struct {
	Status int    // HTTP
	Code   string // of S3, such as AccessDenied
}

func (e *RefusedError) Error() string {
	if e.Code == clockCode {
		return "the S3 server refuses: its clock and this host's are too far apart"
	}
	return fmt.Sprintf("the S3 server refuses: %d %s", e.Status, e.Code)
}

// Unwrap makes it ErrUnavailable.
func (e *RefusedError) Unwrap() error { return ErrUnavailable }

const clockCode = "RequestTimeTooSkewed"

// noAnswer is why no answer came, in our words. It wraps ErrUnavailable.
type noAnswer string

func (e noAnswer) Error() string { return ErrUnavailable.Error() + ": " + string(e) }

// Unwrap makes it ErrUnavailable.
func (e noAnswer) Unwrap() error { return ErrUnavailable }

// answer is what can be made of the end of a request.
type answer byte

const (
	done      answer = iota
	absent           // no such key or version
	present          // the key is taken; perhaps by an earlier try of ours
	racing           // another writer is at the key
	unknown          // no answer came: it may have been carried out
	transient        // the server wants to be asked again
	corrupted        // the bytes did not arrive as they were sent
	full             // no room at the server
	oversize         // more bytes than the server, or something before it, takes
	refused          // asking again does not help
	cancelled        // by our own caller
)

// codes is the table of S3 error codes; statuses decide for the others.
var codes = map[string]answer{
	"NoSuchKey": absent, "NoSuchVersion": absent,
	"PreconditionFailed": present, "ConditionalRequestConflict": racing,
	"XAmzContentSHA256Mismatch": corrupted, "XAmzContentChecksumMismatch": corrupted, "BadDigest": corrupted, "InvalidDigest": corrupted,
	"SlowDown": transient, "SlowDownRead": transient, "SlowDownWrite": transient, "RequestTimeout": transient,
	"InternalError": transient, "ServiceUnavailable": transient, "OperationAborted": transient, clockCode: refused,
	"EntityTooLarge": oversize, "XMinioStorageFull": full, "InsufficientStorage": full, "QuotaExceeded": full, "XMinioAdminBucketQuotaExceeded": full,
}

var statuses = map[int]answer{
	http.StatusNotFound: absent, http.StatusMethodNotAllowed: absent, // 405: the version is a delete marker
	http.StatusPreconditionFailed: present, http.StatusConflict: racing,
	http.StatusRequestTimeout: transient, http.StatusTooManyRequests: transient, 499: transient, // 499: nginx
	http.StatusInternalServerError: transient, http.StatusBadGateway: transient,
	http.StatusServiceUnavailable: transient, http.StatusGatewayTimeout: transient,
	http.StatusInsufficientStorage: full, http.StatusRequestEntityTooLarge: oversize,
}

// judge reads err, which minio-go gave for a request made under ctx.
func judge(ctx context.Context, err error) answer {
	if err == nil {
		return done
	}
	var e minio.ErrorResponse
	if errors.As(err, &e) && e.StatusCode != 0 { // not minio.ToErrorResponse, which does not unwrap
		if a, ok := codes[e.Code]; ok {
			return a
		}
		if a, ok := statuses[e.StatusCode]; ok && e.Code != "NoSuchBucket" {
			return a
		}
		return refused
	}
	if ctx.Err() != nil && context.Cause(ctx) != errPatience { //nolint:errorlint // our own, as it is
		return cancelled
	}
	return unknown
}

// worded turns the end of a request into an error of this package; texts of the client
// library and of the network stay behind, since they repeat what was sent.
func worded(ctx context.Context, err error) error {
	switch judge(ctx, err) {
	case done:
		return nil
	case absent:
		return ErrNotFound
	case cancelled:
		return ctx.Err()
	case full:
		return ErrNoSpace
	case unknown:
		return unreachable(err)
	case present, racing, transient, corrupted:
		e := response(err)
		return fmt.Errorf("%w: the S3 server answers %d %s", ErrUnavailable, e.Status, e.Code)
	case oversize, refused:
	}
	return response(err)
}

// response is the server's refusal, with a code that is safe to show.
func response(err error) *RefusedError {
	var e minio.ErrorResponse
	errors.As(err, &e)
	code := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, e.Code)
	return &RefusedError{e.StatusCode, code[:min(len(code), 60)]}
}

// unreachable says in our words why no answer came.
func unreachable(err error) noAnswer {
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &dns):
		return "the S3 server's name cannot be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the S3 server refuses connections"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "the S3 server does not answer in time"
	case strings.Contains(err.Error(), "x509: "), strings.Contains(err.Error(), "tls: "):
		return "the S3 server's certificate is not trusted"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the S3 server speaks http, not https"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the connection to the S3 server broke off"
	}
	return "no answer came from the S3 server"
}

// The only retry loop: the client library's own is switched off, because it forgets what
// a lost answer may have done.
const (
	tries      = 4
	firstPause = 50 * time.Millisecond
)

// ask makes a request that may be repeated, unless the server is known to be away.
func (b *Bucket) ask(ctx context.Context, request func(context.Context) error) error {
	if err := b.health.pass(); err != nil {
		return err
	}
	err := b.insist(ctx, request)
	if b.heard(ctx, err) == unknown { // an answer may concern this object alone
		b.health.lost(worded(ctx, err))
	}
	return worded(ctx, err)
}

// insist repeats a request while that can help.
func (b *Bucket) insist(ctx context.Context, request func(context.Context) error) error {
	for n, patience := 0, time.Now().Add(b.config.Timeout); ; n++ {
		err := b.once(ctx, 0, request)
		if a := judge(ctx, err); a != unknown && a != transient || n == tries-1 || time.Now().After(patience) {
			return err
		}
		if err := backOff(ctx, n); err != nil {
			return err
		}
	}
}

// heard judges the end of a request; any answer but a plea to come back later shows that the server is there.
func (b *Bucket) heard(ctx context.Context, err error) answer {
	a := judge(ctx, err)
	if a != unknown && a != transient && a != cancelled {
		b.health.answered()
	}
	return a
}

// once makes one request with a deadline that allows for the transfer of size bytes.
func (b *Bucket) once(ctx context.Context, size int64, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.allow(size))
	defer cancel()
	return request(ctx)
}

func (b *Bucket) allow(size int64) time.Duration {
	return b.config.Timeout + time.Duration(size/slowest)*time.Second
}

// backOff waits before the next try, unless the caller leaves or time is up.
func backOff(ctx context.Context, n int) error {
	timer := time.NewTimer(firstPause<<n/2 + rand.N(firstPause<<n))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return worded(ctx, ctx.Err())
	}
}
