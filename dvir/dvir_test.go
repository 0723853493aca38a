package dvir_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/dvir"
)

// Reports of the corpus that the tests vary.
const (
	plain     = "a01_canonical_no_defect.json"
	defective = "a02_canonical_defect_submitted.json"
	closed    = "a03_canonical_defect_closed.json"
	towed     = "a04_canonical_towed_unit_removed.json"
	mechanic  = "a05_canonical_mechanic_no_driver.json"
	intermod  = "a09_canonical_intermodal.json"
)

// edit changes one member of a report: JSON text to set, or "" to delete.
type edit struct{ pointer, value string }

// vary is a report of the corpus with edits, as bytes.
func vary(t testing.TB, base string, edits ...edit) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(corpus, base))
	require.NoError(t, err)
	doc := parse(t, data)
	for _, e := range edits {
		doc = change(t, doc, strings.Split(e.pointer, "/")[1:], e.value)
	}
	out, err := json.Marshal(doc)
	require.NoError(t, err)
	return out
}

func parse(t testing.TB, data []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v))
	return v
}

func change(t testing.TB, v any, path []string, value string) any {
	t.Helper()
	if len(path) == 0 {
		return parse(t, []byte(value))
	}
	switch parent := v.(type) {
	case map[string]any:
		if len(path) == 1 && value == "" {
			delete(parent, path[0])
		} else {
			parent[path[0]] = change(t, parent[path[0]], path[1:], value)
		}
	case []any:
		i, err := strconv.Atoi(path[0])
		require.NoError(t, err)
		for len(parent) <= i {
			parent = append(parent, nil)
		}
		parent[i] = change(t, parent[i], path[1:], value)
		return parent
	default:
		require.Fail(t, "no such parent")
	}
	return v
}

var noon = time.Date(2026, 3, 11, 12, 0, 0, 0, time.UTC)

func jsonInput(data []byte) dvir.Input {
	return dvir.Input{Data: data, ContentType: "application/json", ReceivedAt: noon}
}

