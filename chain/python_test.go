package chain_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"
)

func python(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: python3 is not installed, so the readers of the other language were not compared")
	}
	return path
}

// reader is testdata/reader.py, running.
type reader struct {
	mu  sync.Mutex
	in  io.Writer
	out io.Reader
}

func startReader(t testing.TB) *reader {
	t.Helper()
	cmd := exec.Command(python(t), "testdata/reader.py")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		require.NoError(t, cmd.Wait())
	})
	return &reader{in: in, out: out}
}

func (r *reader) accepts(t testing.TB, line []byte) bool {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.in.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(line))), line...))
	require.NoError(t, err)
	var answer [1]byte
	_, err = io.ReadFull(r.out, answer[:])
	require.NoError(t, err)
	return answer[0] == '1'
}

// agree wants both readers to say the same about the grammar of a line.
func (r *reader) agree(t testing.TB, line []byte) {
	t.Helper()
	_, err := chain.Parse(line)
	var broken *chain.BrokenError
	ours := !errors.As(err, &broken) || broken.Kind != chain.BreakGrammar && !laterVersion(broken, line)
	if theirs := r.accepts(t, line); ours != theirs {
		t.Fatalf("Go accepts: %v (%v), Python accepts: %v\n%q", ours, err, theirs, line)
	}
}

// laterVersion tells a line that says it is version 2 or later: its grammar is not looked at.
func laterVersion(broken *chain.BrokenError, line []byte) bool {
	return broken.Kind == chain.BreakNewer && !bytes.HasPrefix(line, []byte(`{"v":1,`))
}

// tokens are what mutations put in: what JSON is made of, and what readers quarrel about.
var tokens = []string{
	`{`, `}`, `[`, `]`, `,`, `:`, `"`, `\`, `0`, `1`, `-`, `.`, `e`, `E`, `+`, `true`, `false`, `null`, `NaN`, `Infinity`, ` `, "\n",
	"\t", "\r", "\x00", "\x1f", "\x7f", "\u0085", "\u00a0", "\u2028", "\ufeff", "\xff", "\xc0\xaf", "\xed\xa0\x80", "é", "😀", "٣",
	`\u0000`, `\u0041`, `\ud83d\ude9b`, `\ud800`, `\udc00`, `\uD83d`, `\n`, `\/`, `\x`, `\u00e`, `"a":1`, `,"a":1`, `,"a":{}`, `{"a":1}`,
	`[1,2]`, `[[[[[[`, `]]]]]]`, `{"a":{"b":{"c":`, `}}}`, `9007199254740991`, `9007199254740992`, `00`, `1.0`, `1e2`, `""`, `"\u0061":1`,
	`"A":1`, `"_a":1`, `,"note":"x"`, `,"zz":[{}]`, `/*x*/`, `'`,
}

func mutate(r *rand.Rand, line []byte) []byte {
	for range 1 + r.IntN(3) {
		at := r.IntN(len(line) + 1)
		end := min(len(line), at+r.IntN(4))
		switch token := []byte(tokens[r.IntN(len(tokens))]); r.IntN(5) {
		case 0:
			line = slices.Insert(slices.Clone(line), at, token...)
		case 1:
			line = slices.Replace(slices.Clone(line), at, end, token...)
		case 2:
			line = slices.Delete(slices.Clone(line), at, end)
		case 3: // a piece of the line once more
			piece := slices.Clone(line[at:min(len(line), at+r.IntN(40))])
			line = slices.Insert(slices.Clone(line), r.IntN(len(line)+1), piece...)
		case 4:
			if line = slices.Clone(line); at < len(line) {
				line[at] ^= 1 << r.IntN(8)
			}
		}
	}
	return line
}

