package blob_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
)

func TestAddMonths(t *testing.T) {
	for _, test := range []struct {
		from   string
		months int
		want   string
	}{
		{"2026-11-30T23:59:59Z", 3, "2027-02-28T23:59:59Z"},
		{"2027-11-30T00:00:00Z", 3, "2028-02-29T00:00:00Z"},
		{"2028-02-29T12:00:00Z", 12, "2029-02-28T12:00:00Z"},
		{"2028-02-29T12:00:00Z", 48, "2032-02-29T12:00:00Z"},
		{"2028-02-29T12:00:00Z", 18, "2029-08-29T12:00:00Z"},
		{"2026-08-31T00:00:00Z", 18, "2028-02-29T00:00:00Z"},
		{"2026-12-31T00:00:00Z", 2, "2027-02-28T00:00:00Z"},
		{"2026-01-31T00:00:00Z", 3, "2026-04-30T00:00:00Z"},
		{"2026-03-31T00:00:00Z", -1, "2026-02-28T00:00:00Z"},
		{"2026-05-01T00:00:00Z", 120, "2036-05-01T00:00:00Z"},
	} {
		from, err := time.Parse(time.RFC3339, test.from)
		require.NoError(t, err)
		assert.Equal(t, test.want, blob.AddMonths(from, test.months).Format(time.RFC3339), "%s + %d", test.from, test.months)
	}
}

func TestRetentionPolicy(t *testing.T) {
	for _, test := range []struct {
		policy blob.Retention
		want   string // date for bytes stored at noon of 2026-05-01, or part of the refusal
	}{
		{blob.Retention{}, "2027-11-01"},
		{blob.Retention{Months: 3}, "2026-08-01"},
		{blob.Retention{Months: 120}, "2036-05-01"},
		{blob.Retention{Min: 24}, "2028-05-01"},
		{blob.Retention{Months: 240, Max: 240}, "2046-05-01"},
		{blob.Retention{Months: 2}, "below the minimum of 3"},
		{blob.Retention{Months: -1}, "below the minimum of 3"},
		{blob.Retention{Months: 18, Min: 2}, "49 CFR 396.11(a)(4)"},
		{blob.Retention{Months: 12, Min: 18}, "below the minimum of 18"},
		{blob.Retention{Months: 121}, "above the maximum of 120"},
		{blob.Retention{Max: 12}, "above the maximum of 12"},
		{blob.Retention{Max: 1201}, "above 1200"},
	} {
		s, err := blob.NewStore(&blobtest.Memory{}, blob.Config{Retention: test.policy})
		if err != nil {
			assert.ErrorContains(t, err, test.want, "%+v", test.policy)
			continue
		}
		loc, _, err := s.PutBytes(t.Context(), nil, noon)
		require.NoError(t, err)
		assert.Equal(t, test.want, loc.RetainUntil.Format(time.DateOnly), "%+v", test.policy)
	}
	_, err := blob.NewStore(&blobtest.Memory{}, blob.Config{MaxSize: -1})
	assert.Error(t, err)
}

func TestRetentionCap(t *testing.T) {
	s, err := blob.NewStore(&blobtest.Memory{}, blob.Config{Retention: blob.Retention{Max: 24}})
	require.NoError(t, err)
	loc, _, err := s.PutBytes(t.Context(), nil, noon)
	require.NoError(t, err)
	_, err = s.Extend(t.Context(), loc.Ref, noon.AddDate(2, 0, 0).Add(time.Nanosecond), noon)
	assert.ErrorAs(t, err, new(*blob.RetentionError))
	extended, err := s.Extend(t.Context(), loc.Ref, noon.AddDate(2, 0, 0).In(time.FixedZone("", 3600)), noon)
	require.NoError(t, err)
	assert.Equal(t, noon.AddDate(2, 0, 0), extended.RetainUntil)
}

// TestSpoolDir: a backend that wants the digest first gets long streams from a file
// that leaves nothing behind, and a spool that cannot be had is the store's fault.
func TestSpoolDir(t *testing.T) {
	m := &blobtest.Memory{}
	folder := t.TempDir()
	s, err := blob.NewStore(m, blob.Config{SpoolDir: folder})
	require.NoError(t, err)
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	loc, _, err := s.Put(t.Context(), bytes.NewReader(data), noon)
	require.NoError(t, err)
	got, err := s.Get(t.Context(), loc.Ref)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(data, got))
	left, err := must(blob.NewStore(m, blob.Config{SpoolDir: folder + "/none"})).Stat(t.Context(), loc.Ref)
	require.NoError(t, err)
	assert.Equal(t, loc, left)
	_, _, err = must(blob.NewStore(m, blob.Config{SpoolDir: folder + "/none"})).Put(t.Context(), bytes.NewReader(data), noon)
	require.Error(t, err)
	assert.NotErrorIs(t, err, blob.ErrSource)
	assert.NoFileExists(t, folder+"/none")
}

