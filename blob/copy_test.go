//go:build linux

package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
)

// fill puts n payloads of many sizes, every third under legal hold.
func fill(t *testing.T, b blob.Backend, n int) (all []blob.Location) {
	t.Helper()
	s := blobtest.Store(t, b)
	for i := range n {
		data := bytes.Repeat([]byte(fmt.Sprintf("payload %d ", i)), i*i*10)
		loc, _, err := s.PutBytes(t.Context(), data, time.Now().Add(time.Duration(i)*time.Hour))
		require.NoError(t, err)
		if i%3 == 0 {
			loc, err = s.Hold(t.Context(), loc.Ref, true)
			require.NoError(t, err)
		}
		all = append(all, loc)
	}
	return all
}

// kept makes sure that b has all that was in the source: bytes, dates and holds.
func kept(t *testing.T, b blob.Backend, all []blob.Location) {
	t.Helper()
	for _, want := range all {
		findings, err := blobtest.Store(t, b).Check(t.Context(), want)
		require.NoError(t, err)
		assert.Empty(t, findings)
	}
}

func copied(t *testing.T, to, from blob.Backend) blob.CopyReport {
	t.Helper()
	r, err := blob.Copy(t.Context(), to, from, blob.CopyOptions{SpoolDir: t.TempDir()})
	require.NoError(t, err)
	return r
}

// counts is a report without its findings.
func counts(copied, present, damaged, failed uint64, sent int64) blob.CopyReport {
	return blob.CopyReport{Copied: copied, Present: present, Damaged: damaged, Failed: failed, Bytes: sent}
}

func total(all []blob.Location) (sum int64) {
	for _, loc := range all {
		sum += loc.Size
	}
	return sum
}

func TestCopy(t *testing.T) {
	const n = 40
	first, middle, last := blobtest.Dir(t), &blobtest.Memory{}, blobtest.Dir(t)
	all := fill(t, first, n)
	for _, step := range []struct{ from, to blob.Backend }{{first, middle}, {middle, last}} {
		assert.Equal(t, counts(n, 0, 0, 0, total(all)), copied(t, step.to, step.from))
		kept(t, step.to, all)
		assert.Equal(t, counts(0, n, 0, 0, 0), copied(t, step.to, step.from), "again")
	}
	kept(t, first, all)
}

func TestCopyBetweenFoldersAndServers(t *testing.T) {
	blobtest.OnServers(t, func(t *testing.T, server *blobtest.Server) {
		name := server.NewBucket(t)
		bucket, err := blob.OpenBucket(t.Context(), server.Config(name))
		require.NoError(t, err)
		first, last := blobtest.Dir(t), blobtest.Dir(t)
		all := fill(t, first, 20)
		assert.Equal(t, counts(20, 0, 0, 0, total(all)), copied(t, bucket, first))
		kept(t, bucket, all)
		assert.Equal(t, counts(0, 20, 0, 0, 0), copied(t, bucket, first))
		assert.Equal(t, counts(20, 0, 0, 0, total(all)), copied(t, last, bucket))
		kept(t, last, all)
	})
}

// counted tells how many puts were carried out.
type counted struct {
	*blobtest.Memory
	puts *atomic.Int64
}

func (c counted) Put(ctx context.Context, d chain.Digest, r io.ReaderAt, size int64, until time.Time) (blob.Location, bool, error) {
	loc, created, err := c.Memory.Put(ctx, d, r, size, until)
	if err == nil {
		c.puts.Add(1)
	}
	return loc, created, err
}

func TestCopySendsNothingTwice(t *testing.T) {
	to := counted{&blobtest.Memory{}, new(atomic.Int64)}
	from := blobtest.Dir(t)
	fill(t, from, 5)
	copied(t, to, from)
	copied(t, to, from)
	assert.Equal(t, int64(5), to.puts.Load())
	fill(t, from, 8)
	assert.Equal(t, uint64(3), copied(t, to, from).Copied)
	assert.Equal(t, int64(8), to.puts.Load())
}

