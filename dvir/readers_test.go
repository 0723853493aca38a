package dvir_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/dvir"
)

// wide is text in UTF-16, little or big endian, without a mark.
func wide(text []byte, little bool) []byte {
	var out []byte
	for _, u := range utf16.Encode([]rune(string(text))) {
		if little {
			out = append(out, byte(u), byte(u>>8))
		} else {
			out = append(out, byte(u>>8), byte(u))
		}
	}
	return out
}

func TestReaders(t *testing.T) {
	report := vary(t, plain)
	quoted, err := json.Marshal(string(report))
	require.NoError(t, err)
	requoted, err := json.Marshal(string(quoted))
	require.NoError(t, err)
	const (
		data    = "application/json"
		png     = "\x89PNG\r\n\x1a\n\x00\x00"
		pdf     = "%PDF-1.7\n"
		gzipped = "\x1f\x8b\x08\x00"
	)
	for _, tc := range []struct {
		name, body, media, encoding, code string
	}{
		{"nothing", "", data, "", "parse.empty_body"},
		{"nothing of a PDF", "", "application/pdf", "", "parse.empty_body"},
		{"nothing, gzipped", "", data, "gzip", "parse.empty_body"},
		{"space", " \r\n\t", data, "", "parse.empty_body"},
		{"a mark and nothing", "\ufeff", data, "", "parse.empty_body"},

		{"page", "<!DOCTYPE html><p>", data, "", "ingest.html_instead_of_data"},
		{"page after space", "\n  <HTML lang=en>", data, "", "ingest.html_instead_of_data"},
		{"page after a mark", "\ufeff<html>", data, "", "ingest.html_instead_of_data"},
		{"page as a PDF", "<html>", "application/pdf", "", "ingest.html_instead_of_data"},
		{"page as a page", "<head>", "text/html; charset=utf-8", "", "ingest.html_instead_of_data"},

		{"gzip undeclared", gzipped, data, "", "parse.undeclared_compression"},
		{"gzip of no type", gzipped, "", "", "parse.undeclared_compression"},
		{"gzip, encoding identity", gzipped, data, "identity", "parse.undeclared_compression"},
		{"zstd undeclared", "\x28\xb5\x2f\xfd\x00", data, "", "parse.undeclared_compression"},
		{"gzip as content encoding", gzipped, data, "gzip", "parse.unsupported_format"},
		{"gzip as type", gzipped, "application/gzip", "", "parse.unsupported_format"},
		{"brotli as content encoding", "\x0b\x02", data, "br", "parse.unsupported_format"},

		{"PNG as PDF", png, "application/pdf", "", "parse.type_mismatch"},
		{"JPEG as PDF", "\xff\xd8\xff\xe0", "Application/PDF", "", "parse.type_mismatch"},
		{"PNG as JSON", png, data, "", "parse.type_mismatch"},
		{"zip as PDF", "PK\x03\x04", "application/pdf", "", "parse.type_mismatch"},
		{"PNG", png, "image/png", "", "parse.unsupported_format"},
		{"PNG of no type", png, "", "", "parse.unsupported_format"},
		{"PDF", pdf, "application/pdf", "", "parse.unsupported_format"},
		{"PDF as JSON", pdf, data, "", "parse.type_mismatch"},
		{"JSON as a PDF", string(report), "application/pdf", "", "parse.type_mismatch"},
		{"zlib undeclared", "\x78\x9c\xcb\x48", data, "", "parse.undeclared_compression"},
		{"XHTML page", "<?xml version='1.0'?><!DOCTYPE html><html>", "text/xml", "", "ingest.html_instead_of_data"},
		{"UTF-32 without a mark", "\x00\x00\x00{\x00\x00\x00}", data, "", "parse.charset"},
		{"zip as bytes", "PK\x03\x04", "application/octet-stream", "", "parse.unsupported_format"},
		{"XML", "<?xml version='1.0'?><inspinfo/>", "text/xml", "", "parse.unsupported_format"},
		{"XML as JSON", "<inspinfo/>", data, "", "parse.unsupported_format"},
		{"CSV", "a,b\n1,2\n", "text/csv", "", "parse.unsupported_format"},
		{"CSV as text", "a,b\n1,2\n", "text/plain", "", "parse.unsupported_format"},
		{"multipart", "--x\r\n", "multipart/form-data; boundary=x", "", "parse.unsupported_format"},

		{"UTF-16LE", "\xff\xfe" + string(wide(report, true)), data, "", "parse.charset"},
		{"UTF-16BE", "\xfe\xff" + string(wide(report, false)), data, "", "parse.charset"},
		{"UTF-16LE without mark", string(wide(report, true)), data, "", "parse.charset"},
		{"UTF-16BE without mark", string(wide(report, false)), "", "", "parse.charset"},
		{"UTF-32BE", "\x00\x00\xfe\xff\x00\x00\x00{", data, "", "parse.charset"},
		{"Latin-1 text", strings.Replace(string(report), "Example Yard", "Caf\xe9", 1), data, "", "parse.charset"},

		{"text", "hello", data, "", "parse.json_syntax"},
		{"marked and cut", "\ufeff{", data, "", "parse.json_truncated"},
		{"cut report", string(report[:len(report)-1]), data, "", "parse.json_truncated"},
		{"report twice", string(report) + string(report), data, "", "parse.trailing_data"},
		{"padded report", string(report) + strings.Repeat("\x00", 512), data, "", "parse.trailing_data"},
		{"report in a string", string(quoted), data, "", "parse.double_encoded"},
		{"report in a string in a string", string(requoted), data, "", "parse.double_encoded"},
		{"cut report in a string", `"{\"dvir_id\":"`, data, "", "parse.double_encoded"},
		{"just a string", `"hello"`, data, "", "parse.unsupported_format"},
		{"null", `null`, data, "", "parse.unsupported_format"},
		{"number", `5`, data, "", "parse.unsupported_format"},
		{"empty object", `{}`, data, "", "parse.unsupported_format"},
		{"vendor object", `{"inspection_reports":[]}`, data, "", "parse.unsupported_format"},
		{"empty list", `[]`, data, "", "parse.unsupported_format"},
		{"list of words", `["inspection_report_upserted"]`, data, "", "parse.unsupported_format"},
		{"list of reports", "[" + string(report) + "]", data, "", "validate.schema"},
		{"list of ids", `[{"dvir_id":"x"}]`, data, "", "validate.schema"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := dvir.Input{Data: []byte(tc.body), ContentType: tc.media, ContentEncoding: tc.encoding, ReceivedAt: noon}
			r := newProcessor(t, dvir.Config{}).Process(in, nil)
			checkShape(t, r)
			assert.Equal(t, dvir.Exception, r.Outcome)
			assert.Equal(t, tc.code, r.Code)
		})
	}
}

