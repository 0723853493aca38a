package dvir

import "crypto/sha256"

// Memory judges inputs one after another as a store would: it knows what it admitted. The
// zero value is empty and ready; it is a History. It is not safe for concurrent use.
type Memory struct {
	bytes    map[[sha256.Size]byte]bool
	contents map[identity][sha256.Size]byte
	readings map[string]Reading
}

// identity names one version of one report.
type identity struct{ vendor, id, version string }

// LastReading is the latest odometer of the unit among the admitted reports.
func (m *Memory) LastReading(unit string) (Reading, bool) {
	r, ok := m.readings[unit]
	return r, ok
}

// Settle gives the result of in its place among the earlier ones. An admitted result whose
// bytes or report are known becomes a duplicate, one that contradicts a known version an
// exception; any other admitted result is remembered. All else passes unchanged.
func (m *Memory) Settle(in Input, r Result) Result {
	if r.Record == nil {
		return r
	}
	digest := sha256.Sum256(in.Data)
	id := identity{r.Record.Vendor, r.Record.RecordID, r.Record.Version}
	content, known := m.contents[id]
	switch {
	case m.bytes[digest]:
		return r.with(Duplicate, codeExactBytes)
	case known && content == r.Record.Content:
		return r.with(Duplicate, codeLogical)
	case known:
		return r.with(Exception, codeConflict)
	}
	m.remember(digest, id, r.Record)
	return r
}

// with is a result decided by one more finding, and without a record.
func (r Result) with(o Outcome, code string) Result {
	findings := append([]Finding{{Code: code}}, r.Findings...)
	return Result{Outcome: o, Stage: stageOf(code), Code: code, Findings: findings}
}

func (m *Memory) remember(digest [sha256.Size]byte, id identity, r *Record) {
	if m.bytes == nil {
		m.bytes = map[[sha256.Size]byte]bool{}
		m.contents = map[identity][sha256.Size]byte{}
		m.readings = map[string]Reading{}
	}
	m.bytes[digest] = true
	m.contents[id] = r.Content
	if r.Reading == nil || r.Unit == "" {
		return
	}
	if last, known := m.readings[r.Unit]; !known || !r.Reading.At.Before(last.At) {
		m.readings[r.Unit] = *r.Reading
	}
}

// ReadingOf reads the odometer back out of a stored record; false when the record has
// none, or is no record.
func ReadingOf(recordJSON []byte) (Reading, bool) {
	v, f := decodeWithin(recordJSON, maxValues+10*maxFindings) // the report's, and those of its warnings
	if f != nil {
		return Reading{}, false
	}
	record, _ := v.(object)
	r := readingOf(member(record, "report"))
	if r == nil {
		return Reading{}, false
	}
	return *r, true
}
