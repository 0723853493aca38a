package chaintest

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Tamper is one way to falsify a log. At must be neither the first nor the last line.
type Tamper struct {
	Name string
	Do   func(lines [][]byte, at int) [][]byte
	// Late says where links and numbers give it away: 0 at the line itself, 1 at the next.
	Late int
}

// Tampers are the ways that links and numbers give away without knowing the head.
var Tampers = []Tamper{
	{"change", Change, 1},
	{"remove", Remove, 0},
	{"insert", Insert, 1},
	{"swap", Swap, 0},
	{"repeat", Repeat, 1},
}

// Change alters the microseconds of the event at one place by one bit. The event stays valid on its own: only the
// next one, or the head, tells.
func Change(lines [][]byte, at int) [][]byte {
	const member = `"at":"2006-01-02T15:04:05.00000`
	return Flip(lines, at, bytes.Index(lines[at], []byte(`"at":"`))+len(member), 1)
}

// Flip inverts the bits of mask in one byte of one line.
func Flip(lines [][]byte, at, offset int, mask byte) [][]byte {
	lines = clone(lines)
	lines[at][offset] ^= mask
	return lines
}

// Remove takes one line out.
func Remove(lines [][]byte, at int) [][]byte { return slices.Delete(clone(lines), at, at+1) }

// Insert puts a forged event before the line at one place. It is linked and numbered as the log stands there.
func Insert(lines [][]byte, at int) [][]byte {
	lines = clone(lines)
	prev := chain.LeafHash(lines[at-1])
	forged := `{"v":1,"prev":"` + prev.String() + `","seq":` + strconv.Itoa(at) +
		`,"type":"alert","at":"2026-03-02T06:30:00.000000Z","actor":"test","reason":"forged"}`
	return slices.Insert(lines, at, []byte(forged))
}

// Swap exchanges a line with the next.
func Swap(lines [][]byte, at int) [][]byte {
	lines = clone(lines)
	lines[at], lines[at+1] = lines[at+1], lines[at]
	return lines
}

// Repeat puts a copy of a line after it.
func Repeat(lines [][]byte, at int) [][]byte {
	lines = clone(lines)
	return slices.Insert(lines, at, lines[at])
}

// Cut drops the line at one place and all that follow. The rest is a whole log: only an anchored head tells.
func Cut(lines [][]byte, at int) [][]byte { return clone(lines[:at]) }

// Rewrite changes the event at one place and seals everything after it anew, as someone could who owns the store.
// The result is a valid log with another head: only an anchored head tells.
func Rewrite(lines [][]byte, at int) [][]byte {
	out := Change(lines, at)
	for i := at; i < len(lines); i++ {
		was, is := chain.LeafHash(lines[i]), chain.LeafHash(out[i])
		for j := i + 1; j < len(out); j++ {
			out[j] = bytes.ReplaceAll(out[j], hex.AppendEncode(nil, was[:]), hex.AppendEncode(nil, is[:]))
		}
	}
	return out
}
