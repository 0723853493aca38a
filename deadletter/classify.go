package deadletter

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// RulesVersion names the classifier table; it stands in every envelope as "table/row". A change of the table is
// a new version, so that an auditor can tell which rule decided.
const RulesVersion = "classify-1"

// Signal is what a sender says about an error, in the words of the system that raised it. The most specific one
// given decides: Code, then HTTPStatus, then Type.
type Signal struct {
	// Code is a code of the closed vocabulary ("validate.vin_length"), for senders that know it.
	Code string
	// HTTPStatus is the answer of a server, 100 to 599; 0 means none.
	HTTPStatus int
	// Type names the error: an OS error ("ECONNRESET"), "timeout", "dns:timeout", "tls:unknown_authority",
	// "grpc:UNAVAILABLE", "sqlstate:40001", "s3:SlowDown", "nats:no_responders", "crash:SIGSEGV".
	Type string
	// RetryAfter is the header of that name, as it came; see ParseRetryAfter.
	RetryAfter string
}

func (s Signal) validate() error {
	switch {
	case s.HTTPStatus != 0 && (s.HTTPStatus < 100 || s.HTTPStatus > 599):
		return field("http_status", "must be 100 to 599")
	case s.Code != "" && !chain.ValidCode(s.Code):
		return field("error_code", "must be the stage, a dot and a lower_snake symbol")
	case len(s.Type) > 200:
		return field("error_type", "must have at most 200 bytes")
	case len(s.RetryAfter) > 200:
		return field("retry_after", "must have at most 200 bytes")
	}
	return nil
}

// Verdict is what the classifier says of an error.
type Verdict struct {
	Class      chain.Class
	Code       string
	Rule       string
	Poison     bool
	Evidence   string // of a crash
	RetryAfter time.Duration
}

// row is one line of the table: the signals it matches, what it says of them, and the symbol of the error code.
// A pattern that ends in * matches by prefix; the first row that matches decides.
type row struct {
	patterns string // separated by blanks, lower case
	class    chain.Class
	symbol   string
}

// table lists every transient error; whatever is not listed is permanent. Rows of permanent errors only give
// the error a name. Sources: RFC 9110 and RFC 6585 (HTTP), gRPC status codes, PostgreSQL appendix A, the S3
// error responses, errno(3).
var table = []row{
	{"http:429", chain.Transient, "http_429"},
	{"http:500", chain.Transient, "http_500"},
	{"http:502", chain.Transient, "http_502"},
	{"http:503", chain.Transient, "http_503"},
	{"http:504", chain.Transient, "http_504"},
	{"http:408", chain.Transient, "http_408"},
	{"http:425", chain.Transient, "http_425"},
	{"http:501 http:505 http:511", chain.Permanent, "unclassified"},
	{"http:401 http:403", chain.Permanent, "http_credentials"},
	{"http:409", chain.Permanent, "http_409"},
	{"http:413", chain.Permanent, "http_413"},
	{"http:422", chain.Permanent, "http_422"},
	{"http:4*", chain.Permanent, "http_4xx"},
	{"http:3*", chain.Permanent, "http_3xx"},

	{"econnreset", chain.Transient, "net_reset"},
	{"epipe", chain.Transient, "net_broken_pipe"},
	{"econnrefused", chain.Transient, "net_refused"},
	{"ehostunreach enetunreach", chain.Transient, "net_unreachable"},
	{"unexpected_eof", chain.Transient, "net_unexpected_eof"},
	{"etimedout io_timeout tls:handshake_timeout", chain.Transient, "net_timeout"},
	{"tls:handshake_reset", chain.Transient, "net_reset"},
	{"http2:goaway http2:refused_stream", chain.Transient, "net_http2"},
	{"timeout deadline_exceeded", chain.Transient, "timeout"},
	{"dns:timeout dns:servfail", chain.Transient, "dns_temp"},
	{"dns:not_found dns:nxdomain", chain.Permanent, "dns_notfound"},
	{"tls:unknown_authority", chain.Permanent, "tls_unknown_authority"},
	{"tls:hostname", chain.Permanent, "tls_hostname"},
	{"tls:expired tls:certificate_invalid", chain.Permanent, "tls_certificate"},
	{"tls:alert", chain.Permanent, "tls_alert"},

	{"grpc:unavailable", chain.Transient, "grpc_unavailable"},
	{"grpc:deadline_exceeded", chain.Transient, "grpc_deadline"},
	{"grpc:aborted", chain.Transient, "grpc_aborted"},

	{"sqlstate:40001", chain.Transient, "pg_40001"},
	{"sqlstate:40p01", chain.Transient, "pg_40p01"},
	{"sqlstate:08*", chain.Transient, "pg_08"},
	{"sqlstate:53300", chain.Transient, "pg_53300"},
	{"sqlstate:57p01 sqlstate:57p02 sqlstate:57p03", chain.Transient, "pg_57p"},
	{"sqlstate:55p03", chain.Transient, "pg_55p03"},
	{"sqlstate:22*", chain.Permanent, "pg_22"},
	{"sqlstate:23*", chain.Permanent, "pg_23"},
	{"sqlstate:42*", chain.Permanent, "pg_42"},

	{"s3:slowdown*", chain.Transient, "s3_slowdown"},
	{"s3:internalerror", chain.Transient, "s3_internal"},
	{"s3:requesttimeout", chain.Transient, "s3_timeout"},
	{"s3:serviceunavailable", chain.Transient, "s3_unavailable"},
	{"s3:requesttimetooskewed", chain.Transient, "s3_skew"},
	{"s3:accessdenied", chain.Permanent, "s3_access_denied"},
	{"s3:nosuchbucket", chain.Permanent, "s3_no_bucket"},
	{"s3:invalidobjectstate", chain.Permanent, "s3_object_state"},

	{"nats:no_responders", chain.Transient, "nats_no_responders"},
	{"nats:timeout", chain.Transient, "nats_timeout"},
	{"nats:not_leader", chain.Transient, "nats_not_leader"},

	{"schema", chain.Permanent, "schema"},
	{"parse", chain.Permanent, "parse"},
	{"rule", chain.Permanent, "rule"},
}