func someLines(t testing.TB) [][]byte {
	var lines [][]byte
	for _, name := range []string{"testdata/golden.jsonl", "testdata/golden_plans.jsonl"} {
		body, err := os.ReadFile(name)
		require.NoError(t, err)
		lines = append(lines, bytes.Split(bytes.TrimSpace(body), []byte("\n"))...)
	}
	for _, more := range []string{
		"", `,"x":1`, `,"x":{"y":[1,true,{"z":"é"}]},"note":"a\u0041\ud83d\ude9b"`, `,"x":[[[[[]]]]]`, `,"note":"n","zz":{"a":1,"b":{"a":1}}`,
	} {
		lines = append(lines, []byte(alert(more)))
	}
	return lines
}

func TestReadersAgree(t *testing.T) {
	r := startReader(t)
	lines := someLines(t)
	for _, line := range lines {
		r.agree(t, line)
	}
	for _, size := range []int{chain.MaxEvent, chain.MaxEvent + 1} {
		r.agree(t, ofSize(size))
	}
	random := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 5_000 {
		line := mutate(random, lines[random.IntN(len(lines))])
		r.agree(t, line)
		if _, err := chain.Parse(line); err == nil {
			accepted++
		}
	}
	require.Greater(t, accepted, 150, "mutations that only break things compare little")
}

func FuzzReadersAgree(f *testing.F) {
	r := startReader(f)
	for _, line := range someLines(f) {
		f.Add(line)
	}
	for _, token := range tokens {
		f.Add([]byte(alert(`,"x":` + token)))
		f.Add([]byte(alert(`,"x":"` + token + `"`)))
	}
	f.Fuzz(func(t *testing.T, line []byte) { r.agree(t, line) })
}

// verifyPy runs verify.py over lines and returns its exit code and what it printed.
func verifyPy(t *testing.T, lines [][]byte, args ...string) (code int, out string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "log.jsonl")
	body := chain.JoinLines(lines)
	if len(lines) > 0 {
		body = append(body, '\n')
	}
	require.NoError(t, os.WriteFile(file, body, 0o600))
	cmd := exec.Command(python(t), append([]string{"../verify.py", file}, args...)...)
	printed, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.NotContains(t, string(exit.Stderr), "Traceback")
	}
	return cmd.ProcessState.ExitCode(), strings.TrimSpace(string(printed))
}

// root is the Merkle tree hash (RFC 6962 section 2.1) as golang.org/x/mod computes it.
func root(t testing.TB, lines [][]byte) chain.Digest {
	t.Helper()
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, at := range indexes {
			out[i] = stored[at]
		}
		return out, nil
	})
	for i, line := range lines {
		hashes, err := tlog.StoredHashes(int64(i), line, read)
		require.NoError(t, err)
		stored = append(stored, hashes...)
	}
	h, err := tlog.TreeHash(int64(len(lines)), read)
	require.NoError(t, err)
	return chain.Digest(h)
}

func TestVerifyPyIntact(t *testing.T) {
	h := chaintest.Story(t, "A: received attempt retrying; B: dead_letter replayed; A: attempt resolved alert; B: attempt resolved submission hold")
	lines := h.Lines()
	for _, size := range []int{0, 1, 2, 3, 7, 8, len(lines)} {
		head := chain.Head{Size: uint64(size)}
		if size > 0 {
			head.Leaf = chain.LeafHash(lines[size-1])
		}
		code, out := verifyPy(t, lines[:size], "--head", fmt.Sprintf("%d:%s", head.Size, head.Leaf))
		require.Equal(t, fmt.Sprintf("OK %d events, head %s, root %s", size, head.Leaf, root(t, lines[:size])), out)
		require.Zero(t, code)
	}
	for _, name := range []string{"testdata/golden.jsonl", "testdata/golden_plans.jsonl"} {
		golden, err := os.ReadFile(name)
		require.NoError(t, err)
		code, out := verifyPy(t, bytes.Split(bytes.TrimSpace(golden), []byte("\n")))
		require.Zero(t, code, out)
	}
	code, out := verifyPy(t, lines, "--head", "3:"+chain.LeafHash(lines[2]).String())
	require.Zero(t, code, "a log that has grown: %s", out)
}

