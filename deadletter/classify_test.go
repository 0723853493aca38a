package deadletter_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// verdicts has a line for every pattern of the table: a signal that it is meant for, "~" if retrying can help,
// and the symbol of the code.
const verdicts = `
http:408 ~http_408
http:425 ~http_425
http:429 ~http_429
http:500 ~http_500
http:502 ~http_502
http:503 ~http_503
http:504 ~http_504
http:501 unclassified
http:505 unclassified
http:511 unclassified
http:401 http_credentials
http:403 http_credentials
http:409 http_409
http:413 http_413
http:422 http_422
http:4* http_4xx
http:3* http_3xx
econnreset ~net_reset
epipe ~net_broken_pipe
econnrefused ~net_refused
ehostunreach ~net_unreachable
enetunreach ~net_unreachable
unexpected_eof ~net_unexpected_eof
etimedout ~net_timeout
io_timeout ~net_timeout
tls:handshake_timeout ~net_timeout
tls:handshake_reset ~net_reset
http2:goaway ~net_http2
http2:refused_stream ~net_http2
timeout ~timeout
deadline_exceeded ~timeout
dns:timeout ~dns_temp
dns:servfail ~dns_temp
dns:not_found dns_notfound
dns:nxdomain dns_notfound
tls:unknown_authority tls_unknown_authority
tls:hostname tls_hostname
tls:expired tls_certificate
tls:certificate_invalid tls_certificate
tls:alert tls_alert
grpc:unavailable ~grpc_unavailable
grpc:deadline_exceeded ~grpc_deadline
grpc:aborted ~grpc_aborted
sqlstate:40001 ~pg_40001
sqlstate:40p01 ~pg_40p01
sqlstate:08* ~pg_08
sqlstate:53300 ~pg_53300
sqlstate:57p01 ~pg_57p
sqlstate:57p02 ~pg_57p
sqlstate:57p03 ~pg_57p
sqlstate:55p03 ~pg_55p03
sqlstate:22* pg_22
sqlstate:23* pg_23
sqlstate:42* pg_42
s3:slowdown* ~s3_slowdown
s3:internalerror ~s3_internal
s3:requesttimeout ~s3_timeout
s3:serviceunavailable ~s3_unavailable
s3:requesttimetooskewed ~s3_skew
s3:accessdenied s3_access_denied
s3:nosuchbucket s3_no_bucket
s3:invalidobjectstate s3_object_state
nats:no_responders ~nats_no_responders
nats:timeout ~nats_timeout
nats:not_leader ~nats_not_leader
schema schema
parse parse
rule rule
`

func TestEveryRowOfTheTable(t *testing.T) {
	want := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(verdicts)) {
		pattern, verdict, _ := strings.Cut(strings.TrimSpace(line), " ")
		want[pattern] = verdict
	}
	for _, pattern := range deadletter.Patterns() {
		verdict, ok := want[pattern]
		require.True(t, ok, "no case for %s", pattern)
		delete(want, pattern)
		symbol, again := strings.CutPrefix(verdict, "~")
		class := chain.Permanent
		if again {
			class = chain.Transient
		}
		for _, key := range []string{strings.ReplaceAll(pattern, "*", "18"), strings.ToUpper(strings.ReplaceAll(pattern, "*", "99"))} {
			for _, stage := range chain.Stages {
				signal := deadletter.Signal{Type: key}
				if status, ok := strings.CutPrefix(strings.ToLower(key), "http:"); ok {
					n, err := strconv.Atoi(status)
					require.NoError(t, err)
					signal = deadletter.Signal{HTTPStatus: n, Type: "schema"}
				}
				v := deadletter.Classify(stage, signal, time.Now())
				require.Equal(t, class, v.Class, key)
				require.Equal(t, string(stage)+"."+symbol, v.Code, key)
				require.True(t, chain.ValidCode(v.Code), v.Code)
				require.True(t, chain.ValidToken(v.Rule), v.Rule)
				require.False(t, v.Poison)
			}
		}
	}
	require.Empty(t, want, "cases without a row")
}

func TestUnlistedIsPermanent(t *testing.T) {
	for _, s := range []deadletter.Signal{
		{}, {Type: "no such error"}, {HTTPStatus: 100}, {HTTPStatus: 200}, {HTTPStatus: 506}, {HTTPStatus: 599},
		{Type: "grpc:RESOURCE_EXHAUSTED"}, {Type: "grpc:INTERNAL"}, {Type: "sqlstate:57014"}, {Type: "sqlstate:53100"},
		{Type: "timeouts"}, {Type: "tim"}, {Type: "sqlstate:4000"}, {Type: "s3:slow"}, {Type: " timeout"}, {Type: "*"},
		{Type: "etimedout io_timeout"}, {Code: "dispatch.http_503"},
	} {
		s.RetryAfter = "30"
		v := deadletter.Classify(chain.StageDispatch, s, time.Now())
		require.Equal(t, deadletter.Verdict{Class: chain.Permanent, Code: "dispatch.unclassified",
			Rule: deadletter.RulesVersion + "/unlisted"}, v)
	}
	require.Zero(t, deadletter.Classify(chain.StageDispatch, deadletter.Signal{HTTPStatus: 413, RetryAfter: "30"}, time.Now()).RetryAfter)
}

