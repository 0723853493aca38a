package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
)

// faulty connects to a new bucket through a connection on which things go wrong by order.
func faulty(t *testing.T, s *blobtest.Server, with ...func(*blob.BucketConfig)) (*blob.Bucket, blob.BucketConfig, *blobtest.Faults) {
	t.Helper()
	f := &blobtest.Faults{}
	b, c := open(t, s, append(with, func(c *blob.BucketConfig) { c.Wrap = f.Wrap })...)
	return b, c, f
}

func brief(c *blob.BucketConfig) { c.Timeout = 300 * time.Millisecond }

// TestPutFaults is the table of what can go wrong with a put, and what must come of it.
func TestPutFaults(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, c, f := faulty(t, s)
		until := inMonths(18)
		for _, test := range []struct {
			name  string
			order func()
			fails error // nil: the put succeeds
			more  int   // versions at most
		}{
			{"the answer is lost", func() { f.Next(1, blobtest.Puts, blobtest.LoseReply) }, nil, 1},
			{"the answer is lost, and so is that of the look after it", func() {
				f.Next(1, blobtest.Puts, blobtest.LoseReply)
				f.Next(1, blobtest.Lists, blobtest.LoseReply)
			}, nil, 1},
			{"the answer is lost twice", func() { f.Next(2, blobtest.Puts, blobtest.LoseReply) }, nil, 1},
			{"the server hangs up on the condition", func() {
				f.Next(9, func(r *http.Request) bool { return blobtest.Puts(r) && r.Header.Get("If-None-Match") != "" }, blobtest.Refuse)
			}, nil, 1},
			{"the connection is not taken", func() { f.Next(1, blobtest.Puts, blobtest.Refuse) }, nil, 1},
			{"503 SlowDown", func() { f.Next(2, blobtest.Puts, blobtest.Answer(503, "SlowDown")) }, nil, 1},
			{"500 InternalError", func() { f.Next(1, blobtest.Puts, blobtest.Answer(500, "InternalError")) }, nil, 1},
			{"409 ConditionalRequestConflict", func() { f.Next(1, blobtest.Puts, blobtest.Answer(409, "ConditionalRequestConflict")) }, nil, 1},
			{"412 for a key that is free", func() { f.Next(1, blobtest.Puts, blobtest.Answer(412, "PreconditionFailed")) }, nil, 1},
			{"a bit flips on the way", func() { f.Next(1, blobtest.Puts, blobtest.FlipSent) }, nil, 1},
			{"a bit flips every time", func() { f.Next(9, blobtest.Puts, blobtest.FlipSent) }, blob.ErrUnavailable, 0},
			{"slow", func() { f.Next(1, blobtest.Puts, blobtest.Slow(100*time.Millisecond)) }, nil, 1},
			{"503 without end", func() { f.Next(9, blobtest.Puts, blobtest.Answer(503, "SlowDown")) }, blob.ErrUnavailable, 0},
			{"403 AccessDenied", func() { f.Next(1, blobtest.Puts, blobtest.Answer(403, "AccessDenied")) }, blob.ErrUnavailable, 0},
			{"the clock", func() { f.Next(1, blobtest.Puts, blobtest.Answer(403, "RequestTimeTooSkewed")) }, blob.ErrUnavailable, 0},
			{"no bucket", func() { f.Next(1, blobtest.Puts, blobtest.Answer(404, "NoSuchBucket")) }, blob.ErrUnavailable, 0},
			{"404 of something in between", func() { f.Next(1, blobtest.Puts, blobtest.Answer(404, "NoSuchKey")) }, blob.ErrUnavailable, 0},
			{"full", func() { f.Next(1, blobtest.Puts, blobtest.Answer(507, "XMinioStorageFull")) }, blob.ErrNoSpace, 0},
		} {
			for _, size := range []int{3000, 2 << 20} {
				name := fmt.Sprintf("%s, %d bytes", test.name, size)
				data := content(size)
				test.order()
				ordered := f.Left()
				loc, _, err := b.Put(t.Context(), chain.Sum(data), bytes.NewReader(data), int64(size), until)
				assert.Less(t, f.Left(), ordered, "%s: happened", name)
				f.Clear()
				if test.fails != nil {
					require.ErrorIs(t, err, test.fails, name)
					assert.NotContains(t, err.Error(), c.Bucket+"/sha256", name)
					b.MarkAnswered()
					_, _, err = b.Put(t.Context(), chain.Sum(data), bytes.NewReader(data), int64(size), until)
					require.NoError(t, err, "%s: and again without it", name)
					continue
				}
				require.NoError(t, err, name)
				got, err := blobtest.Store(t, b).Get(t.Context(), loc.Ref)
				require.NoError(t, err, name)
				assert.True(t, bytes.Equal(data, got), name)
				assert.False(t, loc.RetainUntil.Before(until), name)
				assert.LessOrEqual(t, len(versions(t, s, c, loc.Digest)), test.more, name)
			}
		}
	})
}

