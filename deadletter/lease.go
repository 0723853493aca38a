package deadletter

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// MaxLossesAlone is how often an attempt may vanish, while nothing ran beside it, before its letter is
// quarantined. The first loss is anybody's; from then on the letter runs alone. One loss alone may still be a
// power cut that hit the wrong millisecond, two are evidence.
const MaxLossesAlone = 2

// Job is a letter given to a worker.
type Job struct {
	Letter chain.Letter // as leased; Letter.Lease is set
	LogID  string
}

// Lease gives a due letter to a worker until the deadline: intent first, recorded before anything runs.
// Errors: ErrNotFound, *chain.TransitionError if the letter is not due or somebody has it.
func (q *Queue) Lease(ctx context.Context, ref chain.Digest, worker string, ttl time.Duration) (Job, error) {
	var l chain.Letter
	r, err := q.do(ctx, func(v *view) (e chain.Event, err error) {
		if l, err = v.existing(ref); err != nil {
			return e, err
		}
		now := time.Now()
		return chain.Event{Type: chain.TypeAttempt, At: now, Actor: worker, PayloadRef: ref, Worker: worker,
			Attempt: l.Attempt + 1, LeaseUntil: chain.Instant(now.Add(ttl)), Alone: l.Losses > 0}, nil
	})
	if err != nil {
		return Job{}, err
	}
	l, err = l.Apply(r)
	return Job{Letter: l, LogID: q.logID}, err
}

// Extend moves the deadline of a lease to ttl from now, if that is later than what it has. Errors: ErrStaleLease.
func (q *Queue) Extend(ctx context.Context, j Job, ttl time.Duration) error {
	_, err := q.outcome(ctx, j, func(l chain.Letter, _ *view) (e chain.Event, err error) {
		now := time.Now()
		until := chain.Instant(now.Add(ttl))
		if until.After(l.Lease.Until) {
			e = chain.Event{Type: chain.TypeAttempt, At: now, Actor: l.Lease.Worker, Worker: l.Lease.Worker,
				Attempt: l.Lease.Attempt, LeaseUntil: until}
		}
		return e, nil
	})
	return err
}

// Completion is a payload turned into a record, or found to be none.
type Completion struct {
	Outcome     chain.Outcome // admit, admit_with_warning or ignored
	OutcomeCode string
	Findings    []chain.Finding
	Rules       string // processor and version
	Record      []byte // canonical record; nil when ignored
	// Identity of the report in Record, in pseudonyms. All are zero if it is not known: then the record belongs to this
	// payload alone, and neither duplicates nor contradicts that of another.
	Key     chain.Digest
	Version chain.Digest
	Content chain.Digest
	Unit    chain.Digest
}

// Codes of the identity of reports.
const (
	codeLogical  = "ingest.logical"
	codeConflict = "ingest.conflict"
)

// Complete records that the payload of j was processed: its record is stored, then the letter is resolved. There
// is one record per payload and per report: a letter that has a record keeps it; a report that is in another
// letter already resolves to that record as a duplicate; the same identity and version with other content is a
// conflict and a dead letter, because neither may silently win.
// Errors: ErrStaleLease, errors of the store, ErrUnavailable.
func (q *Queue) Complete(ctx context.Context, j Job, c Completion) (Receipt, error) {
	var ref chain.BlobRef
	if c.Record != nil {
		loc, _, err := q.cfg.Store.PutBytes(ctx, c.Record, time.Now())
		if err != nil {
			return Receipt{}, err
		}
		ref = chain.BlobRef{Ref: loc.Digest, BlobVersion: loc.Version, RetainUntil: chain.Instant(loc.RetainUntil)}
	}
	return q.outcome(ctx, j, func(l chain.Letter, v *view) (chain.Event, error) {
		e := chain.Event{Type: chain.TypeResolved, At: time.Now(), Actor: j.Letter.Lease.Worker,
			Outcome: c.Outcome, OutcomeCode: c.OutcomeCode, Rules: c.Rules}
		e.Findings, e.FindingsTotal = listed(c.Findings)
		if c.Record == nil {
			return e, nil
		}
		e.RecordKey, e.RecordVersion, e.RecordContent, e.UnitKey = c.Key, c.Version, c.Content, c.Unit
		known, exists, err := v.admitted(c.Version)
		switch {
		case err != nil:
			return e, err
		case !l.RecordRef.IsZero():
			e.RecordRef = l.RecordRef
			if exists && known.RecordRef == l.RecordRef && known.PayloadRef != l.Ref {
				e.Outcome, e.OutcomeCode = chain.Duplicate, codeLogical
			}
		case exists && known.PayloadRef != l.Ref && known.Content != c.Content:
			return q.conflict(l, c), nil
		case exists && known.PayloadRef != l.Ref:
			e.Outcome, e.OutcomeCode, e.RecordRef = chain.Duplicate, codeLogical, known.RecordRef
		default:
			e.RecordRef, e.Blobs = ref.Ref, []chain.BlobRef{ref}
		}
		return e, nil
	})
}

// conflict is the dead letter of a report whose identity and version another report has.
func (q *Queue) conflict(l chain.Letter, c Completion) chain.Event {
	return q.failed(l, Breakdown{Stage: chain.StageIngest, Code: codeConflict, Rules: c.Rules,
		Findings: []chain.Finding{{Code: codeConflict}}}, testimony{})
}

