package blobtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
)

// Tamperer is a backend whose stored bytes a test can change behind its back. The
// suite skips its corruption tests, loudly, for others.
type Tamperer interface {
	Tamper(ref blob.Ref, data []byte) error
}

// TestBackend checks that a backend keeps the contract of [blob.Backend], seen through
// a [blob.Store] and directly. open is called once per subtest and may return a backend
// that holds bytes of other tests: all content is random. Retention dates count from
// the wall clock, since a server with Object Lock judges by its own.
func TestBackend(t *testing.T, open func(t *testing.T) blob.Backend) {
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"PutIsIfAbsent", (*suite).putIsIfAbsent},
		{"Sizes", (*suite).sizes},
		{"Limit", (*suite).limit},
		{"NotFound", (*suite).notFound},
		{"Moved", (*suite).moved},
		{"WrongDigest", (*suite).wrongDigest},
		{"Retention", (*suite).retention},
		{"Hold", (*suite).hold},
		{"List", (*suite).list},
		{"SameBytesAtOnce", (*suite).sameBytesAtOnce},
		{"OtherBytesAtOnce", (*suite).otherBytesAtOnce},
		{"ExtendAtOnce", (*suite).extendAtOnce},
		{"Cancelled", (*suite).cancelled},
		{"BrokenStream", (*suite).brokenStream},
		{"Corruption", (*suite).corruption},
		{"Check", (*suite).check},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := open(t)
			test.run(&suite{t, t.Context(), b, Store(t, b), time.Now()})
		})
	}
}

type suite struct {
	*testing.T
	ctx     context.Context
	backend blob.Backend
	store   *blob.Store
	now     time.Time
}

// random is binary content that no other test has.
func random(n int) []byte {
	data := make([]byte, n)
	rand.Read(data)
	return data
}

func (s *suite) put(data []byte) blob.Location {
	s.Helper()
	loc, created, err := s.store.PutBytes(s.ctx, data, s.now)
	require.NoError(s, err)
	require.True(s, created)
	return loc
}

func (s *suite) putIsIfAbsent() {
	data := random(2048)
	first := s.put(data)
	assert.Equal(s, chain.Sum(data), first.Digest)
	assert.Equal(s, int64(2048), first.Size)
	assert.NotEmpty(s, first.Version)
	assert.False(s, first.Hold)
	assert.False(s, first.Shadowed)

	again, created, err := s.store.Put(s.ctx, bytes.NewReader(data), s.now)
	require.NoError(s, err)
	assert.False(s, created)
	s.same(first, again)

	for _, ref := range []blob.Ref{first.Ref, {Digest: first.Digest}} {
		got, err := s.store.Get(s.ctx, ref)
		require.NoError(s, err)
		assert.True(s, bytes.Equal(data, got))
		loc, err := s.store.Stat(s.ctx, ref)
		require.NoError(s, err)
		s.same(first, loc)
	}
}

func (s *suite) same(want, got blob.Location) {
	s.Helper()
	assert.True(s, want.RetainUntil.Equal(got.RetainUntil), "retained until %s, want %s", got.RetainUntil, want.RetainUntil)
	got.RetainUntil = want.RetainUntil
	assert.Equal(s, want, got)
}

func (s *suite) sizes() {
	for _, n := range []int{0, 1, 4095, 256<<10 - 1, 256 << 10, 256<<10 + 1, 3 << 20} {
		data := random(n)
		loc, _, err := s.store.Put(s.ctx, iotest.HalfReader(bytes.NewReader(data)), s.now)
		require.NoError(s, err, "%d bytes", n)
		assert.Equal(s, chain.Sum(data), loc.Digest)
		assert.Equal(s, int64(n), loc.Size)
		r, opened, err := s.store.Open(s.ctx, loc.Ref)
		require.NoError(s, err)
		s.same(loc, opened)
		got, err := io.ReadAll(r)
		require.NoError(s, err)
		require.NoError(s, r.Close())
		assert.True(s, bytes.Equal(data, got), "%d bytes", n)
	}
}

func (s *suite) limit() {
	for _, limit := range []int{100, 300 << 10} {
		store, err := blob.NewStore(s.backend, blob.Config{MaxSize: int64(limit)})
		require.NoError(s, err)
		exact, over := random(limit), random(limit+1)
		loc, _, err := store.Put(s.ctx, bytes.NewReader(exact), s.now)
		require.NoError(s, err)
		_, err = store.Get(s.ctx, loc.Ref)
		require.NoError(s, err)

		_, _, streamed := store.Put(s.ctx, bytes.NewReader(over), s.now)
		_, _, known := store.PutBytes(s.ctx, over, s.now)
		for _, err := range []error{streamed, known} {
			tooLarge, ok := errors.AsType[*blob.TooLargeError](err)
			require.True(s, ok, "%v", err)
			assert.Equal(s, int64(limit), tooLarge.Limit)
		}
		s.absent(over)
		s.absent(over[:limit])
		big := s.put(over)
		_, err = store.Get(s.ctx, big.Ref)
		assert.ErrorAs(s, err, new(*blob.TooLargeError))
	}
}

