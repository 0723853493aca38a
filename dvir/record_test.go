package dvir_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/dvir"
)

var update = flag.Bool("update", false, "write the golden records")

func admitted(t testing.TB, p *dvir.Processor, in dvir.Input) *dvir.Record {
	t.Helper()
	r := p.Process(in, nil)
	require.NotNil(t, r.Record, "%v", r.Findings)
	return r.Record
}

// TestRecordBytes holds the exact bytes of records.
func TestRecordBytes(t *testing.T) {
	p := newProcessor(t, dvir.Config{DefectAliases: map[string]string{"LAMP_FRONT": "LIGHTING_REFLECTORS"}})
	for name, data := range map[string][]byte{
		"closed.json":  vary(t, closed),
		"aliased.json": vary(t, defective, edit{"/defects/0/code", `"LAMP_FRONT"`}),
		"warned.json":  vary(t, plain, edit{"/vehicle/vin", `"WTSZZZ8TZRX000404"`}, edit{"/remarks", `"\u001b[31m \"x\" \\ \t"`}, edit{"/vehicle/odometer/value", `182345.50`}),
	} {
		got := admitted(t, p, jsonInput(data)).JSON
		path := filepath.Join("testdata", name)
		if *update {
			require.NoError(t, os.WriteFile(path, got, 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), name)
	}
}

// TestContent holds what makes two inputs the same report.
func TestContent(t *testing.T) {
	m := readManifest(t)
	p := newProcessor(t, dvir.Config{})
	first := admitted(t, p, m.input(t, m.Files[0]))
	for _, e := range m.Files {
		in := m.input(t, e)
		switch e.Name {
		case "b01_exact_duplicate_of_a01.json", "b02_a01_trailing_whitespace.json", "b03_a01_crlf.json", "b04_a01_minified_reordered.json":
			in.ReceivedAt = in.ReceivedAt.Add(time.Hour)
			same := admitted(t, p, in)
			assert.Equal(t, first, same, e.Name)
		case "e06_utf8_bom.json":
			assert.Equal(t, first.Content, admitted(t, p, in).Content)
		case "b06_a01_same_id_other_content.json", "b07_a01_revision_2.json":
			assert.NotEqual(t, first.Content, admitted(t, p, in).Content)
		}
	}
	escaped := vary(t, plain, edit{"/driver/name", `"\u0054est Driver Alpha"`})
	assert.Equal(t, first.Content, admitted(t, p, jsonInput(escaped)).Content)
	aliased := vary(t, defective, edit{"/defects/0/code", `"BRAKE_SYS"`})
	one := newProcessor(t, dvir.Config{DefectAliases: map[string]string{"BRAKE_SYS": "SERVICE_BRAKES"}})
	other := newProcessor(t, dvir.Config{DefectAliases: map[string]string{"BRAKE_SYS": "PARKING_BRAKE"}})
	assert.Equal(t, admitted(t, one, jsonInput(aliased)).Content, admitted(t, other, jsonInput(aliased)).Content)
}

func TestAliases(t *testing.T) {
	p := newProcessor(t, dvir.Config{DefectAliases: map[string]string{"BRAKE_SYS": "SERVICE_BRAKES", "brakes": "SERVICE_BRAKES"}})
	data := vary(t, defective,
		edit{"/defects/0/code", `"BRAKE_SYS"`},
		edit{"/defects/1", `{"defect_id":"d2","code":"brakes","vendor_label":"Brakes!","unit":"vehicle","repair_status":"open"}`},
		edit{"/inspection/parts_checked", `["BRAKE_SYS","TIRES","brakes"]`})
	var record struct {
		Report struct {
			Inspection struct {
				Parts []string `json:"parts_checked"`
			}
			Defects []struct {
				Code  string
				Label string `json:"vendor_label"`
			}
		}
	}
	require.NoError(t, json.Unmarshal(admitted(t, p, jsonInput(data)).JSON, &record))
	require.Len(t, record.Report.Defects, 2)
	assert.Equal(t, "SERVICE_BRAKES", record.Report.Defects[0].Code)
	assert.Equal(t, "BRAKE_SYS", record.Report.Defects[0].Label)
	assert.Equal(t, "SERVICE_BRAKES", record.Report.Defects[1].Code)
	assert.Equal(t, "Brakes!", record.Report.Defects[1].Label)
	assert.Equal(t, []string{"SERVICE_BRAKES", "TIRES"}, record.Report.Inspection.Parts)
}

func TestSeverity(t *testing.T) {
	p := newProcessor(t, dvir.Config{})
	for _, tc := range []struct {
		name   string
		defect string
		want   dvir.Severity
	}{
		{"stated", `"code":"HORN","severity":{"score":34,"band":"minor"}`, dvir.Severity{Score: 34, Band: "minor"}},
		{"stated, spelled as a fraction", `"code":"HORN","severity":{"score":69.0,"band":"major"}`, dvir.Severity{Score: 69, Band: "major"}},
		{"stated beside a judgement", `"code":"STEERING","affects_safe_operation":true,"severity":{"score":5,"band":"minor"}`, dvir.Severity{Score: 5, Band: "minor"}},
		{"control part", `"code":"STEERING"`, dvir.Severity{Score: 60, Band: "major"}},
		{"signal part", `"code":"HORN"`, dvir.Severity{Score: 40, Band: "major"}},
		{"other part", `"code":"COOLING"`, dvir.Severity{Score: 20, Band: "minor"}},
		{"other part, unsafe", `"code":"COOLING","affects_safe_operation":true`, dvir.Severity{Score: 50, Band: "major"}},
		{"control part, harmless", `"code":"STEERING","affects_safe_operation":false`, dvir.Severity{Score: 34, Band: "minor"}},
		{"out of service", `"code":"HORN","tags":["DOT_OOS_CRITERIA"],"affects_safe_operation":true,"severity":{"score":70,"band":"critical"}`, dvir.Severity{Score: 70, Band: "critical"}},
	} {
		data := vary(t, defective, edit{"/defects/0", `{"defect_id":"d1","unit":"vehicle","repair_status":"open",` + tc.defect + `}`})
		assert.Equal(t, tc.want, admitted(t, p, jsonInput(data)).Severity, tc.name)
	}
	worst := vary(t, defective, edit{"/defects/1", `{"defect_id":"d2","unit":"vehicle","repair_status":"repaired","code":"TIRES","severity":{"score":90,"band":"critical"}}`})
	assert.Equal(t, dvir.Severity{Score: 90, Band: "critical"}, admitted(t, p, jsonInput(worst)).Severity)
	assert.Equal(t, dvir.Severity{Score: 0, Band: "minor"}, admitted(t, p, jsonInput(vary(t, plain))).Severity)
}

func TestUnit(t *testing.T) {
	alone, rostered := newProcessor(t, dvir.Config{}), newProcessor(t, fleet)
	for _, tc := range []struct {
		vehicle, want, listed string
	}{
		{`{"unit_number":"417","vin":"1TSTTRK83RX000101"}`, "vin:1TSTTRK83RX000101", "vin:1TSTTRK83RX000101"},
		{`{"unit_number":"512"}`, "unit:9999999/512", "vin:1TSTTRK89RX000202"},
		{`{"unit_number":"9"}`, "unit:9999999/9", "unit:9999999/9"},
		{`{"serial_number":"S/1"}`, "serial:S/1", "serial:S/1"},
		{`{"plate":{"number":"AB 1","jurisdiction":"IA"}}`, "plate:IA/AB 1", "plate:IA/AB 1"},
	} {
		in := jsonInput(vary(t, plain, edit{"/vehicle", tc.vehicle}))
		assert.Equal(t, tc.want, admitted(t, alone, in).Unit)
		assert.Equal(t, tc.listed, admitted(t, rostered, in).Unit)
	}
}

func TestReading(t *testing.T) {
	p := newProcessor(t, dvir.Config{})
	at := time.Date(2026, 3, 10, 23, 9, 40, 0, time.UTC)
	for value, metres := range map[string]int64{
		`{"value":182345,"unit":"mi"}`:        293455832,
		`{"value":1823450,"unit":"tenth_mi"}`: 293455832,
		`{"value":12.5,"unit":"km"}`:          12500,
		`{"value":7,"unit":"m"}`:              7,
	} {
		r := admitted(t, p, jsonInput(vary(t, plain, edit{"/vehicle/odometer", value})))
		require.NotNil(t, r.Reading)
		assert.Equal(t, metres, r.Reading.Metres)
		assert.True(t, at.Equal(r.Reading.At))
		back, ok := dvir.ReadingOf(r.JSON)
		assert.True(t, ok)
		assert.Equal(t, *r.Reading, back)
	}
	r := admitted(t, p, jsonInput(vary(t, plain, edit{"/vehicle/odometer", `null`})))
	assert.Nil(t, r.Reading)
	_, ok := dvir.ReadingOf(r.JSON)
	assert.False(t, ok)
	for _, record := range []string{"", "{", "[]", `{"report":5}`} {
		_, ok := dvir.ReadingOf([]byte(record))
		assert.False(t, ok)
	}
}

func TestRollback(t *testing.T) {
	p := newProcessor(t, dvir.Config{})
	var m dvir.Memory
	first := jsonInput(vary(t, plain))
	require.Equal(t, dvir.Admit, m.Settle(first, p.Process(first, &m)).Outcome)
	for _, tc := range []struct {
		name  string
		edits []edit
		code  string
	}{
		{"lower by three miles", []edit{{"/vehicle/odometer/value", `182342`}}, "validate.odometer_rollback"},
		{"lower by a mile, as rounding may be", []edit{{"/vehicle/odometer/value", `182344`}}, ""},
		{"lower in another unit", []edit{{"/vehicle/odometer", `{"value":200000,"unit":"km"}`}}, "validate.odometer_rollback"},
		{"lower by rounding", []edit{{"/vehicle/odometer", `{"value":293455,"unit":"km"}`}}, ""},
		{"higher", []edit{{"/vehicle/odometer/value", `182346`}}, ""},
		{"lower, and reported before", []edit{{"/vehicle/odometer/value", `18234`}, {"/inspection/reported_at", `"2026-03-09T18:09:40-05:00"`}, {"/inspection/started_at", ``}}, ""},
		{"another unit", []edit{{"/vehicle", `{"unit_number":"9","odometer":{"value":5,"unit":"mi"}}`}}, ""},
		{"no odometer", []edit{{"/vehicle/odometer", ``}}, ""},
	} {
		data := vary(t, plain, append(tc.edits, edit{"/dvir_id", `"dvir-next"`})...)
		assert.Equal(t, tc.code, p.Process(jsonInput(data), &m).Code, tc.name)
	}
}

func TestMemory(t *testing.T) {
	p := newProcessor(t, dvir.Config{})
	var m dvir.Memory
	settle := func(data []byte) dvir.Result {
		in := jsonInput(data)
		r := m.Settle(in, p.Process(in, nil))
		checkShape(t, r)
		return r
	}
	report := vary(t, plain)
	assert.Equal(t, dvir.Admit, settle(report).Outcome)
	assert.Equal(t, "ingest.exact_bytes", settle(report).Code)
	assert.Equal(t, "ingest.logical", settle(append(report, '\n')).Code)
	assert.Equal(t, "ingest.logical", settle(append(report, '\n')).Code, "a duplicate is not remembered by its bytes")
	assert.Equal(t, "ingest.conflict", settle(vary(t, plain, edit{"/remarks", `"x"`})).Code)
	assert.Equal(t, dvir.Admit, settle(vary(t, plain, edit{"/source/record_version", `"2"`})).Outcome)
	assert.Equal(t, dvir.Admit, settle(vary(t, plain, edit{"/source/record_version", ``})).Outcome, "no version is a version")
	assert.Equal(t, dvir.Admit, settle(vary(t, plain, edit{"/source/vendor", `"other"`})).Outcome)

	broken := vary(t, plain, edit{"/vehicle/vin", `"1"`})
	assert.Equal(t, settle(broken), settle(broken), "what was not admitted is not remembered")

	marked := append([]byte("\ufeff"), report...)
	r := settle(marked)
	assert.Equal(t, dvir.Duplicate, r.Outcome)
	assert.Equal(t, []dvir.Finding{{Code: "ingest.logical"}, {Code: "parse.utf8_bom", Warning: true}}, r.Findings)
}

// A record is longer than its report and has more values; what was admitted can still be read back.
func TestReadingOfLongRecord(t *testing.T) {
	p := newProcessor(t, dvir.Config{})
	for name, extensions := range map[string]string{
		"bytes":  `{"x":"` + strings.Repeat(`\n`, 4<<20-8<<10) + `"}`,
		"values": `{"x":[0` + strings.Repeat(",0", 199_000) + `]}`,
	} {
		r := admitted(t, p, jsonInput(vary(t, closed, edit{"/extensions", extensions})))
		require.NotNil(t, r.Reading)
		back, ok := dvir.ReadingOf(r.JSON)
		require.True(t, ok, name)
		require.Equal(t, r.Reading.Metres, back.Metres)
	}
}
