package blob

import (
	"cmp"
	"fmt"
	"time"
)

// Retention is how long bytes are protected, in calendar months from the moment of
// storing. Zero fields take the defaults.
type Retention struct {
	Months int // of every Put; default 18
	Min    int // lowest Months an operator may choose; default and floor 3
	Max    int // cap for Months and for extensions; default 120
}

const (
	defaultMonths    = 18
	floorMonths      = 3 // 49 CFR 396.11(a)(4): calendar months, up to 92 days
	defaultMaxMonths = 120
	ceilingMonths    = 1200
)

// RetentionError reports a retention date beyond the cap.
type RetentionError struct {
	Asked, Latest time.Time
}

func (e *RetentionError) Error() string {
	return fmt.Sprintf("retention until %s is beyond the cap, %s",
		e.Asked.Format(time.RFC3339), e.Latest.Format(time.RFC3339))
}

// resolve fills in the defaults and refuses what does not hold together.
func (p Retention) resolve() (Retention, error) {
	p = Retention{
		Months: cmp.Or(p.Months, max(defaultMonths, p.Min)),
		Min:    cmp.Or(p.Min, floorMonths),
		Max:    cmp.Or(p.Max, defaultMaxMonths),
	}
	switch {
	case p.Min < floorMonths:
		return p, fmt.Errorf("retention: minimum of %d months is below %d, 49 CFR 396.11(a)(4)", p.Min, floorMonths)
	case p.Months < p.Min:
		return p, fmt.Errorf("retention: %d months is below the minimum of %d", p.Months, p.Min)
	case p.Months > p.Max:
		return p, fmt.Errorf("retention: %d months is above the maximum of %d", p.Months, p.Max)
	case p.Max > ceilingMonths:
		return p, fmt.Errorf("retention: maximum of %d months is above %d", p.Max, ceilingMonths)
	}
	return p, nil
}

// until is the date for bytes stored at now.
func (p Retention) until(now time.Time) time.Time {
	return ceilSecond(AddMonths(now.UTC(), p.Months))
}

// limit refuses a date beyond the cap as seen from now, and rounds others up.
func (p Retention) limit(until, now time.Time) (time.Time, error) {
	asked, latest := ceilSecond(until.UTC()), ceilSecond(AddMonths(now.UTC(), p.Max))
	if asked.After(latest) {
		return time.Time{}, &RetentionError{Asked: asked, Latest: latest}
	}
	return asked, nil
}

// AddMonths is t moved by n calendar months, at the same time of day. A day that
// the month does not have becomes its last: November 30 and three months is the
// end of February.
func AddMonths(t time.Time, n int) time.Time {
	first := time.Date(t.Year(), t.Month()+time.Month(n), 1,
		t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), t.Location())
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(t.Day(), last)-1)
}

func ceilSecond(t time.Time) time.Time {
	return t.Add(time.Second - 1).Truncate(time.Second)
}
