package dvir

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxMetres bounds a plausible odometer: 3,000,000 miles, beyond the life of any truck.
const maxMetres = 3_000_000 * 1609.344

// rollbackMetres is how much lower a reading may be than an earlier one, two miles: sources
// that round to whole miles or kilometres, up or down, differ by less on a parked vehicle.
const rollbackMetres = 2 * 1610

// inspector judges what the schema cannot say. It takes the report as it is, valid or not,
// and passes over what the schema has refused.
type inspector struct {
	report   object
	received time.Time
	findings []Finding
}

func (i *inspector) find(code, pointer string) {
	i.findings = append(i.findings, Finding{Code: code, Pointer: pointer})
}

func (i *inspector) warn(code, pointer string) {
	i.findings = append(i.findings, Finding{Code: code, Pointer: pointer, Warning: true})
}

func (i *inspector) vins() {
	i.vin(member(i.report, "vehicle"), "/vehicle/vin")
	for n, trailer := range objects(i.report, "trailers") {
		i.vin(trailer, pointer("trailers", strconv.Itoa(n), "vin"))
	}
}

func (i *inspector) vin(unit object, pointer string) {
	vin := textOf(unit, "vin")
	if vin == "" || vinShape(vin) != "" {
		return
	}
	if f, found := judgeVIN(vin, pointer); found {
		i.findings = append(i.findings, f)
	}
}

// stamps are the times of a report that others are compared with; absent or unusable ones
// are the zero time.
type stamps struct{ started, reported, signed, certified, reviewed time.Time }

func (i *inspector) times() {
	at := func(path ...string) time.Time { return i.time(lookup(i.report, path...), path...) }
	s := stamps{
		started:   at("inspection", "started_at"),
		reported:  at("inspection", "reported_at"),
		signed:    at("driver_signature", "signed_at"),
		certified: at("carrier_certification", "signature", "signed_at"),
		reviewed:  at("next_driver_review", "signature", "signed_at"),
	}
	for n, defect := range objects(i.report, "defects") {
		i.time(defect["repaired_at"], "defects", strconv.Itoa(n), "repaired_at")
	}
	i.order(s)
}

// time reads an instant and judges it alone.
func (i *inspector) time(v any, path ...string) time.Time {
	t, ok := instant(v)
	text, _ := v.(string)
	switch {
	case !ok && leapSecond.MatchString(text), ok && t.Before(earliest):
		i.find(codeTimeImplausible, pointer(path...))
	case ok && !i.received.IsZero() && t.After(i.received.Add(clockSkew)):
		i.find(codeTimeFuture, pointer(path...))
	}
	return t
}

// order holds the sequence of a report's life: inspection, report, certification (396.11
// (a)(3)), review by the next driver (396.13). The driver signs a little before or after
// the report is sent, but never before the inspection began.
func (i *inspector) order(s stamps) {
	precedes := func(a, b time.Time) bool { return !a.IsZero() && !b.IsZero() && a.Before(b) }
	if precedes(s.reported, s.started) {
		i.find(codeTimeOrder, "/inspection/started_at")
	}
	if precedes(s.signed, s.started) {
		i.find(codeSignatureOrder, "/driver_signature/signed_at")
	}
	if precedes(s.certified, s.reported) {
		i.find(codeSignatureOrder, "/carrier_certification/signature/signed_at")
	}
	if precedes(s.reviewed, s.reported) || precedes(s.reviewed, s.certified) {
		i.find(codeSignatureOrder, "/next_driver_review/signature/signed_at")
	}
}

// signers warns where a signature comes from a person or role not meant for it. The rule
// speaks of the carrier or its agent, so that a driver may lawfully certify.
func (i *inspector) signers() {
	reporter := member(i.report, "driver_signature")
	certifier := member(member(i.report, "carrier_certification"), "signature")
	reviewer := member(member(i.report, "next_driver_review"), "signature")
	id := textOf(certifier, "signer_id")
	if id != "" && (id == textOf(reporter, "signer_id") || id == textOf(member(i.report, "driver"), "driver_id")) {
		i.warn(codeSignerRole, "/carrier_certification/signature/signer_id")
	}
	i.role(reporter, "/driver_signature/role", "driver")
	i.role(certifier, "/carrier_certification/signature/role", "mechanic", "carrier_agent")
	i.role(reviewer, "/next_driver_review/signature/role", "driver")
}

func (i *inspector) role(signature object, pointer string, meant ...string) {
	known := []string{"driver", "mechanic", "carrier_agent"}
	if role := textOf(signature, "role"); slices.Contains(known, role) && !slices.Contains(meant, role) {
		i.warn(codeSignerRole, pointer)
	}
}

