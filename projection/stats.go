package projection

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"go.etcd.io/bbolt"
)

// Group is the letters of one disposition with one error code.
type Group struct {
	Disposition    chain.Disposition
	ErrorCode      string      // "" when nothing failed yet
	Stage          chain.Stage // of the code
	Count          uint64
	Oldest, Newest time.Time    // first seen
	Sample         chain.Digest // the oldest
}

// Groups are the groups of f's letters, the largest first; without Dispositions, of the open ones. Of the filter
// they take dispositions, stage, code and channel; anything else set is a *chain.FieldError.
func (db *DB) Groups(f Filter) (groups []Group, err error) {
	if f.Source != "" || f.Owner != "" || f.Tag != "" || !f.Unit.IsZero() || !f.Since.IsZero() || !f.Until.IsZero() || !f.EndsBefore.IsZero() {
		return nil, &chain.FieldError{Field: "filter", Rule: "of groups takes dispositions, stage, code and channel"}
	}
	if err := f.validate(); err != nil {
		return nil, err
	}
	if len(f.Dispositions) == 0 {
		f.Dispositions = slices.DeleteFunc(slices.Clone(chain.Dispositions), func(d chain.Disposition) bool { return !d.Open() })
	}
	err = db.view(func(tx *bbolt.Tx) error {
		at := map[facet]*groupSum{}
		for have, n := range facets(tx) {
			if f.matchesFacet(have) {
				key := facet{disposition: have.disposition, code: have.code}
				if at[key] == nil {
					at[key] = &groupSum{}
				}
				at[key].add(tx, have, n)
			}
		}
		for key, sum := range at {
			g, err := sum.group(tx, key)
			if err != nil {
				return err
			}
			groups = append(groups, g)
		}
		return nil
	})
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Disposition, b.Disposition), cmp.Compare(a.ErrorCode, b.ErrorCode))
	})
	return groups, err
}

// groupSum is a group over all channels.
type groupSum struct {
	count          uint64
	oldest, newest rank
}

func (s *groupSum) add(tx *bbolt.Tx, have facet, n uint64) {
	oldest, newest := ends(tx, have)
	if s.count == 0 {
		s.oldest, s.newest = oldest, newest
	}
	s.oldest = minRank(s.oldest, oldest)
	if s.newest.less(newest) {
		s.newest = newest
	}
	s.count += n
}

// ends are the first and the last entry of a facet.
func ends(tx *bbolt.Tx, have facet) (oldest, newest rank) {
	bucket := tx.Bucket(indexes[byFacet].bucket)
	for r := range merge(bucket, OldestFirst, run{group: have.group(), to: maxRank}) {
		oldest = r
		break
	}
	for r := range merge(bucket, NewestFirst, run{group: have.group(), to: maxRank}) {
		newest = r
		break
	}
	return oldest, newest
}

func (s *groupSum) group(tx *bbolt.Tx, key facet) (Group, error) {
	sample, err := letter(tx, s.oldest.number)
	if err != nil {
		return Group{}, err
	}
	stage, _, _ := bytes.Cut([]byte(key.code), []byte("."))
	return Group{key.disposition, key.code, chain.Stage(stage), s.count, s.oldest.time(), s.newest.time(), sample.Ref}, nil
}

// Stats is the backlog at a glance.
type Stats struct {
	Tip      chain.Tip // Tip.Size is the number of events
	Letters  map[chain.Disposition]uint64
	Channels map[chain.Disposition]map[chain.Channel]uint64
	Oldest   map[chain.Disposition]time.Time // first seen, of the open letters
	Leased   uint64                          // letters being worked on
	Waiting  uint64                          // letters that wait for a worker or for their time
	NextDue  time.Time                       // since when the first of these is due, or will be; zero when none
}

// Stats counts, from counters and the ends of indexes.
func (db *DB) Stats() (s Stats, err error) {
	s = Stats{Letters: map[chain.Disposition]uint64{}, Channels: map[chain.Disposition]map[chain.Channel]uint64{},
		Oldest: map[chain.Disposition]time.Time{}}
	err = db.view(func(tx *bbolt.Tx) error {
		m, _ := readMark(tx)
		s.Tip = m.Tip
		for have, n := range facets(tx) {
			d := have.disposition
			if s.Channels[d] == nil {
				s.Channels[d] = map[chain.Channel]uint64{}
			}
			s.Letters[d] += n
			s.Channels[d][have.channel] += n
			oldest, _ := ends(tx, have)
			if before, ok := s.Oldest[d]; d.Open() && (!ok || oldest.time().Before(before)) {
				s.Oldest[d] = oldest.time()
			}
		}
		s.waiting(tx)
		return nil
	})
	return s, err
}

func (s *Stats) waiting(tx *bbolt.Tx) {
	counters := tx.Bucket(bucketCounters)
	s.Leased = count(counters, string([]byte{byte(byLease)}))
	var all []run
	for group, n := range dueGroups(tx) {
		s.Waiting += n
		all = append(all, run{group: group, to: maxRank})
	}
	for r := range merge(tx.Bucket(indexes[byDue].bucket), OldestFirst, all...) {
		s.NextDue = r.time()
		break
	}
}
