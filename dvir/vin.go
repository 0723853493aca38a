package dvir

import "strings"

const (
	vinLength = 17
	vinChars  = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789"
	counting  = "12345678901234567"
)

// vinShape is the code of text that is no VIN, "" for one (49 CFR 565.13, 565.15). A
// foreign character outranks a wrong length: OCR that reads a letter for a digit, or adds
// one, shows itself by it.
func vinShape(s string) string {
	for _, c := range s {
		if !strings.ContainsRune(vinChars, c) {
			return codeVINCharset
		}
	}
	if len(s) != vinLength {
		return codeVINLength
	}
	return ""
}

// vinPlaceholder tells the fillers that drivers type: one character repeated, which often
// passes the check digit, and the digits counted up.
func vinPlaceholder(vin string) bool {
	return vin == counting || strings.Count(vin, vin[:1]) == vinLength
}

// checkDigitFits tells whether the ninth character of a well-formed VIN is its check digit
// (49 CFR 565.15(c)). A wrong VIN fits one time in eleven.
func checkDigitFits(vin string) bool {
	const (
		letters = "ABCDEFGHJKLMNPRSTUVWXYZ"
		values  = "12345678123457923456789"
		weights = "\x08\x07\x06\x05\x04\x03\x02\x0a\x00\x09\x08\x07\x06\x05\x04\x03\x02"
	)
	sum := 0
	for i := range vinLength {
		value := vin[i]
		if at := strings.IndexByte(letters, value); at >= 0 {
			value = values[at]
		}
		sum += int(value-'0') * int(weights[i])
	}
	return vin[8] == "0123456789X"[sum%11]
}

// northAmerican tells a VIN of the region whose rule the check digit is: world
// manufacturer identifiers that begin with 1 to 5. Elsewhere ISO 3779 leaves the ninth
// character free.
func northAmerican(vin string) bool { return '1' <= vin[0] && vin[0] <= '5' }

// judgeVIN is the finding about a well-formed VIN, if there is one.
func judgeVIN(vin, pointer string) (Finding, bool) {
	switch {
	case vinPlaceholder(vin):
		return Finding{Code: codeVINPlaceholder, Pointer: pointer}, true
	case !checkDigitFits(vin):
		return Finding{Code: codeVINCheckDigit, Pointer: pointer, Warning: !northAmerican(vin)}, true
	}
	return Finding{}, false
}
