package deadletter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// Ages and retries go by the clock of this host, however those of senders stand, and are never negative.
func TestTC25ClocksOfSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		now := time.Now()
		for body, seen := range map[string]time.Time{"fast": now.Add(2 * time.Hour), "slow": now.Add(-2 * time.Hour),
			"night": time.Date(1999, 10, 31, 2, 30, 0, 0, time.FixedZone("", -4*3600))} { // an hour that came twice, and is told apart
			f := transient(body)
			f.FirstSeen = seen
			l := b.letter(b.fail(f).PayloadRef)
			require.Equal(t, chain.Instant(earlier(seen, now)), l.FirstSeen, body)
			require.Equal(t, time.UTC, l.FirstSeen.Location())
			require.WithinRange(t, l.NextAttemptAt, now, now.Add(2*time.Second))
		}
	})
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// A server's date is taken against the clock of this host; one that has passed there leaves the policy alone, and one that
// a wrong clock makes far is cut.
func TestTC25ClocksOfServers(t *testing.T) {
	now := time.Date(2026, 11, 1, 6, 30, 0, 0, time.UTC)
	for ahead, waits := range map[time.Duration]time.Duration{-2 * time.Hour: 0, -5 * time.Second: 0, 2 * time.Hour: 2 * time.Hour} {
		asked := deadletter.ParseRetryAfter(now.Add(ahead).Format("Mon, 02 Jan 2006 15:04:05 GMT"), now)
		require.Equal(t, waits, asked)
		next := deadletter.RetryAt(now, 1, asked, 0.5)
		require.True(t, next.After(now))
		require.LessOrEqual(t, next.Sub(now), time.Hour)
	}
}

// A clock that is set back a little between two events breaks nothing: order is that of the log.
func TestTC25ClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		f := transient("payload")
		ref := b.fail(f).PayloadRef
		l := b.letter(ref)
		require.False(t, l.Due(l.NextAttemptAt.Add(-5*time.Second)))
		require.True(t, l.Due(l.NextAttemptAt.Add(-24*time.Hour)), "no clock that is right is a day away")
		_, err := b.Lease(t.Context(), ref, "w/1", time.Minute)
		var refused *chain.TransitionError
		require.ErrorAs(t, err, &refused, "not yet")
		time.Sleep(2 * time.Second)
		_, err = b.Lease(t.Context(), ref, "w/1", time.Minute)
		require.NoError(t, err)
	})
}
