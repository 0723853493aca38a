package deadletter_test

import (
	"flag"
	"fmt"
	"iter"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// verdicts has a line for every code: "~" if retrying can help, "?" if it can when a server asked for it, "!" for
// poison; then the signals that must lead to it, as senders spell them.
const verdicts = `
~http_429 http:429 TooManyRequests google.api_core.exceptions.TooManyRequests
~http_500 http:500
~http_502 http:502 google.api_core.exceptions.BadGateway
~http_503 http:503 google.api_core.exceptions.ServiceUnavailable org.springframework.web.client.HttpServerErrorException$ServiceUnavailable
~http_504 http:504 google.api_core.exceptions.GatewayTimeout
~http_408 http:408
~http_425 http:425
unclassified http:501 http:505 http:511
http_credentials http:401 http:403
http_409 http:409
http_413 http:413
http_422 http:422
http_4xx http:400 http:404 http:410 http:418 http:499
http_3xx http:300 http:301 http:307 http:399

~net_reset ECONNRESET syscall.ECONNRESET WSAECONNRESET ConnectionResetError builtins.ConnectionResetError System.Net.Sockets.SocketError.ConnectionReset
~net_reset ECONNABORTED WSAECONNABORTED ConnectionAbortedError SocketError.ConnectionAborted ENETRESET WSAENETRESET UND_ERR_SOCKET
~net_reset httpx.ReadError httpx.WriteError tls:handshake_reset botocore.exceptions.ConnectionClosedError
~net_broken_pipe EPIPE BrokenPipeError
~net_refused ECONNREFUSED WSAECONNREFUSED ConnectionRefusedError SocketError.ConnectionRefused java.net.ConnectException
~net_refused org.apache.http.conn.HttpHostConnectException
~net_unreachable EHOSTUNREACH ENETUNREACH EHOSTDOWN ENETDOWN WSAEHOSTUNREACH WSAENETUNREACH WSAEHOSTDOWN WSAENETDOWN
~net_unreachable SocketError.HostUnreachable SocketError.NetworkUnreachable SocketError.HostDown SocketError.NetworkDown
~net_unreachable java.net.NoRouteToHostException java.net.PortUnreachableException
~net_connection ConnectionError requests.exceptions.ConnectionError redis.exceptions.ConnectionError urllib3.exceptions.NewConnectionError
~net_connection aiohttp.client_exceptions.ClientConnectorError botocore.exceptions.EndpointConnectionError java.net.SocketException
~net_unexpected_eof unexpected_eof io.ErrUnexpectedEOF http.client.IncompleteRead http.client.RemoteDisconnected
~net_unexpected_eof requests.exceptions.ChunkedEncodingError urllib3.exceptions.ProtocolError aiohttp.ServerDisconnectedError aiohttp.ClientPayloadError
~net_unexpected_eof httpx.RemoteProtocolError org.apache.http.NoHttpResponseException reactor.netty.http.client.PrematureCloseException
~net_unexpected_eof System.Net.Http.HttpRequestError.ResponseEnded
~net_timeout ETIMEDOUT io_timeout WSAETIMEDOUT ESOCKETTIMEDOUT SocketError.TimedOut tls:handshake_timeout requests.exceptions.ConnectTimeout
~net_timeout requests.exceptions.ReadTimeout httpx.WriteTimeout httpx.PoolTimeout botocore.exceptions.ConnectTimeoutError botocore.exceptions.ReadTimeoutError
~net_timeout aiohttp.ServerTimeoutError aiohttp.ConnectionTimeoutError aiohttp.SocketTimeoutError UND_ERR_CONNECT_TIMEOUT UND_ERR_HEADERS_TIMEOUT
~net_timeout UND_ERR_BODY_TIMEOUT java.net.SocketTimeoutException org.apache.http.conn.ConnectTimeoutException java.net.http.HttpTimeoutException
~net_timeout java.net.http.HttpConnectTimeoutException
~timeout timeout socket.timeout requests.exceptions.Timeout deadline_exceeded context.DeadlineExceeded os.ErrDeadlineExceeded TimeoutError
~timeout asyncio.exceptions.TimeoutError java.util.concurrent.TimeoutException System.TimeoutException
~net_http2 http2:goaway http2:REFUSED_STREAM ERR_HTTP2_GOAWAY_SESSION

~dns_temp dns:timeout dns:servfail dns:temporary EAI_AGAIN socket.EAI_AGAIN WSATRY_AGAIN SocketError.TryAgain ESERVFAIL ETIMEOUT
dns_notfound dns:not_found dns:nxdomain ENOTFOUND EAI_NONAME EAI_NODATA WSAHOST_NOT_FOUND SocketError.HostNotFound
dns_failed socket.gaierror socket.herror java.net.UnknownHostException *net.DNSError System.Net.Http.HttpRequestError.NameResolutionError
dns_failed aiohttp.ClientConnectorDNSError
tls_unknown_authority tls:unknown_authority x509.UnknownAuthorityError DEPTH_ZERO_SELF_SIGNED_CERT SELF_SIGNED_CERT_IN_CHAIN
tls_unknown_authority UNABLE_TO_VERIFY_LEAF_SIGNATURE UNABLE_TO_GET_ISSUER_CERT UNABLE_TO_GET_ISSUER_CERT_LOCALLY
tls_hostname tls:hostname x509.HostnameError ERR_TLS_CERT_ALTNAME_INVALID javax.net.ssl.SSLPeerUnverifiedException
tls_certificate tls:expired tls:certificate_invalid x509.CertificateInvalidError *tls.CertificateVerificationError CERT_HAS_EXPIRED
tls_certificate CERT_NOT_YET_VALID CERT_REVOKED CERT_UNTRUSTED ssl.SSLCertVerificationError aiohttp.ClientConnectorCertificateError
tls_certificate java.security.cert.CertificateExpiredException java.security.cert.CertificateNotYetValidException
tls_certificate java.security.cert.CertPathValidatorException java.security.cert.CertPathBuilderException
tls_certificate sun.security.validator.ValidatorException sun.security.provider.certpath.SunCertPathBuilderException
tls_alert tls:alert tls.AlertError ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE
tls_not_spoken tls:not_tls tls.RecordHeaderError http.ErrSchemeMismatch
tls_failed ssl.SSLError requests.exceptions.SSLError javax.net.ssl.SSLHandshakeException javax.net.ssl.SSLException aiohttp.ClientConnectorSSLError
tls_failed System.Security.Authentication.AuthenticationException HttpRequestError.SecureConnectionError

~grpc_unavailable grpc:UNAVAILABLE grpc:14 UNAVAILABLE StatusCode.UNAVAILABLE grpc.StatusCode.UNAVAILABLE grpc:StatusCode.UNAVAILABLE codes.Unavailable
~grpc_deadline grpc:DEADLINE_EXCEEDED grpc:DeadlineExceeded grpc:4
~grpc_aborted grpc:ABORTED grpc:10 ABORTED codes.Aborted
?grpc_exhausted grpc:RESOURCE_EXHAUSTED grpc:ResourceExhausted grpc:8 RESOURCE_EXHAUSTED google.api_core.exceptions.ResourceExhausted
grpc_argument grpc:INVALID_ARGUMENT grpc:InvalidArgument grpc:3 INVALID_ARGUMENT codes.InvalidArgument grpc:OUT_OF_RANGE grpc:OutOfRange
grpc_argument grpc:11 OUT_OF_RANGE codes.OutOfRange
grpc_notfound grpc:NOT_FOUND grpc:NotFound grpc:5 NOT_FOUND
grpc_exists grpc:ALREADY_EXISTS grpc:AlreadyExists grpc:6 ALREADY_EXISTS codes.AlreadyExists
grpc_credentials grpc:PERMISSION_DENIED grpc:PermissionDenied grpc:7 PERMISSION_DENIED codes.PermissionDenied grpc:UNAUTHENTICATED grpc:16 UNAUTHENTICATED
grpc_precondition grpc:FAILED_PRECONDITION grpc:FailedPrecondition grpc:9 FAILED_PRECONDITION codes.FailedPrecondition
grpc_unimplemented grpc:UNIMPLEMENTED grpc:12 UNIMPLEMENTED
unclassified grpc:INTERNAL grpc:13 grpc:UNKNOWN grpc:2 grpc:DATA_LOSS grpc:DataLoss grpc:15 grpc:CANCELLED grpc:Canceled grpc:1

~pg_40001 sqlstate:40001 pg:40001 postgres:40001 pgcode:40001 psycopg2.errors.SerializationFailure asyncpg.exceptions.SerializationError
~pg_40p01 sqlstate:40P01 psycopg2.errors.DeadlockDetected asyncpg.exceptions.DeadlockDetectedError
~pg_08 sqlstate:08000 sqlstate:08006 psycopg.errors.ConnectionFailure psycopg.errors.ConnectionDoesNotExist asyncpg.exceptions.ConnectionDoesNotExistError
~pg_08 psycopg2.OperationalError psycopg.OperationalError
~pg_53300 sqlstate:53300 psycopg2.errors.TooManyConnections asyncpg.exceptions.TooManyConnectionsError
~pg_57p sqlstate:57P01 sqlstate:57P02 sqlstate:57P03 psycopg2.errors.AdminShutdown psycopg2.errors.CrashShutdown psycopg2.errors.CannotConnectNow
~pg_57p asyncpg.AdminShutdownError asyncpg.CrashShutdownError asyncpg.CannotConnectNowError
~pg_55p03 sqlstate:55P03 psycopg2.errors.LockNotAvailable asyncpg.LockNotAvailableError
~sql_transient java.sql.SQLTransientException java.sql.SQLTransientConnectionException java.sql.SQLTransactionRollbackException
~sql_transient java.sql.SQLRecoverableException java.sql.SQLTimeoutException
pg_22 sqlstate:22P02 psycopg2.DataError java.sql.SQLDataException psycopg2.errors.NumericValueOutOfRange psycopg2.errors.InvalidTextRepresentation
pg_22 psycopg2.errors.StringDataRightTruncation
pg_23 sqlstate:23505 django.db.utils.IntegrityError java.sql.SQLIntegrityConstraintViolationException psycopg2.errors.UniqueViolation
pg_23 asyncpg.UniqueViolationError psycopg2.errors.ForeignKeyViolation psycopg2.errors.NotNullViolation psycopg2.errors.CheckViolation
pg_23 psycopg2.errors.ExclusionViolation
pg_42 sqlstate:42P01 psycopg2.ProgrammingError java.sql.SQLSyntaxErrorException psycopg2.errors.UndefinedTable psycopg2.errors.UndefinedColumn
pg_42 psycopg2.errors.InsufficientPrivilege
unclassified sqlstate:57014 sqlstate:53100 sqlstate:53200 sqlstate:58030

~s3_slowdown s3:SlowDown minio:SlowDown s3:SlowDownRead SlowDown SlowDownRead SlowDownWrite s3:Throttling s3:ThrottlingException s3:TooManyRequests
~s3_slowdown s3:RequestLimitExceeded s3:RequestThrottled
~s3_internal s3:InternalError
~s3_timeout s3:RequestTimeout s3:RequestTimeoutException
~s3_unavailable s3:ServiceUnavailable s3:XMinioServerNotInitialized
~s3_conflict s3:OperationAborted
~s3_skew s3:RequestTimeTooSkewed RequestTimeTooSkewed
s3_access_denied s3:AccessDenied minio:AccessDenied
s3_credentials s3:InvalidAccessKeyId s3:SignatureDoesNotMatch s3:ExpiredToken s3:InvalidToken
s3_no_bucket s3:NoSuchBucket NoSuchBucket
s3_no_object s3:NoSuchKey s3:NoSuchVersion NoSuchKey NoSuchVersion
s3_object_state s3:InvalidObjectState s3:ObjectLocked InvalidObjectState
s3_too_large s3:EntityTooLarge EntityTooLarge
unclassified s3:XMinioStorageFull s3:BadDigest

~nats_no_responders nats:no_responders nats.errors.NoRespondersError nats.ErrNoResponders
~nats_timeout nats:timeout nats.ErrTimeout
~nats_not_leader nats:not_leader

~exit_tempfail exit:75
exit_dataerr exit:65
~stopped signal:SIGTERM signal:15 exit:143 exit:-15 signal:SIGINT signal:2 exit:130 exit:-2 signal:SIGHUP signal:1 exit:129 exit:-1
killed signal:SIGKILL signal:9 exit:137 exit:-9
!crash_sigsegv crash:SIGSEGV signal:SIGSEGV signal:11 exit:139 exit:-11
!crash_sigabrt crash:SIGABRT signal:SIGABRT signal:6 exit:134 exit:-6
!crash_sigbus crash:SIGBUS signal:SIGBUS signal:7 exit:135 exit:-7
!crash_sigill crash:SIGILL signal:SIGILL signal:4 exit:132 exit:-4
!crash_sigfpe crash:SIGFPE signal:SIGFPE signal:8 exit:136 exit:-8
!crash_sigkill crash:SIGKILL
!crash_panic crash:panic
!crash_oom crash:oom
!crash_exit crash:exit
!crash_limit crash:limit
!crash crash: crash:SIGXCPU crash:JohnQ.Public

schema schema jsonschema.exceptions.ValidationError jsonschema.exceptions.SchemaError ValidationException *json.UnmarshalTypeError
schema com.fasterxml.jackson.databind.exc.MismatchedInputException com.fasterxml.jackson.databind.exc.UnrecognizedPropertyException
schema com.fasterxml.jackson.databind.exc.InvalidFormatException
parse parse json.decoder.JSONDecodeError UnicodeDecodeError xml.etree.ElementTree.ParseError java.text.ParseException xml.parsers.expat.ExpatError
parse lxml.etree.XMLSyntaxError zipfile.BadZipFile gzip.BadGzipFile zlib.error _csv.Error pandas.errors.ParserError yaml.scanner.ScannerError
parse csv.Error encoding/json.SyntaxError *json.SyntaxError *xml.SyntaxError *csv.ParseError *strconv.NumError
parse com.fasterxml.jackson.core.JsonParseException com.google.gson.JsonSyntaxException com.google.gson.stream.MalformedJsonException
parse org.json.JSONException System.Text.Json.JsonException org.xml.sax.SAXParseException java.nio.charset.MalformedInputException
parse java.time.format.DateTimeParseException Newtonsoft.Json.JsonReaderException System.Xml.XmlException
rule rule
`

// sayings are the signals of verdicts, each with what must come of it.
func sayings() iter.Seq2[string, string] {
	return func(yield func(signal, want string) bool) {
		for line := range strings.Lines(verdicts) {
			words := strings.Fields(line)
			for i := 1; i < len(words); i++ {
				if !yield(words[i], words[0]) {
					return
				}
			}
		}
	}
}

// signalOf is the signal that a sender makes of a name; a status goes where statuses go.
func signalOf(name string) deadletter.Signal {
	if status, ok := strings.CutPrefix(name, "http:"); ok {
		n, _ := strconv.Atoi(status)
		return deadletter.Signal{HTTPStatus: n, Type: "schema"}
	}
	return deadletter.Signal{Type: name}
}

// verdictOf is what the table says of a signal, in the notation of verdicts.
func verdictOf(t *testing.T, s deadletter.Signal) string {
	v := deadletter.Classify(chain.StageNormalize, s, time.Now())
	require.True(t, chain.ValidCode(v.Code), v.Code)
	require.True(t, chain.ValidToken(v.Rule), v.Rule)
	require.Equal(t, v.Poison, v.Evidence != "")
	symbol := strings.TrimPrefix(v.Code, "normalize.")
	switch {
	case v.Poison && v.Class == chain.Permanent:
		require.Equal(t, symbol, v.Evidence)
		return "!" + symbol
	case v.Class == chain.Transient:
		return "~" + symbol
	}
	return symbol
}

// TestEverySignal: whoever sends it, in whatever letter case, it means the same at every stage.
func TestEverySignal(t *testing.T) {
	for name, want := range sayings() {
		t.Run(name, func(t *testing.T) {
			asked, exhausted := strings.CutPrefix(want, "?")
			if exhausted {
				want = "unclassified"
			}
			for _, spelt := range []string{name, strings.ToUpper(name), strings.ToLower(name)} {
				s := signalOf(spelt)
				if strings.HasPrefix(name, "http:") {
					s = signalOf(name)
				}
				require.Equal(t, want, verdictOf(t, s), spelt)
				for _, wish := range []string{"", "0", "-5", "soon"} {
					s.RetryAfter = wish
					require.Equal(t, want, verdictOf(t, s), spelt)
				}
				for _, wish := range []string{"30", "30s", "1.5"} {
					s.RetryAfter = wish
					if exhausted {
						require.Equal(t, "~"+asked, verdictOf(t, s), spelt)
					} else {
						require.Equal(t, want, verdictOf(t, s), spelt)
					}
				}
			}
		})
	}
}

// TestEveryRow: no signal of the table is without a case above, none stands in it twice or hides another.
func TestEveryRow(t *testing.T) {
	patterns := deadletter.Patterns()
	for i, pattern := range patterns {
		require.Equal(t, strings.ToLower(pattern), pattern)
		prefix, wild := strings.CutSuffix(pattern, "*")
		said := false
		for name := range sayings() {
			name = strings.ToLower(name)
			tail, qualified := strings.CutSuffix(name, pattern)
			said = said || name == pattern || wild && strings.HasPrefix(name, prefix) ||
				qualified && tail != "" && strings.ContainsAny(tail[len(tail)-1:], "./$*")
		}
		require.True(t, said, "no case for %s", pattern)
		for j, other := range patterns {
			require.False(t, i != j && pattern == other, "%s stands twice", pattern)
			require.False(t, i != j && wild && strings.HasSuffix(other, "*") && strings.HasPrefix(other, prefix), "%s hides %s", pattern, other)
		}
	}
}

// TestOneEffectPerCode: rows that give the same code agree on what it means.
func TestOneEffectPerCode(t *testing.T) {
	effects := map[string]string{}
	for r := range deadletter.Rows() {
		if before, ok := effects[r.Symbol]; ok {
			require.Equal(t, before, r.Effect, "%s is told as two things", r.Symbol)
		}
		effects[r.Symbol] = r.Effect
	}
	require.Equal(t, "permanent", effects["unclassified"], "a code for nobody knows what is never retried")
}

// rewrite makes TestDocumentedTable write the document instead of comparing it.
var rewrite = flag.Bool("rewrite", false, "write docs/classifier.md")

// TestDocumentedTable: the document is the table. After a change of the table:
//
//	go test ./deadletter -run TestDocumentedTable -rewrite
func TestDocumentedTable(t *testing.T) {
	const path = "../docs/classifier.md"
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(document()), 0o644))
	}
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, document(), string(written))
}

