package web_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/web"
)

// TestTC07Canaries puts personal data into payloads, error texts, reasons and notes, and looks for it in everything that
// comes out but the payload itself.
func TestTC07Canaries(t *testing.T) {
	b := newBench(t)
	canaries := []string{"Jane Q. Canary", "1HGCM82633A004352", "canary@example.org", "555-0142-7788"}
	payload := `{"driver":"` + canaries[0] + `","vin":"` + canaries[1] + `","mail":"` + canaries[2] + `","phone":"` + canaries[3] + `"}`
	text := strings.Join(canaries, " and ")
	var out strings.Builder
	see := func(a answer) {
		out.WriteString(a.body)
		for name, values := range a.header {
			out.WriteString(name + strings.Join(values, ""))
		}
	}
	a := b.send("POST", "/v1/failures?stage=parse&error_type=schema", strings.NewReader(payload), "Content-Type", "application/json", "Holdfast-Error-Message", text)
	require.Equal(t, 201, a.status, a.body)
	see(a)
	b.folded(1)
	ref := b.envelope().PayloadRef.String()
	for _, c := range []struct{ path, body string }{
		{"/annotations", `{"note":"` + text + `"}`},
		{"/replay", `{"reason":"` + text + `"}`},
		{"/replay", `{"reason":"` + text + `"}`},
		{"/resolve", `{"reason":"` + text + `","` + text + `":1}`},
	} {
		see(b.send("POST", "/v1/letters/"+ref+c.path, strings.NewReader(c.body), "Content-Type", "application/json"))
	}
	read := b.send("GET", "/v1/letters/"+ref+"/payload?reason="+strings.ReplaceAll(text, " ", "+"), nil)
	assert.Equal(t, payload, read.body)
	for _, path := range []string{"/v1/letters", "/v1/letters/" + ref, "/v1/groups", "/v1/stats", "/v1/events", "/v1/log/entries",
		"/v1/letters?tag=" + strings.ReplaceAll(text, " ", "+"), "/v1/" + canaries[1]} {
		see(b.send("GET", path, nil))
	}
	_, err := b.client(web.Reviewer).Resolve(t.Context(), ref, text)
	if err != nil {
		out.WriteString(err.Error())
	}
	for _, c := range canaries {
		assert.NotContains(t, out.String(), c)
		assert.NotContains(t, b.logs.String(), c)
	}
	assert.Contains(t, b.logs.String(), "level=DEBUG", "there is an access log to look into")
}
