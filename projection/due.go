package projection

import (
	"bytes"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"go.etcd.io/bbolt"
)

// Kind is what routes can tell waiting letters apart by. Letters are kept due by kind, so that those of a processor
// that is down are in nobody's way.
type Kind struct {
	Channel     chain.Channel
	Stage       chain.Stage // of the last failure; ingest if there was none
	ContentType string      // media type without parameters, in lower case; "" if there is none, or none of that form
}

// KindOf is the kind of l.
func KindOf(l *chain.Letter) Kind {
	k := Kind{Channel: l.Channel, Stage: chain.StageIngest, ContentType: mediaType(l.ContentType)}
	if l.Failure != nil {
		k.Stage = l.Failure.Stage
	}
	return k
}

// mediaType is the type and subtype of a Content-Type (RFC 9110 section 8.3.1).
func mediaType(s string) string {
	s, _, _ = strings.Cut(s, ";")
	s = strings.ToLower(strings.TrimSpace(s))
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789!#$&^_.+-/") != "" || strings.Count(s, "/") != 1 {
		return ""
	}
	return s
}

// Classes of waiting letters. One that is ready is so on every clock.
const (
	dueReady byte = iota
	dueTimed
)

// group is the kind's group of byDue among the letters of a class.
func (k Kind) group(class byte) []byte {
	channel, stage := slices.Index(chain.Channels, k.Channel), slices.Index(chain.Stages, k.Stage)
	return append(append([]byte{class, byte(channel), byte(stage)}, k.ContentType...), 0)
}

// kindOf is the kind of a group; ok is false of one that no version of ours wrote.
func kindOf(group []byte) (k Kind, ok bool) {
	if len(group) < 4 || int(group[1]) >= len(chain.Channels) || int(group[2]) >= len(chain.Stages) {
		return Kind{}, false
	}
	return Kind{chain.Channels[group[1]], chain.Stages[group[2]], string(group[3 : len(group)-1])}, true
}

// dueGroups are the groups of byDue and how many letters wait in each.
func dueGroups(tx *bbolt.Tx) iter.Seq2[[]byte, uint64] {
	return func(yield func([]byte, uint64) bool) {
		counters := tx.Bucket(bucketCounters)
		c := counters.Cursor()
		for k, _ := c.Seek([]byte{byte(byDue)}); len(k) > 0 && k[0] == byte(byDue); k, _ = c.Next() {
			if !yield(bytes.Clone(k[1:]), count(counters, string(k))) {
				return
			}
		}
	}
}

// Due are letters of the kinds that pick wants, which may be nil for all, that may be leased at now: chain.Letter.Due is
// true of them all. They are at most limit, those that became due first first. next is when the earliest of the others
// of these kinds comes due; it is zero when none waits for a time.
func (db *DB) Due(now time.Time, pick func(Kind) bool, limit int) (letters []chain.Letter, next time.Time, err error) {
	err = db.view(func(tx *bbolt.Tx) (err error) {
		soon, far := rankOf(now, 0), rankOf(now.Add(chain.MaxWait), 0)
		soon.at++
		far.at++
		var due, later []run
		for group := range dueGroups(tx) {
			k, ok := kindOf(group)
			switch {
			case !ok || pick != nil && !pick(k):
			case group[0] == dueReady:
				due = append(due, run{group: group, to: maxRank})
			default:
				due = append(due, run{group: group, to: soon}, run{group: group, from: far, to: maxRank})
				later = append(later, run{group: group, from: soon, to: far})
			}
		}
		bucket := tx.Bucket(indexes[byDue].bucket)
		if letters, err = lettersAt(tx, merge(bucket, OldestFirst, due...), limit); err != nil {
			return err
		}
		for r := range merge(bucket, OldestFirst, later...) {
			next = r.time()
			break
		}
		return nil
	})
	return letters, next, err
}

// Waiting counts the letters that wait for a worker or for their time, by kind.
func (db *DB) Waiting() (waiting map[Kind]uint64, err error) {
	waiting = map[Kind]uint64{}
	err = db.view(func(tx *bbolt.Tx) error {
		for group, n := range dueGroups(tx) {
			if k, ok := kindOf(group); ok {
				waiting[k] += n
			}
		}
		return nil
	})
	return waiting, err
}