// Breakdown is a payload that could not be processed.
type Breakdown struct {
	Stage    chain.Stage
	Code     string // of the closed vocabulary; "" leaves it to the classifier
	Signal   Signal
	Findings []chain.Finding
	Rules    string
	Message  string // raw error text, if there is any
	Summary  string // error summary made of contract words alone, instead of Message
	Crash    string // evidence of a crash attributable to this payload: quarantine
}

// FailJob records that the payload of j could not be processed.
// Errors: ErrStaleLease, errors of the store, ErrUnavailable.
func (q *Queue) FailJob(ctx context.Context, j Job, b Breakdown) (Receipt, error) {
	told, err := q.tell(ctx, j.Letter.Ref, j.Letter.BlobVersion, b.Message)
	if err != nil {
		return Receipt{}, err
	}
	r, err := q.outcome(ctx, j, func(l chain.Letter, _ *view) (chain.Event, error) { return q.failed(l, b, told), nil })
	q.count(r)
	return r, err
}

// failed is the event of a breakdown at letter l, whose lease it ends.
func (q *Queue) failed(l chain.Letter, b Breakdown, told testimony) chain.Event {
	now := time.Now()
	v := q.verdict(b)
	env := &chain.Envelope{PayloadRef: l.Ref, Stage: b.Stage, ErrorClass: v.Class, ErrorCode: v.Code,
		Attempt: l.Lease.Attempt, Replays: l.Replays, FirstSeen: l.FirstSeen, LastError: told.summary,
		Channel: l.Channel, Source: l.Source, Rule: v.Rule, ErrorRef: told.ref}
	if env.LastError == "" {
		env.LastError = summary(b.Summary)
	}
	q.settle(env, l, v, now)
	e := chain.Event{Type: chain.Type(env.Disposition), At: now, Actor: l.Lease.Worker, Envelope: env,
		Blobs: told.blobs(), Rules: b.Rules, Evidence: v.Evidence}
	e.Findings, e.FindingsTotal = listed(b.Findings)
	return e
}

func (q *Queue) verdict(b Breakdown) Verdict {
	switch {
	case b.Crash != "":
		return Verdict{Class: chain.Permanent, Code: string(b.Stage) + ".crash", Rule: RulesVersion + "/crash",
			Poison: true, Evidence: b.Crash}
	case b.Code != "":
		return Verdict{Class: chain.Permanent, Code: b.Code, Rule: b.Rules}
	}
	return q.Classify(b.Stage, b.Signal)
}

// listed cuts findings to what an event may list.
func listed(all []chain.Finding) ([]chain.Finding, uint64) {
	return all[:min(len(all), chain.MaxFindings)], uint64(len(all))
}

// Release gives a letter back without an outcome, at no cost: a graceful shutdown, or a fault of ours.
func (q *Queue) Release(ctx context.Context, j Job) error {
	return q.lost(ctx, j, chain.LostReleased)
}

// Lose records that an attempt ended without an outcome, for which nobody can be blamed: it uses no attempt, and
// the letter runs alone next time. Lost too often alone, it is quarantined.
// cause is chain.LostService or chain.LostWorker; the latter is refused if the lease was extended since leased was read.
// Errors: ErrStaleLease.
func (q *Queue) Lose(ctx context.Context, leased chain.Letter, cause string) error {
	return q.lost(ctx, Job{Letter: leased}, cause)
}

func (q *Queue) lost(ctx context.Context, j Job, cause string) error {
	_, err := q.outcome(ctx, j, func(l chain.Letter, _ *view) (chain.Event, error) {
		if cause == chain.LostWorker && heardOf(l, j.Letter) {
			return chain.Event{}, ErrStaleLease
		}
		if cause != chain.LostReleased && l.Lease.Alone && l.LossesAlone+1 >= MaxLossesAlone {
			return q.failed(l, Breakdown{Stage: chain.StageIngest, Crash: "lost_alone"}, testimony{}), nil
		}
		return chain.Event{Type: chain.TypeAttemptLost, At: time.Now(), Actor: l.Lease.Worker, Reason: cause}, nil
	})
	return err
}

// outcome records what became of an attempt. Whatever is said about a lease that is over changes nothing.
func (q *Queue) outcome(ctx context.Context, j Job, decide func(chain.Letter, *view) (chain.Event, error)) (Receipt, error) {
	if j.Letter.Lease == nil {
		return Receipt{}, ErrStaleLease
	}
	lease := j.Letter.Lease.Seq
	r, err := q.step(ctx, j.Letter.Ref, func(l chain.Letter, v *view) (decision, error) {
		if l.Lease == nil || l.Lease.Seq != lease {
			return decision{}, ErrStaleLease
		}
		e, err := decide(l, v)
		e.Lease = lease
		return decision{event: e}, err
	})
	var refused *chain.TransitionError
	if errors.As(err, &refused) {
		err = errors.Join(ErrStaleLease, err)
	}
	return r, err
}

// Pseudonym stands for an identity in events: it tells equal from different, and cannot be reversed by guessing
// from outside, because the log's random id goes into it.
func (q *Queue) Pseudonym(kind string, parts ...string) chain.Digest {
	text := q.logID + "\x00" + kind
	for _, p := range parts {
		text += "\x00" + p
	}
	return chain.Sum([]byte(text))
}
