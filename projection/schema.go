package projection

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"go.etcd.io/bbolt"
)

// schemaVersion counts the layouts of the file. Another one is not migrated but rebuilt.
const schemaVersion = 5

// Buckets. The indexes have theirs in the table below.
var (
	bucketMeta     = []byte("meta")
	bucketEvents   = []byte("events")
	bucketHashes   = []byte("hashes")
	bucketLetters  = []byte("letters")
	bucketRefs     = []byte("refs")
	bucketTimeline = []byte("timeline")
	bucketNotices  = []byte("notices")
	bucketRecords  = []byte("records")
	bucketUnits    = []byte("units")
	bucketPlans    = []byte("plans")
	bucketCounters = []byte("counters")

	keySchema = []byte("schema")
	keyMark   = []byte("mark")
)

// index is one of the orders letters are kept in.
type index byte

const (
	byFacet  index = iota // disposition, channel, error code of the last failure; rank: first seen
	bySource              // each sender; rank: first seen
	byOwner               // rank: first seen
	byTag                 // each tag; rank: first seen
	byUnit                // vehicle; rank: first seen
	byDue                 // ready or waiting for its time, and kind; rank: due since, or due at
	byLease               // no group; rank: lease deadline
	byWorker              // worker of a live lease; rank: lease deadline
)

// indexes are the buckets of the indexes, and whether their groups are counted. Vehicles are not: every one would
// cost a counter, and nothing asks for it.
var indexes = [...]struct {
	bucket  []byte
	counted bool
}{
	byFacet:  {[]byte("by_facet"), true},
	bySource: {[]byte("by_source"), true},
	byOwner:  {[]byte("by_owner"), true},
	byTag:    {[]byte("by_tag"), true},
	byUnit:   {[]byte("by_unit"), false},
	byDue:    {[]byte("by_due"), true},
	byLease:  {[]byte("by_lease"), true},
	byWorker: {[]byte("by_worker"), false},
}

// buckets lists all of them; the order is that of the fingerprint.
func buckets() [][]byte {
	all := [][]byte{bucketMeta, bucketEvents, bucketHashes, bucketLetters, bucketRefs, bucketTimeline, bucketNotices,
		bucketRecords, bucketUnits, bucketPlans, bucketCounters}
	for _, ix := range indexes {
		all = append(all, ix.bucket)
	}
	return all
}

// create lays out an empty file.
func create(tx *bbolt.Tx) error {
	for _, name := range buckets() {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	if err := tx.Bucket(bucketMeta).Put(keySchema, number(schemaVersion)); err != nil {
		return err
	}
	return writeMark(tx, mark{})
}

// schemaOf says why the layout is not ours; "" is nothing.
func schemaOf(tx *bbolt.Tx) (why string) {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		return "it is not a projection"
	}
	if v := meta.Get(keySchema); !bytes.Equal(v, number(schemaVersion)) {
		if len(v) != 8 {
			return "its schema has no number"
		}
		return fmt.Sprintf("it has schema %d, this version reads %d", binary.BigEndian.Uint64(v), schemaVersion)
	}
	for _, name := range buckets() {
		if tx.Bucket(name) == nil {
			return "bucket " + string(name) + " is missing"
		}
	}
	return ""
}

// mark is how far the log is read or folded.
type mark struct {
	chain.Tip        // the head, and the last block that is in whole
	partial   uint64 // events of the block after it that are in too: not 0 only where a block broke off
}

const markSize = 8 + len(chain.Digest{}) + 8 + 8

func readMark(tx *bbolt.Tx) (m mark, ok bool) {
	v := tx.Bucket(bucketMeta).Get(keyMark)
	if len(v) != markSize {
		return mark{}, false
	}
	m.Size = binary.BigEndian.Uint64(v)
	copy(m.Leaf[:], v[8:40])
	m.Position = chain.Position(binary.BigEndian.Uint64(v[40:]))
	m.partial = binary.BigEndian.Uint64(v[48:])
	return m, true
}

