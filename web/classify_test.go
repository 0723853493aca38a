package web_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
)

// handOver sends a failure of its own payload at dispatch, with further fields, and returns what was recorded of it.
func (b *bench) handOver(fields ...string) *chain.Envelope {
	b.t.Helper()
	query := url.Values{"stage": {"dispatch"}}
	for i := 0; i < len(fields); i += 2 {
		query.Set(fields[i], fields[i+1])
	}
	a := b.send("POST", "/v1/failures?"+query.Encode(), strings.NewReader(strings.Join(fields, "=")))
	require.Equal(b.t, 201, a.status, a.body)
	return b.envelope()
}

func TestTC08RetryAfterOverHTTP(t *testing.T) {
	b := newBench(t)
	for header, least := range map[string]time.Duration{"30": 30 * time.Second, "1.5": 1500 * time.Millisecond,
		"99999999999": time.Hour, "Fri, 02 Jan 2099 00:00:00 GMT": time.Hour, "Mon, 02 Mar 2020 06:29:59 GMT": 0, "-5": 0} {
		before := time.Now()
		env := b.handOver("http_status", "429", "retry_after", header)
		require.Equal(t, chain.Retrying, env.Disposition)
		wait := env.NextAttemptAt.Sub(before)
		assert.GreaterOrEqual(t, wait, least-time.Microsecond, header)
		assert.LessOrEqual(t, wait, least+time.Minute, header)
		assert.Equal(t, chain.DeadLetter, b.handOver("http_status", "413", "retry_after", header).Disposition)
	}
	assert.Equal(t, chain.Retrying, b.handOver("error_type", "grpc:RESOURCE_EXHAUSTED", "retry_after", "30s").Disposition)
	assert.Equal(t, chain.DeadLetter, b.handOver("error_type", "grpc:RESOURCE_EXHAUSTED").Disposition)
}

func TestTC26TroubleOfNetworksOverHTTP(t *testing.T) {
	b := newBench(t)
	for name, code := range map[string]string{"CERT_HAS_EXPIRED": "dispatch.tls_certificate", "ENOTFOUND": "dispatch.dns_notfound",
		"javax.net.ssl.SSLHandshakeException": "dispatch.tls_failed", "x509.HostnameError": "dispatch.tls_hostname"} {
		env := b.handOver("error_type", name)
		assert.Equal(t, chain.DeadLetter, env.Disposition, name)
		assert.Equal(t, code, env.ErrorCode)
		assert.Equal(t, uint64(1), env.Attempt)
	}
	for name, code := range map[string]string{"ConnectionResetError": "dispatch.net_reset", "EAI_AGAIN": "dispatch.dns_temp",
		"java.net.SocketTimeoutException": "dispatch.net_timeout", "requests.exceptions.ConnectTimeout": "dispatch.net_timeout"} {
		env := b.handOver("error_type", name)
		assert.Equal(t, chain.Retrying, env.Disposition, name)
		assert.Equal(t, code, env.ErrorCode)
	}
}

func TestTC29UnknownOverHTTP(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"KeyError", "acme.Frobnication", canary} {
		env := b.handOver("error_type", name, "retry_after", "30")
		assert.Equal(t, chain.DeadLetter, env.Disposition)
		assert.Equal(t, "dispatch.unclassified", env.ErrorCode)
		assert.Equal(t, "classify-2/unlisted", env.Rule)
		assert.Equal(t, uint64(1), env.Attempt)
	}
	assert.Equal(t, uint64(3), b.queue.Unclassified(chain.StageDispatch))
	for _, line := range b.log.Lines() {
		assert.NotContains(t, string(line), canary)
	}
}
