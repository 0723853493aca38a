package blob_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/encrypt"
	"github.com/minio/minio-go/v7/pkg/sse"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
)

// open connects to a new bucket.
func open(t *testing.T, s *blobtest.Server, with ...func(*blob.BucketConfig)) (*blob.Bucket, blob.BucketConfig) {
	t.Helper()
	c := s.Config(s.NewBucket(t))
	for _, set := range with {
		set(&c)
	}
	b, err := blob.OpenBucket(t.Context(), c)
	require.NoError(t, err)
	return b, c
}

func content(n int) []byte {
	data := make([]byte, n)
	rand.Read(data)
	return data
}

func key(d chain.Digest) string {
	h := d.String()
	return "sha256/" + h[:2] + "/" + h[2:4] + "/" + h
}

// inMonths is a retention date as the store would ask for.
func inMonths(n int) time.Time { return blob.AddMonths(time.Now().UTC(), n).Truncate(time.Second) }

func put(t *testing.T, b blob.Backend, data []byte, until time.Time) (blob.Location, bool) {
	t.Helper()
	loc, created, err := b.Put(t.Context(), chain.Sum(data), bytes.NewReader(data), int64(len(data)), until)
	require.NoError(t, err)
	return loc, created
}

func TestBucket(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, _ := open(t, s)
		blobtest.TestBackend(t, func(*testing.T) blob.Backend { return b })
	})
}

// TestBucketUnderPrefix: two services can share a bucket.
func TestBucketUnderPrefix(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, c := open(t, s, func(c *blob.BucketConfig) { c.Prefix = "fleet/dvir/" })
		blobtest.TestBackend(t, func(*testing.T) blob.Backend { return b })
		c.Prefix = ""
		other, err := blob.OpenBucket(t.Context(), c)
		require.NoError(t, err)
		for loc, err := range other.List(t.Context(), "") {
			t.Fatalf("%v %v is of another prefix", loc, err)
		}
	})
}

// behaviours is what distinguishes servers, each as the server is expected to have it: an upgrade that changes one
// fails here.
var behaviours = []struct {
	name string
	of   func(t *testing.T, s *blobtest.Server) any
	want map[string]any
}{
	{"conditional puts are kept", conditional, map[string]any{"minio": true, "versitygw": true}},
	{"a conditional put over a delete marker is taken", overMarker, map[string]any{"minio": true, "versitygw": false}},
	{"the lock of a covered version is told", coveredLock, map[string]any{"minio": true, "versitygw": true}},
	{"concurrent conditional puts store one version", winners, map[string]any{"minio": 1, "versitygw": 1}},
	{"server-side encryption that is asked for happens", encrypts, map[string]any{"minio": "AES256", "versitygw": ""}},
	{"lifecycle rules can be read", lifecycle, map[string]any{"minio": true, "versitygw": false}},
}

func TestServersBehaveAsExpected(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		for _, b := range behaviours {
			assert.Equal(t, b.want[s.Kind], b.of(t, s), b.name)
		}
	})
}

func conditional(t *testing.T, s *blobtest.Server) any {
	b, _ := open(t, s)
	return found(t, b, "conditional puts").OK
}

func lifecycle(t *testing.T, s *blobtest.Server) any {
	b, _ := open(t, s)
	return !strings.Contains(found(t, b, "lifecycle").Note, "cannot be read")
}

func found(t *testing.T, b *blob.Bucket, name string) blob.Trait {
	t.Helper()
	for _, trait := range b.Describe().Traits {
		if trait.Name == name {
			return trait
		}
	}
	t.Fatalf("no trait %s in %v", name, b.Describe())
	return blob.Trait{}
}

func overMarker(t *testing.T, s *blobtest.Server) any {
	c, bucket := s.Client(t), s.NewBucket(t)
	_, err := c.PutObject(t.Context(), bucket, "k", strings.NewReader("x"), 1, minio.PutObjectOptions{})
	require.NoError(t, err)
	require.NoError(t, c.RemoveObject(t.Context(), bucket, "k", minio.RemoveObjectOptions{}))
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*")
	_, err = c.PutObject(t.Context(), bucket, "k", strings.NewReader("x"), 1, o)
	return err == nil
}

func coveredLock(t *testing.T, s *blobtest.Server) any {
	b, c := open(t, s)
	loc, _ := put(t, b, content(100), inMonths(18))
	cover(t, s, c, loc.Digest, []byte("something else"))
	got, err := b.Stat(t.Context(), loc.Ref)
	require.NoError(t, err)
	return !got.RetainUntil.IsZero()
}

