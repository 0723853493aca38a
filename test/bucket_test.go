package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
)

// onBuckets runs a test with the flags of a new bucket on each real server.
func onBuckets(t *testing.T, run func(t *testing.T, s *blobtest.Server, flags []string)) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		run(t, s, blobtest.Flags(t, s.Config(s.NewBucket(t))))
	})
}

func with(flags []string, more ...string) []string { return append(more, flags...) }

// TestDemoOnBuckets: the whole story, with payloads in a bucket.
func TestDemoOnBuckets(t *testing.T) {
	onBuckets(t, func(t *testing.T, _ *blobtest.Server, flags []string) { demonstrate(t, flags) })
}

// TestDemoUnderPolicy: the policy in deploy/ is enough for everything that the service does.
func TestDemoUnderPolicy(t *testing.T) {
	policy, err := os.ReadFile("../deploy/s3-policy.json")
	require.NoError(t, err)
	onBuckets(t, func(t *testing.T, s *blobtest.Server, _ []string) {
		bucket := s.NewBucket(t)
		demonstrate(t, blobtest.Flags(t, s.Restricted(t, bucket, strings.ReplaceAll(string(policy), "BUCKET", bucket))))
	})
}

// TestCredentialsInEnvironment: they can come from where AWS tools look, also the session's.
func TestCredentialsInEnvironment(t *testing.T) {
	s := blobtest.MinIO(t)
	bucket := s.NewBucket(t)
	c := s.Restricted(t, bucket, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:*"],"Resource":["arn:aws:s3:::*"]}]}`)
	t.Setenv("AWS_ACCESS_KEY_ID", c.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", c.SecretKey)
	t.Setenv("AWS_SESSION_TOKEN", c.SessionToken)
	t.Setenv("HOLDFAST_S3_ENDPOINT", c.Endpoint)
	t.Setenv("HOLDFAST_S3_BUCKET", c.Bucket)
	demonstrate(t, nil)
	held, err := blob.OpenBucket(t.Context(), c)
	require.NoError(t, err)
	payloads := 0
	for _, err := range held.List(t.Context(), "") {
		require.NoError(t, err)
		payloads++
	}
	assert.Positive(t, payloads)
}

func demonstrate(t *testing.T, flags []string) {
	t.Helper()
	code, out, errs := holdfast(t, with(flags, "demo", "--output", "json")...)
	require.Zero(t, code, "%s\n%s", out, errs)
	var result struct {
		Resolved int
		Verify   struct{ OK bool }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	assert.True(t, result.Verify.OK)
	assert.Positive(t, result.Resolved)
}

func TestKilledUnderLoadOnMinIO(t *testing.T) {
	s := blobtest.MinIO(t)
	killUnderLoad(t, blobtest.Flags(t, s.Config(s.NewBucket(t)))...)
}

// TestSameBytesAtOnceOnBuckets: 32 senders of the same bytes make one letter, whose payload reads right.
func TestSameBytesAtOnceOnBuckets(t *testing.T) {
	onBuckets(t, func(t *testing.T, _ *blobtest.Server, flags []string) {
		data := t.TempDir()
		s := serve(t, data, flags...)
		for round := range 5 {
			body := report(fmt.Sprint("same-", round))
			var mu sync.Mutex
			refs, created := map[string]bool{}, 0
			var senders sync.WaitGroup
			for range 32 {
				senders.Go(func() {
					status, answer, err := s.do(t.Context(), http.MethodPost, "/v1/payloads", "application/json", body)
					if !assert.NoError(t, err) {
						return
					}
					var receipt struct {
						Ref string `json:"payload_ref"`
					}
					assert.NoError(t, json.Unmarshal(answer, &receipt))
					mu.Lock()
					defer mu.Unlock()
					refs[receipt.Ref] = true
					if status == http.StatusCreated {
						created++
					}
				})
			}
			senders.Wait()
			assert.Equal(t, 1, created)
			require.Len(t, refs, 1)
			for ref := range refs {
				status, got, err := s.do(t.Context(), http.MethodGet, "/v1/letters/"+ref+"/payload?reason=test", "", nil)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, status, "%s", got)
				assert.True(t, bytes.Equal(body, got))
			}
		}
		s.settle()
		s.stop()
		code, out, errs := holdfast(t, with(flags, "verify", "--data", data)...)
		require.Zero(t, code, "%s\n%s", out, errs)
	})
}

// awayFor is how long the store is away in TestStoreAway; HOLDFAST_TEST_AWAY=10m is the whole story.
func awayFor(t *testing.T) time.Duration {
	text := os.Getenv("HOLDFAST_TEST_AWAY")
	if text == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// TestStoreAway: while the bucket's server is away, submissions are refused with 503 and Retry-After, and the log says
// so once; afterwards everything goes on by itself, and nothing acknowledged is lost.
func TestStoreAway(t *testing.T) {
	minio := blobtest.MinIO(t)
	flags := blobtest.Flags(t, minio.Config(minio.NewBucket(t)))
	data := t.TempDir()
	s := serve(t, data, flags...)
	acked := &ledger{known: map[string]bool{}}
	send := func(id string) (*http.Response, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/payloads", bytes.NewReader(report(id)))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+s.token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		var body bytes.Buffer
		_, err = body.ReadFrom(resp.Body)
		require.NoError(t, err)
		return resp, body.String()
	}
	for i := range 200 { // some of them still wait to be processed when the store goes away
		resp, body := send(fmt.Sprint("before-", i))
		require.Equal(t, http.StatusCreated, resp.StatusCode, body)
		acked.add([]byte(body))
	}
	minio.Kill()
	eventsBefore, linesBefore := s.events(), strings.Count(s.log.String(), "\n")

	refused := 0
	for end := time.Now().Add(awayFor(t)); time.Now().Before(end); refused++ {
		resp, body := send(fmt.Sprint("away-", refused))
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, body)
		assert.NotEmpty(t, resp.Header.Get("Retry-After"))
		time.Sleep(5 * time.Millisecond)
	}
	status, body, err := s.do(t.Context(), http.MethodGet, "/readyz", "", nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, status, "%s", body)
	s.get("/v1/stats", &struct{}{})
	lines := strings.Count(s.log.String(), "\n") - linesBefore
	assert.LessOrEqual(t, lines, 10, s.log.String())
	assert.LessOrEqual(t, s.events()-eventsBefore, uint64(50), "the log does not grow while the store is away")
	t.Logf("%d submissions refused, %d lines logged", refused, lines)

	minio.Start(t)
	require.Eventually(t, func() bool {
		resp, body := send("after")
		acked.add([]byte(body))
		return resp.StatusCode == http.StatusCreated
	}, time.Minute, 50*time.Millisecond)
	s.settle()
	acked.check(s)
	s.stop()
	code, out, errs := holdfast(t, with(flags, "verify", "--data", data)...)
	require.Zero(t, code, "%s\n%s", out, errs)
}

// events is the size of the log.
func (s *server) events() uint64 {
	s.t.Helper()
	var stats struct{ Events uint64 }
	s.get("/v1/stats", &stats)
	return stats.Events
}

// TestExpiryIsTold: a service says once at its start how many open letters lose their protection soon.
func TestExpiryIsTold(t *testing.T) {
	data := t.TempDir()
	s := serve(t, data)
	s.submit(&ledger{known: map[string]bool{}}, 6)
	s.settle()
	s.stop()
	const words = "open letters lose their protection soon"
	assert.NotContains(t, s.log.String(), words)
	s = serve(t, data, "--expiry-warning", "700")
	require.Eventually(t, func() bool { return strings.Contains(s.log.String(), words) }, 10*time.Second, 10*time.Millisecond)
	assert.Contains(t, s.log.String(), `"letters":4`)
	s.stop()
	assert.Equal(t, 1, strings.Count(s.log.String(), words))
}

// TestWormCheck: the verb ends with the verdict, and says when it proves nothing.
func TestWormCheck(t *testing.T) {
	s := blobtest.MinIO(t)
	c := s.Config(s.NewBucket(t))
	flags := blobtest.Flags(t, c)
	credentials := flags[len(flags)-1]
	flags = flags[:len(flags)-2]
	code, out, errs := holdfast(t, with(flags, "worm", "check", "--admin-credentials", credentials)...)
	require.Zero(t, code, "%s\n%s", out, errs)
	assert.Equal(t, 12, strings.Count(out, " refused "), out)
	assert.NotContains(t, out, "DONE")

	policy, err := os.ReadFile("../deploy/s3-policy.json")
	require.NoError(t, err)
	weak := blobtest.Flags(t, s.Restricted(t, c.Bucket, strings.ReplaceAll(string(policy), "BUCKET", c.Bucket)))
	code, _, errs = holdfast(t, with(flags, "worm", "check", "--admin-credentials", weak[len(weak)-1])...)
	assert.Equal(t, 3, code, errs)
}

// TestStartIsRefused: what is wrong with a bucket is said in words, with the exit code of its kind.
func TestStartIsRefused(t *testing.T) {
	s := blobtest.MinIO(t)
	missing, plain := s.Config("holdfast-missing"), s.Config(s.NewPlainBucket(t))
	gone := s.Config("holdfast-missing")
	gone.Endpoint = "http://127.0.0.1:1"
	for says, test := range map[string]struct {
		flags []string
		code  int
	}{
		"it does not exist":           {blobtest.Flags(t, missing), 6},
		"versioning is not enabled":   {blobtest.Flags(t, plain), 6},
		"refuses connections":         {blobtest.Flags(t, gone), 8},
		"need each other":             {[]string{"--s3-bucket", "payloads"}, 64},
		"use https, or allow http":    {[]string{"--s3-bucket", "payloads", "--s3-endpoint", "http://s3.example.com"}, 1},
		"S3 credentials: there are n": {[]string{"--s3-bucket", "payloads", "--s3-endpoint", "https://s3.example.com"}, 1},
	} {
		code, _, errs := holdfast(t, with(test.flags, "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--log-level", "error")...)
		assert.Equal(t, test.code, code, errs)
		assert.Contains(t, errs, says)
	}
}
