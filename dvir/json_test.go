package dvir

import (
	"bytes"
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func nest(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestDecodeFaults(t *testing.T) {
	for _, tc := range []struct{ name, in, code, pointer string }{
		{"open brace", `{`, codeTruncated, ""},
		{"cut in a name", `{"vehicle`, codeTruncated, ""},
		{"cut after a colon", `{"vehicle":`, codeTruncated, "/vehicle"},
		{"cut after a comma", `{"vehicle":1,`, codeTruncated, ""},
		{"cut in a literal", `[tru`, codeTruncated, "/0"},
		{"cut in a number", `[1.`, codeTruncated, "/0"},
		{"cut in an exponent", `[1e+`, codeTruncated, "/0"},
		{"cut in an escape", `["\u00`, codeTruncated, "/0"},
		{"cut in a pair", `["\ud83d\`, codeTruncated, "/0"},
		{"cut in a character", "[\"\xe8\xa9", codeTruncated, ""},
		{"nothing", ``, codeTruncated, ""},
		{"wrong literal", `[True]`, codeSyntax, "/0"},
		{"single quotes", `{'a':1}`, codeSyntax, ""},
		{"comment", `[1/*x*/]`, codeSyntax, ""},
		{"last comma", `[1,]`, codeSyntax, "/1"},
		{"last comma in an object", `{"a":1,}`, codeSyntax, ""},
		{"leading zero", `[01]`, codeSyntax, ""},
		{"plus", `[+1]`, codeSyntax, "/0"},
		{"bare fraction", `[.5]`, codeSyntax, "/0"},
		{"no digits after the point", `[1.]`, codeSyntax, "/0"},
		{"NaN", `[NaN]`, codeSyntax, "/0"},
		{"control character", "[\"a\x01\"]", codeSyntax, "/0"},
		{"line end in text", "[\"a\nb\"]", codeSyntax, "/0"},
		{"unknown escape", `["\x41"]`, codeSyntax, "/0"},
		{"wrong hexadecimal", `["\u00g0"]`, codeSyntax, "/0"},
		{"letters that fold to digits", "[\"\\u001\x10\"]", codeSyntax, "/0"},
		{"NUL within", "[1,\x00]", codeSyntax, "/1"},
		{"form feed as space", "[1,\f2]", codeSyntax, "/1"},
		{"name not text", `{1:2}`, codeSyntax, ""},
		{"duplicate", `{"stage":1,"stage":1}`, codeDuplicateKey, "/stage"},
		{"duplicate by escape", `{"stage":1,"st\u0061ge":2}`, codeDuplicateKey, "/stage"},
		{"duplicate of a foreign name", `{"vehicle":{"Jane":1,"Jane":2}}`, codeDuplicateKey, "/vehicle"},
		{"foreign name above", `{"Jane":{"vehicle":{"vin":tru}}}`, codeSyntax, ""},
		{"foreign digits above", `{"4155550100":[1e999]}`, codeNumberRange, ""},
		{"high half", `{"remarks":"\ud83d"}`, codeSurrogate, "/remarks"},
		{"low half", `["\udc00"]`, codeSurrogate, "/0"},
		{"two high halves", `["\ud83d\ud83d"]`, codeSurrogate, "/0"},
		{"high half and another escape", `["\ud83d\n"]`, codeSurrogate, "/0"},
		{"half in a name", `{"\ud83d":1}`, codeSurrogate, ""},
		{"overflow", `{"defects":[{"severity":{"score":1e309}}]}`, codeNumberRange, "/defects/0/severity/score"},
		{"underflow", `[1e-400]`, codeNumberRange, "/0"},
		{"endless number", "[" + strings.Repeat("9", maxNumber+1) + "]", codeNumberRange, "/0"},
		{"too deep", nest(maxDepth + 1), codeDepth, strings.Repeat("/0", maxDepth)},
		{"far too deep and cut", strings.Repeat(`{"a":`, 1_000_000), codeDepth, ""},
		{"too many values", "[" + strings.Repeat("{},", maxValues-1) + "{}]", codeExpansion, "/199999"},
		{"too long", `"` + strings.Repeat("a", maxText-1) + `"`, codeExpansion, ""},
		{"too long and not UTF-8", "\xff" + strings.Repeat(" ", maxText), codeExpansion, ""},
		{"second document", `{} {}`, codeTrailing, ""},
		{"NUL padding", "{}\x00\x00", codeTrailing, ""},
		{"stray brace", `{}}`, codeTrailing, ""},
		{"overlong", "[\"\xc0\xaf\"]", codeCharset, ""},
		{"surrogate in UTF-8", "[\"\xed\xa0\xbd\"]", codeCharset, ""},
		{"Latin-1", "[\"\xe9t\xe9\"]", codeCharset, ""},
		{"beyond Unicode", "[\"\xf4\x90\x80\x80\"]", codeCharset, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v, f := decode([]byte(tc.in))
			require.NotNil(t, f)
			assert.Nil(t, v)
			assert.Equal(t, tc.code, f.code)
			assert.Equal(t, tc.pointer, f.pointer())
		})
	}
}

func TestDecodeKeepsSpelling(t *testing.T) {
	in := ` {"b":[1.50,-0,1E2,0e-5,9007199254740993,0e999],"a":"\u0041\/\ud83d\ude9a\u2028","":null,"c":true} `
	want := `{"":null,"a":"A/🚚` + "\u2028" + `","b":[1.50,-0,1E2,0e-5,9007199254740993,0e999],"c":true}`
	v, f := decode([]byte(in))
	require.Nil(t, f)
	got := appendJSON(nil, v)
	assert.Equal(t, want, string(got))
	again, f := decode(got)
	require.Nil(t, f)
	assert.Equal(t, v, again)

	for _, in := range []string{nest(maxDepth), "[" + strings.Repeat("{},", maxValues-2) + "{}]", `"` + strings.Repeat("a", maxText-2) + `"`} {
		_, f = decode([]byte(in))
		assert.Nil(t, f)
	}
}

// A payload cannot make the service hold many times its own size: the most that the store takes, 64 MiB, filled
// with the smallest values, alone and within a report.
func TestDecodeBoundsMemory(t *testing.T) {
	const size = 64 << 20
	p, err := New(Config{})
	require.NoError(t, err)
	for _, tc := range []struct{ start, item string }{
		{"[", "{},"},
		{`{"schema_version":"1.0","dvir_id":"x","extensions":{"x":[`, "{},"},
		{"[", "[],"},
		{"[", "0,"},
	} {
		for _, bytes := range []int{size, maxText} {
			data := []byte(tc.start + strings.Repeat(tc.item, (bytes-len(tc.start))/len(tc.item)))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := p.Process(Input{Data: data, ContentType: "application/json"}, nil)
			runtime.ReadMemStats(&after)
			assert.Equal(t, codeExpansion, r.Code)
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
		}
	}
}

// FuzzDecode compares with encoding/json: it accepts whatever we accept, with the same
// meaning, and we refuse what it accepts only for a reason of our own.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"vehicle":{"vin":"\ud83d\ude9a"},"defects":[1,-2.5e3,true,null]}`, `{"a":1,"a":2}`, `"\ud800"`, `[1e999]`, "\xff", nest(65), `{} {}`, `[01]`} {
		f.Add([]byte(seed))
	}
	own := map[string]bool{codeCharset: true, codeDuplicateKey: true, codeDepth: true, codeNumberRange: true, codeSurrogate: true, codeExpansion: true}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, fault := decode(data)
		std, accepted := decodeStd(data)
		if fault != nil {
			cutCharacter := fault.code == codeTruncated && !bytes.Equal(bytes.ToValidUTF8(data, nil), data)
			if accepted && !own[fault.code] && !cutCharacter {
				t.Fatalf("refused as %s, accepted by encoding/json", fault.code)
			}
			return
		}
		if !accepted {
			t.Fatal("accepted, refused by encoding/json")
		}
		assert.Equal(t, std, v)
		canonical := appendJSON(nil, v)
		again, fault := decode(canonical)
		require.Nil(t, fault)
		assert.Equal(t, v, again)
	})
}

func decodeStd(data []byte) (any, bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil, false
	}
	_, err := d.Token()
	return v, err == io.EOF
}
