package projection

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-dvir/holdfast/chain"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"
)

// Fingerprint is a hash over all contents, and the head they belong to. It does not depend on the layout of the
// file, on how the events were gathered, or on the blocks they came in: two projections of the same head have the
// same fingerprint, or one of them is wrong.
func (db *DB) Fingerprint(ctx context.Context) (sum chain.Digest, head chain.Head, err error) {
	h := sha256.New()
	write := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
		h.Write(b)
	}
	err = db.view(func(tx *bbolt.Tx) error {
		for _, name := range buckets() {
			write(name)
			c := tx.Bucket(name).Cursor()
			for k, v := c.First(); k != nil; k, v = c.Next() {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if bytes.Equal(name, bucketMeta) && bytes.Equal(k, keyMark) {
					v = v[:40] // the position is transport
				}
				write(k)
				write(v)
			}
		}
		m, _ := readMark(tx)
		head = m.Head
		return nil
	})
	h.Sum(sum[:0])
	return sum, head, err
}

// maxFindings bounds the list of Check.
const maxFindings = 1000

// Check proves the file against itself: the events link from genesis to the mark, the tree's hashes are theirs,
// every letter is the fold of its events, and indexes, counters and the other buckets are exactly what letters and
// events demand. It lists what is wrong, up to a thousand findings, and is empty when nothing is. It reads the
// whole file and needs little memory. Once ctx is done it says only that.
func (db *DB) Check(ctx context.Context) []error {
	c := &checker{ctx: ctx, counts: map[string]uint64{}, replays: map[string]replays{}}
	err := db.view(func(tx *bbolt.Tx) error {
		if why := schemaOf(tx); why != "" {
			return damage(why)
		}
		c.tx = tx
		c.events()
		c.letters()
		c.others()
		c.plans()
		c.indexes()
		return nil
	})
	if ctx.Err() != nil {
		return []error{ctx.Err()}
	}
	if err != nil {
		c.found = append(c.found, err)
	}
	return c.found
}

type checker struct {
	ctx     context.Context
	tx      *bbolt.Tx
	found   []error
	counts  map[string]uint64    // counters, counted anew
	entries [len(indexes)]uint64 // index entries the letters demand
	cases   uint64               // events of letters
	replays map[string]replays   // by plan
}

// replays is what the events of letters say of a plan.
type replays struct {
	counts chain.PlanCounts
	last   uint64 // seq
}

func (c *checker) report(format string, args ...any) {
	if len(c.found) < maxFindings {
		c.found = append(c.found, fmt.Errorf(format, args...))
	}
}

// walk calls each with every entry of a bucket.
func (c *checker) walk(bucket []byte, each func(k, v []byte)) {
	cursor := c.tx.Bucket(bucket).Cursor()
	for k, v := cursor.First(); k != nil && c.ctx.Err() == nil; k, v = cursor.Next() {
		each(k, v)
	}
}

// events checks the chain and the hashes of the tree over it.
func (c *checker) events() {
	var head chain.Head
	tree := hashes{c.tx.Bucket(bucketHashes)}
	c.walk(bucketEvents, func(k, raw []byte) {
		if !bytes.Equal(k, number(head.Size)) {
			c.report("event %d is missing", head.Size)
		}
		if _, err := head.Link(raw); err != nil {
			c.found = append(c.found, err)
		}
		head = chain.Head{Size: head.Size + 1, Leaf: chain.LeafHash(raw)}
		want, err := tlog.StoredHashesForRecordHash(int64(head.Size-1), tlog.Hash(head.Leaf), tree)
		if err == nil {
			err = sameHashes(tree, tlog.StoredHashCount(int64(head.Size-1)), want)
		}
		if err != nil {
			c.report("event %d: %w", head.Size-1, err)
		}
	})
	if m, ok := readMark(c.tx); c.ctx.Err() == nil && (!ok || m.Head != head) {
		c.report("the mark is not at the last event")
	}
	total := 0
	c.walk(bucketHashes, func(_, v []byte) { total += len(v) / tlog.HashSize })
	if int64(total) != tlog.StoredHashCount(int64(head.Size)) {
		c.report("there are %d hashes of the tree for %d events", total, head.Size)
	}
}

func sameHashes(tree hashes, from int64, want []tlog.Hash) error {
	at := make([]int64, len(want))
	for i := range at {
		at[i] = from + int64(i)
	}
	have, err := tree.ReadHashes(at)
	if err == nil && !slices.Equal(have, want) {
		err = errors.New("a hash of the tree is not that of the events")
	}
	return err
}

// letters folds every letter anew, and counts what indexes and counters must hold.
func (c *checker) letters() {
	refs := uint64(0)
	c.walk(bucketLetters, func(k, raw []byte) {
		l, err := parseLetter(raw)
		if err != nil || !bytes.Equal(k, number(l.FirstSeq)) {
			c.report("letter at %x cannot be read, or is another's", k)
			return
		}
		refs++
		if n, err := numberOf(c.tx, l.Ref); err != nil || n != l.FirstSeq {
			c.report("letter %d is not found by its reference", l.FirstSeq)
		}
		if again, _ := c.refold(l.FirstSeq).AppendText(nil); !bytes.Equal(again, raw) {
			c.report("letter %d is not the fold of its events", l.FirstSeq)
		}
		for _, p := range places(&l) {
			c.entries[p.index]++
			if indexes[p.index].counted {
				c.counts[p.counter()]++
			}
			if c.tx.Bucket(indexes[p.index].bucket).Get([]byte(p.key)) == nil {
				c.report("letter %d is missing in %s", l.FirstSeq, indexes[p.index].bucket)
			}
		}
	})
	have, steps := uint64(0), 0
	c.walk(bucketRefs, func(_, _ []byte) { have++ })
	c.walk(bucketTimeline, func(_, v []byte) { steps += len(v) })
	if have != refs || uint64(steps) != 8*c.cases {
		c.report("there are %d references and %d bytes of timelines, for %d letters and %d events", have, steps, refs, c.cases)
	}
}