// writeMark refuses to go back.
func writeMark(tx *bbolt.Tx, m mark) error {
	if old, ok := readMark(tx); ok && (m.Size < old.Size || m.Position < old.Position) {
		return damage("its mark is ahead of what is being folded")
	}
	v := number(m.Size)
	v = append(v, m.Leaf[:]...)
	v = binary.BigEndian.AppendUint64(v, uint64(m.Position))
	v = binary.BigEndian.AppendUint64(v, m.partial)
	return tx.Bucket(bucketMeta).Put(keyMark, v)
}

// number is a number as a key.
func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// rank is a place in the order of an index: microseconds, shifted so that all are positive, then letter number.
type rank struct{ at, number uint64 }

const rankSize = 16

func rankOf(t time.Time, number uint64) rank { return rank{uint64(t.UnixMicro()) ^ 1<<63, number} }

func (r rank) time() time.Time { return time.UnixMicro(int64(r.at ^ 1<<63)).UTC() }

func (r rank) less(o rank) bool { return r.at < o.at || r.at == o.at && r.number < o.number }

func (r rank) append(key []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(key, r.at), r.number)
}

// parseRank reads the end of an index key.
func parseRank(key []byte) rank {
	tail := key[len(key)-rankSize:]
	return rank{binary.BigEndian.Uint64(tail), binary.BigEndian.Uint64(tail[8:])}
}

// place is one entry of a letter in an index.
type place struct {
	index index
	key   string // group, then rank
}

// counter is the key that counts the place's group.
func (p place) counter() string { return string([]byte{byte(p.index)}) + p.key[:len(p.key)-rankSize] }

// places lists where l stands; the one definition of the indexes. Groups of text end with a zero byte, which no
// such text holds.
func places(l *chain.Letter) []place {
	all := make([]place, 0, 8)
	add := func(ix index, t time.Time, group ...byte) {
		all = append(all, place{ix, string(rankOf(t, l.FirstSeq).append(group))})
	}
	add(byFacet, l.FirstSeen, facetOf(l).group()...)
	for i, s := range l.Submissions {
		again := slices.ContainsFunc(l.Submissions[:i], func(o chain.Submission) bool { return o.Source == s.Source })
		if s.Source != "" && !again {
			add(bySource, l.FirstSeen, textGroup(s.Source)...)
		}
	}
	if l.Owner != "" {
		add(byOwner, l.FirstSeen, textGroup(l.Owner)...)
	}
	for _, tag := range l.Tags {
		add(byTag, l.FirstSeen, textGroup(tag)...)
	}
	if !l.UnitKey.IsZero() {
		add(byUnit, l.FirstSeen, l.UnitKey[:]...)
	}
	switch {
	case l.Lease != nil:
		add(byLease, l.Lease.Until)
		add(byWorker, l.Lease.Until, textGroup(l.Lease.Worker)...)
	case l.Disposition == chain.Received || l.Disposition == chain.Replayed:
		add(byDue, l.UpdatedAt, KindOf(l).group(dueReady)...)
	case l.Disposition == chain.Retrying:
		add(byDue, l.NextAttemptAt, KindOf(l).group(dueTimed)...)
	}
	return all
}

func textGroup(s string) []byte { return append([]byte(s), 0) }

// facet is what letters are counted and grouped by. Facets are few, so that a list over any choice of them merges
// their stretches of the index, and never walks past a letter it does not show.
type facet struct {
	disposition chain.Disposition
	channel     chain.Channel
	code        string // of the last failure, "" when there was none
}

func facetOf(l *chain.Letter) facet {
	f := facet{disposition: l.Disposition, channel: l.Channel}
	if l.Failure != nil {
		f.code = l.Failure.ErrorCode
	}
	return f
}

func (f facet) group() []byte {
	d, c := slices.Index(chain.Dispositions, f.disposition), slices.Index(chain.Channels, f.channel)
	return append(append([]byte{byte(d), byte(c)}, f.code...), 0)
}

func parseFacet(group []byte) (f facet, ok bool) {
	if len(group) < 3 || int(group[0]) >= len(chain.Dispositions) || int(group[1]) >= len(chain.Channels) {
		return facet{}, false
	}
	return facet{chain.Dispositions[group[0]], chain.Channels[group[1]], string(group[2 : len(group)-1])}, true
}
