package chain

import "time"

// Every maximum of the event format. They bound what a verifier, in any language, must be ready to hold.
const (
	// MaxEvent is the largest event body in bytes. C2SP tlog-tiles allows 65,535 per entry; half of it leaves
	// room for framing and keeps a block of many events small.
	MaxEvent = 32 << 10
	// MaxDepth is the deepest nesting of objects and arrays, the event itself being level 1.
	MaxDepth = 6
	// MaxMembers is the largest number of members of one object, so that the check for repeated names stays cheap.
	MaxMembers = 128
	// MaxInteger is the largest integer that every JSON reader represents exactly (2^53-1).
	MaxInteger = 1<<53 - 1
	// MaxBlockEvents and MaxBlockBytes bound one block. NATS refuses messages over 1 MiB by default.
	MaxBlockEvents = 1000
	MaxBlockBytes  = 700 << 10

	// MaxLastError is the longest error summary, in characters.
	MaxLastError = 500
	// MaxReason is the longest reason or note of a person, in characters.
	MaxReason = 500
	// MaxToken is the longest identifier (actor, worker, source, owner, tag), in bytes.
	MaxToken = 80
	// MaxText is the longest text that a machine gives (blob version, content type and encoding, origin, log id,
	// key, software), in bytes. Version ids of S3 stay well below.
	MaxText = 200
	// MaxContentType is the longest content type, in bytes.
	MaxContentType = MaxText
	// MaxFindings is the largest number of findings an event lists; findings_total counts the rest.
	MaxFindings = 48
	// MaxPointer is the longest JSON pointer of a finding, in bytes.
	MaxPointer = 200
	// MaxSubmissions is how many distinct senders of the same bytes a letter remembers.
	MaxSubmissions = 16
	// MaxOccurrences is how many distinct failures that were handed over a letter remembers.
	MaxOccurrences = 16
	// MaxTags is how many tags a letter carries.
	MaxTags = 16
)

// timeLayout is the only spelling of an instant: UTC, six digits, Z.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// Instant is t as events spell it: UTC, cut to microseconds.
func Instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
