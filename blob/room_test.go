package blob_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
)

// unwatched is a backend that does not look after itself.
type unwatched struct{ blob.Backend }

// TestRoom: that a folder's disk is full is told once, and once that there is room again or that nobody tried for long;
// one large payload that finds none while others do is not told.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		m := &blobtest.Memory{Fail: func(op string, _ chain.Digest) error {
			if op == "put" && full.Load() {
				return blob.ErrNoSpace
			}
			return nil
		}}
		s, err := blob.NewStore(unwatched{m}, blob.Config{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var told []error
		var watching sync.WaitGroup
		watching.Go(func() {
			assert.ErrorIs(t, s.Watch(ctx, func(_ time.Time, why error) { told = append(told, why) }), context.Canceled)
		})
		put := func() error {
			_, _, err := s.PutBytes(t.Context(), []byte("x"), time.Now())
			return err
		}
		full.Store(true)
		assert.ErrorIs(t, put(), blob.ErrUnavailable)
		full.Store(false)
		require.NoError(t, put())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Empty(t, told)

		full.Store(true)
		for range 100 {
			assert.ErrorIs(t, put(), blob.ErrNoSpace)
			assert.ErrorIs(t, s.Healthy(), blob.ErrNoSpace)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		require.Len(t, told, 1)
		assert.ErrorIs(t, told[0], blob.ErrNoSpace)
		time.Sleep(10 * time.Second)
		assert.NoError(t, s.Healthy(), "the next put may try")
		full.Store(false)
		require.NoError(t, put())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, told, 2)
		assert.NoError(t, told[1])

		full.Store(true)
		assert.Error(t, put())
		time.Sleep(2 * time.Minute)
		cancel()
		watching.Wait()
		assert.Len(t, told, 4)
	})
}
