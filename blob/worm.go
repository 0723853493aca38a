package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Attempt is one try to get rid of locked bytes, and what came of it.
type Attempt struct {
	Name    string `json:"name"`    // what was tried
	Refused bool   `json:"refused"` // false: it worked, so the bucket does not keep its promise
	Answer  string `json:"answer"`  // of the server, or what was found
}

// ErrNoProof reports credentials that may not even delete what is not locked: that they
// cannot delete locked objects either proves nothing.
var ErrNoProof = errors.New("these credentials may not delete unlocked objects, so a refusal proves nothing; use an administrator's")

// attemptFor is how long the objects of an attack stay locked: long enough for any clock.
const attemptFor = time.Hour

// ProveWORM tries to delete, shorten and uncover locked objects with the credentials of c,
// which should be an administrator's. It works on objects of its own, outside the
// payloads' keys, and leaves one behind that is locked for an hour. Errors: ErrNoProof,
// and those of [OpenBucket].
func ProveWORM(ctx context.Context, c BucketConfig) ([]Attempt, error) {
	b, err := OpenBucket(ctx, c)
	if err != nil {
		return nil, err
	}
	a := attack{b: b, ctx: ctx}
	if err := a.control(); err != nil {
		return nil, err
	}
	locked, err := a.lay("locked", minio.PutObjectOptions{Mode: minio.Compliance, RetainUntilDate: a.until})
	if err != nil {
		return nil, err
	}
	held, err := a.lay("held", minio.PutObjectOptions{LegalHold: minio.LegalHoldEnabled})
	if err != nil {
		return nil, err
	}
	for _, try := range a.tries(locked, held) {
		if err := a.try(try); err != nil {
			return a.attempts, err
		}
	}
	a.tidy(held)
	return a.attempts, nil
}

// attack is a run of attempts.
type attack struct {
	b        *Bucket
	ctx      context.Context
	until    time.Time
	attempts []Attempt
}

// target is an object laid out for an attack.
type target struct {
	key, version string
	sum          chain.Digest
}

// control makes sure that a refusal means something: an object that only GOVERNANCE
// protects can be deleted by whoever may bypass it.
func (a *attack) control() error {
	a.until = time.Now().Add(attemptFor).UTC().Truncate(time.Second)
	t, err := a.lay("control", minio.PutObjectOptions{Mode: minio.Governance, RetainUntilDate: a.until})
	if err != nil {
		return err
	}
	err = a.remove(t, true)
	if errors.As(worded(a.ctx, err), new(*RefusedError)) {
		return ErrNoProof
	}
	return worded(a.ctx, err)
}

// lay puts an object to be attacked.
func (a *attack) lay(name string, o minio.PutObjectOptions) (target, error) {
	var id [8]byte
	rand.Read(id[:])
	text := []byte("holdfast tries to get rid of this object: " + hex.EncodeToString(id[:]) + "\n")
	t := target{key: a.b.config.Prefix + "worm-probe/" + name + "-" + hex.EncodeToString(id[:]), sum: chain.Sum(text)}
	o.DisableContentSha256, o.ContentType = true, "text/plain"
	err := a.b.once(a.ctx, 0, func(ctx context.Context) error {
		info, err := a.b.core.PutObject(ctx, a.b.config.Bucket, t.key, bytes.NewReader(text), int64(len(text)), "", t.sum.String(), o)
		t.version = info.VersionID
		return err
	})
	return t, worded(a.ctx, err)
}

func (a *attack) remove(t target, bypass bool) error {
	return a.b.client.RemoveObject(a.ctx, a.b.config.Bucket, t.key, minio.RemoveObjectOptions{VersionID: t.version, GovernanceBypass: bypass})
}

// try is one attempt: what it does, and, where success is no breach by itself, how it shows.
type try struct {
	name string
	do   func() error
	then func() error // undoes what should not have worked
}

