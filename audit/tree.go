package audit

import (
	"math/bits"

	"github.com/holdfast-dvir/holdfast/chain"
	"golang.org/x/mod/sumdb/tlog"
)

// tree is the right edge of an RFC 6962 tree: one hash for each complete subtree, so at most 64 however many leaves.
type tree struct {
	size uint64
	edge []tlog.Hash // largest subtree first
}

func (t *tree) add(leaf chain.Digest) {
	hash := tlog.Hash(leaf)
	for range bits.TrailingZeros64(^t.size) {
		last := len(t.edge) - 1
		hash = tlog.NodeHash(t.edge[last], hash)
		t.edge = t.edge[:last]
	}
	t.edge = append(t.edge, hash)
	t.size++
}

// root is the tree head; of the empty tree it is SHA-256 of nothing (RFC 6962, section 2.1).
func (t *tree) root() chain.Digest {
	if t.size == 0 {
		return chain.Sum(nil)
	}
	last := len(t.edge) - 1
	hash := t.edge[last]
	for i := last - 1; i >= 0; i-- {
		hash = tlog.NodeHash(t.edge[i], hash)
	}
	return chain.Digest(hash)
}