// crashes is the prefix of signals that quarantine: the payload took its worker down.
const crashes = "crash:"

// crashSymbols are the crashes that have a code of their own; any other is "crash".
var crashSymbols = map[string]bool{"sigsegv": true, "sigabrt": true, "sigkill": true, "sigbus": true, "sigill": true,
	"sigfpe": true, "panic": true, "oom": true, "exit": true, "limit": true}

// Classify decides by the table whether an error is transient. Transient only by positive listing; what it
// does not know is permanent and unclassified.
func (q *Queue) Classify(stage chain.Stage, s Signal) Verdict {
	if s.Code != "" && q.codes[s.Code] && strings.HasPrefix(s.Code, string(stage)+".") {
		return Verdict{Class: chain.Permanent, Code: s.Code, Rule: RulesVersion + "/code"}
	}
	return Classify(stage, s, time.Now())
}

// Classify is the table alone, without the codes of processors; now is for dates in RetryAfter.
func Classify(stage chain.Stage, s Signal, now time.Time) Verdict {
	key := strings.ToLower(s.Type)
	if s.HTTPStatus != 0 {
		key = "http:" + strconv.Itoa(s.HTTPStatus)
	}
	if kind, ok := strings.CutPrefix(key, crashes); ok {
		return crash(stage, kind)
	}
	for _, r := range table {
		if !r.matches(key) {
			continue
		}
		v := Verdict{Class: r.class, Code: string(stage) + "." + r.symbol, Rule: RulesVersion + "/" + r.symbol}
		if r.class == chain.Transient {
			v.RetryAfter = ParseRetryAfter(s.RetryAfter, now)
		}
		return v
	}
	return Verdict{Class: chain.Permanent, Code: string(stage) + ".unclassified", Rule: RulesVersion + "/unlisted"}
}

func crash(stage chain.Stage, kind string) Verdict {
	symbol := "crash"
	if crashSymbols[kind] {
		symbol = "crash_" + kind
	}
	return Verdict{Class: chain.Permanent, Code: string(stage) + "." + symbol, Rule: RulesVersion + "/crash",
		Poison: true, Evidence: symbol}
}

func (r row) matches(key string) bool {
	for p := range strings.FieldsSeq(r.patterns) {
		prefix, wild := strings.CutSuffix(p, "*")
		if key == p || wild && strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}
