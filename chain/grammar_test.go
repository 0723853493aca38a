package chain_test

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/stretchr/testify/require"
)

var zeros = strings.Repeat("0", 64)

// alert is an event with more members after those it needs.
func alert(more string) string {
	return `{"v":1,"prev":"` + zeros + `","seq":7,"type":"alert","at":"2026-03-02T06:30:00.000000Z","actor":"test"` + more + `}`
}

func breakOf(t *testing.T, err error) *chain.BrokenError {
	t.Helper()
	var broken *chain.BrokenError
	require.ErrorAs(t, err, &broken)
	return broken
}

// secret stands in many of the broken inputs; no error may repeat it.
const secret = "MERIDIAN"

func TestGrammarRefuses(t *testing.T) {
	deep := func(n int) string { return `,"x":` + strings.Repeat(`{"x":`, n) + "1" + strings.Repeat("}", n) }
	list := func(n int) string { return `,"x":` + strings.Repeat("[", n) + "1" + strings.Repeat("]", n) }
	var many strings.Builder
	for i := range chain.MaxMembers - 5 {
		many.WriteString(`,"m` + strconv.Itoa(i) + `":1`)
	}
	for name, line := range map[string]string{
		"empty":                    "",
		"not an object":            `[]`,
		"only a brace":             `{`,
		"empty object":             `{}`,
		"duplicate name":           alert(`,"note":"a","note":"` + secret + `"`),
		"duplicate of the header":  alert(`,"seq":7`),
		"duplicate unknown":        alert(`,"zz":1,"zz":1`),
		"duplicate nested":         alert(`,"x":{"a":1,"a":2}`),
		"duplicate in array":       alert(`,"x":[{"a":1},{"a":1,"b":2,"a":3}]`),
		"duplicate deep":           alert(`,"x":{"y":{"z":[{"a":1,"b":{},"a":1}]}}`),
		"duplicate after object":   alert(`,"x":{"y":1},"x":2`),
		"upper-case name":          alert(`,"Note":"` + secret + `"`),
		"name folding to note":     alert(`,"NOTE":1`),
		"long s name":              alert(`,"di` + "ſ" + `position":1`),
		"escaped name":             alert(`,"n\u006fte":1`),
		"empty name":               alert(`,"":1`),
		"name from digit":          alert(`,"1a":1`),
		"name from underscore":     alert(`,"_a":1`),
		"name with dash":           alert(`,"a-b":1`),
		"name without end":         `{"v":1,"prev":"` + zeros + `","seq":7,"type`,
		"no colon":                 alert(`,"x" 1`),
		"no value":                 alert(`,"x":`),
		"no comma":                 alert(`"x":1`),
		"trailing comma":           alert(`,`),
		"two commas":               alert(`,,"x":1`),
		"trailing comma in array":  alert(`,"x":[1,]`),
		"empty item":               alert(`,"x":[,1]`),
		"no comma in array":        alert(`,"x":[1 2]`),
		"brackets crossed":         alert(`,"x":[1}`),
		"brace in array":           alert(`,"x":{"y":1]`),
		"null":                     alert(`,"x":null`),
		"null in array":            alert(`,"x":[null]`),
		"float":                    alert(`,"x":1.0`),
		"small float":              alert(`,"x":0.5`),
		"exponent":                 alert(`,"x":1e5`),
		"big exponent":             alert(`,"x":1E5`),
		"negative":                 alert(`,"x":-1`),
		"minus zero":               alert(`,"x":-0`),
		"plus":                     alert(`,"x":+1`),
		"leading zero":             alert(`,"x":01`),
		"two zeros":                alert(`,"x":00`),
		"2^53":                     alert(`,"x":9007199254740992`),
		"2^64":                     alert(`,"x":18446744073709551616`),
		"NaN":                      alert(`,"x":NaN`),
		"Infinity":                 alert(`,"x":Infinity`),
		"hex":                      alert(`,"x":0x1`),
		"True":                     alert(`,"x":True`),
		"tru":                      alert(`,"x":tru`),
		"fals":                     alert(`,"x":fals`),
		"single quotes":            alert(`,"x":'y'`),
		"comment":                  alert(`/*` + secret + `*/`),
		"space after comma":        alert(`, "x":1`),
		"space after colon":        alert(`,"x": 1`),
		"space in array":           alert(`,"x":[1, 2]`),
		"space before brace":       alert(` `),
		"leading space":            " " + alert(""),
		"leading BOM":              "\ufeff" + alert(""),
		"trailing newline":         alert("") + "\n",
		"trailing CR":              alert("") + "\r",
		"trailing space":           alert("") + " ",
		"trailing NUL":             alert("") + "\x00",
		"trailing event":           alert("") + alert(""),
		"newline between":          alert("\n"),
		"NUL between":              alert("\x00"),
		"NUL in string":            alert(",\"note\":\"a\x00b\""),
		"newline in string":        alert(",\"note\":\"a\nb\""),
		"tab in string":            alert(",\"note\":\"a\tb\""),
		"0x1f in string":           alert(",\"note\":\"a\x1fb\""),
		"VT in string":             alert(",\"note\":\"a\vb\""),
		"FF in string":             alert(",\"note\":\"a\fb\""),
		"unknown escape":           alert(`,"note":"\x41"`),
		"escaped quote only":       alert(`,"note":"\'"`),
		"escape at the end":        alert(`,"note":"\`),
		"short \\u":                alert(`,"note":"\u12"`),
		"\\u with a quote":         alert(`,"note":"\u00"0"`),
		"\\u with a newline":       alert(",\"note\":\"\\u00\n0\""),
		"\\u with a NUL":           alert(",\"note\":\"\\u00\x000\""),
		"\\u with a sign":          alert(`,"note":"\u+041"`),
		"\\u with a space":         alert(`,"note":"\u 041"`),
		"\\u with an underscore":   alert(`,"note":"\u0_41"`),
		"\\U":                      alert(`,"note":"\U00000041"`),
		"\\u with wide digits":     alert(`,"note":"\u００４１"`),
		"\\u with G":               alert(`,"note":"\u00G1"`),
		"\\u folded into a digit":  alert(",\"note\":\"\\u00\x011\""),
		"lone high surrogate":      alert(`,"note":"\ud800"`),
		"lone low surrogate":       alert(`,"note":"\udc00"`),
		"two high surrogates":      alert(`,"note":"\ud800\ud800"`),
		"high then letter":         alert(`,"note":"\ud800a"`),
		"high then escape":         alert(`,"note":"\ud800\n"`),
		"high then end":            alert(`,"note":"\ud800\`),
		"surrogates reversed":      alert(`,"note":"\udc00\ud800"`),
		"upper-case surrogate":     alert(`,"note":"\uD800"`),
		"surrogate in UTF-8":       alert(",\"note\":\"\xed\xa0\x80\""),
		"invalid UTF-8":            alert(",\"note\":\"" + secret + "\xff\""),
		"cut UTF-8":                alert(",\"note\":\"\xe2\x82\""),
		"overlong slash":           alert(",\"note\":\"\xc0\xaf\""),
		"beyond U+10FFFF":          alert(",\"note\":\"\xf4\x90\x80\x80\""),
		"invalid UTF-8 in name":    alert(",\"no\xff\":1"),
		"depth 7 of objects":       alert(deep(6)),
		"depth 7 of arrays":        alert(list(6)),
		"depth 7 mixed":            alert(`,"x":[{"x":[{"x":[{}]}]}]`),
		"129 members":              alert(many.String()),
		"129 members nested":       alert(`,"x":{"a":1` + strings.ReplaceAll(many.String(), "m", "n") + `,"b":1,"c":1,"d":1,"e":1,"f":1}`),
		"32 KiB + 1":               string(ofSize(chain.MaxEvent + 1)),
		"string without end":       `{"v":1,"prev":"` + zeros + `","seq":7,"type":"al`,
		"object without end":       strings.TrimSuffix(alert(""), "}"),
		"array without end":        strings.TrimSuffix(alert(`,"x":[1`), "}"),
		"space before the colon":   `{"v" :1,"prev":"` + zeros + `","seq":7,"type":"alert","at":"2026-03-02T06:30:00.000000Z","actor":"test"}`,
		"header in another order":  `{"prev":"` + zeros + `","v":1,"seq":7,"type":"alert","at":"2026-03-02T06:30:00.000000Z","actor":"test"}`,
		"v as a string":            strings.Replace(alert(""), `"v":1`, `"v":"1"`, 1),
		"v as a float":             strings.Replace(alert(""), `"v":1`, `"v":1.0`, 1),
		"v zero":                   strings.Replace(alert(""), `"v":1`, `"v":0`, 1),
		"v with a zero before":     strings.Replace(alert(""), `"v":1`, `"v":02`, 1),
		"v negative":               strings.Replace(alert(""), `"v":1`, `"v":-2`, 1),
		"prev upper case":          strings.Replace(alert(""), zeros, "A"+zeros[1:], 1),
		"prev short":               strings.Replace(alert(""), zeros, zeros[1:], 1),
		"prev long":                strings.Replace(alert(""), zeros, zeros+"0", 1),
		"prev not hex":             strings.Replace(alert(""), zeros, "g"+zeros[1:], 1),
		"prev with an escape":      strings.Replace(alert(""), zeros, `\u0030`+zeros[6:], 1),
		"seq as a string":          strings.Replace(alert(""), `"seq":7`, `"seq":"7"`, 1),
		"seq with a zero before":   strings.Replace(alert(""), `"seq":7`, `"seq":07`, 1),
		"seq without digits":       strings.Replace(alert(""), `"seq":7`, `"seq":`, 1),
		"seq with a fraction":      strings.Replace(alert(""), `"seq":7`, `"seq":7.0`, 1),
		"seq negative":             strings.Replace(alert(""), `"seq":7`, `"seq":-7`, 1),
		"seq 2^53":                 strings.Replace(alert(""), `"seq":7`, `"seq":9007199254740992`, 1),
		"seq beyond 64 bits":       strings.Replace(alert(""), `"seq":7`, `"seq":18446744073709551623`, 1),
		"space after seq":          strings.Replace(alert(""), `"seq":7`, `"seq":7 `, 1),
		"nothing after the header": `{"v":1,"prev":"` + zeros + `","seq":7}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := chain.Parse([]byte(line))
			broken := breakOf(t, err)
			require.Equal(t, chain.BreakGrammar, broken.Kind, "%v", err)
			require.NotContains(t, err.Error(), secret)
			_, err = chain.Head{Size: 7}.Check([]byte(line))
			require.Equal(t, chain.BreakGrammar, breakOf(t, err).Kind, "%v", err)
			require.Equal(t, uint64(7), breakOf(t, err).Seq)
		})
	}
}

// ofSize is an event of exactly n bytes.
func ofSize(n int) []byte {
	return []byte(alert(`,"pad":"` + strings.Repeat("x", n-len(alert(`,"pad":""`))) + `"`))
}

func TestGrammarAccepts(t *testing.T) {
	var many strings.Builder
	for i := range chain.MaxMembers - 6 {
		many.WriteString(`,"m` + strconv.Itoa(i) + `":1`)
	}
	for name, c := range map[string]struct{ line, note string }{
		"nothing more":         {alert(""), ""},
		"unknown members":      {alert(`,"x":1,"y":"z","b":true,"c":false,"o":{},"a":[],"n":{"x":[{"x":1}]}`), ""},
		"same name elsewhere":  {alert(`,"x":{"x":{"x":1}},"y":[{"x":1},{"x":1}]`), ""},
		"zero":                 {alert(`,"x":0`), ""},
		"2^53-1":               {alert(`,"x":9007199254740991`), ""},
		"depth 6":              {alert(`,"x":[[[[[1]]]]]`), ""},
		"depth 6 of objects":   {alert(`,"x":{"x":{"x":{"x":{"x":1}}}}`), ""},
		"128 members":          {alert(many.String()), ""},
		"escapes":              {alert(`,"note":"\"\\\/\b\f\n\r\t\u0041\u00e9\uABCD"`), "\"\\/\b\f\n\r\tAé\uabcd"},
		"escaped NUL":          {alert(`,"note":"\u0000"`), "\x00"},
		"surrogate pair":       {alert(`,"note":"\ud83d\ude9b\uD83D\uDE9B"`), "🚛🚛"},
		"noncharacter":         {alert(",\"note\":\"\ufffe\uffff\""), "\ufffe\uffff"},
		"replacement char":     {alert(",\"note\":\"\ufffd\""), "\ufffd"},
		"line separators":      {alert(",\"note\":\"\u2028\u2029\u0085\""), "\u2028\u2029\u0085"},
		"DEL":                  {alert(",\"note\":\"\x7f\""), "\x7f"},
		"BOM inside":           {alert(",\"note\":\"\ufeff\""), "\ufeff"},
		"order is free":        {alert(`,"note":"n","zz":1,"reason":"r"`), "n"},
		"zero values present":  {alert(`,"note":"","override":false,"reason":""`), ""},
		"largest":              {string(ofSize(chain.MaxEvent)), ""},
		"names with digits":    {alert(`,"a1_b2":1,"a_":1,"a__b":2`), ""},
		"colliding long names": {alert(`,"` + strings.Repeat("a", 2000) + `":1,"` + strings.Repeat("a", 2001) + `":1`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := chain.Parse([]byte(c.line))
			require.NoError(t, err)
			require.Equal(t, c.note, r.Event.Note)
			require.Equal(t, uint64(7), r.Seq)
			require.Equal(t, chain.LeafHash([]byte(c.line)), r.Leaf)
			require.Equal(t, c.line, string(r.Raw))
			require.True(t, json.Valid(r.Raw))
		})
	}
}

// What an old reader does not know is hashed all the same: without it the event is another one.
func TestUnknownMemberIsHashed(t *testing.T) {
	with, err := chain.Parse([]byte(alert(`,"x":1`)))
	require.NoError(t, err)
	without, err := chain.Parse([]byte(alert("")))
	require.NoError(t, err)
	require.Equal(t, without.Event, with.Event)
	require.NotEqual(t, without.Leaf, with.Leaf)
}

func TestNewer(t *testing.T) {
	for name, line := range map[string]string{
		"version 2":                      strings.Replace(alert(""), `"v":1`, `"v":2`, 1),
		"version 12":                     strings.Replace(alert(""), `"v":1`, `"v":12`, 1),
		"version 2 with another grammar": `{"v":2,"previous":null, "x":1.5}`,
		"unknown type":                   strings.Replace(alert(`,"payload_ref":5`), `"alert"`, `"erasure"`, 1),
		"unknown type, other actor":      strings.Replace(alert(``), `"alert","at":"2026-03-02T06:30:00.000000Z","actor":"test"`, `"erasure","at":"later"`, 1),
		"crit":                           alert(`,"erased":true,"crit":["erased"]`),
		"crit of a known member":         alert(`,"crit":["note"]`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := chain.Parse([]byte(line))
			require.Equal(t, chain.BreakNewer, breakOf(t, err).Kind, "%v", err)
			_, err = chain.Head{Size: 7}.Check([]byte(line))
			require.Equal(t, chain.BreakNewer, breakOf(t, err).Kind, "%v", err)
		})
	}
	_, err := chain.Head{}.Seal(chain.Event{Type: "erasure", At: start, Actor: "test"})
	require.Error(t, err, "what a newer version writes is not written here")
	_, err = chain.Head{}.Seal(chain.Event{Type: chain.TypeAlert, At: start, Actor: "test", Crit: []string{"x"}})
	require.Error(t, err)
}

func TestLink(t *testing.T) {
	genesis, first := seal(t, chain.Head{}, genesisEvent), chain.Event{Type: chain.TypeAlert, At: start, Actor: "test"}
	head := genesis.Head()
	r := seal(t, head, first)
	got, err := head.Link(r.Raw)
	require.NoError(t, err)
	require.Equal(t, r.Head(), got)
	require.Equal(t, chain.Head{Size: 2, Leaf: chain.LeafHash(r.Raw)}, got)
	require.Contains(t, string(r.Raw), `{"v":1,"prev":"`+genesis.Leaf.String()+`","seq":1,"type":"alert",`)

	other := seal(t, head, chain.Event{Type: chain.TypeAlert, At: start, Actor: "other"})
	for name, c := range map[string]struct {
		head chain.Head
		raw  []byte
		kind chain.BreakKind
	}{
		"other leaf":     {other.Head(), seal(t, r.Head(), first).Raw, chain.BreakLink},
		"number skipped": {chain.Head{Size: 2, Leaf: head.Leaf}, r.Raw, chain.BreakSequence},
		"number behind":  {chain.Head{Size: 0, Leaf: head.Leaf}, r.Raw, chain.BreakSequence},
		"repeated":       {r.Head(), r.Raw, chain.BreakSequence},
		"upper case":     {head, bytes.Replace(r.Raw, []byte(genesis.Leaf.String()), bytes.ToUpper([]byte(genesis.Leaf.String())), 1), chain.BreakGrammar},
		"before genesis": {chain.Head{}, bytes.Replace(genesis.Raw, []byte(zeros), []byte("1"+zeros[1:]), 1), chain.BreakLink},
		"nothing":        {head, nil, chain.BreakGrammar},
		"cut in seq":     {head, r.Raw[:bytes.Index(r.Raw, []byte(`,"type"`))], chain.BreakGrammar},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.head.Link(c.raw)
			require.Equal(t, c.kind, breakOf(t, err).Kind)
			require.Equal(t, c.head.Size, breakOf(t, err).Seq)
			_, err = c.head.Check(c.raw)
			require.Equal(t, c.kind, breakOf(t, err).Kind)
		})
	}

	_, err = chain.Head{}.Check(bytes.Replace(genesis.Raw, []byte(`"genesis"`), []byte(`"alert"`), 1))
	require.Equal(t, chain.BreakField, breakOf(t, err).Kind, "the first event is genesis")
	_, err = head.Seal(genesisEvent)
	require.Error(t, err, "and only the first")
}

// No event holds a newline, and the newline byte is the only separator: what other readers take for the end of a
// line is text.
func TestFraming(t *testing.T) {
	separators := "a\vb\fc\u0085d\u2028e\u2029f\x1cg\x1dh\x1ei\r\nj"
	head, lines := chain.Head{}, [][]byte(nil)
	for i := range 3 {
		e := chain.Event{Type: chain.TypeAlert, At: start, Actor: "test", Note: separators}
		if i == 0 {
			e.Type, e.Origin, e.LogID = chain.TypeGenesis, "holdfast.example/test", "00"
		}
		r := seal(t, head, e)
		require.Equal(t, separators, r.Event.Note)
		lines, head = append(lines, r.Raw), r.Head()
	}
	body := chain.JoinLines(lines)
	back, err := chain.SplitLines(body)
	require.NoError(t, err)
	require.Equal(t, lines, back)
	for _, bad := range []string{"", "\n", "a\n", "\na", "a\n\nb"} {
		_, err := chain.SplitLines([]byte(bad))
		require.ErrorIs(t, err, chain.ErrFraming, "%q", bad)
	}
}

func TestCheckBlock(t *testing.T) {
	line := []byte(alert(""))
	many := make([][]byte, chain.MaxBlockEvents+1)
	for i := range many {
		many[i] = line
	}
	full := [][]byte{bytes.Repeat([]byte("x"), chain.MaxBlockBytes-1-len(line)), line}
	require.NoError(t, chain.CheckBlock(full))
	require.NoError(t, chain.CheckBlock(many[1:]))
	require.ErrorIs(t, chain.CheckBlock(many), chain.ErrBlockSize)
	require.ErrorIs(t, chain.CheckBlock([][]byte{append(full[0], 'x'), line}), chain.ErrBlockSize)
	for _, lines := range [][][]byte{nil, {}, {nil}, {line, {}}, {line, append(bytes.Clone(line), '\n')}, {[]byte("\n")}} {
		require.ErrorIs(t, chain.CheckBlock(lines), chain.ErrFraming)
	}
}
