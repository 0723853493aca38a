package blob

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
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
// ErrReadOnly, and those of [OpenBucket].
func ProveWORM(ctx context.Context, c BucketConfig) ([]Attempt, error) {
	if c.ReadOnly {
		return nil, ErrReadOnly
	}
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
	defer a.tidy(held)
	for _, try := range a.tries(locked, held) {
		if err := a.try(try); err != nil {
			return a.attempts, err
		}
	}
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
	err = a.b.once(a.ctx, 0, func(ctx context.Context) error { return a.remove(ctx, t, true) })
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

// try is one attempt.
type try struct {
	name string
	do   func(context.Context) error
	undo func(context.Context) error // what should not have worked, or may have
}

func (a *attack) tries(locked, held target) []try {
	sooner := a.until.Add(-attemptFor / 2)
	retain := func(mode minio.RetentionMode, until time.Time, bypass bool) func(context.Context) error {
		return func(ctx context.Context) error {
			return a.retain(ctx, locked, minio.PutObjectRetentionOptions{Mode: &mode, RetainUntilDate: &until, GovernanceBypass: bypass})
		}
	}
	return []try{
		{"delete the locked version", func(ctx context.Context) error { return a.remove(ctx, locked, false) }, nil},
		{"delete it, bypassing governance", func(ctx context.Context) error { return a.remove(ctx, locked, true) }, nil},
		{"delete it in a multi-object request", func(ctx context.Context) error { return a.removeMany(ctx, locked) }, nil},
		{"shorten its retention", retain(minio.Compliance, sooner, false), nil},
		{"shorten it, bypassing governance", retain(minio.Compliance, sooner, true), nil},
		{"turn COMPLIANCE into GOVERNANCE", retain(minio.Governance, a.until, true), nil},
		{"take its retention away", func(ctx context.Context) error {
			return a.retain(ctx, locked, minio.PutObjectRetentionOptions{GovernanceBypass: true})
		}, nil},
		{"suspend versioning", func(ctx context.Context) error { return a.b.client.SuspendVersioning(ctx, a.b.config.Bucket) },
			func(ctx context.Context) error { return a.b.client.EnableVersioning(ctx, a.b.config.Bucket) }},
		{"destroy its bytes by writing over it", func(ctx context.Context) error { return a.cover(ctx, locked) }, nil},
		{"destroy its bytes by a delete marker", func(ctx context.Context) error { return a.mark(ctx, locked) }, nil},
		{"delete an object under legal hold", func(ctx context.Context) error { return a.remove(ctx, held, true) }, nil},
		{"weaken the locks behind a refusal", func(ctx context.Context) error { return a.unchanged(ctx, locked, held) }, nil},
	}
}

// try notes what came of an attempt. What is neither done nor refused proves nothing, and ends the attack.
func (a *attack) try(t try) error {
	err := a.b.once(a.ctx, 0, t.do)
	was := judge(a.ctx, err)
	if t.undo != nil && was != refused {
		if err := a.b.once(context.WithoutCancel(a.ctx), 0, t.undo); err != nil {
			return worded(a.ctx, err)
		}
	}
	switch was {
	case done, absent:
		a.attempts = append(a.attempts, Attempt{t.name, false, either(was == done, "it was done", "it is gone")})
	case refused:
		e := response(err)
		if e.Status == http.StatusNotImplemented { // nobody was refused anything
			return e
		}
		a.attempts = append(a.attempts, Attempt{t.name, true, fmt.Sprintf("%d %s", e.Status, e.Code)})
	case present, racing, unknown, transient, corrupted, full, oversize, cancelled:
		return worded(a.ctx, err)
	}
	return nil
}

func (a *attack) remove(ctx context.Context, t target, bypass bool) error {
	return a.b.client.RemoveObject(ctx, a.b.config.Bucket, t.key, minio.RemoveObjectOptions{VersionID: t.version, GovernanceBypass: bypass})
}

func (a *attack) removeMany(ctx context.Context, t target) error {
	one := make(chan minio.ObjectInfo, 1)
	one <- minio.ObjectInfo{Key: t.key, VersionID: t.version}
	close(one)
	var refusal error
	for e := range a.b.client.RemoveObjects(ctx, a.b.config.Bucket, one, minio.RemoveObjectsOptions{GovernanceBypass: true}) {
		refusal = cmp.Or(refusal, e.Err) // to the end: the library's goroutine waits
	}
	return unanswered(refusal)
}

// unanswered gives a refusal inside a multi-object answer the status that it lacks.
func unanswered(err error) error {
	var e minio.ErrorResponse
	if errors.As(err, &e) && e.StatusCode == 0 && e.Code != "" {
		e.StatusCode = http.StatusForbidden
		return e
	}
	return err
}

func (a *attack) retain(ctx context.Context, t target, o minio.PutObjectRetentionOptions) error {
	o.VersionID = t.version
	return a.b.client.PutObjectRetention(ctx, a.b.config.Bucket, t.key, o)
}

// cover and mark may succeed, and must have an answer: what counts is that the version is still there.
func (a *attack) cover(ctx context.Context, t target) error {
	text := []byte("something else\n")
	_, err := a.b.core.PutObject(ctx, a.b.config.Bucket, t.key, bytes.NewReader(text), int64(len(text)), "", "", minio.PutObjectOptions{})
	return a.intact(ctx, t, err)
}

func (a *attack) mark(ctx context.Context, t target) error {
	err := a.b.client.RemoveObject(ctx, a.b.config.Bucket, t.key, minio.RemoveObjectOptions{})
	return a.intact(ctx, t, err)
}

// intact is a refusal, in the words of the server's, if the version of t still has its bytes after what ended in err.
func (a *attack) intact(ctx context.Context, t target, err error) error {
	if was := judge(ctx, err); was != done && was != refused {
		return err
	}
	body, _, _, err := a.b.core.GetObject(ctx, a.b.config.Bucket, t.key, minio.GetObjectOptions{VersionID: t.version})
	if err != nil {
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
	return minio.ErrorResponse{StatusCode: http.StatusOK, Code: "StillThere"}
}

// unchanged is a refusal if the locks are what they were when the objects were laid out.
func (a *attack) unchanged(ctx context.Context, locked, held target) error {
	mode, until, err := a.b.client.GetObjectRetention(ctx, a.b.config.Bucket, locked.key, locked.version)
	if err != nil {
		return err
	}
	hold, err := a.b.client.GetObjectLegalHold(ctx, a.b.config.Bucket, held.key, minio.GetObjectLegalHoldOptions{VersionID: held.version})
	if err != nil {
		return err
	}
	if mode == nil || *mode != minio.Compliance || until == nil || until.Before(a.until) || hold == nil || *hold != minio.LegalHoldEnabled {
		return nil
	}
	return minio.ErrorResponse{StatusCode: http.StatusOK, Code: "Unchanged"}
}

// tidy removes what only a legal hold protected. What fails stays, and does no harm.
func (a *attack) tidy(t target) {
	off := minio.LegalHoldDisabled
	_ = a.b.once(a.ctx, 0, func(ctx context.Context) error {
		err := a.b.client.PutObjectLegalHold(ctx, a.b.config.Bucket, t.key, minio.PutObjectLegalHoldOptions{Status: &off, VersionID: t.version})
		if err == nil {
			err = a.remove(ctx, t, true)
		}
		return err
	})
}