func TestCopyDates(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	for name, test := range map[string]struct {
		has, gets time.Time
	}{
		"missing":        {time.Time{}, blob.AddMonths(now, 6)},
		"past":           {now.AddDate(-1, 0, 0), blob.AddMonths(now, 6)},
		"within the day": {now.Add(23 * time.Hour), blob.AddMonths(now, 6)},
		"within months":  {now.Add(48 * time.Hour), now.Add(48 * time.Hour)},
		"later":          {now.AddDate(5, 0, 0), now.AddDate(5, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := &blobtest.Memory{}, &blobtest.Memory{}
			loc := fill(t, from, 1)[0]
			require.NoError(t, from.Shorten(loc.Ref, test.has))
			o := blob.CopyOptions{Retention: blob.Retention{Min: 6}}
			r, err := blob.Copy(t.Context(), to, from, o)
			require.NoError(t, err)
			assert.Equal(t, counts(1, 0, 0, 0, 0), r)
			got, err := to.Stat(t.Context(), loc.Ref)
			require.NoError(t, err)
			assert.WithinRange(t, got.RetainUntil, test.gets, test.gets.Add(time.Minute))
			assert.Zero(t, got.RetainUntil.Nanosecond())

			r, err = blob.Copy(t.Context(), to, from, o)
			require.NoError(t, err)
			assert.Equal(t, counts(0, 1, 0, 0, 0), r)
			again, err := to.Stat(t.Context(), loc.Ref)
			require.NoError(t, err)
			assert.Equal(t, got, again, "a repetition does not lengthen what is long enough")
		})
	}
}

// TestCopyRefusesEndlessRetention: nobody could take such a date back.
func TestCopyRefusesEndlessRetention(t *testing.T) {
	from, to := &blobtest.Memory{}, &blobtest.Memory{}
	loc := fill(t, from, 1)[0]
	require.NoError(t, from.Shorten(loc.Ref, time.Now().AddDate(200, 0, 0)))
	r := copied(t, to, from)
	require.Len(t, r.Findings, 1)
	assert.Equal(t, blob.Failed, r.Findings[0].Problem)
	assert.Contains(t, r.Findings[0].Detail, "beyond the cap")
	_, err := to.Stat(t.Context(), loc.Ref)
	assert.ErrorIs(t, err, blob.ErrNotFound)

	_, err = blob.Copy(t.Context(), to, from, blob.CopyOptions{Retention: blob.Retention{Min: 2}})
	assert.ErrorContains(t, err, "49 CFR 396.11(a)(4)")
}

// TestCopyCatchesUp: what was extended or held since the last copy is so at the
// destination too; what the destination has more of it keeps.
func TestCopyCatchesUp(t *testing.T) {
	from, to := blobtest.Dir(t), &blobtest.Memory{}
	all := fill(t, from, 3)
	copied(t, to, from)
	s := blobtest.Store(t, from)
	var err error
	all[1], err = s.Extend(t.Context(), all[1].Ref, time.Now().AddDate(4, 0, 0), time.Now())
	require.NoError(t, err)
	all[2], err = s.Hold(t.Context(), all[2].Ref, true)
	require.NoError(t, err)
	_, err = s.Hold(t.Context(), all[0].Ref, false)
	require.NoError(t, err)
	assert.Equal(t, counts(0, 3, 0, 0, 0), copied(t, to, from))
	kept(t, to, all)
}

func TestCopyFindsDamage(t *testing.T) {
	from, to := &blobtest.Memory{}, &blobtest.Memory{}
	all := fill(t, from, 12)
	secret := []byte("a driver's name")
	require.NoError(t, from.Tamper(all[5].Ref, secret))
	for _, r := range []blob.CopyReport{copied(t, to, from), copied(t, to, from)} {
		assert.Equal(t, uint64(11), r.Copied+r.Present)
		assert.Equal(t, uint64(1), r.Damaged)
		assert.Equal(t, []blob.CopyFinding{{Ref: all[5].Ref, Problem: blob.Corrupt,
			Detail: fmt.Sprintf("blob %s is corrupt: its bytes hash to %s", all[5].Ref, chain.Sum(secret))}}, r.Findings)
	}
	kept(t, to, append(all[:5:5], all[6:]...))
	for _, d := range []chain.Digest{all[5].Digest, chain.Sum(secret)} {
		_, err := to.Stat(t.Context(), blob.Ref{Digest: d})
		assert.ErrorIs(t, err, blob.ErrNotFound)
	}
}