func winners(t *testing.T, s *blobtest.Server) any {
	b, c := open(t, s)
	data := content(2048)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() { put(t, b, data, inMonths(18)) })
	}
	wg.Wait()
	return len(versions(t, s, c, chain.Sum(data)))
}

func encrypts(t *testing.T, s *blobtest.Server) any {
	b, c := open(t, s)
	client := s.Client(t)
	_ = client.SetBucketEncryption(t.Context(), c.Bucket, sseS3())
	loc, _ := put(t, b, content(100), inMonths(18))
	info, err := client.StatObject(t.Context(), c.Bucket, key(loc.Digest), minio.StatObjectOptions{})
	require.NoError(t, err)
	return info.Headers.Get("X-Amz-Server-Side-Encryption")
}

// cover puts other bytes over a key, as anyone may who may write.
func cover(t *testing.T, s *blobtest.Server, c blob.BucketConfig, d chain.Digest, data []byte) {
	t.Helper()
	_, err := s.Client(t).PutObject(t.Context(), c.Bucket, key(d), bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{})
	require.NoError(t, err)
}

// mark puts a delete marker over a key.
func mark(t *testing.T, s *blobtest.Server, c blob.BucketConfig, d chain.Digest) {
	t.Helper()
	require.NoError(t, s.Client(t).RemoveObject(t.Context(), c.Bucket, key(d), minio.RemoveObjectOptions{}))
}

func versions(t *testing.T, s *blobtest.Server, c blob.BucketConfig, d chain.Digest) (ids []string) {
	t.Helper()
	for o := range s.Client(t).ListObjectsIter(t.Context(), c.Bucket, minio.ListObjectsOptions{Prefix: c.Prefix + key(d), WithVersions: true, Recursive: true}) {
		require.NoError(t, o.Err)
		if !o.IsDeleteMarker {
			ids = append(ids, o.VersionID)
		}
	}
	return ids
}

// TestCovered: a version or a delete marker over locked bytes hides nothing, and is told.
func TestCovered(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, c := open(t, s)
		store := blobtest.Store(t, b)
		for name, by := range map[string]func(chain.Digest){
			"a version":                  func(d chain.Digest) { cover(t, s, c, d, []byte("something else")) },
			"a version of the same size": func(d chain.Digest) { cover(t, s, c, d, content(3000)) },
			"a delete marker":            func(d chain.Digest) { mark(t, s, c, d) },
			"both": func(d chain.Digest) {
				cover(t, s, c, d, content(3000))
				mark(t, s, c, d)
			},
		} {
			data := content(3000)
			loc, _, err := store.PutBytes(t.Context(), data, time.Now())
			require.NoError(t, err)
			by(loc.Digest)
			before := store.Shadowed()
			for _, ref := range []blob.Ref{loc.Ref, {Digest: loc.Digest}} {
				got, err := store.Get(t.Context(), ref)
				require.NoError(t, err, name)
				assert.True(t, bytes.Equal(data, got), name)
				at, err := store.Stat(t.Context(), ref)
				require.NoError(t, err, name)
				assert.True(t, at.Shadowed, name)
				assert.Equal(t, loc.Ref, at.Ref, name)
			}
			assert.Equal(t, before+2, store.Shadowed(), name)
			findings, err := store.Check(t.Context(), blob.Location{Ref: loc.Ref})
			require.NoError(t, err)
			require.Len(t, findings, 1, name)
			assert.Equal(t, blob.Shadowed, findings[0].Problem, name)

			again, created, err := store.PutBytes(t.Context(), data, time.Now())
			require.NoError(t, err, name)
			// Over a delete marker S3 takes a conditional put.
			if !strings.Contains(name, "marker") && name != "both" {
				assert.False(t, created, name)
				assert.Equal(t, loc.Ref, again.Ref, name)
			}
			assert.False(t, again.RetainUntil.Before(loc.RetainUntil), name)
			if again.Version != loc.Version {
				at, err := store.Stat(t.Context(), loc.Ref)
				require.NoError(t, err, name)
				assert.False(t, at.Shadowed, "%s: the same bytes on top hide nothing", name)
			}
		}
	})
}

