package chain

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"
)

// codec walks the members of a struct in their one order, either writing them or reading them, so that the two
// cannot disagree. Zero values are absent. Members it is not asked for are left alone: that is how readers of
// today meet members of tomorrow.
type codec struct {
	out     []byte   // writing: the object so far
	in      []member // reading: what was scanned
	next    int      // reading: where the next member is expected
	reading bool
	err     error
}

// members lists the members of a value for a codec.
type members interface{ members(c *codec) }

// appendObject writes v as an object.
func appendObject(out []byte, v members) []byte {
	c := codec{out: append(out, '{')}
	v.members(&c)
	return append(c.out, '}')
}

// readObject reads an object that scan has accepted, alone or as part of an event.
func readObject(raw []byte, v members) error {
	s := scanner{data: raw}
	if err := s.object(); err != nil {
		return err
	}
	c := codec{in: s.members, reading: true}
	v.members(&c)
	return c.err
}

func (c *codec) fail(name, rule string) {
	if c.err == nil {
		c.err = &FieldError{name, rule}
	}
}

// take finds the member called name, which is the next one unless a stranger came between.
func (c *codec) take(name string, kind byte, rule string) (value []byte, ok bool) {
	for i := range c.in {
		m := c.in[(c.next+i)%len(c.in)]
		if string(m.name) != name {
			continue
		}
		c.next += i + 1
		if m.kind != kind {
			c.fail(name, rule)
			return nil, false
		}
		return m.value, true
	}
	return nil, false
}

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
			c.out = appendQuoted(c.out, string(*v))
		}
		return
	}
	if raw, ok := c.take(name, '"', "must be a string"); ok {
		*v = T(unquote(raw))
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
	raw, ok := c.take(name, '"', "must be a digest")
	if !ok {
		return
	}
	d, err := ParseDigest(string(raw[1 : len(raw)-1]))
	if err != nil {
		c.fail(name, ErrDigest.Error())
	}
	*v = d
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
	if raw, ok := c.take(name, '0', "must be an integer"); ok {
		*v = parseInteger(raw)
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
	if raw, ok := c.take(name, 't', "must be true or false"); ok {
		*v = raw[0] == 't'
	}
}

func (c *codec) instant(name string, v *time.Time) {
	if !c.reading {
		if !v.IsZero() {
			c.name(name)
			c.out = append(c.out, '"')
			c.out = v.AppendFormat(c.out, timeLayout)
			c.out = append(c.out, '"')
		}
		return
	}
	raw, ok := c.take(name, '"', "must be an instant")
	if !ok {
		return
	}
	t, ok := parseInstant(raw[1 : len(raw)-1])
	if !ok {
		c.fail(name, "must be a UTC instant with six digits and Z")
	}
	*v = t
}

// object writes or reads a nested object; nil is absent.
func object[T any, P interface {
	*T
	members
}](c *codec, name string, v *P) {
	if !c.reading {
		if *v != nil {
			c.name(name)
			c.out = appendObject(c.out, *v)
		}
		return
	}
	if raw, ok := c.take(name, '{', "must be an object"); ok {
		*v = new(T)
		c.nested(name, readObject(raw, *v))
	}
}

// objects writes or reads an array of objects; an empty one is absent.
func objects[T any, P interface {
	*T
	members
}](c *codec, name string, v *[]T) {
	if !c.reading {
		if len(*v) > 0 {
			c.name(name)
			c.out = append(c.out, '[')
			for i := range *v {
				if i > 0 {
					c.out = append(c.out, ',')
				}
				c.out = appendObject(c.out, P(&(*v)[i]))
			}
			c.out = append(c.out, ']')
		}
		return
	}
	c.items(name, '{', func(raw []byte) error {
		var item T
		err := readObject(raw, P(&item))
		*v = append(*v, item)
		return err
	})
}

// texts writes or reads an array of strings; an empty one is absent.
func (c *codec) texts(name string, v *[]string) {
	if !c.reading {
		if len(*v) > 0 {
			c.name(name)
			for i, s := range *v {
				c.out = append(c.out, "[,"[min(i, 1)])
				c.out = appendQuoted(c.out, s)
			}
			c.out = append(c.out, ']')
		}
		return
	}
	c.items(name, '"', func(raw []byte) error { *v = append(*v, unquote(raw)); return nil })
}

// items calls each with the items of an array, all of one kind.
func (c *codec) items(name string, kind byte, each func([]byte) error) {
	raw, ok := c.take(name, '[', "must be an array")
	if !ok {
		return
	}
	for s := (scanner{data: raw, pos: 1}); s.peek() != ']' && c.err == nil; {
		start := s.pos
		k, err := s.value()
		if err == nil && k != kind {
			err = &FieldError{name, "holds items of another kind"}
		}
		if err == nil {
			err = each(raw[start:s.pos])
		}
		c.nested(name, err)
		if s.peek() == ',' {
			s.pos++
		}
	}
}

func (c *codec) nested(name string, err error) {
	if fe, ok := err.(*FieldError); ok {
		err = &FieldError{name + "." + fe.Field, fe.Rule}
	}
	if c.err == nil {
		c.err = err
	}
}

// appendQuoted writes s as a string; what is plain ASCII is copied, the rest is left to encoding/json,
// which escapes what must be escaped and writes valid UTF-8.
func appendQuoted(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s)
			return append(out, quoted...)
		}
	}
	out = append(out, '"')
	out = append(out, s...)
	return append(out, '"')
}

// unquote reads a string that scan has accepted.
func unquote(raw []byte) string {
	for _, c := range raw {
		if c == '\\' {
			var s string
			_ = json.Unmarshal(raw, &s) // accepted by scan: cannot fail
			return s
		}
	}
	return string(raw[1 : len(raw)-1])
}

func parseInteger(raw []byte) (n uint64) {
	for _, c := range raw {
		n = n*10 + uint64(c-'0')
	}
	return n
}

// parseInstant reads timeLayout and nothing else: time.Parse would also take other fractions.
func parseInstant(raw []byte) (time.Time, bool) {
	if len(raw) != len(timeLayout) {
		return time.Time{}, false
	}
	var n [7]int
	for i, part := range [7][2]int{{0, 4}, {5, 7}, {8, 10}, {11, 13}, {14, 16}, {17, 19}, {20, 26}} {
		for _, c := range raw[part[0]:part[1]] {
			if c < '0' || c > '9' {
				return time.Time{}, false
			}
			n[i] = n[i]*10 + int(c-'0')
		}
	}
	t := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], n[6]*1000, time.UTC)
	var back [len(timeLayout)]byte
	return t, string(t.AppendFormat(back[:0], timeLayout)) == string(raw)
}