// TestCopyIsNoCure: bytes that are damaged at the destination are found, and stay as
// evidence, where the backend has one version of everything.
func TestCopyIsNoCure(t *testing.T) {
	from, to := blobtest.Dir(t), &blobtest.Memory{}
	all := fill(t, from, 4)
	copied(t, to, from)
	require.NoError(t, to.Tamper(blob.Ref{Digest: all[2].Digest}, []byte("other")))
	r := copied(t, to, from)
	assert.Equal(t, uint64(3), r.Present)
	require.Len(t, r.Findings, 1)
	assert.Equal(t, blob.Failed, r.Findings[0].Problem)
	assert.Contains(t, r.Findings[0].Detail, "is corrupt")
}

// another is a source with a second version of one digest.
type another struct {
	*blobtest.Memory
	loc  blob.Location
	data []byte
}

func (a another) List(ctx context.Context, prefix string) iter.Seq2[blob.Location, error] {
	return func(yield func(blob.Location, error) bool) {
		for loc, err := range a.Memory.List(ctx, prefix) {
			if !yield(loc, err) || loc.Digest == a.loc.Digest && !yield(a.loc, nil) {
				return
			}
		}
	}
}

func (a another) Open(ctx context.Context, ref blob.Ref) (io.ReadCloser, blob.Location, error) {
	if ref == a.loc.Ref {
		return io.NopCloser(bytes.NewReader(a.data)), a.loc, nil
	}
	return a.Memory.Open(ctx, ref)
}

func TestCopyOfTwoVersions(t *testing.T) {
	from, to := &blobtest.Memory{}, &blobtest.Memory{}
	data := []byte("the same bytes")
	loc, _, err := blobtest.Store(t, from).PutBytes(t.Context(), data, time.Now())
	require.NoError(t, err)
	second := loc
	second.Version, second.Hold, second.RetainUntil = "mem-2", true, loc.RetainUntil.Add(time.Hour)

	assert.Equal(t, counts(1, 1, 0, 0, loc.Size), copied(t, to, another{from, second, data}))
	want := second
	want.Version = blobtest.MemoryVersion
	kept(t, to, []blob.Location{want})

	to = &blobtest.Memory{}
	r := copied(t, to, another{from, second, []byte("a shadow over it")})
	require.Len(t, r.Findings, 1)
	assert.Equal(t, blob.Foreign, r.Findings[0].Problem)
	assert.Equal(t, second.Ref, r.Findings[0].Ref)
	r.Findings = nil
	assert.Equal(t, counts(1, 0, 1, 0, loc.Size), r)
	got, err := to.Stat(t.Context(), loc.Ref)
	require.NoError(t, err)
	assert.Equal(t, loc, got, "hold and date of a foreign version do not count")
}

// plain hides what a backend can do beyond the contract: taking bytes before their digest
// is known, and telling whether it is away.
type plain struct{ blob.Backend }

// TestCopyContinues: a copy that broke off at any call is continued by the next.
func TestCopyContinues(t *testing.T) {
	const n = 20
	source := blobtest.Dir(t)
	all := fill(t, source, n)
	for _, op := range []string{"put", "open", "hold", "stat"} {
		for _, reason := range []error{blob.ErrUnavailable, blob.ErrNoSpace, blob.ErrReadOnly} {
			var calls atomic.Int64
			var well atomic.Bool
			to := counted{&blobtest.Memory{Fail: func(called string, _ chain.Digest) error {
				if called == op && calls.Add(1) > 4 && !well.Load() {
					return reason
				}
				return nil
			}}, new(atomic.Int64)}
			r, err := blob.Copy(t.Context(), plain{to}, source, blob.CopyOptions{})
			require.ErrorIs(t, err, reason, op)
			assert.ErrorContains(t, err, "the same copy continues it", op)
			assert.Less(t, r.Versions(), uint64(n), op)
			assert.Empty(t, r.Findings, op)
			well.Store(true)
			r = copied(t, to, source)
			assert.Equal(t, uint64(n), r.Copied+r.Present, op)
			assert.Equal(t, int64(n), to.puts.Load(), "nothing is sent twice, %s", op)
			kept(t, to, all)
		}
	}
}