// document is the table for readers.
func document() string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Classifier table %s\n\n", deadletter.RulesVersion)
	out.WriteString("Written by `go test ./deadletter -run TestDocumentedTable -rewrite`; how to use it is in [handover.md](handover.md).\n\n" +
		"The letter case of signals does not matter. `*` stands for any ending. A signal without a colon is also found at the end of a\n" +
		"qualified name. What is in no row is permanent, with the code `<stage>.unclassified`.\n")
	family := ""
	for r := range deadletter.Rows() {
		if r.Family != family {
			family = r.Family
			fmt.Fprintf(&out, "\n## %s\n\n| signals | | code |\n|---|---|---|\n", family)
		}
		signals := strings.Join(strings.Fields(r.Signals), "` `")
		fmt.Fprintf(&out, "| `%s` | %s | `<stage>.%s` |\n", signals, r.Effect, r.Symbol)
	}
	return out.String()
}

func TestUnlistedIsPermanent(t *testing.T) {
	for _, s := range []deadletter.Signal{
		{}, {Type: "no such error"}, {HTTPStatus: 100}, {HTTPStatus: 200}, {HTTPStatus: 506}, {HTTPStatus: 599},
		{Type: "KeyError"}, {Type: "builtins.ValueError"}, {Type: "java.lang.NullPointerException"}, {Type: "OperationalError"},
		{Type: "SyntaxError"}, {Type: "SocketException"}, {Type: "TaskCanceledException"}, {Type: "URLError"}, {Type: "InternalError"},
		{Type: "14"}, {Type: "75"}, {Type: "40001"}, {Type: "exit:1"}, {Type: "exit:0"}, {Type: "exit:70"}, {Type: "exit:255"},
		{Type: "signal:SIGUSR1"}, {Type: "grpc:17"}, {Type: "grpc:0"}, {Type: "my:timeout"}, {Type: "timeout.my"}, {Type: "timeout."},
		{Type: "requests.exceptions.ConnectTimeout: John Q. Public"}, {Type: "ConnectTimeout John Q. Public"}, {Type: "xECONNRESET"},
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
		"NaN": 0, "nan": 0, "+Inf": 0, "inf": 0, "-Inf": 0, "1e3": 0, "0x10": 0, "1_000": 0, "+30": 0, ".": 0, "1.2.3": 0, "30 seconds": 0, "30s": 30 * time.Second, "1.5s": 1500 * time.Millisecond, "s": 0, "30ss": 0, "30 s": 0,
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

// TestTC08RetryAfter: the delay is the longer of policy and header, capped, jitter on top; nonsense and the past leave
// the policy alone; a header on a permanent answer is ignored.
func TestTC08RetryAfter(t *testing.T) {
	b := newBenchOf(t, parts{config: deadletter.Config{Jitter: func() float64 { return 0.5 }}})
	now := time.Now().UTC()
	const policy = 750 * time.Millisecond // a second, equal jitter, half of it drawn
	for i, c := range []struct {
		header      string
		least, most time.Duration
	}{
		{"30", 31500 * time.Millisecond, 31500 * time.Millisecond},
		{"1.5", 1575 * time.Millisecond, 1575 * time.Millisecond},
		{"0.001", policy, policy},
		{"0", policy, policy},
		{"-5", policy, policy},
		{"99999999999", time.Hour, time.Hour},
		{strings.Repeat("9", 200), time.Hour, time.Hour},
		{"NaN", policy, policy},
		{"", policy, policy},
		{now.Add(-time.Hour).Format(http.TimeFormat), policy, policy},
		{"Fri, 02 Jan 2099 00:00:00 GMT", time.Hour, time.Hour},
		{strings.Replace(now.Add(10*time.Minute).Format(time.RFC850), "UTC", "GMT", 1), 8 * time.Minute, 11 * time.Minute},
	} {
		for _, status := range []int{429, 503} {
			f := transient(strconv.Itoa(i) + strconv.Itoa(status))
			f.Signal = deadletter.Signal{HTTPStatus: status, RetryAfter: c.header}
			r := b.fail(f)
			e := b.last()
			wait := e.Envelope.NextAttemptAt.Sub(e.At)
			require.Equal(t, chain.Retrying, r.Disposition, c.header)
			require.GreaterOrEqual(t, wait, c.least-time.Microsecond, c.header)
			require.LessOrEqual(t, wait, c.most+time.Microsecond, c.header)
		}
		for _, status := range []int{413, 400} {
			f := transient(strconv.Itoa(i) + strconv.Itoa(status))
			f.Signal = deadletter.Signal{HTTPStatus: status, RetryAfter: c.header}
			require.Equal(t, chain.DeadLetter, b.fail(f).Disposition)
			require.Zero(t, b.last().Envelope.NextAttemptAt)
		}
	}
}

// TestTC26LastingTroubleOfNetworks: certificates, alerts and unknown names are for a human at the first attempt;
// timeouts, resets and name servers in trouble are tried again.
func TestTC26LastingTroubleOfNetworks(t *testing.T) {
	b := newBench(t)
	for name, disposition := range map[string]chain.Disposition{
		"tls:unknown_authority": chain.DeadLetter, "UNABLE_TO_VERIFY_LEAF_SIGNATURE": chain.DeadLetter,
		"tls:expired": chain.DeadLetter, "CERT_HAS_EXPIRED": chain.DeadLetter,
		"tls:hostname": chain.DeadLetter, "ERR_TLS_CERT_ALTNAME_INVALID": chain.DeadLetter,
		"tls:alert": chain.DeadLetter, "javax.net.ssl.SSLHandshakeException": chain.DeadLetter,
		"dns:not_found": chain.DeadLetter, "ENOTFOUND": chain.DeadLetter,
		"tls:handshake_timeout": chain.Retrying, "tls:handshake_reset": chain.Retrying, "ECONNRESET": chain.Retrying,
		"dns:servfail": chain.Retrying, "EAI_AGAIN": chain.Retrying, "dns:timeout": chain.Retrying,
	} {
		f := transient(name)
		f.Signal = deadletter.Signal{Type: name}
		r := b.fail(f)
		require.Equal(t, disposition, r.Disposition, name)
		require.Equal(t, uint64(1), b.last().Envelope.Attempt, name)
		require.NotContains(t, r.ErrorCode, "unclassified", name)
	}
}

// TestTC29Unknown: what the table does not know is a dead letter at the first attempt, whatever wish comes along, and
// it is counted by stage, once for each that is recorded.
func TestTC29Unknown(t *testing.T) {
	b := newBench(t)
	for i, s := range []deadletter.Signal{{}, {Type: "acme.errors.Frobnication"}, {Type: "nil"}, {HTTPStatus: 511, RetryAfter: "30"},
		{Type: "grpc:RESOURCE_EXHAUSTED"}} {
		f := transient("unknown " + strconv.Itoa(i))
		f.Stage, f.Signal = chain.StageNormalize, s
		r := b.fail(f)
		require.Equal(t, chain.DeadLetter, r.Disposition)
		require.Equal(t, "normalize.unclassified", r.ErrorCode)
		require.Equal(t, uint64(1), b.last().Envelope.Attempt)
		f.Body = strings.NewReader("unknown " + strconv.Itoa(i))
		require.True(t, b.fail(f).Known)
		_, err := b.Lease(t.Context(), r.PayloadRef, "w/1", time.Minute)
		require.Error(t, err, "never tried again")
	}
	require.Equal(t, uint64(5), b.Unclassified(chain.StageNormalize))
	_, err := b.FailJob(t.Context(), b.lease(b.ingest("at work").PayloadRef), deadletter.Breakdown{Stage: chain.StageDispatch,
		Signal: deadletter.Signal{Type: "*errors.errorString"}})
	require.NoError(t, err)
	b.fail(transient("known"))
	b.fail(failure("known too"))
	require.Equal(t, uint64(1), b.Unclassified(chain.StageDispatch))
	require.Equal(t, uint64(5), b.Unclassified(chain.StageNormalize))
	require.Zero(t, b.Unclassified(chain.StageParse)+b.Unclassified(chain.StageValidate)+b.Unclassified("printing"))
}

// TestPoisonHandedOver: a payload that took its worker down is quarantined; one whose worker was stopped or killed is not.
func TestPoisonHandedOver(t *testing.T) {
	b := newBench(t)
	for name, disposition := range map[string]chain.Disposition{"crash:SIGSEGV": chain.Poison, "signal:SIGABRT": chain.Poison,
		"exit:139": chain.Poison, "exit:137": chain.DeadLetter, "signal:SIGKILL": chain.DeadLetter, "exit:143": chain.Retrying,
		"exit:75": chain.Retrying, "exit:65": chain.DeadLetter, "exit:1": chain.DeadLetter} {
		f := transient(name)
		f.Signal = deadletter.Signal{Type: name}
		require.Equal(t, disposition, b.fail(f).Disposition, name)
	}
}
