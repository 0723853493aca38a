package blob_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
)

// settings answers what an examination asks, as S3 does, without a network, so that hours pass in no time. Whether
// the examination is right about real servers is for other tests.
type settings struct {
	versioning atomic.Value // string
	dead       atomic.Bool
	busy       atomic.Value // string: requests whose path has it are answered with 503
	puts       atomic.Value // answering: to puts of payloads
	requests   atomic.Int64
}

// answering is what a server says to all; zero: it is well.
type answering struct {
	status int
	code   string
}

func (s *settings) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests.Add(1)
	if s.dead.Load() {
		return nil, io.ErrUnexpectedEOF
	}
	if part, _ := s.busy.Load().(string); part != "" && strings.Contains(r.URL.Path, part) {
		return blobtest.Answer(http.StatusServiceUnavailable, "SlowDown")(r, nil)
	}
	status, body := http.StatusOK, ""
	header := http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}
	switch q := r.URL.Query(); {
	case q.Has("versioning"):
		body = "<VersioningConfiguration><Status>" + s.versioning.Load().(string) + "</Status></VersioningConfiguration>"
	case q.Has("object-lock"):
		body = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>"
	case q.Has("lifecycle"):
		status, body = http.StatusNotFound, "<Error><Code>NoSuchLifecycleConfiguration</Code></Error>"
	case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/sha256/"):
		if code := s.puts.Load().(answering); code.status != 0 {
			return blobtest.Answer(code.status, code.code)(r, nil)
		}
		header.Set("X-Amz-Version-Id", "v")
	case r.Method == http.MethodPut:
		status, body = http.StatusPreconditionFailed, "<Error><Code>PreconditionFailed</Code></Error>"
	case r.Method == http.MethodHead, strings.Contains(r.URL.Path, "/sha256/"):
		header.Set("X-Amz-Version-Id", "v")
		header.Set("X-Amz-Object-Lock-Mode", "COMPLIANCE")
		header.Set("X-Amz-Object-Lock-Retain-Until-Date", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		header.Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r,
		ContentLength: int64(len(body))}, nil
}

// connect opens a bucket behind s.
func (s *settings) connect(t *testing.T) *blob.Bucket {
	t.Helper()
	s.versioning.Store("Enabled")
	s.puts.Store(answering{})
	b, err := blob.OpenBucket(t.Context(), blob.BucketConfig{Endpoint: "https://s3.example.com", Bucket: "payloads",
		AccessKey: "key", SecretKey: "secret", Wrap: func(http.RoundTripper) http.RoundTripper { return s }})
	require.NoError(t, err)
	return b
}

// watch gathers what b's Watch tells, until stop. Before that, look at it after synctest.Wait.
func watch(t *testing.T, b *blob.Bucket) (told *[]error, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	told = new([]error)
	var watching sync.WaitGroup
	watching.Go(func() { _ = b.Watch(ctx, func(_ time.Time, err error) { *told = append(*told, err) }) })
	return told, func() {
		cancel()
		watching.Wait()
	}
}

// TestBusyServer: a server that answers everything with 503 is away, not away and back in turn; one that answers so for
// a single object is not away.
func TestBusyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &settings{}
		b := s.connect(t)
		told, stop := watch(t, b)
		good, bad := chain.Sum([]byte("good")), chain.Sum([]byte("bad"))
		read := func(d chain.Digest) error {
			r, _, err := b.Open(t.Context(), blob.Ref{Digest: d, Version: "v"})
			if err == nil {
				err = r.Close()
			}
			return err
		}
		s.busy.Store(bad.String())
		for range 600 {
			assert.ErrorIs(t, read(bad), blob.ErrUnavailable)
			_ = read(good)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		assert.Empty(t, *told, "one object")
		s.busy.Store("/")
		for range 1200 {
			assert.ErrorIs(t, read(good), blob.ErrUnavailable)
			_, _, err := b.Put(t.Context(), good, strings.NewReader("good"), 4, time.Now().Add(time.Hour))
			assert.ErrorIs(t, err, blob.ErrUnavailable)
			time.Sleep(500 * time.Millisecond)
		}
		synctest.Wait()
		assert.Len(t, *told, 1)
		s.busy.Store("")
		time.Sleep(2 * time.Minute)
		stop()
		require.Len(t, *told, 2)
		assert.ErrorIs(t, (*told)[0], blob.ErrUnavailable)
		assert.NoError(t, (*told)[1])
	})
}

// TestWatchOverHours: the bucket is examined each hour; what it finds stops puts within the hour, and their return is
// found within minutes. A server that is away is asked at growing intervals.
func TestWatchOverHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &settings{}
		b := s.connect(t)
		told, stop := watch(t, b)

		before := s.requests.Load()
		time.Sleep(50 * time.Minute)
		assert.Equal(t, before, s.requests.Load(), "nothing is asked of a bucket that is well")
		s.versioning.Store("Suspended")
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		require.Len(t, *told, 1)
		assert.ErrorAs(t, (*told)[0], new(*blob.UnfitError))
		assert.ErrorContains(t, b.Healthy(), "versioning is not enabled")
		s.versioning.Store("Enabled")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Len(t, *told, 2)
		assert.NoError(t, (*told)[1])

		s.dead.Store(true)
		_, err := b.Stat(t.Context(), blob.Ref{Version: "v"})
		assert.ErrorIs(t, err, blob.ErrUnavailable)
		time.Sleep(2 * time.Second)
		before = s.requests.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, *told, 3)
		assert.Less(t, s.requests.Load()-before, int64(3600), "less than a request a second")
		s.dead.Store(false)
		time.Sleep(2 * time.Minute)
		stop()
		require.Len(t, *told, 4)
		assert.NoError(t, (*told)[3])
	})
}

