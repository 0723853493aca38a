package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/jetstream/natstest"
	"github.com/holdfast-dvir/holdfast/web"
)

const pullAll = "processors:\n- {name: field, kind: pull}\nroutes:\n- {processor: field}\n"

// workerToken makes a token of the role worker.
func (s *server) workerToken(data string) string {
	s.t.Helper()
	code, out, errs := holdfast(s.t, "token", "create", "crew", "--role", "worker", "--data", data)
	require.Zero(s.t, code, errs)
	for _, word := range strings.Fields(out) {
		if strings.HasPrefix(word, "hf_") {
			return word
		}
	}
	s.t.Fatal(out)
	return ""
}

// worker starts a program that works for the service. stop ends it as a supervisor does.
func (s *server) worker(token string, command ...string) (cmd *exec.Cmd, stop func()) {
	s.t.Helper()
	var said syncBuffer
	cmd = exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "HOLDFAST_TOKEN="+token, "HOLDFAST_SERVER="+s.url)
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, func() {
		s.t.Helper()
		require.NoError(s.t, cmd.Process.Signal(syscall.SIGTERM))
		assert.NoError(s.t, cmd.Wait(), said.String())
	}
}

func (s *server) submitText(text string) chain.Digest {
	s.t.Helper()
	r, err := s.client().Submit(s.t.Context(), strings.NewReader(text), web.SubmitOptions{Channel: chain.MobileExport})
	require.NoError(s.t, err)
	return r.PayloadRef
}

// TestPythonWorker: the example does what its text says, against a real service.
func TestPythonWorker(t *testing.T) {
	interpreter := python(t)
	data := t.TempDir()
	s := serve(t, data, "--processors", configure(t, pullAll))
	_, stop := s.worker(s.workerToken(data), interpreter, "../examples/worker.py", "--server", s.url, "--lease", "15", "--name", "python-1")
	good, bad, odd := s.submitText("unit: 17\nresult: safe\n"), s.submitText("no colon\n"), s.submitText("\xff: \xfe\n")
	l := s.until(good, chain.Resolved)
	require.Equal(t, uint64(1), l.Attempt)
	require.Equal(t, "parse.rule", s.until(bad, chain.DeadLetter).Failure.ErrorCode)
	require.Equal(t, "parse.parse", s.until(odd, chain.DeadLetter).Failure.ErrorCode)
	stop()
	s.stop()
	code, out, errs := holdfast(t, "verify", "--data", data)
	require.Zero(t, code, "%s\n%s", out, errs)
}

// TestWorkVerb: a program anywhere works for the service, and is judged as one that the service starts itself.
func TestWorkVerb(t *testing.T) {
	path, err := binary()
	require.NoError(t, err)
	data := t.TempDir()
	s := serve(t, data, "--processors", configure(t, pullAll))
	_, stop := s.worker(s.workerToken(data), path, "work", "--lease", "10s", "--workers", "2", "--name", "host-1", "--", "sh", "-c",
		`read word; case $word in good*) echo "{\"a\": 1.0}";; slow*) sleep 12;; later*) [ $HOLDFAST_ATTEMPT = 2 ] || exit 75;; bad*) exit 65;; odd*) echo nothing;; *) kill -SEGV $$;; esac`)
	slow := s.submitText("slow\n")
	for text, want := range map[string]struct {
		d    chain.Disposition
		code string
	}{
		"good\n": {chain.Resolved, ""}, "bad\n": {chain.DeadLetter, "parse.exit_dataerr"}, "odd\n": {chain.DeadLetter, "parse.bad_output"},
		"later\n": {chain.Resolved, ""}, "crash\n": {chain.Poison, "parse.crash_sigsegv"},
	} {
		l := s.until(s.submitText(text), want.d)
		if want.code != "" {
			require.Equal(t, want.code, l.Failure.ErrorCode, text)
		}
	}
	require.Equal(t, uint64(1), s.until(slow, chain.Resolved).Attempt, "it beats for as long as the program runs")
	stop()
	code, _, errs := holdfast(t, "work", "--server", s.url, "--token", "nobody", "true")
	require.Equal(t, 7, code, errs)
	s.stop()
}

