package chain

import (
	"bytes"
	"sync"
	"unicode/utf8"
)

// node is one value of an event, with its name when it is a member: positions in the event's bytes. The nodes of an
// event stand in the order of its text, those of an object or array right after its own and before next.
type node struct {
	name, nameEnd int32
	value, end    int32 // quotes and brackets included
	next          int32 // the node after this one and all it holds
	kind          byte  // first byte of the value; '0' for integers, 't' for true and false
	escaped       bool  // a string that holds an escape
	bit           uint8 // see nameBit
}

// nameBit spreads names over 64 bits, so that most absent and most repeated names are told apart by a mask.
func nameBit[S string | []byte](name S) uint8 {
	n := len(name)
	return uint8(n*9+int(name[0])*13+int(name[n/2])*19+int(name[n-1])*13) % 64
}

// scanner walks an event once, byte by byte, and refuses whatever the grammar of the package comment does not have.
type scanner struct {
	data  []byte
	pos   int
	depth int
	nodes []node
}

// rooms spares an allocation for every event of common size.
var rooms = sync.Pool{New: func() any { return new([64]node) }}

// scanEvent checks raw against the grammar and returns its nodes, appended to room.
func scanEvent(raw []byte, room []node) ([]node, error) {
	if len(raw) > MaxEvent {
		return nil, &GrammarError{MaxEvent, "longer than 32 KiB"}
	}
	return scan(raw, room)
}

// scan is scanEvent for an object of any length.
func scan(raw []byte, room []node) ([]node, error) {
	if !utf8.Valid(raw) {
		return nil, &GrammarError{invalidUTF8(raw), "not UTF-8"}
	}
	s := scanner{data: raw, nodes: room}
	if err := s.object(); err != nil {
		return nil, err
	}
	if s.pos != len(raw) {
		return nil, s.fail("bytes after the event")
	}
	return s.nodes, nil
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

// enter passes the bracket of an object or array.
func (s *scanner) enter(open byte) error {
	if s.peek() != open {
		return s.fail("an event is an object")
	}
	if s.depth++; s.depth > MaxDepth {
		return s.fail("nested too deep")
	}
	s.pos++
	return nil
}

// more passes what follows an item: a comma, and there is another, or the closing bracket.
func (s *scanner) more(closing byte) (bool, error) {
	switch s.peek() {
	case ',':
		s.pos++
		return true, nil
	case closing:
		s.pos++
		s.depth--
		return false, nil
	}
	return false, s.fail("neither a comma nor the closing bracket after a value")
}

func (s *scanner) object() error {
	if err := s.enter('{'); err != nil {
		return err
	}
	if s.peek() == '}' {
		_, err := s.more('}')
		return err
	}
	base, seen := len(s.nodes), uint64(0)
	for count, again := 1, true; again; count++ {
		if count > MaxMembers {
			return s.fail("too many members")
		}
		start := s.pos + 1
		name, err := s.name()
		if err != nil {
			return err
		}
		bit := nameBit(name)
		if seen&(1<<bit) != 0 && s.repeated(base, bit, name) {
			return s.fail("a name twice in one object")
		}
		seen |= 1 << bit
		s.nodes = append(s.nodes, node{name: int32(start), nameEnd: int32(start + len(name)), bit: bit})
		if err = s.value(); err != nil {
			return err
		}
		if again, err = s.more('}'); err != nil {
			return err
		}
	}
	return nil
}

// repeated tells whether the object whose members begin at base has the name already.
func (s *scanner) repeated(base int, bit uint8, name []byte) bool {
	for i := base; i < len(s.nodes); i = int(s.nodes[i].next) {
		if n := &s.nodes[i]; n.bit == bit && bytes.Equal(s.data[n.name:n.nameEnd], name) {
			return true
		}
	}
	return false
}

func (s *scanner) array() error {
	if err := s.enter('['); err != nil {
		return err
	}
	if s.peek() == ']' {
		_, err := s.more(']')
		return err
	}
	for again := true; again; {
		s.nodes = append(s.nodes, node{})
		err := s.value()
		if err != nil {
			return err
		}
		if again, err = s.more(']'); err != nil {
			return err
		}
	}
	return nil
}

// name reads "[a-z][a-z0-9_]*" and its colon.
func (s *scanner) name() ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.fail("a member begins with its name")
	}
	rest := s.data[s.pos+1:]
	n := 0
	for n < len(rest) && classes[rest[n]]&inName != 0 {
		n++
	}
	s.pos += n + 1
	name := rest[:n]
	if len(name) == 0 || name[0] < 'a' || s.peek() != '"' {
		return nil, s.fail("names are a-z, then a-z, 0-9 and _")
	}
	if s.pos++; s.peek() != ':' {
		return nil, s.fail("a colon after a name")
	}
	s.pos++
	return name, nil
}

// value reads a value and completes the last node, which is its own.
func (s *scanner) value() (err error) {
	at, start, kind := len(s.nodes)-1, s.pos, s.peek()
	switch {
	case kind == '"':
		err = s.text(at)
	case kind == '{':
		err = s.object()
	case kind == '[':
		err = s.array()
	case kind == 't':
		err = s.word("true")
	case kind == 'f':
		kind, err = 't', s.word("false")
	case '0' <= kind && kind <= '9':
		kind, err = '0', s.integer()
	default:
		err = s.fail("a value is a string, an integer, true, false, an object or an array")
	}
	n := &s.nodes[at]
	n.value, n.end, n.next, n.kind = int32(start), int32(s.pos), int32(len(s.nodes)), kind
	return err
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(w)) {
		return s.fail("neither true nor false")
	}
	s.pos += len(w)
	return nil
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

// text reads a string: no control characters, the escapes of RFC 8259 section 7, no half surrogate pairs.
func (s *scanner) text(at int) error {
	s.pos++
	for {
		rest, n := s.data[s.pos:], 0
		for n < len(rest) && classes[rest[n]]&inText != 0 {
			n++
		}
		s.pos += n
		switch s.peek() {
		case '"':
			s.pos++
			return nil
		case '\\':
			s.nodes[at].escaped = true
			if err := s.escape(); err != nil {
				return err
			}
		default:
			return s.fail("a control character in a string, or no end to it")
		}
	}
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
		d := digits[c]
		if d > 15 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	s.pos += 5
	return r, true
}

// Classes of bytes.
const (
	inName  = 1 << iota // a-z 0-9 _
	inText              // stands in a string without an escape
	inToken             // see ValidToken
	alnum               // a-z A-Z 0-9
)

var classes = func() (t [256]byte) {
	for i := range t {
		c := byte(i)
		lower, digit := 'a' <= c && c <= 'z', '0' <= c && c <= '9'
		if lower || digit || c == '_' {
			t[c] |= inName
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			t[c] |= inText
		}
		if lower || digit || 'A' <= c && c <= 'Z' {
			t[c] |= alnum | inToken
		}
		if bytes.IndexByte([]byte("._:/-"), c) >= 0 {
			t[c] |= inToken
		}
	}
	return t
}()

// digits holds the values of the lowercase hexadecimal digits, 255 for all other bytes.
var digits = func() (t [256]byte) {
	for i := range t {
		t[i] = 255
		if d := bytes.IndexByte([]byte("0123456789abcdef"), byte(i)); d >= 0 {
			t[i] = byte(d)
		}
	}
	return t
}()