// absent makes sure that data is not stored, whole or in part.
func (s *suite) absent(data []byte) {
	s.Helper()
	_, err := s.store.Stat(s.ctx, blob.Ref{Digest: chain.Sum(data)})
	assert.ErrorIs(s, err, blob.ErrNotFound)
}

func (s *suite) notFound() {
	stored := s.put(random(10))
	for name, ref := range map[string]blob.Ref{
		"digest":          {Digest: chain.Sum(random(10))},
		"digest, version": {Digest: chain.Sum(random(10)), Version: stored.Version},
		"version":         {Digest: stored.Digest, Version: foreignVersion},
	} {
		_, _, err := s.backend.Open(s.ctx, ref)
		assert.ErrorIs(s, err, blob.ErrNotFound, name)
		_, err = s.backend.Stat(s.ctx, ref)
		assert.ErrorIs(s, err, blob.ErrNotFound, name)
		_, err = s.backend.Extend(s.ctx, ref, s.now.AddDate(2, 0, 0))
		assert.ErrorIs(s, err, blob.ErrNotFound, name)
		_, err = s.backend.Hold(s.ctx, ref, true)
		assert.ErrorIs(s, err, blob.ErrNotFound, name)
	}
	_, err := s.store.Get(s.ctx, blob.Ref{Digest: chain.Sum(random(10))})
	assert.ErrorIs(s, err, blob.ErrNotFound)
}

// foreignVersion is a version that no backend here gives.
const foreignVersion = "00000000-0000-4000-8000-000000000000"

// moved: bytes are found in a store that has them under another version than recorded.
func (s *suite) moved() {
	data := random(3000)
	stored := s.put(data)
	elsewhere := blob.Ref{Digest: stored.Digest, Version: foreignVersion}
	got, err := s.store.Get(s.ctx, elsewhere)
	require.NoError(s, err)
	assert.True(s, bytes.Equal(data, got))
	loc, err := s.store.Stat(s.ctx, elsewhere)
	require.NoError(s, err)
	s.same(stored, loc)
	held, err := s.store.Hold(s.ctx, elsewhere, true)
	require.NoError(s, err)
	assert.True(s, held.Hold)
	s.same(held, s.extended(elsewhere, s.now))
	findings, err := s.store.Check(s.ctx, blob.Location{Ref: elsewhere, RetainUntil: stored.RetainUntil})
	require.NoError(s, err)
	assert.Empty(s, findings)
}

func (s *suite) extended(ref blob.Ref, until time.Time) blob.Location {
	s.Helper()
	loc, err := s.store.Extend(s.ctx, ref, until, s.now)
	require.NoError(s, err)
	return loc
}

// wrongDigest: a backend does not trust its caller's digest.
func (s *suite) wrongDigest() {
	data := random(100)
	claimed := chain.Sum(random(100))
	_, created, err := s.backend.Put(s.ctx, claimed, bytes.NewReader(data), 100, s.now.AddDate(0, 3, 0))
	assert.ErrorAs(s, err, new(*blob.CorruptError))
	assert.False(s, created)
	_, err = s.backend.Stat(s.ctx, blob.Ref{Digest: claimed})
	assert.ErrorIs(s, err, blob.ErrNotFound)
	s.absent(data)
}

func (s *suite) retention() {
	data := random(100)
	first := s.put(data)
	s.until(blob.AddMonths(s.now.UTC(), 18), first)

	later, created, err := s.store.PutBytes(s.ctx, data, s.now.Add(48*time.Hour))
	require.NoError(s, err)
	assert.False(s, created)
	assert.Equal(s, first.Version, later.Version)
	s.until(blob.AddMonths(s.now.UTC().Add(48*time.Hour), 18), later)

	earlier, _, err := s.store.PutBytes(s.ctx, data, s.now)
	require.NoError(s, err)
	s.same(later, earlier)

	want := s.now.AddDate(3, 0, 0)
	extended, err := s.store.Extend(s.ctx, first.Ref, want, s.now)
	require.NoError(s, err)
	s.until(want, extended)

	kept, err := s.store.Extend(s.ctx, first.Ref, s.now.AddDate(1, 0, 0), s.now)
	require.NoError(s, err)
	s.same(extended, kept)

	_, err = s.store.Extend(s.ctx, first.Ref, s.now.AddDate(11, 0, 0), s.now)
	assert.ErrorAs(s, err, new(*blob.RetentionError))
	stored, err := s.store.Stat(s.ctx, first.Ref)
	require.NoError(s, err)
	s.same(extended, stored)
}