// TestMediaTypes holds that a report is read under every name that does not exclude it.
func TestMediaTypes(t *testing.T) {
	for _, media := range []string{"", "application/json", "Application/JSON; charset=utf-8", "application/vnd.dvir+json", "text/plain", "application/octet-stream", "text/html", "nonsense"} {
		in := dvir.Input{Data: vary(t, plain), ContentType: media, ContentEncoding: " Identity ", ReceivedAt: noon}
		assert.Equal(t, dvir.Admit, newProcessor(t, dvir.Config{}).Process(in, nil).Outcome, media)
	}
}

// TestMarkAndError holds that a byte-order mark does not hide an error.
func TestMarkAndError(t *testing.T) {
	data := append([]byte("\ufeff"), vary(t, plain, edit{"/vehicle/vin", `"1"`})...)
	r := newProcessor(t, dvir.Config{}).Process(jsonInput(data), nil)
	assert.Equal(t, []dvir.Finding{
		{Code: "validate.vin_length", Pointer: "/vehicle/vin"},
		{Code: "parse.utf8_bom", Warning: true},
	}, r.Findings)
	assert.Equal(t, dvir.Exception, r.Outcome)
}

// FuzzProcess holds the shape of results for every input, and that the same input gives
// the same result.
func FuzzProcess(f *testing.F) {
	m := readManifest(f)
	for _, e := range m.Files {
		in := m.input(f, e)
		if len(in.Data) < 8<<10 {
			f.Add(in.Data, in.ContentType, in.ContentEncoding)
		}
	}
	config := fleet
	config.DefectAliases = map[string]string{"BRAKE_SYS": "SERVICE_BRAKES"}
	p := newProcessor(f, config)
	f.Fuzz(func(t *testing.T, data []byte, media, encoding string) {
		in := dvir.Input{Data: data, ContentType: media, ContentEncoding: encoding, ReceivedAt: noon}
		r := p.Process(in, nil)
		checkShape(t, r)
		again := p.Process(in, nil)
		require.Equal(t, r, again)
		if r.Record != nil {
			require.True(t, json.Valid(r.Record.JSON))
			reading, ok := dvir.ReadingOf(r.Record.JSON)
			require.Equal(t, r.Record.Reading != nil, ok)
			if ok {
				require.Equal(t, *r.Record.Reading, reading)
			}
		}
	})
}
