package chain

import (
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

// errNewer is the cause of BreakNewer.
var errNewer = errors.New("written by a newer version of the format")

// LeafHash is SHA-256(0x00 || body), the leaf hash of RFC 6962 section 2.1. It is also what prev of the next
// event holds: one hash serves the chain and the Merkle tree.
func LeafHash(body []byte) Digest {
	var room [1024]byte
	buf := append(room[:0], 0)
	return sha256.Sum256(append(buf, body...))
}

// Seal places e right after h and gives it the bytes it will have for good. Errors are *FieldError or
// *GrammarError: an event that could not be read back is not written.
func (h Head) Seal(e Event) (Record, error) {
	e.At = Instant(e.At)
	if err := e.Validate(); err != nil {
		return Record{}, err
	}
	if _, known := e.Type.scope(); !known {
		return Record{}, &FieldError{"type", "is not one this version writes"}
	}
	raw := make([]byte, 0, 768)
	raw = append(raw, prefix...)
	raw = hex.AppendEncode(raw, h.Leaf[:])
	raw = append(raw, infix...)
	raw = strconv.AppendUint(raw, h.Size, 10)
	c := codec{out: raw}
	e.members(&c)
	raw = append(c.out, '}')
	if _, err := scan(raw, make([]member, 0, 40)); err != nil {
		return Record{}, err
	}
	return Record{Seq: h.Size, Leaf: LeafHash(raw), Raw: raw, Event: e}, nil
}

// Link checks that raw follows h by its first three members, and nothing else: the fast half of Check.
// The error is a *BrokenError of kind grammar, link or sequence.
func (h Head) Link(raw []byte) (Head, error) {
	if err := h.link(raw); err != nil {
		return Head{}, err
	}
	return Head{Size: h.Size + 1, Leaf: LeafHash(raw)}, nil
}

func (h Head) link(raw []byte) error {
	broken := func(kind BreakKind, why string) error { return &BrokenError{h.Size, kind, errors.New(why)} }
	if len(raw) <= seqAt || string(raw[:len(prefix)]) != prefix || string(raw[prevEnd:seqAt]) != infix {
		return broken(BreakGrammar, "does not begin with v, prev and seq")
	}
	seq, n := uint64(0), seqAt
	for ; n < len(raw) && '0' <= raw[n] && raw[n] <= '9' && n < seqAt+17; n++ {
		seq = seq*10 + uint64(raw[n]-'0')
	}
	if n == seqAt || raw[seqAt] == '0' && n > seqAt+1 {
		return broken(BreakGrammar, "seq is not a number")
	}
	if seq != h.Size {
		return broken(BreakSequence, "seq is "+strconv.FormatUint(seq, 10))
	}
	var want [2 * sha256.Size]byte
	hex.Encode(want[:], h.Leaf[:])
	if string(raw[len(prefix):prevEnd]) != string(want[:]) {
		return broken(BreakLink, "prev is not the leaf hash of the event before")
	}
	return nil
}

// Check tells whether raw is the event that follows h: its bytes, its link, its members. It is the only place
// that knows what follows what; append (through Seal), follow, rebuild and verify all stand on it.
// The error is a *BrokenError. The Record keeps raw, which must not change afterwards.
func (h Head) Check(raw []byte) (Record, error) {
	if err := h.link(raw); err != nil {
		return Record{}, err
	}
	r, err := Parse(raw)
	if err != nil {
		err.(*BrokenError).Seq = h.Size
		return Record{}, err
	}
	r.Seq = h.Size
	if (r.Seq == 0) != (r.Event.Type == TypeGenesis) {
		return Record{}, &BrokenError{h.Size, BreakField, &FieldError{"type", "genesis is the first event, and only the first"}}
	}
	return r, nil
}

// Parse reads one event on its own, without knowing what came before; an exported letter is read this way.
// The error is a *BrokenError.
func Parse(raw []byte) (Record, error) {
	var room [40]member
	in, err := scan(raw, room[:0])
	if err != nil {
		return Record{}, &BrokenError{0, BreakGrammar, err}
	}
	if len(in) < 5 || string(in[0].name) != "v" || string(in[1].name) != "prev" || string(in[2].name) != "seq" || in[2].kind != '0' {
		return Record{}, &BrokenError{0, BreakGrammar, errors.New("does not begin with v, prev and seq")}
	}
	seq := parseInteger(in[2].value)
	if string(in[0].value) != "1" {
		return Record{}, &BrokenError{seq, BreakNewer, errNewer}
	}
	r := Record{Seq: seq, Leaf: LeafHash(raw), Raw: raw}
	c := codec{in: in[3:], reading: true}
	r.Event.members(&c)
	if c.err == nil {
		c.err = r.Event.Validate()
	}
	if _, known := r.Event.Type.scope(); !known && r.Event.Type != "" || len(r.Event.Crit) > 0 {
		return Record{}, &BrokenError{seq, BreakNewer, errNewer}
	}
	if c.err != nil {
		return Record{}, &BrokenError{seq, BreakField, c.err}
	}
	return r, nil
}