func (a *attack) tries(locked, held target) []try {
	return []try{
		{"delete the locked version", func() error { return a.remove(locked, false) }, nil},
		{"delete it, bypassing governance", func() error { return a.remove(locked, true) }, nil},
		{"delete it in a multi-object request", func() error { return a.removeMany(locked) }, nil},
		{"shorten its retention", func() error { return a.retain(locked, minio.Compliance, a.until.Add(-attemptFor/2), false) }, nil},
		{"shorten it, bypassing governance", func() error { return a.retain(locked, minio.Compliance, a.until.Add(-attemptFor/2), true) }, nil},
		{"turn COMPLIANCE into GOVERNANCE", func() error { return a.retain(locked, minio.Governance, a.until, true) }, nil},
		{"take its retention away", func() error { return a.release(locked) }, nil},
		{"suspend versioning", func() error { return a.b.client.SuspendVersioning(a.ctx, a.b.config.Bucket) },
			func() error { return a.b.client.EnableVersioning(a.ctx, a.b.config.Bucket) }},
		{"destroy its bytes by writing over it", func() error { return a.cover(locked) }, nil},
		{"destroy its bytes by a delete marker", func() error { return a.mark(locked) }, nil},
		{"delete an object under legal hold", func() error { return a.remove(held, true) }, nil},
	}
}

// try notes what came of an attempt. Without an answer there is nothing to note.
func (a *attack) try(t try) error {
	err := t.do()
	switch judge(a.ctx, err) {
	case unknown, cancelled:
		return worded(a.ctx, err)
	case done:
		a.attempts = append(a.attempts, Attempt{t.name, false, "it was done"})
		if t.then != nil {
			return worded(a.ctx, t.then())
		}
	case absent, present, racing, transient, corrupted, full, refused:
		e := response(err)
		a.attempts = append(a.attempts, Attempt{t.name, true, fmt.Sprintf("%d %s", e.Status, e.Code)})
	}
	return nil
}

func (a *attack) removeMany(t target) error {
	one := make(chan minio.ObjectInfo, 1)
	one <- minio.ObjectInfo{Key: t.key, VersionID: t.version}
	close(one)
	for e := range a.b.client.RemoveObjects(a.ctx, a.b.config.Bucket, one, minio.RemoveObjectsOptions{GovernanceBypass: true}) {
		if e.Err != nil {
			return unanswered(e.Err)
		}
	}
	return nil
}

// unanswered gives a refusal inside a multi-object answer the status that it lacks.
func unanswered(err error) error {
	var e minio.ErrorResponse
	if errors.As(err, &e) && e.StatusCode == 0 && e.Code != "" {
		e.StatusCode = 403
		return e
	}
	return err
}

func (a *attack) retain(t target, mode minio.RetentionMode, until time.Time, bypass bool) error {
	return a.b.client.PutObjectRetention(a.ctx, a.b.config.Bucket, t.key,
		minio.PutObjectRetentionOptions{Mode: &mode, RetainUntilDate: &until, VersionID: t.version, GovernanceBypass: bypass})
}

func (a *attack) release(t target) error {
	return a.b.client.PutObjectRetention(a.ctx, a.b.config.Bucket, t.key,
		minio.PutObjectRetentionOptions{VersionID: t.version, GovernanceBypass: true})
}

// cover and mark may succeed: what counts is that the version is still there.
func (a *attack) cover(t target) error {
	other := target{key: t.key}
	text := []byte("something else\n")
	err := a.b.once(a.ctx, 0, func(ctx context.Context) error {
		_, err := a.b.core.PutObject(ctx, a.b.config.Bucket, other.key, bytes.NewReader(text), int64(len(text)), "", "", minio.PutObjectOptions{})
		return err
	})
	if was := judge(a.ctx, err); was == unknown || was == cancelled {
		return err
	}
	return a.intact(t)
}

func (a *attack) mark(t target) error {
	err := a.b.client.RemoveObject(a.ctx, a.b.config.Bucket, t.key, minio.RemoveObjectOptions{})
	if was := judge(a.ctx, err); was == unknown || was == cancelled {
		return err
	}
	return a.intact(t)
}

// intact is a refusal, in the words of the server's, if the version of t still has its bytes.
func (a *attack) intact(t target) error {
	body, _, _, err := a.b.core.GetObject(a.ctx, a.b.config.Bucket, t.key, minio.GetObjectOptions{VersionID: t.version})
	if err != nil {
		if judge(a.ctx, err) == absent {
			return nil // gone
		}
		return err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, 1<<10))
	if err != nil {
		return err
	}
	if chain.Sum(data) != t.sum {
		return nil
	}
	return minio.ErrorResponse{StatusCode: 200, Code: "StillThere"}
}

// tidy removes what only a legal hold protected. What fails stays, and does no harm.
func (a *attack) tidy(t target) {
	off := minio.LegalHoldDisabled
	if a.b.client.PutObjectLegalHold(a.ctx, a.b.config.Bucket, t.key, minio.PutObjectLegalHoldOptions{Status: &off, VersionID: t.version}) == nil {
		_ = a.remove(t, true)
	}
}
