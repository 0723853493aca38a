package blobtest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
)

// Server is a real S3 server that runs for one test, in a folder of its own.
type Server struct {
	Kind      string // minio, versitygw
	URL       string
	AccessKey string // of root
	SecretKey string
	CAFile    string // of a server with TLS

	folder  string
	address string
	command func() *exec.Cmd
	running *running
}

// MinIO starts a MinIO server. Without the binary that ".ci/run tools" builds, the test is
// skipped, or fails where the servers are required.
func MinIO(t testing.TB) *Server {
	t.Helper()
	return newServer(t, "minio").minio(t)
}

// MinIOWithTLS is MinIO behind a certificate that only CAFile vouches for.
func MinIOWithTLS(t testing.TB) *Server {
	t.Helper()
	s := newServer(t, "minio")
	certs := filepath.Join(s.folder, "certs")
	require.NoError(t, os.MkdirAll(certs, 0o700))
	s.URL, s.CAFile = "https://"+s.address, filepath.Join(certs, "public.crt")
	certify(t, s.CAFile, filepath.Join(certs, "private.key"))
	return s.minio(t, "--certs-dir", certs)
}

// minio starts s as a MinIO server with a key for encryption at rest.
func (s *Server) minio(t testing.TB, flags ...string) *Server {
	t.Helper()
	var key [32]byte
	rand.Read(key[:])
	s.command = func() *exec.Cmd {
		args := append([]string{"server", "--quiet", "--address", s.address}, flags...)
		cmd := exec.Command(tool(t, "minio"), append(args, filepath.Join(s.folder, "data"))...)
		cmd.Env = append(os.Environ(), "HOME="+s.folder, "MINIO_ROOT_USER="+s.AccessKey, "MINIO_ROOT_PASSWORD="+s.SecretKey,
			"MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_CALLHOME_ENABLE=off",
			"MINIO_KMS_SECRET_KEY=test-key:"+base64.StdEncoding.EncodeToString(key[:]))
		return cmd
	}
	s.Start(t)
	return s
}