// TestErrorsHoldNoPayload: whatever fails, the payload's bytes are not in the text.
func TestErrorsHoldNoPayload(t *testing.T) {
	const canary = "canary-5YJ3E1EA7HF000337"
	m := &blobtest.Memory{}
	s, err := blob.NewStore(m, blob.Config{MaxSize: 1000})
	require.NoError(t, err)
	loc, _, err := s.PutBytes(t.Context(), []byte(canary), noon)
	require.NoError(t, err)
	require.NoError(t, m.Tamper(loc.Ref, []byte(canary+canary)))
	_, get := s.Get(t.Context(), loc.Ref)
	_, _, put := s.PutBytes(t.Context(), []byte(canary), noon)
	_, _, large := s.PutBytes(t.Context(), []byte(strings.Repeat(canary, 100)), noon)
	for _, err := range []error{get, put, large} {
		require.Error(t, err)
		assert.NotContains(t, err.Error(), canary)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("until=2028-05-30T20:45:08Z hold=0")
	f.Add("until=2028-05-30T20:45:08+02:00 hold=1")
	f.Add("until= hold=1")
	zero := blob.ParseRecordText("")
	f.Fuzz(func(t *testing.T, text string) {
		if got := blob.ParseRecordText(text); got != text && got != zero {
			t.Fatalf("%q was read as %q: neither what it says nor nothing", text, got)
		}
	})
}

// BenchmarkPut alternates the store and the bare backend, so that both see the same
// disk; "ratio" is the store's rate over the backend's.
func BenchmarkPut(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			d := blobtest.Dir(b)
			s := blobtest.Store(b, d)
			payloads := &counter{}
			bare := func(data []byte) error {
				_, _, err := d.Put(b.Context(), chain.Sum(data), bytes.NewReader(data), int64(len(data)), blob.AddMonths(noon, 18))
				return err
			}
			store := func(data []byte) error {
				_, _, err := s.PutBytes(b.Context(), data, noon)
				return err
			}
			var spent [2]time.Duration
			const batch = 64
			puts := [2]func([]byte) error{bare, store}
			for first := 0; b.Loop(); first = 1 - first {
				for _, i := range [2]int{first, 1 - first} {
					spent[i] += putAll(b, writers, batch, payloads, puts[i])
				}
			}
			total := float64(b.N * batch)
			b.ReportMetric(total/spent[1].Seconds(), "puts/s")
			b.ReportMetric(spent[0].Seconds()/spent[1].Seconds(), "ratio")
		})
	}
}

func putAll(b *testing.B, writers, n int, payloads *counter, put func([]byte) error) time.Duration {
	all := make([][]byte, n)
	for i := range all {
		all[i] = make([]byte, 2048)
		payloads.Read(all[i])
	}
	var next atomic.Int64
	var group sync.WaitGroup
	start := time.Now()
	for range writers {
		group.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := put(all[i-1]); err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
	return time.Since(start)
}

// BenchmarkGet compares verified reads with plain ones of the same files.
func BenchmarkGet(b *testing.B) {
	d := blobtest.Dir(b)
	s := blobtest.Store(b, d)
	payloads := &counter{}
	var refs [200]blob.Ref
	for i := range refs {
		data := make([]byte, 2048)
		payloads.Read(data)
		loc, _, err := s.PutBytes(b.Context(), data, noon)
		require.NoError(b, err)
		refs[i] = loc.Ref
	}
	var spent [2]time.Duration
	for b.Loop() {
		for i, get := range []func(blob.Ref) error{
			func(ref blob.Ref) error {
				r, loc, err := d.Open(b.Context(), ref)
				if err == nil {
					_, err = r.Read(make([]byte, loc.Size))
					r.Close()
				}
				return err
			},
			func(ref blob.Ref) error { _, err := s.Get(b.Context(), ref); return err },
		} {
			start := time.Now()
			for _, ref := range refs {
				require.NoError(b, get(ref))
			}
			spent[i] += time.Since(start)
		}
	}
	b.ReportMetric(float64(b.N*len(refs))/spent[1].Seconds(), "gets/s")
	b.ReportMetric(spent[0].Seconds()/spent[1].Seconds(), "ratio")
}