func TestKinds(t *testing.T) {
	const (
		reviewed  = "/next_driver_review/signature/signed_at"
		certified = "/carrier_certification/signature/signed_at"
		trailer   = `{"defect_id":"d9","code":"TIRES","unit":"trailer","repair_status":"open"}`
	)
	for _, tc := range []struct {
		name, base string
		edits      []edit
		code       string
		pointer    string
	}{
		{"newer version", plain, []edit{{"/schema_version", `"2.0"`}}, "validate.schema_version", "/schema_version"},
		{"version as a number", plain, []edit{{"/schema_version", `2`}}, "validate.schema_version", "/schema_version"},
		{"newer version outranks structure", plain, []edit{{"/schema_version", `"1.1"`}, {"/novelty", `1`}}, "validate.schema_version", "/schema_version"},
		{"version of no kind", plain, []edit{{"/schema_version", `null`}}, "validate.schema", "/schema_version"},
		{"no version", plain, []edit{{"/schema_version", ``}}, "validate.schema", ""},
		{"no id", plain, []edit{{"/dvir_id", ``}}, "validate.schema", ""},

		{"trailer VIN short", plain, []edit{{"/trailers/0/vin", `"1TSTTRL59RX00030"`}}, "validate.vin_length", "/trailers/0/vin"},
		{"trailer VIN long", plain, []edit{{"/trailers/0/vin", `"1TSTTRL59RX0003033"`}}, "validate.vin_length", "/trailers/0/vin"},
		{"trailer VIN with a letter O", plain, []edit{{"/trailers/0/vin", `"1TSTTRL59RXO00303"`}}, "validate.vin_charset", "/trailers/0/vin"},
		{"VIN lower case", plain, []edit{{"/vehicle/vin", `"1tsttrk83rx000101"`}}, "validate.vin_charset", "/vehicle/vin"},
		{"VIN with a digit of another script", plain, []edit{{"/vehicle/vin", `"1TSTTRK83RX00010１"`}}, "validate.vin_charset", "/vehicle/vin"},
		{"VIN with a space", plain, []edit{{"/vehicle/vin", `"1TSTTRK83RX000101 "`}}, "validate.vin_charset", "/vehicle/vin"},
		{"VIN not text", plain, []edit{{"/vehicle/vin", `17`}}, "validate.schema", "/vehicle/vin"},
		{"VIN empty beside a unit number", plain, []edit{{"/vehicle/vin", `""`}}, "validate.vin_length", "/vehicle/vin"},
		{"VIN check digit", plain, []edit{{"/vehicle/vin", `"1TSTTRK81RX000101"`}}, "validate.vin_check_digit", "/vehicle/vin"},
		{"trailer VIN check digit", plain, []edit{{"/trailers/0/vin", `"1TSTTRL58RX000303"`}}, "validate.vin_check_digit", "/trailers/0/vin"},
		{"VIN of ones", plain, []edit{{"/vehicle/vin", `"11111111111111111"`}}, "validate.vin_placeholder", "/vehicle/vin"},
		{"VIN of zeros", plain, []edit{{"/vehicle/vin", `"00000000000000000"`}}, "validate.vin_placeholder", "/vehicle/vin"},
		{"VIN of X", plain, []edit{{"/trailers/0/vin", `"XXXXXXXXXXXXXXXXX"`}}, "validate.vin_placeholder", "/trailers/0/vin"},
		{"VIN counted up", plain, []edit{{"/vehicle/vin", `"12345678901234567"`}}, "validate.vin_placeholder", "/vehicle/vin"},

		{"vehicle without identity", plain, []edit{{"/vehicle", `{"odometer":null}`}}, "validate.vehicle_unidentified", "/vehicle"},
		{"vehicle with a vendor id only", plain, []edit{{"/vehicle", `{"vendor_asset_id":"281474"}`}}, "validate.vehicle_unidentified", "/vehicle"},
		{"vehicle with an empty VIN", plain, []edit{{"/vehicle", `{"vin":""}`}}, "validate.vehicle_unidentified", "/vehicle"},
		{"vehicle with blanks", plain, []edit{{"/vehicle", `{"vin":null,"unit_number":"","serial_number":" ","plate":{"number":""}}`}}, "validate.vehicle_unidentified", "/vehicle"},
		{"vehicle with a blank unit number", plain, []edit{{"/vehicle", `{"unit_number":"  "}`}}, "validate.vehicle_unidentified", "/vehicle"},

		{"id as a small number", plain, []edit{{"/source/record_id", `4711`}}, "validate.schema", "/source/record_id"},
		{"id as a number past 2^53", plain, []edit{{"/source/record_id", `9007199254740993`}}, "normalize.number_precision", "/source/record_id"},
		{"driver id as a number past 2^53", plain, []edit{{"/driver/driver_id", `281474976710656123`}}, "normalize.number_precision", "/driver/driver_id"},
		{"defect id as a number past 2^53", defective, []edit{{"/defects/0/defect_id", `-9007199254740993`}}, "normalize.number_precision", "/defects/0/defect_id"},

		{"no offset, no zone", plain, []edit{{"/inspection/local_time_zone", ``}, {"/inspection/reported_at", `"2026-03-10T18:09:40"`}}, "validate.time_no_offset", "/inspection/reported_at"},
		{"no offset, zone that decides", plain, []edit{{"/inspection/reported_at", `"2026-03-10T18:09:40"`}}, "validate.time_no_offset", "/inspection/reported_at"},
		{"no offset, blank between", plain, []edit{{"/inspection/reported_at", `"2026-03-10 18:09:40.5"`}}, "validate.time_no_offset", "/inspection/reported_at"},
		{"no offset, unknown zone", plain, []edit{{"/inspection/local_time_zone", `"Central_Time"`}, {"/inspection/reported_at", `"2025-11-02T01:30:00"`}}, "validate.time_no_offset", "/inspection/reported_at"},
		{"no offset, zone of the machine", plain, []edit{{"/inspection/local_time_zone", `"Local"`}, {"/inspection/reported_at", `"2025-11-02T01:30:00"`}}, "validate.time_no_offset", "/inspection/reported_at"},
		{"signature without offset", plain, []edit{{"/driver_signature/signed_at", `"2026-03-10T18:09:38"`}}, "validate.time_no_offset", "/driver_signature/signed_at"},
		{"repair without offset", closed, []edit{{"/defects/0/repaired_at", `"2026-03-11T06:05:00"`}}, "validate.time_no_offset", "/defects/0/repaired_at"},
		{"signature in the repeated hour", plain, []edit{{"/driver_signature/signed_at", `"2025-11-02T01:59:59"`}}, "normalize.time_ambiguous", "/driver_signature/signed_at"},
		{"repeated hour of Europe", plain, []edit{{"/inspection/local_time_zone", `"Europe/Berlin"`}, {"/inspection/reported_at", `"2025-10-26T02:30:00"`}}, "normalize.time_ambiguous", "/inspection/reported_at"},
		{"half an hour repeated", plain, []edit{{"/inspection/local_time_zone", `"Australia/Lord_Howe"`}, {"/inspection/reported_at", `"2025-04-06T01:45:00"`}}, "normalize.time_ambiguous", "/inspection/reported_at"},
		{"skipped hour of Europe", plain, []edit{{"/inspection/local_time_zone", `"Europe/Berlin"`}, {"/inspection/reported_at", `"2025-03-30T02:30"`}}, "normalize.time_nonexistent", "/inspection/reported_at"},
		{"first minute after the gap", plain, []edit{{"/inspection/reported_at", `"2026-03-08T03:00:00"`}}, "validate.time_no_offset", "/inspection/reported_at"},
		{"zone without changes", plain, []edit{{"/inspection/local_time_zone", `"America/Phoenix"`}, {"/inspection/reported_at", `"2025-11-02T01:30:00"`}}, "validate.time_no_offset", "/inspection/reported_at"},
		{"leap second", plain, []edit{{"/driver_signature/signed_at", `"2016-12-31T23:59:60Z"`}}, "validate.time_implausible", "/driver_signature/signed_at"},
		{"leap second that never was", plain, []edit{{"/inspection/reported_at", `"2026-03-10T18:09:60-05:00"`}}, "validate.time_implausible", "/inspection/reported_at"},
		{"last century", plain, []edit{{"/driver_signature/signed_at", `"1999-12-31T23:59:59Z"`}}, "validate.time_implausible", "/driver_signature/signed_at"},
		{"sentinel", closed, []edit{{certified, `"1800-01-01T00:00:00Z"`}}, "validate.time_implausible", certified},
		{"impossible date", plain, []edit{{"/inspection/reported_at", `"2026-02-30T18:09:40Z"`}}, "validate.schema", "/inspection/reported_at"},
		{"date alone", plain, []edit{{"/inspection/reported_at", `"2026-03-10"`}}, "validate.schema", "/inspection/reported_at"},
		{"epoch", plain, []edit{{"/inspection/reported_at", `1773184180000`}}, "validate.schema", "/inspection/reported_at"},
		{"future", plain, []edit{{"/inspection/reported_at", `"2027-03-10T18:09:40Z"`}}, "validate.time_future", "/inspection/reported_at"},
		{"just beyond the skew", plain, []edit{{"/inspection/reported_at", `"2026-03-11T12:05:01Z"`}}, "validate.time_future", "/inspection/reported_at"},
		{"signature in the future", plain, []edit{{"/driver_signature/signed_at", `"2030-01-01T00:00:00Z"`}}, "validate.time_future", "/driver_signature/signed_at"},
		{"started after the report", defective, []edit{{"/inspection/started_at", `"2026-03-10T18:09:41-05:00"`}}, "validate.time_order", "/inspection/started_at"},
		{"order counts offsets", plain, []edit{{"/inspection/started_at", `"2026-03-10T18:09:00-06:00"`}}, "validate.time_order", "/inspection/started_at"},
		{"signed a second too early", plain, []edit{{"/driver_signature/signed_at", `"2026-03-10T18:02:10-05:00"`}}, "validate.signature_order", "/driver_signature/signed_at"},
		{"reviewed before certified", closed, []edit{{reviewed, `"2026-03-11T06:09:59-05:00"`}}, "validate.signature_order", reviewed},
		{"reviewed before reported", closed, []edit{{reviewed, `"2026-03-10T06:00:00-05:00"`}}, "validate.signature_order", reviewed},

		{"odometer negative", plain, []edit{{"/vehicle/odometer/value", `-1`}}, "validate.odometer_negative", "/vehicle/odometer/value"},
		{"hubometer negative", plain, []edit{{"/trailers/0/hubometer", `{"value":-0.5,"unit":"km"}`}}, "validate.odometer_negative", "/trailers/0/hubometer/value"},
		{"odometer beyond the bound in km", plain, []edit{{"/vehicle/odometer", `{"value":4828033,"unit":"km"}`}}, "validate.odometer_implausible", "/vehicle/odometer/value"},
		{"odometer beyond the schema", plain, []edit{{"/vehicle/odometer", `{"value":1e11,"unit":"m"}`}}, "validate.odometer_implausible", "/vehicle/odometer/value"},
		{"hubometer beyond the bound", plain, []edit{{"/trailers/0/hubometer", `{"value":293455872,"unit":"mi"}`}}, "validate.odometer_implausible", "/trailers/0/hubometer/value"},
		{"odometer without unit", plain, []edit{{"/vehicle/odometer", `{"value":5}`}}, "validate.schema", "/vehicle/odometer"},
		{"odometer as text within", plain, []edit{{"/vehicle/odometer/value", `"182345"`}}, "validate.schema", "/vehicle/odometer/value"},

		{"flag without defects", plain, []edit{{"/defects_found", `true`}}, "validate.defect_flag_mismatch", "/defects"},
		{"flag not boolean", plain, []edit{{"/defects_found", `"no"`}}, "validate.schema", "/defects_found"},
		{"OTHER with blanks", defective, []edit{{"/defects/0/code", `"OTHER"`}, {"/defects/0/description", `"     "`}}, "validate.defect_description_missing", "/defects/0/description"},
		{"OTHER with invisible characters", defective, []edit{{"/defects/0/code", `"OTHER"`}, {"/defects/0/description", `"\u200b\u200b\u200b"`}}, "validate.defect_description_missing", "/defects/0/description"},
		{"OTHER with two letters", defective, []edit{{"/defects/0/code", `"OTHER"`}, {"/defects/0/description", `"ab"`}}, "validate.defect_description_missing", "/defects/0"},
		{"unknown part", defective, []edit{{"/defects/0/code", `"BRAKE_SYS"`}}, "validate.defect_code_unknown", "/defects/0/code"},
		{"unknown part among the checked", plain, []edit{{"/inspection/parts_checked", `["TIRES","brakes"]`}}, "validate.defect_code_unknown", "/inspection/parts_checked/1"},
		{"part not text", defective, []edit{{"/defects/0/code", `12`}}, "validate.schema", "/defects/0/code"},
		{"band too low", defective, []edit{{"/defects/0/severity", `{"score":70,"band":"major"}`}}, "validate.severity_band", "/defects/0/severity"},
		{"band too high", defective, []edit{{"/defects/0/severity", `{"score":34,"band":"major"}`}}, "validate.severity_band", "/defects/0/severity"},
		{"band minor at 35", defective, []edit{{"/defects/0/severity", `{"score":35,"band":"minor"}`}}, "validate.severity_band", "/defects/0/severity"},
		{"band unknown", defective, []edit{{"/defects/0/severity", `{"score":35,"band":"severe"}`}}, "validate.schema", "/defects/0/severity/band"},
		{"score out of scale", defective, []edit{{"/defects/0/severity", `{"score":750,"band":"critical"}`}}, "validate.severity_scale", "/defects/0/severity/score"},
		{"score below scale", defective, []edit{{"/defects/0/severity", `{"score":-1,"band":"minor"}`}}, "validate.severity_scale", "/defects/0/severity/score"},
		{"score as text", defective, []edit{{"/defects/0/severity", `{"score":"40","band":"major"}`}}, "validate.schema", "/defects/0/severity/score"},
		{"out of service at 69", intermod, []edit{{"/defects/0/severity", `{"score":69,"band":"major"}`}}, "validate.severity_oos_floor", "/defects/0"},
		{"fraction with the tag", intermod, []edit{{"/defects/0/severity/score", `0.75`}}, "validate.severity_scale", "/defects/0/severity/score"},
		{"out of service without severity", intermod, []edit{{"/defects/0/severity", ``}}, "validate.schema", "/defects/0"},
		{"safe with an open out-of-service defect", intermod, []edit{{"/safe_to_operate", `true`}}, "validate.safety_contradiction", "/safe_to_operate"},
		{"out of service and harmless", intermod, []edit{{"/defects/0/affects_safe_operation", `false`}}, "validate.safety_contradiction", "/defects/0/affects_safe_operation"},

		{"second defect on no trailer", defective, []edit{{"/defects/1", trailer}}, "validate.trailer_id_missing", "/defects/1"},
		{"trailer defect, trailers gone", towed, []edit{{"/trailers", ``}}, "validate.trailer_id_missing", ""},
		{"trailer defect, trailers empty", towed, []edit{{"/trailers", `[]`}}, "validate.trailer_id_missing", ""},
		{"trailer in other letters", towed, []edit{{"/defects/0/trailer_id", `"tr-08"`}}, "validate.trailer_unknown", "/defects/0/trailer_id"},
		{"vehicle defect with a trailer", defective, []edit{{"/defects/0/trailer_id", `"TR-08"`}}, "validate.schema", "/defects/0"},

		{"driver's report unsigned", plain, []edit{{"/driver_signature", ``}}, "validate.driver_signature_missing", ""},
		{"intermodal report unsigned", intermod, []edit{{"/driver_signature", ``}, {"/inspection/type", `"mechanic"`}}, "validate.driver_signature_missing", ""},
		{"driver's report without driver", plain, []edit{{"/driver", ``}}, "validate.schema", ""},
		{"certified without certification", closed, []edit{{"/stage", `"repair_certified"`}, {"/carrier_certification", ``}}, "validate.certification_missing", ""},
		{"certification by nobody", closed, []edit{{"/carrier_certification/signature/signer_id", ``}}, "validate.certification_signer_missing", "/carrier_certification/signature"},
		{"certification unsigned", closed, []edit{{"/carrier_certification/signature", ``}}, "validate.certification_signer_missing", "/carrier_certification"},
		{"certification by nobody at no time", closed, []edit{{"/carrier_certification/signature", `{"role":"mechanic","method":"pin","signed_at":"2026-03-11T06:10:00-05:00"}`}}, "validate.certification_signer_missing", "/carrier_certification/signature"},
		{"review missing", closed, []edit{{"/next_driver_review", ``}}, "validate.next_driver_review_missing", ""},
		{"review empty", closed, []edit{{"/next_driver_review", `{}`}}, "validate.next_driver_review_missing", "/next_driver_review"},
		{"review excused for a defect of the tractor", closed, []edit{{"/next_driver_review", `{"not_required_reason":"towed_unit_removed"}`}}, "validate.next_driver_review_missing", "/next_driver_review/not_required_reason"},
		{"review both ways", towed, []edit{{"/next_driver_review/signature", `{"signer_id":"drv-1002","role":"driver","signed_at":"2026-03-11T07:00:00-05:00","method":"pin"}`}}, "validate.schema", "/next_driver_review"},
		{"certified with an open safety defect", closed, []edit{{"/defects/0/repair_status", `"open"`}, {"/defects/0/repaired_at", ``}}, "validate.certification_inconsistent", "/defects/0/repair_status"},
		{"certificate on a submitted report with an open safety defect", closed, []edit{{"/stage", `"submitted"`}, {"/next_driver_review", ``}, {"/defects/0/repair_status", `"open"`}, {"/defects/0/repaired_at", ``}}, "validate.certification_inconsistent", "/defects/0/repair_status"},
		{"open and repaired at once", defective, []edit{{"/defects/0/repaired_at", `"2026-03-11T06:05:00-05:00"`}}, "validate.schema", "/defects/0"},
		{"closed, no defects, unsafe", plain, []edit{{"/stage", `"closed"`}, {"/safe_to_operate", `false`}}, "validate.unsafe_returned_to_service", "/safe_to_operate"},

		{"unknown member within", plain, []edit{{"/vehicle/nickname_of_truck", `"x"`}}, "validate.schema", "/vehicle"},
		{"unknown member in a list", plain, []edit{{"/trailers/0/Jane_Doe", `"x"`}}, "validate.schema", "/trailers/0"},
		{"latitude alone", plain, []edit{{"/inspection/location/longitude", ``}}, "validate.schema", "/inspection/location"},
		{"latitude beyond the pole", plain, []edit{{"/inspection/location/latitude", `90.1`}}, "validate.schema", "/inspection/location/latitude"},
		{"OCR without confidence", plain, []edit{{"/source/channel", `"ocr_document"`}}, "validate.schema", "/source"},
		{"structure outranks the VIN", plain, []edit{{"/vehicle/vin", `"1"`}, {"/extra_member", `1`}}, "validate.schema", ""},
		{"time outranks the VIN", plain, []edit{{"/vehicle/vin", `"1"`}, {"/inspection/local_time_zone", ``}, {"/inspection/reported_at", `"2026-03-10T18:09:40"`}}, "validate.time_no_offset", "/inspection/reported_at"},
		{"VIN outranks the flag", plain, []edit{{"/vehicle/vin", `"1"`}, {"/defects_found", `true`}}, "validate.vin_length", "/vehicle/vin"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newProcessor(t, dvir.Config{}).Process(jsonInput(vary(t, tc.base, tc.edits...)), nil)
			checkShape(t, r)
			assert.Equal(t, dvir.Exception, r.Outcome)
			assert.Equal(t, tc.code, r.Code)
			require.NotEmpty(t, r.Findings)
			assert.Contains(t, r.Findings, dvir.Finding{Code: tc.code, Pointer: tc.pointer})
		})
	}
}

