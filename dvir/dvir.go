// Package dvir is the built-in processor of driver vehicle inspection reports: it turns
// the bytes of one payload into a canonical record, or into findings that say why not.
//
// It is pure: no clock, no I/O, no memory between inputs. The time of receipt is part of
// the input; what the site knows is Config; what happened before comes through History.
//
// # Steps
//
// Readers look at the bytes in order; the first that knows the kind of input yields a
// report or refuses. The report is judged by schema.json (JSON Schema 2020-12) and by what
// a schema cannot say: check digits, order of times and signatures, plausible distances,
// roster, history. All findings are collected, on every step that can still be taken.
//
// # Findings
//
// A finding is a code of the closed list (Codes), a place, and whether it only warns. The
// place is a JSON pointer made of names of the contract and array indices; where a payload
// has a name of its own the pointer stops at its parent. Nothing of a result but
// Record holds payload content.
//
// The result bears the code of the most basic error, else of the most basic warning. Most
// basic means first in Codes:
//
//	bytes and syntax          ingest.*, parse.*
//	version of the contract   validate.schema_version
//	structure                 validate.schema
//	normalisation and times   normalize.*, validate.time_no_offset, time_implausible
//	single fields             vin_*, odometer_*, severity_scale, severity_band, defect_*
//	agreement of fields       vehicle_unidentified, signatures, certification, trailers, order
//	receipt, fleet, history   time_future, roster_mismatch, odometer_rollback
//	identity                  ingest.conflict, ingest.exact_bytes, ingest.logical
//
// The one finding that never names a result is validate.text_control, a note about
// characters that deceive a reader.
//
// # Identity
//
// A report is identified by source.vendor and dvir_id, its version by
// source.record_version. Two inputs hold the same report when they agree in Content.
package dvir

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
	"time"
)

// Version names the rules by which this package judges. It is stored with outcomes and
// changes whenever the same input could be judged otherwise.
const Version = "dvir/2"

// Input is one payload with what is known of its delivery.
type Input struct {
	Data            []byte
	ContentType     string // as declared, may be empty
	ContentEncoding string // as declared, empty when the data is plain
	Channel         string
	ReceivedAt      time.Time // bounds the times in the report; zero bounds nothing
}

// Finding is one thing that is wrong or worth a warning.
type Finding struct {
	Code    string // of the closed list
	Pointer string // RFC 6901; names of the contract and array indices only
	Warning bool   // does not keep the report from being admitted
}

// Result is the judgement of one input.
type Result struct {
	Outcome  Outcome
	Stage    string    // the part of Code before the dot
	Code     string    // of the most basic finding, "" when there is nothing to say
	Findings []Finding // most basic first, at most 1000
	Record   *Record   // nil unless admitted
}

// Record is an admitted report. Everything in it is payload content and must not be
// logged, save Content and Severity.
type Record struct {
	// JSON holds the canonical bytes {"record":1,"rules":...,"report":...,"severity":
	// {"score","band"},"warnings":[{"code","pointer"}]}: the report's members sorted by
	// name, numbers as spelled. The same report with the same warnings gives the same
	// bytes; the time of receipt is not in them.
	JSON []byte

	Vendor   string // source.vendor
	RecordID string // dvir_id
	Version  string // source.record_version, may be empty

	// Content digests the report as decoded, before aliases: it does not depend on white
	// space, order of members, escapes or byte-order mark. Numbers count as spelled.
	Content [sha256.Size]byte

	// Unit identifies the powered unit across reports: "vin:<vin>" (of the report or the
	// roster), else "unit:<usdot>/<number>", "serial:<number>" or
	// "plate:<jurisdiction>/<number>".
	Unit string

	Reading  *Reading // nil when the report has no odometer
	Severity Severity // of the worst defect
}

// Reading is an odometer at the time of the report that states it.
type Reading struct {
	Metres int64
	At     time.Time
}

// History knows the latest odometer of each unit (Record.Unit) among admitted reports.
type History interface {
	LastReading(unit string) (Reading, bool)
}

// Processor judges inputs under one configuration. It is safe for concurrent use.
type Processor struct {
	contract *ruleset
	roster   roster
	aliases  map[string]string
}