func TestCrashes(t *testing.T) {
	for kind, symbol := range map[string]string{"SIGSEGV": "crash_sigsegv", "SIGABRT": "crash_sigabrt", "SIGKILL": "crash_sigkill",
		"SIGBUS": "crash_sigbus", "SIGILL": "crash_sigill", "SIGFPE": "crash_sigfpe", "panic": "crash_panic", "oom": "crash_oom",
		"exit": "crash_exit", "limit": "crash_limit", "": "crash", "John Q. Public": "crash"} {
		v := deadletter.Classify(chain.StageParse, deadletter.Signal{Type: "crash:" + kind}, time.Now())
		require.True(t, v.Poison)
		require.Equal(t, "parse."+symbol, v.Code)
		require.Equal(t, symbol, v.Evidence)
	}
}

func TestCodesOfProcessors(t *testing.T) {
	b := newBenchOf(t, parts{config: deadletter.Config{Codes: []string{"validate.vin_length"}}})
	for _, c := range []struct {
		signal deadletter.Signal
		stage  chain.Stage
		code   string
	}{
		{deadletter.Signal{Code: "validate.vin_length", HTTPStatus: 503}, chain.StageValidate, "validate.vin_length"},
		{deadletter.Signal{Code: "validate.vin_length"}, chain.StageParse, "parse.unclassified"},
		{deadletter.Signal{Code: "validate.other", HTTPStatus: 422}, chain.StageValidate, "validate.http_422"},
		{deadletter.Signal{Code: "validate.other"}, chain.StageValidate, "validate.unclassified"},
	} {
		v := b.Classify(c.stage, c.signal)
		require.Equal(t, chain.Permanent, v.Class)
		require.Equal(t, c.code, v.Code)
	}
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 2, 6, 30, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for header, want := range map[string]time.Duration{
		"": 0, "30": 30 * time.Second, " 30 ": 30 * time.Second, "0": 0, "-5": 0, "1.5": 1500 * time.Millisecond,
		"0.40235": 402350 * time.Microsecond, "99999999999": day, strings.Repeat("9", 200): day, "86400": day, "86399": day - time.Second,
		"NaN": 0, "nan": 0, "+Inf": 0, "inf": 0, "-Inf": 0, "1e3": 0, "0x10": 0, "1_000": 0, "+30": 0, ".": 0, "1.2.3": 0, "30 seconds": 0,
		"Mon, 02 Mar 2026 06:29:59 GMT":    0,
		"Mon, 02 Mar 2026 06:31:00 GMT":    time.Minute,
		"Monday, 02-Mar-26 06:31:00 GMT":   time.Minute,
		"Mon Mar  2 06:31:00 2026":         time.Minute,
		"Fri, 02 Jan 2099 00:00:00 GMT":    day,
		"Mon, 02 Mar 2026 06:31:00":        0,
		"2026-03-02T06:31:00Z":             0,
		"tomorrow, please; John Q. Public": 0,
	} {
		require.Equal(t, want, deadletter.ParseRetryAfter(header, now), header)
	}
}

func TestRetryAt(t *testing.T) {
	now := time.Date(2026, 3, 2, 6, 30, 0, 0, time.UTC)
	wait := func(attempt uint64, asked time.Duration, jitter float64) time.Duration {
		return deadletter.RetryAt(now, attempt, asked, jitter).Sub(now)
	}
	policy := []time.Duration{time.Second, 8 * time.Second, 64 * time.Second, 512 * time.Second, time.Hour, time.Hour}
	for _, jitter := range []float64{0, 0.25, 0.5, 0.999999, math.Nextafter(1, 0)} {
		for i, full := range policy {
			got := wait(uint64(i+1), 0, jitter)
			require.GreaterOrEqual(t, got, full/2)
			require.LessOrEqual(t, got, full)
		}
		var last time.Duration
		for attempt := uint64(0); attempt <= 1_000_000; attempt = attempt*5/4 + 1 {
			got := wait(attempt, 0, jitter)
			require.GreaterOrEqual(t, got, last)
			last = got
			for _, asked := range []time.Duration{-time.Hour, 1, time.Second, time.Minute, time.Hour, 24 * time.Hour, math.MaxInt64} {
				got := wait(attempt, asked, jitter)
				require.GreaterOrEqual(t, got, min(asked, time.Hour), "never before the server's wish")
				require.GreaterOrEqual(t, got, last, "never before the policy")
				require.LessOrEqual(t, got, time.Hour)
			}
		}
	}
	wait1 := wait(math.MaxUint64, math.MaxInt64, 0.99)
	require.Equal(t, time.Hour, wait1)
	var least, most time.Duration
	for attempt := uint64(1); attempt <= 5; attempt++ {
		least, most = least+wait(attempt, 0, 0), most+wait(attempt, 0, math.Nextafter(1, 0))
	}
	require.Greater(t, least, 30*time.Minute)
	require.Less(t, most, 75*time.Minute)
}

func TestRetryAfterOfAServer(t *testing.T) {
	b := newBenchOf(t, parts{config: deadletter.Config{Jitter: func() float64 { return 0.5 }}})
	for i, c := range []struct {
		header      string
		least, most time.Duration
	}{
		{"30", 30 * time.Second, 33 * time.Second},
		{"0", 500 * time.Millisecond, time.Second},
		{"-5", 500 * time.Millisecond, time.Second},
		{"99999999999", time.Hour, time.Hour},
		{"NaN", 500 * time.Millisecond, time.Second},
		{"", 500 * time.Millisecond, time.Second},
	} {
		for _, status := range []int{429, 503} {
			f := transient(strconv.Itoa(i) + strconv.Itoa(status))
			f.Signal = deadletter.Signal{HTTPStatus: status, RetryAfter: c.header}
			b.fail(f)
			e := b.last()
			wait := e.Envelope.NextAttemptAt.Sub(e.At)
			require.GreaterOrEqual(t, wait, c.least-time.Microsecond, c.header)
			require.LessOrEqual(t, wait, c.most, c.header)
		}
	}
}
