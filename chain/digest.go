package chain

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// Digest is a SHA-256 value: the name of stored bytes, or the leaf hash of an event.
// Its text form is 64 lowercase hexadecimal digits.
type Digest [sha256.Size]byte

// ErrDigest reports text that is not 64 lowercase hexadecimal digits.
var ErrDigest = errors.New("not a digest: want 64 lowercase hexadecimal digits")

// Sum is the digest of data as such, the rule behind payload_ref.
func Sum(data []byte) Digest { return sha256.Sum256(data) }

// ParseDigest reads the text form. Any other spelling, upper case included, is ErrDigest.
func ParseDigest(s string) (d Digest, err error) {
	if !d.parse([]byte(s)) {
		return Digest{}, ErrDigest
	}
	return d, nil
}

func (d *Digest) parse(text []byte) bool {
	if len(text) != 2*len(d) {
		return false
	}
	var bad byte
	for i := range d {
		hi, lo := digits[text[2*i]], digits[text[2*i+1]]
		bad |= hi | lo
		d[i] = hi<<4 | lo
	}
	return bad < 16
}

// String is the text form.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// IsZero tells the absent digest, which is also prev of the genesis event.
func (d Digest) IsZero() bool { return d == Digest{} }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDigest(string(text))
	return err
}
