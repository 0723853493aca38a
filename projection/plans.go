package projection

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dvir/holdfast/chain"
	"go.etcd.io/bbolt"
)

// Keys of the bucket of plans begin with what they are: a plan by its id, or the mark of one that is running.
const (
	planByID byte = iota
	planRunning
)

func planKey(kind byte, id string) []byte { return append([]byte{kind}, id...) }

// planEvents are the types of the events that belong to plans alone.
var planEvents = []chain.Type{chain.TypeReplayPlan, chain.TypeReplayCancel, chain.TypeReplayDone}

// plan is the plan as this transaction has it; one that does not exist is the zero plan.
func plan(tx *bbolt.Tx, id string) (chain.Plan, error) {
	raw := tx.Bucket(bucketPlans).Get(planKey(planByID, id))
	if raw == nil {
		return chain.Plan{}, nil
	}
	p, err := chain.ParsePlan(raw)
	if err != nil || p.ID != id {
		return chain.Plan{}, damage("a plan cannot be read")
	}
	return p, nil
}

// planned folds r into the plan it names.
func (f *fold) planned(r *chain.Record) error {
	id := r.Event.Plan
	if id == "" {
		return nil
	}
	p, known := f.plans[id]
	if !known {
		var err error
		if p, err = plan(f.tx, id); err != nil {
			return err
		}
	}
	f.plans[id] = p.Apply(*r)
	return nil
}

func (f *fold) writePlans() error {
	bucket := f.tx.Bucket(bucketPlans)
	for _, id := range slices.Sorted(maps.Keys(f.plans)) {
		p := f.plans[id]
		if !p.Exists() {
			continue
		}
		text, err := p.AppendText(nil)
		if err == nil {
			err = bucket.Put(planKey(planByID, id), text)
		}
		if err == nil && p.State == chain.PlanRunning {
			err = bucket.Put(planKey(planRunning, id), nil)
		} else if err == nil {
			err = bucket.Delete(planKey(planRunning, id))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Plan is a bulk replay, or ErrNotFound.
func (db *DB) Plan(id string) (p chain.Plan, err error) {
	err = db.view(func(tx *bbolt.Tx) (err error) {
		if p, err = plan(tx, id); err == nil && !p.Exists() {
			err = fmt.Errorf("plan: %w", ErrNotFound)
		}
		return err
	})
	return p, err
}

// RunningPlans are the bulk replays that have not ended, by id.
func (db *DB) RunningPlans() (plans []chain.Plan, err error) {
	err = db.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketPlans).Cursor()
		for k, _ := c.Seek([]byte{planRunning}); len(k) > 0 && k[0] == planRunning; k, _ = c.Next() {
			p, err := plan(tx, string(k[1:]))
			if err != nil {
				return err
			}
			plans = append(plans, p)
		}
		return nil
	})
	return plans, err
}

// Plans are bulk replays ordered before event seq, at most limit, the latest first; next is where the following ones
// begin, 0 at the end.
func (db *DB) Plans(before uint64, limit int) (plans []chain.Plan, next uint64, err error) {
	err = db.view(func(tx *bbolt.Tx) error {
		group := textGroup(string(chain.TypeReplayPlan))
		c := tx.Bucket(bucketNotices).Cursor()
		k, _ := c.Seek(append(slices.Clone(group), number(before)...))
		if k == nil {
			k, _ = c.Last()
		} else {
			k, _ = c.Prev()
		}
		for ; bytes.HasPrefix(k, group); k, _ = c.Prev() {
			seq := binary.BigEndian.Uint64(k[len(group):])
			r, err := event(tx, seq)
			if err != nil {
				return err
			}
			p, err := plan(tx, r.Event.Plan)
			if err != nil {
				return err
			}
			if !p.Exists() || p.Seq != seq { // somebody took it over, or it is older than plans
				continue
			}
			if len(plans) == limit {
				next = plans[limit-1].Seq
				break
			}
			plans = append(plans, p)
		}
		return nil
	})
	return plans, next, err
}

// member tells whether f meant l when the log had snapshot events, given that f means it now: no event since has
// changed its disposition, and what else f asks for was so at that time.
func (f *Filter) member(tx *bbolt.Tx, l *chain.Letter, snapshot uint64) (bool, error) {
	if l.MovedSeq >= snapshot {
		return false, nil
	}
	if l.LastSeq < snapshot || f.Owner == "" && f.Tag == "" && f.Source == "" {
		return true, nil
	}
	then, err := letterAt(tx, l.FirstSeq, snapshot)
	return f.Means(&then), err
}

