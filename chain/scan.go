package chain

import (
	"bytes"
	"unicode/utf8"
)

// member is one name and its value, as slices of the event. kind is the value's first byte, '0' for integers.
type member struct {
	name, value []byte
	kind        byte
}

// scanner walks an event once, byte by byte, and refuses whatever the grammar of the package comment does not have.
// members is a stack: every open object keeps its own names above base, so repeated names are seen at every level.
type scanner struct {
	data    []byte
	pos     int
	depth   int
	members []member
}

// scan checks raw against the grammar and returns its top-level members in order, appended to room.
func scan(raw []byte, room []member) ([]member, error) {
	if len(raw) > MaxEvent {
		return nil, &GrammarError{MaxEvent, "longer than 32 KiB"}
	}
	if !utf8.Valid(raw) {
		return nil, &GrammarError{invalidUTF8(raw), "not UTF-8"}
	}
	s := scanner{data: raw, members: room[:0]}
	if err := s.object(); err != nil {
		return nil, err
	}
	if s.pos != len(raw) {
		return nil, s.fail("bytes after the event")
	}
	return s.members, nil
}

func invalidUTF8(raw []byte) (at int) {
	for at < len(raw) {
		r, n := utf8.DecodeRune(raw[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return at
}

func (s *scanner) fail(what string) error { return &GrammarError{s.pos, what} }

// peek is the byte at the position, or 0 at the end: NUL stands nowhere in the grammar.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) want(c byte, what string) error {
	if s.peek() != c {
		return s.fail(what)
	}
	s.pos++
	return nil
}

// object leaves its members on the stack when it is the event itself, and takes them off again when nested.
func (s *scanner) object() error {
	if err := s.want('{', "an object begins with {"); err != nil {
		return err
	}
	if s.depth++; s.depth > MaxDepth {
		return s.fail("nested too deep")
	}
	base := len(s.members)
	if s.peek() != '}' {
		if err := s.list(func() error { return s.member(base) }); err != nil {
			return err
		}
	}
	if err := s.want('}', "a comma or } after a member"); err != nil {
		return err
	}
	if s.depth--; s.depth > 0 {
		s.members = s.members[:base]
	}
	return nil
}

// list reads one item and further ones after commas.
func (s *scanner) list(item func() error) error {
	for {
		if err := item(); err != nil {
			return err
		}
		if s.peek() != ',' {
			return nil
		}
		s.pos++
	}
}

func (s *scanner) member(base int) error {
	name, err := s.name()
	if err != nil {
		return err
	}
	if len(s.members)-base == MaxMembers {
		return s.fail("too many members")
	}
	for i := base; i < len(s.members); i++ {
		if bytes.Equal(s.members[i].name, name) {
			return s.fail("a name twice in one object")
		}
	}
	at := len(s.members)
	s.members = append(s.members, member{name: name})
	start := s.pos
	kind, err := s.value()
	s.members = s.members[:at+1]
	s.members[at].value, s.members[at].kind = s.data[start:s.pos], kind
	return err
}

// name reads "[a-z][a-z0-9_]*" and its colon.
func (s *scanner) name() ([]byte, error) {
	if err := s.want('"', "a member begins with its name"); err != nil {
		return nil, err
	}
	start := s.pos
	for c := s.peek(); 'a' <= c && c <= 'z' || s.pos > start && ('0' <= c && c <= '9' || c == '_'); c = s.peek() {
		s.pos++
	}
	name := s.data[start:s.pos]
	if len(name) == 0 || s.peek() != '"' {
		return nil, s.fail("names are a-z, then a-z, 0-9 and _")
	}
	s.pos++
	return name, s.want(':', "a colon after a name")
}

func (s *scanner) value() (kind byte, err error) {
	switch c := s.peek(); {
	case c == '"':
		return c, s.text()
	case c == '{':
		return c, s.object()
	case c == '[':
		return c, s.array()
	case c == 't':
		return c, s.word("true")
	case c == 'f':
		return 't', s.word("false")
	case '0' <= c && c <= '9':
		return '0', s.integer()
	}
	return 0, s.fail("a value is a string, an integer, true, false, an object or an array")
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(w)) {
		return s.fail("neither true nor false")
	}
	s.pos += len(w)
	return nil
}

func (s *scanner) array() error {
	s.pos++
	if s.depth++; s.depth > MaxDepth {
		return s.fail("nested too deep")
	}
	if s.peek() != ']' {
		item := func() error { _, err := s.value(); return err }
		if err := s.list(item); err != nil {
			return err
		}
	}
	s.depth--
	return s.want(']', "a comma or ] after an item")
}

func (s *scanner) integer() error {
	start, n := s.pos, uint64(0)
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		if n = n*10 + uint64(c-'0'); n > MaxInteger {
			return s.fail("integers end at 2^53-1")
		}
		s.pos++
	}
	if s.data[start] == '0' && s.pos > start+1 {
		return s.fail("no leading zeros")
	}
	return nil
}

// text reads a string: no control characters, the escapes of RFC 8259, no half surrogate pairs.
func (s *scanner) text() error {
	s.pos++
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return nil
		case c < 0x20:
			return s.fail("a control character in a string")
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		default:
			s.pos++
		}
	}
	return s.fail("a string without end")
}

func (s *scanner) escape() error {
	s.pos++
	c := s.peek()
	if c != 'u' {
		if bytes.IndexByte([]byte(`"\/bfnrt`), c) < 0 {
			return s.fail("an unknown escape")
		}
		s.pos++
		return nil
	}
	r, ok := s.hex4()
	if !ok || 0xdc00 <= r && r < 0xe000 {
		return s.fail("a broken \\u escape")
	}
	if 0xd800 <= r && r < 0xdc00 {
		if s.peek() != '\\' {
			return s.fail("half a surrogate pair")
		}
		s.pos++
		low, ok := s.hex4()
		if !ok || low < 0xdc00 || low >= 0xe000 {
			return s.fail("half a surrogate pair")
		}
	}
	return nil
}

// hex4 reads uXXXX.
func (s *scanner) hex4() (r rune, ok bool) {
	if s.peek() != 'u' || s.pos+5 > len(s.data) {
		return 0, false
	}
	for _, c := range s.data[s.pos+1 : s.pos+5] {
		if 'A' <= c && c <= 'F' {
			c += 'a' - 'A'
		}
		d := hexDigit(c)
		if d > 15 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	s.pos += 5
	return r, true
}
