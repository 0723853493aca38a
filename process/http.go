package process

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// HTTPConfig is what an HTTP delivers to, and how.
type HTTPConfig struct {
	Name      string         // of the target, for delivery notes
	URL       string         // http or https, without user and fragment
	Secrets   []Secret       // to sign with; none: requests are not signed
	Timeout   time.Duration  // of one request, to the last byte of its answer; 0 means 30 s
	MaxAnswer int64          // bytes of an answer that can be a record; 0 means 1 MiB
	Header    http.Header    // further fixed headers, such as Authorization
	Roots     *x509.CertPool // certificates to trust; nil means those of the system
}

// HTTP is the processor that posts payloads to a server.
//
// The body is the payload, byte for byte, under its own Content-Type and Content-Encoding. Idempotency-Key is the same
// for all attempts between two enqueueings of a letter (the submission, a replay, a reopening), so that a server which
// did the work and whose answer was lost can tell, and new after each, so that a replay is not answered with the saved
// failure of before. With secrets, the request is signed as Standard Webhooks say, and Webhook-Id is that key.
// Holdfast-Payload-Ref, Holdfast-Attempt and Holdfast-Channel tell the rest; nothing is told about earlier failures.
//
// A 2xx answer resolves the letter. If it is a JSON object in UTF-8 of at most MaxAnswer bytes, that is the record; else
// the record is a delivery note, which is the same for every delivery of the payload to this target. An answer that
// breaks off is a failure even then: the record may be lost, and the key keeps the retry from working twice. Every other
// status is a failure, redirects among them: they are never followed. Failures are of stage dispatch and are classified
// by the table, with the server's Retry-After.
//
// There is one layer of retries, the queue. net/http repeats requests on its own when a kept connection turns out dead, if
// they have an Idempotency-Key and their body is empty or can be read again, and HTTP/2 repeats what a server refused to
// begin. So every request has its own connection, in HTTP/1.1. That also spares letters the attempts that stale
// connections would cost, and our log the bytes that net/http prints when a server sends more than it announced.
type HTTP struct {
	cfg       HTTPConfig
	url       *url.URL
	transport *http.Transport
}

const (
	httpRules    = "http-1"
	connectFor   = 10 * time.Second // and as long again for TLS
	maxAnswer    = 1 << 20
	maxComplaint = 8 << 10 // bytes of the body of a failure that are kept
)

// NewHTTP prepares deliveries. The error is a *chain.FieldError that names the member.
func NewHTTP(cfg HTTPConfig) (*HTTP, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.MaxAnswer == 0 {
		cfg.MaxAnswer = maxAnswer
	}
	target, err := url.Parse(cfg.URL)
	switch {
	case err != nil, target.Scheme != "http" && target.Scheme != "https", target.Hostname() == "":
		return nil, &chain.FieldError{Field: "url", Rule: "must be an http or https URL with a host"}
	case target.User != nil, target.Fragment != "":
		return nil, &chain.FieldError{Field: "url", Rule: "must have no user and no fragment; credentials go into a header"}
	case cfg.Timeout < 0:
		return nil, &chain.FieldError{Field: "timeout", Rule: "must be positive"}
	case cfg.MaxAnswer < 0:
		return nil, &chain.FieldError{Field: "output", Rule: "must be positive"}
	}
	if err := checkHeader(cfg.Header); err != nil {
		return nil, err
	}
	return &HTTP{cfg: cfg, url: target, transport: newTransport(cfg.Roots)}, nil
}

func newTransport(roots *x509.CertPool) *http.Transport {
	var only http.Protocols
	only.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: connectFor}).DialContext,
		TLSHandshakeTimeout: connectFor,
		TLSClientConfig:     &tls.Config{RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(8)},
		Protocols:           &only,
		DisableKeepAlives:   true,
		DisableCompression:  true,

		MaxResponseHeaderBytes: 64 << 10,
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
			return throughProxy(res)
		},
	}
}

// ours are headers that a request sets itself or must not have, besides those with our own beginnings.
var ours = map[string]bool{"Content-Type": true, "Content-Encoding": true, "Content-Length": true, "Idempotency-Key": true,
	"X-Idempotency-Key": true, "Host": true, "Connection": true, "Transfer-Encoding": true, "Trailer": true, "Te": true,
	"Upgrade": true, "Expect": true, "Accept-Encoding": true}

