package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/jetstream"
	"github.com/holdfast-dvir/holdfast/web"
)

// planRate is in letters per second.
const planRate = 500

// TestPlanKilledTwice replays a backlog by a plan and kills the service twice on the way. The plan goes on by itself,
// its counts add up, every letter is replayed once and has one record. With HOLDFAST_PLAN_LETTERS set to a number, such
// as 100000, it replays so many, and wants the rate within 2 % and the memory flat; the time that a small one takes says
// little on a busy machine.
func TestPlanKilledTwice(t *testing.T) {
	n, long := 3000, false
	if text := os.Getenv("HOLDFAST_PLAN_LETTERS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
		long = true
	}
	data := t.TempDir()
	s := serve(t, data)
	began := time.Now()
	s.failMany(n)
	t.Logf("%d letters in %s", n, time.Since(began).Round(time.Second))

	order := web.PlanOrder{ErrorCode: "dispatch.http_422", Reason: "the warehouse was repaired", Rate: planRate, NoRamp: true}
	c := s.client()
	seen, err := c.PreviewPlan(t.Context(), order)
	require.NoError(t, err)
	require.Equal(t, uint64(n), seen.Count)
	order.Snapshot, order.Expected = seen.Snapshot, seen.Count
	plan, err := c.CreatePlan(t.Context(), order)
	require.NoError(t, err)
	memory := s.watchMemory()
	var kills []time.Time
	for _, share := range []float64{0.3, 0.6} {
		plan = s.awaitPlan(plan.ID, func(p web.Plan) bool { return float64(p.Replayed) >= share*float64(n) })
		require.Equal(t, chain.PlanRunning, plan.State)
		if share == 0.3 {
			memory()
		}
		kills = append(kills, time.Now())
		s.kill()
		s = serve(t, data)
	}
	memory = s.watchMemory()
	plan = s.awaitPlan(plan.ID, func(p web.Plan) bool { return p.State != chain.PlanRunning })
	first, last := memory()
	require.Equal(t, chain.PlanDone, plan.State)
	require.Equal(t, []uint64{uint64(n), 0, 0, 0, 0}, []uint64{plan.Replayed, plan.Parked, plan.Skipped, plan.Cancelled, plan.Remaining})
	s.settleWithin(time.Duration(n)*20*time.Millisecond + 90*time.Second)
	s.stop()
	code, out, errs := holdfast(t, "verify", "--data", data, "--output", "json")
	require.Zero(t, code, "%s\n%s", out, errs)
	rate := checkReplays(t, data, plan.ID, n, kills)
	t.Logf("%.1f letters per second; memory of the service %d KiB at first, %d KiB at last", rate, first, last)
	require.Less(t, rate, 1.02*planRate)
	if long {
		require.Greater(t, rate, 0.98*planRate)
		require.Less(t, last, 2*first+32<<10)
	}
}

func (s *server) client() *web.Client { return &web.Client{URL: s.url, Token: s.token} }

// failMany hands over n failures of reports that are good.
func (s *server) failMany(n int) {
	s.t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n) && !s.t.Failed(); i = next.Add(1) {
				status, body, err := s.do(s.t.Context(), http.MethodPost, "/v1/failures?channel=mobile_export&stage=dispatch&http_status=422",
					"application/json", report(fmt.Sprint("plan-", i)))
				assert.NoError(s.t, err)
				assert.Equal(s.t, http.StatusCreated, status, string(body))
			}
		})
	}
	all.Wait()
	require.False(s.t, s.t.Failed())
}

// awaitPlan waits until enough is true of a plan.
func (s *server) awaitPlan(id string, enough func(web.Plan) bool) web.Plan {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Minute)
	defer cancel()
	for {
		p, err := s.client().Plan(ctx, id, false)
		require.NoError(s.t, err, s.log.String())
		if enough(p) {
			return p
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// settleWithin waits until nothing is waiting to be processed.
func (s *server) settleWithin(patience time.Duration) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		stats, err := s.client().Stats(s.t.Context(), false)
		return err == nil && stats.Letters[chain.Received]+stats.Letters[chain.Replayed] == 0
	}, patience, 100*time.Millisecond)
}

// watchMemory looks at the memory of the service, without what it maps of files, until stop tells the most of the first
// fifth of the time and of the last.
func (s *server) watchMemory() (stop func() (first, last int)) {
	ended, done := make(chan struct{}), make(chan []int)
	pid := s.cmd.Process.Pid
	go func() {
		var all []int
		for {
			select {
			case <-ended:
				done <- all
				return
			case <-time.After(100 * time.Millisecond):
				all = append(all, anonymous(pid))
			}
		}
	}()
	return func() (first, last int) {
		close(ended)
		all := <-done
		part := len(all)/5 + 1
		for i, kib := range all {
			if i < part {
				first = max(first, kib)
			}
			if i >= len(all)-part {
				last = max(last, kib)
			}
		}
		return first, last
	}
}

// anonymous is the memory of a process that no file backs, in KiB; 0 when it is gone.
func anonymous(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return kib
		}
	}
	return 0
}

// checkReplays reads the log itself: n letters were replayed by the plan, each once, each with one record. It tells the
// rate, without the times in which the service was gone.
func checkReplays(t *testing.T, data, plan string, n int, kills []time.Time) (rate float64) {
	log, err := jetstream.Open(t.Context(), jetstream.Config{Dir: data + "/log", ReadOnly: true})
	require.NoError(t, err)
	defer log.Close()
	replayed, records := map[chain.Digest]int{}, map[chain.Digest]int{}
	var last time.Time
	var took time.Duration
	counted := 0
	for block, err := range log.Read(t.Context(), 0) {
		require.NoError(t, err)
		for _, line := range block.Lines {
			r, err := chain.Parse(line)
			require.NoError(t, err)
			switch e := r.Event; e.Type {
			case chain.TypeReplayed:
				require.Equal(t, plan, e.Plan)
				replayed[e.PayloadRef]++
				killed := slices.ContainsFunc(kills, func(k time.Time) bool { return k.After(last) && k.Before(e.At) })
				if !last.IsZero() && !killed {
					took += e.At.Sub(last)
					counted++
				}
				last = e.At
			case chain.TypeResolved:
				records[e.RecordRef]++
			case chain.TypePoison:
				t.Errorf("event %d is poison", r.Seq)
			}
		}
	}
	require.Len(t, replayed, n)
	require.Len(t, records, n)
	for ref, times := range replayed {
		require.Equal(t, 1, times, "%s was replayed again", ref)
	}
	for ref, times := range records {
		require.Equal(t, 1, times, "record %s was made again", ref)
	}
	return float64(counted) / took.Seconds()
}

// TestPlanProblem shows what a client meets whose letter a plan is to replay.
func TestPlanProblem(t *testing.T) {
	s := serve(t, t.TempDir())
	s.failMany(20)
	code, out, errs := s.cli("replay", "--error-code", "dispatch.http_422", "--reason", "repaired", "--yes", "--rate", "0.1", "--output", "json")
	require.Zero(t, code, errs)
	var plan web.Plan
	require.NoError(t, json.Unmarshal([]byte(out), &plan))
	page, err := s.client().Letters(t.Context(), web.Query{Filter: web.Filter{Disposition: []chain.Disposition{chain.DeadLetter}}, Order: "newest"})
	require.NoError(t, err)
	code, _, errs = s.cli("replay", page.Letters[0].Ref.String(), "--reason", "me first")
	require.Equal(t, 5, code)
	require.Contains(t, errs, "plan "+plan.ID+" is running and will replay this letter")
}