// New returns a processor, or a *ConfigError.
func New(c Config) (*Processor, error) {
	r, err := newRoster(c.Units)
	if err != nil {
		return nil, err
	}
	if err := checkAliases(c.DefectAliases); err != nil {
		return nil, err
	}
	return &Processor{contract: contract(), roster: r, aliases: maps.Clone(c.DefectAliases)}, nil
}

// Process judges one input. A nil History knows nothing. It never panics and never fails:
// what cannot be admitted is a result too.
func (p *Processor) Process(in Input, h History) Result {
	got := read(in)
	if got.report == nil {
		return decide(got.findings)
	}
	body := appendJSON(make([]byte, 0, len(in.Data)), got.report)
	content := sha256.Sum256(body)
	if p.resolveAliases(got.report) {
		body = appendJSON(body[:0], got.report)
	}
	findings := append(got.findings, p.contract.check(got.report)...)
	unit := p.unitOf(got.report)
	result := decide(append(findings, p.inspect(got.report, unit, in.ReceivedAt, h)...))
	if result.Outcome == Admit || result.Outcome == AdmitWithWarning {
		result.Record = newRecord(got.report, body, result.Findings)
		result.Record.Content = content
		result.Record.Unit = unit
	}
	return result
}

// inspect judges what the schema cannot say.
func (p *Processor) inspect(report object, unit string, received time.Time, h History) []Finding {
	i := inspector{report: report, received: received}
	i.vins()
	i.times()
	i.signers()
	i.defects()
	i.distances()
	i.texts()
	if p.roster.mismatch(report) {
		i.find(codeRoster, "/vehicle/vin")
	}
	i.rollback(unit, h)
	return i.findings
}

// maxFindings bounds what a hostile payload can make of itself.
const maxFindings = 1000

// decide orders the findings, most basic first and errors before warnings, and names the
// result after the first. A note is never named.
func decide(findings []Finding) Result {
	slices.SortFunc(findings, func(a, b Finding) int {
		if a.Warning != b.Warning {
			if b.Warning {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(ranks[a.Code], ranks[b.Code]), cmp.Compare(a.Pointer, b.Pointer))
	})
	r := Result{Outcome: Admit, Findings: slices.Compact(findings)}
	r.Findings = r.Findings[:min(len(r.Findings), maxFindings)]
	for _, f := range r.Findings {
		if f.Code == codeTextControl {
			r.Outcome = AdmitWithWarning
			continue
		}
		r.Code, r.Stage = f.Code, stageOf(f.Code)
		r.Outcome = f.outcome()
		break
	}
	return r
}

func (f Finding) outcome() Outcome {
	usual := codes[ranks[f.Code]].Outcome
	switch {
	case f.Warning:
		return AdmitWithWarning
	case usual == AdmitWithWarning:
		return Exception
	}
	return usual
}

// unitOf identifies the powered unit of a report, "" when nothing does.
func (p *Processor) unitOf(report object) string {
	v := member(report, "vehicle")
	plate := member(v, "plate")
	vin, listed, number := textOf(v, "vin"), p.roster.vinOf(report), textOf(v, "unit_number")
	switch {
	case vin != "":
		return "vin:" + vin
	case listed != "":
		return "vin:" + listed
	case number != "":
		return "unit:" + textOf(member(report, "carrier"), "usdot_number") + "/" + number
	case textOf(v, "serial_number") != "":
		return "serial:" + textOf(v, "serial_number")
	case textOf(plate, "number") != "":
		return "plate:" + textOf(plate, "jurisdiction") + "/" + textOf(plate, "number")
	}
	return ""
}

func newRecord(report object, body []byte, warnings []Finding) *Record {
	source := member(report, "source")
	r := &Record{
		Vendor:   textOf(source, "vendor"),
		RecordID: textOf(report, "dvir_id"),
		Version:  textOf(source, "record_version"),
		Reading:  readingOf(report),
		Severity: highest(report),
	}
	b := append(make([]byte, 0, len(body)+256), `{"record":1,"rules":"`+Version+`","report":`...)
	b = append(append(b, body...), `,"severity":`...)
	b = append(r.Severity.append(b), `,"warnings":[`...)
	for n, w := range warnings {
		if n > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"code":`...), w.Code)
		b = append(appendString(append(b, `,"pointer":`...), w.Pointer), '}')
	}
	r.JSON = append(b, "]}"...)
	return r
}
