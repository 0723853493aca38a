package deadletter

import (
	"bufio"
	"compress/gzip"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// markTaken marks the bytes of text covered by runs that payload holds too.
func markTaken(text string, taken []bool, payload io.Reader) error {
	m := newMatcher(text, taken)
	whole := bufio.NewReader(payload)
	if magic, _ := whole.Peek(2); string(magic) != "\x1f\x8b" {
		return folded(whole, m.write)
	}
	if !inflate(whole, m.write) {
		mark(taken, 0, len(taken)) // not all of it was seen
	}
	return folded(whole, func([]byte) {})
}

// inflate reads what a gzip stream holds and tells whether it saw all that can be read of it.
func inflate(r io.Reader, write func([]byte)) bool {
	z, err := gzip.NewReader(r)
	if err != nil {
		return true
	}
	bounded := &io.LimitedReader{R: z, N: maxInflate}
	_ = folded(bounded, write) // whether the stream is whole is not the question here
	return bounded.N > 0
}

// folded reads r to its end as text: UTF-8 without letter case, other bytes as Latin-1, NUL left out.
func folded(r io.Reader, write func([]byte)) error {
	buf := make([]byte, 32<<10)
	out := make([]byte, 0, 64<<10)
	held := 0
	for {
		n, err := r.Read(buf[held:])
		b := buf[:held+n]
		out = out[:0]
		for len(b) > 0 && (b[0] < utf8.RuneSelf || err != nil || utf8.FullRune(b)) {
			if c := b[0]; c < utf8.RuneSelf {
				if b = b[1:]; c != 0 {
					out = append(out, lower[c])
				}
				continue
			}
			c, size := letter(b)
			out, b = utf8.AppendRune(out, c), b[size:]
		}
		write(out)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		held = copy(buf, b)
	}
}

// letter is the first character of b without its case; a byte that is not UTF-8 is one of Latin-1.
func letter(b []byte) (rune, int) {
	r, size := utf8.DecodeRune(b)
	if r == utf8.RuneError && size == 1 {
		r = rune(b[0])
	}
	return unicode.ToLower(unicode.ToUpper(r)), size
}

// lower is letter for ASCII.
var lower = func() (table [utf8.RuneSelf]byte) {
	for c := range table {
		r, _ := letter([]byte{byte(c)})
		table[c] = byte(r)
	}
	return table
}()

// runs knows which parts of a text read as a run of bytes, and forgets those that were found. sought is a filter
// before the map: nearly every byte of a large payload ends there.
type runs struct {
	at     map[uint64][]span
	sought [1 << 10]uint64
	shared map[uint64]int // how many runs have the same place in sought
}

type span struct{ from, to int }

// newRuns knows text as it is, and with escapes undone.
func newRuns(text string) *runs {
	r := &runs{at: map[uint64][]span{}, shared: map[uint64]int{}}
	var raw, plain spelling
	escapes := unescaper{to: plain.slide}
	var room [utf8.UTFMax]byte
	for i := 0; i < len(text); {
		c, size := letter([]byte(text[i:min(i+utf8.UTFMax, len(text))]))
		raw.from = i
		if len(escapes.held) == 0 {
			plain.from = i
		}
		for _, c := range utf8.AppendRune(room[:0], c) {
			if c != 0 {
				raw.slide(c)
				escapes.slide(c)
			}
		}
		i += size
	}
	r.add(raw, len(text))
	r.add(plain, len(text))
	return r
}

// spelling is a text in the form in which it is compared, and where each byte of it comes from.
type spelling struct {
	bytes []byte
	at    []int
	from  int // of what is added next
}

func (s *spelling) slide(c byte) {
	s.bytes, s.at = append(s.bytes, c), append(s.at, s.from)
}

func (r *runs) add(s spelling, end int) {
	s.at = append(s.at, end)
	var last uint64
	for i, c := range s.bytes {
		if last = (last<<8 | uint64(c)) & runMask; i < run-1 {
			continue
		}
		slot := runHash(last)
		if r.sought[slot>>6] |= 1 << (slot & 63); r.at[last] == nil {
			r.shared[slot]++
		}
		r.at[last] = append(r.at[last], span{s.at[i-run+1], s.at[i+1]})
	}
}

// take marks where a text reads as key, if it does.
func (r *runs) take(key, slot uint64, taken []bool) {
	spans, ok := r.at[key]
	if !ok {
		return
	}
	for _, s := range spans {
		mark(taken, s.from, s.to)
	}
	delete(r.at, key)
	if r.shared[slot]--; r.shared[slot] == 0 {
		r.sought[slot>>6] &^= 1 << (slot & 63)
	}
}

const runMask = 1<<(8*run) - 1

// runHash spreads a run over the 65,536 bits of the filter.
func runHash(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> 48 }

// matcher looks for the runs of a text in a stream, as it is and with escapes undone.
type matcher struct {
	*runs
	taken   []bool
	raw     uint64 // the last bytes of the stream
	plain   uint64 // the same with escapes undone, while that differs
	differs int    // bytes for which it will
	escapes unescaper
}

func newMatcher(text string, taken []bool) *matcher {
	m := &matcher{runs: newRuns(text), taken: taken}
	m.escapes.to = func(c byte) { m.plain = m.look(m.plain, c) }
	return m
}

func (m *matcher) write(b []byte) {
	for _, c := range b {
		if c == '\\' || m.differs > 0 {
			m.unescape(c)
		}
		m.raw = m.look(m.raw, c)
	}
}

func (m *matcher) unescape(c byte) {
	if m.differs--; m.differs < 0 {
		m.plain = m.raw
	}
	if c == '\\' || len(m.escapes.held) > 0 {
		m.differs = run
	}
	m.escapes.slide(c)
}

// look moves a window over the stream on by c, and looks.
func (m *matcher) look(last uint64, c byte) uint64 {
	last = (last<<8 | uint64(c)) & runMask
	slot := runHash(last)
	if m.sought[slot>>6]&(1<<(slot&63)) != 0 {
		m.take(last, slot, m.taken)
	}
	return last
}

// unescaper undoes JSON escapes (RFC 8259 section 7) byte by byte: a name spelled \u004a is still that name.
type unescaper struct {
	to   func(byte)
	held []byte // an escape not finished yet
	high rune   // the first half of a surrogate pair
}

func (u *unescaper) slide(c byte) {
	if len(u.held) == 0 && c != '\\' {
		u.to(c)
		return
	}
	u.held = append(u.held, c)
	if len(u.held) == 2 && c != 'u' || len(u.held) == 6 {
		for _, c := range u.unescape() {
			u.to(c)
		}
		u.held = u.held[:0]
	}
}

// escaped are the controls that have a letter.
var escaped = map[byte]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (u *unescaper) unescape() []byte {
	if c, ok := escaped[u.held[1]]; ok {
		return []byte{c}
	}
	if u.held[1] != 'u' {
		return u.held[1:]
	}
	var r rune
	for _, c := range u.held[2:] {
		d := strings.IndexByte("0123456789abcdef", c)
		if d < 0 {
			return u.held
		}
		r = r<<4 | rune(d)
	}
	high := u.high
	u.high = 0
	switch {
	case high != 0 && utf16.IsSurrogate(r):
		r = utf16.DecodeRune(high, r)
	case utf16.IsSurrogate(r):
		u.high = r
		return nil
	}
	folded, _ := letter(utf8.AppendRune(nil, r))
	return utf8.AppendRune(nil, folded)
}
