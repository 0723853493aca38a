package dvir_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/dvir"
)

func TestParseConfig(t *testing.T) {
	c, err := dvir.ParseConfig([]byte(`{"units":[{"unit_number":"417","usdot":"9999999","vin":"1TSTTRK83RX000101"}],"defect_aliases":{"BRAKE_SYS":"SERVICE_BRAKES"}}`))
	require.NoError(t, err)
	assert.Equal(t, dvir.Config{
		Units:         []dvir.Unit{{UnitNumber: "417", USDOT: "9999999", VIN: "1TSTTRK83RX000101"}},
		DefectAliases: map[string]string{"BRAKE_SYS": "SERVICE_BRAKES"},
	}, c)
	c, err = dvir.ParseConfig([]byte(`{}`))
	require.NoError(t, err)
	assert.Equal(t, dvir.Config{}, c)
}

func TestParseConfigErrors(t *testing.T) {
	const unit = `{"unit_number":"417","vin":"1TSTTRK83RX000101"}`
	for _, tc := range []struct{ in, pointer string }{
		{``, ""},
		{`[]`, ""},
		{`{"units":[],"units":[]}`, ""},
		{`{"unit":[]}`, ""},
		{`{"Units":[]}`, ""},
		{`{"units":{}}`, "/units"},
		{`{"units":[5]}`, "/units/0"},
		{`{"units":[` + unit + `,{"unit_number":"1","vin":"1TSTTRK89RX000202","note":""}]}`, "/units/1"},
		{`{"units":[{"unit_number":417,"vin":"1TSTTRK83RX000101"}]}`, "/units/0/unit_number"},
		{`{"units":[{"vin":"1TSTTRK83RX000101"}]}`, "/units/0/unit_number"},
		{`{"units":[{"unit_number":"1"}]}`, "/units/0/vin"},
		{`{"units":[{"unit_number":"1","vin":"1TSTTRK81RX000101"}]}`, "/units/0/vin"},
		{`{"units":[{"unit_number":"1","vin":"11111111111111111"}]}`, "/units/0/vin"},
		{`{"units":[{"unit_number":"1","usdot":"0","vin":"1TSTTRK83RX000101"}]}`, "/units/0/usdot"},
		{`{"units":[` + unit + `,` + unit + `]}`, "/units/1"},
		{`{"units":[` + unit + `,{"unit_number":"2","vin":"1TSTTRK83RX000101"}]}`, "/units/1/vin"},
		{`{"defect_aliases":[]}`, "/defect_aliases"},
		{`{"defect_aliases":{"A/B":5}}`, "/defect_aliases/A~1B"},
		{`{"defect_aliases":{"BRAKES":"BRAKES"}}`, "/defect_aliases/BRAKES"},
		{`{"defect_aliases":{"HORN":"TIRES"}}`, "/defect_aliases/HORN"},
		{`{"defect_aliases":{"":"TIRES"}}`, "/defect_aliases"},
	} {
		_, err := dvir.ParseConfig([]byte(tc.in))
		var wrong *dvir.ConfigError
		require.ErrorAs(t, err, &wrong, tc.in)
		assert.Equal(t, tc.pointer, wrong.Pointer, tc.in)
		assert.NotContains(t, err.Error(), "1TST")
	}
	_, err := dvir.New(dvir.Config{DefectAliases: map[string]string{"x": "y"}})
	require.Error(t, err)
}

func TestRoster(t *testing.T) {
	p := newProcessor(t, dvir.Config{Units: []dvir.Unit{
		{UnitNumber: "417", VIN: "1TSTTRK83RX000101"},
		{UnitNumber: "512", USDOT: "1", VIN: "1TSTTRK89RX000202"},
	}})
	for _, tc := range []struct {
		name, vehicle, usdot string
		mismatch             bool
	}{
		{"as listed", `{"unit_number":"417","vin":"1TSTTRK83RX000101"}`, `"9999999"`, false},
		{"VIN of another unit", `{"unit_number":"417","vin":"1TSTTRK89RX000202"}`, `"1"`, true},
		{"VIN in no list", `{"unit_number":"417","vin":"1M8GDM9AXKP042788"}`, `"1"`, true},
		{"number in no list, VIN of another unit", `{"unit_number":"7","vin":"1TSTTRK83RX000101"}`, `"1"`, true},
		{"same number at another carrier", `{"unit_number":"512","vin":"1M8GDM9AXKP042788"}`, `"2"`, false},
		{"listed VIN under the number of another carrier", `{"unit_number":"88","vin":"1TSTTRK89RX000202"}`, `"2"`, false},
		{"no number", `{"vin":"1TSTTRK89RX000202"}`, `"1"`, false},
		{"no VIN", `{"unit_number":"417"}`, `"1"`, false},
		{"neither listed", `{"unit_number":"7","vin":"1M8GDM9AXKP042788"}`, `"1"`, false},
	} {
		r := p.Process(jsonInput(vary(t, plain, edit{"/vehicle", tc.vehicle}, edit{"/carrier/usdot_number", tc.usdot})), nil)
		if tc.mismatch {
			assert.Equal(t, []dvir.Finding{{Code: "validate.roster_mismatch", Pointer: "/vehicle/vin"}}, r.Findings, tc.name)
		} else {
			assert.Equal(t, dvir.Admit, r.Outcome, tc.name)
		}
	}
}
