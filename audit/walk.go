package audit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/holdfast-dvir/holdfast/chain"
)

// line is one line of the log: what it claims about its place, and what is wrong with it on its own.
type line struct {
	placed     bool // prev and seq could be read
	seq        uint64
	prev, leaf chain.Digest
	record     *chain.Record // nil if it could not be read, or was not asked for
	broken     *chain.BrokenError
}

// head is the end of a log that ends with l.
func (l *line) head() chain.Head { return chain.Head{Size: l.seq + 1, Leaf: l.leaf} }

// follows tells whether l was written after h.
func (l *line) follows(h chain.Head) bool { return l.placed && l.seq == h.Size && l.prev == h.Leaf }

// The first members of an event, see package chain.
const (
	beforePrev = `{"v":1,"prev":"`
	beforeSeq  = `","seq":`
	prevEnd    = len(beforePrev) + 2*len(chain.Digest{})
	seqStart   = prevEnd + len(beforeSeq)
)

// examine reads a line that is not known to follow anything.
func examine(raw []byte, strict bool) *line {
	l := &line{leaf: chain.LeafHash(raw)}
	l.readPlace(raw)
	if strict || !l.placed {
		r, err := chain.Parse(raw)
		broken, bad := errors.AsType[*chain.BrokenError](err)
		switch {
		case !bad && !l.placed: // an event to its reader, but not byte for byte
			l.broken = &chain.BrokenError{Kind: chain.BreakGrammar, Err: errors.New("does not begin with v, prev and seq")}
		case bad:
			l.broken = broken
		default:
			r.Raw = nil
			l.record = &r
		}
	}
	return l
}

func (l *line) readPlace(raw []byte) {
	if len(raw) <= seqStart || string(raw[:len(beforePrev)]) != beforePrev || string(raw[prevEnd:seqStart]) != beforeSeq {
		return
	}
	prev, err := chain.ParseDigest(string(raw[len(beforePrev):prevEnd]))
	end := seqStart
	for end < len(raw) && '0' <= raw[end] && raw[end] <= '9' && end <= seqStart+16 {
		end++
	}
	digits := string(raw[seqStart:end])
	seq, numErr := strconv.ParseUint(digits, 10, 64)
	if err == nil && numErr == nil && seq <= chain.MaxInteger && (digits == "0" || digits[0] != '0') {
		l.placed, l.prev, l.seq = true, prev, seq
	}
}

// walk follows the links. A line that follows the head is taken at once; any other waits until the two lines after
// it are known, since only they tell which side of a break is the false one.
type walk struct {
	fold   *fold
	strict bool

	head    chain.Head
	before  chain.Head // the head one event earlier
	accused bool       // the event at the head is blamed already, so that nothing follows from it
	window  []*line
}

const lookahead = 2

// feed takes the next line. It keeps nothing of raw.
func (w *walk) feed(raw []byte) {
	strict := w.strict || w.head.Size == 0 // the first event says which log it is
	if len(w.window) == 0 {
		if strict {
			if r, err := w.head.Check(raw); err == nil {
				w.take(r.Leaf, &r)
				return
			}
		} else if h, err := w.head.Link(raw); err == nil {
			w.take(h.Leaf, nil)
			return
		}
	}
	w.window = append(w.window, examine(raw, strict))
	w.settle(lookahead)
}

// finish judges what still waits: there are no further lines.
func (w *walk) finish() { w.settle(0) }

func (w *walk) settle(after int) {
	for len(w.window) > 0 && (len(w.window) > after || w.window[0].follows(w.head)) {
		w.judge(w.window[0], w.peek(1))
	}
}

// peek is a line of the window; beyond its end it is one that claims nothing.
func (w *walk) peek(i int) *line {
	if i < len(w.window) {
		return w.window[i]
	}
	return &line{}
}

func (w *walk) drop(n int) { w.window = slices.Delete(w.window, 0, n) }

// take makes leaf the event at the head.
func (w *walk) take(leaf chain.Digest, r *chain.Record) {
	seq := w.head.Size
	w.before, w.head, w.accused = w.head, chain.Head{Size: seq + 1, Leaf: leaf}, false
	w.fold.take(seq, leaf, r)
}

// place takes a line of the window as the event at the head, with what is wrong with it on its own.
func (w *walk) place(l *line) {
	seq, r := w.head.Size, l.record
	broken := l.broken
	if r != nil && (seq == 0) != (r.Event.Type == chain.TypeGenesis) {
		broken = &chain.BrokenError{Kind: chain.BreakField, Err: &chain.FieldError{
			Field: "type", Rule: "genesis is the first event, and only the first"}}
		r = nil
	}
	if broken != nil {
		w.fold.find(Kind(broken.Kind), seq, broken.Err.Error())
	}
	if r != nil {
		r.Seq = seq
	}
	w.take(l.leaf, r)
	w.accused = broken != nil && broken.Kind != chain.BreakNewer
}

