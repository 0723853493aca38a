package dvir

import (
	"cmp"
	"strings"
)

// readMotive knows the inspection reports of the vendor's API, in the shapes of an account with and without resolution by
// part, and the test message of a new webhook.
func readMotive(s *source) (reading, bool) {
	v, _ := s.json()
	if words, ok := v.([]any); ok && len(words) > 0 {
		for _, w := range words {
			if word, _ := w.(string); !strings.HasPrefix(word, "inspection_report_") {
				return reading{}, false
			}
		}
		return notReport()
	}
	reports, ok := lookup(v, "inspection_reports").([]any)
	if !ok || lookup(v, "pagination") == nil {
		return reading{}, false
	}
	return one(reports, func(o object) reading {
		if inner, ok := o["inspection_report"].(object); ok {
			o = inner
		}
		return s.motive(o)
	})
}

func (s *source) motive(o object) reading {
	r := s.draft("motive", of(o, "id"))
	inspection := member(r, "inspection")
	inspection["type"] = tripOf(of(o, "inspection_type"))
	put(inspection, "reported_at", of(o, "time"))
	put(inspection, "local_time_zone", railsZones[of(o, "driver", "time_zone")])
	if text := of(o, "location"); text != "" {
		inspection["location"] = object{"text": text}
	}
	if name := of(o, "carrier_name"); name != "" {
		r["carrier"] = object{"name": name}
	}
	unit := member(r, "vehicle")
	put(unit, "unit_number", cmp.Or(of(o, "vehicle", "number"), of(o, "vehicle_number"), of(o, "entity_num")))
	put(unit, "vin", strings.ToUpper(of(o, "vehicle", "vin")))
	put(unit, "vendor_asset_id", of(o, "vehicle", "id"))
	measure := "mi"
	if lookup(o, "vehicle", "metric_units") == true {
		measure = "km"
	}
	unit["odometer"] = odometer(o["odometer"], measure, "mapping")
	for _, number := range list(o, "trailer_nums") {
		trailers, _ := r["trailers"].([]any)
		r["trailers"] = append(trailers, object{"trailer_id": of(number)})
	}
	name := full(of(o, "driver", "first_name"), of(o, "driver", "last_name"))
	r["driver"] = object{"driver_id": of(o, "driver", "id"), "name": name}
	r["safe_to_operate"] = nil
	if signed := of(o, "driver_signed_at"); signed != "" {
		r["driver_signature"] = signature(of(o, "driver", "id"), name, "driver", signed)
	}
	motiveDefects(r, o)
	motiveCertification(r, o)
	return reading{report: r}
}

// motiveDefects takes what was found wrong: a part of the type none, or in good order, was looked at and is no defect.
func motiveDefects(r, o object) {
	corrected := of(o, "status") == "corrected"
	for _, v := range append(list(o, "defects"), list(o, "inspected_parts")...) {
		status := of(v, "status")
		if of(v, "type") == "none" || status == "good" {
			continue
		}
		d := object{"defect_id": of(v, "id"), "code": partOf(of(v, "category")), "unit": "vehicle", "vendor_label": of(v, "category"),
			"repair_status": "open"}
		put(d, "description", of(v, "notes"))
		for _, found := range list(v, "defects") {
			put(d, "severity", graded(of(found, "severity")))
		}
		switch {
		case status == "repaired", status == "" && corrected:
			d["repair_status"] = "repaired"
			put(d, "repaired_at", of(v, "mechanic_details", "mechanic_signed_at"))
		case status == "no_repair_needed":
			d["repair_status"] = "not_necessary"
		}
		add(r, d)
	}
}

// motiveCertification finds who certified the repair: of the report, or of its parts where the account resolves by part.
func motiveCertification(r, o object) {
	mechanic := signature(of(o, "mechanic", "id"), full(of(o, "mechanic", "first_name"), of(o, "mechanic", "last_name")), "mechanic",
		of(o, "mechanic_signed_at"))
	for _, p := range list(o, "inspected_parts") {
		if details := lookup(p, "mechanic_details"); len(mechanic) == 0 && of(details, "mechanic_signed_at") != "" {
			mechanic = signature(of(details, "resolver", "id"), of(details, "mechanic_name"), "mechanic", of(details, "mechanic_signed_at"))
		}
	}
	if len(mechanic) == 0 {
		return
	}
	r["stage"] = "repair_certified"
	r["carrier_certification"] = object{"disposition": "repaired", "signature": mechanic}
}

// railsZones are the names that Ruby on Rails shows for zones of North America, and those of the IANA database.
var railsZones = map[string]string{
	"Hawaii": "Pacific/Honolulu", "Alaska": "America/Juneau", "Pacific Time (US & Canada)": "America/Los_Angeles",
	"Tijuana": "America/Tijuana", "Arizona": "America/Phoenix", "Mazatlan": "America/Mazatlan", "Chihuahua": "America/Chihuahua",
	"Mountain Time (US & Canada)": "America/Denver", "Central Time (US & Canada)": "America/Chicago", "Saskatchewan": "America/Regina",
	"Central America": "America/Guatemala", "Guadalajara": "America/Mexico_City", "Mexico City": "America/Mexico_City",
	"Monterrey": "America/Monterrey", "Eastern Time (US & Canada)": "America/New_York", "Indiana (East)": "America/Indiana/Indianapolis",
	"Atlantic Time (Canada)": "America/Halifax", "Newfoundland": "America/St_Johns", "Puerto Rico": "America/Puerto_Rico", "UTC": "Etc/UTC",
}