func TestCopyFromAStoreThatGoesAway(t *testing.T) {
	for _, op := range []string{"open", "list"} {
		var calls atomic.Int64
		from, to := &blobtest.Memory{}, &blobtest.Memory{}
		fill(t, from, 20)
		from.Fail = func(called string, _ chain.Digest) error {
			if called == op && calls.Add(1) == 5 {
				from.Away(true)
			}
			return nil
		}
		_, err := blob.Copy(t.Context(), to, from, blob.CopyOptions{})
		require.ErrorIs(t, err, blob.ErrUnavailable, op)
		from.Away(false)
		from.Fail = nil
		assert.Equal(t, uint64(20), copied(t, to, from).Versions())
	}
}

// TestCopyGoesOn: what is wrong with one version does not stop the others.
func TestCopyGoesOn(t *testing.T) {
	for _, op := range []string{"put", "open"} {
		from, to := &blobtest.Memory{}, &blobtest.Memory{}
		all := fill(t, from, 10)
		fails := func(called string, d chain.Digest) error {
			if called == op && d == all[3].Digest {
				return errors.New("input/output error")
			}
			return nil
		}
		from.Fail, to.Fail = fails, fails
		r := copied(t, to, from)
		require.Len(t, r.Findings, 1, op)
		assert.Equal(t, all[3].Ref, r.Findings[0].Ref)
		assert.Equal(t, blob.Failed, r.Findings[0].Problem)
		r.Findings = nil
		assert.Equal(t, counts(9, 0, 0, 1, total(all)-all[3].Size), r, op)
	}
}

// TestCopyOfWhatAServerCannotRead: a store that answers otherwise is not away.
func TestCopyOfWhatAServerCannotRead(t *testing.T) {
	from, to := &blobtest.Memory{}, &blobtest.Memory{}
	all := fill(t, from, 10)
	from.Fail = func(called string, d chain.Digest) error {
		if called == "open" && d == all[3].Digest {
			return fmt.Errorf("%w: the S3 server answers 500 InternalError", blob.ErrUnavailable)
		}
		return nil
	}
	r := copied(t, to, from)
	require.Len(t, r.Findings, 1)
	assert.Contains(t, r.Findings[0].Detail, "500 InternalError")
	assert.Equal(t, uint64(9), r.Copied)
}

// TestCopyWithoutTheRightToHold: bytes and dates come first.
func TestCopyWithoutTheRightToHold(t *testing.T) {
	from, to := blobtest.Dir(t), &blobtest.Memory{}
	all := fill(t, from, 4)
	to.Fail = func(op string, _ chain.Digest) error {
		if op == "hold" {
			return &blob.RefusedError{Status: 403, Code: "AccessDenied"}
		}
		return nil
	}
	r := copied(t, to, from)
	assert.Equal(t, uint64(2), r.Copied)
	require.Len(t, r.Findings, 2)
	assert.Equal(t, uint64(2), r.Failed)
	assert.Contains(t, r.Findings[0].Detail, "403 AccessDenied")
	for i := range all {
		all[i].Hold = false
	}
	kept(t, to, all)
}

// TestCopyToAServerThatForgets: a date that was granted and is not there is found.
func TestCopyToAServerThatForgets(t *testing.T) {
	from, to := blobtest.Dir(t), &blobtest.Memory{}
	fill(t, from, 4)
	r := copied(t, forgetful{to}, from)
	assert.Equal(t, uint64(4), r.Failed)
	assert.Contains(t, r.Findings[0].Detail, "is retained until")
}

type forgetful struct{ *blobtest.Memory }

func (f forgetful) Put(ctx context.Context, d chain.Digest, r io.ReaderAt, size int64, _ time.Time) (blob.Location, bool, error) {
	return f.Memory.Put(ctx, d, r, size, time.Time{})
}

