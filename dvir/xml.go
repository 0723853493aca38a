package dvir

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// element is one of an XML document: its attributes, the text directly in it, and what else it holds.
type element struct {
	name     string
	attrs    map[string]string
	text     string
	children []*element
}

// readMarkup meets XML. Of Zonar's it knows that the documentation gives the flag ffd of a defect both meanings.
func readMarkup(s *source) (reading, bool) {
	if s.format != formatXML {
		return reading{}, false
	}
	root, code := s.xml()
	switch {
	case code != "":
		return reading{findings: s.withMark(Finding{Code: code})}, true
	case root.name == "inspinfo" && root.holds("ffd"):
		return refuse(codePolarity), true
	}
	return refuse(codeUnsupported), true
}

// holds tells whether an element of that name with a text is anywhere in e.
func (e *element) holds(name string) bool {
	return e.name == name && strings.TrimSpace(e.text) != "" ||
		slices.ContainsFunc(e.children, func(c *element) bool { return c.holds(name) })
}

// xml reads the body once for all readers of XML shapes.
func (s *source) xml() (*element, string) {
	if s.markup == nil && s.broken == "" {
		s.markup, s.broken = parseXML(s.body)
	}
	return s.markup, s.broken
}

var errCharset = errors.New("dvir: a charset that is not read")

// parseXML reads one document (XML 1.0) without a document type, or says why not.
func parseXML(body []byte) (*element, string) {
	d := xml.NewDecoder(bytes.NewReader(body))
	converted := false
	d.CharsetReader = func(label string, input io.Reader) (io.Reader, error) {
		converted = true
		return singleBytes(label, input)
	}
	root := &element{}
	open := []*element{root}
	for values := 0; ; values++ {
		token, err := d.Token()
		if err != nil {
			return ended(root, open, err, converted || utf8.Valid(body))
		}
		if values > maxValues || len(open) > maxDepth {
			return nil, codeExpansion
		}
		top := open[len(open)-1]
		switch token := token.(type) {
		case xml.Directive:
			return nil, codeDoctype
		case xml.StartElement:
			e := &element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			top.children = append(top.children, e)
			open = append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if top == root && len(bytes.TrimSpace(token)) > 0 {
				return nil, codeXMLSyntax
			}
			top.text += string(token)
		}
	}
}

// ended is what came of a document at the end of its tokens.
func ended(root *element, open []*element, err error, valid bool) (*element, string) {
	switch {
	case errors.Is(err, errCharset), !valid:
		return nil, codeCharset
	case err != io.EOF, len(open) != 1, len(root.children) != 1: //nolint:errorlint // the decoder gives it bare
		return nil, codeXMLSyntax
	}
	return root.children[0], ""
}

// singleBytes reads the charsets of one byte a character that vendors declare.
func singleBytes(label string, input io.Reader) (io.Reader, error) {
	switch strings.ToLower(label) {
	case "iso-8859-1", "latin1", "windows-1252", "us-ascii", "ascii":
	default:
		return nil, errCharset
	}
	raw, err := io.ReadAll(io.LimitReader(input, maxUnpacked))
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	for _, c := range raw {
		r := rune(c)
		if 0x80 <= c && c < 0xa0 {
			r = windows1252[c-0x80] // as the WHATWG reads ISO-8859-1 too: senders mean it
		}
		out.WriteRune(r)
	}
	return strings.NewReader(out.String()), nil
}

// windows1252 are its characters from 0x80 on; those that it leaves open stand for themselves (WHATWG Encoding, 9).
var windows1252 = [32]rune{0x20ac, 0x81, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8d,
	0x017d, 0x8f, 0x90, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d, 0x017e, 0x0178}
