package chain_test

import (
	"bytes"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"
)

// benchLines are events of about 500 bytes each: letters that are received, leased and resolved.
func benchLines(b *testing.B, n int) [][]byte {
	b.Helper()
	var head chain.Head
	lines := make([][]byte, 0, n)
	at := time.Date(2026, 3, 2, 6, 30, 0, 0, time.UTC)
	seal := func(e chain.Event) chain.Record {
		e.At, e.Actor = at.Add(time.Duration(head.Size)*time.Millisecond), "system:worker"
		r, err := head.Seal(e)
		require.NoError(b, err)
		lines, head = append(lines, r.Raw), r.Head()
		return r
	}
	seal(chain.Event{Type: chain.TypeGenesis, Origin: "holdfast.example/bench", LogID: "0102030405060708090a0b0c0d0e0f10"})
	for len(lines) < n {
		e := chain.Event{
			Type: chain.TypeReceived, PayloadRef: chain.Sum(lines[len(lines)-1]), BlobVersion: "3/L4kqtJlcpXroDTDmJ",
			RetainUntil: at.AddDate(1, 6, 0), Size: 2048, Channel: chain.TelematicsAPI, Source: "fleet:17",
			ContentType: "application/json",
		}
		var l chain.Letter
		r := seal(e)
		l, err := l.Apply(r)
		require.NoError(b, err)
		r = seal(l.Next(chain.Event{Type: chain.TypeAttempt, Attempt: 1, Worker: "worker:1", LeaseUntil: at.Add(time.Hour)}))
		l, err = l.Apply(r)
		require.NoError(b, err)
		seal(l.Next(chain.Event{Type: chain.TypeResolved, Lease: r.Seq, Outcome: chain.Admit, Rules: "dvir/1",
			RecordRef: chain.Sum([]byte("record"))}))
	}
	return lines[:n]
}

// BenchmarkVerify checks a log in memory. ratio is the time beside hashing the same bytes and nothing else, in the
// same run.
func BenchmarkVerify(b *testing.B) {
	lines := benchLines(b, 30_000)
	size := len(bytes.Join(lines, nil)) / len(lines)
	hash := func() {
		for _, line := range lines {
			sha256.Sum256(line)
		}
	}
	b.Run("link", func(b *testing.B) {
		perEvent(b, lines, size, hash, func() {
			var head chain.Head
			for _, line := range lines {
				var err error
				if head, err = head.Link(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
	b.Run("link and root", func(b *testing.B) {
		want, got := root(b, lines), chain.Digest{}
		perEvent(b, lines, size, hash, func() {
			var head chain.Head
			var tree frontier
			for _, line := range lines {
				var err error
				if head, err = head.Link(line); err != nil {
					b.Fatal(err)
				}
				tree.add(int64(head.Size-1), tlog.Hash(head.Leaf))
			}
			got = tree.root()
		})
		require.Equal(b, want, got)
	})
	b.Run("check", func(b *testing.B) {
		perEvent(b, lines, size, hash, func() {
			var head chain.Head
			for _, line := range lines {
				r, err := head.Check(line)
				if err != nil {
					b.Fatal(err)
				}
				head = r.Head()
			}
		})
	})
}

func perEvent(b *testing.B, lines [][]byte, size int, baseline, work func()) {
	b.Helper()
	b.ReportAllocs()
	var spent, base time.Duration
	for b.Loop() {
		start := time.Now()
		work()
		mid := time.Now()
		baseline()
		spent, base = spent+mid.Sub(start), base+time.Since(mid)
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N*len(lines)), "ns/event")
	b.ReportMetric(float64(spent)/float64(base), "ratio")
	b.ReportMetric(float64(size), "B/event")
}

// frontier is the right edge of a Merkle tree: all that is needed to go on, at most one hash per level.
type frontier struct{ hashes []tlog.Hash }

func (f *frontier) add(n int64, leaf tlog.Hash) {
	for ; n&1 == 1; n >>= 1 {
		last := len(f.hashes) - 1
		leaf = tlog.NodeHash(f.hashes[last], leaf)
		f.hashes = f.hashes[:last]
	}
	f.hashes = append(f.hashes, leaf)
}

func (f *frontier) root() chain.Digest {
	root := f.hashes[len(f.hashes)-1]
	for i := len(f.hashes) - 2; i >= 0; i-- {
		root = tlog.NodeHash(f.hashes[i], root)
	}
	return chain.Digest(root)
}
