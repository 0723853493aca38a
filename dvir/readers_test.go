package dvir_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
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

// packed is text in gzip.
func packed(text string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return out.String()
}

// flipped has a bit turned at a place, counted from the end if it is negative.
func flipped(text string, at int) string {
	out := []byte(text)
	out[(at+len(out))%len(out)] ^= 1
	return string(out)
}

// zipped is an archive of names and what they hold.
func zipped(members ...string) string {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for i := 0; i < len(members); i += 2 {
		w, err := z.Create(members[i])
		if err == nil {
			_, _ = w.Write([]byte(members[i+1]))
		}
	}
	_ = z.Close()
	return out.String()
}

// form is a multipart body of media types and what the parts hold.
func form(parts ...string) string {
	var out strings.Builder
	for i := 0; i < len(parts); i += 2 {
		out.WriteString("--x\r\nContent-Disposition: form-data; name=\"p\"\r\n")
		if parts[i] != "" {
			out.WriteString("Content-Type: " + parts[i] + "\r\n")
		}
		out.WriteString("\r\n" + parts[i+1] + "\r\n")
	}
	return out.String() + "--x--\r\n"
}

// TestUnpacked holds that a report is the same whatever it comes in.
func TestUnpacked(t *testing.T) {
	report := string(vary(t, plain))
	const png = "\x89PNG\r\n\x1a\n\x00\x00"
	bare := newProcessor(t, dvir.Config{}).Process(jsonInput([]byte(report)), nil)
	require.Equal(t, dvir.Admit, bare.Outcome)
	for name, in := range map[string]dvir.Input{
		"gzip as content encoding": {Data: []byte(packed(report)), ContentType: "application/json", ContentEncoding: "GZIP"},
		"gzip as type":             {Data: []byte(packed(report)), ContentType: "application/gzip"},
		"gzip in two members":      {Data: []byte(packed(report[:99]) + packed(report[99:])), ContentEncoding: "gzip"},
		"zip":                      {Data: []byte(zipped("out/", "", "out/report.json", report, "__MACOSX/report.json", "x"))},
		"zip with a picture":       {Data: []byte(zipped("scan.png", png, "report.json", report)), ContentType: "application/zip"},
		"zip in gzip":              {Data: []byte(packed(zipped("report", report))), ContentType: "application/gzip"},
		"multipart":                {Data: []byte(form("", "a field", "application/json", report, "image/png", png)), ContentType: "multipart/form-data; boundary=x"},
	} {
		in.ReceivedAt = noon
		r := newProcessor(t, dvir.Config{}).Process(in, nil)
		require.Equal(t, bare, r, name)
	}
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

		{"gzip undeclared", packed("{}"), data, "", "parse.undeclared_compression"},
		{"gzip of no type", packed("{}"), "", "", "parse.undeclared_compression"},
		{"gzip, encoding identity", packed("{}"), data, "identity", "parse.undeclared_compression"},
		{"cut gzip undeclared", gzipped, data, "", "parse.gzip_truncated"},
		{"zstd undeclared", "\x28\xb5\x2f\xfd\x00", data, "", "parse.undeclared_compression"},
		{"cut gzip as content encoding", gzipped, data, "gzip", "parse.gzip_truncated"},
		{"cut gzip as type", gzipped, "application/gzip", "", "parse.gzip_truncated"},
		{"gzip as content encoding of nothing known", packed("hello"), "", "gzip", "parse.unsupported_format"},
		{"gzip of a page", packed("<html>"), data, "x-gzip", "ingest.html_instead_of_data"},
		{"gzip of nothing", packed(""), data, "gzip", "parse.empty_body"},
		{"unpacked on the way", string(report), data, "gzip", "parse.type_mismatch"},
		{"gzip and more", packed("{}") + "more", data, "gzip", "parse.trailing_data"},
		{"gzip with a flipped byte", flipped(packed(string(report)), -3), data, "gzip", "parse.gzip_checksum"},
		{"gzip with broken blocks", flipped(packed(string(report)), 12), data, "gzip", "parse.gzip_checksum"},
		{"gzip twice", packed(packed(string(report))), data, "gzip", "parse.undeclared_compression"},
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
		{"cut zip as bytes", "PK\x03\x04", "application/octet-stream", "", "parse.archive_invalid"},
		{"zip with a way out", zipped("../report.json", string(report)), "application/zip", "", "parse.archive_path"},
		{"zip with a root", zipped("/etc/report.json", string(report)), "application/zip", "", "parse.archive_path"},
		{"zip with a drive", zipped("c:report.json", string(report)), "application/zip", "", "parse.archive_path"},
		{"zip with another way out", zipped("a\\..\\..\\b.json", string(report)), "application/zip", "", "parse.archive_path"},
		{"empty zip", zipped(), "application/zip", "", "parse.empty_body"},
		{"zip of folders", zipped("reports/", ""), "application/zip", "", "parse.empty_body"},
		{"zip of two", zipped("a.json", string(report), "b.json", string(report)), "application/zip", "", "parse.unsupported_format"},
		{"zip of a page", zipped("report.json", "<html>"), "", "", "ingest.html_instead_of_data"},
		{"zip of a picture", zipped("scan.png", png), "", "", "parse.unsupported_format"},
		{"zip of a picture by another name", zipped("scan.json", png), "", "", "parse.type_mismatch"},
		{"zip in zip in zip in zip", zipped("a", zipped("a", zipped("a", zipped("a", string(report))))), "", "", "parse.expansion_limit"},
		{"XML", "<?xml version='1.0'?><inspinfo/>", "text/xml", "", "parse.unsupported_format"},
		{"XML as JSON", "<inspinfo/>", data, "", "parse.unsupported_format"},
		{"CSV of other things", "a,b\n1,2\n", "text/csv", "", "parse.unsupported_format"},
		{"CSV of several reports", "Report ID,Submitted,VIN\n1,x,y\n2,x,y\n", "text/csv", "", "parse.unsupported_format"},
		{"ragged CSV", "Report ID,Submitted,VIN\n1,x\n", "text/csv", "", "parse.csv_field_count"},
		{"CSV with a quote too many", "Report ID,Submitted,VIN\n1,\"x,y\n", "text/csv", "", "parse.csv_field_count"},
		{"CSV in Latin-1", "Report ID,Submitted,Vehicle\n1,x,caf\xe9\n", "text/csv", "", "parse.charset"},
		{"CSV with a time of no zone", "Report ID,Submitted,Vehicle,Driver,Driver Signed\n1,2026-03-10 18:09:40,417,A,2026-03-10 18:09:40\n", "text/csv", "", "validate.time_no_offset"},
		{"CSV with a time that was twice", "Report ID,Submitted,Timezone,Vehicle,Driver\n1,2025-11-02 01:30:00,America/Chicago,417,A\n", "text/csv", "", "normalize.time_ambiguous"},
		{"CSV as text", "a,b\n1,2\n", "text/plain", "", "parse.unsupported_format"},
		{"cut multipart", "--x\r\n", "multipart/form-data; boundary=x", "", "parse.multipart_truncated"},
		{"multipart without a boundary", "--x\r\n", "multipart/form-data", "", "parse.unsupported_format"},
		{"multipart of nothing", "--x--\r\n", "multipart/form-data; boundary=x", "", "parse.empty_body"},
		{"multipart of fields", form("", "text"), "multipart/form-data; boundary=x", "", "parse.empty_body"},
		{"multipart of two", form(data, string(report), data, string(report)), "multipart/form-data; boundary=x", "", "parse.unsupported_format"},
		{"multipart of a cut report", form(data, "{"), "multipart/form-data; boundary=x", "", "parse.json_truncated"},
		{"XML with a type", "<?xml version='1.0'?><!DOCTYPE a SYSTEM 'x'><a/>", "text/xml", "", "parse.xml_doctype_forbidden"},
		{"XML with two roots", "<a/><b/>", "text/xml", "", "parse.xml_syntax"},
		{"XML and text", "<a/>b", "text/xml", "", "parse.xml_syntax"},
		{"cut XML", "<a><b>", "text/xml", "", "parse.xml_syntax"},
		{"XML with an unknown entity", "<a>&b;</a>", "text/xml", "", "parse.xml_syntax"},
		{"XML of another charset", "<?xml version='1.0' encoding='EBCDIC-CP-US'?><a/>", "text/xml", "", "parse.charset"},
		{"XML in Latin-1 undeclared", "<a>caf\xe9</a>", "text/xml", "", "parse.charset"},
		{"XML in Latin-1", "<?xml version='1.0' encoding='ISO-8859-1'?><a>caf\xe9 \x80</a>", "text/xml", "", "parse.unsupported_format"},
		{"deep XML", strings.Repeat("<a>", 100) + strings.Repeat("</a>", 100), "text/xml", "", "parse.expansion_limit"},

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
		{"list of words", `["inspection_report_upserted","hello"]`, data, "", "parse.unsupported_format"},
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
