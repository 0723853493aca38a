package blob

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/holdfast-dvir/holdfast/chain"
)

// UnfitError reports a bucket that would not keep payloads as promised, with all reasons.
// It wraps ErrUnavailable.
type UnfitError struct {
	Place   string
	Reasons []string
}

func (e *UnfitError) Error() string {
	return fmt.Sprintf("bucket %s cannot keep payloads: %s", e.Place, strings.Join(e.Reasons, "; "))
}

// Unwrap makes it ErrUnavailable.
func (e *UnfitError) Unwrap() error { return ErrUnavailable }

// traits are what the last examination found.
type traits struct {
	mu  sync.Mutex
	all []Trait
}

// Describe implements [Backend].
func (b *Bucket) Describe() Description {
	b.traits.mu.Lock()
	defer b.traits.mu.Unlock()
	return Description{Kind: "s3", Place: b.place(), Traits: b.traits.all}
}

// Clocks that differ by more make signatures fail and retention dates doubtful.
const (
	suspectSkew = 5 * time.Second
	worstSkew   = time.Minute
)

// Examine finds out whether the bucket keeps what is put: it exists, has versions and
// Object Lock, its clock agrees, and a locked object comes back locked, and encrypted if
// that is demanded. Puts are refused until an examination finds no fault. It leaves one
// object, which does not grow. Errors: *UnfitError, ErrUnavailable.
func (b *Bucket) Examine(ctx context.Context) error {
	e := examination{b: b}
	err := e.run(ctx)
	if err == nil && len(e.reasons) > 0 {
		err = &UnfitError{b.place(), e.reasons}
	}
	if err != nil && !errors.Is(err, ErrUnavailable) {
		return err // of the caller's
	}
	b.health.examined(err)
	if err == nil || errors.As(err, new(*UnfitError)) {
		b.traits.mu.Lock()
		defer b.traits.mu.Unlock()
		b.traits.all = e.traits
	}
	return err
}

// examination gathers why a bucket is unfit, and what is worth knowing of one that is fit.
type examination struct {
	b       *Bucket
	reasons []string
	traits  []Trait
}

// run asks in this order, since some servers answer for a bucket that does not exist as if
// it had no lock. Only an error that leaves the question open ends it.
func (e *examination) run(ctx context.Context) error {
	questions := []func(context.Context) error{e.exists, e.versions, e.lock, e.clock, e.probe, e.lifecycle}
	if e.b.config.ReadOnly {
		questions = questions[:1]
	}
	for _, question := range questions {
		if err := question(ctx); err != nil {
			return err
		}
		if len(e.reasons) > 0 {
			return nil
		}
	}
	e.transport()
	return nil
}

func (e *examination) refuse(reason string) { e.reasons = append(e.reasons, reason) }

func (e *examination) note(name string, ok bool, note string) {
	e.traits = append(e.traits, Trait{name, ok, note})
}

// settings asks for a setting of the bucket; a refusal to tell is a reason.
func (e *examination) settings(ctx context.Context, action string, ask func(context.Context) error) (answered bool, err error) {
	err = worded(ctx, e.b.insist(ctx, ask))
	var refused *RefusedError
	if errors.As(err, &refused) {
		e.refusedBy(refused, "the credentials do not allow "+action)
		return false, nil
	}
	return err == nil, err
}

// refusedBy makes a refusal a reason. Clocks that differ come first: they make signatures fail.
func (e *examination) refusedBy(r *RefusedError, reason string) {
	by := e.b.clock.ahead().Round(time.Second)
	if r.Code == clockCode || by.Abs() > worstSkew {
		e.clocks(by)
	}
	if r.Code != clockCode {
		e.refuse(fmt.Sprintf("%s (%d %s)", reason, r.Status, r.Code))
	}
}

func (e *examination) clocks(by time.Duration) {
	e.refuse(fmt.Sprintf("its server's clock differs from this host's by %s; set the clocks", by))
}

func (e *examination) exists(ctx context.Context) error {
	found := false
	_, err := e.settings(ctx, "s3:ListBucket", func(ctx context.Context) (err error) {
		found, err = e.b.client.BucketExists(ctx, e.b.config.Bucket)
		return err
	})
	if err == nil && !found && len(e.reasons) == 0 {
		e.refuse("it does not exist")
	}
	return err
}

func (e *examination) versions(ctx context.Context) error {
	var set minio.BucketVersioningConfiguration
	answered, err := e.settings(ctx, "s3:GetBucketVersioning", func(ctx context.Context) (err error) {
		set, err = e.b.client.GetBucketVersioning(ctx, e.b.config.Bucket)
		return err
	})
	if answered && !set.Enabled() {
		e.refuse("versioning is not enabled, so that stored bytes could be replaced")
	}
	return err
}

func (e *examination) lock(ctx context.Context) error {
	lock := ""
	answered, err := e.settings(ctx, "s3:GetBucketObjectLockConfiguration", func(ctx context.Context) (err error) {
		lock, _, _, _, err = e.b.client.GetObjectLockConfig(ctx, e.b.config.Bucket)
		return err
	})
	if errors.Is(err, ErrNotFound) {
		answered, err = true, nil
	}
	if answered && lock != "Enabled" {
		e.refuse("Object Lock is not enabled; it can be set when a bucket is created")
	}
	return err
}

