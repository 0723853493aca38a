package test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// canary stands for words about a person: no error may repeat it.
const canary = "Canary-4711-Mustermann"

// TestBadArguments gives every verb what it cannot take. The exit code is the documented one, the text says what is
// wrong, and nothing of the values shows.
func TestBadArguments(t *testing.T) {
	s := serve(t, t.TempDir())
	dir := t.TempDir()
	file := filepath.Join(dir, "report.json")
	require.NoError(t, os.WriteFile(file, report("bad"), 0o600))
	missing := filepath.Join(dir, "missing")
	secret := filepath.Join(dir, "secret.yaml")
	require.NoError(t, os.WriteFile(secret, []byte("data: ["+canary), 0o600))
	huge := strings.Repeat(canary, 5000)
	ref := strings.Repeat("0", 63) + "1"
	long := strings.Repeat("x", 501)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{64, "too many", []string{"list", canary}},
		{64, "unknown flag --colour", []string{"list", "--colour", canary}},
		{64, "unknown flag --colour", []string{"serve", "--colour=" + canary}},
		{64, "needs a value", []string{"list", "--stage"}},
		{64, "--since: must be a time", []string{"list", "--since", canary}},
		{64, "--until: must be a time", []string{"list", "--until", "2026-13-45T00:00:00Z"}},
		{64, "--limit: must be a whole number", []string{"list", "--limit=-1"}},
		{64, "--limit: must be a whole number", []string{"list", "--limit=" + canary}},
		{64, "--limit: must be a whole number", []string{"list", "--limit=99999999999999999999"}},
		{6, "disposition", []string{"list", "-d", canary}},
		{6, "stage: must", []string{"list", "--stage", canary}},
		{6, "channel: must", []string{"list", "--channel", canary}},
		{6, "error_code", []string{"list", "--error-code", canary}},
		{6, "cursor: must", []string{"list", "--cursor", canary}},
		{6, "owner: must", []string{"list", "--owner", huge}},
		{64, "--output must be one of", []string{"list", "--output", canary}},
		{64, "--server: must be a URL", []string{"list", "--server", "http://" + canary + ":x"}},
		{64, "--server: must be a URL", []string{"list", "--server", canary}},
		{8, "no service answers", []string{"list", "--server", "http://127.0.0.1:1"}},
		{8, "no service answers", []string{"list", "--server", "http://" + canary + ":pw@127.0.0.1:1"}},
		{7, "not known", []string{"list", "--token", canary}},
		{8, "broke off", []string{"list", "--token", canary + "\n"}},
		{64, "not a YAML mapping", []string{"list", "--config", secret}},
		{64, "no such file", []string{"list", "--config", missing}},
		{6, "stage: must", []string{"groups", "--stage", canary}},
		{64, "too many", []string{"groups", canary}},

		{64, `expected "<ref>"`, []string{"show"}},
		{64, "<ref>: must be 8 to 64", []string{"show", canary}},
		{64, "<ref>: must be 8 to 64", []string{"show", huge}},
		{64, "<ref>: must be 8 to 64", []string{"show", "../../etc/passwd"}},
		{64, "<ref>: must be 8 to 64", []string{"show", ""}},
		{4, "no letter", []string{"show", ref}},
		{64, "too many", []string{"show", ref, canary}},
		{64, `expected "<ref>"`, []string{"payload"}},
		{64, "<ref>: must be 8 to 64", []string{"payload", canary}},
		{4, "no letter", []string{"payload", ref, "--reason", canary}},
		{6, "reason: must", []string{"payload", ref, "--reason", huge}},
		{6, "reason", []string{"payload", ref, "--reason", ""}},
		{1, "file exists", []string{"payload", ref, "--out", file}},
		{1, "no such file", []string{"payload", ref, "--out", filepath.Join(missing, "x")}},
		{64, "takes references or filters", []string{"replay"}},
		{64, "--timeout: must be a duration", []string{"replay", ref, "--timeout", canary}},
		{64, "--timeout: must be a duration", []string{"replay", ref, "--timeout=-1s"}},
		{64, "--timeout: must be a duration", []string{"replay", ref, "--timeout=9999999999999h"}},
		{4, "no letter", []string{"replay", ref, "--reason", canary}},
		{6, "reason: must", []string{"replay", ref, "--reason", long + canary}},
		{64, "missing flags: --reason", []string{"resolve", ref}},
		{64, "too many", []string{"resolve", ref, "--reason", "said", canary}},
		{64, "needs a value", []string{"resolve", ref, "--reason", "--" + canary}},
		{6, "must have the member reason", []string{"resolve", ref, "--reason", ""}},
		{6, "reason: must", []string{"resolve", ref, "--reason", long + canary}},
		{4, "no letter", []string{"resolve", ref, "--reason", canary}},
		{64, "not both", []string{"annotate", ref, "--tag", canary, "--untag", canary}},
		{4, "no letter", []string{"annotate", ref, "--note", canary}},
		{6, "note: must", []string{"annotate", ref, "--note", long + canary}},

		{64, `expected "<file> ..."`, []string{"ingest"}},
		{1, "no such file", []string{"ingest", missing}},
		{1, "is a directory", []string{"ingest", dir}},
		{64, "--channel must be one of", []string{"ingest", file, "--channel", canary}},
		{6, "source: must", []string{"ingest", file, "--source", "no " + canary}},
		{6, "content_type", []string{"ingest", file, "--content-type", canary}},
		{6, "content_encoding", []string{"ingest", file, "--content-encoding", canary + " x"}},
		{6, "wait: must", []string{"ingest", file, "--wait", "--timeout", "1h"}},
		{64, "--stage", []string{"fail", file}},
		{64, "--stage must be one of", []string{"fail", file, "--stage", canary, "--message", canary}},
		{64, "takes a file, or --ref", []string{"fail", "--stage", "parse", "--message", canary}},
		{64, "takes a file, or --ref", []string{"fail", file, "--ref", ref, "--stage", "parse"}},
		{64, "too many", []string{"fail", file, "--stage", "parse", "--message", "said", canary}},
		{64, "needs a value", []string{"fail", file, "--stage", "parse", "--message", "-" + canary}},
		{4, "no letter", []string{"fail", "--ref", ref, "--stage", "parse", "--message", canary}},
		{6, "payload_ref: must", []string{"fail", "--ref", canary, "--stage", "parse"}},
		{6, "error_code", []string{"fail", file, "--stage", "parse", "--error-code", canary}},
		{6, "http_status", []string{"fail", file, "--stage", "parse", "--http-status", "99"}},
		{6, "http_status", []string{"fail", file, "--stage", "parse", "--http-status=-5"}},
		{64, "--http-status: must be a whole number", []string{"fail", file, "--stage", "parse", "--http-status", canary}},
		{64, "--attempt: must be a whole number", []string{"fail", file, "--stage", "parse", "--attempt=-1"}},
		{6, "attempt", []string{"fail", file, "--stage", "parse", "--attempt", "9000000000000000000"}},
		{64, "--first-seen: must be a time", []string{"fail", file, "--stage", "parse", "--first-seen", canary}},
		{6, "error_type", []string{"fail", file, "--stage", "parse", "--error-type", huge[:3000]}},
		{6, "source: must", []string{"fail", file, "--stage", "parse", "--source", canary + " x"}},

		{64, "--from: must be a whole number", []string{"tail", "--from", canary}},
		{64, "bool value", []string{"tail", "--raw=" + canary}},
		{6, "after", []string{"tail", "--from", "9223372036854775807"}},
		{1, "no log here", []string{"verify", "--data", missing}},
		{1, "no such file", []string{"verify", "--log", missing}},
		{1, "is a directory", []string{"verify", "--log", dir}},
		{1, "stored head", []string{"verify", "--log", file, "--head", secret}},
		{2, "", []string{"verify", "--log", secret}},
		{1, "no log here", []string{"rebuild", "--data", missing}},
		{1, "no such file", []string{"dvir", "check", missing}},
		{1, "is a directory", []string{"dvir", "check", dir}},
		{64, "--at: must be a time", []string{"dvir", "check", file, "--at", canary}},
		{6, "dvir configuration", []string{"dvir", "check", file, "--dvir-config", secret}},
		{64, "--role must be one of", []string{"token", "create", "app", "--role", canary, "--data", dir}},
		{64, "missing flags: --role", []string{"token", "create", "app"}},
		{6, "name", []string{"token", "create", "no " + canary, "--role", "admin", "--data", dir}},
		{6, "name", []string{"token", "create", huge, "--role", "admin", "--data", dir}},
		{1, "no such file", []string{"token", "create", "app", "--role", "admin", "--data", missing}},
		{4, "no such token", []string{"token", "revoke", canary, "--data", dir}},
		{64, "expected one of", []string{"token"}},

		{64, "--workers: must be 1 to", []string{"serve", "--workers=-1", "--data", missing}},
		{64, "--workers: must be a whole number", []string{"serve", "--workers", canary, "--data", missing}},
		{64, "--max-payload: must", []string{"serve", "--max-payload=-1", "--data", missing}},
		{64, "--retention: must", []string{"serve", "--retention=2", "--data", missing}},
		{64, "--log-level must be one of", []string{"serve", "--log-level", canary, "--data", missing}},
		{1, "not a directory", []string{"serve", "--data", file}},
		{64, "too many", []string{"serve", canary}},
		{64, "too many", []string{"demo", canary}},
		{64, "too many", []string{"version", canary}},
	} {
		name := strings.Join(c.args, " ")
		name = name[:min(len(name), 60)]
		t.Run(name, func(t *testing.T) {
			args := c.args
			if slices.Contains([]string{"list", "groups", "show", "payload", "replay", "resolve", "annotate", "ingest", "fail", "tail"}, args[0]) {
				t.Setenv("HOLDFAST_SERVER", s.url)
				t.Setenv("HOLDFAST_TOKEN", s.token)
			}
			code, out, errs := holdfast(t, args...)
			assert.Equal(t, c.code, code, "%s%s", out, errs)
			assert.Contains(t, errs, c.says)
			clean(t, out+errs)
		})
	}
	assert.NoDirExists(t, missing)
	var stats struct {
		Events uint64 `json:"events"`
	}
	s.get("/v1/stats", &stats)
	assert.EqualValues(t, 1, stats.Events, "what was refused left an event")
	clean(t, s.log.String())
	s.stop()
}