func (i *inspector) defects() {
	trailers := map[string]bool{}
	for _, t := range objects(i.report, "trailers") {
		trailers[textOf(t, "trailer_id")] = true
	}
	certified := member(i.report, "carrier_certification") != nil
	removed := textOf(member(i.report, "next_driver_review"), "not_required_reason") == "towed_unit_removed"
	for n, d := range objects(i.report, "defects") {
		at := func(name string) string { return pointer("defects", strconv.Itoa(n), name) }
		if words := textOf(d, "description"); textOf(d, "code") == "OTHER" && utf8.RuneCountInString(words) >= 3 && wordless(words) {
			i.find(codeDescription, at("description"))
		}
		open := textOf(d, "repair_status") == "open"
		id := textOf(d, "trailer_id")
		if textOf(d, "unit") == "trailer" && id != "" && len(trailers) > 0 && !trailers[id] {
			i.find(codeTrailerUnknown, at("trailer_id"))
		}
		if open && outOfService(d) && i.report["safe_to_operate"] == true {
			i.find(codeContradiction, "/safe_to_operate")
		}
		if open && certified && d["affects_safe_operation"] == true {
			i.find(codeCertInconsist, at("repair_status"))
		}
		if removed && textOf(d, "unit") == "vehicle" {
			i.find(codeReviewMissing, "/next_driver_review/not_required_reason")
		}
	}
}

// wordless tells text without a letter or digit: long enough for the schema, and still no description.
func wordless(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

func (i *inspector) distances() {
	i.distance(member(i.report, "vehicle")["odometer"], "/vehicle/odometer/value")
	for n, t := range objects(i.report, "trailers") {
		i.distance(t["hubometer"], pointer("trailers", strconv.Itoa(n), "hubometer", "value"))
	}
}

func (i *inspector) distance(v any, pointer string) {
	if m, ok := metres(v); ok && m > maxMetres {
		i.find(codeImplausible, pointer)
	}
}

// metres is the length of a distance of the contract.
func metres(v any) (float64, bool) {
	d, _ := v.(object)
	perUnit, known := map[string]float64{"mi": 1609.344, "tenth_mi": 160.9344, "km": 1000, "m": 1}[textOf(d, "unit")]
	f, ok := float(d["value"])
	return f * perUnit, ok && known && f >= 0
}

// readingOf is the odometer of a report with the time of the report, nil unless both are
// usable.
func readingOf(report object) *Reading {
	m, ok := metres(member(report, "vehicle")["odometer"])
	at, reported := instant(member(report, "inspection")["reported_at"])
	if !ok || !reported || m > maxMetres {
		return nil
	}
	return &Reading{Metres: int64(math.Round(m)), At: at}
}

// rollback compares with the last reading of the unit. A report older than that reading
// is late, not rolled back.
func (i *inspector) rollback(unit string, h History) {
	now := readingOf(i.report)
	if h == nil || unit == "" || now == nil {
		return
	}
	last, known := h.LastReading(unit)
	if known && !now.At.Before(last.At) && now.Metres < last.Metres-rollbackMetres {
		i.find(codeRollback, "/vehicle/odometer/value")
	}
}

// texts notes characters that change what a reader sees: controls other than tab and line
// ends, and those that turn the direction of writing.
func (i *inspector) texts() { i.text(i.report, make([]string, 0, 8)) }

func (i *inspector) text(v any, path []string) {
	switch v := v.(type) {
	case object:
		for name, e := range v {
			if contract().names[name] {
				i.text(e, append(path, name))
			}
		}
	case []any:
		for n, e := range v {
			i.text(e, append(path, strconv.Itoa(n)))
		}
	case string:
		if deceptive(v) {
			i.warn(codeTextControl, pointer(path...))
		}
	}
}

func deceptive(s string) bool {
	for _, r := range s {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r >= 0x7f && r < 0xa0 ||
			r >= 0xa0 && unicode.Is(unicode.Bidi_Control, r) {
			return true
		}
	}
	return false
}

// member is a member that is an object, nil if it is not; a nil object has no members.
func member(o object, name string) object {
	m, _ := o[name].(object)
	return m
}

func textOf(o object, name string) string {
	s, _ := o[name].(string)
	return s
}

// objects yields the elements of a list that are objects, with their places.
func objects(o object, name string) func(func(int, object) bool) {
	list, _ := o[name].([]any)
	return func(yield func(int, object) bool) {
		for n, e := range list {
			if d, ok := e.(object); ok && !yield(n, d) {
				return
			}
		}
	}
}

// float is the value of a number of the tree.
func float(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}
