package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// deliveredRules names the rules by which what a worker outside says becomes a completion.
const deliveredRules = "pull-1"

// Delivered is the completion of a payload by a worker outside of the service. record is kept as it came and must be one
// JSON object; without one the record is a note that the payload was delivered, the same for every try. outcome is admit,
// admit_with_warning or, without a record, ignored; "" means admit. Errors: *chain.FieldError.
func Delivered(l chain.Letter, outcome chain.Outcome, code string, record []byte) (*deadletter.Completion, error) {
	c := &deadletter.Completion{Outcome: outcome, OutcomeCode: code, Rules: deliveredRules}
	switch outcome {
	case "":
		c.Outcome = chain.Admit
	case chain.Admit, chain.AdmitWithWarning:
	case chain.Ignored:
		if len(record) > 0 {
			return nil, &chain.FieldError{Field: "record", Rule: "must be absent when the payload is ignored"}
		}
		return c, nil
	default:
		return nil, &chain.FieldError{Field: "outcome", Rule: "must be admit, admit_with_warning or ignored"}
	}
	if len(record) == 0 {
		record = fmt.Appendf(nil, `{"delivered":"%s"}`, l.Ref)
	}
	if !oneObject(record) {
		return nil, &chain.FieldError{Field: "record", Rule: "must be one JSON object in UTF-8 (RFC 8259), without a byte order mark"}
	}
	c.Record, c.Content = record, chain.Sum(record)
	return c, nil
}

// oneObject tells whether raw is one JSON object in UTF-8 (RFC 8259).
func oneObject(raw []byte) bool {
	return utf8.Valid(raw) && json.Valid(raw) && bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{"))
}
