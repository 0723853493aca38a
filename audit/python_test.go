package audit_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/audit"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
)

// The script that ships with the program shares no code with it and comes to the same verdict.
func TestSameAsScript(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: no python3 to run verify.py")
	}
	h := chaintest.Story(t, story)
	agree := func(name string, lines [][]byte) {
		path := filepath.Join(t.TempDir(), "log")
		require.NoError(t, os.WriteFile(path, append(bytes.Join(lines, []byte("\n")), '\n'), 0o600))
		script := exec.Command(python, "../verify.py", path, "--head", fmt.Sprintf("%d:%s", h.Head.Size, h.Head.Leaf))
		out, err := script.CombinedOutput()
		require.NotNil(t, script.ProcessState, "%v", err)
		r := verify(t, audit.Options{Log: logOf(t, lines, 4), Head: &h.Head})
		require.EqualValues(t, r.Verdict, script.ProcessState.ExitCode(), "%s: %v; the script: %s", name, r.Findings, out)
	}
	agree("untouched", h.Lines())
	for _, tampering := range tamperings {
		from, to := tampering.ends(len(h.Records))
		for _, at := range []int{(from + to) / 2, to - 1} {
			agree(fmt.Sprintf("%s at %d", tampering.name, at), tampering.do(h.Lines(), at))
		}
	}
	agree("cut", chaintest.Cut(h.Lines(), 9))
	agree("rewritten", chaintest.Rewrite(h.Lines(), 9))
}