// clean asserts that text is no crash and repeats no value.
func clean(t testing.TB, text string) {
	t.Helper()
	for _, word := range []string{canary, strings.ToLower(canary), "panic", "goroutine ", ".go:", "runtime error", "%!"} {
		assert.NotContains(t, text, word)
	}
}

// operation is what the service's own description says of an operation.
type operation struct {
	OperationID string `json:"operationId"`
	Parameters  []struct {
		Name     string
		In       string
		Required bool
		Schema   struct {
			Type      any // a name, or several
			Format    string
			Pattern   string
			Enum      []any
			MaxLength *int `json:"maxLength"`
			Items     *struct{ Enum []any }
		}
	}
	RequestBody *struct {
		Content map[string]any
	} `json:"requestBody"`
}

// TestBadRequests gives every operation that the service describes what it cannot take: each parameter a value
// against its rule, and each body the wrong bytes.
func TestBadRequests(t *testing.T) {
	s := serve(t, t.TempDir())
	_, _, err := s.do(t.Context(), "POST", "/v1/payloads?wait=10s", "text/plain", []byte("x"))
	require.NoError(t, err)
	var page struct{ Letters []struct{ Ref string } }
	s.get("/v1/letters", &page)
	var api struct {
		Paths map[string]map[string]operation
	}
	s.get("/openapi.json", &api)
	require.GreaterOrEqual(t, len(api.Paths), 13)
	var before, after struct{ Events uint64 }
	s.get("/v1/stats", &before)
	for path, methods := range api.Paths {
		at := strings.ReplaceAll(path, "{ref}", page.Letters[0].Ref)
		for method, op := range methods {
			t.Run(op.OperationID, func(t *testing.T) {
				b := bad{t, s}
				method := strings.ToUpper(method)
				b.ask("PATCH", at, "", "", 405)
				b.ask(method, at+"/"+canary+"/"+canary, "", "", 404)
				b.ask(method, at+"?"+canary+"=1", "application/json", "{}", 422)
				b.parameters(method, path, at, op)
				if op.RequestBody != nil {
					b.bodies(at, op)
				}
				if !slices.Contains([]string{"/healthz", "/readyz", "/metrics"}, path) {
					token := s.token
					s.token = canary
					b.ask(method, at, "application/json", "{}", 401)
					s.token = token
				}
			})
		}
	}
	s.get("/v1/stats", &after)
	assert.Equal(t, before, after, "what was refused left an event")
	clean(t, s.log.String())
	assert.NotContains(t, s.log.String(), `"level":"ERROR"`)
	s.stop()
}