func TestAdmitted(t *testing.T) {
	for _, tc := range []struct {
		name, base string
		edits      []edit
		code       string // of the warning, if any
		pointer    string
	}{
		{"VIN from 565.15", plain, []edit{{"/vehicle/vin", `"1M8GDM9AXKP042788"`}}, "", ""},
		{"VIN with digit 4", plain, []edit{{"/vehicle/vin", `"1J9RP1A36A1644345"`}}, "", ""},
		{"European trailer", plain, []edit{{"/trailers/0/vin", `"WTSZZZ8TZRX000404"`}}, "validate.vin_check_digit", "/trailers/0/vin"},
		{"driver certifies", closed, []edit{{"/carrier_certification/signature/signer_id", `"drv-1001"`}}, "validate.signer_role", "/carrier_certification/signature/signer_id"},
		{"certified in the role of a driver", closed, []edit{{"/carrier_certification/signature/role", `"driver"`}}, "validate.signer_role", "/carrier_certification/signature/role"},
		{"signed in the role of a mechanic", plain, []edit{{"/driver_signature/role", `"mechanic"`}}, "validate.signer_role", "/driver_signature/role"},
		{"within the skew", plain, []edit{{"/inspection/reported_at", `"2026-03-11T12:05:00Z"`}}, "", ""},
		{"signed after the report", plain, []edit{{"/driver_signature/signed_at", `"2026-03-10T19:00:00-05:00"`}}, "", ""},
		{"nine fractional digits", plain, []edit{{"/inspection/reported_at", `"2026-03-10T23:09:40.123456789Z"`}}, "", ""},
		{"odometer at the bound", plain, []edit{{"/vehicle/odometer/value", `3000000`}}, "", ""},
		{"odometer null", plain, []edit{{"/vehicle/odometer", `null`}}, "", ""},
		{"serial number only", plain, []edit{{"/vehicle", `{"serial_number":"SN-9"}`}}, "", ""},
		{"no severity", defective, []edit{{"/defects/0/severity", ``}}, "", ""},
		{"repaired out-of-service defect", intermod, []edit{{"/safe_to_operate", `true`}, {"/defects/0/repair_status", `"repaired"`}}, "", ""},
		{"closed without defects", plain, []edit{{"/stage", `"closed"`}}, "", ""},
		{"mechanic unsigned", mechanic, nil, "", ""},
		{"extensions of any kind", plain, []edit{{"/extensions", `{"Jane Doe":[1,{"dvir_id":"\u0007"}]}`}}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newProcessor(t, dvir.Config{}).Process(jsonInput(vary(t, tc.base, tc.edits...)), nil)
			checkShape(t, r)
			assert.Equal(t, tc.code, r.Code)
			want := dvir.Result{Outcome: dvir.Admit}
			if tc.code != "" {
				want = dvir.Result{Outcome: dvir.AdmitWithWarning, Findings: []dvir.Finding{{Code: tc.code, Pointer: tc.pointer, Warning: true}}}
			}
			assert.Equal(t, want.Outcome, r.Outcome)
			assert.Equal(t, want.Findings, r.Findings)
		})
	}
}

