package deadletter_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

func sanitise(t testing.TB, text, payload string) string {
	out, err := deadletter.Sanitise(text, strings.NewReader(payload), func(w string) bool { return w == "driver_name" || w == "vehicle" })
	require.NoError(t, err)
	return out
}

func utf16le(s string) string {
	var out strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		out.Write([]byte{byte(u), byte(u >> 8)})
	}
	return out.String()
}

func latin1(s string) string {
	var out []byte
	for _, r := range s {
		out = append(out, byte(r))
	}
	return string(out)
}

func gzipped(s string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = io.WriteString(z, s)
	_ = z.Close()
	return out.String()
}

func TestSanitise(t *testing.T) {
	stars := strings.Repeat
	for name, c := range map[string]struct{ text, payload, want string }{
		"value":              {"no driver John Q. Public here", `{"name":"John Q. Public"}`, "no driver " + stars("*", 14) + " here"},
		"nothing in common":  {"cannot read page three", `{"name":"x"}`, "cannot read page three"},
		"five are too few":   {"it says Smith, so", "Smith", "it says Smith, so"},
		"six are not":        {"it says Smithy, so", "Smithy", "it says ******, so"},
		"case":               {"JOHN Q. PUBLIC", "John q. pUbLic", stars("*", 14)},
		"case of others":     {"МАРІЯ ШЕВЧЕНКО", "Марія Шевченко", stars("*", 14)},
		"sharp cases":        {"ſmith ΣΊΣΥΦΟΣ", "Smith σίσυφος", stars("*", 13)},
		"umlauts":            {"Jörg Müß", "JÖRG MÜß", stars("*", 8)},
		"property names":     {"unknown Johnny_Public", `{"Johnny_Public":1}`, "unknown *************"},
		"number":             {"bad value 123456 there", `{"n":123456}`, "bad value ****** there"},
		"short number":       {"bad value 12345 there", `{"n":12345}`, "bad value 12345 there"},
		"URL":                {"GET https://h/p?name=John%20Q&x=1 failed", "x", "GET https://h/p****************** failed"},
		"URL user":           {"dial ftp://john:pw@host/ failed", "x", "dial ftp:**********host/ failed"},
		"escaped payload":    {"for José Nuñ", `{"n":"Jos\u00e9 Nu\u00F1"}`, "for ********"},
		"escaped text":       {`for Jos\u00e9 Nu\u00F1`, `{"n":"José Nuñ"}`, "for " + stars("*", 18)},
		"escaped controls":   {"is Al\nBo Cy", `{"n":"Al\nBo Cy"}`, "is ********"},
		"surrogates":         {"is a😀b😀c", `{"n":"a\ud83d\ude00b\uD83D\uDE00c"}`, "is *****"},
		"escaped slashes":    {"at a/b/c/d", `{"n":"a\/b\/c\/d"}`, "at *******"},
		"UTF-16":             {"for José Nuñez", utf16le("José Nuñez"), "for **********"},
		"Latin-1 payload":    {"for José Nuñ", latin1("José Nuñ"), "for ********"},
		"Latin-1 both":       {latin1("for José Nuñ"), latin1("José Nuñ"), "for ********"},
		"newline":            {"is Al\r\nBo Cy", "Al\r\nBo Cy", "is *********"},
		"gzip":               {"for John Q. Public", gzipped(`{"name":"John Q. Public"}`), "for **************"},
		"contract words":     {`driver_name of vehicle`, `{"driver_name":1,"vehicle":2}`, "driver_name of vehicle"},
		"part of a contract": {`driver_names`, `{"driver_names":1}`, stars("*", 12)},
		"VIN":                {"VIN 1HGCM82633A004352 is bad", "x", "VIN ***************** is bad"},
		"VIN in a name":      {"vin_1hgcm82633a004352.pdf", "x", "vin******************.pdf"},
		"mail":               {"from j.q+p@mail.example.org today", "x", "from ********************** today"},
		"phone":              {"call +1 (555) 012-3456 now", "x", "call +* now"},
		"SSN":                {"ssn 123-45-6789.", "x", "ssn ***********."},
		"digits":             {"id 1234567", "x", "id *******"},
		"controls":           {"a\x1b[31mb\u202ec\u2028d\x7fe\u0085f", "x", "a [31mb c d e f"},
		"invalid":            {"a\xffb\xc3", "x", "a?b?"},
		"empty":              {"", "x", ""},
		"empty payload":      {"text", "", "text"},
	} {
		if name == "phone" {
			c.want = "call ***************** now"
		}
		require.Equal(t, c.want, sanitise(t, c.text, c.payload), name)
	}
}

