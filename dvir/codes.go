package dvir

import (
	"slices"
	"strings"
)

// Outcome is what becomes of one input.
type Outcome string

// The outcomes. A report is admitted with or without a warning; a duplicate yields the
// record that exists; an ignored input is no report at all; an exception awaits a human.
const (
	Admit            Outcome = "admit"
	AdmitWithWarning Outcome = "admit_with_warning"
	Duplicate        Outcome = "duplicate"
	Ignored          Outcome = "ignored"
	Exception        Outcome = "exception"
)

// Replay tells what can help an input that was not admitted.
type Replay string

// The replay classes.
const (
	Resend     Replay = "resend"      // these bytes can never pass; the source must deliver again
	AfterFix   Replay = "after_fix"   // the same bytes pass once mapping, alias, roster, zone or schema change
	AfterEvent Replay = "after_event" // a later revision is expected to bring what is missing
	Human      Replay = "human"       // a person decides or corrects
	None       Replay = "none"        // nothing to replay
)

// CodeInfo describes one code of the closed list. Outcome is the usual one: the finding
// itself (Finding.Warning) decides where a code knows both an error and a warning.
type CodeInfo struct {
	Code    string
	Outcome Outcome
	Replay  Replay
	Meaning string
}

// The codes that Go code names; the others are named by schema.json or belong to formats
// that no reader handles yet.
const (
	codeHTML            = "ingest.html_instead_of_data"
	codeConflict        = "ingest.conflict"
	codeExactBytes      = "ingest.exact_bytes"
	codeLogical         = "ingest.logical"
	codeRateLimited     = "ingest.rate_limited"
	codeNotReport       = "ingest.not_a_dvir"
	codeReference       = "normalize.reference_unresolved"
	codeLookup          = "normalize.vehicle_unidentified"
	codeSentinel        = "normalize.sentinel_time"
	codeZone            = "normalize.time_zone_missing"
	codeEmpty           = "parse.empty_body"
	codeCompressed      = "parse.undeclared_compression"
	codeTypeMismatch    = "parse.type_mismatch"
	codeUnsupported     = "parse.unsupported_format"
	codeCharset         = "parse.charset"
	codeGzipTruncated   = "parse.gzip_truncated"
	codeGzipChecksum    = "parse.gzip_checksum"
	codeArchiveInvalid  = "parse.archive_invalid"
	codeArchivePath     = "parse.archive_path"
	codeMultipart       = "parse.multipart_truncated"
	codeFieldCount      = "parse.csv_field_count"
	codePolarity        = "normalize.polarity_ambiguous"
	codeDoctype         = "parse.xml_doctype_forbidden"
	codeXMLSyntax       = "parse.xml_syntax"
	codeSyntax          = "parse.json_syntax"
	codeTruncated       = "parse.json_truncated"
	codeExpansion       = "parse.expansion_limit"
	codeDepth           = "parse.json_depth"
	codeDuplicateKey    = "parse.json_duplicate_key"
	codeSurrogate       = "parse.json_lone_surrogate"
	codeNumberRange     = "parse.json_number_range"
	codeTrailing        = "parse.trailing_data"
	codeDoubleEncoded   = "parse.double_encoded"
	codeBOM             = "parse.utf8_bom"
	codeVersion         = "validate.schema_version"
	codeSchema          = "validate.schema"
	codePrecision       = "normalize.number_precision"
	codeTimeAmbiguous   = "normalize.time_ambiguous"
	codeTimeNonexistent = "normalize.time_nonexistent"
	codeTimeNoOffset    = "validate.time_no_offset"
	codeTimeImplausible = "validate.time_implausible"
	codeTimeFuture      = "validate.time_future"
	codeVINCharset      = "validate.vin_charset"
	codeVINLength       = "validate.vin_length"
	codeVINPlaceholder  = "validate.vin_placeholder"
	codeVINCheckDigit   = "validate.vin_check_digit"
	codeNegative        = "validate.odometer_negative"
	codeImplausible     = "validate.odometer_implausible"
	codeScale           = "validate.severity_scale"
	codeBand            = "validate.severity_band"
	codeFloor           = "validate.severity_oos_floor"
	codeDefectUnknown   = "validate.defect_code_unknown"
	codeTextControl     = "validate.text_control"
	codeUnidentified    = "validate.vehicle_unidentified"
	codeTrailerUnknown  = "validate.trailer_unknown"
	codeDescription     = "validate.defect_description_missing"
	codeReviewMissing   = "validate.next_driver_review_missing"
	codeCertInconsist   = "validate.certification_inconsistent"
	codeContradiction   = "validate.safety_contradiction"
	codeTimeOrder       = "validate.time_order"
	codeSignatureOrder  = "validate.signature_order"
	codeSignerRole      = "validate.signer_role"
	codeRoster          = "validate.roster_mismatch"
	codeRollback        = "validate.odometer_rollback"
)

