package projection_test

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/projection"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// open opens a projection that is checked when the test ends.
func open(t testing.TB, path string) *projection.DB {
	t.Helper()
	db, err := projection.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, err := range db.Check(context.Background()) {
			assert.ErrorIs(t, err, projection.ErrClosed)
		}
		assert.NoError(t, db.Close())
	})
	return db
}

func fresh(t testing.TB) *projection.DB { return open(t, filepath.Join(t.TempDir(), "projection")) }

// blocks cuts lines into blocks of size events.
func blocks(lines [][]byte, size int) (all []chain.Block) {
	for part := range slices.Chunk(lines, size) {
		all = append(all, chain.Block{Position: chain.Position(len(all) + 1), Lines: part})
	}
	return all
}

// model is the state as plain maps, and the generator of what happens to it.
type model struct {
	t       testing.TB
	random  *rand.Rand
	head    chain.Head
	now     time.Time
	lines   [][]byte
	letters map[chain.Digest]chain.Letter
	order   []chain.Digest
	events  map[chain.Digest][]uint64
	records map[chain.Digest]projection.RecordEntry
	units   map[chain.Digest]chain.Digest
	alerts  []uint64
	plans   map[string]chain.Plan
}

func newModel(t testing.TB, seed uint64) *model {
	m := &model{t: t, random: rand.New(rand.NewPCG(seed, 7)), now: time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC),
		letters: map[chain.Digest]chain.Letter{}, events: map[chain.Digest][]uint64{},
		records: map[chain.Digest]projection.RecordEntry{}, units: map[chain.Digest]chain.Digest{}, plans: map[string]chain.Plan{}}
	m.add(chain.Event{Type: chain.TypeGenesis, Origin: "holdfast.example/model", LogID: "0102"})
	return m
}

// add seals e and folds it, unless the letter cannot take it.
func (m *model) add(e chain.Event) bool {
	m.now = m.now.Add(time.Duration(m.random.IntN(2000)) * time.Millisecond)
	e.At, e.Actor = m.now, "test"
	l := m.letters[e.PayloadRef]
	if e.Type.OfLetter() {
		e = l.Next(e)
	}
	r, err := m.head.Seal(e)
	require.NoError(m.t, err, "%s", e.Type)
	if e.Type.OfLetter() {
		after, err := l.Apply(r)
		if err != nil {
			return false
		}
		m.note(r, after)
	}
	if e.Plan != "" {
		m.plans[e.Plan] = m.plans[e.Plan].Apply(r)
	}
	if e.Type == chain.TypeAlert {
		m.alerts = append(m.alerts, r.Seq)
	}
	m.lines, m.head = append(m.lines, r.Raw), r.Head()
	return true
}

func (m *model) note(r chain.Record, l chain.Letter) {
	if m.letters[l.Ref] = l; l.CaseSize == 1 {
		m.order = append(m.order, l.Ref)
	}
	m.events[l.Ref] = append(m.events[l.Ref], r.Seq)
	e := r.Event
	if e.Type != chain.TypeResolved || e.RecordRef.IsZero() {
		return
	}
	m.units[e.UnitKey] = e.RecordRef
	if _, known := m.records[e.RecordVersion]; !known && e.Outcome == chain.Admit {
		m.records[e.RecordVersion] = projection.RecordEntry{PayloadRef: e.PayloadRef, RecordRef: e.RecordRef, Content: e.RecordContent, Seq: r.Seq}
	}
}

// grow lets n events happen, to random letters.
func (m *model) grow(n int) *model {
	for target := len(m.lines) + n; len(m.lines) < target; {
		m.step()
	}
	return m
}

var codes = []string{"parse.json_syntax", "validate.vin_check_digit", "dispatch.timeout", "dispatch.upstream_5xx"}