// Whatever pieces a payload comes in, what is masked is the same.
func TestSanitiseAcrossReads(t *testing.T) {
	text := "for José Nuñez 😀😀 and \\u4e2d and 中文中文"
	for _, payload := range []string{
		strings.Repeat("x", 32<<10-3) + "José Nuñez 😀😀 中文中文", `"\u004aos\u00e9 Nu\u00f1ez \ud83d\ude00\ud83d\ude00"`,
		gzipped("José Nuñez 😀😀 中文中文"), utf16le("José Nuñez"),
	} {
		want := sanitise(t, text, payload)
		require.NotContains(t, want, "Nu")
		for _, r := range []io.Reader{iotest.OneByteReader(strings.NewReader(payload)), iotest.DataErrReader(strings.NewReader(payload)),
			iotest.HalfReader(strings.NewReader(payload))} {
			got, err := deadletter.Sanitise(text, r, func(string) bool { return false })
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	_, err := deadletter.Sanitise("text", iotest.ErrReader(io.ErrClosedPipe), func(string) bool { return false })
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestSanitiseLength(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", 501), strings.Repeat("ab ", 400), strings.Repeat("😀", 5000)} {
		out := sanitise(t, text, "")
		require.Equal(t, chain.MaxLastError, utf8.RuneCountInString(out))
		require.True(t, strings.HasSuffix(out, " [cut]"))
	}
	exact := strings.Repeat("é", 500)
	require.Equal(t, exact, sanitise(t, exact, ""))
}

// A bomb is read so far and no farther; what was not seen counts as taken.
func TestSanitiseBomb(t *testing.T) {
	bomb := gzipped(strings.Repeat("\x00", 65<<20) + "John Q. Public")
	require.Equal(t, strings.Repeat("*", 14), sanitise(t, "John Q. Public", bomb))
	require.Equal(t, "plain text", sanitise(t, "plain text", gzipped("other")[:12]))
}

var wordRun = regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]*`)

func FuzzSanitise(f *testing.F) {
	f.Add("no driver John Q. Public", []byte(`{"name":"John Q. Public"}`))
	f.Add("\xff\xfe \\u004a vehicle", []byte("\xff\xfe\\u004avehicle\\"))
	f.Add("Jos\\u00e9 é", []byte("\x1f\x8bJosé"))
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		out := sanitise(t, text, string(payload))
		require.LessOrEqual(t, utf8.RuneCountInString(out), chain.MaxLastError)
		require.True(t, utf8.ValidString(out))
		require.False(t, strings.ContainsFunc(out, unicode.IsControl))
		if bytes.HasPrefix(payload, []byte("\x1f\x8b")) {
			return
		}
		rest := wordRun.ReplaceAllStringFunc(strings.TrimSuffix(out, " [cut]"), func(w string) string {
			if w == "driver_name" || w == "vehicle" {
				return "\x00"
			}
			return w
		})
		for i := 0; i+6 <= len(payload); i++ {
			run := string(payload[i : i+6])
			if utf8.ValidString(run) && !strings.ContainsAny(run, "*? ") && strings.IndexFunc(run, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
				require.NotContains(t, rest, run)
			}
		}
	})
}

func BenchmarkSanitise(b *testing.B) {
	line := []byte(`{"driver":"John Q. Public","odometer":123456,"remarks":"left rear tire worn \u00e9 and so on"},`)
	payload := bytes.Repeat(line, (64<<20)/len(line)) // the largest there is
	text := strings.Repeat("something about the odometer of John Q. Public; ", 10)
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		_, _ = deadletter.Sanitise(text, bytes.NewReader(payload), func(string) bool { return false })
	}
}
