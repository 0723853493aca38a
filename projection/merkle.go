package projection

import (
	"fmt"
	"math/bits"

	"github.com/holdfast-dvir/holdfast/chain"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"
)

// hashesPerKey is how many stored hashes stand under one key: seven such values fill a page.
const hashesPerKey = 16

// hashes are the stored hashes of the Merkle tree (RFC 6962, in the order of tlog) as a tlog.HashReader.
type hashes struct{ bucket *bbolt.Bucket }

func (h hashes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, at := range indexes {
		chunk := h.bucket.Get(number(uint64(at / hashesPerKey)))
		from := int(at%hashesPerKey) * tlog.HashSize
		if len(chunk) < from+tlog.HashSize {
			return nil, damage("a hash of the tree is missing")
		}
		copy(out[i][:], chunk[from:])
	}
	return out, nil
}

// newHashes are the hashes that a transaction adds.
type newHashes struct {
	hashes
	from  int64 // index of the first new one
	new   []tlog.Hash
	size  uint64
	edges []tlog.Hash // of the largest whole subtrees over size events, from left to right: one for each bit of size
}

func newHashesAt(size uint64, tree hashes) (newHashes, error) {
	var at []int64
	for level := bits.Len64(size) - 1; level >= 0; level-- {
		if size>>level&1 == 1 {
			at = append(at, tlog.StoredHashIndex(level, int64(size>>level)-1))
		}
	}
	edges, err := tree.ReadHashes(at)
	return newHashes{hashes: tree, from: tlog.StoredHashCount(int64(size)), size: size, edges: edges}, err
}

// add needs no transaction.
func (h *newHashes) add(leaf chain.Digest) {
	hash := tlog.Hash(leaf)
	h.new = append(h.new, hash)
	for n := h.size; n&1 == 1; n >>= 1 {
		last := len(h.edges) - 1
		hash = tlog.NodeHash(h.edges[last], hash)
		h.edges, h.new = h.edges[:last], append(h.new, hash)
	}
	h.edges = append(h.edges, hash)
	h.size++
}

func (h *newHashes) write() error {
	h.bucket.FillPercent = 1
	for at, rest := h.from, h.new; len(rest) > 0; {
		key, had := number(uint64(at/hashesPerKey)), int(at%hashesPerKey)
		old := h.bucket.Get(key)
		if len(old) != had*tlog.HashSize {
			return damage("the hashes of the tree do not end where the events do")
		}
		n := min(hashesPerKey-had, len(rest))
		chunk := append(make([]byte, 0, hashesPerKey*tlog.HashSize), old...)
		for _, hash := range rest[:n] {
			chunk = append(chunk, hash[:]...)
		}
		if err := h.bucket.Put(key, chunk); err != nil {
			return err
		}
		at, rest = at+int64(n), rest[n:]
	}
	return nil
}

// ReadHashes implements tlog.HashReader over the committed events, for proofs: tlog.ProveRecord, tlog.ProveTree.
func (db *DB) ReadHashes(indexes []int64) (out []tlog.Hash, err error) {
	err = db.view(func(tx *bbolt.Tx) (err error) {
		m, _ := readMark(tx)
		end := tlog.StoredHashCount(int64(m.Size))
		for _, at := range indexes {
			if at < 0 || at >= end {
				return fmt.Errorf("stored hash %d: %w", at, ErrNotFound)
			}
		}
		out, err = hashes{tx.Bucket(bucketHashes)}.ReadHashes(indexes)
		return err
	})
	return out, err
}

// RootAt is the root of the Merkle tree over the first size events. A size beyond the tip is ErrNotFound.
func (db *DB) RootAt(size uint64) (chain.Digest, error) {
	if tip := db.Tip().Size; size > tip {
		return chain.Digest{}, fmt.Errorf("tree of %d events, the tip is at %d: %w", size, tip, ErrNotFound)
	}
	root, err := tlog.TreeHash(int64(size), db)
	return chain.Digest(root), err
}
