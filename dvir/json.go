package dvir

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of the JSON that is read. Go's own limit of 10,000 levels is far too generous for
// a report, and a number of thousands of digits is an attack on exact arithmetic. A value of
// two bytes takes up to a hundred times that in memory, so values are counted as well as bytes.
const (
	maxDepth  = 64
	maxNumber = 128
	maxText   = 8 << 20 // bytes
	maxValues = 200_000 // of all levels together
)

type object = map[string]any

// fault is why bytes are not a document: a code and the place, innermost name first.
// It never holds input beyond names of the contract.
type fault struct {
	code string
	path []string
}

// under tells that the fault lies below the named member. A name outside the contract is
// input and hides all that lies below it.
func (f *fault) under(name string) {
	if !contract().names[name] {
		f.path = f.path[:0]
		return
	}
	f.path = append(f.path, name)
}

func (f *fault) at(index int) { f.path = append(f.path, strconv.Itoa(index)) }

func (f *fault) pointer() string {
	path := slices.Clone(f.path)
	slices.Reverse(path)
	return pointer(path...)
}

// pointer is the RFC 6901 form of names that need no escaping.
func pointer(path ...string) string {
	if len(path) == 0 {
		return ""
	}
	return "/" + strings.Join(path, "/")
}

// decode reads one JSON text (RFC 8259, UTF-8 without byte-order mark) strictly: no
// invalid UTF-8, no half characters, no repeated names, nothing after the value, bounded
// depth and size, numbers within the range of a 64-bit float. Numbers keep their spelling.
func decode(data []byte) (any, *fault) {
	if len(data) > maxText {
		return nil, &fault{code: codeExpansion}
	}
	return decodeWithin(data, maxValues)
}

// decodeWithin decodes a text of any length with at most so many values.
func decodeWithin(data []byte, values int) (any, *fault) {
	if f := checkUTF8(data); f != nil {
		return nil, f
	}
	s := scanner{data: data, values: values}
	v, f := s.value()
	if f != nil {
		return nil, f
	}
	if s.space(); s.pos < len(data) {
		return nil, &fault{code: codeTrailing}
	}
	return v, nil
}

// checkUTF8 refuses all but UTF-8. A character that only lacks its end is the mark of a
// cut, not of another encoding.
func checkUTF8(data []byte) *fault {
	if utf8.Valid(data) {
		return nil
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			if !utf8.FullRune(data[i:]) {
				return &fault{code: codeTruncated}
			}
			break
		}
		i += size
	}
	return &fault{code: codeCharset}
}

type scanner struct {
	data   []byte
	pos    int
	depth  int
	values int // that may still come
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// next skips space and returns the byte there, 0 at the end. A NUL in the input is 0 as
// well, which no caller accepts.
func (s *scanner) next() byte {
	s.space()
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// unexpected is the fault of a byte that fits no rule, or of its absence.
func (s *scanner) unexpected() *fault {
	if s.pos >= len(s.data) {
		return &fault{code: codeTruncated}
	}
	return &fault{code: codeSyntax}
}

func (s *scanner) value() (any, *fault) {
	if s.values--; s.values < 0 {
		return nil, &fault{code: codeExpansion}
	}
	switch c := s.next(); c {
	case '{':
		return s.nested(s.object)
	case '[':
		return s.nested(s.array)
	case '"':
		return s.text()
	case 't':
		return true, s.literal("true")
	case 'f':
		return false, s.literal("false")
	case 'n':
		return nil, s.literal("null")
	default:
		if c == '-' || isDigit(c) {
			return s.number()
		}
		return nil, s.unexpected()
	}
}

func (s *scanner) nested(read func() (any, *fault)) (any, *fault) {
	if s.depth == maxDepth {
		return nil, &fault{code: codeDepth}
	}
	s.depth++
	s.pos++
	v, f := read()
	s.depth--
	return v, f
}

func (s *scanner) object() (any, *fault) {
	o := object{}
	if s.next() == '}' {
		s.pos++
		return o, nil
	}
	for {
		if s.next() != '"' {
			return nil, s.unexpected()
		}
		name, f := s.string()
		if f != nil {
			return nil, f
		}
		if f := s.member(o, name); f != nil {
			f.under(name)
			return nil, f
		}
		switch s.next() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return o, nil
		default:
			return nil, s.unexpected()
		}
	}
}

// member reads the colon and the value of one member into o.
func (s *scanner) member(o object, name string) *fault {
	if _, twice := o[name]; twice {
		return &fault{code: codeDuplicateKey}
	}
	if s.next() != ':' {
		return s.unexpected()
	}
	s.pos++
	v, f := s.value()
	if f != nil {
		return f
	}
	o[name] = v
	return nil
}

func (s *scanner) array() (any, *fault) {
	list := []any{}
	if s.next() == ']' {
		s.pos++
		return list, nil
	}
	for {
		v, f := s.value()
		if f != nil {
			f.at(len(list))
			return nil, f
		}
		list = append(list, v)
		switch s.next() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return list, nil
		default:
			return nil, s.unexpected()
		}
	}
}

