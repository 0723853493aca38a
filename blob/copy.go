package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// CopyOptions of [Copy]. The zero value is usable.
type CopyOptions struct {
	// Retention.Min is what a version gets whose date is missing or past: a server with
	// Object Lock refuses dates that are not to come. A date beyond Retention.Max is not
	// copied, since nobody could take it back.
	Retention Retention
	SpoolDir  string                             // for bytes on their way; empty: the system's folder for temporary files
	Progress  func(versions uint64, bytes int64) // looked at and sent so far; called from one goroutine at a time
}

// CopyReport is what [Copy] did. Every version that the source listed is counted once
// as Copied, Present, Damaged or Failed.
type CopyReport struct {
	Copied   uint64        // sent, read back and protected
	Present  uint64        // there already; read at both ends, and protected
	Damaged  uint64        // at the source, with bytes that do not hash to their name: not copied
	Failed   uint64        // not copied, or not protected, for another reason
	Bytes    int64         // sent
	Findings []CopyFinding // on damaged and failed versions, in digest order; no more than MaxFindings
}

// Versions is how many were looked at.
func (r CopyReport) Versions() uint64 { return r.Copied + r.Present + r.Damaged + r.Failed }

// MaxFindings is how many findings a [CopyReport] lists; its counts go on.
const MaxFindings = 1000

// CopyFinding is what is wrong with one version of the source: Corrupt, Foreign or
// Failed. Like a [Finding], it holds no content.
type CopyFinding struct {
	Ref     Ref
	Problem Problem
	Detail  string
}

// The problems that only Copy can find.
const (
	Foreign Problem = "foreign" // other bytes under the name, beside a version with the right ones
	Failed  Problem = "failed"  // could not be copied
)

// Copy brings every version that from lists to the backend to, where it gets at least
// the same retention and the legal hold. Bytes are verified at the source, sent only if
// the destination does not have them, and read back there. Versions are the
// destination's own. Nothing is changed at the source.
//
// What concerns one version is a finding, and the others go on. A store that is away,
// full or read-only ends the copy with ErrUnavailable, ErrNoSpace or ErrReadOnly; the
// same call continues it, since what is there is not sent again.
func Copy(ctx context.Context, to, from Backend, o CopyOptions) (CopyReport, error) {
	source, err := NewStore(from, Config{})
	if err != nil {
		return CopyReport{}, err
	}
	target, err := NewStore(to, Config{Retention: o.Retention, SpoolDir: o.SpoolDir})
	if err != nil {
		return CopyReport{}, err
	}
	c := &copier{to: target, from: source, progress: o.Progress}
	err = c.run(ctx)
	slices.SortFunc(c.report.Findings, func(a, b CopyFinding) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
	if err != nil {
		err = fmt.Errorf("copy stopped after %d versions, the same copy continues it: %w", c.report.Versions(), err)
	}
	return c.report, err
}

const (
	copiers = 8 // at a time

	// leastLeft is how far off a date must be to be asked for: it outlasts the transfer
	// and a difference between the clocks.
	leastLeft = 24 * time.Hour

	refusals = 20 // of versions, in a row, after which a destination counts as refusing them all
)

// copier is a copy under way.
type copier struct {
	to, from *Store
	progress func(uint64, int64)

	mu      sync.Mutex // guards what follows
	report  CopyReport
	refused int // versions in a row that the destination refused
}

// run gives each first digit of the digests to one goroutine at a time, so that the
// versions of one digest follow each other.
func (c *copier) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	digits := make(chan string)
	var all sync.WaitGroup
	for range copiers {
		all.Go(func() {
			for digit := range digits {
				if err := c.versions(ctx, digit); err != nil {
					stop(err)
				}
			}
		})
	}
	for _, digit := range "0123456789abcdef" {
		digits <- string(digit)
	}
	close(digits)
	all.Wait()
	return context.Cause(ctx)
}

// versions copies those whose digests start with prefix. Its error stops everything.
func (c *copier) versions(ctx context.Context, prefix string) error {
	for v, err := range c.from.List(ctx, prefix) {
		if err != nil && v.Ref == (Ref{}) {
			return err
		}
		sent := false
		if err = ofSource(alone(c.from, err)); err == nil {
			sent, err = c.version(ctx, v)
		}
		if stops(ctx, err) {
			return err
		}
		problem := c.problem(ctx, v, err)
		c.note(v, sent, problem, err)
	}
	return nil
}

// version copies v, or verifies what is there in its place, and tells whether it was sent.
func (c *copier) version(ctx context.Context, v Location) (sent bool, err error) {
	least, asked, err := c.dates(v)
	if err != nil {
		return false, err
	}
	got, err := read(ctx, c.to, Ref{Digest: v.Digest})
	_, corrupt := errors.AsType[*CorruptError](err)
	switch {
	case err == nil:
		_, err = read(ctx, c.from, v.Ref)
		err = ofSource(err)
	case corrupt, errors.Is(err, ErrNotFound):
		got, sent, err = c.send(ctx, v, asked)
	}
	if err != nil {
		return sent, err
	}
	return sent, c.protect(ctx, got, Location{Ref: got.Ref, RetainUntil: least, Hold: v.Hold}, asked)
}

