package deadletter

import (
	"strings"

	"github.com/holdfast-dvir/holdfast/chain"
)

// RulesVersion names the classifier table; it stands in every envelope as "table/row". A change of the table is
// a new version, so that an auditor can tell which rule decided.
const RulesVersion = "classify-2"

// effect is what a row says of its errors.
type effect string

const (
	permanent effect = "permanent"
	transient effect = "transient"
	onRequest effect = "transient with a Retry-After, else permanent and unclassified"
	poison    effect = "poison"
)

func (e effect) class() chain.Class {
	if e == transient {
		return chain.Transient
	}
	return chain.Permanent
}

// row is one line of the table: the signals it is for, what it says of them, and the symbol of the error code.
// Signals are separated by blanks and in lower case. One that ends in * is a prefix. One without a colon is the name
// of an error or of its class, and is also found at the end of a qualified name: "timeout" in
// "requests.exceptions.timeout". Every signal stands in the table once.
type row struct {
	signals string
	effect  effect
	symbol  string
}

// family is the part of the table for one kind of signals.
type family struct {
	name string // with its source
	rows []row
}

// unclassified is the symbol of what no row knows, and of what a row lists only to say that it is not known whether
// trying again can help.
const unclassified = "unclassified"

// table lists every transient error; whatever is not listed is permanent. Rows of permanent errors only give the
// error a name. A class that is raised for lasting and for passing causes alike is never listed as transient, unless
// its usual cause passes.
var table = []family{
	{"HTTP status (RFC 9110, RFC 6585)", []row{
		{"http:429 toomanyrequests", transient, "http_429"},
		{"http:500", transient, "http_500"},
		{"http:502 badgateway", transient, "http_502"},
		{"http:503 serviceunavailable", transient, "http_503"},
		{"http:504 gatewaytimeout", transient, "http_504"},
		{"http:408", transient, "http_408"},
		{"http:425", transient, "http_425"},
		{"http:501 http:505 http:511", permanent, unclassified},
		{"http:401 http:403", permanent, "http_credentials"},
		{"http:409", permanent, "http_409"},
		{"http:413", permanent, "http_413"},
		{"http:422", permanent, "http_422"},
		{"http:4*", permanent, "http_4xx"},
		{"http:3*", permanent, "http_3xx"},
	}},
	{"Connections: errno(3), Winsock, and the classes of Python, Java, .NET and Node", []row{
		{"econnreset wsaeconnreset connectionreseterror socketerror.connectionreset connectionclosederror", transient, "net_reset"},
		{"econnaborted wsaeconnaborted connectionabortederror socketerror.connectionaborted", transient, "net_reset"},
		{"enetreset wsaenetreset und_err_socket httpx.readerror httpx.writeerror tls:handshake_reset", transient, "net_reset"},
		{"epipe brokenpipeerror", transient, "net_broken_pipe"},
		{"econnrefused wsaeconnrefused connectionrefusederror socketerror.connectionrefused", transient, "net_refused"},
		{"connectexception httphostconnectexception", transient, "net_refused"},
		{"ehostunreach enetunreach ehostdown enetdown wsaehostunreach wsaenetunreach wsaehostdown wsaenetdown", transient, "net_unreachable"},
		{"socketerror.hostunreachable socketerror.networkunreachable socketerror.hostdown socketerror.networkdown", transient, "net_unreachable"},
		{"noroutetohostexception portunreachableexception", transient, "net_unreachable"},
		{"connectionerror newconnectionerror clientconnectorerror endpointconnectionerror java.net.socketexception", transient, "net_connection"},
		{"unexpected_eof errunexpectedeof incompleteread remotedisconnected chunkedencodingerror urllib3.exceptions.protocolerror", transient, "net_unexpected_eof"},
		{"serverdisconnectederror clientpayloaderror httpx.remoteprotocolerror", transient, "net_unexpected_eof"},
		{"nohttpresponseexception prematurecloseexception httprequesterror.responseended", transient, "net_unexpected_eof"},
		{"etimedout wsaetimedout io_timeout esockettimedout socketerror.timedout tls:handshake_timeout", transient, "net_timeout"},
		{"connecttimeout readtimeout writetimeout pooltimeout connecttimeouterror readtimeouterror", transient, "net_timeout"},
		{"servertimeouterror connectiontimeouterror sockettimeouterror", transient, "net_timeout"},
		{"und_err_connect_timeout und_err_headers_timeout und_err_body_timeout", transient, "net_timeout"},
		{"sockettimeoutexception connecttimeoutexception httptimeoutexception httpconnecttimeoutexception", transient, "net_timeout"},
		{"timeout deadline_exceeded deadlineexceeded errdeadlineexceeded timeouterror timeoutexception", transient, "timeout"},
		{"http2:goaway http2:refused_stream err_http2_goaway_session", transient, "net_http2"},
	}},
	// A class that does not tell an unknown name from a name server in trouble is permanent.
	{"Names of hosts: getaddrinfo(3), Winsock, c-ares", []row{
		{"dns:timeout dns:servfail dns:temporary", transient, "dns_temp"},
		{"eai_again wsatry_again socketerror.tryagain eservfail etimeout", transient, "dns_temp"},
		{"dns:not_found dns:nxdomain", permanent, "dns_notfound"},
		{"enotfound eai_noname eai_nodata wsahost_not_found socketerror.hostnotfound", permanent, "dns_notfound"},
		{"gaierror herror unknownhostexception dnserror nameresolutionerror clientconnectordnserror", permanent, "dns_failed"},
	}},
	{"TLS: crypto/x509, OpenSSL as Node names it, and the classes of Python, Java and .NET", []row{
		{"tls:unknown_authority unknownauthorityerror", permanent, "tls_unknown_authority"},
		{"depth_zero_self_signed_cert self_signed_cert_in_chain unable_to_verify_leaf_signature", permanent, "tls_unknown_authority"},
		{"unable_to_get_issuer_cert unable_to_get_issuer_cert_locally", permanent, "tls_unknown_authority"},
		{"tls:hostname hostnameerror err_tls_cert_altname_invalid sslpeerunverifiedexception", permanent, "tls_hostname"},
		{"tls:expired tls:certificate_invalid certificateinvaliderror certificateverificationerror", permanent, "tls_certificate"},
		{"cert_has_expired cert_not_yet_valid cert_revoked cert_untrusted", permanent, "tls_certificate"},
		{"sslcertverificationerror clientconnectorcertificateerror", permanent, "tls_certificate"},
		{"certificateexpiredexception certificatenotyetvalidexception certpathvalidatorexception certpathbuilderexception", permanent, "tls_certificate"},
		{"sun.security.validator.validatorexception suncertpathbuilderexception", permanent, "tls_certificate"},
		{"tls:alert alerterror err_ssl_*", permanent, "tls_alert"},
		{"tls:not_tls recordheadererror errschememismatch", permanent, "tls_not_spoken"},
		{"sslerror sslhandshakeexception sslexception clientconnectorsslerror", permanent, "tls_failed"},
		{"system.security.authentication.authenticationexception httprequesterror.secureconnectionerror", permanent, "tls_failed"},
	}},
	{"gRPC status, by name as C, Go and others spell it, and by number", []row{
		{"grpc:unavailable grpc:14 unavailable", transient, "grpc_unavailable"},
		{"grpc:deadline_exceeded grpc:deadlineexceeded grpc:4", transient, "grpc_deadline"},
		{"grpc:aborted grpc:10 aborted", transient, "grpc_aborted"},
		{"grpc:resource_exhausted grpc:resourceexhausted grpc:8 resource_exhausted resourceexhausted", onRequest, "grpc_exhausted"},
		{"grpc:invalid_argument grpc:invalidargument grpc:3 invalid_argument invalidargument", permanent, "grpc_argument"},
		{"grpc:out_of_range grpc:outofrange grpc:11 out_of_range outofrange", permanent, "grpc_argument"},
		{"grpc:not_found grpc:notfound grpc:5 not_found", permanent, "grpc_notfound"},
		{"grpc:already_exists grpc:alreadyexists grpc:6 already_exists alreadyexists", permanent, "grpc_exists"},
		{"grpc:permission_denied grpc:permissiondenied grpc:7 permission_denied permissiondenied", permanent, "grpc_credentials"},
		{"grpc:unauthenticated grpc:16 unauthenticated", permanent, "grpc_credentials"},
		{"grpc:failed_precondition grpc:failedprecondition grpc:9 failed_precondition failedprecondition", permanent, "grpc_precondition"},
		{"grpc:unimplemented grpc:12 unimplemented", permanent, "grpc_unimplemented"},
		{"grpc:internal grpc:13 grpc:unknown grpc:2 grpc:data_loss grpc:dataloss grpc:15 grpc:cancelled grpc:canceled grpc:1", permanent, unclassified},
	}},
	{"SQLSTATE (PostgreSQL, appendix A), and the classes of psycopg, asyncpg and JDBC", []row{
		{"sqlstate:40001 serializationfailure serializationerror", transient, "pg_40001"},
		{"sqlstate:40p01 deadlockdetected deadlockdetectederror", transient, "pg_40p01"},
		{"sqlstate:08* connectionfailure connectiondoesnotexist connectiondoesnotexisterror", transient, "pg_08"},
		{"psycopg2.operationalerror psycopg.operationalerror", transient, "pg_08"},
		{"sqlstate:53300 toomanyconnections toomanyconnectionserror", transient, "pg_53300"},
		{"sqlstate:57p01 sqlstate:57p02 sqlstate:57p03", transient, "pg_57p"},
		{"adminshutdown crashshutdown cannotconnectnow adminshutdownerror crashshutdownerror cannotconnectnowerror", transient, "pg_57p"},
		{"sqlstate:55p03 locknotavailable locknotavailableerror", transient, "pg_55p03"},
		{"sqltransientexception sqltransientconnectionexception sqltransactionrollbackexception", transient, "sql_transient"},
		{"sqlrecoverableexception sqltimeoutexception", transient, "sql_transient"},
		{"sqlstate:22* dataerror sqldataexception numericvalueoutofrange invalidtextrepresentation stringdatarighttruncation", permanent, "pg_22"},
		{"sqlstate:23* integrityerror sqlintegrityconstraintviolationexception", permanent, "pg_23"},
		{"uniqueviolation uniqueviolationerror foreignkeyviolation notnullviolation checkviolation exclusionviolation", permanent, "pg_23"},
		{"sqlstate:42* programmingerror sqlsyntaxerrorexception undefinedtable undefinedcolumn insufficientprivilege", permanent, "pg_42"},
		{"sqlstate:57014 sqlstate:53100 sqlstate:53200 sqlstate:58030", permanent, unclassified},
	}},
	{"S3 error codes, of AWS and MinIO", []row{
		{"s3:slowdown* slowdown slowdownread slowdownwrite", transient, "s3_slowdown"},
		{"s3:throttling s3:throttlingexception s3:toomanyrequests s3:requestlimitexceeded s3:requestthrottled", transient, "s3_slowdown"},
		{"s3:internalerror", transient, "s3_internal"},
		{"s3:requesttimeout s3:requesttimeoutexception", transient, "s3_timeout"},
		{"s3:serviceunavailable s3:xminioservernotinitialized", transient, "s3_unavailable"},
		{"s3:operationaborted", transient, "s3_conflict"},
		{"s3:requesttimetooskewed requesttimetooskewed", transient, "s3_skew"},
		{"s3:accessdenied", permanent, "s3_access_denied"},
		{"s3:invalidaccesskeyid s3:signaturedoesnotmatch s3:expiredtoken s3:invalidtoken", permanent, "s3_credentials"},
		{"s3:nosuchbucket nosuchbucket", permanent, "s3_no_bucket"},
		{"s3:nosuchkey s3:nosuchversion nosuchkey nosuchversion", permanent, "s3_no_object"},
		{"s3:invalidobjectstate s3:objectlocked invalidobjectstate", permanent, "s3_object_state"},
		{"s3:entitytoolarge entitytoolarge", permanent, "s3_too_large"},
		{"s3:xminiostoragefull s3:baddigest", permanent, unclassified},
	}},
	{"NATS", []row{
		{"nats:no_responders noresponderserror errnoresponders", transient, "nats_no_responders"},
		{"nats:timeout nats.errtimeout", transient, "nats_timeout"},
		{"nats:not_leader", transient, "nats_not_leader"},
	}},
	// To be stopped is nobody's fault; kill -9 does not tell whose fault it was.
	{"Exit status and signals (sysexits.h; a shell adds 128 to a signal, Python negates it)", []row{
		{"exit:75", transient, "exit_tempfail"},
		{"exit:65", permanent, "exit_dataerr"},
		{"signal:sigterm signal:15 exit:143 exit:-15 signal:sigint signal:2 exit:130 exit:-2", transient, "stopped"},
		{"signal:sighup signal:1 exit:129 exit:-1", transient, "stopped"},
		{"signal:sigkill signal:9 exit:137 exit:-9", permanent, "killed"},
	}},
	{"Crashes: the payload took down the process that held nothing else", []row{
		{"crash:sigsegv signal:sigsegv signal:11 exit:139 exit:-11", poison, "crash_sigsegv"},
		{"crash:sigabrt signal:sigabrt signal:6 exit:134 exit:-6", poison, "crash_sigabrt"},
		{"crash:sigbus signal:sigbus signal:7 exit:135 exit:-7", poison, "crash_sigbus"},
		{"crash:sigill signal:sigill signal:4 exit:132 exit:-4", poison, "crash_sigill"},
		{"crash:sigfpe signal:sigfpe signal:8 exit:136 exit:-8", poison, "crash_sigfpe"},
		{"crash:sigkill", poison, "crash_sigkill"},
		{"crash:panic", poison, "crash_panic"},
		{"crash:oom", poison, "crash_oom"},
		{"crash:exit", poison, "crash_exit"},
		{"crash:limit", poison, "crash_limit"},
		{"crash:*", poison, "crash"},
	}},
	{"What is wrong with the payload", []row{
		{"schema schemaerror validationerror validationexception unmarshaltypeerror", permanent, "schema"},
		{"mismatchedinputexception unrecognizedpropertyexception invalidformatexception", permanent, "schema"},
		{"parse parseerror parseexception jsondecodeerror unicodedecodeerror expaterror xmlsyntaxerror", permanent, "parse"},
		{"badzipfile badgzipfile zlib.error csv.error _csv.error parsererror scannererror", permanent, "parse"},
		{"json.syntaxerror xml.syntaxerror csv.parseerror strconv.numerror", permanent, "parse"},
		{"jsonparseexception jsonsyntaxexception malformedjsonexception jsonexception saxparseexception", permanent, "parse"},
		{"malformedinputexception datetimeparseexception jsonreaderexception xmlexception", permanent, "parse"},
		{"rule", permanent, "rule"},
	}},
}