func (s *scanner) literal(word string) *fault {
	for i := range len(word) {
		if s.pos >= len(s.data) || s.data[s.pos] != word[i] {
			return s.unexpected()
		}
		s.pos++
	}
	return nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func (s *scanner) digits() *fault {
	start := s.pos
	for s.pos < len(s.data) && isDigit(s.data[s.pos]) {
		s.pos++
	}
	if s.pos == start {
		return s.unexpected()
	}
	return nil
}

func (s *scanner) accept(set string) bool {
	if s.pos < len(s.data) && strings.IndexByte(set, s.data[s.pos]) >= 0 {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) number() (any, *fault) {
	start := s.pos
	s.accept("-")
	if !s.accept("0") {
		if f := s.digits(); f != nil {
			return nil, f
		}
	}
	if s.accept(".") {
		if f := s.digits(); f != nil {
			return nil, f
		}
	}
	exponent := s.accept("eE")
	if exponent {
		s.accept("+-")
		if f := s.digits(); f != nil {
			return nil, f
		}
	}
	n := string(s.data[start:s.pos])
	if len(n) > maxNumber || exponent && !representable(n) {
		return nil, &fault{code: codeNumberRange}
	}
	return json.Number(n), nil
}

// representable tells that a number with an exponent neither overflows a 64-bit float nor
// vanishes in it.
func representable(n string) bool {
	f, err := strconv.ParseFloat(n, 64)
	if err != nil {
		return false
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(n), "e")
	return f != 0 || !strings.ContainsAny(mantissa, "123456789")
}

func (s *scanner) text() (any, *fault) {
	v, f := s.string()
	if f != nil {
		return nil, f
	}
	return v, nil
}

func (s *scanner) string() (string, *fault) {
	s.pos++
	start := s.pos
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return string(s.data[start : s.pos-1]), nil
		case c == '\\':
			return s.escaped(slices.Clone(s.data[start:s.pos]))
		case c < 0x20:
			return "", s.unexpected()
		}
	}
	return "", s.unexpected()
}

// escaped reads on from the first backslash of a string whose beginning is read.
func (s *scanner) escaped(read []byte) (string, *fault) {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return string(read), nil
		case c == '\\':
			s.pos++
			r, f := s.escape()
			if f != nil {
				return "", f
			}
			read = utf8.AppendRune(read, r)
		case c < 0x20:
			return "", s.unexpected()
		default:
			read = append(read, c)
			s.pos++
		}
	}
	return "", s.unexpected()
}

const (
	escapeLetters = `"\/bfnrt`
	escapeMeaning = "\"\\/\b\f\n\r\t"
)

// escape reads what follows a backslash.
func (s *scanner) escape() (rune, *fault) {
	if s.pos >= len(s.data) {
		return 0, s.unexpected()
	}
	if i := strings.IndexByte(escapeLetters, s.data[s.pos]); i >= 0 {
		s.pos++
		return rune(escapeMeaning[i]), nil
	}
	high, f := s.unit()
	if f != nil || high < 0xD800 || high > 0xDFFF {
		return high, f
	}
	if high > 0xDBFF {
		return 0, &fault{code: codeSurrogate}
	}
	if s.pos >= len(s.data) {
		return 0, s.unexpected()
	}
	if s.data[s.pos] != '\\' || s.pos+1 < len(s.data) && s.data[s.pos+1] != 'u' {
		return 0, &fault{code: codeSurrogate}
	}
	s.pos++
	low, f := s.unit()
	if f != nil {
		return 0, f
	}
	if low < 0xDC00 || low > 0xDFFF {
		return 0, &fault{code: codeSurrogate}
	}
	return (high-0xD800)<<10 + (low - 0xDC00) + 0x10000, nil
}

// unit reads the letter u and four hexadecimal digits: one UTF-16 code unit.
func (s *scanner) unit() (rune, *fault) {
	if !s.accept("u") {
		return 0, s.unexpected()
	}
	var r rune
	for range 4 {
		if s.pos >= len(s.data) {
			return 0, s.unexpected()
		}
		d := strings.IndexByte("0123456789abcdef", s.data[s.pos]|0x20)
		if d < 0 || d < 10 && !isDigit(s.data[s.pos]) {
			return 0, s.unexpected()
		}
		r = r<<4 | rune(d)
		s.pos++
	}
	return r, nil
}
