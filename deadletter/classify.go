package deadletter

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Signal is what a sender says about an error, in the words of the system that raised it. The most specific one
// given decides: Code, then HTTPStatus, then Type.
type Signal struct {
	// Code is a code of the closed vocabulary ("validate.vin_length"), for senders that know it.
	Code string
	// HTTPStatus is the answer of a server, 100 to 599; 0 means none.
	HTTPStatus int
	// Type names the error: an OS error ("ECONNRESET"), "timeout", "dns:timeout", "tls:unknown_authority",
	// "grpc:UNAVAILABLE", "sqlstate:40001", "s3:SlowDown", "nats:no_responders", "exit:75", "crash:SIGSEGV", or the
	// class of an exception, qualified or not ("requests.exceptions.ConnectTimeout"). The letter case is of no matter.
	Type string
	// RetryAfter is the header of that name, or the delay of a gRPC RetryInfo, as it came; see ParseRetryAfter.
	RetryAfter string
}

// Validate reports the first member that breaks its rule, as a *chain.FieldError.
func (s Signal) Validate() error {
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
	r, known := index.find(s.key())
	if !known {
		return Verdict{Class: chain.Permanent, Code: string(stage) + "." + unclassified, Rule: RulesVersion + "/unlisted"}
	}
	v := Verdict{Class: r.effect.class(), Code: string(stage) + "." + r.symbol, Rule: RulesVersion + "/" + r.symbol}
	switch r.effect {
	case transient:
		v.RetryAfter = ParseRetryAfter(s.RetryAfter, now)
	case onRequest:
		if v.RetryAfter = ParseRetryAfter(s.RetryAfter, now); v.RetryAfter > 0 {
			v.Class = chain.Transient
		} else {
			v.Code = string(stage) + "." + unclassified
		}
	case poison:
		v.Poison, v.Evidence = true, r.symbol
	case permanent:
	}
	return v
}

// spellings are other beginnings of signals, and the one that the table has.
var spellings = [][2]string{{"minio:", "s3:"}, {"pg:", "sqlstate:"}, {"postgres:", "sqlstate:"}, {"pgcode:", "sqlstate:"},
	{"grpc:statuscode.", "grpc:"}}

// key is the signal that decides, as the table spells it.
func (s Signal) key() string {
	if s.HTTPStatus != 0 {
		return "http:" + strconv.Itoa(s.HTTPStatus)
	}
	key := strings.ToLower(s.Type)
	for _, spelling := range spellings {
		if rest, ok := strings.CutPrefix(key, spelling[0]); ok {
			return spelling[1] + rest
		}
	}
	return key
}

// Unclassified counts the failures at a stage that this queue recorded as <stage>.unclassified, since it was opened:
// they are what the table may have to learn.
func (q *Queue) Unclassified(stage chain.Stage) uint64 {
	if n := q.unclassified[stage]; n != nil {
		return n.Load()
	}
	return 0
}

// count notes what was recorded about a failure.
func (q *Queue) count(r Receipt) {
	stage, symbol, _ := strings.Cut(r.ErrorCode, ".")
	if n := q.unclassified[chain.Stage(stage)]; n != nil && symbol == unclassified && !r.Known {
		n.Add(1)
	}
}