// TestTooLargeForServer: what a server does not take is not an outage.
func TestTooLargeForServer(t *testing.T) {
	b, _, f := faulty(t, blobtest.MinIO(t))
	f.Next(1, blobtest.Puts, blobtest.Answer(413, "EntityTooLarge"))
	data := content(100)
	_, _, err := b.Put(t.Context(), chain.Sum(data), bytes.NewReader(data), 100, inMonths(18))
	assert.ErrorAs(t, err, new(*blob.TooLargeError))
	assert.NoError(t, b.Healthy())
}

// TestBrokenList: a list that stops half-way goes on where it was, and ends in an error if that does not help.
func TestBrokenList(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, _, f := faulty(t, s, brief)
		for range 3 {
			put(t, b, content(100), inMonths(18))
		}
		for _, test := range []struct {
			faults int
			fails  error
		}{{1, nil}, {3, nil}, {9, blob.ErrUnavailable}} {
			f.Next(test.faults, blobtest.Lists, blobtest.Silent)
			seen, last := map[blob.Ref]int{}, error(nil)
			for loc, err := range b.List(t.Context(), "") {
				if last = err; err == nil {
					seen[loc.Ref]++
				}
			}
			f.Clear()
			b.MarkAnswered()
			require.ErrorIs(t, last, test.fails)
			if test.fails == nil {
				assert.Len(t, seen, 3)
			}
		}
	})
}

// TestBuried: any number of versions over the bytes does not hide them, from readers and from puts.
func TestBuried(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, c := open(t, s)
		data := content(100)
		loc, _ := put(t, b, data, inMonths(18))
		for i := range 105 {
			cover(t, s, c, loc.Digest, fmt.Append(nil, "junk ", i))
		}
		got, err := blobtest.Store(t, b).Get(t.Context(), blob.Ref{Digest: loc.Digest})
		require.NoError(t, err)
		assert.True(t, bytes.Equal(data, got))
		again, created := put(t, b, data, inMonths(18))
		assert.False(t, created)
		assert.Equal(t, loc.Ref, again.Ref)
	})
}

// TestUnreadableCandidate: a version that may be the right one and cannot be read now makes a read fail as away, not as
// damaged.
func TestUnreadableCandidate(t *testing.T) {
	s := blobtest.MinIO(t)
	b, c, f := faulty(t, s)
	store := blobtest.Store(t, b)
	data := content(100)
	loc, _ := put(t, b, data, inMonths(18))
	cover(t, s, c, loc.Digest, content(100))
	forbidden := func(r *http.Request) bool { return blobtest.Gets(r) && r.URL.Query().Get("versionId") == loc.Version }
	for _, code := range []int{403, 503} {
		f.Next(99, forbidden, blobtest.Answer(code, "SlowDown"))
		_, err := store.Get(t.Context(), blob.Ref{Digest: loc.Digest})
		f.Clear()
		b.MarkAnswered()
		assert.ErrorIs(t, err, blob.ErrUnavailable)
		assert.NotErrorIs(t, err, blob.ErrNotFound)
	}
	got, err := store.Get(t.Context(), blob.Ref{Digest: loc.Digest})
	require.NoError(t, err)
	assert.True(t, bytes.Equal(data, got))
}