// TestAllFindings holds that nothing hides behind the first finding, and their order.
func TestAllFindings(t *testing.T) {
	data := vary(t, defective,
		edit{"/extra", `1`},
		edit{"/vehicle/vin", `"SHORT"`},
		edit{"/trailers/0/vin", `"11111111111111111"`},
		edit{"/defects/0/severity", `{"score":69,"band":"critical"}`},
		edit{"/driver_signature/signed_at", `"2026-03-10T06:00:00-05:00"`},
		edit{"/remarks", `"a\u202eb"`})
	r := newProcessor(t, dvir.Config{}).Process(jsonInput(data), nil)
	assert.Equal(t, []dvir.Finding{
		{Code: "validate.schema"},
		{Code: "validate.vin_charset", Pointer: "/vehicle/vin"},
		{Code: "validate.vin_placeholder", Pointer: "/trailers/0/vin"},
		{Code: "validate.severity_band", Pointer: "/defects/0/severity"},
		{Code: "validate.signature_order", Pointer: "/driver_signature/signed_at"},
		{Code: "validate.text_control", Pointer: "/remarks", Warning: true},
	}, r.Findings)
	assert.Equal(t, "validate.schema", r.Code)
}

// TestFindingsAreBounded holds that a payload full of errors costs no more than it weighs.
func TestFindingsAreBounded(t *testing.T) {
	broken := strings.Repeat(`{"severity":{"score":0.5,"band":"critical"}},`, 5000)
	data := vary(t, defective, edit{"/defects", "[" + strings.TrimSuffix(broken, ",") + "]"})
	r := newProcessor(t, dvir.Config{}).Process(jsonInput(data), nil)
	assert.Len(t, r.Findings, 1000)
	assert.Equal(t, "validate.schema", r.Code)
}

