package process_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/process"
)

// listen serves connections by hand.
func listen(t *testing.T, serve func(*net.TCPConn)) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn.(*net.TCPConn))
		}
	}()
	return l.Addr().String()
}

// afterReading reads something, then ends the connection.
func afterReading(end func(*net.TCPConn)) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1<<16))
		end(c)
	}
}

func shut(c *net.TCPConn)  { _ = c.Close() }
func reset(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }

func say(text string) func(*net.TCPConn) {
	return func(c *net.TCPConn) { _, _ = io.WriteString(c, text); _ = c.Close() }
}

// tlsTarget is a server with a certificate for 127.0.0.1 and example.com; roots trust it.
func tlsTarget(t *testing.T, change func(*tls.Config)) (url string, roots *x509.CertPool) {
	s := httptest.NewUnstartedServer(answering(200, ""))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{}
	change(s.TLS)
	s.StartTLS()
	t.Cleanup(s.Close)
	roots = x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.URL, roots
}

// expired is a certificate for 127.0.0.1 whose time is over.
func expired(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// nameServer answers every query with a response code (RFC 1035 section 4.1.1), or never.
func nameServer(t *testing.T, code byte, silent bool) *net.Resolver {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		query := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			if silent || n < 12 {
				continue
			}
			end := 12
			for end < n && query[end] != 0 {
				end += int(query[end]) + 1
			}
			reply := append([]byte{}, query[:min(end+5, n)]...) // header, name, type and class
			reply[2] |= 0x80
			reply[3] = 0x80 | code
			copy(reply[6:12], make([]byte, 6))
			_, _ = conn.WriteTo(reply, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func resolvedBy(t *testing.T, r *net.Resolver, timeout time.Duration) *process.HTTP {
	h := newHTTP(t, "http://warehouse.invalid./")
	h.Transport().DialContext = (&net.Dialer{Resolver: r, Timeout: timeout}).DialContext
	return h
}

// TestTC26NetworkErrors: what a real connection runs into, as net and crypto/tls report it, gets the code and the class
// that it must. Every certificate, alert and unknown name is permanent at the first attempt.
func TestTC26NetworkErrors(t *testing.T) {
	trusting := func(url string, roots *x509.CertPool) *process.HTTP {
		return newHTTP(t, url, func(c *process.HTTPConfig) { c.Roots = roots })
	}
	hasty := func(h *process.HTTP) *process.HTTP {
		h.Transport().TLSHandshakeTimeout = 20 * time.Millisecond
		return h
	}
	plain := func(*tls.Config) {}
	for name, c := range map[string]struct {
		h    func() *process.HTTP
		code string // "~" if retrying can help
	}{
		"unknown CA": {func() *process.HTTP { url, _ := tlsTarget(t, plain); return trusting(url, x509.NewCertPool()) }, "tls_unknown_authority"},
		"wrong host": {func() *process.HTTP {
			url, roots := tlsTarget(t, plain)
			return trusting(strings.Replace(url, "127.0.0.1", "localhost", 1), roots)
		}, "tls_hostname"},
		"expired": {func() *process.HTTP {
			return trusting(tlsTarget(t, func(c *tls.Config) { c.Certificates = []tls.Certificate{expired(t)} }))
		}, "tls_certificate"},
		"alert after the handshake": {func() *process.HTTP {
			return trusting(tlsTarget(t, func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }))
		}, "tls_alert"},
		"alert in the handshake": {func() *process.HTTP {
			return trusting(tlsTarget(t, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11; c.MinVersion = tls.VersionTLS10 }))
		}, "tls_alert"},
		"HTTP behind https": {func() *process.HTTP {
			return newHTTP(t, strings.Replace(newTarget(t, answering(200, "")).URL, "http:", "https:", 1))
		}, "tls_not_spoken"},
		"banner behind https": {func() *process.HTTP { return newHTTP(t, "https://"+listen(t, say("220 mail\r\n"))) }, "tls_not_spoken"},
		"handshake timeout": {func() *process.HTTP {
			return hasty(newHTTP(t, "https://"+listen(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })))
		}, "~net_timeout"},
		"handshake reset":  {func() *process.HTTP { return newHTTP(t, "https://"+listen(t, afterReading(reset))) }, "~net_reset"},
		"handshake closed": {func() *process.HTTP { return newHTTP(t, "https://"+listen(t, afterReading(shut))) }, "~net_unexpected_eof"},

		"NXDOMAIN":    {func() *process.HTTP { return resolvedBy(t, nameServer(t, 3, false), patience) }, "dns_notfound"},
		"SERVFAIL":    {func() *process.HTTP { return resolvedBy(t, nameServer(t, 2, false), patience) }, "~dns_temp"},
		"DNS timeout": {func() *process.HTTP { return resolvedBy(t, nameServer(t, 0, true), 50*time.Millisecond) }, "~dns_temp"},

		"refused": {func() *process.HTTP {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			return newHTTP(t, "http://"+l.Addr().String())
		}, "~net_refused"},
		"closed at once":           {func() *process.HTTP { return newHTTP(t, "http://"+listen(t, shut)) }, "~"},
		"closed without an answer": {func() *process.HTTP { return newHTTP(t, "http://"+listen(t, afterReading(shut))) }, "~net_unexpected_eof"},
		"reset":                    {func() *process.HTTP { return newHTTP(t, "http://"+listen(t, afterReading(reset))) }, "~net_reset"},
		"cut in the header": {func() *process.HTTP {
			return newHTTP(t, "http://"+listen(t, afterReading(say("HTTP/1.1 200 OK\r\nX-A: b\r\n"))))
		}, "~net_unexpected_eof"},
		"cut in a chunk": {func() *process.HTTP {
			return newHTTP(t, "http://"+listen(t, afterReading(say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{"))))
		}, "~net_unexpected_eof"},
		"no HTTP": {func() *process.HTTP { return newHTTP(t, "http://"+listen(t, afterReading(say("220 mail\r\n\r\n")))) }, "unclassified"},
		"endless headers": {func() *process.HTTP {
			return newHTTP(t, "http://"+listen(t, afterReading(say("HTTP/1.1 200 OK\r\nX-A: "+strings.Repeat("a", 1<<20)))))
		}, "unclassified"},
		"proxy away": {func() *process.HTTP {
			h := newHTTP(t, "https://warehouse.invalid")
			h.Transport().Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: listen(t, afterReading(say("HTTP/1.1 503 Away\r\nRetry-After: 7\r\n\r\n")))})
			return h
		}, "~http_503"},
		"proxy refuses": {func() *process.HTTP {
			h := newHTTP(t, "https://warehouse.invalid")
			h.Transport().Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: listen(t, afterReading(say("HTTP/1.1 407 Who are you\r\n\r\n")))})
			return h
		}, "http_4xx"},
	} {
		t.Run(name, func(t *testing.T) {
			b, v := fails(t, c.h())
			symbol, again := strings.CutPrefix(c.code, "~")
			if symbol != "" {
				require.Equal(t, "dispatch."+symbol, v.Code, b.Message)
			}
			require.Equal(t, again, v.Class == chain.Transient, b.Message)
			require.NotEmpty(t, b.Message)
		})
	}
}

// told is a connection that tells when it is closed.
type told struct {
	net.Conn
	closed context.CancelFunc
}

func (c told) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// TestClosedBeforeTheRequest: net/http has an error without a type for a server that closes before it was asked
// anything, as one does that has nobody to answer.
func TestClosedBeforeTheRequest(t *testing.T) {
	h := newHTTP(t, "http://"+listen(t, shut))
	gone, closed := context.WithCancel(t.Context())
	h.Transport().DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return told{c, closed}, err
	}
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { <-gone.Done() }})
	r, err := h.Process(ctx, jobOf([]byte("payload")), []byte("payload"))
	require.NoError(t, err)
	require.Equal(t, "http: server closed idle connection", r.Breakdown.Message)
	require.Equal(t, "unexpected_eof", r.Breakdown.Signal.Type)
}
