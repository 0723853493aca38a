package dvir

import "strings"

// labels are vendors' words for parts, in the form that partOf compares them in, and the contract's part codes. It grows by
// what sites report; what it does not know keeps its label as a code, which a site can alias.
var labels = map[string]string{
	"air compressor": "AIR_SYSTEM", "air lines": "AIR_SYSTEM", "air system": "AIR_SYSTEM",
	"battery": "BATTERY_ELECTRICAL", "electrical": "BATTERY_ELECTRICAL",
	"body": "BODY_DOORS", "doors": "BODY_DOORS", "body doors": "BODY_DOORS",
	"brakes": "SERVICE_BRAKES", "service brakes": "SERVICE_BRAKES", "brake accessories": "SERVICE_BRAKES", "parking brake": "PARKING_BRAKE",
	"brakes parking": "PARKING_BRAKE", "cargo securement": "CARGO_SECUREMENT", "coupling devices": "COUPLING_DEVICES",
	"fifth wheel": "COUPLING_DEVICES", "coolant": "COOLING", "radiator": "COOLING", "cooling system": "COOLING",
	"drive line": "DRIVELINE", "driveline": "DRIVELINE", "emergency equipment": "EMERGENCY_EQUIPMENT",
	"fire extinguisher": "EMERGENCY_EQUIPMENT", "reflective triangles": "EMERGENCY_EQUIPMENT", "engine": "ENGINE", "exhaust": "EXHAUST",
	"fluid leaks": "FLUID_LEAK", "oil leak": "FLUID_LEAK", "frame": "FRAME", "fuel system": "FUEL_SYSTEM", "fuel tanks": "FUEL_SYSTEM",
	"windows": "GLASS", "windshield": "GLASS", "heater": "HEATER_DEFROSTER", "defroster": "HEATER_DEFROSTER", "horn": "HORN",
	"instruments": "INSTRUMENTS_WARNINGS", "gauges": "INSTRUMENTS_WARNINGS", "landing gear": "LANDING_GEAR",
	"lights": "LIGHTING_REFLECTORS", "lights turn signal": "LIGHTING_REFLECTORS", "lights head": "LIGHTING_REFLECTORS",
	"lights tail": "LIGHTING_REFLECTORS", "lights brake": "LIGHTING_REFLECTORS", "lights marker": "LIGHTING_REFLECTORS",
	"turn signal": "LIGHTING_REFLECTORS", "turn signals": "LIGHTING_REFLECTORS", "headlights": "LIGHTING_REFLECTORS",
	"tail lights": "LIGHTING_REFLECTORS", "reflectors": "LIGHTING_REFLECTORS", "lighting devices and reflectors": "LIGHTING_REFLECTORS",
	"emergency exits": "PASSENGER_EXITS", "mirrors": "REAR_VISION_MIRRORS", "rear vision mirrors": "REAR_VISION_MIRRORS",
	"seat belts": "SEATS_BELTS", "seats": "SEATS_BELTS", "steering": "STEERING", "steering mechanism": "STEERING",
	"suspension": "SUSPENSION", "springs": "SUSPENSION", "tires": "TIRES", "tyres": "TIRES", "transmission": "TRANSMISSION",
	"wheels": "WHEELS_RIMS", "rims": "WHEELS_RIMS", "wheels and rims": "WHEELS_RIMS", "windshield wipers": "WINDSHIELD_WIPERS",
	"wipers": "WINDSHIELD_WIPERS", "other": "OTHER",
}

// partOf is the code of a label, or the label.
func partOf(label string) string {
	words := strings.FieldsFunc(strings.ToLower(label), func(r rune) bool { return strings.ContainsRune(" -_/&,.", r) })
	if code, known := labels[strings.Join(words, " ")]; known {
		return code
	}
	return label
}