func (m *model) step() {
	pick := func(words ...string) string { return words[m.random.IntN(len(words))] }
	small := func(n int) chain.Digest { return chain.Sum([]byte(strconv.Itoa(m.random.IntN(n)))) }
	if len(m.order) == 0 || m.random.IntN(5) == 0 {
		e := chain.Event{Type: chain.TypeReceived, PayloadRef: chain.Sum(m.head.Leaf[:]), BlobVersion: "1", RetainUntil: m.now.AddDate(2, 0, 0),
			Size: 7, Channel: chain.Channels[m.random.IntN(5)], Source: pick("", "fleet:1", "fleet:2"), ContentType: pick("", "Application/JSON", "none of these", "text/html; x=\"é<&>\"")}
		if m.random.IntN(4) == 0 {
			e.Envelope = m.envelope(chain.Letter{Ref: e.PayloadRef, FirstSeen: m.now.Add(-time.Hour)}, pick(codes...))
			e.Type = chain.Type(e.Envelope.Disposition)
		}
		m.add(e)
		return
	}
	l := m.letters[m.order[max(m.random.IntN(len(m.order)), m.random.IntN(len(m.order)))]]
	e := chain.Event{PayloadRef: l.Ref}
	switch m.random.IntN(14) {
	case 0, 1, 2, 3:
		e.Type, e.Attempt, e.Worker, e.LeaseUntil = chain.TypeAttempt, l.Attempt+1, pick("a/1", "a/2", "b/1"), m.now.Add(time.Minute)
		if l.Lease != nil {
			e.Lease, e.Attempt, e.Worker, e.LeaseUntil = l.Lease.Seq, l.Lease.Attempt, l.Lease.Worker, l.Lease.Until.Add(time.Minute)
		}
	case 4, 5:
		if e.Type = chain.TypeResolved; l.Lease == nil {
			e.Outcome, e.Reason = chain.ByHand, "settled"
			break
		}
		e.Lease, e.Outcome, e.Rules, e.RecordRef = l.Lease.Seq, chain.Admit, "dvir/1", small(1<<30)
		e.RecordVersion, e.RecordContent, e.UnitKey = small(50), small(50), small(9)
	case 6, 7, 8:
		env := m.envelope(l, pick(codes...))
		e.Type, e.Envelope = chain.Type(env.Disposition), env
		if l.Lease != nil {
			e.Lease = l.Lease.Seq
		}
	case 9:
		e.Type, e.Reason, e.Override = chain.TypeReplayed, "fixed", true
		e.Plan = pick("", "p1", "p2", "p3")
	case 10:
		e.Type, e.Owner, e.Tag, e.Untag = chain.TypeAnnotation, pick("", "ann", "bob"), pick("", "odd", "old"), m.random.IntN(3) == 0
	case 11:
		e.Type, e.Channel, e.Source = chain.TypeSubmission, chain.ManualEntry, pick("fleet:1", "fleet:3")
	case 12:
		if l.Lease == nil {
			return
		}
		e.Type, e.Lease, e.Attempt, e.Reason = chain.TypeAttemptLost, l.Lease.Seq, l.Lease.Attempt, chain.LostWorker
	case 13:
		e = chain.Event{Type: chain.TypeAlert, Reason: "too many"}
		if m.random.IntN(2) == 0 {
			e = m.planEvent(pick("p1", "p2", "p3", "p4", "p5", "p6"))
		}
	}
	m.add(e)
}

// planEvent orders a plan, or moves it, or ends it.
func (m *model) planEvent(id string) chain.Event {
	e := chain.Event{Type: chain.TypeReplayPlan, Plan: id, Reason: "fixed", Worker: "node-1"}
	switch p := m.plans[id]; {
	case !p.Exists() && m.random.IntN(3) > 0:
		e.Terms = &chain.PlanTerms{Filter: "tag=odd", Snapshot: m.head.Size, Expected: 9, RateMilli: 1000, Targets: []string{"builtin"}}
	case p.Exists() && m.random.IntN(4) == 0:
		e.Type, e.Counts = chain.TypeReplayDone, &chain.PlanCounts{Replayed: p.Counts.Replayed, Skipped: 1}
	case p.Exists() && m.random.IntN(4) == 0:
		e.Type, e.Counts = chain.TypeReplayCancel, &chain.PlanCounts{Replayed: p.Counts.Replayed, Cancelled: 1}
	}
	return e
}

// comparePlans compares every plan, the list of them, and those that run.
func (m *model) comparePlans(db *projection.DB) {
	t := m.t
	var all, running []chain.Plan
	for _, id := range slices.Sorted(maps.Keys(m.plans)) {
		p, err := db.Plan(id)
		if !m.plans[id].Exists() {
			require.ErrorIs(t, err, projection.ErrNotFound)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, m.plans[id], p)
		if all = append(all, p); p.State == chain.PlanRunning {
			running = append(running, p)
		}
	}
	require.NotEmpty(t, all)
	have, err := db.RunningPlans()
	require.NoError(t, err)
	require.Equal(t, running, have)
	slices.SortFunc(all, func(a, b chain.Plan) int { return cmp.Compare(b.Seq, a.Seq) })
	var listed []chain.Plan
	for before := uint64(1 << 40); before != 0; {
		page, next, err := db.Plans(before, 2)
		require.NoError(t, err)
		listed, before = append(listed, page...), next
	}
	require.Equal(t, all, listed)
}