// checkHeader refuses headers that net/http would refuse at every request, and those that say what we say.
func checkHeader(h http.Header) error {
	for name, values := range h {
		canonical := http.CanonicalHeaderKey(name)
		if ours[canonical] || strings.HasPrefix(canonical, "Holdfast-") || strings.HasPrefix(canonical, "Webhook-") {
			return &chain.FieldError{Field: "headers", Rule: "must not set what the request itself says or how it is sent"}
		}
		if name == "" || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return &chain.FieldError{Field: "headers", Rule: "must have names of letters, digits, - and _"}
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return &chain.FieldError{Field: "headers", Rule: "must have values without control characters"}
			}
		}
	}
	return nil
}

// Process delivers the payload once. The error is that of a ctx that was cancelled: the outcome is not known, and the
// letter has not failed.
func (h *HTTP) Process(ctx context.Context, job deadletter.Job, payload []byte) (Result, error) {
	var x exchange
	calling, cancel := context.WithTimeout(x.traced(ctx), h.cfg.Timeout)
	defer cancel()
	res, err := h.transport.RoundTrip(h.request(calling, job, payload))
	var answer []byte
	if err == nil {
		defer res.Body.Close()
		answer, err = h.read(res)
	}
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return Result{}, context.Cause(ctx)
	case err != nil:
		return broken(deadletter.Breakdown{Stage: chain.StageDispatch, Signal: x.signal(err), Rules: httpRules, Message: err.Error()}), nil
	case !delivered(res):
		return broken(deadletter.Breakdown{Stage: chain.StageDispatch, Rules: httpRules,
			Signal:  deadletter.Signal{HTTPStatus: res.StatusCode, RetryAfter: res.Header.Get("Retry-After")},
			Message: fmt.Sprintf("HTTP %d: %s", res.StatusCode, answer)}), nil
	}
	return Result{Completion: &deadletter.Completion{Outcome: chain.Admit, Rules: httpRules, Record: h.record(job.Letter, answer)}}, nil
}

func delivered(res *http.Response) bool { return res.StatusCode/100 == 2 }

func (h *HTTP) request(ctx context.Context, job deadletter.Job, payload []byte) *http.Request {
	l, key := job.Letter, attemptChain(job)
	header := http.Header{"User-Agent": {"holdfast"}}
	for name, values := range h.cfg.Header {
		header[http.CanonicalHeaderKey(name)] = values
	}
	for name, value := range map[string]string{
		"Content-Type": l.ContentType, "Content-Encoding": l.ContentEncoding, "Idempotency-Key": key,
		"Holdfast-Payload-Ref": l.Ref.String(), "Holdfast-Channel": string(l.Channel),
		"Holdfast-Attempt": strconv.FormatUint(l.Lease.Attempt, 10),
	} {
		if value != "" {
			header.Set(name, value)
		}
	}
	if len(h.cfg.Secrets) > 0 {
		Sign(header, h.cfg.Secrets, key, time.Now(), payload)
	}
	r := &http.Request{Method: http.MethodPost, URL: h.url, Host: h.url.Host, Header: header, Body: http.NoBody}
	if len(payload) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(payload)), int64(len(payload))
	}
	return r.WithContext(ctx)
}

// attemptChain names what the attempts since the letter was last enqueued have in common.
func attemptChain(job deadletter.Job) string {
	return chain.Sum(fmt.Appendf(nil, "%s %s %d", job.LogID, job.Letter.Ref, job.Letter.EnqueuedSeq)).String()
}

// read takes what is wanted of an answer: one byte more than can be a record, or the beginning of a complaint, whose
// end does not matter.
func (h *HTTP) read(res *http.Response) ([]byte, error) {
	if !delivered(res) {
		complaint, _ := io.ReadAll(io.LimitReader(res.Body, maxComplaint))
		return complaint, nil
	}
	return io.ReadAll(io.LimitReader(res.Body, h.cfg.MaxAnswer+1))
}

// record is the answer, if it can be one, or a delivery note.
func (h *HTTP) record(l chain.Letter, answer []byte) []byte {
	if int64(len(answer)) <= h.cfg.MaxAnswer && oneObject(answer) {
		return answer
	}
	return fmt.Appendf(nil, `{"delivered":{"payload_ref":%q,"target":%q}}`, l.Ref.String(), h.cfg.Name)
}
