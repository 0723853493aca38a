package blob

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/holdfast-dvir/holdfast/chain"
)

// BucketConfig says which bucket keeps the payloads, and how it is reached.
type BucketConfig struct {
	Endpoint  string // URL of the service: https://s3.eu-central-1.amazonaws.com
	Bucket    string
	Region    string // empty: us-east-1
	Prefix    string // of every key; empty, or ends in a slash
	PathStyle bool   // the bucket's name in the path also where the host could hold it

	// Keys come from the fields, else from CredentialsFile (the format of
	// ~/.aws/credentials, its profile AWS_PROFILE or default), else from the variables
	// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
	AccessKey, SecretKey, SessionToken string
	CredentialsFile                    string

	CAFile            string // PEM certificates to trust beside the system's
	AllowHTTP         bool   // without TLS also beyond this host
	RequireEncryption bool   // refuse a bucket that does not encrypt what is put
	ReadOnly          bool   // puts nothing, and takes a bucket of any kind: for an audit

	Timeout time.Duration                             // of one request, besides the time its bytes take; 0 is 15 seconds
	Wrap    func(http.RoundTripper) http.RoundTripper // around the connection, for tests
}

// Bucket is the backend for S3 with Object Lock: AWS S3, MinIO and others that keep
// their promises. The package documentation tells what it asks of them.
type Bucket struct {
	config    BucketConfig
	client    *minio.Client
	core      minio.Core
	clock     *skew
	extending chan struct{} // holds one while a date is extended
	health    health
	traits    traits
}

var (
	_ Backend = (*Bucket)(nil)
	_ Monitor = (*Bucket)(nil)
)

// OpenBucket connects and examines the bucket. Errors: *UnfitError for a bucket that
// would not keep payloads, ErrUnavailable if nothing answers, others for settings. Beside
// ErrUnavailable, the bucket can be used for reading; it takes payloads once [Bucket.Watch]
// or [Bucket.Examine] finds it fit.
func OpenBucket(ctx context.Context, c BucketConfig) (*Bucket, error) {
	b, err := newBucket(c)
	if err != nil {
		return nil, err
	}
	return b, b.Examine(ctx)
}

var errUnexamined = fmt.Errorf("%w: the bucket has not been examined yet", ErrUnavailable)

const (
	defaultTimeout = 15 * time.Second
	dialTimeout    = 5 * time.Second
	idleTimeout    = 90 * time.Second
	maxIdle        = 128       // connections kept for the next burst of senders
	slowest        = 256 << 10 // bytes per second that a transfer must reach
)

// newBucket checks the settings and makes the client; nothing is sent.
func newBucket(c BucketConfig) (*Bucket, error) {
	c.Timeout, c.Region = cmp.Or(c.Timeout, defaultTimeout), cmp.Or(c.Region, "us-east-1")
	endpoint, err := c.validate()
	if err != nil {
		return nil, err
	}
	keys, err := c.keys()
	if err != nil {
		return nil, err
	}
	b := &Bucket{config: c, clock: &skew{}, extending: make(chan struct{}, 1)}
	b.health.unfit.failed(errUnexamined, true)
	through, err := c.transport()
	if err != nil {
		return nil, err
	}
	if c.Wrap != nil {
		through = c.Wrap(through)
	}
	b.clock.next = through
	lookup := minio.BucketLookupAuto
	if c.PathStyle {
		lookup = minio.BucketLookupPath
	}
	b.client, err = minio.New(endpoint.Host, &minio.Options{Creds: keys, Secure: endpoint.Scheme == "https",
		Transport: b.clock, Region: c.Region, BucketLookup: lookup, MaxRetries: 1}) // retries are ours, see ask
	if err != nil {
		return nil, errors.New("S3 endpoint: must be the URL of an S3 service, without a path")
	}
	b.core = minio.Core{Client: b.client}
	return b, nil
}

// validate checks what can be checked without sending anything.
func (c *BucketConfig) validate() (*url.URL, error) {
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.User != nil:
		return nil, errors.New("S3 endpoint: must be a URL such as https://s3.eu-central-1.amazonaws.com, without path or credentials")
	case u.Scheme == "http" && !c.AllowHTTP && !loopback(u.Hostname()):
		return nil, errors.New("S3 endpoint: http would send payloads unencrypted over the network; use https, or allow http")
	case s3utils.CheckValidBucketNameStrict(c.Bucket) != nil:
		return nil, errors.New("S3 bucket: must be a name of 3 to 63 lower-case letters, digits, dots and hyphens")
	case c.Prefix != "" && (!strings.HasSuffix(c.Prefix, "/") || strings.HasPrefix(c.Prefix, "/") || strings.Contains(c.Prefix, "//")):
		return nil, errors.New("S3 prefix: must end in a slash and not begin with one, such as dvir/")
	}
	return u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// keys finds the credentials; what the file or the environment says is asked for once.
func (c *BucketConfig) keys() (*credentials.Credentials, error) {
	keys := credentials.NewStaticV4(c.AccessKey, c.SecretKey, c.SessionToken)
	switch {
	case c.AccessKey != "":
	case c.CredentialsFile != "":
		keys = credentials.NewFileAWSCredentials(c.CredentialsFile, "")
	default:
		keys = credentials.NewEnvAWS()
	}
	value, err := keys.GetWithContext(&credentials.CredContext{Client: http.DefaultClient})
	switch {
	case err != nil && c.CredentialsFile != "":
		return nil, errors.New("S3 credentials: the file cannot be read, or has no such profile with aws_access_key_id and aws_secret_access_key")
	case err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "":
		return nil, errors.New("S3 credentials: there are none; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a credentials file")
	}
	return keys, nil
}

func (c *BucketConfig) transport() (http.RoundTripper, error) {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: min(dialTimeout, c.Timeout), KeepAlive: idleTimeout}).DialContext,
		TLSHandshakeTimeout:   c.Timeout,
		ResponseHeaderTimeout: c.Timeout,
		IdleConnTimeout:       idleTimeout,
		MaxIdleConns:          maxIdle,
		MaxIdleConnsPerHost:   maxIdle,
		DisableCompression:    true,
	}
	if c.CAFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("S3 certificates: %w", err)
	}
	trusted, err := x509.SystemCertPool()
	if err != nil {
		trusted = x509.NewCertPool()
	}
	if !trusted.AppendCertsFromPEM(pem) {
		return nil, errors.New("S3 certificates: the file holds no PEM certificate")
	}
	t.TLSClientConfig = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	return t, nil
}

// key of the bytes with this digest.
func (b *Bucket) key(d chain.Digest) string { return b.keys(d.String()) }

// keys is the beginning of the keys of all digests that begin with prefix: the first two
// bytes name folders, as in a [Dir].
func (b *Bucket) keys(prefix string) string {
	key := b.config.Prefix + "sha256/"
	switch {
	case len(prefix) < 2:
		return key + prefix
	case len(prefix) < 4:
		return key + prefix[:2] + "/" + prefix[2:]
	}
	return key + prefix[:2] + "/" + prefix[2:4] + "/" + prefix
}

// digestOf is the digest that a key names.
func (b *Bucket) digestOf(key string) (chain.Digest, bool) {
	d, err := chain.ParseDigest(key[strings.LastIndexByte(key, '/')+1:])
	return d, err == nil && b.key(d) == key
}

// place is the bucket for people.
func (b *Bucket) place() string {
	return b.client.EndpointURL().String() + "/" + b.config.Bucket + "/" + b.config.Prefix
}