func (m *model) envelope(l chain.Letter, code string) *chain.Envelope {
	stage, _, _ := strings.Cut(code, ".")
	env := &chain.Envelope{PayloadRef: l.Ref, Stage: chain.Stage(stage), ErrorCode: code, ErrorClass: chain.Permanent, Disposition: chain.DeadLetter,
		Attempt: max(1, l.Attempt), Replays: l.Replays, FirstSeen: l.FirstSeen, Channel: chain.OtherChannel, Rule: "table/1"}
	if l.Lease != nil {
		env.Attempt = l.Lease.Attempt
	}
	switch {
	case stage == "dispatch":
		env.Disposition, env.ErrorClass, env.NextAttemptAt = chain.Retrying, chain.Transient, chain.Instant(m.now.Add(time.Duration(m.random.IntN(90))*time.Second))
	case m.random.IntN(3) == 0:
		env.Disposition = chain.Poison
	}
	return env
}

// sorted are the letters that f holds for, in its order.
func (m *model) sorted(order projection.Order, holds func(chain.Letter) bool) (all []chain.Letter) {
	for _, l := range m.letters {
		if holds(l) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b chain.Letter) int {
		c := cmp.Or(a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.FirstSeq, b.FirstSeq))
		if order == projection.NewestFirst {
			return -c
		}
		return c
	})
	return all
}

func TestAgainstModel(t *testing.T) {
	for seed := range uint64(6) {
		m := newModel(t, seed).grow(1500)
		db := fresh(t)
		require.NoError(t, db.Apply(blocks(m.lines, 1+int(seed)*37)))
		require.Equal(t, m.head, db.Tip().Head)
		m.compareLetters(db)
		m.compareLists(db)
		m.compareCounts(db)
		m.compareWork(db)
		m.comparePlans(db)
		require.Empty(t, db.Check(t.Context()))
	}
}

func (m *model) compareLetters(db *projection.DB) {
	t := m.t
	for ref, want := range m.letters {
		have, err := db.Letter(ref)
		require.NoError(t, err)
		require.Equal(t, want, have)
		records, err := db.Timeline(ref)
		require.NoError(t, err)
		require.Len(t, records, len(m.events[ref]))
		for i, r := range records {
			require.Equal(t, m.events[ref][i], r.Seq)
			require.Equal(t, m.lines[r.Seq], r.Raw)
			require.Equal(t, chain.LeafHash(r.Raw), r.Leaf)
		}
		for _, n := range []int{8, 9, 63, 64} {
			refs, err := db.Find(ref.String()[:n])
			require.NoError(t, err)
			require.Equal(t, []chain.Digest{ref}, refs)
		}
	}
	for version, want := range m.records {
		have, ok, err := db.RecordVersion(version)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, have)
	}
	for unit, want := range m.units {
		have, ok, err := db.LatestRecord(unit)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, have)
	}
	alerts, err := db.Notices(chain.TypeAlert, 0, len(m.alerts)+1)
	require.NoError(t, err)
	require.Len(t, alerts, len(m.alerts))
	for i, seq := range m.alerts {
		require.Equal(t, seq, alerts[i].Seq)
	}
	g, ok := db.Genesis()
	require.True(t, ok)
	require.Equal(t, "holdfast.example/model", g.Origin)
}