func (e *examination) clock(context.Context) error {
	by := e.b.clock.ahead().Round(time.Second)
	switch {
	case by.Abs() > worstSkew:
		e.clocks(by)
	default:
		e.note("clock", by.Abs() <= suspectSkew, fmt.Sprintf("the server's clock is ahead by %s", by))
	}
	return nil
}

// probe puts the same object twice on the condition that it is not there, and looks at it.
// An object that is older than a setting of the bucket, or covered, is put once more: what
// counts is what becomes of a put now.
func (e *examination) probe(ctx context.Context) error {
	o := e.b.probe(time.Now().Add(24 * time.Hour))
	taken := false
	for n := 0; n < 2 && !taken; n++ {
		err := e.put(ctx, o, true)
		if taken = judge(ctx, err) == present; err != nil && !taken {
			return e.unputtable(ctx, err)
		}
	}
	e.note("conditional puts", taken, "If-None-Match: * is "+either(taken, "kept", "ignored: the same bytes put at once take their space twice"))
	info, err := e.look(ctx, o)
	if err == nil && (e.b.config.RequireEncryption || len(e.flaws(info)) > 0) { // encryption can have been switched off
		if err := e.put(ctx, o, false); err != nil {
			return e.unputtable(ctx, err)
		}
		info, err = e.look(ctx, o)
	}
	if err == nil {
		e.reasons = append(e.reasons, e.flaws(info)...)
		sse := info.Headers.Get(encryptionHeader)
		e.note("encryption", sse != "", "at rest by the server: "+cmp.Or(sse, "none"))
	}
	return err
}

const (
	encryptionHeader = "X-Amz-Server-Side-Encryption"
	notEncrypted     = "what is put is not encrypted; set a default encryption for the bucket"
)

// probe is the object of the examination, outside the payloads' keys.
func (b *Bucket) probe(until time.Time) object {
	text := []byte("holdfast looks whether objects can be locked here\n")
	return object{b.config.Prefix + "worm-probe/if-none-match", chain.Sum(text), bytes.NewReader(text), int64(len(text)), ceilSecond(until)}
}

// put sends o as payloads are sent, and again while the server asks for that.
func (e *examination) put(ctx context.Context, o object, free bool) error {
	for n := 0; ; n++ {
		_, err := e.b.send(ctx, o, free)
		if a := judge(ctx, err); a != transient && a != racing || n == tries-1 {
			return err
		}
		if err := backOff(ctx, n); err != nil {
			return err
		}
	}
}

// unputtable makes a refused put a reason.
func (e *examination) unputtable(ctx context.Context, err error) error {
	var refused *RefusedError
	if err := worded(ctx, err); !errors.As(err, &refused) {
		return err
	}
	if refused.Code == "NotEncrypted" {
		e.refuse(notEncrypted)
		return nil
	}
	e.refusedBy(refused, "a locked object cannot be put; the credentials need s3:PutObject and s3:PutObjectRetention")
	return nil
}

// look asks for the headers of o, or none if something hides it.
func (e *examination) look(ctx context.Context, o object) (info minio.ObjectInfo, err error) {
	_, err = e.settings(ctx, "s3:GetObject", func(ctx context.Context) (err error) {
		info, err = e.b.client.StatObject(ctx, e.b.config.Bucket, o.key, minio.StatObjectOptions{})
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return minio.ObjectInfo{}, nil
	}
	return info, err
}

// flaws are the reasons against a bucket that keeps the probe like this.
func (e *examination) flaws(info minio.ObjectInfo) (reasons []string) {
	if locate(Ref{}, info, false).RetainUntil.IsZero() {
		reasons = append(reasons, "a locked object does not come back as locked (COMPLIANCE); the credentials may lack s3:GetObjectRetention")
	}
	if info.Headers.Get(encryptionHeader) == "" && e.b.config.RequireEncryption {
		reasons = append(reasons, notEncrypted)
	}
	return reasons
}

// lifecycle warns of rules: they cannot remove locked versions, but cover them with delete
// markers, and remove them as soon as their retention ends.
func (e *examination) lifecycle(ctx context.Context) error {
	rules := 0
	err := worded(ctx, e.b.insist(ctx, func(ctx context.Context) error {
		set, err := e.b.client.GetBucketLifecycle(ctx, e.b.config.Bucket)
		if err == nil {
			rules = len(set.Rules)
		}
		return err
	}))
	switch {
	case errors.Is(err, ErrNotFound):
	case errors.As(err, new(*RefusedError)):
		e.note("lifecycle", true, "the bucket's lifecycle rules cannot be read with these credentials")
		return nil
	case err != nil:
		return err
	}
	e.note("lifecycle", rules == 0, fmt.Sprintf("%d lifecycle rules", rules))
	return nil
}

func (e *examination) transport() {
	secure := e.b.client.EndpointURL().Scheme == "https"
	e.note("transport", secure || loopback(e.b.client.EndpointURL().Hostname()), either(secure, "TLS", "http, not encrypted"))
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