// dates are the earliest date that will do for v, and the one to ask for.
func (c *copier) dates(v Location) (least, asked time.Time, err error) {
	now := time.Now().UTC()
	if _, bucket := c.from.backend.(*Bucket); bucket && v.RetainUntil.IsZero() {
		return now, now, errors.New("the source does not tell its retention and hold; its credentials need s3:GetObjectRetention and s3:GetObjectLegalHold")
	}
	if soon := now.Add(leastLeft); v.RetainUntil.Before(soon) {
		return soon, ceilSecond(AddMonths(now, c.to.retention.Min)), nil
	}
	asked, err = c.to.retention.limit(v.RetainUntil, now)
	return asked, asked, err
}

// send puts the bytes of v and reads them back.
func (c *copier) send(ctx context.Context, v Location, until time.Time) (got Location, created bool, err error) {
	r, _, err := c.from.Open(ctx, v.Ref)
	if err != nil {
		return got, false, ofSource(alone(c.from, err))
	}
	defer r.Close()
	spool, err := c.to.spool(ctx)
	if err != nil {
		return got, false, err
	}
	defer spool.Discard()
	if _, err := io.Copy(spool, &contextReader{ctx, &source{r}}); err != nil {
		return got, false, alone(c.from, err)
	}
	put, created, err := spool.Commit(ctx, v.Digest, until)
	if err = c.refusal(err); err != nil {
		return got, false, fmt.Errorf("put blob %s: %w", v.Digest, err)
	}
	got, err = read(ctx, c.to, put.Ref)
	return got, created, err
}

// refusal is err, which came of a put, without ErrUnavailable if the destination refused this version and not each one:
// it stops no copy then.
func (c *copier) refusal(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, refused := errors.AsType[*RefusedError](err)
	switch {
	case !refused:
		c.refused = 0
	case c.refused < refusals:
		c.refused++
		return errors.New(err.Error())
	}
	return err
}

// protect sees to it that got is protected as wanted, or asks for a date until.
func (c *copier) protect(ctx context.Context, got, want Location, until time.Time) (err error) {
	short, free := got.RetainUntil.Before(want.RetainUntil), want.Hold && !got.Hold
	if !short && !free {
		return nil
	}
	if short {
		_, err = c.to.backend.Extend(ctx, got.Ref, until)
	}
	if err == nil && free {
		_, err = c.to.backend.Hold(ctx, got.Ref, true)
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return fmt.Errorf("blob %s: its protection cannot be set: %s", got.Ref, refused.Error())
	}
	if err == nil {
		got, err = c.to.Stat(ctx, got.Ref)
	}
	if err != nil {
		return err
	}
	got.Shadowed = false // it can be read, and a verification tells
	for _, f := range shortfalls(want, got) {
		err = errors.Join(err, errors.New(f.Detail))
	}
	return err
}

// read reads ref to its end, so that it is verified.
func read(ctx context.Context, s *Store, ref Ref) (Location, error) {
	loc, err := s.drain(ctx, ref)
	return loc, alone(s, err)
}

// alone is err, which came from reading one version of s, without ErrUnavailable if s
// answers otherwise: it stops no copy then.
func alone(s *Store, err error) error {
	if _, monitored := s.backend.(Monitor); monitored && s.Healthy() == nil && errors.Is(err, ErrUnavailable) {
		return errors.New(err.Error())
	}
	return err
}

// ofSource marks an error as the source's.
func ofSource(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrSource, err)
}

// stops tells whether err ends the copy, and does not concern one version alone.
func stops(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil ||
		errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNoSpace) || errors.Is(err, ErrReadOnly))
}

// problem sorts err, which came in the way of v.
func (c *copier) problem(ctx context.Context, v Location, err error) Problem {
	_, corrupt := errors.AsType[*CorruptError](err)
	switch {
	case err == nil:
		return ""
	case !corrupt || !errors.Is(err, ErrSource):
		return Failed
	}
	if _, err := read(ctx, c.from, Ref{Digest: v.Digest}); err == nil {
		return Foreign
	}
	return Corrupt
}

// note counts what came of v.
func (c *copier) note(v Location, sent bool, p Problem, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.report
	switch {
	case p == Corrupt, p == Foreign:
		r.Damaged++
	case p == Failed:
		r.Failed++
	case sent:
		r.Copied++
	default:
		r.Present++
	}
	if sent {
		r.Bytes += v.Size
	}
	if p != "" && len(r.Findings) < MaxFindings {
		r.Findings = append(r.Findings, CopyFinding{v.Ref, p, detail(err)})
	}
	if c.progress != nil {
		c.progress(r.Versions(), r.Bytes)
	}
}

// detail is err in words; of damage, the digests are enough.
func detail(err error) string {
	if corrupt, ok := errors.AsType[*CorruptError](err); ok && errors.Is(err, ErrSource) {
		return corrupt.Error()
	}
	return err.Error()
}
