package web_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

// carryOut runs plans until the test ends.
func (b *bench) carryOut() {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(b.t, b.queue.RunPlans(ctx)) })
	b.t.Cleanup(func() { stop(); wg.Wait() })
}

var schemaFailures = web.PlanOrder{ErrorCode: "parse.schema", Reason: "the mapping was corrected", Rate: 1000, NoRamp: true}

func TestPlans(t *testing.T) {
	b := newBench(t)
	for i := range 12 {
		b.deadLetter("payload " + strconv.Itoa(i))
	}
	c := b.client(web.Reviewer)
	seen, err := c.PreviewPlan(t.Context(), schemaFailures)
	require.NoError(t, err)
	assert.Equal(t, uint64(12), seen.Count)
	assert.Equal(t, []web.PlanGroup{{Disposition: chain.DeadLetter, ErrorCode: "parse.schema", Channel: chain.MobileExport, Count: 12}}, seen.Groups)
	assert.Len(t, seen.Sample, 10)
	assert.Equal(t, []string{"builtin"}, seen.Targets)
	order := schemaFailures
	order.Snapshot, order.Expected = seen.Snapshot, seen.Count

	wrong := order
	wrong.Expected = 11
	_, err = c.CreatePlan(t.Context(), wrong)
	p := assertProblem(t, err, 409, web.KindCount)
	assert.Contains(t, p.Detail, "11 letters were expected, and 12 are as they were at event "+strconv.FormatUint(seen.Snapshot, 10))

	plan, err := c.CreatePlan(t.Context(), order)
	require.NoError(t, err)
	assert.Equal(t, chain.PlanRunning, plan.State)
	assert.Equal(t, "the-reviewer", plan.Actor)
	assert.Equal(t, uint64(12), plan.Remaining)
	assert.InDelta(t, 1000, plan.Rate, 0)
	assert.False(t, plan.Ramp)

	_, err = c.CreatePlan(t.Context(), order)
	p = assertProblem(t, err, 409, web.KindPlan)
	assert.Equal(t, plan.ID, p.Plan)
	assert.Contains(t, p.Detail, plan.ID)
	_, err = c.Replay(t.Context(), seen.Sample[0].String(), web.Order{Reason: "me first"})
	p = assertProblem(t, err, 409, web.KindPlan)
	assert.Equal(t, plan.ID, p.Plan)
	_, err = c.Resolve(t.Context(), seen.Sample[0].String(), "entered by hand")
	require.NoError(t, err)
	b.deadLetter("a late one")
	running, err := c.Plan(t.Context(), plan.ID, true)
	require.NoError(t, err)
	assert.Equal(t, uint64(1), *running.Later)
	assert.Equal(t, uint64(1), running.Skipped)
	assert.Equal(t, uint64(11), running.Remaining)
	again, err := c.ResumePlan(t.Context(), plan.ID, "already here")
	require.NoError(t, err)
	assert.Equal(t, plan.Node, again.Node)

	b.carryOut()
	require.Eventually(t, func() bool {
		plan, err = c.Plan(t.Context(), plan.ID, false)
		return err == nil && plan.State == chain.PlanDone
	}, 20*time.Second, 5*time.Millisecond)
	assert.Equal(t, []uint64{11, 0, 1, 0, 0}, []uint64{plan.Replayed, plan.Parked, plan.Skipped, plan.Cancelled, plan.Remaining})
	_, err = c.CancelPlan(t.Context(), plan.ID, "too late")
	assertProblem(t, err, 409, web.KindState)

	b.deadLetter("a second one, so that the plan is not over before it is cancelled")
	seen, err = c.PreviewPlan(t.Context(), schemaFailures)
	require.NoError(t, err)
	assert.Equal(t, uint64(2), seen.Count)
	order.Snapshot, order.Expected, order.Rate = seen.Snapshot, seen.Count, 0.1
	second, err := c.CreatePlan(t.Context(), order)
	require.NoError(t, err)
	second, err = c.CancelPlan(t.Context(), second.ID, "not today")
	require.NoError(t, err)
	assert.Equal(t, chain.PlanCancelled, second.State)
	assert.Equal(t, "not today", second.EndReason)
	assert.Equal(t, uint64(2), second.Cancelled+second.Replayed)

	page, err := b.client(web.Auditor).Plans(t.Context(), 0, 1)
	require.NoError(t, err)
	require.Len(t, page.Plans, 1)
	assert.Equal(t, second.ID, page.Plans[0].ID)
	page, err = b.client(web.Auditor).Plans(t.Context(), page.Next, 1)
	require.NoError(t, err)
	assert.Equal(t, plan.ID, page.Plans[0].ID)
	assert.Zero(t, page.Next)
}

func TestPlansRefused(t *testing.T) {
	b := newBench(t)
	b.deadLetter("x")
	post := func(path, body string) answer {
		return b.send("POST", path, strings.NewReader(body), "Content-Type", "application/json")
	}
	post("/v1/plans?dry_run=true", `{}`).problem(t, 400, web.KindInvalid)
	post("/v1/plans", `{"reason":"x"}`).problem(t, 400, web.KindInvalid)
	for _, body := range []string{`{"disposition":["resolved"]}`, `{"disposition":["poison"]}`, `{"tag":"a b"}`, `{"rate":0.01,"tag":"a"}`,
		`{"rate":10001,"tag":"a"}`, `{"filter":"tag=a"}`} {
		post("/v1/plans?dry_run=true", body).problem(t, 422, web.KindInvalid)
	}
	for _, body := range []string{`{"error_code":"parse.schema","snapshot":1,"expected":1}`, `{"error_code":"parse.schema","reason":"x"}`} {
		post("/v1/plans", body).problem(t, 422, web.KindInvalid)
	}
	post("/v1/plans?dry_run=true", `{"tag":"a","tag":"b"}`).problem(t, 400, web.KindInvalid)
	b.send("GET", "/v1/plans/p99", nil).problem(t, 404, web.KindNotFound)
	b.send("DELETE", "/v1/plans/p99?reason=x", nil).problem(t, 404, web.KindNotFound)
	b.send("DELETE", "/v1/plans/p99", nil).problem(t, 422, web.KindInvalid)
	post("/v1/plans/p99/resume", `{"reason":"x"}`).problem(t, 404, web.KindNotFound)
}

// What a person says about a plan is cleared of what the payloads of its sample hold.
func TestPlanReasonIsCleared(t *testing.T) {
	b := newBench(t)
	b.deadLetter(`{"driver":"Jane Q. Canary"}`)
	c := b.client(web.Reviewer)
	seen, err := c.PreviewPlan(t.Context(), schemaFailures)
	require.NoError(t, err)
	order := schemaFailures
	order.Snapshot, order.Expected, order.Reason = seen.Snapshot, seen.Count, "Jane Q. Canary called from 555-0142-7788"
	plan, err := c.CreatePlan(t.Context(), order)
	require.NoError(t, err)
	assert.NotContains(t, plan.Reason, "Canary")
	assert.NotContains(t, plan.Reason, "7788")
	assert.Contains(t, plan.Reason, "called from")
}
