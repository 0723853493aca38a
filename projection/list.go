package projection

import (
	"bytes"
	"container/heap"
	"encoding/base64"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"go.etcd.io/bbolt"
)

// Order is the order of a list: by first seen, then by seq of the first event.
type Order byte

// Orders.
const (
	OldestFirst Order = iota
	NewestFirst
)

// Filter says which letters are meant: those that all of its set members hold for.
type Filter struct {
	Dispositions []chain.Disposition // any of them; none means all
	Stage        chain.Stage         // of the last failure
	ErrorCode    string              // of the last failure, also of letters that have moved on
	Channel      chain.Channel       // of the first submission
	Source       string              // of any submission
	Owner        string
	Tag          string
	Unit         chain.Digest // vehicle
	Since, Until time.Time    // first seen at Since or later, and before Until
	EndsBefore   time.Time    // open letters, not under legal hold, whose retention ends before then
	Order        Order
}

// shortest is the least time from when a letter is first seen to the end of its retention: three calendar months, of
// which the shortest have 89 days (49 CFR 396.11(a)(4)), less a day between storing and recording. A letter first seen
// later than that before some date is protected beyond it, so a list of what ends soon looks at old letters alone.
const shortest = 88 * 24 * time.Hour

// Page is a stretch of a list.
type Page struct {
	Letters []chain.Letter
	Next    string // cursor of what follows, "" at the end; a page may be short, even empty, and not the last
}

// Bounds of the work of one page.
const (
	// MaxPage is the largest page.
	MaxPage = 1000
	// maxLooked is how many letters a page looks at in search of those it shows.
	maxLooked = 4000
)

// List is the page of f's letters that begins at cursor, "" being the start. limit is cut to 1..MaxPage. A cursor
// names a place in the order, not a letter, so it stays good whatever happens in between: nothing is shown twice,
// and what keeps matching is not missed. A cursor of other making or of the other order, and a filter of unknown
// words, are *chain.FieldError.
func (db *DB) List(f Filter, cursor string, limit int) (Page, error) {
	return db.list(f, cursor, limit, func(*bbolt.Tx, *chain.Letter) (bool, error) { return true, nil })
}

// list is List of those letters that also pass.
func (db *DB) list(f Filter, cursor string, limit int, passes func(*bbolt.Tx, *chain.Letter) (bool, error)) (page Page, err error) {
	if err := f.validate(); err != nil {
		return Page{}, err
	}
	from, to, err := f.bounds(cursor)
	if err != nil {
		return Page{}, err
	}
	limit = min(max(limit, 1), MaxPage)
	err = db.view(func(tx *bbolt.Tx) error {
		looked, at := 0, rank{}
		bucket, groups := f.stretches(tx)
		for r := range merge(tx.Bucket(bucket), f.Order, runsOf(groups, from, to)...) {
			if len(page.Letters) == limit || looked == maxLooked {
				page.Next = f.cursor(at)
				break
			}
			l, err := letter(tx, r.number)
			if err != nil {
				return err
			}
			shown := f.matches(&l)
			if shown {
				shown, err = passes(tx, &l)
			}
			if err != nil {
				return err
			}
			if shown {
				page.Letters = append(page.Letters, l)
			}
			looked, at = looked+1, r
		}
		return nil
	})
	return page, err
}

func (f *Filter) validate() error {
	for _, d := range f.Dispositions {
		if !d.Valid() {
			return &chain.FieldError{Field: "disposition", Rule: "must be received, retrying, dead_letter, replayed, resolved or poison"}
		}
	}
	switch {
	case f.Stage != "" && !f.Stage.Valid():
		return &chain.FieldError{Field: "stage", Rule: "must be ingest, validate, parse, normalize or dispatch"}
	case f.Channel != "" && !f.Channel.Valid():
		return &chain.FieldError{Field: "channel", Rule: "must be ocr_document, mobile_export, telematics_api, manual_entry or other"}
	case f.ErrorCode != "" && !chain.ValidCode(f.ErrorCode):
		return &chain.FieldError{Field: "error_code", Rule: "must be a stage, a dot and a lower_snake symbol"}
	case f.Order > NewestFirst:
		return &chain.FieldError{Field: "order", Rule: "must be oldest first or newest first"}
	}
	return nil
}

// matchesFacet is the part of the filter that counters can answer.
func (f *Filter) matchesFacet(have facet) bool {
	stage, _, _ := bytes.Cut([]byte(have.code), []byte("."))
	return (f.EndsBefore.IsZero() || have.disposition.Open()) &&
		(len(f.Dispositions) == 0 || slices.Contains(f.Dispositions, have.disposition)) &&
		(f.Channel == "" || f.Channel == have.channel) &&
		(f.ErrorCode == "" || f.ErrorCode == have.code) &&
		(f.Stage == "" || string(f.Stage) == string(stage))
}

func (f *Filter) matches(l *chain.Letter) bool {
	return f.matchesFacet(facetOf(l)) &&
		(f.Owner == "" || f.Owner == l.Owner) &&
		(f.Tag == "" || slices.Contains(l.Tags, f.Tag)) &&
		(f.Unit.IsZero() || f.Unit == l.UnitKey) &&
		(f.EndsBefore.IsZero() || !l.Hold && l.RetainUntil.Before(f.EndsBefore)) &&
		(f.Source == "" || slices.ContainsFunc(l.Submissions, func(s chain.Submission) bool { return s.Source == f.Source }))
}