// TestUnprotectable: where the oldest version with the bytes cannot be protected, the next one is taken, and puts do not
// add a version each.
func TestUnprotectable(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, c := open(t, s)
		data := content(100)
		far := inMonths(60)
		_, err := s.Client(t).PutObject(t.Context(), c.Bucket, key(chain.Sum(data)), bytes.NewReader(data), 100,
			minio.PutObjectOptions{Mode: minio.Governance, RetainUntilDate: far})
		require.NoError(t, err)
		var last blob.Location
		for range 3 {
			last, _ = put(t, b, data, inMonths(18))
			at, err := b.Stat(t.Context(), last.Ref)
			require.NoError(t, err)
			assert.False(t, at.RetainUntil.Before(inMonths(18).Add(-time.Hour)))
		}
		assert.LessOrEqual(t, len(versions(t, s, c, last.Digest)), 2)
	})
}

// TestLockUnseen: a lock that the credentials may not see is unknown, not missing; the bytes can be read.
func TestLockUnseen(t *testing.T) {
	b, _, f := faulty(t, blobtest.MinIO(t))
	data := content(100)
	loc, _ := put(t, b, data, inMonths(18))
	silent := func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil {
			resp.Header.Del("X-Amz-Object-Lock-Mode")
			resp.Header.Del("X-Amz-Object-Lock-Retain-Until-Date")
		}
		return resp, err
	}
	object := func(r *http.Request) bool { return !asksForLock(r) }
	f.Next(99, object, silent)
	at, err := b.Stat(t.Context(), loc.Ref)
	require.NoError(t, err)
	assert.Equal(t, loc.RetainUntil, at.RetainUntil, "asked for by itself")
	f.Clear()

	f.Next(99, object, silent)
	f.Next(99, asksForLock, blobtest.Answer(403, "AccessDenied"))
	_, err = b.Stat(t.Context(), loc.Ref)
	assert.ErrorAs(t, err, new(*blob.RefusedError))
	r, _, err := b.Open(t.Context(), loc.Ref)
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.NoError(t, errors.Join(err, r.Close()))
	assert.True(t, bytes.Equal(data, got))
}

func asksForLock(r *http.Request) bool {
	q := r.URL.Query()
	return q.Has("retention") || q.Has("legal-hold")
}

// TestExtendCovered: an earlier date changes nothing, also of a version that something covers.
func TestExtendCovered(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, c := open(t, s)
		loc, _ := put(t, b, content(100), inMonths(18))
		cover(t, s, c, loc.Digest, []byte("x"))
		at, err := b.Extend(t.Context(), loc.Ref, inMonths(3))
		require.NoError(t, err)
		assert.Equal(t, loc.RetainUntil, at.RetainUntil)
	})
}

// TestReadFaults: what goes wrong on the way is not taken for damage at rest, and the other way round.
func TestReadFaults(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, _, f := faulty(t, s, func(c *blob.BucketConfig) { c.Timeout = time.Second })
		store := blobtest.Store(t, b)
		data := content(300_000)
		loc, _, err := store.PutBytes(t.Context(), data, time.Now())
		require.NoError(t, err)
		for name, test := range map[string]struct {
			order func()
			fails error
		}{
			"503 once":            {func() { f.Next(1, blobtest.Gets, blobtest.Answer(503, "SlowDown")) }, nil},
			"the answer is lost":  {func() { f.Next(1, blobtest.Gets, blobtest.LoseReply) }, nil},
			"a bit flips":         {func() { f.Next(1, blobtest.Gets, blobtest.FlipReceived) }, nil},
			"it breaks off":       {func() { f.Next(1, blobtest.Gets, blobtest.BreakOff) }, blob.ErrUnavailable},
			"it falls silent":     {func() { f.Next(1, blobtest.Gets, blobtest.Silent) }, blob.ErrUnavailable},
			"a black hole":        {func() { f.Next(9, blobtest.Gets, blobtest.BlackHole) }, blob.ErrUnavailable},
			"the policy forbids":  {func() { f.Next(9, blobtest.Gets, blobtest.Answer(403, "AccessDenied")) }, blob.ErrUnavailable},
			"503 without end":     {func() { f.Next(9, blobtest.Gets, blobtest.Answer(503, "SlowDown")) }, blob.ErrUnavailable},
			"connection refused ": {func() { f.Next(9, blobtest.Gets, blobtest.Refuse) }, blob.ErrUnavailable},
		} {
			test.order()
			got, err := store.Get(t.Context(), loc.Ref)
			f.Clear()
			b.MarkAnswered()
			if test.fails != nil {
				assert.ErrorIs(t, err, test.fails, name)
				continue
			}
			require.NoError(t, err, name)
			assert.True(t, bytes.Equal(data, got), name)
		}
	})
}