// TestForestalled: whoever may write can take a key before the payload comes. The payload is stored all the same.
func TestForestalled(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, c := open(t, s)
		for name, by := range map[string]func([]byte){
			"other bytes":                  func(data []byte) { cover(t, s, c, chain.Sum(data), []byte("x")) },
			"other bytes of the same size": func(data []byte) { cover(t, s, c, chain.Sum(data), content(len(data))) },
			"a delete marker":              func(data []byte) { mark(t, s, c, chain.Sum(data)) },
			"the bytes, unlocked":          func(data []byte) { cover(t, s, c, chain.Sum(data), data) },
		} {
			for _, size := range []int{2000, 2 << 20} {
				data := content(size)
				by(data)
				loc, _ := put(t, b, data, inMonths(18))
				at, err := b.Stat(t.Context(), loc.Ref)
				require.NoError(t, err, name)
				assert.Equal(t, inMonths(18).Format("2006-01-02"), at.RetainUntil.Format("2006-01-02"), name)
				got, err := blobtest.Store(t, b).Get(t.Context(), loc.Ref)
				require.NoError(t, err, name)
				assert.True(t, bytes.Equal(data, got), name)
			}
		}
	})
}

func sseS3() *sse.Configuration { return sse.NewConfigurationSSES3() }

// TestPresent: bytes that are there are protected as long as asked, and stored once.
func TestPresent(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		b, c := open(t, s)
		until := inMonths(18)
		for _, size := range []int{0, 2000, 2 << 20} {
			data := content(size)
			first, created := put(t, b, data, inMonths(3))
			assert.True(t, created)
			later, created := put(t, b, data, until)
			assert.False(t, created)
			assert.Equal(t, first.Ref, later.Ref)
			assert.Equal(t, until, later.RetainUntil)
			assert.Len(t, versions(t, s, c, first.Digest), 1)
		}
	})
}

// TestTamperedFile: bytes changed on the server's disk are corruption, and good ones are stored beside them.
func TestTamperedFile(t *testing.T) {
	s := blobtest.VersityGW(t)
	b, c := open(t, s)
	store := blobtest.Store(t, b)
	data := content(2000)
	loc, _, err := store.PutBytes(t.Context(), data, time.Now())
	require.NoError(t, err)
	file := filepath.Join(s.Folder(), "root", c.Bucket, key(loc.Digest))
	require.NoError(t, os.WriteFile(file, content(2000), 0o600))

	_, err = store.Get(t.Context(), loc.Ref)
	assert.ErrorAs(t, err, new(*blob.CorruptError))
	findings, err := store.Check(t.Context(), blob.Location{Ref: loc.Ref})
	require.NoError(t, err)
	require.NotEmpty(t, findings)
	assert.Equal(t, blob.Corrupt, findings[0].Problem)

	_, created, err := store.PutBytes(t.Context(), data, time.Now())
	require.NoError(t, err)
	assert.True(t, created)
	got, err := store.Get(t.Context(), loc.Ref)
	require.NoError(t, err, "any version with the right bytes")
	assert.True(t, bytes.Equal(data, got))
}

// TestUnfit: a bucket that would not keep payloads is refused, and the reason is told.
func TestUnfit(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		plain, versioned := s.NewPlainBucket(t), s.NewPlainBucket(t)
		require.NoError(t, s.Client(t).EnableVersioning(t.Context(), versioned))
		stranger := s.Config(plain)
		stranger.SecretKey = "wrong-secret-key"
		encrypted := s.Config(s.NewBucket(t))
		encrypted.RequireEncryption = true
		for reason, c := range map[string]blob.BucketConfig{
			"does not exist":                s.Config("holdfast-missing"),
			"versioning is not enabled":     s.Config(plain),
			"Object Lock is not enabled":    s.Config(versioned),
			"do not allow s3:ListBucket":    stranger,
			"what is put is not encrypted;": encrypted,
		} {
			_, err := blob.OpenBucket(t.Context(), c)
			var unfit *blob.UnfitError
			require.ErrorAs(t, err, &unfit, reason)
			assert.ErrorContains(t, err, reason)
			assert.ErrorIs(t, err, blob.ErrUnavailable)
			assert.NotContains(t, err.Error(), "wrong-secret-key")
		}
	})
}

func TestEncryptionDemanded(t *testing.T) {
	s := blobtest.MinIO(t)
	c := s.Config(s.NewBucket(t))
	c.RequireEncryption = true
	require.NoError(t, s.Client(t).SetBucketEncryption(t.Context(), c.Bucket, sseS3()))
	b, err := blob.OpenBucket(t.Context(), c)
	require.NoError(t, err)
	assert.True(t, found(t, b, "encryption").OK)
	put(t, b, content(100), inMonths(18))

	require.NoError(t, s.Client(t).RemoveBucketEncryption(t.Context(), c.Bucket))
	data := content(100)
	_, _, err = b.Put(t.Context(), chain.Sum(data), bytes.NewReader(data), 100, inMonths(18))
	assert.ErrorIs(t, err, blob.ErrUnavailable, "every put is looked at")
	assert.ErrorAs(t, b.Healthy(), new(*blob.UnfitError))
	assert.ErrorAs(t, b.Examine(t.Context()), new(*blob.UnfitError), "the old probe is encrypted")
}