// listing is the table by signal.
type listing struct {
	whole    map[string]row
	prefixes map[string]row
}

var index = list(table)

func list(table []family) listing {
	l := listing{map[string]row{}, map[string]row{}}
	for _, f := range table {
		for _, r := range f.rows {
			for signal := range strings.FieldsSeq(r.signals) {
				if prefix, wild := strings.CutSuffix(signal, "*"); wild {
					l.prefixes[prefix] = r
				} else {
					l.whole[signal] = r
				}
			}
		}
	}
	return l
}

// find looks for a signal, in lower case: as a whole, by prefix, then at the end of a qualified name, the longest first.
func (l listing) find(signal string) (row, bool) {
	if r, ok := l.whole[signal]; ok {
		return r, true
	}
	for prefix, r := range l.prefixes {
		if strings.HasPrefix(signal, prefix) {
			return r, true
		}
	}
	if strings.Contains(signal, ":") {
		return row{}, false
	}
	for name := signal; ; {
		at := strings.IndexAny(name, separators)
		if at < 0 {
			return row{}, false
		}
		name = name[at+1:]
		if r, ok := l.whole[name]; ok {
			return r, true
		}
	}
}

// separators part the last name of a qualified one from the rest: of packages and nested classes in Python, Java, .NET
// and Go, which also marks pointers.
const separators = "./$+*&"