func (m *model) compareLists(db *projection.DB) {
	t := m.t
	middle := m.letters[m.order[len(m.order)/2]].FirstSeen
	ends := m.letters[m.order[len(m.order)/2]].RetainUntil
	unit := m.sorted(0, func(l chain.Letter) bool { return !l.UnitKey.IsZero() })[0].UnitKey
	for name, c := range map[string]struct {
		f     projection.Filter
		holds func(l chain.Letter) bool
	}{
		"all":   {projection.Filter{}, func(chain.Letter) bool { return true }},
		"dead":  {projection.Filter{Dispositions: []chain.Disposition{chain.DeadLetter}}, func(l chain.Letter) bool { return l.Disposition == chain.DeadLetter }},
		"two":   {projection.Filter{Dispositions: []chain.Disposition{chain.Retrying, chain.Poison}}, func(l chain.Letter) bool { return l.Disposition == chain.Retrying || l.Disposition == chain.Poison }},
		"code":  {projection.Filter{ErrorCode: codes[0]}, func(l chain.Letter) bool { return l.Failure != nil && l.Failure.ErrorCode == codes[0] }},
		"stage": {projection.Filter{Stage: chain.StageDispatch}, func(l chain.Letter) bool { return l.Failure != nil && l.Failure.Stage == chain.StageDispatch }},
		"channel": {projection.Filter{Channel: chain.ManualEntry, Since: middle},
			func(l chain.Letter) bool { return l.Channel == chain.ManualEntry && !l.FirstSeen.Before(middle) }},
		"until": {projection.Filter{Until: middle, Source: "fleet:1"}, func(l chain.Letter) bool { return l.FirstSeen.Before(middle) && sent(l, "fleet:1") }},
		"source": {projection.Filter{Source: "fleet:3", Dispositions: []chain.Disposition{chain.Resolved}},
			func(l chain.Letter) bool { return sent(l, "fleet:3") && l.Disposition == chain.Resolved }},
		"owner": {projection.Filter{Owner: "ann", Tag: "odd"}, func(l chain.Letter) bool { return l.Owner == "ann" && slices.Contains(l.Tags, "odd") }},
		"tag":   {projection.Filter{Tag: "old"}, func(l chain.Letter) bool { return slices.Contains(l.Tags, "old") }},
		"unit":  {projection.Filter{Unit: unit}, func(l chain.Letter) bool { return l.UnitKey == unit }},
		"ends": {projection.Filter{EndsBefore: ends},
			func(l chain.Letter) bool {
				return l.Disposition.Open() && !l.Hold && l.RetainUntil.Before(ends)
			}},
		"nothing": {projection.Filter{Owner: "nobody"}, func(chain.Letter) bool { return false }},
	} {
		for _, c.f.Order = range []projection.Order{projection.OldestFirst, projection.NewestFirst} {
			want := m.sorted(c.f.Order, c.holds)
			require.Equal(t, name == "nothing", len(want) == 0, "the case %s says nothing", name)
			for _, limit := range []int{1, 7, 1000} {
				require.Equal(t, want, listAll(t, db, c.f, limit), "%s by %d", name, limit)
			}
		}
	}
}

func sent(l chain.Letter, source string) bool {
	return slices.ContainsFunc(l.Submissions, func(s chain.Submission) bool { return s.Source == source })
}

func listAll(t testing.TB, db *projection.DB, f projection.Filter, limit int) (all []chain.Letter) {
	for cursor, more := "", true; more; more = cursor != "" {
		page, err := db.List(f, cursor, limit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Letters), limit)
		all, cursor = append(all, page.Letters...), page.Next
	}
	return all
}

func (m *model) compareCounts(db *projection.DB) {
	t := m.t
	groups, err := db.Groups(projection.Filter{})
	require.NoError(t, err)
	type key struct {
		d    chain.Disposition
		code string
	}
	want := map[key][]chain.Letter{}
	letters, channels := map[chain.Disposition]uint64{}, map[chain.Disposition]map[chain.Channel]uint64{}
	oldest := map[chain.Disposition]time.Time{}
	for _, l := range m.sorted(projection.OldestFirst, func(chain.Letter) bool { return true }) {
		k := key{d: l.Disposition}
		if l.Failure != nil {
			k.code = l.Failure.ErrorCode
		}
		if letters[k.d]++; channels[k.d] == nil {
			channels[k.d] = map[chain.Channel]uint64{}
		}
		channels[k.d][l.Channel]++
		if k.d.Open() {
			if want[k] = append(want[k], l); oldest[k.d].IsZero() {
				oldest[k.d] = l.FirstSeen
			}
		}
	}
	require.Len(t, groups, len(want))
	for i, g := range groups {
		in := want[key{g.Disposition, g.ErrorCode}]
		require.NotEmpty(t, in)
		require.Equal(t, projection.Group{Disposition: g.Disposition, ErrorCode: g.ErrorCode, Stage: chain.Stage(strings.Split(g.ErrorCode, ".")[0]),
			Count: uint64(len(in)), Oldest: in[0].FirstSeen, Newest: in[len(in)-1].FirstSeen, Sample: in[0].Ref}, g)
		require.True(t, i == 0 || g.Count <= groups[i-1].Count)
	}
	stats, err := db.Stats()
	require.NoError(t, err)
	require.Equal(t, letters, stats.Letters)
	require.Equal(t, channels, stats.Channels)
	require.Equal(t, oldest, stats.Oldest)
	require.Equal(t, db.Tip(), stats.Tip)
	require.Equal(t, uint64(len(m.sorted(0, func(l chain.Letter) bool { return l.Lease != nil }))), stats.Leased)
	waiting := m.sorted(0, func(l chain.Letter) bool { return l.Due(m.now.AddDate(1, 0, 0)) })
	require.Equal(t, uint64(len(waiting)), stats.Waiting)
}

