package audit

import (
	"slices"
	"time"
	"unique"

	"github.com/holdfast-dvir/holdfast/chain"
)

// custody is as much of a letter as the lifecycle asks for: about 300 bytes with its place in the map, and 100 more
// while it is leased.
type custody struct {
	ref         chain.Digest
	caseLeaf    chain.Digest
	caseSize    uint64
	firstSeq    uint64
	lastSeq     uint64
	retainUntil int64 // microseconds since 1970, like the other times
	firstSeen   int64
	nextAttempt int64
	blobVersion unique.Handle[string]
	senders     []unique.Handle[chain.Submission]
	lease       *chain.Lease
	attempt     uint32
	replays     uint32
	disposition uint8 // place in chain.Dispositions, from 1; 0 when it cannot be told
	hold        bool
	wasHeld     bool // now or before
	loose       bool // its history is broken: only the links of its events are followed
}

// letter is what chain.Letter.Apply needs to know to take an event of type t.
func (c *custody) letter(t chain.Type) chain.Letter {
	l := chain.Letter{
		Ref: c.ref, CaseSize: c.caseSize, CaseLeaf: c.caseLeaf, FirstSeq: c.firstSeq, LastSeq: c.lastSeq,
		RetainUntil: instant(c.retainUntil), FirstSeen: instant(c.firstSeen), NextAttemptAt: instant(c.nextAttempt),
		BlobVersion: c.blobVersion.Value(), Lease: c.lease, Hold: c.hold,
		Attempt: uint64(c.attempt), Replays: uint64(c.replays),
	}
	if c.disposition > 0 {
		l.Disposition = chain.Dispositions[c.disposition-1]
	}
	if t == chain.TypeSubmission {
		for _, s := range c.senders {
			l.Submissions = append(l.Submissions, s.Value())
		}
	}
	return l
}

func (c *custody) keep(l *chain.Letter) {
	c.caseSize, c.caseLeaf, c.firstSeq, c.lastSeq = l.CaseSize, l.CaseLeaf, l.FirstSeq, l.LastSeq
	c.retainUntil, c.firstSeen, c.nextAttempt = micros(l.RetainUntil), micros(l.FirstSeen), micros(l.NextAttemptAt)
	c.lease = l.Lease
	c.setHold(l.Hold)
	c.attempt, c.replays = uint32(l.Attempt), uint32(l.Replays)
	c.disposition = numberOf(l.Disposition)
	for _, s := range l.Submissions[min(len(c.senders), len(l.Submissions)):] {
		c.senders = append(slices.Clip(c.senders), unique.Make(chain.Submission{Channel: s.Channel, Source: s.Source}))
	}
}

func (c *custody) setHold(on bool) { c.hold, c.wasHeld = on, c.wasHeld || on }

func numberOf(d chain.Disposition) uint8 { return uint8(slices.Index(chain.Dispositions, d) + 1) }

// micros and instant keep the zero time apart from 1970.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// letters are all letters of the log, and their order of arrival.
type letters struct {
	byRef   map[chain.Digest]*custody
	arrived []*custody
}

// take applies an event. breakAt is one more than the last place where the log is known to be broken: a gap in a
// letter since then needs no explanation, and its lifecycle cannot be judged any more.
func (a *letters) take(r *chain.Record, breakAt uint64) (*custody, error) {
	e := &r.Event
	c := a.byRef[e.PayloadRef]
	if c == nil {
		c = &custody{ref: e.PayloadRef, firstSeq: r.Seq, blobVersion: unique.Make(e.BlobVersion)}
		a.byRef[e.PayloadRef] = c
		a.arrived = append(a.arrived, c)
	}
	if e.CaseSeq != c.caseSize || e.CasePrev != c.caseLeaf {
		explained := breakAt > c.lastSeq && breakAt > 0
		c.loose = true
		c.follow(r)
		if explained {
			return c, nil
		}
		return c, errCase
	}
	if c.loose {
		c.follow(r)
		return c, nil
	}
	l, err := c.letter(e.Type).Apply(*r)
	if err != nil {
		c.follow(r)
		return c, err
	}
	c.keep(&l)
	return c, nil
}

// follow is what can be said of a letter after an event that its lifecycle does not explain.
func (c *custody) follow(r *chain.Record) {
	e := &r.Event
	c.caseSize, c.caseLeaf, c.lastSeq = e.CaseSeq+1, r.Leaf, r.Seq
	c.retainUntil = max(c.retainUntil, micros(e.RetainUntil))
	if e.Hold != "" {
		c.setHold(e.Hold == "on")
	}
	if d := e.Type.Disposition(); d != "" {
		c.disposition = numberOf(d)
	}
}

func (a *letters) count() map[chain.Disposition]uint64 {
	counts := map[chain.Disposition]uint64{}
	for _, c := range a.arrived {
		var d chain.Disposition
		if c.disposition > 0 {
			d = chain.Dispositions[c.disposition-1]
		}
		counts[d]++
	}
	return counts
}