// until asks for the date rounded up to a whole second of UTC.
func (s *suite) until(want time.Time, loc blob.Location) {
	s.Helper()
	got := loc.RetainUntil
	assert.Equal(s, time.UTC, got.Location())
	assert.Zero(s, got.Nanosecond())
	assert.False(s, got.Before(want), "%s is before %s", got, want)
	assert.Less(s, got.Sub(want), time.Second)
}

func (s *suite) hold() {
	data := random(100)
	first := s.put(data)
	held, err := s.store.Hold(s.ctx, first.Ref, true)
	require.NoError(s, err)
	assert.True(s, held.Hold)
	s.until(first.RetainUntil, held)

	extended, err := s.store.Extend(s.ctx, first.Ref, first.RetainUntil.Add(time.Hour), s.now)
	require.NoError(s, err)
	assert.True(s, extended.Hold, "extending keeps the hold")
	again, _, err := s.store.PutBytes(s.ctx, data, s.now)
	require.NoError(s, err)
	assert.True(s, again.Hold, "putting keeps the hold")

	for range 2 {
		lifted, err := s.store.Hold(s.ctx, first.Ref, false)
		require.NoError(s, err)
		assert.False(s, lifted.Hold)
		s.until(extended.RetainUntil, lifted)
	}
}

func (s *suite) list() {
	want := map[chain.Digest]blob.Location{}
	for i := range 40 {
		loc := s.put(random(16 + i))
		want[loc.Digest] = loc
	}
	for _, prefix := range []string{"", "3", "3f", "3f0", "3f07", "3f07a"} {
		s.listed(prefix, want)
	}
	for d := range want {
		s.listed(d.String(), want)
		s.listed(d.String()[:6], want)
		break
	}
	for _, err := range s.store.List(s.ctx, "") {
		require.NoError(s, err)
		break
	}
}

// listed compares the list for prefix with those of want that it must hold.
func (s *suite) listed(prefix string, want map[chain.Digest]blob.Location) {
	s.Helper()
	var last string
	found := 0
	for loc, err := range s.store.List(s.ctx, prefix) {
		require.NoError(s, err)
		name := loc.Digest.String()
		assert.Less(s, last, name, "in digest order")
		assert.True(s, strings.HasPrefix(name, prefix))
		if w, ok := want[loc.Digest]; ok {
			s.same(w, loc)
			found++
		}
		last = name
	}
	expected := 0
	for d := range want {
		if strings.HasPrefix(d.String(), prefix) {
			expected++
		}
	}
	assert.Equal(s, expected, found, "prefix %q", prefix)
}

const writers = 32

func (s *suite) sameBytesAtOnce() {
	data := random(2048)
	var locs [writers]blob.Location
	var created [writers]bool
	var errs [writers]error
	atOnce(func(i int) {
		locs[i], created[i], errs[i] = s.store.PutBytes(s.ctx, data, s.now)
	})
	stored := 0
	versions := map[string]bool{}
	for i := range writers {
		require.NoError(s, errs[i])
		s.until(blob.AddMonths(s.now.UTC(), 18), locs[i])
		versions[locs[i].Version] = true
		if created[i] {
			stored++
		}
	}
	// A server without conditional puts may store several versions: waste, not damage.
	assert.Equal(s, len(versions), stored, "each version is created once")
	for v := range versions {
		got, err := s.store.Get(s.ctx, blob.Ref{Digest: chain.Sum(data), Version: v})
		require.NoError(s, err)
		assert.True(s, bytes.Equal(data, got))
	}
}

func atOnce(do func(i int)) {
	var ready, done sync.WaitGroup
	ready.Add(writers)
	for i := range writers {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			do(i)
		})
	}
	done.Wait()
}

func (s *suite) otherBytesAtOnce() {
	var errs [writers]error
	atOnce(func(i int) {
		for n := range 4 {
			data := random(1000 + i)
			put := s.store.PutBytes
			if n%2 == 1 {
				put = func(ctx context.Context, b []byte, now time.Time) (blob.Location, bool, error) {
					return s.store.Put(ctx, bytes.NewReader(b), now)
				}
			}
			loc, created, err := put(s.ctx, data, s.now)
			if err == nil && !created {
				err = fmt.Errorf("writer %d: new bytes were not new", i)
			}
			var got []byte
			if err == nil {
				got, err = s.store.Get(s.ctx, loc.Ref)
			}
			if err == nil && !bytes.Equal(data, got) {
				err = fmt.Errorf("writer %d: other bytes came back", i)
			}
			errs[i] = errors.Join(errs[i], err)
		}
	})
	require.NoError(s, errors.Join(errs[:]...))
}