// bad asks what must be refused.
type bad struct {
	t *testing.T
	s *server
}

func (b bad) ask(method, path, contentType, body string, statuses ...int) {
	b.t.Helper()
	status, answer, err := b.s.do(b.t.Context(), method, path, contentType, []byte(body))
	require.NoError(b.t, err)
	what := method + " " + path[:min(len(path), 150)] + " " + contentType + " " + body[:min(len(body), 60)]
	assert.Contains(b.t, statuses, status, "%s: %s", what, answer)
	var p struct {
		Type, Title, Detail string
		Status              int
		Fields              []struct{ Name, Rule string }
	}
	require.NoError(b.t, json.Unmarshal(answer, &p), "%s: %s", what, answer)
	assert.True(b.t, strings.HasPrefix(p.Type, "urn:holdfast:problem:"), what)
	assert.Equal(b.t, http.StatusText(status), p.Title, what)
	assert.Equal(b.t, status, p.Status, what)
	assert.NotEmpty(b.t, p.Detail, what)
	for _, f := range p.Fields {
		assert.NotEmpty(b.t, f.Name, what)
		assert.NotEmpty(b.t, f.Rule, what)
	}
	clean(b.t, string(answer))
}

// parameters breaks the rule of each parameter in turn.
func (b bad) parameters(method, path, at string, op operation) {
	for _, p := range op.Parameters {
		var values []string
		switch enum := p.Schema.Enum; {
		case len(enum) > 0, p.Schema.Items != nil, p.Schema.Type == "boolean", p.Schema.Format == "date-time":
			values = []string{canary, "\x00", "-1"}
		case p.Schema.Type == "integer":
			values = []string{canary, "-2", "1e400", "99999999999999999999999", "0x10", " 1"}
		case p.Schema.Pattern != "":
			values = []string{canary, strings.Repeat("g", 64), strings.Repeat("0", 65)}
		case p.Schema.MaxLength != nil:
			values = []string{canary + strings.Repeat("x", *p.Schema.MaxLength)}
		}
		for _, v := range values {
			switch p.In {
			case "path":
				b.ask(method, strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(v)), "application/json", "{}", 422)
			case "query":
				b.ask(method, at+"?"+url.Values{p.Name: {v}}.Encode(), "text/plain", "x", 422, 415)
			}
		}
		if p.Required && p.In == "query" {
			b.ask(method, at, "", "", 422)
		}
	}
}

// bodies sends what is no JSON of the operation; payloads are taken as they are and have none.
func (b bad) bodies(at string, op operation) {
	if _, json := op.RequestBody.Content["application/json"]; !json {
		return
	}
	for _, body := range []string{"", canary, `"` + canary + `"`, "[]", "null", "1", `{"` + canary + `":1}`, `{"reason":` + canary,
		`{"reason":{"` + canary + `":1}}`, "{}{}", "\xff\xfe", strings.Repeat(`{"reason":`, 20000), strings.Repeat("[", 100000),
		`{"reason":"` + canary + strings.Repeat("x", 70000) + `"}`, `{"stage":"` + canary + `","payload_ref":"` + canary + `"}`} {
		b.ask("POST", at, "application/json", body, 400, 413, 422)
	}
	b.ask("POST", at, "text/"+canary, canary, 415, 422)
	b.ask("POST", at, canary, canary, 415, 422)
	b.ask("POST", at, "multipart/form-data", canary, 415, 422)
	b.ask("POST", at, "multipart/form-data; boundary=b", canary, 415, 422, 400)
	b.ask("POST", at, "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\""+canary+"\"\r\n\r\n"+canary+"\r\n--b--\r\n", 415, 422)
}
