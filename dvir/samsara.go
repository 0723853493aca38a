package dvir

import "cmp"

// readSamsara knows the history, the stream, the webhook and the first version of the vendor's API, and the message that a
// report is missing.
func readSamsara(s *source) (reading, bool) {
	v, _ := s.json()
	if of(v, "webhookId") != "" && of(v, "eventType") != "" {
		if of(v, "eventType") != "DvirSubmitted" {
			return notReport()
		}
		o, _ := lookup(v, "data", "dvir").(object)
		return s.samsara(o, lookup(v, "data", "vehicle"), lookup(v, "data", "driver")), true
	}
	if dvirs, ok := lookup(v, "dvirs").([]any); ok {
		return one(dvirs, s.samsaraFirst)
	}
	data := list(v, "data")
	if lookup(v, "pagination") == nil || len(data) == 0 || lookup(data[0], "safetyStatus") == nil || lookup(data[0], "authorSignature") == nil {
		return reading{}, false
	}
	return one(data, func(o object) reading {
		return s.samsara(o, o["vehicle"], lookup(o, "authorSignature", "signatoryUser"))
	})
}

// samsara maps one report. Its three roads spell the same members in three ways.
func (s *source) samsara(o object, vehicle, driver any) reading {
	if of(vehicle, "name") == "" && of(vehicle, "vin") == "" && vehicle != nil {
		return refuse(codeLookup)
	}
	r := s.draft("samsara", of(o, "id"))
	inspection := member(r, "inspection")
	inspection["type"] = tripOf(of(o, "type"))
	put(inspection, "started_at", cmp.Or(of(o, "startTime"), of(o, "dvirSubmissionBeginTime")))
	put(inspection, "reported_at", cmp.Or(of(o, "endTime"), of(o, "dvirSubmissionTime")))
	if text := cmp.Or(of(o, "location"), of(o, "formattedLocation"), of(o, "formattedAddress")); text != "" {
		inspection["location"] = object{"text": text}
	}
	unit := member(r, "vehicle")
	put(unit, "unit_number", of(vehicle, "name"))
	put(unit, "vin", of(vehicle, "vin"))
	if plate := cmp.Or(of(vehicle, "licensePlate"), of(o, "licensePlate")); plate != "" {
		unit["plate"] = object{"number": plate}
	}
	put(unit, "vendor_asset_id", of(vehicle, "id"))
	put(unit, "odometer", odometer(o["odometerMeters"], "m", "field_name"))
	if trailer := cmp.Or(of(o, "trailerName"), of(o, "trailer", "name")); trailer != "" {
		r["trailers"] = []any{object{"trailer_id": trailer}}
	}
	person := object{}
	put(person, "driver_id", of(driver, "id"))
	put(person, "name", of(driver, "name"))
	put(r, "driver", person)
	for _, name := range []string{"vehicleDefects", "trailerDefects", "defects"} {
		for _, d := range list(o, name) {
			add(r, samsaraDefect(d))
		}
	}
	switch of(o, "safetyStatus") {
	case "safe":
		r["safe_to_operate"] = true
	case "unsafe":
		r["safe_to_operate"] = false
	}
	author := lookup(o, "authorSignature")
	put(r, "driver_signature", signature(of(author, "signatoryUser", "id"), of(author, "signatoryUser", "name"), "driver", of(author, "signedAtTime")))
	return reading{report: r}
}

func samsaraDefect(v any) object {
	d := object{"defect_id": of(v, "id"), "code": partOf(of(v, "defectType")), "unit": "vehicle", "vendor_label": of(v, "defectType"),
		"repair_status": "open"}
	put(d, "description", of(v, "comment"))
	if trailer := of(v, "trailer", "name"); trailer != "" {
		d["unit"], d["trailer_id"] = "trailer", trailer
	}
	if lookup(v, "isResolved") == true {
		d["repair_status"] = "repaired"
		put(d, "repaired_at", of(v, "resolvedAtTime"))
	}
	return d
}

// samsaraFirst maps a report of the first version, whose times are Unix milliseconds.
func (s *source) samsaraFirst(o object) reading {
	r := s.draft("samsara", of(o, "id"))
	inspection := member(r, "inspection")
	inspection["type"] = tripOf(of(o, "inspectionType"))
	put(inspection, "reported_at", millis(o["timeMs"]))
	unit := member(r, "vehicle")
	put(unit, "unit_number", of(o, "vehicle", "name"))
	put(unit, "vendor_asset_id", of(o, "vehicle", "id"))
	put(unit, "odometer", odometer(o["odometerMiles"], "mi", "field_name"))
	if trailer := of(o, "trailerName"); trailer != "" {
		r["trailers"] = []any{object{"trailer_id": trailer}}
	}
	author := lookup(o, "authorSignature")
	r["driver"] = object{"driver_id": of(author, "driverId"), "name": of(author, "name")}
	r["safe_to_operate"] = nil // a condition after repair says nothing of the driver's finding
	for _, name := range []string{"vehicleDefects", "trailerDefects"} {
		for _, d := range list(o, name) {
			defect := samsaraDefect(d)
			if name == "trailerDefects" {
				defect["unit"] = "trailer"
				put(defect, "trailer_id", of(o, "trailerName"))
			}
			if lookup(d, "resolved") == true {
				defect["repair_status"] = "repaired"
				put(defect, "repaired_at", millis(lookup(d, "resolvedAt")))
				put(defect, "repaired_by", of(d, "resolvedByMechanicId"))
			}
			add(r, defect)
		}
	}
	put(r, "driver_signature", signature(of(author, "driverId"), of(author, "name"), "driver", millis(lookup(author, "signedAt"))))
	if agent := lookup(o, "mechanicOrAgentSignature"); agent != nil {
		r["stage"] = "repair_certified"
		disposition := "repaired"
		if o["defectsNeedNotBeCorrected"] == true {
			disposition = "repair_unnecessary"
		}
		r["carrier_certification"] = object{"disposition": disposition,
			"signature": signature(of(agent, "mechanicUserId"), of(agent, "name"), "mechanic", millis(lookup(agent, "signedAt")))}
	}
	return reading{report: r}
}
