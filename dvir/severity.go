package dvir

import (
	"slices"
	"strconv"
)

// Severity is a score from 0 to 100 and the band that the score falls into: "minor" to 34,
// "major" to 69, "critical" from 70.
type Severity struct {
	Score int
	Band  string
}

const (
	majorFrom    = 35
	criticalFrom = 70
	oosTag       = "DOT_OOS_CRITERIA"
)

// Scores of a defect that states none. The reporter's own judgement of safety bounds the
// score of the part from below or from above; no default is critical, because only a
// stated score or the out-of-service tag says so.
const (
	scoreControl = 60 // parts that steer, stop, carry or couple the vehicle
	scoreSignal  = 40 // other parts of 396.11(a)(1), and those that see, warn or protect
	scoreOther   = 20
	scoreUnsafe  = 50 // at least, when the defect affects safe operation
	scoreSafe    = 34 // at most, when it does not
)

var controlParts = []string{
	"SERVICE_BRAKES", "PARKING_BRAKE", "STEERING", "TIRES", "WHEELS_RIMS", "COUPLING_DEVICES",
	"AIR_SYSTEM", "FRAME", "SUSPENSION", "CARGO_SECUREMENT", "FUEL_SYSTEM",
	"IME_AIR_LINES", "IME_KINGPIN_UPPER_COUPLING", "IME_RAILS_FRAME", "IME_TIE_DOWN_BOLSTERS", "IME_LOCKING_DEVICES", "IME_SLIDER_LOCK",
}

var signalParts = []string{
	"LIGHTING_REFLECTORS", "HORN", "WINDSHIELD_WIPERS", "REAR_VISION_MIRRORS", "EMERGENCY_EQUIPMENT",
	"DRIVELINE", "EXHAUST", "GLASS", "INSTRUMENTS_WARNINGS", "LANDING_GEAR", "PASSENGER_EXITS", "SEATS_BELTS",
}

func severityOf(score int) Severity {
	switch {
	case score >= criticalFrom:
		return Severity{score, "critical"}
	case score >= majorFrom:
		return Severity{score, "major"}
	}
	return Severity{score, "minor"}
}

// highest is the severity of a report: that of its worst defect, repaired or not, and
// score 0 without defects.
func highest(report object) Severity {
	worst := 0
	for _, defect := range objects(report, "defects") {
		worst = max(worst, score(defect))
	}
	return severityOf(worst)
}

// score is the stated or default score of a defect; the out-of-service tag holds it at 70
// or above.
func score(defect object) int {
	s := defaultScore(defect)
	if f, ok := float(member(defect, "severity")["score"]); ok {
		s = int(f)
	}
	if outOfService(defect) {
		s = max(s, criticalFrom)
	}
	return s
}

func defaultScore(defect object) int {
	s := scoreOther
	switch code := textOf(defect, "code"); {
	case slices.Contains(controlParts, code):
		s = scoreControl
	case slices.Contains(signalParts, code):
		s = scoreSignal
	}
	switch affects, stated := defect["affects_safe_operation"].(bool); {
	case !stated:
		return s
	case affects:
		return max(s, scoreUnsafe)
	}
	return min(s, scoreSafe)
}

func outOfService(defect object) bool {
	tags, _ := defect["tags"].([]any)
	return slices.Contains(tags, any(oosTag))
}

// append writes the severity as a JSON object.
func (s Severity) append(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"score":`...), int64(s.Score), 10)
	return append(append(append(b, `,"band":"`...), s.Band...), `"}`...)
}