// VersityGW starts a Versity S3 gateway over a folder. It keeps objects as plain files,
// which a test can change behind its back, and differs from S3 in many ways.
func VersityGW(t testing.TB) *Server {
	t.Helper()
	s := newServer(t, "versitygw")
	for _, dir := range []string{"root", "versions", "iam"} {
		require.NoError(t, os.Mkdir(filepath.Join(s.folder, dir), 0o700))
	}
	s.command = func() *exec.Cmd {
		cmd := exec.Command(tool(t, "versitygw"), "--port", s.address, "--keep-alive", "--quiet", "--iam-dir", filepath.Join(s.folder, "iam"),
			"posix", "--versioning-dir", filepath.Join(s.folder, "versions"), filepath.Join(s.folder, "root"))
		cmd.Env = append(os.Environ(), "HOME="+s.folder, "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
		return cmd
	}
	s.Start(t)
	return s
}

// certify writes a certificate of its own for the loopback address.
func certify(t testing.TB, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// transport trusts the server.
func (s *Server) transport(t testing.TB) *http.Transport {
	t.Helper()
	out := &http.Transport{MaxIdleConnsPerHost: 128}
	if s.CAFile != "" {
		text, err := os.ReadFile(s.CAFile)
		require.NoError(t, err)
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(text)
		out.TLSClientConfig = &tls.Config{RootCAs: trusted}
	}
	return out
}

func newServer(t testing.TB, kind string) *Server {
	t.Helper()
	tool(t, kind)
	s := &Server{Kind: kind, AccessKey: "rootkey", SecretKey: "root-" + random16(), folder: t.TempDir(), address: freeAddress(t)}
	s.URL = "http://" + s.address
	return s
}

// tool is the path of a server's binary.
func tool(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(moduleRoot(t), ".tools", "bin", name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if os.Getenv("HOLDFAST_REQUIRE_SERVERS") != "" {
		t.Fatalf("%s is required and not built: run .ci/run tools", name)
	}
	t.Skipf("NOT TESTED on a real %s: it is not built; .ci/run tools builds it", name)
	return ""
}

// moduleRoot is the folder of the module that the test belongs to.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the working directory")
	return ""
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func random16() string {
	var id [8]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// running is a server's process.
type running struct {
	process *os.Process
	ended   chan struct{}
}

// OnServers runs a test against each real server.
func OnServers(t *testing.T, run func(t *testing.T, s *Server)) {
	for name, start := range map[string]func(testing.TB) *Server{"MinIO": MinIO, "VersityGW": VersityGW} {
		t.Run(name, func(t *testing.T) { run(t, start(t)) })
	}
}

// Start starts the server, again after Kill: at the same address, on the same folder.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	again := s.running != nil
	err := s.start(t)
	for tries := 1; err != nil && tries < 3 && !again; tries++ { // somebody may have taken the address since it was free
		was := s.address
		s.address = freeAddress(t)
		s.URL = strings.Replace(s.URL, was, s.address, 1)
		err = s.start(t)
	}
	require.NoError(t, err, "%s did not start", s.Kind)
}

func (s *Server) start(t testing.TB) error {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer log.Close()
	cmd := s.command()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r := &running{ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the death signal comes when the thread that started the process ends
		err := cmd.Start()
		r.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(r.ended)
	}()
	require.NoError(t, <-started)
	s.running = r
	t.Cleanup(r.kill)
	if err := s.awaitReady(t, r); err != nil {
		r.kill()
		return err
	}
	return nil
}

func (r *running) kill() {
	_ = r.process.Kill()
	<-r.ended
}

// awaitReady asks with the key of root: another server at the address does not know it.
func (s *Server) awaitReady(t testing.TB, r *running) error {
	t.Helper()
	c := s.client(t, 1)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		select {
		case <-r.ended:
			text, _ := os.ReadFile(filepath.Join(s.folder, "log"))
			return fmt.Errorf("it ended: %s", text)
		case <-time.After(20 * time.Millisecond):
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := c.ListBuckets(ctx)
		cancel()
		if err == nil {
			return nil
		}
	}
	return context.DeadlineExceeded
}

// Kill ends the server as a power switch would.
func (s *Server) Kill() { s.running.kill() }

// Pause makes the server a black hole, which takes connections and never answers, until
// Resume.
func (s *Server) Pause() { _ = s.running.process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { _ = s.running.process.Signal(syscall.SIGCONT) }

// Client talks to the server as root, behind the back of what is tested.
func (s *Server) Client(t testing.TB) *minio.Client {
	t.Helper()
	return s.client(t, minio.MaxRetry)
}

func (s *Server) client(t testing.TB, tries int) *minio.Client {
	t.Helper()
	c, err := minio.New(s.address, &minio.Options{Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Region: "us-east-1", MaxRetries: tries,
		Secure: s.CAFile != "", Transport: s.transport(t)})
	require.NoError(t, err)
	return c
}

// NewBucket makes a bucket with Object Lock and without a default retention.
func (s *Server) NewBucket(t testing.TB) string {
	t.Helper()
	return s.newBucket(t, minio.MakeBucketOptions{ObjectLocking: true})
}

// NewPlainBucket makes a bucket without Object Lock.
func (s *Server) NewPlainBucket(t testing.TB) string {
	t.Helper()
	return s.newBucket(t, minio.MakeBucketOptions{})
}

func (s *Server) newBucket(t testing.TB, o minio.MakeBucketOptions) string {
	t.Helper()
	name := "holdfast-" + random16()
	require.NoError(t, s.Client(t).MakeBucket(t.Context(), name, o))
	return name
}

// Config reaches a bucket of the server as root.
func (s *Server) Config(bucket string) blob.BucketConfig {
	return blob.BucketConfig{Endpoint: s.URL, Bucket: bucket, AccessKey: s.AccessKey, SecretKey: s.SecretKey, CAFile: s.CAFile}
}

// Restricted reaches a bucket with credentials that are allowed what policy says, and
// nothing else.
func (s *Server) Restricted(t testing.TB, bucket, policy string) blob.BucketConfig {
	t.Helper()
	c := s.Config(bucket)
	if s.Kind == "minio" {
		keys, err := credentials.NewSTSAssumeRole(s.URL, credentials.STSAssumeRoleOptions{AccessKey: s.AccessKey, SecretKey: s.SecretKey, Policy: policy})
		require.NoError(t, err)
		v, err := keys.GetWithContext(&credentials.CredContext{Client: http.DefaultClient, Endpoint: s.URL})
		require.NoError(t, err)
		c.AccessKey, c.SecretKey, c.SessionToken = v.AccessKeyID, v.SecretAccessKey, v.SessionToken
		return c
	}
	c.AccessKey, c.SecretKey = "app-"+random16(), "secret-"+random16()
	out, err := exec.Command(tool(t, s.Kind), "admin", "-a", s.AccessKey, "-s", s.SecretKey, "--er", s.URL,
		"create-user", "--access", c.AccessKey, "--secret", c.SecretKey, "--role", "user").CombinedOutput()
	require.NoError(t, err, "%s", out)
	policy = strings.ReplaceAll(policy, `"Effect"`, fmt.Sprintf(`"Principal":{"AWS":[%q]},"Effect"`, c.AccessKey))
	require.NoError(t, s.Client(t).SetBucketPolicy(t.Context(), bucket, policy))
	return c
}

// Flags reach a bucket from the command line.
func Flags(t testing.TB, c blob.BucketConfig) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "credentials")
	text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", c.AccessKey, c.SecretKey)
	if c.SessionToken != "" {
		text += "aws_session_token = " + c.SessionToken + "\n"
	}
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return []string{"--s3-endpoint", c.Endpoint, "--s3-bucket", c.Bucket, "--s3-credentials", file}
}

// BarePut is a conditional locked put and nothing else, for comparison.
func (s *Server) BarePut(t testing.TB, bucket string) func(ctx context.Context, data []byte) error {
	t.Helper()
	core := minio.Core{Client: s.Client(t)}
	return func(ctx context.Context, data []byte) error {
		sum := sha256.Sum256(data)
		name := hex.EncodeToString(sum[:])
		o := minio.PutObjectOptions{Mode: minio.Compliance, RetainUntilDate: time.Now().AddDate(1, 6, 0), DisableContentSha256: true}
		o.SetMatchETagExcept("*")
		_, err := core.PutObject(ctx, bucket, "bare/"+name, bytes.NewReader(data), int64(len(data)), "", name, o)
		return err
	}
}

// Folder is where the server keeps its data. Versity's has the objects as files, as
// root/<bucket>/<key>.
func (s *Server) Folder() string { return s.folder }
