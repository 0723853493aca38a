package dvir

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// source is one input with what its first bytes tell.
type source struct {
	Input
	media  string // declared media type, lower case, without parameters
	body   []byte // the data without a byte-order mark
	marked bool   // a UTF-8 byte-order mark was there
	format format // what the first bytes are
	tree   any    // the body as JSON, when it is
	fault  *fault // why it is not
	looked bool
	markup *element // the body as XML, when it is
	broken string   // the code of why it is not
	wraps  int      // containers around it
}

// reading is what a reader makes of a source: a canonical report, or findings that say
// why there is none. With a report, the findings are warnings.
type reading struct {
	report   object
	findings []Finding
}

// A reader handles one kind of input, or declines (false) what is not of its kind.
type reader func(*source) (reading, bool)

// readers are asked in order: the first that does not decline decides, and the last never
// declines. A new format is a file with a reader and a line here: bytes of other formats
// before readMalformed, JSON of other shapes before readForeign.
func readers() []reader {
	return []reader{
		readEmpty,
		readGzip,
		readEncoded,
		readHTML,
		readMismatch,
		readArchive,
		readMultipart,
		readMarkup,
		readTable,
		readOtherFormat,
		readWideText,
		readMalformed,
		readDoubleEncoded,
		readList,
		readCanonical,
		readVendor,
		readForeign,
	}
}

func read(in Input) reading { return readSource(newSource(in, 0)) }

func readSource(s *source) reading {
	for _, r := range readers() {
		if got, ok := r(s); ok {
			return got
		}
	}
	return refuse(codeUnsupported)
}

func refuse(code string) reading { return reading{findings: []Finding{{Code: code}}} }

func newSource(in Input, wraps int) *source {
	media, _, _ := strings.Cut(in.ContentType, ";")
	body, marked := bytes.CutPrefix(in.Data, []byte("\ufeff"))
	return &source{
		Input:  in,
		media:  strings.ToLower(strings.TrimSpace(media)),
		body:   body,
		marked: marked,
		format: sniff(body),
		wraps:  wraps,
	}
}

// json decodes the body once for all readers of JSON shapes.
func (s *source) json() (any, *fault) {
	if !s.looked {
		s.tree, s.fault = decode(s.body)
		s.looked = true
	}
	return s.tree, s.fault
}

// format is what the first bytes of an input are.
type format string

const (
	formatUnknown format = ""
	formatJSON    format = "json"
	formatHTML    format = "html"
	formatXML     format = "xml"
	formatPDF     format = "pdf"
	formatArchive format = "archive"
	formatGzip    format = "gzip"
	formatPacked  format = "packed"
	formatImage   format = "image"
	formatWide    format = "wide text" // UTF-16 or UTF-32
)

// magics are the signatures of formats that begin with a fixed one.
var magics = []struct {
	prefix string
	format format
}{
	{"%PDF-", formatPDF},
	{"PK\x03\x04", formatArchive},
	{"PK\x05\x06", formatArchive},
	{"\x1f\x8b", formatGzip},
	{"\x28\xb5\x2f\xfd", formatPacked},
	{"\xfd7zXZ\x00", formatPacked},
	{"BZh", formatPacked},
	{"\x78\x9c", formatPacked}, // zlib, RFC 1950
	{"\x78\xda", formatPacked},
	{"\x89PNG\r\n\x1a\n", formatImage},
	{"\xff\xd8\xff", formatImage},
	{"GIF8", formatImage},
	{"II*\x00", formatImage},
	{"MM\x00*", formatImage},
	{"\xfe\xff", formatWide},
	{"\xff\xfe", formatWide},
	{"\x00\x00\xfe\xff", formatWide},
	{"\x00\x00\x00{", formatWide}, // UTF-32 without a mark
	{"\x00\x00\x00[", formatWide},
	{"\x00\x00\x00\"", formatWide},
}

// htmlStarts begin a web page, in lower case.
var htmlStarts = []string{"<!doctype html", "<html", "<head", "<body", "<title", "<meta", "<h1", "<center", "<script", "<!--"}

func sniff(body []byte) format {
	for _, m := range magics {
		if bytes.HasPrefix(body, []byte(m.prefix)) {
			return m.format
		}
	}
	if len(body) >= 2 && (body[0] == 0) != (body[1] == 0) {
		return formatWide
	}
	text := bytes.TrimLeft(body, " \t\r\n")
	if len(text) == 0 {
		return formatUnknown
	}
	switch text[0] {
	case '{', '[', '"':
		return formatJSON
	case '<':
		return sniffMarkup(text)
	}
	return formatUnknown
}

