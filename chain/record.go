package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
)

// Head is the end of a log: how many events it has, and the leaf hash of the last. The zero Head is the empty log.
type Head struct {
	Size uint64
	Leaf Digest
}

// Record is an event with the bytes it is stored as. Raw is what is hashed, always: an event is never encoded anew.
type Record struct {
	Seq   uint64
	Leaf  Digest
	Raw   []byte
	Event Event
}

// Head is the end of the log whose last event is r.
func (r Record) Head() Head { return Head{Size: r.Seq + 1, Leaf: r.Leaf} }

// The first three members of every event, byte for byte.
const (
	prefix  = `{"v":1,"prev":"`
	infix   = `","seq":`
	prevEnd = len(prefix) + 2*sha256.Size
	seqAt   = prevEnd + len(infix)
)

// Causes of breaks that have no operand.
var (
	errNewer  = errors.New("written by a newer version of the format")
	errHeader = errors.New("does not begin with v, prev and seq")
	errLink   = errors.New("prev is not the leaf hash of the event before")
)

// LeafHash is SHA-256(0x00 || body), the leaf hash of RFC 6962 section 2.1. It is also what prev of the next
// event holds: one hash serves the chain and the Merkle tree.
func LeafHash(body []byte) Digest {
	var room [1024]byte
	buf := append(room[:0], 0)
	return sha256.Sum256(append(buf, body...))
}

// Seal places e right after h and gives it the bytes it will have for good. The record holds the event as a reader
// will see it: times in UTC and cut to microseconds, members that its type does not have left out. Errors are
// *FieldError or *GrammarError: an event that could not be read back is not written.
func (h Head) Seal(e Event) (Record, error) {
	if !e.Type.known() {
		return Record{}, &FieldError{"type", "is not one this version writes"}
	}
	if err := e.Validate(); err != nil {
		return Record{}, err
	}
	raw := make([]byte, 0, 768)
	raw = append(raw, prefix...)
	raw = hex.AppendEncode(raw, h.Leaf[:])
	raw = append(raw, infix...)
	raw = strconv.AppendUint(raw, h.Size, 10)
	c := codec{out: raw}
	if e.members(&c); c.err != nil {
		return Record{}, c.err
	}
	r, err := h.Check(append(c.out, '}'))
	if err != nil {
		return Record{}, errors.Unwrap(err)
	}
	return r, nil
}

// Link checks that raw follows h by its first three members, and nothing else: the fast half of Check.
// The error is a *BrokenError of kind grammar, link, sequence or newer.
func (h Head) Link(raw []byte) (Head, error) {
	if err := h.link(raw); err != nil {
		return Head{}, err
	}
	return Head{Size: h.Size + 1, Leaf: LeafHash(raw)}, nil
}

func (h Head) link(raw []byte) error {
	prev, seq, err := header(raw)
	if err != nil {
		err.Seq = h.Size
		return err
	}
	if seq != h.Size {
		return &BrokenError{h.Size, BreakSequence, errors.New("seq is " + strconv.FormatUint(seq, 10))}
	}
	var want [2 * sha256.Size]byte
	hex.Encode(want[:], h.Leaf[:])
	if string(prev) != string(want[:]) {
		if !new(Digest).parse(prev) {
			return &BrokenError{h.Size, BreakGrammar, errHeader}
		}
		return &BrokenError{h.Size, BreakLink, errLink}
	}
	return nil
}

// header reads the first three members, byte for byte. Whether prev is a digest is left to the caller.
func header(raw []byte) (prev []byte, seq uint64, err *BrokenError) {
	if len(raw) <= seqAt || string(raw[:len(prefix)]) != prefix || string(raw[prevEnd:seqAt]) != infix {
		if newer(raw) {
			return nil, 0, &BrokenError{0, BreakNewer, errNewer}
		}
		return nil, 0, &BrokenError{0, BreakGrammar, errHeader}
	}
	n := seqAt
	for ; n < len(raw) && digits[raw[n]] < 10 && seq <= MaxInteger; n++ {
		seq = seq*10 + uint64(digits[raw[n]])
	}
	if n == seqAt || n == len(raw) || raw[n] != ',' || raw[seqAt] == '0' && n > seqAt+1 || seq > MaxInteger {
		return nil, 0, &BrokenError{0, BreakGrammar, errHeader}
	}
	return raw[len(prefix):prevEnd], seq, nil
}

// newer tells whether raw begins as an event of a later version does: v is first, and more than 1.
func newer(raw []byte) bool {
	number, ok := bytes.CutPrefix(raw, []byte(`{"v":`))
	end := bytes.IndexByte(number, ',')
	if !ok || end < 1 || end > 9 || number[0] == '0' {
		return false
	}
	for _, c := range number[:end] {
		if digits[c] > 9 {
			return false
		}
	}
	return parseInteger(number[:end]) > 1
}

// Check tells whether raw is the event that follows h: its bytes, its link, its members. It is the only place
// that knows what follows what; append (through Seal), follow, rebuild and verify all stand on it.
// The error is a *BrokenError. The Record keeps raw, which must not change afterwards.
func (h Head) Check(raw []byte) (r Record, err error) {
	if err := h.link(raw); err != nil {
		return Record{}, err
	}
	r.Seq, r.Raw = h.Size, raw
	if err := r.parse(); err != nil {
		return Record{}, err
	}
	if (r.Seq == 0) != (r.Event.Type == TypeGenesis) {
		return Record{}, &BrokenError{h.Size, BreakField, &FieldError{"type", "genesis is the first event, and only the first"}}
	}
	return r, nil
}

// Parse reads one event on its own, without knowing what came before; an exported letter is read this way.
// The error is a *BrokenError, whose Seq is 0 as long as the event's own is not known.
func Parse(raw []byte) (r Record, err error) {
	prev, seq, broken := header(raw)
	if broken != nil {
		return Record{}, broken
	}
	if !new(Digest).parse(prev) {
		return Record{}, &BrokenError{seq, BreakGrammar, errHeader}
	}
	r.Seq, r.Raw = seq, raw
	if err := r.parse(); err != nil {
		return Record{}, err
	}
	return r, nil
}

// parse reads Raw, whose first three members have been read, into Event and Leaf.
func (r *Record) parse() error {
	room := rooms.Get().(*[64]node)
	defer rooms.Put(room)
	nodes, err := scanEvent(r.Raw, room[:0])
	if err != nil {
		return &BrokenError{r.Seq, BreakGrammar, err}
	}
	var c codec
	c.read(r.Raw, nodes, 3)
	r.Event.members(&c)
	if !r.Event.Type.known() && r.Event.Type != "" || len(r.Event.Crit) > 0 {
		return &BrokenError{r.Seq, BreakNewer, errNewer}
	}
	if c.err == nil {
		c.err = r.Event.Validate()
	}
	if c.err != nil {
		return &BrokenError{r.Seq, BreakField, c.err}
	}
	r.Leaf = LeafHash(r.Raw)
	return nil
}
