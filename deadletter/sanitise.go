package deadletter

import (
	"context"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
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

// maxMessage is how much of an error text is kept, in bytes; the store's own limit may be lower.
const maxMessage = 1 << 20

// tell stores the error text as it came and makes its summary, with the payload at hand. A text that is too long
// is cut and says so, and one that cannot be compared with its payload has no summary: neither may keep a failure
// out of the log.
func (q *Queue) tell(ctx context.Context, payload chain.Digest, version, message string) (testimony, error) {
	t := testimony{payload: payload}
	if message == "" {
		return t, nil
	}
	loc, err := q.keep(ctx, message)
	if err != nil {
		return t, err
	}
	t.ref = loc.Digest
	t.blob = chain.BlobRef{Ref: loc.Digest, BlobVersion: loc.Version, RetainUntil: chain.Instant(loc.RetainUntil)}
	t.summary, err = q.sanitised(ctx, payload, version, message)
	if lost(err) {
		err = nil
	}
	return t, err
}

func (q *Queue) keep(ctx context.Context, message string) (blob.Location, error) {
	loc, _, err := q.cfg.Store.PutBytes(ctx, cut(message, maxMessage), time.Now())
	var large *blob.TooLargeError
	if errors.As(err, &large) {
		loc, _, err = q.cfg.Store.PutBytes(ctx, cut(message, int(large.Limit)), time.Now())
	}
	return loc, err
}

// cut shortens message to at most limit bytes, at a character, and says how long it was.
func cut(message string, limit int) []byte {
	if len(message) <= limit {
		return []byte(message)
	}
	note := " [cut, had " + strconv.Itoa(len(message)) + " bytes]"
	end := max(limit-len(note), 0)
	for back := 0; back < utf8.UTFMax-1 && end > 0 && !utf8.RuneStart(message[end]); back++ {
		end--
	}
	return []byte((message[:end] + note)[:min(end+len(note), limit)])
}

// lost tells whether err says that a payload is gone or damaged, as opposed to a store that does not answer.
func lost(err error) bool {
	var corrupt *blob.CorruptError
	return errors.Is(err, blob.ErrNotFound) || errors.As(err, &corrupt)
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
	return Sanitise(text, body, q.contract)
}

// contract tells whether word is one of the contract.
func (q *Queue) contract(word string) bool { return q.words[word] }

// run is the length, in bytes, of text that counts as taken from the payload.
const run = 6

const (
	mask       = '*'
	maxSummary = 3 << 10             // bytes of a text that are considered: those that can be seen, and some more
	maxInflate = blob.DefaultMaxSize // bytes that a compressed payload is read for: as many as of a plain one
)

// personal are spellings that are masked wherever they come from: mail addresses, users and parameters of URLs,
// VINs (49 CFR 565), telephone numbers and other long runs of digits.
var personal = regexp.MustCompile(`(?i)[\pL\pN._%+-]+@[\pL\pN.-]+|//[^\s/@]+@|[?&;][\w.%+-]*=[^\s"'<>]*` +
	`|(?:\b|_)[A-HJ-NPR-Z0-9]{17}(?:\b|_)|\+?\d[\d ().-]{5,}\d`)

// Sanitise returns text fit for events: every run of 6 or more bytes that also stands in the payload is masked,
// unless it is part of a word of the contract; so are mail addresses, parameters of URLs, VINs, telephone numbers
// and digit runs; control characters become blanks; the result has at most chain.MaxLastError characters.
// The payload is read once, to its end, in constant memory. Both sides are compared without letter case, as they
// are and with JSON escapes undone; what is not UTF-8 is taken for Latin-1, NUL bytes are passed over, so that
// UTF-16 hides nothing of it, and gzip is inflated.
func Sanitise(text string, payload io.Reader, contract func(word string) bool) (string, error) {
	text = strings.TrimSpace(text)
	text = text[:min(len(text), maxSummary)]
	taken := make([]bool, len(text))
	if err := markTaken(text, taken, payload); err != nil {
		return "", err
	}
	spare(text, taken, contract)
	for _, at := range personal.FindAllStringIndex(text, -1) {
		mark(taken, at[0], at[1])
	}
	return summary(masked(text, taken)), nil
}

func mark(taken []bool, from, to int) {
	for i := from; i < to; i++ {
		taken[i] = true
	}
}

// printable replaces what could break a line, a terminal or the reading direction.
func printable(r rune) rune {
	if r < 0x20 || 0x7f <= r && r < 0xa0 || 0x200b <= r && r <= 0x200f || 0x2028 <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069 {
		return ' '
	}
	return r
}

// word is an identifier of the contract: a property name, an enum word.
var word = regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]*`)

// spare takes words of the contract out of taken again: they stand in every payload and are nobody's data.
func spare(text string, taken []bool, contract func(string) bool) {
	for _, at := range word.FindAllStringIndex(text, -1) {
		if contract(text[at[0]:at[1]]) {
			clear(taken[at[0]:at[1]])
		}
	}
}

// masked replaces every taken character; a character of which one byte is taken goes as a whole.
func masked(text string, taken []bool) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case slices.Contains(taken[i:i+size], true):
			r = mask
		case r == utf8.RuneError && size == 1:
			r = '?'
		}
		out.WriteRune(printable(r))
		i += size
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
