package chain_test

import (
	"testing"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/stretchr/testify/require"
)

func terms() *chain.PlanTerms {
	return &chain.PlanTerms{Filter: "tag=x", Snapshot: 3, Expected: 4, RateMilli: 10_000, Ramp: true, Targets: []string{"builtin"}}
}

// order is the event that begins a plan.
func order(s *chaintest.History, change func(*chain.Event)) chain.Event {
	e := chain.Event{Type: chain.TypeReplayPlan, At: s.Now, Actor: "user:1", Plan: "p1", Reason: "fixed", Worker: "node-1", Terms: terms()}
	change(&e)
	return e
}

func TestPlanFold(t *testing.T) {
	s := h(t, "A: dead_letter; B: dead_letter; C: dead_letter")
	var plan chain.Plan
	add := func(name string, e chain.Event) {
		r := s.Add(name, e)
		plan = plan.Apply(r)
		text, err := plan.AppendText(nil)
		require.NoError(t, err)
		again, err := chain.ParsePlan(text)
		require.NoError(t, err)
		require.Equal(t, plan, again)
	}
	add("A", chain.Event{Type: chain.TypeReplayed, Plan: "p1"})
	require.False(t, plan.Exists(), "nobody has ordered it")
	add("", chain.Event{Type: chain.TypeReplayPlan, Plan: "p1", Reason: "without terms, as early logs have it"})
	require.False(t, plan.Exists())
	add("", order(s, func(*chain.Event) {}))
	require.Equal(t, chain.PlanRunning, plan.State)
	require.Equal(t, s.Head.Size-1, plan.Seq)
	require.Equal(t, uint64(4), plan.Remaining())
	add("", order(s, func(e *chain.Event) { e.Plan, e.Worker = "p2", "node-3" }))
	add("B", chain.Event{Type: chain.TypeReplayed, Plan: "p1"})
	add("C", chain.Event{Type: chain.TypeReplayed, Plan: "p2"})
	parked := chaintest.Story(t, "D: dead_letter").Would("D", "poison").Event
	s.Tell("D: dead_letter")
	parked.Plan, parked.Envelope.FirstSeen = "p1", s.Letters["D"].FirstSeen
	add("D", parked)
	require.Equal(t, chain.PlanCounts{Replayed: 1, Parked: 1}, plan.Counts)
	add("", chain.Event{Type: chain.TypeReplayPlan, Plan: "p1", Reason: "node-1 is gone", Worker: "node-2"})
	require.Equal(t, "node-2", plan.Worker)
	require.Equal(t, "fixed", plan.Reason)
	require.Equal(t, uint64(2), plan.Remaining())
	stale := plan.Apply(s.Records[len(s.Records)-2])
	require.Equal(t, plan, stale, "an event twice counts once")
	add("", chain.Event{Type: chain.TypeReplayCancel, Plan: "p1", Reason: "enough", Counts: &chain.PlanCounts{Replayed: 1, Parked: 1, Cancelled: 2}})
	require.Equal(t, chain.PlanCancelled, plan.State)
	require.Equal(t, "enough", plan.EndReason)
	require.Zero(t, plan.Remaining())
	ended := plan
	add("", chain.Event{Type: chain.TypeReplayDone, Plan: "p1", Counts: &chain.PlanCounts{Replayed: 4}})
	require.Equal(t, ended, plan, "an end is for good")
}

func TestPlanEventsAreValidated(t *testing.T) {
	s := h(t, "A: dead_letter")
	for field, change := range map[string]func(*chain.Event){
		"terms":            func(e *chain.Event) { e.Worker = "" },
		"counts":           func(e *chain.Event) { e.Counts = &chain.PlanCounts{} },
		"terms.filter":     func(e *chain.Event) { e.Terms.Filter = "tag=x y" },
		"terms.expected":   func(e *chain.Event) { e.Terms.Expected = 0 },
		"terms.rate_milli": func(e *chain.Event) { e.Terms.RateMilli = 99 },
		"terms.targets":    func(e *chain.Event) { e.Terms.Targets = []string{"no token"} },
	} {
		_, err := s.Head.Seal(order(s, change))
		var wrong *chain.FieldError
		require.ErrorAs(t, err, &wrong, field)
		require.Equal(t, field, wrong.Field)
	}
	for _, e := range []chain.Event{
		{Type: chain.TypeReplayDone, Plan: "p1"}, {Type: chain.TypeReplayDone, Counts: &chain.PlanCounts{}},
		{Type: chain.TypeReplayCancel, Plan: "p1", Terms: terms()},
	} {
		e.At, e.Actor = s.Now, "user:1"
		_, err := s.Head.Seal(e)
		require.Error(t, err)
	}
}
