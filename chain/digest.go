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
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != 2*len(d) {
		return Digest{}, ErrDigest
	}
	for i := range d {
		hi, lo := hexDigit(s[2*i]), hexDigit(s[2*i+1])
		if hi|lo > 15 {
			return Digest{}, ErrDigest
		}
		d[i] = hi<<4 | lo
	}
	return d, nil
}

// hexDigit is the value of a lowercase hexadecimal digit, or 255.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 255
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