// TestForeignKey: an object that somebody encrypted with a key of his own hides nothing.
func TestForeignKey(t *testing.T) {
	s := blobtest.MinIOWithTLS(t)
	b, c := open(t, s)
	data := content(100)
	loc, _ := put(t, b, data, inMonths(18))
	theirs, err := encrypt.NewSSEC(content(32))
	require.NoError(t, err)
	_, err = s.Client(t).PutObject(t.Context(), c.Bucket, key(loc.Digest), strings.NewReader("x"), 1, minio.PutObjectOptions{ServerSideEncryption: theirs})
	require.NoError(t, err)
	got, err := blobtest.Store(t, b).Get(t.Context(), loc.Ref)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(data, got))
	at, err := b.Stat(t.Context(), loc.Ref)
	require.NoError(t, err)
	assert.True(t, at.Shadowed)
	again, created := put(t, b, data, inMonths(18))
	assert.False(t, created)
	assert.Equal(t, loc.Ref, again.Ref)
}

func TestTLS(t *testing.T) {
	s := blobtest.MinIOWithTLS(t)
	b, c := open(t, s)
	put(t, b, content(3<<20), inMonths(18))
	assert.True(t, found(t, b, "transport").OK)
	assert.Equal(t, "TLS", found(t, b, "transport").Note)
	c.CAFile = ""
	_, err := blob.OpenBucket(t.Context(), c)
	assert.ErrorContains(t, err, "certificate is not trusted")
	assert.ErrorIs(t, err, blob.ErrUnavailable)
	c.Endpoint = strings.Replace(c.Endpoint, "https", "http", 1)
	_, err = blob.OpenBucket(t.Context(), c)
	assert.Error(t, err)
}

// TestUnfitLater: a bucket that stops being fit takes nothing from then on, until it is mended.
func TestUnfitLater(t *testing.T) {
	s := blobtest.MinIO(t)
	b, c := open(t, s)
	loc, _ := put(t, b, content(100), inMonths(18))
	b.SetRequireEncryption(true)
	require.ErrorAs(t, b.Examine(t.Context()), new(*blob.UnfitError))
	assert.ErrorIs(t, b.Healthy(), blob.ErrUnavailable)
	data := content(100)
	_, _, err := b.Put(t.Context(), chain.Sum(data), bytes.NewReader(data), 100, inMonths(18))
	assert.ErrorAs(t, err, new(*blob.UnfitError))
	_, err = b.Stat(t.Context(), loc.Ref)
	assert.NoError(t, err, "what is stored can be read")

	require.NoError(t, s.Client(t).SetBucketEncryption(t.Context(), c.Bucket, sseS3()))
	require.NoError(t, b.Examine(t.Context()), "the probe of before is not encrypted, but a new one is")
	assert.NoError(t, b.Healthy())
	put(t, b, data, inMonths(18))
}

// TestWORM: what an administrator tries to get rid of locked bytes is refused by every server.
func TestWORM(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		c := s.Config(s.NewBucket(t))
		attempts, err := blob.ProveWORM(t.Context(), c)
		require.NoError(t, err)
		assert.Len(t, attempts, 12)
		for _, a := range attempts {
			assert.True(t, a.Refused, "%s: %s", a.Name, a.Answer)
		}
	})
}

// TestWORMProvesNothing: a server that only fails has refused nothing.
func TestWORMProvesNothing(t *testing.T) {
	s := blobtest.MinIO(t)
	for _, fault := range []blobtest.Fault{blobtest.Answer(503, "SlowDown"), blobtest.Answer(500, "InternalError"), blobtest.Refuse} {
		f := &blobtest.Faults{}
		c := s.Config(s.NewBucket(t))
		c.Wrap = f.Wrap
		f.Next(1<<30, func(r *http.Request) bool {
			return r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "locked-")
		}, fault)
		_, err := blob.ProveWORM(t.Context(), c)
		assert.ErrorIs(t, err, blob.ErrUnavailable)
	}
}

// TestWORMNotTried: what a server does not know was not refused, and a reader does not attack.
func TestWORMNotTried(t *testing.T) {
	s := blobtest.MinIO(t)
	f := &blobtest.Faults{}
	c := s.Config(s.NewBucket(t))
	c.Wrap = f.Wrap
	f.Next(1, func(r *http.Request) bool { return r.Method == http.MethodPost }, blobtest.Answer(501, "NotImplemented"))
	attempts, err := blob.ProveWORM(t.Context(), c)
	assert.ErrorContains(t, err, "501 NotImplemented")
	assert.Len(t, attempts, 2)
	c.ReadOnly = true
	_, err = blob.ProveWORM(t.Context(), c)
	assert.ErrorIs(t, err, blob.ErrReadOnly)
}

