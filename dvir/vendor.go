package dvir

import (
	"encoding/json"
	"strings"
	"time"
)

// vendors read the JSON documents of one vendor each, in its shapes. They map what is stated and guess nothing: what a
// report needs and the document does not tell is a finding.
func vendors() []reader {
	return []reader{readRefusal, readSamsara, readMotive, readLytx, readGeotab, readFleetio, readTrimble, readExtraction}
}

// readVendor asks the vendors.
func readVendor(s *source) (reading, bool) {
	for _, r := range vendors() {
		if got, ok := r(s); ok {
			got.findings = s.withMark(got.findings...)
			return got, true
		}
	}
	return reading{}, false
}

// notReport is what a message is that carries no report.
func notReport() (reading, bool) { return refuse(codeNotReport), true }

// one maps the only document of a list. More of them in one payload wait for a person, and none is no report.
func one(list []any, document func(object) reading) (reading, bool) {
	if len(list) == 0 {
		return notReport()
	}
	o, ok := list[0].(object)
	if len(list) > 1 || !ok {
		return refuse(codeUnsupported), true
	}
	return document(o), true
}

// of follows names into nested objects and gives what stands there as text: numbers as they are spelled.
func of(v any, path ...string) string {
	switch v := lookup(v, path...).(type) {
	case string:
		return strings.TrimSpace(v)
	case json.Number:
		return v.String()
	}
	return ""
}

// list is an array member; nothing else is one.
func list(v any, path ...string) []any {
	l, _ := lookup(v, path...).([]any)
	return l
}

// put sets members that are there: "" and nil are not.
func put(o object, name string, value any) {
	switch v := value.(type) {
	case nil:
		return
	case string:
		if v == "" {
			return
		}
	case object:
		if len(v) == 0 {
			return
		}
	}
	o[name] = value
}

// draft is a report of a vendor under its own id.
func (s *source) draft(vendor, id string) object {
	channel := s.Channel
	if !contract().words[channel] {
		channel = "telematics_api" // where documents of vendors come from, if nobody says otherwise
	}
	return object{
		"schema_version": "1.0",
		"dvir_id":        vendor + ":" + id,
		"source":         object{"channel": channel, "vendor": vendor, "record_id": id, "mapping": vendor + "/1"},
		"stage":          "submitted",
		"inspection":     object{"type": "unspecified", "time_basis": "stated"},
		"vehicle":        object{},
		"defects":        []any{},
		"defects_found":  false,
	}
}

// add takes a defect into the report.
func add(report, defect object) {
	report["defects"] = append(report["defects"].([]any), defect)
	report["defects_found"] = true
}

// signature is that of a person whom the vendor names.
func signature(id, name, role, at string) object {
	o := object{}
	if id == "" && name == "" && at == "" {
		return o
	}
	put(o, "signer_id", id)
	put(o, "signer_name", name)
	put(o, "role", role)
	put(o, "signed_at", at)
	o["method"] = "vendor_asserted"
	return o
}

// odometer is a reading as it is spelled; basis says how its unit is known.
func odometer(v any, unit, basis string) any {
	if v == nil {
		return nil
	}
	return object{"value": v, "unit": unit, "unit_basis": basis}
}

// millis is a time of Unix milliseconds, "" if it is none.
func millis(v any) string {
	n, ok := v.(json.Number)
	if !ok {
		return ""
	}
	ms, err := n.Int64()
	if err != nil || ms <= 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

// tripOf is the type of an inspection in the contract's words.
func tripOf(text string) string {
	switch strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(text)) {
	case "pretrip":
		return "pre_trip"
	case "posttrip":
		return "post_trip"
	}
	return "unspecified"
}

// graded is the severity that a vendor gives in a word.
func graded(word string) any {
	switch strings.ToLower(word) {
	case "minor":
		return object{"score": json.Number("20"), "band": "minor", "source_value": word}
	case "major":
		return object{"score": json.Number("50"), "band": "major", "source_value": word}
	}
	return nil
}

// full joins a name.
func full(first, last string) string { return strings.TrimSpace(first + " " + last) }