// codes is the closed list, most basic first: of several findings the one listed first
// names the result. The order is bytes and parsing, version of the contract, structure,
// normalisation and times, single fields, agreement between fields, agreement with the
// fleet and with history, and last the identity of the report.
var codes = []CodeInfo{
	{"ingest.auth_expired", Exception, AfterFix, "a sign-in page came instead of data: the credential has expired"},
	{codeHTML, Exception, Resend, "a web page, whatever the declared type says"},
	{codeRateLimited, Exception, Resend, "the source answered that it is asked too often"},
	{codeNotReport, Ignored, None, "a message of a known source that carries no report"},
	{"ingest.pdf_active_content", Exception, Human, "a PDF that acts when opened"},
	{codeEmpty, Exception, Resend, "no content"},
	{codeCompressed, Exception, AfterFix, "compressed bytes without a declaration"},
	{codeTypeMismatch, Exception, Human, "the bytes are of another kind than declared"},
	{codeUnsupported, Exception, AfterFix, "a format or shape that no reader of this version knows"},
	{codeCharset, Exception, AfterFix, "text that is not valid UTF-8"},
	{codeGzipTruncated, Exception, Resend, "the compressed stream ends early"},
	{codeGzipChecksum, Exception, Resend, "the compressed stream fails its checksum"},
	{codeArchiveInvalid, Exception, Human, "the archive contradicts itself"},
	{codeArchivePath, Exception, Human, "an archive member leaves its folder"},
	{codeExpansion, Exception, Human, "expands beyond the limits: of bytes, or of values in a document"},
	{codeMultipart, Exception, Resend, "the multipart body lacks its end"},
	{"parse.pdf_encrypted", Exception, Human, "the PDF is encrypted"},
	{"parse.pdf_truncated", Exception, Resend, "the PDF lacks its end"},
	{"parse.pdf_xref", Exception, Human, "the cross references of the PDF are wrong"},
	{"parse.no_text", Exception, Human, "a page without text"},
	{codeFieldCount, Exception, AfterFix, "rows do not fit the header or the mapping"},
	{codeDoctype, Exception, Resend, "XML with a document type declaration"},
	{codeXMLSyntax, Exception, Resend, "XML that is not well formed"},
	{codeDepth, Exception, Resend, "nested deeper than the limit"},
	{codeTruncated, Exception, Resend, "the JSON text ends early"},
	{codeSyntax, Exception, Resend, "not JSON"},
	{codeDuplicateKey, Exception, Resend, "an object has two members of one name"},
	{codeSurrogate, Exception, Resend, "an escape for half a character"},
	{codeNumberRange, Exception, Resend, "a number outside the range of a 64-bit float, or absurdly long"},
	{codeTrailing, Exception, Resend, "something follows the document"},
	{codeDoubleEncoded, Exception, Resend, "a JSON string that holds JSON"},
	{codeBOM, AdmitWithWarning, None, "a byte-order mark precedes the document"},

	{codeVersion, Exception, AfterFix, "a version of the contract that this processor does not know"},
	{codeSchema, Exception, Human, "the structure breaks the contract"},

	{"normalize.lossy_source", Exception, AfterFix, "the source leaves out what a report needs"},
	{codePrecision, Exception, AfterFix, "an identifier sent as a number too large to survive a 64-bit float"},
	{codePolarity, Exception, AfterFix, "a yes-or-no field whose meaning the source does not settle"},
	{codeReference, Exception, AfterFix, "references that only the source can resolve"},
	{codeLookup, Exception, AfterFix, "only the vendor's own vehicle id; the roster must resolve it"},
	{codeSentinel, Exception, AfterFix, "a placeholder where a time belongs"},
	{codeZone, Exception, AfterFix, "local times of a source whose zone the mapping must supply"},
	{codeTimeAmbiguous, Exception, Human, "a local time that the zone has twice"},
	{codeTimeNonexistent, Exception, Human, "a local time that the zone skips"},
	{codeTimeNoOffset, Exception, AfterFix, "a time without its offset from UTC"},
	{codeTimeImplausible, Exception, Human, "a leap second, or a time before 2000"},

	{codeVINCharset, Exception, Human, "the VIN has a character that no VIN has"},
	{codeVINLength, Exception, Human, "the VIN does not have 17 characters"},
	{codeVINPlaceholder, Exception, Human, "a filler where a VIN belongs"},
	{codeVINCheckDigit, AdmitWithWarning, None, "the ninth character does not fit; an error for North American VINs"},
	{codeNegative, Exception, Human, "a distance below zero"},
	{codeImplausible, Exception, Human, "a distance that no vehicle reaches"},
	{codeScale, Exception, Human, "a severity score that is not a whole number from 0 to 100"},
	{codeBand, Exception, Human, "severity score and band disagree"},
	{codeDefectUnknown, Exception, AfterFix, "a part code outside the contract and the aliases"},
	{codeDescription, Exception, Human, "a defect of part OTHER without words"},
	{codeTextControl, AdmitWithWarning, None, "control or direction-changing characters in a text; noted, never the code of a result"},

	{codeUnidentified, Exception, Human, "nothing identifies the vehicle"},
	{"validate.driver_signature_missing", Exception, AfterEvent, "a driver's report without the driver's signature"},
	{"validate.defect_flag_mismatch", Exception, Human, "defect flag and defect list disagree"},
	{"validate.trailer_id_missing", Exception, Human, "a trailer defect that names no trailer"},
	{codeTrailerUnknown, Exception, Human, "a trailer defect that names a trailer not on the report"},
	{codeFloor, Exception, Human, "an out-of-service defect with a score below 70"},
	{"validate.certification_missing", Exception, AfterEvent, "certified or closed with defects and no certification, 396.11(a)(3)(ii)"},
	{"validate.certification_signer_missing", Exception, AfterEvent, "a certification that names no signer"},
	{codeReviewMissing, Exception, AfterEvent, "closed with defects and no review by the next driver, 396.13"},
	{codeCertInconsist, Exception, Human, "certified while a safety defect is still open"},
	{"validate.unsafe_returned_to_service", Exception, Human, "closed and still called unsafe"},
	{codeContradiction, Exception, Human, "called safe despite an out-of-service defect"},
	{codeTimeOrder, Exception, Human, "started after it was reported"},
	{codeSignatureOrder, Exception, Human, "a signature earlier than what it signs"},
	{codeSignerRole, AdmitWithWarning, None, "a signature by a person or role not meant for it"},

	{codeTimeFuture, Exception, Human, "later than receipt by more than clocks differ"},
	{codeRoster, Exception, Human, "the VIN belongs to another unit of the fleet"},
	{codeRollback, Exception, Human, "the odometer is lower than at an earlier report"},

	{codeConflict, Exception, Human, "identity and version of a known report with other content"},
	{codeExactBytes, Duplicate, None, "the same bytes were admitted before"},
	{codeLogical, Duplicate, None, "the same report in other bytes"},
}

// ranks is the place of each code in the list.
var ranks = func() map[string]int {
	m := make(map[string]int, len(codes))
	for i, c := range codes {
		m[c.Code] = i
	}
	return m
}()

// Codes returns the closed list of codes, most basic first.
func Codes() []CodeInfo { return slices.Clone(codes) }

// stageOf is the part of a code before the dot.
func stageOf(code string) string {
	stage, _, _ := strings.Cut(code, ".")
	return stage
}
