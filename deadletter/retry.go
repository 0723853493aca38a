package deadletter

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The retry policy: the first retry after about a second, five of them spanning about an hour.
const (
	retryBase   = time.Second
	retryFactor = 8
	retryCap    = time.Hour
)

// RetryAt says when to try again after attempt number attempt (from 1) failed at now. The wait is
// retryBase*retryFactor^(attempt-1), at most an hour, with equal jitter: half of it fixed, half drawn, so that a
// herd spreads while the promise to have tried for a while is kept. A server's wish (retryAfter) is kept too if
// it is longer, spread upward by a tenth, and capped alike: nobody can make us wait for a year.
// jitter is in [0,1).
func RetryAt(now time.Time, attempt uint64, retryAfter time.Duration, jitter float64) time.Time {
	wait := retryBase
	for i := uint64(1); i < attempt && wait < retryCap; i++ {
		wait *= retryFactor
	}
	wait = min(wait, retryCap)
	wait = wait/2 + time.Duration(jitter*float64(wait/2))
	if retryAfter > 0 {
		asked := min(retryAfter, retryCap)
		wait = max(wait, asked+time.Duration(jitter*float64(asked/10)))
	}
	return now.Add(min(wait, retryCap))
}

// ParseRetryAfter reads a Retry-After header (RFC 9110 section 10.2.3): seconds, also with a fraction as some
// servers send, or with an s as the JSON of a protobuf Duration has it, or a date. What is past, negative or unreadable is 0, which leaves the policy alone; what is
// absurdly long is cut to a day.
func ParseRetryAfter(header string, now time.Time) time.Duration {
	const day = 24 * time.Hour
	header = strings.TrimSpace(header)
	if header == "" {
		return 0
	}
	if number := strings.TrimSuffix(header, "s"); strings.Trim(number, "0123456789.") == "" {
		seconds, err := strconv.ParseFloat(number, 64)
		switch {
		case errors.Is(err, strconv.ErrRange), seconds >= day.Seconds():
			return day
		case err != nil:
			return 0
		}
		return time.Duration(seconds * float64(time.Second))
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), day)
}