func sniffMarkup(text []byte) format {
	start := strings.ToLower(string(text[:min(len(text), 512)]))
	if strings.HasPrefix(start, "<?xml") && (strings.Contains(start, "<html") || strings.Contains(start, "<!doctype html")) {
		return formatHTML
	}
	for _, h := range htmlStarts {
		if strings.HasPrefix(start, h) {
			return formatHTML
		}
	}
	return formatXML
}

// declared is the kind that the media type promises, formatUnknown when it promises none.
func (s *source) declared() format {
	switch m := s.media; {
	case m == "application/json" || m == "text/json" || strings.HasSuffix(m, "+json"):
		return formatJSON
	case m == "text/html" || m == "application/xhtml+xml":
		return formatHTML
	case m == "application/xml" || m == "text/xml" || strings.HasSuffix(m, "+xml"):
		return formatXML
	case m == "application/pdf":
		return formatPDF
	case m == "application/zip" || m == "application/x-zip-compressed":
		return formatArchive
	case m == "application/gzip" || m == "application/x-gzip":
		return formatGzip
	case strings.HasPrefix(m, "image/"):
		return formatImage
	}
	return formatUnknown
}

func readEmpty(s *source) (reading, bool) {
	return refuse(codeEmpty), len(bytes.TrimSpace(s.body)) == 0
}

// readEncoded meets compressed bytes that nothing here unpacks, or that are compressed undeclared, which is the sender's
// mistake.
func readEncoded(s *source) (reading, bool) {
	switch {
	case s.encoding() != "":
		return refuse(codeUnsupported), true
	case s.format == formatGzip:
		_, code := inflate(s.Data)
		return refuse(cmp.Or(code, codeCompressed)), true // what is damaged as well helps nobody once it is declared
	case s.format == formatPacked:
		return refuse(codeCompressed), true
	}
	return reading{}, false
}

func readHTML(s *source) (reading, bool) { return refuse(codeHTML), s.format == formatHTML }

// readMismatch meets bytes of one kind under the name of another: binary ones under any name
// but their own, and JSON under the name of a binary kind.
func readMismatch(s *source) (reading, bool) {
	declared := s.declared()
	if declared == formatUnknown || declared == s.format {
		return reading{}, false
	}
	binary := []format{formatPDF, formatArchive, formatImage}
	mismatch := slices.Contains(binary, s.format) || s.format == formatJSON && slices.Contains(binary, declared)
	return refuse(codeTypeMismatch), mismatch
}

// readOtherFormat meets formats that have no reader yet, known by their bytes or by their
// declared type, and undeclared bytes that do not even begin like JSON.
func readOtherFormat(s *source) (reading, bool) {
	foreign := slices.Contains([]format{formatPDF, formatImage}, s.format) ||
		slices.Contains([]format{formatPDF, formatArchive, formatXML, formatImage}, s.declared()) ||
		s.media == "text/csv" || s.media == "application/csv"
	shapeless := s.declared() != formatJSON && s.format == formatUnknown
	return refuse(codeUnsupported), foreign || shapeless
}

func readWideText(s *source) (reading, bool) { return refuse(codeCharset), s.format == formatWide }

func readMalformed(s *source) (reading, bool) {
	_, f := s.json()
	if f == nil {
		return reading{}, false
	}
	return reading{findings: s.withMark(Finding{Code: f.code, Pointer: f.pointer()})}, true
}

// withMark adds the warning about a byte-order mark, if there was one.
func (s *source) withMark(findings ...Finding) []Finding {
	if s.marked {
		findings = append(findings, Finding{Code: codeBOM, Warning: true})
	}
	return findings
}

// readDoubleEncoded meets a string that holds, or begins to hold, a JSON document.
func readDoubleEncoded(s *source) (reading, bool) {
	v, _ := s.json()
	text, ok := v.(string)
	inner := strings.TrimLeft(text, " \t\r\n\ufeff")
	return refuse(codeDoubleEncoded), ok && inner != "" && strings.IndexByte(`{["`, inner[0]) >= 0
}

// readList meets canonical reports in an array: the contract is one report per document.
func readList(s *source) (reading, bool) {
	v, _ := s.json()
	list, ok := v.([]any)
	if !ok || !slices.ContainsFunc(list, isCanonical) {
		return reading{}, false
	}
	return reading{findings: s.withMark(Finding{Code: codeSchema})}, true
}

// isCanonical tells a document of our contract, however broken, from JSON of others.
func isCanonical(v any) bool {
	o, ok := v.(object)
	if !ok {
		return false
	}
	_, version := o["schema_version"]
	_, id := o["dvir_id"]
	return version || id
}

func readCanonical(s *source) (reading, bool) {
	v, _ := s.json()
	if !isCanonical(v) {
		return reading{}, false
	}
	return reading{report: v.(object), findings: s.withMark()}, true
}

func readForeign(*source) (reading, bool) { return refuse(codeUnsupported), true }
