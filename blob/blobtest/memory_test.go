package blobtest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
)

func TestMemory(t *testing.T) {
	blobtest.TestBackend(t, func(*testing.T) blob.Backend { return &blobtest.Memory{} })
}

func TestMemoryLevers(t *testing.T) {
	refusal := errors.New("refused")
	var refused string
	m := &blobtest.Memory{Fail: func(op string, _ chain.Digest) error {
		if op == refused {
			return refusal
		}
		return nil
	}}
	s := blobtest.Store(t, m)
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	loc, _, err := s.PutBytes(t.Context(), []byte("report"), now)
	require.NoError(t, err)

	require.NoError(t, m.Shadow(loc.Ref))
	require.NoError(t, m.Shorten(loc.Ref, now))
	require.NoError(t, m.Tamper(loc.Ref, []byte("other")))
	findings, err := s.Check(t.Context(), loc)
	require.NoError(t, err)
	require.Len(t, findings, 3)
	assert.Equal(t, blob.Corrupt, findings[0].Problem)
	assert.Equal(t, blob.Finding{Problem: blob.Shortened, Detail: "blob " + loc.Ref.String() +
		" is retained until 2026-05-01T12:00:00Z, recorded was 2027-11-01T12:00:00Z"}, findings[1])
	assert.Equal(t, blob.Shadowed, findings[2].Problem)

	refused = "open"
	_, err = s.Check(t.Context(), loc)
	assert.ErrorIs(t, err, refusal, "what cannot be read is not a finding")

	m.Remove(loc.Ref)
	_, err = s.Stat(t.Context(), loc.Ref)
	assert.ErrorIs(t, err, blob.ErrNotFound)
}
