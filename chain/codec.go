package chain

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// codec walks the members of a struct in their one order, either writing them or reading them, so that the two
// cannot disagree. Zero values are absent. Members it is not asked for are left alone: that is how readers of
// today meet members of tomorrow.
type codec struct {
	out     []byte // writing: the object so far
	data    []byte // reading: the bytes and what was scanned in them
	nodes   []node
	at      span           // reading: the object or array being read
	around  [MaxDepth]span // reading: those it stands in
	level   int
	reading bool
	err     error
}

// span is the part of the nodes that an object or array holds.
type span struct {
	name     string // as a member, "" for the event and for items
	from, to int32
	next     int32  // where the next member is expected
	names    uint64 // nameBit of every member
}

// read makes c, which must be zero, a reader of the object whose members are nodes[from:].
func (c *codec) read(data []byte, nodes []node, from int) {
	c.data, c.nodes, c.reading = data, nodes, true
	c.at = c.span("", int32(from), int32(len(nodes)))
}

func (c *codec) span(name string, from, to int32) span {
	s := span{name: name, from: from, to: to, next: from}
	for i := from; i < to; i = c.nodes[i].next {
		s.names |= 1 << c.nodes[i].bit
	}
	return s
}

func (c *codec) fail(name, rule string) {
	if c.err != nil {
		return
	}
	for at := c.level; at >= 0; at-- {
		s := c.at
		if at < c.level {
			s = c.around[at+1]
		}
		if s.name != "" {
			name = s.name + "." + name
		}
	}
	c.err = &FieldError{name, rule}
}

// take finds the member called name, which is the next one unless a stranger came between. ok is false when it is
// absent or of another kind.
func (c *codec) take(name string, kind byte, rule string) (at int32, ok bool) {
	bit := nameBit(name)
	if c.at.names&(1<<bit) == 0 {
		return 0, false
	}
	at = c.at.next
	if at >= c.at.to || !c.named(at, bit, name) {
		for at = c.at.from; at < c.at.to && !c.named(at, bit, name); {
			at = c.nodes[at].next
		}
		if at >= c.at.to {
			return 0, false
		}
	}
	c.at.next = c.nodes[at].next
	if c.nodes[at].kind != kind {
		c.fail(name, rule)
		return 0, false
	}
	return at, true
}

func (c *codec) named(at int32, bit uint8, name string) bool {
	n := &c.nodes[at]
	return n.bit == bit && string(c.data[n.name:n.nameEnd]) == name
}

// inner is what stands between the quotes of a string.
func (c *codec) inner(at int32) []byte { return c.data[c.nodes[at].value+1 : c.nodes[at].end-1] }

func (c *codec) name(name string) {
	if c.out[len(c.out)-1] != '{' {
		c.out = append(c.out, ',')
	}
	c.out = append(c.out, '"')
	c.out = append(c.out, name...)
	c.out = append(c.out, '"', ':')
}

func text[T ~string](c *codec, name string, v *T) {
	if !c.reading {
		if *v != "" {
			c.name(name)
			c.quoted(name, string(*v))
		}
		return
	}
	if at, ok := c.take(name, '"', "must be a string"); ok {
		*v = T(c.unquoted(at))
	}
}

func (c *codec) digest(name string, v *Digest) {
	if !c.reading {
		if !v.IsZero() {
			c.name(name)
			c.out = append(c.out, '"')
			c.out = hex.AppendEncode(c.out, v[:])
			c.out = append(c.out, '"')
		}
		return
	}
	const rule = "must be 64 lowercase hexadecimal digits"
	if at, ok := c.take(name, '"', rule); ok && !v.parse(c.inner(at)) {
		c.fail(name, rule)
	}
}

// count writes an integer; always also writes a zero.
func (c *codec) count(name string, v *uint64, always bool) {
	if !c.reading {
		if *v != 0 || always {
			c.name(name)
			c.out = strconv.AppendUint(c.out, *v, 10)
		}
		return
	}
	if at, ok := c.take(name, '0', "must be an integer"); ok {
		*v = parseInteger(c.data[c.nodes[at].value:c.nodes[at].end])
	}
}

func (c *codec) flag(name string, v *bool) {
	if !c.reading {
		if *v {
			c.name(name)
			c.out = append(c.out, "true"...)
		}
		return
	}
	if at, ok := c.take(name, 't', "must be true or false"); ok {
		*v = c.data[c.nodes[at].value] == 't'
	}
}

func (c *codec) instant(name string, v *time.Time) {
	const rule = "must be a UTC instant with six digits and Z"
	if !c.reading {
		if !v.IsZero() {
			c.name(name)
			c.out = append(c.out, '"')
			c.out = v.UTC().AppendFormat(c.out, timeLayout)
			c.out = append(c.out, '"')
		}
		return
	}
	if at, ok := c.take(name, '"', rule); ok {
		if *v, ok = parseInstant(c.inner(at)); !ok {
			c.fail(name, rule)
		}
	}
}