// keepPutting puts a payload every 100 ms for so long, and tells the last error.
func keepPutting(t *testing.T, b *blob.Bucket, long time.Duration) (err error) {
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		_, _, err = b.Put(t.Context(), chain.Sum([]byte("good")), strings.NewReader("good"), 4, time.Now().Add(time.Hour))
	}
	return err
}

// TestFull: a server without room is told once and once when it has room; puts are turned away meanwhile but for one a
// second, and reads are not.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &settings{}
		b := s.connect(t)
		told, stop := watch(t, b)
		s.puts.Store(answering{http.StatusInsufficientStorage, "XMinioStorageFull"})
		began := s.requests.Load()
		err := keepPutting(t, b, 10*time.Minute)
		assert.ErrorIs(t, err, blob.ErrNoSpace)
		assert.ErrorIs(t, err, blob.ErrUnavailable)
		assert.ErrorIs(t, b.Healthy(), blob.ErrNoSpace)
		assert.Less(t, s.requests.Load()-began, int64(4000), "of 6,000 puts")
		_, err = b.Stat(t.Context(), blob.Ref{Digest: chain.Sum([]byte("good")), Version: "v"})
		assert.NoError(t, err)
		synctest.Wait()
		require.Len(t, *told, 1)
		assert.ErrorIs(t, (*told)[0], blob.ErrNoSpace)
		s.puts.Store(answering{})
		assert.NoError(t, keepPutting(t, b, time.Minute))
		stop()
		require.Len(t, *told, 2)
		assert.NoError(t, (*told)[1])
	})
}

// TestPutsRefused: a server that refuses every payload though it takes what an examination puts is told, once; reads go
// on. A single refusal is not told.
func TestPutsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &settings{}
		b := s.connect(t)
		told, stop := watch(t, b)
		s.puts.Store(answering{http.StatusForbidden, "AccessDenied"})
		assert.Error(t, keepPutting(t, b, time.Millisecond))
		s.puts.Store(answering{})
		assert.NoError(t, keepPutting(t, b, 5*time.Minute))
		synctest.Wait()
		assert.Empty(t, *told)

		s.puts.Store(answering{http.StatusForbidden, "AccessDenied"})
		assert.ErrorAs(t, keepPutting(t, b, 5*time.Minute), new(*blob.RefusedError))
		_, err := b.Stat(t.Context(), blob.Ref{Digest: chain.Sum([]byte("good")), Version: "v"})
		assert.NoError(t, err)
		synctest.Wait()
		require.Len(t, *told, 1)
		assert.ErrorAs(t, (*told)[0], new(*blob.RefusedError))
		s.puts.Store(answering{})
		assert.NoError(t, keepPutting(t, b, time.Minute))
		stop()
		assert.Len(t, *told, 2)
	})
}

// TestOutageAfterOutage: each is told within seconds, with the time of its first failure, and no sender waits to find
// out whether the server is back.
func TestOutageAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &settings{}
		b := s.connect(t)
		type news struct {
			since, at time.Time
			why       error
		}
		var told []news
		ctx, cancel := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() {
			_ = b.Watch(ctx, func(since time.Time, why error) { told = append(told, news{since, time.Now(), why}) })
		})
		time.Sleep(time.Second)
		for outage := range 3 {
			s.dead.Store(true)
			began := time.Now()
			assert.Error(t, keepPutting(t, b, 10*time.Second))
			s.dead.Store(false)
			assert.NoError(t, keepPutting(t, b, 10*time.Second))
			synctest.Wait()
			require.Len(t, told, 2*outage+2)
			down, up := told[2*outage], told[2*outage+1]
			assert.Error(t, down.why)
			assert.NoError(t, up.why)
			assert.WithinDuration(t, began, down.since, time.Second)
			assert.Equal(t, down.since, up.since)
			assert.WithinDuration(t, began, down.at, 4*time.Second)
			assert.WithinDuration(t, began.Add(10*time.Second), up.at, 8*time.Second)
		}
		cancel()
		watching.Wait()
	})
}

// TestNotExamined: a bucket that did not answer when it was opened is read as soon as it answers, and takes payloads once
// it was found fit.
func TestNotExamined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &settings{}
		s.versioning.Store("Suspended")
		s.puts.Store(answering{})
		s.dead.Store(true)
		b, err := blob.OpenBucket(t.Context(), blob.BucketConfig{Endpoint: "https://s3.example.com", Bucket: "payloads",
			AccessKey: "key", SecretKey: "secret", Wrap: func(http.RoundTripper) http.RoundTripper { return s }})
		require.ErrorIs(t, err, blob.ErrUnavailable)
		s.dead.Store(false)
		time.Sleep(time.Minute)
		_, err = b.Stat(t.Context(), blob.Ref{Digest: chain.Sum([]byte("good")), Version: "v"})
		require.NoError(t, err)
		require.ErrorIs(t, keepPutting(t, b, time.Millisecond), blob.ErrUnavailable)
		require.ErrorAs(t, b.Examine(t.Context()), new(*blob.UnfitError))
		s.versioning.Store("Enabled")
		require.NoError(t, b.Examine(t.Context()))
		require.NoError(t, keepPutting(t, b, time.Millisecond))
	})
}
