package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/dvir"
	"github.com/holdfast-dvir/holdfast/process"
)

// The test binary is its own child: "rules" judges by package dvir, "script" does what payloads say, "launch" runs
// programs.
const childRole = "-holdfast-child"

func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != childRole {
		os.Exit(m.Run())
	}
	var err error
	switch os.Args[2] {
	case "rules":
		err = process.ServeChild(os.Stdin, os.Stdout, nil)
	case "script":
		err = process.ServeChild(os.Stdin, os.Stdout, func(dvir.Config) (process.Judgement, error) { return misbehave, nil })
	case "launch":
		err = process.Launch(os.Args[3:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func self(role string) []string { return []string{os.Args[0], childRole, role} }

// misbehave does what the payload's first word says.
func misbehave(in dvir.Input, past dvir.History) dvir.Result {
	word, _, _ := strings.Cut(string(in.Data), " ")
	switch word {
	case "panic":
		go func() { panic("John Q. Public") }()
		select {}
	case "exit":
		os.Exit(3)
	case "overflow":
		var deep func(n int) int
		deep = func(n int) int { return deep(n+1) + n }
		deep(0)
	case "allocate":
		for hoard := (*hoarded)(nil); ; {
			hoard = &hoarded{bytes.Repeat([]byte("x"), 1<<20), hoard}
		}
	case "spin":
		for n := 0; ; n++ {
			_ = n
		}
	case "sleep":
		select {}
	case "fault":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
		select {}
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "flood":
		return dvir.Result{Outcome: dvir.Admit, Record: &dvir.Record{JSON: make([]byte, 4<<20)}}
	case "past":
		r, known := past.LastReading("vin:1")
		return dvir.Result{Outcome: dvir.Exception, Stage: "parse", Code: fmt.Sprintf("parse.known_%t_%d", known, r.Metres)}
	}
	return dvir.Result{Outcome: dvir.Admit, Record: &dvir.Record{JSON: in.Data, Vendor: "v", RecordID: string(in.Data), Content: chain.Sum(in.Data)}}
}

// hoarded is memory that stays in use.
type hoarded struct {
	data []byte
	rest *hoarded
}

// misbehaving are children that do what payloads say; those that are asked to spin or to sleep get less time.
func misbehaving(t *testing.T, word string) *process.Children {
	limits := process.Limits{Memory: memoryLimit, CPU: time.Minute, Wall: time.Minute, Output: 1 << 20}
	switch word {
	case "spin":
		limits.CPU = time.Second
	case "sleep":
		limits.Wall = 5 * time.Second
	}
	c := process.NewChildren(self("script"), dvir.Config{}, limits)
	t.Cleanup(c.Close)
	return c
}

// past knows one unit.
type past struct{ metres int64 }

func (p past) LastReading(string) (dvir.Reading, bool) {
	return dvir.Reading{Metres: p.metres, At: time.Unix(1, 0)}, p.metres > 0
}

var crashes = map[string]string{"panic": "panic", "exit": "exit:3", "overflow": "stack_overflow", "allocate": "limit:memory",
	"spin": "limit:cpu", "sleep": "limit:wall", "fault": "signal:SIGSEGV", "killed": "signal:SIGKILL", "flood": "limit:output"}

// TestTC11Crashes: whatever a payload does to its child is attributed to it with evidence, and the next payload finds a
// child that works.
func TestTC11Crashes(t *testing.T) {
	for word, evidence := range crashes {
		if word == "allocate" && !limitsMemory {
			t.Log("SKIPPED: the race detector takes more memory than any limit")
			continue
		}
		c := misbehaving(t, word)
		_, crash, err := c.Judge(t.Context(), dvir.Input{Data: []byte(word)}, past{})
		require.NoError(t, err, word)
		require.NotNil(t, crash, word)
		assert.Equal(t, evidence, crash.Evidence, word)
		r, crash, err := c.Judge(t.Context(), dvir.Input{Data: []byte("good")}, past{})
		require.NoError(t, err)
		require.Nil(t, crash)
		assert.Equal(t, "good", string(r.Record.JSON))
	}
}

// TestTC11OthersGoOn: of ten letters that run at once, the one that crashes is quarantined at its first crash, and the
// nine finish at their first attempt.
func TestTC11OthersGoOn(t *testing.T) {
	for word, evidence := range crashes {
		if word == "allocate" && !limitsMemory {
			continue
		}
		b := newBench(t)
		b.start(func(c *process.Config) {
			c.Targets[0].Workers = 10
			c.Targets[0].Processor = &process.Builtin{Children: misbehaving(t, word), Queue: b.Queue, Records: b.state, Store: b.store}
		})
		all := []string{word + " 1"}
		for i := range 9 {
			all = append(all, fmt.Sprint("good ", i))
		}
		for _, payload := range all {
			_, err := b.Ingest(t.Context(), deadletter.Submission{Body: strings.NewReader(payload)})
			require.NoError(t, err)
		}
		for _, payload := range all {
			b.eventually(func() bool { return b.letter(payload).Outcome != "" })
		}
		assert.Equal(t, chain.Poison, b.letter(all[0]).Disposition, word)
		assert.Equal(t, map[chain.Type]int{chain.TypeReceived: 1, chain.TypeAttempt: 1, chain.TypePoison: 1}, b.events(all[0]), word)
		assert.Equal(t, evidence, b.lastEvidence(all[0]), word)
		for _, payload := range all[1:] {
			l := b.letter(payload)
			assert.Equal(t, chain.Resolved, l.Disposition)
			assert.EqualValues(t, 1, l.Attempt)
			assert.Equal(t, map[chain.Type]int{chain.TypeReceived: 1, chain.TypeAttempt: 1, chain.TypeResolved: 1}, b.events(payload))
		}
	}
}

// lastEvidence is the evidence in the last event of a letter that has one.
func (b *bench) lastEvidence(payload string) (evidence string) {
	for _, line := range b.log.Lines() {
		r, err := chain.Parse(line)
		require.NoError(b.t, err)
		if r.Event.PayloadRef == chain.Sum([]byte(payload)) && r.Event.Evidence != "" {
			evidence = r.Event.Evidence
		}
	}
	return evidence
}

// TestChildAsks: what the service knows of the past reaches the child.
func TestChildAsks(t *testing.T) {
	c := misbehaving(t, "")
	for _, metres := range []int64{0, 42} {
		r, crash, err := c.Judge(t.Context(), dvir.Input{Data: []byte("past")}, past{metres})
		require.NoError(t, err)
		require.Nil(t, crash)
		assert.Equal(t, fmt.Sprintf("parse.known_%t_%d", metres > 0, metres), r.Code)
	}
}

// TestChildOfNobody: a child that dies while it waits for work, one that cannot be started and one that is killed
// because the service stops are nobody's crash.
func TestChildOfNobody(t *testing.T) {
	c := misbehaving(t, "")
	_, _, err := c.Judge(t.Context(), dvir.Input{Data: []byte("good")}, past{})
	require.NoError(t, err)
	for _, pid := range c.Idle() {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	_, crash, err := c.Judge(t.Context(), dvir.Input{Data: []byte("good")}, past{})
	require.NoError(t, err)
	require.Nil(t, crash)

	why := errors.New("stopping")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
	_, crash, err = c.Judge(ctx, dvir.Input{Data: []byte("sleep")}, past{})
	assert.ErrorIs(t, err, why)
	assert.Nil(t, crash)

	none := process.NewChildren([]string{"/nonexistent/holdfast"}, dvir.Config{}, process.Limits{})
	_, crash, err = none.Judge(t.Context(), dvir.Input{}, past{})
	require.ErrorIs(t, err, syscall.ENOENT)
	assert.NotContains(t, err.Error(), "nonexistent")
	assert.Nil(t, crash)
}

// TestChildOutlivesNobody: children end with what started them, even while they work.
func TestChildOutlivesNobody(t *testing.T) {
	gone, err := misbehaving(t, "").Abandon([]byte("spin"))
	require.NoError(t, err)
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("it works on for nobody")
	}
}

func BenchmarkChildren(b *testing.B) {
	data, err := os.ReadFile(corpus + "/a01_canonical_no_defect.json")
	if err != nil {
		b.Skip(err)
	}
	b.Run("child", func(b *testing.B) {
		c := process.NewChildren(self("rules"), dvir.Config{}, process.Limits{})
		defer c.Close()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, crash, err := c.Judge(b.Context(), dvir.Input{Data: data, Channel: "mobile_export"}, past{}); err != nil || crash != nil {
					b.Error(crash, err)
				}
			}
		})
	})
	b.Run("here", func(b *testing.B) {
		rules, err := dvir.New(dvir.Config{})
		require.NoError(b, err)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				rules.Process(dvir.Input{Data: data, Channel: "mobile_export"}, past{})
			}
		})
	})
}