func (s *suite) extendAtOnce() {
	loc := s.put(random(100))
	latest := loc.RetainUntil.Add(writers * time.Hour)
	var errs [writers]error
	atOnce(func(i int) {
		_, errs[i] = s.store.Extend(s.ctx, loc.Ref, latest.Add(-time.Duration(i)*time.Hour), s.now)
	})
	require.NoError(s, errors.Join(errs[:]...))
	got, err := s.store.Stat(s.ctx, loc.Ref)
	require.NoError(s, err)
	s.until(latest, got)
}

func (s *suite) cancelled() {
	ctx, cancel := context.WithCancel(s.ctx)
	long := random(600 << 10)
	// The stream ends the context when half of it was read.
	half := io.MultiReader(bytes.NewReader(long[:300<<10]), readFunc(func(p []byte) (int, error) {
		cancel()
		return copy(p, long[300<<10:]), nil
	}), bytes.NewReader(long))
	_, _, err := s.store.Put(ctx, half, s.now)
	assert.ErrorIs(s, err, context.Canceled)
	assert.NotErrorIs(s, err, blob.ErrSource)

	short := random(100)
	_, _, err = s.store.PutBytes(ctx, short, s.now)
	assert.ErrorIs(s, err, context.Canceled)
	s.absent(short)

	loc := s.put(random(100))
	_, err = s.store.Get(ctx, loc.Ref)
	assert.ErrorIs(s, err, context.Canceled)
	var last error
	for _, err := range s.store.List(ctx, "") {
		last = err
	}
	assert.ErrorIs(s, last, context.Canceled)
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func (s *suite) brokenStream() {
	broken := errors.New("connection lost")
	for _, n := range []int{0, 1000, 400 << 10} {
		data := random(n)
		_, _, err := s.store.Put(s.ctx, io.MultiReader(bytes.NewReader(data), iotest.ErrReader(broken)), s.now)
		assert.ErrorIs(s, err, blob.ErrSource)
		assert.ErrorIs(s, err, broken)
		if n > 0 {
			s.absent(data)
		}
	}
}

func (s *suite) corruption() {
	tamperer, ok := s.backend.(Tamperer)
	if !ok {
		s.Skip("NOT TESTED: the backend offers no way to change stored bytes")
	}
	for name, damage := range map[string]func([]byte) []byte{
		"flipped":   func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"truncated": func(b []byte) []byte { return b[:len(b)-1] },
		"emptied":   func([]byte) []byte { return nil },
		"grown":     func(b []byte) []byte { return append(b, 0) },
	} {
		data := random(5000)
		loc := s.put(data)
		damaged := damage(bytes.Clone(data))
		require.NoError(s, tamperer.Tamper(loc.Ref, damaged))

		_, err := s.store.Get(s.ctx, loc.Ref)
		s.corrupt(err, loc, damaged, name)
		r, _, err := s.store.Open(s.ctx, loc.Ref)
		require.NoError(s, err)
		_, err = io.ReadAll(r)
		s.corrupt(err, loc, damaged, name)
		require.NoError(s, r.Close())

		_, created, err := s.store.PutBytes(s.ctx, data, s.now)
		s.corrupt(err, loc, damaged, name)
		assert.False(s, created)
		_, err = s.store.Get(s.ctx, loc.Ref)
		s.corrupt(err, loc, damaged, name+": the evidence was overwritten")

		findings, err := s.store.Check(s.ctx, loc)
		require.NoError(s, err)
		assert.Equal(s, []blob.Problem{blob.Corrupt}, problems(findings))
	}
}

func (s *suite) corrupt(err error, loc blob.Location, damaged []byte, name string) {
	s.Helper()
	corrupt, ok := errors.AsType[*blob.CorruptError](err)
	require.True(s, ok, "%s: %v", name, err)
	assert.Equal(s, loc.Ref, corrupt.Ref, name)
	assert.Equal(s, chain.Sum(damaged), corrupt.Got, name)
}

func problems(findings []blob.Finding) (all []blob.Problem) {
	for _, f := range findings {
		all = append(all, f.Problem)
	}
	return all
}

func (s *suite) check() {
	loc := s.put(random(3000))
	findings, err := s.store.Check(s.ctx, loc)
	require.NoError(s, err)
	assert.Empty(s, findings)

	recorded := loc
	recorded.RetainUntil = loc.RetainUntil.Add(time.Second)
	recorded.Hold = true
	findings, err = s.store.Check(s.ctx, recorded)
	require.NoError(s, err)
	assert.Equal(s, []blob.Problem{blob.Shortened, blob.Released}, problems(findings))

	recorded.Digest = chain.Sum(random(10))
	findings, err = s.store.Check(s.ctx, recorded)
	require.NoError(s, err)
	assert.Equal(s, []blob.Problem{blob.Missing}, problems(findings))

	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err = s.store.Check(ctx, loc)
	assert.ErrorIs(s, err, context.Canceled)
}
