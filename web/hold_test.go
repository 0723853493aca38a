package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

// TestHold: who may set a hold may extend too; lifting is for admins, also beside an extension.
func TestHold(t *testing.T) {
	b := newBench(t)
	ref := b.deadLetter("one that failed").PayloadRef.String()
	until := time.Now().AddDate(5, 0, 0).UTC().Truncate(time.Second)
	show := func() web.Letter {
		l, err := b.client(web.Auditor).Letter(t.Context(), ref)
		require.NoError(t, err)
		return l.Letter
	}
	before := show()
	assert.False(t, before.Hold)

	for _, role := range []web.Role{web.Reviewer, web.Admin} {
		r, err := b.client(role).Hold(t.Context(), ref[:8], web.Protection{Reason: "a claim", Hold: "on", RetainUntil: until})
		require.NoError(t, err)
		assert.Equal(t, role == web.Admin, r.Known, "the second order finds it so")
		assert.True(t, show().Hold)
		assert.Equal(t, until, show().RetainUntil)
	}
	record, err := chain.Parse(b.log.Lines()[len(b.log.Lines())-1])
	require.NoError(t, err)
	assert.Equal(t, "the-reviewer", record.Event.Actor)
	assert.Equal(t, "a claim", record.Event.Reason)

	size := len(b.log.Lines())
	for _, p := range []web.Protection{{Reason: "settled", Hold: "off"}, {Reason: "settled", Hold: "off", RetainUntil: until.AddDate(1, 0, 0)}} {
		_, err = b.client(web.Reviewer).Hold(t.Context(), ref, p)
		assert.Contains(t, assertProblem(t, err, http.StatusForbidden, web.KindForbidden).Detail, "role admin")
	}
	assert.Len(t, b.log.Lines(), size)
	assert.True(t, show().Hold)
	assert.Equal(t, until, show().RetainUntil)

	_, err = b.client(web.Admin).Hold(t.Context(), ref, web.Protection{Reason: "settled", Hold: "off"})
	require.NoError(t, err)
	assert.False(t, show().Hold)
	assert.Equal(t, until, show().RetainUntil, "lifting the hold shortens nothing")
}

func TestHoldRefused(t *testing.T) {
	b := newBench(t)
	ref := b.deadLetter("one that failed").PayloadRef.String()
	size := len(b.log.Lines())
	for body, field := range map[string]string{
		`{"hold":"on"}`:                                        "body",
		`{"reason":"","hold":"on"}`:                            "/reason",
		`{"reason":"  ","hold":"on"}`:                          "reason",
		`{"reason":"x"}`:                                       "hold",
		`{"reason":"x","hold":"` + canary + `"}`:               "/hold",
		`{"reason":"x","retain_until":"` + canary + `"}`:       "/retain_until",
		`{"reason":"x","retain_until":"2020-01-01T00:00:00Z"}`: "retain_until",
		`{"reason":"x","retain_until":"` + time.Now().AddDate(0, 0, 1).UTC().Format(time.RFC3339) + `"}`:              "retain_until",
		`{"reason":"x","hold":"on","retain_until":"` + time.Now().AddDate(11, 0, 0).UTC().Format(time.RFC3339) + `"}`: "retain_until",
	} {
		a := b.send("POST", "/v1/letters/"+ref+"/hold", strings.NewReader(body), "Content-Type", "application/json")
		p := a.problem(t, http.StatusUnprocessableEntity, web.KindInvalid)
		require.Len(t, p.Fields, 1, body)
		assert.Equal(t, field, p.Fields[0].Name, body)
		assert.NotContains(t, a.body, canary)
		if strings.Contains(body, "retain_until") && strings.Contains(body, `"on"`) {
			assert.Contains(t, p.Fields[0].Rule, "cap of retention, 20", "the cap is named")
		}
	}
	assert.Len(t, b.log.Lines(), size, "nothing was recorded")
	_, err := b.client(web.Admin).Hold(t.Context(), strings.Repeat("0", 64), web.Protection{Reason: "x", Hold: "on"})
	assertProblem(t, err, http.StatusNotFound, web.KindNotFound)

	b.backend.Away(true)
	_, err = b.client(web.Admin).Hold(t.Context(), ref, web.Protection{Reason: "x", Hold: "on"})
	assertProblem(t, err, http.StatusServiceUnavailable, web.KindUnavailable)
	assert.Len(t, b.log.Lines(), size, "what cannot be done is not recorded")
}

// TestListOfWhatEnds: open letters whose protection ends before a date, without those under legal hold.
func TestListOfWhatEnds(t *testing.T) {
	b := newBench(t)
	c := b.client(web.Admin)
	var refs []string
	for _, payload := range []string{"stays", "held", "kept longer", "resolved"} {
		refs = append(refs, b.deadLetter(payload).PayloadRef.String())
	}
	_, err := c.Hold(t.Context(), refs[1], web.Protection{Reason: "a claim", Hold: "on"})
	require.NoError(t, err)
	_, err = c.Hold(t.Context(), refs[2], web.Protection{Reason: "a claim", RetainUntil: time.Now().AddDate(4, 0, 0)})
	require.NoError(t, err)
	_, err = c.Resolve(t.Context(), refs[3], "entered by hand")
	require.NoError(t, err)
	for years, want := range map[int][]string{1: nil, 2: refs[:1], 5: {refs[0], refs[2]}} {
		page, err := c.Letters(t.Context(), web.Query{Ends: time.Now().AddDate(years, 0, 0)})
		require.NoError(t, err)
		var got []string
		for _, l := range page.Letters {
			got = append(got, l.Ref.String())
		}
		assert.Equal(t, want, got, "%d years", years)
	}
	b.send("GET", "/v1/letters?retention_ends_before="+canary, nil).problem(t, http.StatusUnprocessableEntity, web.KindInvalid)
}