// TestRetentionRace: somebody else extends further in the meantime.
func TestRetentionRace(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, c, f := faulty(t, s)
		c.Wrap = nil
		other, err := blob.OpenBucket(t.Context(), c)
		require.NoError(t, err)
		near, mine, theirs := inMonths(3), inMonths(18), inMonths(24)
		loc, _ := put(t, b, content(100), near)
		f.Next(1, blobtest.Retentions, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			_, err := other.Extend(r.Context(), loc.Ref, theirs)
			require.NoError(t, err)
			return next.RoundTrip(r)
		})
		got, err := b.Extend(t.Context(), loc.Ref, mine)
		require.NoError(t, err)
		assert.Equal(t, theirs, got.RetainUntil)

		f.Next(1, blobtest.Retentions, blobtest.LoseReply)
		last := inMonths(30)
		got, err = b.Extend(t.Context(), loc.Ref, last)
		require.NoError(t, err)
		assert.Equal(t, last, got.RetainUntil)
	})
}

// TestWrongDigestIsLocal: bytes that are not what was announced are told from bytes damaged on the way.
func TestWrongDigestIsLocal(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, _, f := faulty(t, s)
		data := content(100)
		before := f.Requests()
		_, _, err := b.Put(t.Context(), chain.Sum(content(100)), bytes.NewReader(data), 100, inMonths(18))
		require.ErrorAs(t, err, new(*blob.CorruptError))
		assert.Equal(t, before+1, f.Requests(), "asked once")
	})
}

// TestBlackHole: a server that takes connections and says nothing costs each call a bounded time, and the calls after
// the first none; when it is back, it is found.
func TestBlackHole(t *testing.T) {
	b, _, f := faulty(t, blobtest.MinIO(t), brief)
	f.Next(1_000, blobtest.Any, blobtest.BlackHole)
	data := content(100)
	began := time.Now()
	_, _, err := b.Put(t.Context(), chain.Sum(data), bytes.NewReader(data), 100, inMonths(18))
	assert.ErrorIs(t, err, blob.ErrUnavailable)
	assert.ErrorContains(t, err, "in time")
	assert.Less(t, time.Since(began), 5*time.Second)
	assert.ErrorIs(t, b.Healthy(), blob.ErrUnavailable)

	before := f.Requests()
	for range 100 {
		_, err := b.Stat(t.Context(), blob.Ref{Digest: chain.Sum(data), Version: "v"})
		require.ErrorIs(t, err, blob.ErrUnavailable)
	}
	assert.LessOrEqual(t, f.Requests()-before, 8, "the others fail at once")
}

// TestNothingAcknowledgedUnstored: a server that refuses everything, which opens and closes the gate for other calls all
// the time, never has a put acknowledged.
func TestNothingAcknowledgedUnstored(t *testing.T) {
	f := &blobtest.Faults{}
	f.Next(1<<60, blobtest.Any, blobtest.Answer(403, "AccessDenied"))
	b := blob.Unexamined(blob.BucketConfig{Endpoint: "http://127.0.0.1:1", Bucket: "bucket", AccessKey: "k", SecretKey: "s", Wrap: f.Wrap})
	ctx, stop := context.WithCancel(t.Context())
	var turning, putting sync.WaitGroup
	for range 2 {
		turning.Go(func() {
			for ctx.Err() == nil {
				b.MarkLost()
				b.MarkAnswered()
			}
		})
	}
	for i := range 8 {
		putting.Go(func() {
			for n := range 3_000 {
				data := fmt.Append(nil, i, n)
				_, _, err := b.Put(t.Context(), chain.Sum(data), bytes.NewReader(data), int64(len(data)), inMonths(18))
				if !assert.ErrorIs(t, err, blob.ErrUnavailable) {
					return
				}
			}
		})
	}
	putting.Wait()
	stop()
	turning.Wait()
}