func TestCodes(t *testing.T) {
	seen := map[string]bool{}
	stages := []string{"ingest", "validate", "parse", "normalize"}
	for _, c := range dvir.Codes() {
		stage, symbol, _ := strings.Cut(c.Code, ".")
		assert.Contains(t, stages, stage)
		assert.Regexp(t, `^[a-z][a-z0-9_]*$`, symbol)
		assert.NotEmpty(t, c.Meaning)
		assert.NotEmpty(t, c.Replay)
		assert.False(t, seen[c.Code], c.Code)
		seen[c.Code] = true
	}
	for _, e := range readManifest(t).Files {
		if e.Code != "" {
			assert.True(t, seen[e.Code], e.Code)
		}
	}
	for _, c := range dvir.Codes() {
		for _, e := range readManifest(t).Files {
			if e.Code == c.Code && e.Expected == c.Outcome {
				assert.Equal(t, e.Replay, c.Replay, c.Code)
			}
		}
	}
}

func TestVocabularyHoldsTheContractOnly(t *testing.T) {
	words := map[string]bool{}
	for w := range dvir.Vocabulary() {
		words[w] = true
	}
	for _, w := range []string{"schema_version", "signed_at", "SERVICE_BRAKES", "towed_unit_removed", "post_trip"} {
		assert.True(t, words[w], w)
	}
	for _, w := range []string{"", "required", "properties", "dvir-0001", "x-code"} {
		assert.False(t, words[w], w)
	}
}
