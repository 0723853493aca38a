package dvir

import "cmp"

// readLytx knows the list of reports of the vendor's API. Odometers are miles by its documentation, and the certification is
// the only time of the driver's signature.
func readLytx(s *source) (reading, bool) {
	v, _ := s.json()
	data := list(v, "data")
	if lookup(v, "metadata") == nil || len(data) == 0 || lookup(data[0], "dvirStatus") == nil {
		return reading{}, false
	}
	return one(data, s.lytx)
}

func (s *source) lytx(o object) reading {
	r := s.draft("lytx", of(o, "id"))
	inspection := member(r, "inspection")
	inspection["type"] = tripOf(of(o, "inspectionType"))
	put(inspection, "reported_at", of(o, "creationDate"))
	if text := of(o, "location"); text != "" {
		inspection["location"] = object{"text": text}
	}
	unit := member(r, "vehicle")
	put(unit, "unit_number", of(o, "vehicleName"))
	put(unit, "vendor_asset_id", of(o, "vehicleId"))
	put(unit, "odometer", odometer(o["odometer"], "mi", "mapping"))
	if trailer := of(o, "trailerName"); trailer != "" {
		r["trailers"] = []any{object{"trailer_id": trailer}}
	}
	driver := lookup(o, "signatures", "driverSignature")
	name := cmp.Or(full(of(driver, "firstName"), of(driver, "lastName")), of(o, "driverName"))
	person := object{}
	put(person, "driver_id", of(driver, "userId"))
	put(person, "name", name)
	put(r, "driver", person)
	r["safe_to_operate"] = nil
	for _, v := range list(o, "defects") {
		d := object{"defect_id": of(v, "id"), "code": partOf(of(v, "name")), "unit": "vehicle", "vendor_label": of(v, "name"), "repair_status": "open"}
		put(d, "description", cmp.Or(of(v, "notes", "mobileNoteDescription"), of(v, "notes", "webNote", "description")))
		put(d, "severity", graded(of(v, "severityLevel")))
		if status := of(v, "status"); status == "Resolved" || status == "Safe" {
			d["repair_status"] = map[string]string{"Resolved": "repaired", "Safe": "not_necessary"}[status]
		}
		add(r, d)
	}
	if driver != nil {
		r["driver_signature"] = signature(of(driver, "userId"), name, "driver", of(o, "certificationDate"))
	}
	return reading{report: r}
}