// refold is the letter as its timeline tells it.
func (c *checker) refold(n uint64) (l chain.Letter) {
	cursor, steps := c.tx.Bucket(bucketTimeline).Cursor(), uint64(0)
	for k, v := cursor.Seek(number(n)); bytes.HasPrefix(k, number(n)); k, v = cursor.Next() {
		if at := (step{n, steps, 0}).key(); !bytes.Equal(k, at[:]) || len(v) > 8*stepsPerKey || steps%stepsPerKey != 0 {
			c.report("letter %d: its timeline is not in the right pieces", n)
		}
		for ; len(v) >= 8; v = v[8:] {
			steps++
			l = c.follow(l, n, binary.BigEndian.Uint64(v))
		}
	}
	c.cases += steps
	return l
}

// follow is letter n after event seq.
func (c *checker) follow(l chain.Letter, n, seq uint64) chain.Letter {
	r, err := event(c.tx, seq)
	if err == nil {
		l, err = l.Apply(r)
	}
	if err != nil {
		c.report("letter %d: event %d: %w", n, seq, err)
		return l
	}
	c.replay(&r)
	if version, ok := admits(&r.Event); ok && seqAt(c.tx, bucketRecords, version) > r.Seq {
		c.report("letter %d: event %d admits a record that is not entered, or entered later", n, r.Seq)
	}
	if unit, ok := reports(&r.Event); ok && seqAt(c.tx, bucketUnits, unit)+1 < r.Seq+1 {
		c.report("letter %d: event %d is not known to its vehicle", n, r.Seq)
	}
	return l
}

// replay counts an event of a letter for the plan it names, if that was ordered before.
func (c *checker) replay(r *chain.Record) {
	if r.Event.Plan == "" {
		return
	}
	p, err := plan(c.tx, r.Event.Plan)
	if err != nil || !p.Exists() || r.Seq < p.Seq {
		return
	}
	one := c.replays[p.ID]
	switch r.Event.Type {
	case chain.TypeReplayed:
		one.counts.Replayed++
	case chain.TypePoison:
		one.counts.Parked++
	default:
		return
	}
	one.last = max(one.last, r.Seq)
	c.replays[p.ID] = one
}

// seqAt is the seq that bucket names; the largest number, which no event has, when there is none.
func seqAt(tx *bbolt.Tx, bucket []byte, key chain.Digest) uint64 {
	if v := tx.Bucket(bucket).Get(key[:]); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 1<<64 - 1
}

// others checks the buckets that name single events.
func (c *checker) others() {
	notices := uint64(0)
	c.walk(bucketNotices, func(k, _ []byte) {
		notices++
		r, err := event(c.tx, binary.BigEndian.Uint64(k[max(0, len(k)-8):]))
		if err != nil || r.Event.Type.OfLetter() || !bytes.HasPrefix(k, textGroup(string(r.Event.Type))) {
			c.report("a notice does not name its event")
		}
	})
	if m, _ := readMark(c.tx); notices+c.cases != m.Size {
		c.report("%d events of letters and %d others are not %d", c.cases, notices, m.Size)
	}
	for _, b := range []struct {
		bucket []byte
		names  func(*chain.Event) (chain.Digest, bool)
	}{{bucketRecords, admits}, {bucketUnits, reports}} {
		c.walk(b.bucket, func(k, v []byte) {
			if len(k) != len(chain.Digest{}) || len(v) != 8 {
				c.report("%s has an entry of another form", b.bucket)
				return
			}
			r, err := event(c.tx, binary.BigEndian.Uint64(v))
			if key, ok := b.names(&r.Event); err != nil || !ok || key != chain.Digest(k) {
				c.report("%s names event %d, which does not name it", b.bucket, binary.BigEndian.Uint64(v))
			}
		})
	}
}

// indexes looks for entries that no letter has. That every letter has its own is known already, so where the
// numbers agree there are none.
func (c *checker) indexes() {
	for ix := range indexes {
		bucket, have := indexes[ix].bucket, uint64(0)
		c.walk(bucket, func(_, _ []byte) { have++ })
		if have != c.entries[ix] {
			c.walk(bucket, func(k, _ []byte) { c.stray(index(ix), k) })
		}
	}
	c.walk(bucketCounters, func(k, v []byte) {
		if want := c.counts[string(k)]; want == 0 || !bytes.Equal(v, number(want)) {
			c.report("counter %q is wrong, there are %d", k, want)
		}
		delete(c.counts, string(k))
	})
	for k, want := range c.counts {
		c.report("counter %q is missing, there are %d", k, want)
	}
}

func (c *checker) stray(ix index, key []byte) {
	if len(key) >= rankSize {
		l, err := letter(c.tx, parseRank(key).number)
		if err == nil && slices.Contains(places(&l), place{ix, string(key)}) {
			return
		}
	}
	c.report("%s has an entry of no letter: %x", indexes[ix].bucket, key)
}
