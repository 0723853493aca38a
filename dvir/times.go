package dvir

import (
	"regexp"
	"time"

	_ "time/tzdata" // zones must not depend on the machine
)

// clockSkew is how far ahead of the receiver a sender's clock may be.
const clockSkew = 5 * time.Minute

// earliest bounds plausible times: before it lie only zeros, defaults and wrong units.
var earliest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

var (
	localTime  = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?$`)
	leapSecond = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:60`)
)

// instantShape is the code of text that the contract does not accept as an instant. A
// local time that zone decides is refused all the same, for a mapping must have stated the
// offset; the code then tells that only the offset is missing.
func instantShape(text, zone string) string {
	switch {
	case leapSecond.MatchString(text):
		return codeTimeImplausible
	case !localTime.MatchString(text):
		return codeSchema
	}
	wall, err := time.Parse("2006-01-02 15:04", text[:10]+" "+text[11:16])
	if err != nil {
		return codeSchema
	}
	if zone == "" || zone == "Local" {
		return codeTimeNoOffset
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return codeTimeNoOffset
	}
	switch occurrences(wall, loc) {
	case 0:
		return codeTimeNonexistent
	case 1:
		return codeTimeNoOffset
	}
	return codeTimeAmbiguous
}

// occurrences counts the instants at which the clocks of loc show wall. The offsets in
// force a day earlier and a day later are all that can apply: zones do not change twice
// in two days.
func occurrences(wall time.Time, loc *time.Location) int {
	_, before := wall.AddDate(0, 0, -1).In(loc).Zone()
	_, after := wall.AddDate(0, 0, 1).In(loc).Zone()
	offsets := []int{before, after}
	if before == after {
		offsets = offsets[:1]
	}
	n := 0
	for _, offset := range offsets {
		at := wall.Add(-time.Duration(offset) * time.Second)
		if _, applies := at.In(loc).Zone(); applies == offset {
			n++
		}
	}
	return n
}

// instant reads a value that the contract accepts as an instant. Leap seconds, which the
// contract lets pass and Go's clock cannot hold, are not ok.
func instant(v any) (time.Time, bool) {
	text, ok := v.(string)
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	return t, err == nil
}
