package dvir

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// columns are the headings of exports in lower case, without a unit in brackets, and what they hold.
var columns = map[string]string{
	"report id": "id", "inspection id": "id", "id": "id",
	"submitted": "reported", "reported": "reported", "inspection time": "reported", "date": "reported",
	"timezone": "zone", "time zone": "zone", "inspection type": "type", "type": "type",
	"vehicle": "unit", "unit": "unit", "unit number": "unit", "vin": "vin", "odometer": "odometer", "trailer": "trailer",
	"driver": "driver", "driver name": "driver", "driver id": "driver id", "driver signed at": "signed", "driver signed": "signed",
	"safe": "safe", "safe to operate": "safe", "defects": "defects", "remarks": "remarks",
}

// row is one line of a table by what its columns hold.
type row map[string]string

// readTable meets a declared table (RFC 4180) with a heading. Rows that do not fit it are never shifted into place.
func readTable(s *source) (reading, bool) {
	if s.media != "text/csv" && s.media != "application/csv" || s.format != formatUnknown {
		return reading{}, false
	}
	if f := checkUTF8(s.body); f != nil {
		return refuse(f.code), true
	}
	r := csv.NewReader(bytes.NewReader(s.body))
	r.FieldsPerRecord, r.ReuseRecord = 0, false
	lines, err := r.ReadAll() // as many as fit into a payload
	if err != nil || len(lines) == 0 {
		return refuse(codeFieldCount), true
	}
	heading, unit := headings(lines[0])
	switch {
	case !slices.Contains(heading, "id") || !slices.Contains(heading, "reported"):
		return refuse(codeUnsupported), true
	case len(lines) == 1:
		return notReport()
	case len(lines) > 2:
		return refuse(codeUnsupported), true
	}
	cells := row{}
	for i, name := range heading {
		cells[name] = strings.TrimSpace(lines[1][i])
	}
	return reading{report: s.table(cells, unit), findings: s.withMark()}, true
}

// headings are what the columns hold, "" for those nobody knows, and the unit of the odometer if its heading states one.
func headings(line []string) (heading []string, unit string) {
	for _, text := range line {
		name, bracket, _ := strings.Cut(strings.ToLower(strings.TrimRight(text, "? ")), "(")
		name = columns[strings.TrimRight(name, "? ")]
		if measure := strings.TrimSuffix(bracket, ")"); name == "odometer" && (measure == "mi" || measure == "km") {
			unit = measure
		}
		heading = append(heading, name)
	}
	return heading, unit
}

// table maps one row.
func (s *source) table(c row, unit string) object {
	r := s.draft("csv", c["id"])
	inspection := member(r, "inspection")
	inspection["type"] = tripOf(c["type"])
	reported, stated := zoned(c["reported"], c["zone"])
	put(inspection, "reported_at", reported)
	put(inspection, "local_time_zone", c["zone"])
	if !stated {
		inspection["time_basis"] = "mapping"
	}
	vehicle := member(r, "vehicle")
	put(vehicle, "unit_number", c["unit"])
	put(vehicle, "vin", c["vin"])
	if unit != "" && c["odometer"] != "" {
		put(vehicle, "odometer", odometer(number(c["odometer"]), unit, "field_name"))
	}
	if c["trailer"] != "" {
		r["trailers"] = []any{object{"trailer_id": c["trailer"]}}
	}
	driver := object{}
	put(driver, "driver_id", cmp.Or(c["driver id"], token(c["driver"])))
	put(driver, "name", c["driver"])
	put(r, "driver", driver)
	r["safe_to_operate"] = yes(c["safe"])
	for i, text := range strings.FieldsFunc(c["defects"], func(r rune) bool { return r == ';' }) {
		label, words, _ := strings.Cut(text, ":")
		d := object{"defect_id": c["id"] + "." + strconv.Itoa(i+1), "code": partOf(strings.TrimSpace(label)), "unit": "vehicle",
			"vendor_label": strings.TrimSpace(label), "repair_status": "open"}
		put(d, "description", strings.TrimSpace(words))
		add(r, d)
	}
	if c["signed"] != "" {
		signed, _ := zoned(c["signed"], c["zone"])
		r["driver_signature"] = signature(cmp.Or(c["driver id"], token(c["driver"])), c["driver"], "driver", signed)
	}
	put(r, "remarks", c["remarks"])
	return r
}

// zoned gives a local time the offset of its zone, if the zone leaves no doubt. stated tells that it has its own.
func zoned(text, zone string) (at string, stated bool) {
	if !localTime.MatchString(text) {
		return text, true
	}
	loc, err := time.LoadLocation(zone)
	wall, bad := time.Parse("2006-01-02 15:04:05", strings.Replace(text, "T", " ", 1))
	if zone == "" || zone == "Local" || err != nil || bad != nil || occurrences(wall, loc) != 1 {
		return text, false
	}
	return time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, loc).Format(time.RFC3339), false
}

// number is a number as people write it, with commas between thousands; what is none stays text and breaks the contract.
func number(text string) any {
	plain := strings.ReplaceAll(text, ",", "")
	if v, f := decode([]byte(plain)); f == nil {
		if n, ok := v.(json.Number); ok {
			return n
		}
	}
	return text
}

// yes reads what stands under a question; nil is no answer.
func yes(text string) any {
	switch strings.ToLower(text) {
	case "yes", "y", "true":
		return true
	case "no", "n", "false":
		return false
	}
	return nil
}

// token makes an identifier of a name, for sources that know people by their names alone.
func token(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "-")
}
