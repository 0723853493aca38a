package projection

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dvir/holdfast/chain"
	"go.etcd.io/bbolt"
)

// Letter is the letter of a payload, or ErrNotFound.
func (db *DB) Letter(ref chain.Digest) (l chain.Letter, err error) {
	err = db.view(func(tx *bbolt.Tx) (err error) {
		n, err := numberOf(tx, ref)
		if err == nil {
			l, err = letter(tx, n)
		}
		return err
	})
	return l, err
}

func numberOf(tx *bbolt.Tx, ref chain.Digest) (uint64, error) {
	switch v := tx.Bucket(bucketRefs).Get(ref[:]); len(v) {
	case 0:
		return 0, fmt.Errorf("letter %s: %w", ref, ErrNotFound)
	case 8:
		return binary.BigEndian.Uint64(v), nil
	}
	return 0, damage("a reference leads nowhere")
}

func letter(tx *bbolt.Tx, n uint64) (chain.Letter, error) {
	return parseLetter(tx.Bucket(bucketLetters).Get(number(n)))
}

// event is a stored event, copied out of the transaction.
func event(tx *bbolt.Tx, seq uint64) (chain.Record, error) {
	r, err := chain.Parse(bytes.Clone(tx.Bucket(bucketEvents).Get(number(seq))))
	if err != nil || r.Seq != seq {
		return chain.Record{}, damage(fmt.Sprintf("event %d cannot be read", seq))
	}
	return r, nil
}

// Find looks for letters by the beginning of their reference, 8 to 64 lowercase hexadecimal digits; other
// spellings are a *chain.FieldError. Two results mean that there are two or more.
func (db *DB) Find(prefix string) (refs []chain.Digest, err error) {
	from, err := hex.DecodeString(prefix + strings.Repeat("0", len(prefix)%2))
	if err != nil || len(prefix) < 8 || len(prefix) > 64 || prefix != strings.ToLower(prefix) {
		return nil, &chain.FieldError{Field: "ref", Rule: "must be 8 to 64 lowercase hexadecimal digits"}
	}
	err = db.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketRefs).Cursor()
		for k, _ := c.Seek(from); len(k) == len(chain.Digest{}) && len(refs) < 2; k, _ = c.Next() {
			ref := chain.Digest(k)
			if !strings.HasPrefix(ref.String(), prefix) {
				break
			}
			refs = append(refs, ref)
		}
		return nil
	})
	return refs, err
}

// Timeline is the events of a letter in order, or ErrNotFound.
func (db *DB) Timeline(ref chain.Digest) (records []chain.Record, err error) {
	err = db.view(func(tx *bbolt.Tx) error {
		n, err := numberOf(tx, ref)
		if err != nil {
			return err
		}
		c := tx.Bucket(bucketTimeline).Cursor()
		for k, v := c.Seek(number(n)); bytes.HasPrefix(k, number(n)); k, v = c.Next() {
			for ; len(v) >= 8; v = v[8:] {
				r, err := event(tx, binary.BigEndian.Uint64(v))
				if err != nil {
					return err
				}
				records = append(records, r)
			}
		}
		return nil
	})
	return records, err
}

// Events are the stored events from seq on, as bytes, at most limit and about a megabyte of them, at least one.
// There are none beyond the tip.
func (db *DB) Events(from uint64, limit int) (lines [][]byte, err error) {
	err = db.view(func(tx *bbolt.Tx) error {
		c, size := tx.Bucket(bucketEvents).Cursor(), 0
		for k, v := c.Seek(number(from)); k != nil && len(lines) < limit && size < 1<<20; k, v = c.Next() {
			lines = append(lines, bytes.Clone(v))
			size += len(v)
		}
		return nil
	})
	return lines, err
}

// Notices are the events of a type that belong to no letter, such as replay plans and alerts, from seq on, at most
// limit.
func (db *DB) Notices(t chain.Type, from uint64, limit int) (records []chain.Record, err error) {
	err = db.view(func(tx *bbolt.Tx) error {
		group := textGroup(string(t))
		c := tx.Bucket(bucketNotices).Cursor()
		start := append(slices.Clone(group), number(from)...)
		for k, _ := c.Seek(start); bytes.HasPrefix(k, group) && len(records) < limit; k, _ = c.Next() {
			r, err := event(tx, binary.BigEndian.Uint64(k[len(group):]))
			if err != nil {
				return err
			}
			records = append(records, r)
		}
		return nil
	})
	return records, err
}

// RecordEntry says which payload brought a version of a report into being, and what was made of it.
type RecordEntry struct {
	PayloadRef, RecordRef, Content chain.Digest
	Seq                            uint64 // of the resolved event
}

// RecordVersion is the first admitted record of a version (chain.Event.RecordVersion).
func (db *DB) RecordVersion(version chain.Digest) (entry RecordEntry, ok bool, err error) {
	r, ok, err := db.named(bucketRecords, version)
	e := r.Event
	return RecordEntry{e.PayloadRef, e.RecordRef, e.RecordContent, r.Seq}, ok, err
}

// LatestRecord is the record of a vehicle that was resolved last, by seq.
func (db *DB) LatestRecord(unit chain.Digest) (record chain.Digest, ok bool, err error) {
	r, ok, err := db.named(bucketUnits, unit)
	return r.Event.RecordRef, ok, err
}

// named is the event that bucket holds the seq of.
func (db *DB) named(bucket []byte, key chain.Digest) (r chain.Record, ok bool, err error) {
	err = db.view(func(tx *bbolt.Tx) (err error) {
		v := tx.Bucket(bucket).Get(key[:])
		if ok = len(v) == 8; ok {
			r, err = event(tx, binary.BigEndian.Uint64(v))
		}
		return err
	})
	return r, ok && err == nil, err
}

// Leases are letters with a live lease, at most limit, by deadline.
func (db *DB) Leases(limit int) (letters []chain.Letter, err error) {
	err = db.view(func(tx *bbolt.Tx) (err error) {
		letters, err = lettersAt(tx, merge(tx.Bucket(indexes[byLease].bucket), OldestFirst, run{to: maxRank}), limit)
		return err
	})
	return letters, err
}

// LeasesOf are letters leased by workers whose name begins with prefix, at most limit, by deadline.
func (db *DB) LeasesOf(prefix string, limit int) (letters []chain.Letter, err error) {
	err = db.view(func(tx *bbolt.Tx) (err error) {
		bucket := tx.Bucket(indexes[byWorker].bucket)
		var runs []run
		c := bucket.Cursor()
		for k, _ := c.Seek([]byte(prefix)); len(k) > rankSize && bytes.HasPrefix(k, []byte(prefix)); {
			group := bytes.Clone(k[:len(k)-rankSize])
			runs = append(runs, run{group: group, to: maxRank})
			k, _ = c.Seek(append(group[:len(group)-1:len(group)-1], 1))
		}
		letters, err = lettersAt(tx, merge(bucket, OldestFirst, runs...), limit)
		return err
	})
	return letters, err
}
