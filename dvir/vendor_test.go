package dvir_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/dvir"
)

// sent is a corpus file with some of its text replaced.
func sent(t *testing.T, name string, replace ...string) dvir.Input {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(corpus, name))
	require.NoError(t, err)
	var plain any
	require.NoError(t, json.Unmarshal(data, &plain))
	flat, err := json.Marshal(plain)
	require.NoError(t, err)
	text := string(flat)
	for i := 0; i < len(replace); i += 2 {
		require.Contains(t, text, replace[i])
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	return dvir.Input{Data: []byte(text), ContentType: "application/json", Channel: "telematics_api", ReceivedAt: readManifest(t).Clock}
}

// TestVendors holds what is true of the kinds of documents, beyond the files of the corpus.
func TestVendors(t *testing.T) {
	const (
		history = "c01_samsara_history.json"
		webhook = "c02_samsara_webhook_dvirsubmitted.json"
		first   = "c04_samsara_legacy_signature_shell.json"
		byPart  = "c06_motive_v2_defect_level.json"
		report  = "c05_motive_v1_list.json"
		lytx    = "c14_lytx_list.json"
	)
	for name, tc := range map[string]struct {
		in      dvir.Input
		outcome dvir.Outcome
		code    string
	}{
		"an empty page":           {dvir.Input{Data: []byte(`{"inspection_reports":[],"pagination":{"total":0}}`)}, dvir.Ignored, "ingest.not_a_dvir"},
		"another event":           {sent(t, webhook, "DvirSubmitted", "AddressCreated"), dvir.Ignored, "ingest.not_a_dvir"},
		"a label nobody knows":    {sent(t, history, "Lights - Turn Signal", "Flux capacitor"), dvir.Exception, "validate.defect_code_unknown"},
		"no signature":            {sent(t, webhook, `"authorSignature"`, `"x"`), dvir.Exception, "validate.driver_signature_missing"},
		"a vehicle by id alone":   {sent(t, webhook, `"name":"417"`, `"n":""`, `"vin":"1TSTTRK83RX000101"`, `"v":""`), dvir.Exception, "normalize.vehicle_unidentified"},
		"a bad VIN":               {sent(t, webhook, "1TSTTRK83RX000101", "1TSTTRK83RX00010"), dvir.Exception, "validate.vin_length"},
		"a time without a zone":   {sent(t, lytx, "09:40.000Z", "09:40.000"), dvir.Exception, "validate.time_no_offset"},
		"a mechanic with a name":  {sent(t, first, `"mechanicOrAgentSignature":{`, `"mechanicOrAgentSignature":{"mechanicUserId":77,"name":"M",`, "1773234000000", "1773230700000"), dvir.Admit, ""},
		"all in order":            {sent(t, report, `"type":"minor"`, `"type":"none"`, `"corrected"`, `"satisfactory"`), dvir.Admit, ""},
		"no repair needed":        {sent(t, byPart, `"status":"repaired"`, `"status":"no_repair_needed"`), dvir.Admit, ""},
		"metric units":            {sent(t, byPart, `"metric_units":false`, `"metric_units":true`), dvir.Admit, ""},
		"a vendor's page in gzip": {dvir.Input{Data: []byte(packed(string(sent(t, lytx).Data))), ContentEncoding: "gzip", ReceivedAt: readManifest(t).Clock}, dvir.Admit, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newProcessor(t, dvir.Config{}).Process(tc.in, nil)
			checkShape(t, r)
			assert.Equal(t, tc.outcome, r.Outcome, "%v", r.Findings)
			assert.Equal(t, tc.code, r.Code)
		})
	}
}

// TestSeveralReports: nobody picks one of several.
func TestSeveralReports(t *testing.T) {
	in := sent(t, "c14_lytx_list.json")
	text := string(in.Data)
	from, to := strings.Index(text, `"data":[`)+len(`"data":[`), strings.Index(text, `],"metadata"`)
	in.Data = []byte(text[:to] + "," + text[from:to] + text[to:])
	require.True(t, json.Valid(in.Data))
	r := newProcessor(t, dvir.Config{}).Process(in, nil)
	assert.Equal(t, "parse.unsupported_format", r.Code)
}

// TestAliasOfLabel: a label that a site has an alias for passes when it comes again.
func TestAliasOfLabel(t *testing.T) {
	in := sent(t, "c01_samsara_history.json", "Lights - Turn Signal", "Flux capacitor")
	r := newProcessor(t, dvir.Config{DefectAliases: map[string]string{"Flux capacitor": "ENGINE"}}).Process(in, nil)
	require.Equal(t, dvir.Admit, r.Outcome, "%v", r.Findings)
	assert.Contains(t, string(r.Record.JSON), `"code":"ENGINE"`)
	assert.Contains(t, string(r.Record.JSON), `"vendor_label":"Flux capacitor"`)
	assert.Equal(t, "samsara", r.Record.Vendor)
}