// stretches chooses the index that holds the fewest candidates, and its groups.
func (f *Filter) stretches(tx *bbolt.Tx) (bucket []byte, groups [][]byte) {
	if !f.Unit.IsZero() {
		return indexes[byUnit].bucket, [][]byte{f.Unit[:]}
	}
	best, fewest := byFacet, uint64(0)
	for have, n := range facets(tx) {
		if f.matchesFacet(have) {
			groups = append(groups, have.group())
			fewest += n
		}
	}
	for ix, value := range map[index]string{bySource: f.Source, byOwner: f.Owner, byTag: f.Tag} {
		if value == "" {
			continue
		}
		group := textGroup(value)
		if n := count(tx.Bucket(bucketCounters), string([]byte{byte(ix)})+string(group)); n < fewest {
			best, fewest, groups = ix, n, [][]byte{group}
		}
	}
	return indexes[best].bucket, groups
}

// facets are those that any letter has, and how many.
func facets(tx *bbolt.Tx) iter.Seq2[facet, uint64] {
	return func(yield func(facet, uint64) bool) {
		counters := tx.Bucket(bucketCounters)
		c := counters.Cursor()
		for k, _ := c.Seek([]byte{byte(byFacet)}); len(k) > 0 && k[0] == byte(byFacet); k, _ = c.Next() {
			if f, ok := parseFacet(k[1:]); ok && !yield(f, count(counters, string(k))) {
				return
			}
		}
	}
}

// cursorFormat is the first byte of a cursor, plus the order.
const cursorFormat = 0x10

var maxRank = rank{math.MaxUint64, math.MaxUint64}

// cursor names the place after at.
func (f *Filter) cursor(at rank) string {
	return base64.RawURLEncoding.EncodeToString(at.append([]byte{cursorFormat + byte(f.Order)}))
}

// bounds are the ranks of the list, from inclusive, to exclusive.
func (f *Filter) bounds(cursor string) (from, to rank, err error) {
	to = maxRank
	if !f.Since.IsZero() {
		from = rankOf(f.Since, 0)
	}
	if !f.Until.IsZero() {
		to = rankOf(f.Until, 0)
	}
	if !f.EndsBefore.IsZero() {
		to = minRank(to, rankOf(f.EndsBefore.Add(-shortest), 0))
	}
	if cursor == "" {
		return from, to, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) != 1+rankSize || raw[0] != cursorFormat+byte(f.Order) {
		return from, to, &chain.FieldError{Field: "cursor", Rule: "must be one that this list gave, in the same order"}
	}
	at := parseRank(raw)
	if f.Order == NewestFirst {
		return from, minRank(to, at), nil
	}
	if at.number++; from.less(at) {
		from = at
	}
	return from, to, nil
}

func minRank(a, b rank) rank {
	if b.less(a) {
		return b
	}
	return a
}

// run is a stretch of an index: one group, from inclusive, to exclusive.
type run struct {
	group    []byte
	from, to rank

	cursor *bbolt.Cursor
	at     rank
}

func runsOf(groups [][]byte, from, to rank) []run {
	runs := make([]run, len(groups))
	for i, group := range groups {
		runs[i] = run{group: group, from: from, to: to}
	}
	return runs
}

// merge yields the entries of all runs in one order.
func merge(bucket *bbolt.Bucket, order Order, runs ...run) iter.Seq[rank] {
	return func(yield func(rank) bool) {
		h := &runHeap{order: order}
		for i := range runs {
			r := &runs[i]
			r.cursor = bucket.Cursor()
			if r.start(order) {
				h.runs = append(h.runs, r)
			}
		}
		for heap.Init(h); len(h.runs) > 0; {
			r := h.runs[0]
			if !yield(r.at) {
				return
			}
			if r.next(order) {
				heap.Fix(h, 0)
			} else {
				heap.Pop(h)
			}
		}
	}
}

func (r *run) start(order Order) bool {
	if order == OldestFirst {
		k, _ := r.cursor.Seek(r.from.append(bytes.Clone(r.group)))
		return r.holds(k)
	}
	k, _ := r.cursor.Seek(r.to.append(bytes.Clone(r.group)))
	if k == nil {
		k, _ = r.cursor.Last()
		return r.holds(k)
	}
	return r.next(order)
}

func (r *run) next(order Order) bool {
	if order == OldestFirst {
		k, _ := r.cursor.Next()
		return r.holds(k)
	}
	k, _ := r.cursor.Prev()
	return r.holds(k)
}

func (r *run) holds(key []byte) bool {
	if len(key) != len(r.group)+rankSize || !bytes.HasPrefix(key, r.group) {
		return false
	}
	r.at = parseRank(key)
	return !r.at.less(r.from) && r.at.less(r.to)
}

// runHeap has the run with the first entry on top.
type runHeap struct {
	runs  []*run
	order Order
}

func (h *runHeap) Len() int      { return len(h.runs) }
func (h *runHeap) Swap(i, j int) { h.runs[i], h.runs[j] = h.runs[j], h.runs[i] }
func (h *runHeap) Push(x any)    { h.runs = append(h.runs, x.(*run)) }

func (h *runHeap) Less(i, j int) bool {
	a, b := h.runs[i].at, h.runs[j].at
	if h.order == NewestFirst {
		a, b = b, a
	}
	return a.less(b)
}

func (h *runHeap) Pop() any {
	last := h.runs[len(h.runs)-1]
	h.runs = h.runs[:len(h.runs)-1]
	return last
}

func lettersAt(tx *bbolt.Tx, ranks iter.Seq[rank], limit int) (letters []chain.Letter, err error) {
	for r := range ranks {
		if len(letters) >= limit {
			break
		}
		l, err := letter(tx, r.number)
		if err != nil {
			return nil, err
		}
		letters = append(letters, l)
	}
	return letters, nil
}