// TestTC12WorkersKilled: workers that are killed while they hold several letters, or while the service is restarted, cost no
// attempt and quarantine nothing; one that is killed again and again by the letter it holds alone does.
func TestTC12WorkersKilled(t *testing.T) {
	path, err := binary()
	require.NoError(t, err)
	data := t.TempDir()
	file := configure(t, pullAll)
	s := serve(t, data, "--processors", file)
	token := s.workerToken(data)
	var refs []chain.Digest
	for i := range 40 {
		refs = append(refs, s.submitText(fmt.Sprint("payload ", i, "\n")))
	}
	cmd, _ := s.worker(token, path, "work", "--lease", "5s", "--workers", "4", "--name", "host-1", "sh", "-c", "sleep 0.2; cat >/dev/null")
	time.Sleep(time.Second)
	s.stop() // a deployment
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	s = serve(t, data, "--processors", file)
	_, stop := s.worker(token, path, "work", "--lease", "15s", "--workers", "4", "--name", "host-2", "sh", "-c", "cat >/dev/null")
	for _, ref := range refs {
		require.Equal(t, uint64(1), s.until(ref, chain.Resolved).Attempt)
	}
	stop()
	s.stop()
}

// TestWorkOverNATS: workers that live on the servers of the log ask there, in the same words as over HTTP.
func TestWorkOverNATS(t *testing.T) {
	url, system := natstest.Start(t)
	s := serve(t, t.TempDir(), "--processors", configure(t, pullAll), "--nats-url", url, "--nats-system-url", system, "--nats-work")
	nats := natstest.NewAsker(t, url)
	ask := func(name, body string, into any) {
		t.Helper()
		answer, status := nats.Ask("holdfast.work."+name, []byte(body))
		require.Empty(t, status, string(answer))
		if into != nil {
			require.NoError(t, json.Unmarshal(answer, into), string(answer))
		}
	}
	large := strings.Repeat("0123456789abcdef", 1<<16) + "end"
	ref := s.submitText(large)
	var list web.WorkList
	ask("lease", `{"worker":"n-1","max":5,"wait_seconds":10}`, &list)
	require.Len(t, list.Work, 1)
	w := list.Work[0]
	require.Equal(t, ref, w.PayloadRef)
	var payload []byte
	for {
		stretch, status := nats.Ask("holdfast.work.payload", fmt.Appendf(nil, `{"lease":%q,"offset":%d}`, w.Lease, len(payload)))
		require.Empty(t, status)
		if len(stretch) == 0 {
			break
		}
		payload = append(payload, stretch...)
	}
	require.Equal(t, ref, chain.Sum(payload))
	var beat web.Beat
	ask("heartbeat", `{"lease":"`+w.Lease+`"}`, &beat)
	require.Greater(t, time.Until(beat.LeaseUntil), 50*time.Second)
	var r web.Receipt
	ask("complete", `{"lease":"`+w.Lease+`","record": {"a" : 1.0} }`, &r)
	require.Equal(t, chain.Sum([]byte(`{"a" : 1.0}`)), s.until(ref, chain.Resolved).RecordRef)
	ask("complete", `{"lease":"`+w.Lease+`"}`, &r)
	require.True(t, r.Known)

	answer, status := nats.Ask("holdfast.work.release", []byte(`{"lease":"`+w.Lease+`"}`))
	require.Equal(t, "409", status)
	var p web.Problem
	require.NoError(t, json.Unmarshal(answer, &p))
	require.Equal(t, web.KindLease, p.Kind())
	for _, body := range []string{``, `{}`, `{"lease":"x"}`, `{"lease":"x","colour":1}`, `[]`} {
		_, status := nats.Ask("holdfast.work.fail", []byte(body))
		require.Equal(t, "422", status, body)
	}
	ref = s.submitText("bad")
	ask("lease", `{"worker":"n-1","wait_seconds":10}`, &list)
	ask("fail", `{"lease":"`+list.Work[0].Lease+`","stage":"dispatch","http_status":503}`, &r)
	require.Equal(t, chain.Retrying, r.Disposition)
	ask("lease", `{"worker":"n-1","wait_seconds":10}`, &list)
	require.Equal(t, uint64(2), list.Work[0].Attempt)
	ask("release", `{"lease":"`+list.Work[0].Lease+`"}`, nil)
	s.until(ref, chain.Retrying)
	s.stop()
	code, _, errs := holdfast(t, "serve", "--data", t.TempDir(), "--nats-work")
	require.Equal(t, 64, code, errs)
}
