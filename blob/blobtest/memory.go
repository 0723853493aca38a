// Package blobtest holds what tests of and over package blob share: the conformance
// suite for backends, a backend in memory with levers for faults, and a directory
// backend that a test's cleanup can remove.
package blobtest

import (
	"bytes"
	"context"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
)

// MemoryVersion is the version of everything in a [Memory].
const MemoryVersion = "mem-1"

// Memory is a [blob.Backend] that keeps bytes in memory and passes [TestBackend].
// The zero value is empty and ready. Set Fail before use.
type Memory struct {
	// Fail, if set, is asked at the start of each call ("put", "open", "stat", "extend",
	// "hold", "list"); its error is the call's answer.
	Fail func(op string, d chain.Digest) error

	mu      sync.Mutex
	objects map[chain.Digest]*object // guarded by mu
	away    bool                     // guarded by mu
	changed chan struct{}            // guarded by mu; closed at the next change of away
}

var (
	_ blob.Backend = (*Memory)(nil)
	_ blob.Monitor = (*Memory)(nil)
)

// Away has every call answered with blob.ErrUnavailable, or not any more.
func (m *Memory) Away(is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = is
	if m.changed != nil {
		close(m.changed)
	}
	m.changed = nil
}

// Healthy implements [blob.Monitor].
func (m *Memory) Healthy() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away {
		return blob.ErrUnavailable
	}
	return nil
}

// Watch implements [blob.Monitor].
func (m *Memory) Watch(ctx context.Context, told func(since time.Time, why error)) error {
	var since time.Time
	for was := error(nil); ; {
		changed := m.change()
		if is := m.Healthy(); (is == nil) != (was == nil) {
			if is != nil {
				since = time.Now()
			}
			was = is
			told(since, is)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *Memory) change() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

type object struct {
	data []byte
	loc  blob.Location
}

// Put implements [blob.Backend].
func (m *Memory) Put(ctx context.Context, d chain.Digest, r io.ReaderAt, size int64, retainUntil time.Time) (blob.Location, bool, error) {
	if err := m.fail(ctx, "put", d); err != nil {
		return blob.Location{}, false, err
	}
	data, err := io.ReadAll(io.NewSectionReader(r, 0, size))
	if err != nil {
		return blob.Location{}, false, err
	}
	if got := chain.Sum(data); got != d {
		return blob.Location{}, false, &blob.CorruptError{Ref: blob.Ref{Digest: d}, Got: got}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, present := m.objects[d]
	if !present {
		ref := blob.Ref{Digest: d, Version: MemoryVersion}
		o = &object{data, blob.Location{Ref: ref, Size: size, RetainUntil: retainUntil}}
		if m.objects == nil {
			m.objects = map[chain.Digest]*object{}
		}
		m.objects[d] = o
	}
	if got := chain.Sum(o.data); got != d {
		return blob.Location{}, false, &blob.CorruptError{Ref: o.loc.Ref, Got: got}
	}
	o.extend(retainUntil)
	return o.loc, !present, nil
}

func (o *object) extend(until time.Time) {
	if until.After(o.loc.RetainUntil) {
		o.loc.RetainUntil = until
	}
}

// Open implements [blob.Backend].
func (m *Memory) Open(ctx context.Context, ref blob.Ref) (io.ReadCloser, blob.Location, error) {
	var data []byte
	loc, err := m.with(ctx, "open", ref, func(o *object) { data = o.data })
	if err != nil {
		return nil, blob.Location{}, err
	}
	return io.NopCloser(bytes.NewReader(data)), loc, nil
}

// Stat implements [blob.Backend].
func (m *Memory) Stat(ctx context.Context, ref blob.Ref) (blob.Location, error) {
	return m.with(ctx, "stat", ref, func(*object) {})
}

// Extend implements [blob.Backend].
func (m *Memory) Extend(ctx context.Context, ref blob.Ref, until time.Time) (blob.Location, error) {
	return m.with(ctx, "extend", ref, func(o *object) { o.extend(until) })
}

// Hold implements [blob.Backend].
func (m *Memory) Hold(ctx context.Context, ref blob.Ref, on bool) (blob.Location, error) {
	return m.with(ctx, "hold", ref, func(o *object) { o.loc.Hold = on })
}

// List implements [blob.Backend]; it shows what was there when it began.
func (m *Memory) List(ctx context.Context, prefix string) iter.Seq2[blob.Location, error] {
	return func(yield func(blob.Location, error) bool) {
		if err := m.fail(ctx, "list", chain.Digest{}); err != nil {
			yield(blob.Location{}, err)
			return
		}
		for _, loc := range m.snapshot() {
			if err := ctx.Err(); err != nil {
				yield(blob.Location{}, err)
				return
			}
			if strings.HasPrefix(loc.Digest.String(), prefix) && !yield(loc, nil) {
				return
			}
		}
	}
}

func (m *Memory) snapshot() (all []blob.Location) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range slices.SortedFunc(maps.Keys(m.objects), func(a, b chain.Digest) int { return bytes.Compare(a[:], b[:]) }) {
		all = append(all, m.objects[d].loc)
	}
	return all
}

// Describe implements [blob.Backend].
func (m *Memory) Describe() blob.Description {
	return blob.Description{Kind: "memory", Traits: []blob.Trait{{Name: "durable", Note: "gone with the process"}}}
}

// Tamper gives ref other bytes, behind the store's back.
func (m *Memory) Tamper(ref blob.Ref, data []byte) error {
	_, err := m.with(context.Background(), "tamper", ref, func(o *object) { o.data, o.loc.Size = data, int64(len(data)) })
	return err
}

// Remove takes ref away, behind the store's back.
func (m *Memory) Remove(ref blob.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, ref.Digest)
}

// Shadow marks ref as covered by another version.
func (m *Memory) Shadow(ref blob.Ref) error {
	_, err := m.with(context.Background(), "shadow", ref, func(o *object) { o.loc.Shadowed = true })
	return err
}

// Shorten moves the retention of ref, also to an earlier date.
func (m *Memory) Shorten(ref blob.Ref, until time.Time) error {
	_, err := m.with(context.Background(), "shorten", ref, func(o *object) { o.loc.RetainUntil = until })
	return err
}

func (m *Memory) with(ctx context.Context, op string, ref blob.Ref, do func(*object)) (blob.Location, error) {
	if err := m.fail(ctx, op, ref.Digest); err != nil {
		return blob.Location{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[ref.Digest]
	if !ok || ref.Version != "" && ref.Version != MemoryVersion {
		return blob.Location{}, blob.ErrNotFound
	}
	do(o)
	return o.loc, nil
}

func (m *Memory) fail(ctx context.Context, op string, d chain.Digest) error {
	if m.Fail != nil {
		if err := m.Fail(op, d); err != nil {
			return err
		}
	}
	if err := m.Healthy(); err != nil {
		return err
	}
	return ctx.Err()
}

// Dir opens a directory backend in a folder that the test's cleanup removes.
func Dir(t testing.TB) *blob.Dir {
	t.Helper()
	d, err := blob.OpenDir(t.TempDir(), blob.DirConfig{NoImmutable: true})
	require.NoError(t, err)
	return d
}

// Store is a store with default settings over b.
func Store(t testing.TB, b blob.Backend) *blob.Store {
	t.Helper()
	s, err := blob.NewStore(b, blob.Config{})
	require.NoError(t, err)
	return s
}