// TestWatch: a server that dies and comes back is told once each, without anybody asking.
func TestWatch(t *testing.T) {
	s := blobtest.MinIO(t)
	b, _, _ := faulty(t, s, brief)
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan error, 100)
	var watching sync.WaitGroup
	watching.Go(func() {
		assert.ErrorIs(t, b.Watch(ctx, func(_ time.Time, err error) { told <- err }), context.Canceled)
	})
	put(t, b, content(100), inMonths(18))

	s.Kill()
	data := content(100)
	_, _, err := b.Put(t.Context(), chain.Sum(data), bytes.NewReader(data), 100, inMonths(18))
	require.ErrorIs(t, err, blob.ErrUnavailable)
	assert.ErrorIs(t, <-told, blob.ErrUnavailable)
	s.Start(t)
	assert.NoError(t, <-told)
	assert.NoError(t, b.Healthy())
	put(t, b, data, inMonths(18))
	cancel()
	watching.Wait()
	assert.Empty(t, told)
}

// TestGivenUp: a caller who leaves is not a server that is away.
func TestGivenUp(t *testing.T) {
	b, _, f := faulty(t, blobtest.MinIO(t))
	f.Next(1, blobtest.Puts, blobtest.BlackHole)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	data := content(100)
	_, _, err := b.Put(ctx, chain.Sum(data), bytes.NewReader(data), 100, inMonths(18))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NoError(t, b.Healthy())
}

// TestClocks: a server whose clock is off is refused.
func TestClocks(t *testing.T) {
	s := blobtest.MinIO(t)
	for by, fit := range map[time.Duration]bool{0: true, 10 * time.Second: true, 2 * time.Minute: false, -2 * time.Minute: false} {
		c := s.Config(s.NewBucket(t))
		c.Wrap = func(next http.RoundTripper) http.RoundTripper { return shifted{next, by} }
		b, err := blob.OpenBucket(t.Context(), c)
		if !fit {
			assert.ErrorContains(t, err, "clock differs", by)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, by == 0, found(t, b, "clock").OK, by)
	}
}

// shifted makes the server's clock differ.
type shifted struct {
	next http.RoundTripper
	by   time.Duration
}

func (s shifted) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	at, err := http.ParseTime(resp.Header.Get("Date"))
	resp.Header.Set("Date", at.Add(s.by).Format(http.TimeFormat))
	return resp, err
}

// TestLongPayloadInFlatMemory: a payload of 64 MiB is never in memory as a whole.
func TestLongPayloadInFlatMemory(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, _ := open(t, s)
		store := blobtest.Store(t, b)
		const size = 64 << 20
		measured := peak(func() {
			loc, created, err := store.Put(t.Context(), io.LimitReader(zeros{}, size), time.Now())
			require.NoError(t, err)
			assert.True(t, created)
			_, created, err = store.Put(t.Context(), io.LimitReader(zeros{}, size), time.Now())
			require.NoError(t, err)
			assert.False(t, created)
			r, _, err := store.Open(t.Context(), loc.Ref)
			require.NoError(t, err)
			n, err := io.Copy(io.Discard, r)
			require.NoError(t, errors.Join(err, r.Close()))
			assert.EqualValues(t, size, n)
		})
		t.Logf("heap grew by %d KiB", measured>>10)
		assert.Less(t, measured, uint64(16<<20))
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// peak is how much the heap grew while f ran.
func peak(f func()) uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, most := m.HeapInuse, uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapInuse)
			}
		}
	}()
	f()
	close(stop)
	<-stopped
	return most - min(most, before)
}
