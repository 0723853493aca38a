package process_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/process"
)

func secret(t testing.TB, text string) process.Secret {
	s, err := process.ParseSecret(text)
	require.NoError(t, err)
	return s
}

// oldSecret and the signature that TestSign expects for it are the example of the Standard Webhooks libraries.
const oldSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

var newSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("n", 64)))

func TestSign(t *testing.T) {
	h := http.Header{}
	at, body := time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)
	process.Sign(h, []process.Secret{secret(t, oldSecret)}, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body)
	require.Equal(t, http.Header{"Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"}, "Webhook-Timestamp": {"1614265330"},
		"Webhook-Signature": {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}}, h)
}

func TestVerify(t *testing.T) {
	old, young, other := secret(t, oldSecret), secret(t, newSecret), secret(t, "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 24)))
	at, body := time.Unix(1614265330, 0), []byte("\xff\x00 body")
	h := http.Header{}
	process.Sign(h, []process.Secret{old, young}, "id", at, body)
	for _, known := range [][]process.Secret{{old}, {young}, {other, old}, {young, other}} {
		require.NoError(t, process.Verify(h, known, at, body), "both sides may change over")
		require.NoError(t, process.Verify(h, known, at.Add(process.Tolerance), body))
		require.NoError(t, process.Verify(h, known, at.Add(-process.Tolerance), body))
		require.ErrorIs(t, process.Verify(h, known, at.Add(process.Tolerance+time.Second), body), process.ErrSignature)
		require.ErrorIs(t, process.Verify(h, known, at.Add(-process.Tolerance-time.Second), body), process.ErrSignature)
	}
	require.ErrorIs(t, process.Verify(h, []process.Secret{other}, at, body), process.ErrSignature)
	require.ErrorIs(t, process.Verify(h, nil, at, body), process.ErrSignature)
	require.ErrorIs(t, process.Verify(h, []process.Secret{old}, at, body[1:]), process.ErrSignature)
	signature := h.Get("Webhook-Signature")
	for name, value := range map[string]string{"Webhook-Id": "other", "Webhook-Timestamp": "1614265331", "Webhook-Signature": ""} {
		spoilt := h.Clone()
		spoilt.Set(name, value)
		require.ErrorIs(t, process.Verify(spoilt, []process.Secret{old}, at, body), process.ErrSignature, name)
	}
	for _, timestamp := range []string{"", "x", "+1614265330", "01614265330", "1614265330.0", "9223372036854775808", "-9223372036854775808"} {
		spoilt := h.Clone()
		spoilt.Set("Webhook-Timestamp", timestamp)
		require.ErrorIs(t, process.Verify(spoilt, []process.Secret{old}, at, body), process.ErrSignature, timestamp)
	}
	first, _, _ := strings.Cut(signature, " ")
	for _, spoilt := range []string{strings.ReplaceAll(signature, "v1,", "v1a,"), strings.ReplaceAll(signature, ",", ""), "v1,", "v1", first[:len(first)-2]} {
		changed := h.Clone()
		changed.Set("Webhook-Signature", spoilt)
		require.ErrorIs(t, process.Verify(changed, []process.Secret{old}, at, body), process.ErrSignature, spoilt)
	}
	more := h.Clone()
	more.Set("Webhook-Signature", "v2,abc nonsense v1,AAAA "+signature)
	require.NoError(t, process.Verify(more, []process.Secret{young}, at, body), "what else is signed does not matter")
}

func TestSecrets(t *testing.T) {
	for _, bytes := range []int{24, 32, 64} {
		secret(t, "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, bytes))+"\n")
	}
	for _, text := range []string{"", "whsec_", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23)),
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)), strings.TrimPrefix(oldSecret, "whsec_"), oldSecret[:len(oldSecret)-1],
		oldSecret + "=", strings.ToUpper(oldSecret), "whsk_" + strings.TrimPrefix(oldSecret, "whsec_")} {
		_, err := process.ParseSecret(text)
		var refused *chain.FieldError
		require.ErrorAs(t, err, &refused, text)
		require.Equal(t, "secret", refused.Field)
	}
	s := secret(t, oldSecret)
	raw, err := json.Marshal(process.HTTPConfig{Secrets: []process.Secret{s}})
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s %x %d", s, s, s, s, s, []process.Secret{s})+string(raw), "MfKQ")
	require.Equal(t, "whsec_***", fmt.Sprintf("%x", s))
}

// FuzzVerify: whatever a header says, only who knows the secret is believed.
func FuzzVerify(f *testing.F) {
	at := time.Unix(1614265330, 0)
	f.Add("id", "1614265330", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", []byte("body"))
	f.Add("", "", "v1, v1,, ,", []byte{})
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {signature}}
		require.ErrorIs(t, process.Verify(h, []process.Secret{secret(t, newSecret)}, at, body), process.ErrSignature)
	})
}