// manyMembers are more than one object may have.
var manyMembers = func() (text string) {
	for i := range 129 {
		text += fmt.Sprintf(`"x%d":1,`, i)
	}
	return text
}()

func TestVerifyPyTampered(t *testing.T) {
	h := chaintest.Story(t, "A: received attempt dead_letter replayed; B: received attempt retrying")
	lines := h.Lines()
	head := fmt.Sprintf("%d:%s", h.Head.Size, h.Head.Leaf)
	broken := func(at int, lines [][]byte, args ...string) {
		t.Helper()
		code, out := verifyPy(t, lines, args...)
		require.Equal(t, 2, code, out)
		require.True(t, strings.HasPrefix(out, fmt.Sprintf("BROKEN at %d: ", at)), out)
	}
	for _, tamper := range chaintest.Tampers {
		for _, at := range []int{1, len(lines) - 2} {
			broken(at+tamper.Late, tamper.Do(lines, at))
		}
	}
	for _, at := range []int{0, 1, len(lines) - 1} {
		broken(at, chaintest.Cut(lines, at), "--head", head)
	}
	last := len(lines) - 1
	broken(last, chaintest.Rewrite(lines, 2), "--head", head)
	broken(last, chaintest.Change(lines, last), "--head", head)
	for _, bad := range [][]byte{
		bytes.Replace(lines[last], []byte(`"actor":`), []byte(`"actor":"x","actor":`), 1),
		bytes.Replace(lines[last], []byte(`"actor":`), []byte(`"Actor":`), 1),
		bytes.Replace(lines[last], []byte(`"actor":`), []byte(`"x":1.5,"actor":`), 1),
		bytes.Replace(lines[last], []byte(`"actor":`), []byte(`"x":-1,"actor":`), 1),
		bytes.Replace(lines[last], []byte(`"actor":`), []byte(`"x":"\ud800","actor":`), 1),
		bytes.Replace(lines[last], []byte(`"actor":`), []byte("\"x\":\"\xff\",\"actor\":"), 1),
		bytes.Replace(lines[last], []byte(`"case_seq":`), []byte(`"case_seq":1`), 1),
		bytes.Replace(lines[last], []byte(`"case_prev":"`), []byte(`"case_prev":"0`), 1),
		bytes.Replace(lines[last], []byte(`"v":1`), []byte(`"v":2`), 1),
		bytes.TrimSuffix(lines[last], []byte("}")),
		append(bytes.Clone(lines[last]), ' ', 'x'),
		append(bytes.Clone(lines[last]), ' '),
		append(bytes.Clone(lines[last]), '\r'),
		bytes.Replace(lines[last], []byte(`,"actor":`), []byte(`, "actor":`), 1),
		bytes.Replace(lines[last], []byte(`"actor":`), []byte(`"x":null,"actor":`), 1),
		bytes.Replace(lines[last], []byte(`"actor":`), []byte(`"x":[[[[[[1]]]]]],"actor":`), 1),
		bytes.Replace(lines[last], []byte(`"actor":`), []byte(`"\u0061ctor":`), 1),
		bytes.Replace(lines[last], []byte(`"actor":`), []byte(manyMembers+`"actor":`), 1),
		[]byte(strings.Replace(string(lines[last]), `"actor":`, `"x":`+strings.Repeat("[", 20_000)+`,"actor":`, 1)),
		nil,
	} {
		broken(last, append(slices.Clone(lines[:last]), bad))
	}
}

func TestVerifyPyCannotVerify(t *testing.T) {
	lines := chaintest.Story(t, "").Lines()
	for _, args := range [][]string{{"--head"}, {"--head", "x"}, {"--head", "1:" + strings.ToUpper(chain.LeafHash(lines[0]).String())}, {"--tail", "1"}} {
		code, out := verifyPy(t, lines, args...)
		require.Equal(t, 1, code, "%v", args)
		require.Empty(t, out)
	}
	err := exec.Command(python(t), "../verify.py", filepath.Join(t.TempDir(), "missing")).Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
}
