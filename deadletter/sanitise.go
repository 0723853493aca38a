package deadletter

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
)

// testimony is an error text in its two forms: the whole of it as a blob, and the summary that events may carry.
type testimony struct {
	payload chain.Digest
	summary string
	ref     chain.Digest
	blob    chain.BlobRef
}

func (t testimony) blobs() []chain.BlobRef {
	if t.ref.IsZero() {
		return nil
	}
	return []chain.BlobRef{t.blob}
}

// tell stores the error text as it came and makes its summary, with the payload at hand.
func (q *Queue) tell(ctx context.Context, payload chain.Digest, version, message string) (testimony, error) {
	t := testimony{payload: payload}
	if message == "" {
		return t, nil
	}
	loc, _, err := q.cfg.Store.PutBytes(ctx, []byte(message), time.Now())
	if err != nil {
		return t, err
	}
	t.ref = loc.Digest
	t.blob = chain.BlobRef{Ref: loc.Digest, BlobVersion: loc.Version, RetainUntil: chain.Instant(loc.RetainUntil)}
	t.summary, err = q.sanitised(ctx, payload, version, message)
	return t, err
}

// sanitised masks in text what could be personal data of the payload.
func (q *Queue) sanitised(ctx context.Context, payload chain.Digest, version, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	body, _, err := q.cfg.Store.Open(ctx, blob.Ref{Digest: payload, Version: version})
	if err != nil {
		return "", err
	}
	defer body.Close()
	return Sanitise(text, body, func(word string) bool { return q.words[word] })
}

// run is the length, in bytes, of text that counts as taken from the payload.
const run = 6

const mask = '*'

// personal are spellings that are masked wherever they come from: mail addresses, VINs (49 CFR 565), telephone
// numbers and other long runs of digits.
var personal = regexp.MustCompile(`(?i)[\pL\pN._%+-]+@[\pL\pN.-]+|\b[A-HJ-NPR-Z0-9]{17}\b|\+?\d[\d ().-]{5,}\d`)

// Sanitise returns text fit for events: every run of 6 or more bytes that also stands in the payload is masked,
// letter case aside, unless it is part of a word of the contract; so are mail addresses, VINs, telephone numbers
// and digit runs; control characters become blanks; the result has at most chain.MaxLastError characters.
// The payload is read once, in constant memory. It is compared as it is and with JSON escapes undone.
func Sanitise(text string, payload io.Reader, contract func(word string) bool) (string, error) {
	text = strings.ToValidUTF8(text[:min(len(text), maxSummary)], "?")
	text = strings.Map(printable, text)
	lower := []byte(asciiLower(text))
	taken := make([]bool, len(lower))
	if err := markTaken(lower, taken, payload); err != nil {
		return "", err
	}
	spare(text, taken, contract)
	for _, at := range personal.FindAllStringIndex(text, -1) {
		for i := at[0]; i < at[1]; i++ {
			taken[i] = true
		}
	}
	return summary(masked(text, taken)), nil
}

// printable replaces what could break a line, a terminal or the reading direction.
func printable(r rune) rune {
	if r < 0x20 || 0x7f <= r && r < 0xa0 || 0x200b <= r && r <= 0x200f || 0x2028 <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069 {
		return ' '
	}
	return r
}

// asciiLower keeps byte positions, which strings.ToLower does not.
func asciiLower(s string) string {
	return string(lowered([]byte(s)))
}

func lowered(b []byte) []byte {
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return b
}

// markTaken marks the bytes of text covered by runs that payload holds too. NUL bytes of the payload are passed
// over, so that UTF-16 does not hide what it says.
func markTaken(text []byte, taken []bool, payload io.Reader) error {
	runs := newRuns(text)
	raw, plain := window{runs: runs, taken: taken}, window{runs: runs, taken: taken}
	escapes := unescaper{to: &plain}
	buf := make([]byte, 32<<10)
	for {
		n, err := payload.Read(buf)
		for _, c := range lowered(buf[:n]) {
			if c != 0 {
				raw.slide(c)
				escapes.slide(c)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// runs knows where in a text each run of bytes begins. seen is a filter before the map: nearly every byte of a
// large payload ends there.
type runs struct {
	at   map[uint64][]int
	seen [1 << 10]uint64
}

func newRuns(text []byte) *runs {
	r := &runs{at: map[uint64][]int{}}
	var last uint64
	for i, c := range text {
		last = (last<<8 | uint64(c)) & runMask
		if i >= run-1 {
			r.at[last] = append(r.at[last], i-run+1)
			slot := runHash(last)
			r.seen[slot>>6] |= 1 << (slot & 63)
		}
	}
	return r
}

const runMask = 1<<(8*run) - 1

// runHash spreads a run over the 65,536 bits of the filter.
func runHash(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> 48 }

// window looks at the last bytes of a stream.
type window struct {
	last  uint64
	fill  int
	runs  *runs
	taken []bool
}

func (w *window) slide(c byte) {
	w.last = (w.last<<8 | uint64(c)) & runMask
	if w.fill++; w.fill < run {
		return
	}
	slot := runHash(w.last)
	if w.runs.seen[slot>>6]&(1<<(slot&63)) == 0 {
		return
	}
	for _, i := range w.runs.at[w.last] {
		for j := i; j < i+run; j++ {
			w.taken[j] = true
		}
	}
}

// unescaper undoes JSON escapes byte by byte: a name spelled \u004a is still that name.
type unescaper struct {
	to   *window
	held []byte // an escape not finished yet
}

func (u *unescaper) slide(c byte) {
	if len(u.held) == 0 && c != '\\' {
		u.to.slide(c)
		return
	}
	u.held = append(u.held, c)
	if len(u.held) == 2 && c != 'u' || len(u.held) == 6 {
		for _, b := range lowered(unescape(u.held)) {
			u.to.slide(b)
		}
		u.held = u.held[:0]
	}
}

func unescape(escape []byte) []byte {
	if escape[1] != 'u' {
		return escape[1:]
	}
	var r rune
	for _, c := range escape[2:] {
		d := bytes.IndexByte([]byte("0123456789abcdef"), c)
		if d < 0 {
			return escape
		}
		r = r<<4 | rune(d)
	}
	return utf8.AppendRune(nil, r)
}

// word is an identifier of the contract: a property name, an enum word.
var word = regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]*`)

// spare takes words of the contract out of taken again: they stand in every payload and are nobody's data.
func spare(text string, taken []bool, contract func(string) bool) {
	for _, at := range word.FindAllStringIndex(text, -1) {
		if contract(text[at[0]:at[1]]) {
			for i := at[0]; i < at[1]; i++ {
				taken[i] = false
			}
		}
	}
}

// masked replaces every taken character; a character of which one byte is taken goes as a whole.
func masked(text string, taken []bool) string {
	var out strings.Builder
	for i, r := range text {
		for j := i; j < i+utf8.RuneLen(r); j++ {
			if taken[j] {
				r = mask
				break
			}
		}
		out.WriteRune(r)
	}
	return out.String()
}

// summary cuts text to the longest that an envelope takes, at a character, and says that it did.
func summary(text string) string {
	text = strings.TrimSpace(text)
	if utf8.RuneCountInString(text) <= chain.MaxLastError {
		return text
	}
	const cut = " [cut]"
	runes := []rune(text)
	return string(runes[:chain.MaxLastError-len(cut)]) + cut
}