// letterAt is letter n as it was when the log had snapshot events.
func letterAt(tx *bbolt.Tx, n, snapshot uint64) (l chain.Letter, err error) {
	c := tx.Bucket(bucketTimeline).Cursor()
	for k, v := c.Seek(number(n)); bytes.HasPrefix(k, number(n)); k, v = c.Next() {
		for ; len(v) >= 8; v = v[8:] {
			seq := binary.BigEndian.Uint64(v)
			if seq >= snapshot {
				return l, nil
			}
			r, err := event(tx, seq)
			if err == nil {
				l, err = l.Apply(r)
			}
			if err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

// Survey visits every letter that f means, in one reading of the state, and tells how many events that state has
// folded. member is true of the letters that f meant at snapshot already and whose disposition has not changed since;
// 0 stands for the state itself. The letter is good until visit returns. Errors are those of List and of ctx.
func (db *DB) Survey(ctx context.Context, f Filter, snapshot uint64, visit func(l *chain.Letter, member bool)) (size uint64, err error) {
	if err := f.validate(); err != nil {
		return 0, err
	}
	err = db.view(func(tx *bbolt.Tx) error {
		m, _ := readMark(tx)
		size = m.Size
		return f.survey(ctx, tx, cmp.Or(snapshot, size), visit)
	})
	return size, err
}

func (f *Filter) survey(ctx context.Context, tx *bbolt.Tx, snapshot uint64, visit func(l *chain.Letter, member bool)) error {
	from, to, err := f.bounds("")
	if err != nil {
		return err
	}
	bucket, groups := f.stretches(tx)
	for r := range merge(tx.Bucket(bucket), f.Order, runsOf(groups, from, to)...) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		l, err := letter(tx, r.number)
		if err != nil {
			return err
		}
		if !f.matches(&l) {
			continue
		}
		member, err := f.member(tx, &l, snapshot)
		if err != nil {
			return err
		}
		visit(&l, member)
	}
	return nil
}

// PlanProgress is a plan with what its filter means now, all of one state: how many members are still as they were
// counted, and how many letters came to it later, which the plan leaves alone. Errors are ErrNotFound and that of ctx.
func (db *DB) PlanProgress(ctx context.Context, id string) (p chain.Plan, members, later uint64, err error) {
	err = db.view(func(tx *bbolt.Tx) (err error) {
		if p, err = plan(tx, id); err != nil || !p.Exists() {
			return cmp.Or(err, fmt.Errorf("plan: %w", ErrNotFound))
		}
		f, err := ParseFilter(p.Terms.Filter)
		if err != nil {
			return err
		}
		return f.survey(ctx, tx, p.Terms.Snapshot, func(_ *chain.Letter, member bool) {
			if member {
				members++
			} else {
				later++
			}
		})
	})
	return p, members, later, err
}

// Members is the page of the letters that f meant at snapshot and whose disposition has not changed since. Cursors are
// those of List, and as good.
func (db *DB) Members(f Filter, snapshot uint64, cursor string, limit int) (Page, error) {
	return db.list(f, cursor, limit, func(tx *bbolt.Tx, l *chain.Letter) (bool, error) { return f.member(tx, l, snapshot) })
}

// Meant tells whether f, which means l, a letter at the head of the log, meant it at snapshot already, as Members
// does. While the state has not folded snapshot events it cannot tell, and says yes.
func (db *DB) Meant(f Filter, l *chain.Letter, snapshot uint64) (meant bool, err error) {
	err = db.view(func(tx *bbolt.Tx) error {
		if m, _ := readMark(tx); m.Size < snapshot {
			meant = l.MovedSeq < snapshot
			return nil
		}
		meant, err = f.member(tx, l, snapshot)
		return err
	})
	return meant, err
}

// plans checks the bucket of plans against the events: those that order and end them, and those of letters, which
// letters has counted.
func (c *checker) plans() {
	var seqs []uint64
	for _, t := range planEvents {
		group := textGroup(string(t))
		cursor := c.tx.Bucket(bucketNotices).Cursor()
		for k, _ := cursor.Seek(group); bytes.HasPrefix(k, group); k, _ = cursor.Next() {
			seqs = append(seqs, binary.BigEndian.Uint64(k[len(k)-8:]))
		}
	}
	slices.Sort(seqs)
	want := map[string]chain.Plan{}
	for _, seq := range seqs {
		if r, err := event(c.tx, seq); err == nil && r.Event.Plan != "" {
			want[r.Event.Plan] = want[r.Event.Plan].Apply(r)
		}
	}
	running, have := 0, 0
	for id, p := range want {
		if !p.Exists() {
			continue
		}
		if have++; p.State == chain.PlanRunning {
			running++
			p.Counts, p.LastSeq = c.replays[id].counts, max(p.LastSeq, c.replays[id].last)
			if c.tx.Bucket(bucketPlans).Get(planKey(planRunning, id)) == nil {
				c.report("plan %s is running and not among those that run", id)
			}
		}
		text, _ := p.AppendText(nil)
		if !bytes.Equal(text, c.tx.Bucket(bucketPlans).Get(planKey(planByID, id))) {
			c.report("plan %s is not the fold of its events", id)
		}
	}
	entries := 0
	c.walk(bucketPlans, func(_, _ []byte) { entries++ })
	if entries != have+running {
		c.report("there are %d entries of plans, for %d of which %d run", entries, have, running)
	}
}