// TestPolicy: the policy that ships with the project is enough for everything the service does, and for nothing that
// destroys.
func TestPolicy(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, s *blobtest.Server) {
		bucket := s.NewBucket(t)
		c := s.Restricted(t, bucket, policy(t, bucket))
		b, err := blob.OpenBucket(t.Context(), c)
		require.NoError(t, err)
		blobtest.TestBackend(t, func(*testing.T) blob.Backend { return b })
		_, err = blob.ProveWORM(t.Context(), c)
		require.ErrorIs(t, err, blob.ErrNoProof)

		c.Prefix = "elsewhere/"
		_, err = blob.OpenBucket(t.Context(), c)
		assert.ErrorContains(t, err, "cannot be put", "outside the prefix")
	})
}

func policy(t *testing.T, bucket string) string {
	t.Helper()
	text, err := os.ReadFile("../deploy/s3-policy.json")
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "BUCKET", bucket)
}

// TestReadOnlyBucket: an audit changes nothing.
func TestReadOnlyBucket(t *testing.T) {
	s := blobtest.MinIO(t)
	b, c := open(t, s)
	loc, _ := put(t, b, content(100), inMonths(18))
	c.ReadOnly = true
	reader, err := blob.OpenBucket(t.Context(), c)
	require.NoError(t, err)
	data := content(10)
	_, _, err = reader.Put(t.Context(), chain.Sum(data), bytes.NewReader(data), 10, inMonths(18))
	assert.ErrorIs(t, err, blob.ErrReadOnly)
	_, err = reader.Extend(t.Context(), loc.Ref, inMonths(19))
	assert.ErrorIs(t, err, blob.ErrReadOnly)
	_, err = reader.Hold(t.Context(), loc.Ref, true)
	assert.ErrorIs(t, err, blob.ErrReadOnly)
	at, err := reader.Stat(t.Context(), loc.Ref)
	require.NoError(t, err)
	assert.Equal(t, loc, at)
	plain := c
	plain.Bucket = s.NewPlainBucket(t)
	_, err = blob.OpenBucket(t.Context(), plain)
	assert.NoError(t, err, "what a bucket without lock holds can be read too")
}

func TestBucketSettings(t *testing.T) {
	good := blob.BucketConfig{Endpoint: "https://s3.example.com", Bucket: "bucket", AccessKey: "a", SecretKey: "hunter2secret"}
	for says, spoil := range map[string]func(*blob.BucketConfig){
		"must be a URL":                   func(c *blob.BucketConfig) { c.Endpoint = "s3.example.com" },
		"without path or credentials":     func(c *blob.BucketConfig) { c.Endpoint = "https://user:hunter2secret@s3.example.com" },
		"use https, or allow http":        func(c *blob.BucketConfig) { c.Endpoint = "http://s3.example.com" },
		"S3 bucket: must be a name":       func(c *blob.BucketConfig) { c.Bucket = "Payloads" },
		"must end in a slash":             func(c *blob.BucketConfig) { c.Prefix = "dvir" },
		"not begin with one":              func(c *blob.BucketConfig) { c.Prefix = "/dvir/" },
		"the file cannot be read":         func(c *blob.BucketConfig) { c.AccessKey, c.CredentialsFile = "", "/nowhere/hunter2secret" },
		"there are none":                  func(c *blob.BucketConfig) { c.AccessKey = "" },
		"S3 certificates":                 func(c *blob.BucketConfig) { c.CAFile = "/nowhere" },
		"the file holds no PEM":           func(c *blob.BucketConfig) { c.CAFile = "bucket_test.go" },
		"the S3 server's name cannot be":  func(c *blob.BucketConfig) { c.Endpoint = "https://s3.invalid" },
		"the S3 server refuses connect":   func(c *blob.BucketConfig) { c.Endpoint = "http://127.0.0.1:1" },
		"S3 endpoint: must be a URL such": func(c *blob.BucketConfig) { c.Endpoint = "https://s3.example.com/bucket" },
	} {
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		c := good
		spoil(&c)
		_, err := blob.OpenBucket(t.Context(), c)
		assert.ErrorContains(t, err, says)
		assert.NotContains(t, fmt.Sprint(err), "hunter2secret", says)
	}
}
