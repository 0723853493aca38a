package dvir

import "strings"

// What follows knows documents that cannot become a report by themselves, and says what is missing.

// readRefusal meets the answers of APIs that were asked too often.
func readRefusal(s *source) (reading, bool) {
	v, _ := s.json()
	message := strings.ToLower(of(v, "message"))
	limited := strings.Contains(message, "rate limit") && lookup(v, "data") == nil || of(v, "error", "data", "type") == "OverLimitException"
	return refuse(codeRateLimited), limited
}

// readGeotab meets the vendor's feed: device, driver and defects are references that only its API resolves.
func readGeotab(s *source) (reading, bool) {
	v, _ := s.json()
	data := list(v, "result", "data")
	if of(v, "result", "toVersion") == "" && of(v, "jsonrpc") == "" || lookup(v, "result") == nil {
		return reading{}, false
	}
	if len(data) == 0 {
		return notReport()
	}
	return refuse(codeReference), lookup(data[0], "dVIRDefects") != nil || lookup(data[0], "logType") != nil
}

// readFleetio meets the vendor's webhook: a form whose items have a meaning by their labels alone, and a vehicle by number.
func readFleetio(s *source) (reading, bool) {
	v, _ := s.json()
	return refuse(codeReference), of(v, "event") != "" && lookup(v, "payload", "submitted_inspection_items") != nil
}

// readTrimble meets the vendor's events, whose data is a JSON text. Report times have no zone, and 1800 stands for never.
func readTrimble(s *source) (reading, bool) {
	v, _ := s.json()
	if !strings.HasPrefix(of(v, "type"), "com.trimble.transportation.safety.vehicle-inspection.") {
		return reading{}, false
	}
	data, f := decode([]byte(of(v, "data")))
	if f != nil {
		return refuse(f.code), true
	}
	certified := of(data, "repairCertification", "certificationStatus")
	if certified != "" && certified != "NONE" && strings.HasPrefix(of(data, "repairCertification", "certificationDateTime"), "1800-") {
		return refuse(codeSentinel), true
	}
	return refuse(codeZone), true
}

// readExtraction meets the fields that a text recognition gives, each with how sure it is. Letters that no VIN has tell that
// it misread.
func readExtraction(s *source) (reading, bool) {
	v, _ := s.json()
	if lookup(v, "fields") == nil || lookup(v, "mean_confidence") == nil {
		return reading{}, false
	}
	if code := vinShape(of(v, "fields", "vehicle_vin", "text")); code != "" {
		return reading{findings: []Finding{{Code: code}}}, true
	}
	return refuse(codeUnsupported), true
}
