package process

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Headers of a signed request (Standard Webhooks 1.0, "Webhook headers").
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// Tolerance is how far the clocks of the two sides of a signed request may be apart, and how long a captured one can be
// sent again.
const Tolerance = 5 * time.Minute

// ErrSignature says that a request is not signed with any of the secrets, or not lately.
var ErrSignature = errors.New("the request is not signed with a known secret within five minutes")

// Secret is a symmetric key of Standard Webhooks. It never prints itself.
type Secret struct{ key []byte }

const (
	secretPrefix = "whsec_"
	minSecret    = 24 // bytes, as the specification demands
	maxSecret    = 64
)

// ParseSecret reads "whsec_" and the base64 of 24 to 64 bytes. The error is a *chain.FieldError.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), secretPrefix)
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if !ok || err != nil || len(key) < minSecret || len(key) > maxSecret {
		return Secret{}, &chain.FieldError{Field: "secret", Rule: "must be whsec_ and the base64 of 24 to 64 bytes"}
	}
	return Secret{key}, nil
}

// Format implements fmt.Formatter for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, secretPrefix+"***") }

func (s Secret) sign(id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// Sign sets the headers of Standard Webhooks: the id names what is delivered and stays the same when it is delivered
// again. There is a signature for each secret, so that a receiver can change over from one to the next. id has no dot.
func Sign(h http.Header, secrets []Secret, id string, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	var signatures []string
	for _, s := range secrets {
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(s.sign(id, timestamp, body)))
	}
	h.Set(headerID, id)
	h.Set(headerTimestamp, timestamp)
	h.Set(headerSignature, strings.Join(signatures, " "))
}

// Verify tells whether the sender of body, with headers h, knew one of the secrets, less than Tolerance away from now.
// The error is ErrSignature.
func Verify(h http.Header, secrets []Secret, now time.Time, body []byte) error {
	id, timestamp := h.Get(headerID), h.Get(headerTimestamp)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" || strconv.FormatInt(seconds, 10) != timestamp || now.Sub(time.Unix(seconds, 0)).Abs() > Tolerance {
		return ErrSignature
	}
	for _, s := range secrets {
		want := s.sign(id, timestamp, body)
		for signature := range strings.FieldsSeq(h.Get(headerSignature)) {
			version, encoded, _ := strings.Cut(signature, ",")
			if given, err := base64.StdEncoding.DecodeString(encoded); err == nil && version == "v1" && hmac.Equal(given, want) {
				return nil
			}
		}
	}
	return ErrSignature
}
