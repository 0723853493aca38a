package projection

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/holdfast-dvir/holdfast/chain"
	"go.etcd.io/bbolt"
)

// scattered are new entries of the buckets whose keys begin with a digest. In a large file nearly every one of them
// is on a page of its own, which costs far more than the entry. Following writes them with the batch they came
// from: there is one shelf. A rebuild, which nobody reads before its end, sorts them into many shelves by the first
// byte and writes one shelf with each batch, so that what it writes lies close together.
type scattered struct {
	shelves []shelf
	turn    int // the shelf to be written next
}

type shelf struct {
	refs    map[chain.Digest]uint64 // letters that are new
	records map[chain.Digest]uint64 // the first seq that admits; an earlier one may be in the bucket
	units   map[chain.Digest]uint64 // the last seq
	places  map[unitPlace]int       // of byUnit: 1 came, -1 went, 0 both
}

// unitPlace is a key of byUnit.
type unitPlace [len(chain.Digest{}) + rankSize]byte

func newScattered(shelves int) *scattered {
	s := &scattered{shelves: make([]shelf, shelves)}
	for i := range s.shelves {
		s.shelves[i] = shelf{map[chain.Digest]uint64{}, map[chain.Digest]uint64{}, map[chain.Digest]uint64{}, map[unitPlace]int{}}
	}
	return s
}

// of is the shelf for keys that begin with b.
func (s *scattered) of(b byte) *shelf { return &s.shelves[int(b)*len(s.shelves)>>8] }

// note enters what an event of a letter says of records and vehicles.
func (s *scattered) note(r *chain.Record) {
	if version, ok := admits(&r.Event); ok {
		records := s.of(version[0]).records
		if _, known := records[version]; !known {
			records[version] = r.Seq
		}
	}
	if unit, ok := reports(&r.Event); ok {
		s.of(unit[0]).units[unit] = r.Seq
	}
}

func (s *scattered) move(m move) {
	key := unitPlace([]byte(m.key))
	s.of(key[0]).places[key] += m.by
}

// write empties the next shelf into its buckets.
func (s *scattered) write(tx *bbolt.Tx) error {
	sh := &s.shelves[s.turn]
	s.turn = (s.turn + 1) % len(s.shelves)
	records := tx.Bucket(bucketRecords)
	c := records.Cursor()
	for _, version := range slices.SortedFunc(maps.Keys(sh.records), compareDigests) {
		if k, _ := c.Seek(version[:]); bytes.Equal(k, version[:]) {
			delete(sh.records, version)
		}
	}
	return cmp.Or(putSeqs(tx.Bucket(bucketRefs), sh.refs), putSeqs(records, sh.records),
		putSeqs(tx.Bucket(bucketUnits), sh.units), putPlaces(tx.Bucket(indexes[byUnit].bucket), sh.places))
}

func putSeqs(bucket *bbolt.Bucket, seqs map[chain.Digest]uint64) error {
	for _, d := range slices.SortedFunc(maps.Keys(seqs), compareDigests) {
		if err := bucket.Put(d[:], number(seqs[d])); err != nil {
			return err
		}
	}
	clear(seqs)
	return nil
}

func putPlaces(bucket *bbolt.Bucket, places map[unitPlace]int) error {
	byKey := func(a, b unitPlace) int { return bytes.Compare(a[:], b[:]) }
	for _, key := range slices.SortedFunc(maps.Keys(places), byKey) {
		err := error(nil)
		switch by := places[key]; {
		case by > 0:
			err = bucket.Put(key[:], nil)
		case by < 0:
			err = bucket.Delete(key[:])
		}
		if err != nil {
			return err
		}
	}
	clear(places)
	return nil
}

func compareDigests(a, b chain.Digest) int { return bytes.Compare(a[:], b[:]) }