func (f forgetful) Extend(ctx context.Context, ref blob.Ref, _ time.Time) (blob.Location, error) {
	return f.Memory.Extend(ctx, ref, time.Time{})
}

func TestCopyListsAThousandFindings(t *testing.T) {
	from, to := &blobtest.Memory{}, &blobtest.Memory{}
	s := blobtest.Store(t, from)
	for i := range blob.MaxFindings + 10 {
		loc, _, err := s.PutBytes(t.Context(), fmt.Append(nil, i), time.Now())
		require.NoError(t, err)
		require.NoError(t, from.Tamper(loc.Ref, nil))
	}
	r := copied(t, to, from)
	assert.Equal(t, uint64(blob.MaxFindings+10), r.Damaged)
	assert.Len(t, r.Findings, blob.MaxFindings)
	assert.IsIncreasing(t, refs(r))
}

func refs(r blob.CopyReport) (all []string) {
	for _, f := range r.Findings {
		all = append(all, f.Ref.String())
	}
	return all
}

func TestCopyTellsItsProgress(t *testing.T) {
	from, to := blobtest.Dir(t), &blobtest.Memory{}
	all := fill(t, from, 10)
	var versions, sent []int64
	_, err := blob.Copy(t.Context(), to, from, blob.CopyOptions{Progress: func(v uint64, b int64) {
		versions, sent = append(versions, int64(v)), append(sent, b)
	}})
	require.NoError(t, err)
	assert.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, versions)
	assert.IsNonDecreasing(t, sent)
	assert.Equal(t, total(all), sent[len(sent)-1])
}

func TestCopyIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	from, to := blobtest.Dir(t), &blobtest.Memory{}
	fill(t, from, 20)
	r, err := blob.Copy(ctx, to, from, blob.CopyOptions{Progress: func(uint64, int64) { cancel() }})
	require.ErrorIs(t, err, context.Canceled)
	assert.Less(t, r.Versions(), uint64(20))
	assert.Empty(t, r.Findings)
}

func TestCopyInFlatMemory(t *testing.T) {
	const size = 32 << 20
	from := blobtest.Dir(t)
	_, _, err := blobtest.Store(t, from).Put(t.Context(), io.LimitReader(&counter{}, size), time.Now())
	require.NoError(t, err)
	for name, to := range map[string]blob.Backend{"spooled": plain{blobtest.Dir(t)}, "direct": blobtest.Dir(t)} {
		var r blob.CopyReport
		spent := allocated(func() { r = copied(t, to, from) })
		assert.Equal(t, counts(1, 0, 0, 0, size), r, name)
		assert.Less(t, spent, uint64(2<<20), name)
	}
}

// TestCopyRefused: a version that the destination refuses is a finding, and the others are copied; one that refuses each
// version ends the copy.
func TestCopyRefused(t *testing.T) {
	from := &blobtest.Memory{}
	all := fill(t, from, 40)
	to, _, f := faulty(t, blobtest.MinIO(t))
	name := all[7].Digest.String()
	for _, code := range []int{403, 413} {
		f.Next(99, func(r *http.Request) bool { return blobtest.Puts(r) && strings.HasSuffix(r.URL.Path, name) }, blobtest.Answer(code, "AccessDenied"))
		r := copied(t, to, from)
		f.Clear()
		require.Len(t, r.Findings, 1)
		assert.Equal(t, blob.Failed, r.Findings[0].Problem)
		assert.Equal(t, all[7].Digest, r.Findings[0].Ref.Digest)
		assert.EqualValues(t, 39, r.Copied+r.Present)
	}
	other, _, f := faulty(t, blobtest.MinIO(t))
	f.Next(1<<30, blobtest.Puts, blobtest.Answer(403, "AccessDenied"))
	r, err := blob.Copy(t.Context(), other, from, blob.CopyOptions{SpoolDir: t.TempDir()})
	assert.ErrorIs(t, err, blob.ErrUnavailable)
	assert.Zero(t, r.Copied)
	assert.Less(t, r.Failed, uint64(40))
}