// texts writes or reads an array of strings; an empty one is absent.
func (c *codec) texts(name string, v *[]string) {
	if !c.reading {
		if len(*v) > 0 {
			c.name(name)
			for i, s := range *v {
				c.out = append(c.out, "[,"[min(i, 1)])
				c.quoted(name, s)
			}
			c.out = append(c.out, ']')
		}
		return
	}
	at, ok := c.take(name, '[', "must be an array")
	if !ok {
		return
	}
	for i := at + 1; i < c.nodes[at].next; i = c.nodes[i].next {
		if c.nodes[i].kind != '"' {
			c.fail(name, "holds items that are not strings")
			return
		}
		*v = append(*v, c.unquoted(i))
	}
}

// begin opens the object called name and tells whether it is there; end closes it.
func (c *codec) begin(name string, present bool) bool {
	if !c.reading {
		if present {
			c.name(name)
			c.out = append(c.out, '{')
		}
		return present
	}
	at, ok := c.take(name, '{', "must be an object")
	if ok {
		c.push(c.span(name, at+1, c.nodes[at].next))
	}
	return ok
}

// list opens the array of objects called name and returns how many it holds, v being that long then. Each is read
// or written between item and end; none is absent.
func list[T any](c *codec, name string, v *[]T) int {
	if !c.reading {
		if len(*v) > 0 {
			c.name(name)
			c.out = append(c.out, '[')
		}
		return len(*v)
	}
	at, ok := c.take(name, '[', "must be an array")
	if !ok {
		return 0
	}
	count, first, next := 0, at+1, c.nodes[at].next
	for i := first; i < next; i = c.nodes[i].next {
		if c.nodes[i].kind != '{' {
			c.fail(name, "holds items that are not objects")
			return 0
		}
		count++
	}
	if count > 0 {
		*v = make([]T, count)
		c.push(span{name: name, from: first, to: next, next: first})
	}
	return count
}

// item opens the next item of a list.
func (c *codec) item() {
	if c.reading {
		at := c.at.next
		c.at.next = c.nodes[at].next
		c.push(c.span("", at+1, c.at.next))
		return
	}
	if c.out[len(c.out)-1] == '}' {
		c.out = append(c.out, ',')
	}
	c.out = append(c.out, '{')
}

// end closes an object, and the list around it with its last item.
func (c *codec) end(last bool) {
	if c.reading {
		c.pop()
		if last {
			c.pop()
		}
		return
	}
	c.out = append(c.out, '}')
	if last {
		c.out = append(c.out, ']')
	}
}

func (c *codec) push(s span) {
	c.level++
	c.around[c.level] = c.at
	c.at = s
}

func (c *codec) pop() {
	c.at = c.around[c.level]
	c.level--
}

// quoted writes s as a string. What JSON must escape is escaped in its shortest form, and nothing else.
func (c *codec) quoted(name, s string) {
	if !utf8.ValidString(s) {
		c.fail(name, "must be UTF-8")
	}
	c.out = append(c.out, '"')
	for i := range len(s) {
		b := s[i]
		if classes[b]&inText != 0 {
			c.out = append(c.out, b)
		} else if short := strings.IndexByte("\"\\\b\f\n\r\t", b); short >= 0 {
			c.out = append(c.out, '\\', `"\bfnrt`[short])
		} else {
			c.out = append(c.out, `\u00`...)
			c.out = hex.AppendEncode(c.out, []byte{b})
		}
	}
	c.out = append(c.out, '"')
}

func (c *codec) unquoted(at int32) string {
	if n := &c.nodes[at]; n.escaped {
		var s string
		_ = json.Unmarshal(c.data[n.value:n.end], &s) // accepted by scan: cannot fail
		return s
	}
	return string(c.inner(at))
}

func parseInteger(raw []byte) (n uint64) {
	for _, c := range raw {
		n = n*10 + uint64(c-'0')
	}
	return n
}

// parseInstant reads timeLayout and nothing else: time.Parse would also take other fractions.
func parseInstant(raw []byte) (time.Time, bool) {
	if len(raw) != len(timeLayout) || raw[4] != '-' || raw[7] != '-' || raw[10] != 'T' || raw[13] != ':' ||
		raw[16] != ':' || raw[19] != '.' || raw[26] != 'Z' {
		return time.Time{}, false
	}
	ok := true
	part := func(from, to int) (n int) {
		for _, c := range raw[from:to] {
			ok = ok && digits[c] < 10
			n = n*10 + int(digits[c])
		}
		return n
	}
	year, month, day := part(0, 4), time.Month(part(5, 7)), part(8, 10)
	hour, minute, second, micro := part(11, 13), part(14, 16), part(17, 19), part(20, 26)
	if !ok || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	t := time.Date(year, month, day, hour, minute, second, micro*1000, time.UTC)
	return t, day < 29 || t.Day() == day // Date carries a February 30 into March
}