// compareWork asks at many times who is due and whose lease is over.
func (m *model) compareWork(db *projection.DB) {
	t := m.t
	for i := range 40 {
		now := m.now.Add(time.Duration(i-20) * 10 * time.Second)
		letters, next, err := db.Due(now, nil, 10_000)
		require.NoError(t, err)
		due := m.sorted(0, func(l chain.Letter) bool { return l.Due(now) })
		require.ElementsMatch(t, due, letters)
		require.True(t, slices.IsSortedFunc(letters, func(a, b chain.Letter) int { return since(a).Compare(since(b)) }))
		if i%10 == 0 {
			m.compareKinds(db, now, letters)
		}
		some, again, err := db.Due(now, nil, 3)
		require.NoError(t, err)
		require.Equal(t, letters[:min(3, len(letters))], some)
		require.Equal(t, next, again)
		var want time.Time
		for _, l := range m.letters {
			if !l.Due(now) && l.Due(now.AddDate(1, 0, 0)) && (want.IsZero() || l.NextAttemptAt.Before(want)) {
				want = l.NextAttemptAt
			}
		}
		require.Equal(t, want, next)
		leased, err := db.Leases(10_000)
		require.NoError(t, err)
		expired := slices.DeleteFunc(leased, func(l chain.Letter) bool { return !l.Lease.Until.Before(now) })
		require.ElementsMatch(t, m.sorted(0, func(l chain.Letter) bool { return l.Lease != nil && l.Lease.Until.Before(now) }), expired)
	}
	for _, prefix := range []string{"", "a/", "a/1", "b", "c"} {
		held, err := db.LeasesOf(prefix, 10_000)
		require.NoError(t, err)
		require.ElementsMatch(t, m.sorted(0, func(l chain.Letter) bool { return l.Lease != nil && strings.HasPrefix(l.Lease.Worker, prefix) }), held)
		require.True(t, slices.IsSortedFunc(held, func(a, b chain.Letter) int { return a.Lease.Until.Compare(b.Lease.Until) }))
	}
	all, err := db.Leases(10_000)
	require.NoError(t, err)
	same, err := db.LeasesOf("", 10_000)
	require.NoError(t, err)
	require.ElementsMatch(t, same, all)
	require.NotEmpty(t, all)
}

// compareKinds asks for the due letters of each kind, and of all others: together they are those of all kinds.
func (m *model) compareKinds(db *projection.DB, now time.Time, due []chain.Letter) {
	t := m.t
	waiting, err := db.Waiting()
	require.NoError(t, err)
	counted := map[projection.Kind]uint64{}
	for _, l := range m.sorted(0, func(l chain.Letter) bool { return l.Due(m.now.AddDate(1, 0, 0)) }) {
		counted[projection.KindOf(&l)]++
	}
	require.Equal(t, counted, waiting)
	for kind := range waiting {
		for _, own := range []bool{true, false} {
			some, _, err := db.Due(now, func(k projection.Kind) bool { return (k == kind) == own }, 10_000)
			require.NoError(t, err)
			require.Equal(t, slices.DeleteFunc(slices.Clone(due), func(l chain.Letter) bool { return (projection.KindOf(&l) == kind) != own }), append([]chain.Letter{}, some...))
		}
	}
}

// since is when a letter became due.
func since(l chain.Letter) time.Time {
	if l.Disposition == chain.Retrying {
		return l.NextAttemptAt
	}
	return l.UpdatedAt
}