// judge decides on the first line of the window, b, seeing the next, c.
func (w *walk) judge(b, c *line) {
	n := w.head.Size
	switch {
	case b.follows(w.head):
		w.drop(1)
		w.place(b)
	case c.follows(w.head):
		w.early(b, c)
	case !b.placed:
		w.fold.broken = true
		w.drop(1)
		w.place(b)
	case b.prev == w.head.Leaf:
		w.blame(b, "its number is not the next")
	case b.seq == n:
		w.unlinked(b, c)
	case b.seq < n:
		w.late(b, c)
	default:
		w.ahead(b, c)
	}
}

// blame takes b as the next event, which is not what it was.
func (w *walk) blame(b *line, detail string) {
	w.drop(1)
	w.fold.unchain(Changed, w.head.Size, detail)
	w.place(b)
	w.accused = true
}

// early is b standing before c, which is the event that belongs here.
func (w *walk) early(b, c *line) {
	n := w.head.Size
	if b.follows(c.head()) {
		w.fold.unchain(Misplaced, n, fmt.Sprintf("events %d and %d have changed places", n, n+1))
		w.drop(2)
		w.place(c)
		w.place(b)
		return
	}
	w.stray(b)
}

// stray leaves b out: it does not stand before event n by right.
func (w *walk) stray(b *line) {
	n := w.head.Size
	w.drop(1)
	switch {
	case b.leaf == w.head.Leaf:
		w.fold.unchain(Repeated, n, fmt.Sprintf("event %d stands here once more", b.seq))
	case b.placed && b.seq != n:
		w.fold.unchain(Misplaced, n, fmt.Sprintf("an event numbered %d stands here", b.seq))
	default:
		w.fold.unchain(Inserted, n, "something stands before this event that is no part of the log")
	}
}

// unlinked is b with the right number and another prev: either the event before is not what it was, or b is not.
// Whoever is linked to the event after b is the true one.
func (w *walk) unlinked(b, c *line) {
	n := w.head.Size
	last := &line{leaf: w.head.Leaf}
	beforeIsTrue := n == 0 || w.stored(n, last) == certain || w.stored(n+1, b) == refuted
	bIsTrue := c.follows(b.head()) || w.stored(n, last) == refuted || w.stored(n+1, b) == certain
	doubt := ""
	if len(w.window) == 1 && !bIsTrue {
		beforeIsTrue = beforeIsTrue || w.folded(n, last) == certain
		bIsTrue, doubt = !beforeIsTrue, "; the log ends there, so the last event may be the false one instead"
	}
	switch {
	case w.accused: // it explains the break
		w.drop(1)
		w.place(b)
	case beforeIsTrue:
		w.blame(b, "it was not written after the event before it")
	case bIsTrue:
		w.fold.unchain(Changed, n-1, "it is not the event that the next one was written after"+doubt)
		w.drop(1)
		w.place(b)
	default:
		w.blame(b, "it is linked neither to the event before nor to the one after")
	}
}

// testimony is what is remembered of an event outside the log.
type testimony int

const (
	silent testimony = iota
	certain
	refuted
)

func testify(l *line, leaf chain.Digest, known bool) testimony {
	switch {
	case !known:
		return silent
	case leaf == l.leaf:
		return certain
	}
	return refuted
}

// stored is what the stored head says of l as the event at size-1.
func (w *walk) stored(size uint64, l *line) testimony {
	h := w.fold.want.Head
	if h == nil || h.Size != size {
		return silent
	}
	return testify(l, h.Leaf, true)
}

// folded is what the projection says of it. It may have been changed as well, so it decides only what nothing else can.
func (w *walk) folded(size uint64, l *line) testimony {
	leaf, known := w.fold.state.recalls(size)
	return testify(l, leaf, known)
}

// late is b with a number that was there already.
func (w *walk) late(b, c *line) {
	n := w.head.Size
	if b.leaf == w.head.Leaf || !b.follows(w.before) {
		w.stray(b)
		return
	}
	w.drop(1)
	w.fold.unchain(Forked, b.seq, "two events claim this place, both written after the event before")
	if c.follows(b.head()) || w.stored(n, b) == certain {
		w.head = w.before // the log continues from b: the other one is the false one
		w.place(b)
	}
}

// ahead is b with a number beyond the next: events are missing, unless the lines after b show that only b's own
// number is false.
func (w *walk) ahead(b, c *line) {
	n := w.head.Size
	d := w.peek(2)
	inPlace := c.placed && c.seq == n+1 || d.placed && d.seq == n+2
	if inPlace && !c.follows(b.head()) {
		w.blame(b, "neither its number nor its link is the next")
		return
	}
	detail := fmt.Sprintf("event %d does not stand where it belongs", n)
	if b.seq > n+1 {
		detail = fmt.Sprintf("events %d to %d do not stand where they belong", n, b.seq-1)
	}
	w.fold.unchain(Missing, n, detail)
	w.drop(1)
	w.head = chain.Head{Size: b.seq, Leaf: b.prev}
	w.place(b)
}
