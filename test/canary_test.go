package test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// canaries are what a driver's report could hold about people. Pieces of them stand for the whole.
var canaries = []struct{ text, piece string }{
	{"John Q. Public", "q. public"},
	{"555-12-3456", "555-12-3"},
	{"jane.doe@example.com", "jane.doe"},
	{"1TSTTRK83RX000101", "rk83rx000101"},
	{"Zanzibar-Quartz-77", "zanzibar"},
	{"Zanzibar-Quartz-77", "quartz"},
	{"271828182845904", "2718281828"},
	{"Renée Ångström", "ngstr"},
}

// gossip quotes all of them in one line, as the text of an error would.
const gossip = `John Q. Public (555-12-3456, jane.doe@example.com) drove 1TSTTRK83RX000101 at Zanzibar-Quartz-77 ` +
	`with 271828182845904 and Renée Ångström`

// spellings are the forms in which a piece can hide in bytes: letters of either case, UTF-16, base64 at each of its
// three offsets, hexadecimal, escaped for JSON and for URLs.
func spellings(piece string) [][]byte {
	all := [][]byte{[]byte(piece), []byte(url.QueryEscape(piece)), []byte(url.PathEscape(piece)), []byte(hex.EncodeToString([]byte(piece)))}
	var little, escaped, twice []byte
	for _, c := range utf16.Encode([]rune(piece)) {
		little = append(little, byte(c), byte(c>>8))
		escaped = fmt.Appendf(escaped, `\u%04x`, c)
		twice = fmt.Appendf(twice, `\\u%04x`, c)
	}
	return append(all, little, escaped, twice)
}

// hits are the pieces that stand in data, in any spelling.
func hits(data []byte) (found []string) {
	folded := bytes.ToLower(data)
	for _, c := range canaries {
		for _, spelling := range spellings(c.piece) {
			if bytes.Contains(folded, spelling) {
				found = append(found, fmt.Sprintf("%q as %q", c.piece, spelling))
			}
		}
		for offset := range 3 {
			whole := base64.RawStdEncoding.EncodeToString(append(make([]byte, offset), c.text...))
			middle := []byte(whole[4 : len(whole)-4])
			if bytes.Contains(data, middle) || bytes.Contains(data, []byte(strings.NewReplacer("+", "-", "/", "_").Replace(string(middle)))) {
				found = append(found, fmt.Sprintf("%q in base64", c.text))
			}
		}
	}
	return found
}

func TestHits(t *testing.T) {
	assert.Empty(t, hits([]byte("John drove unit 17")))
	for _, c := range canaries {
		assert.NotEmpty(t, hits([]byte("x "+c.text+" y")), c.text)
		assert.NotEmpty(t, hits([]byte(strings.ToUpper(c.text))), c.text)
		assert.NotEmpty(t, hits([]byte(base64.StdEncoding.EncodeToString([]byte("so "+c.text+" said")))), c.text)
		assert.NotEmpty(t, hits(utf16le(c.text)), c.text)
	}
}

func utf16le(text string) (out []byte) {
	out = []byte{0xff, 0xfe}
	for _, c := range utf16.Encode([]rune(text)) {
		out = append(out, byte(c), byte(c>>8))
	}
	return out
}

// escapes spells every character as JSON lets one spell it.
func escapes(text string) string {
	var out strings.Builder
	for _, c := range utf16.Encode([]rune(text)) {
		fmt.Fprintf(&out, `\u%04x`, c)
	}
	return out.String()
}

// letterOfPeople is a payload that holds all the canaries, in one spelling or another.
type letterOfPeople struct {
	name, contentType string
	body              []byte
}

func lettersOfPeople() []letterOfPeople {
	const driver, vehicle = `"driver":{"driver_id":"drv-1"}`, `"vehicle":{"unit_number":"unit-`
	valid := strings.NewReplacer(driver, `"driver":{"driver_id":"Zanzibar-Quartz-77","name":"`+gossip+`"}`,
		vehicle, `"vehicle":{"vin":"1TSTTRK83RX000101","unit_number":"unit-`).Replace(string(report("Zanzibar-Quartz-77")))
	return []letterOfPeople{
		{"admitted", "application/json", []byte(valid)},
		{"conflict", "application/json", []byte(strings.Replace(valid, "T18:09:40", "T18:08:40", 1))},
		{"unknown member", "application/json", []byte(strings.Replace(valid, "{", `{"Zanzibar-Quartz-77":"`+gossip+`",`, 1))},
		{"bad vin", "application/json", []byte(strings.Replace(valid, "1TSTTRK83RX000101", "1TSTTRK83RX000101Q", 1))},
		{"values", "application/json", fmt.Appendf(nil, `{"driver":"John Q. Public","Jane.Doe@example.com":"555-12-3456","ssn":271828182845904,"note":%q}`, gossip)},
		{"escapes", "application/json", fmt.Appendf(nil, `{"a":"%s","%s":1}`, escapes(gossip), escapes("Zanzibar-Quartz-77"))},
		{"broken", "application/json", fmt.Appendf(nil, `{"driver":"John Q. Public","phone":555-12-3456,"note":"%s`, gossip)},
		{"text", "text/plain; name=Zanzibar-Quartz-77", []byte(gossip)},
		{"utf16", "application/json", utf16le(`{"note":"` + gossip + `"}`)},
		{"multipart", "multipart/form-data; boundary=simple", []byte("--simple\r\nContent-Disposition: form-data; name=\"Zanzibar-Quartz-77\"; " +
			"filename=\"John Q. Public.pdf\"\r\n\r\n" + gossip + "\r\n--simple--\r\n")},
	}
}

// witness remembers everything that the service and the command line said.
type witness struct {
	*server
	said []saying
}

type saying struct {
	where string
	text  []byte
}

func (w *witness) heard(where string, text []byte) { w.said = append(w.said, saying{where, text}) }

// ask sends a request, hears the whole answer and returns its status and body.
func (w *witness) ask(method, path string, header http.Header, body []byte) (int, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, bytes.NewReader(body))
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer "+w.token)
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	var head bytes.Buffer
	require.NoError(w.t, resp.Header.Write(&head))
	where, _, _ := strings.Cut(path, "?")
	w.heard(fmt.Sprintf("answer to %s %s", method, where), append(head.Bytes(), answer...))
	return resp.StatusCode, answer
}

// tool runs a verb, with the service's address if it takes one, and hears what it prints.
func (w *witness) tool(want int, client bool, args ...string) string {
	w.t.Helper()
	code, out, errs := w.run(client, args)
	assert.Equal(w.t, want, code, "%q: %s", args, errs)
	return out
}

// wrong runs a verb that has to refuse what it is given.
func (w *witness) wrong(client bool, args ...string) {
	w.t.Helper()
	const notFound, refused, denied, usage = 4, 6, 7, 64
	code, _, errs := w.run(client, args)
	assert.Contains(w.t, []int{notFound, refused, denied, usage}, code, "%q: %s", args, errs)
	assert.NotEmpty(w.t, errs, "%q", args)
}

func (w *witness) run(client bool, args []string) (code int, out, errs string) {
	w.t.Helper()
	if client {
		code, out, errs = w.cli(args...)
	} else {
		code, out, errs = holdfast(w.t, args...)
	}
	w.heard(fmt.Sprintf("output of %q", args), []byte(out))
	w.heard(fmt.Sprintf("errors of %q", args), []byte(errs))
	return code, out, errs
}

// TestTC07NoPersonalData sends payloads that are full of personal data through everything the service does, quotes them
// wherever a sender or an operator could, and looks for them in all that it says and stores.
func TestTC07NoPersonalData(t *testing.T) {
	data := t.TempDir()
	w := &witness{server: serve(t, data, "--log-level", "debug")}
	w.mistakes()
	letters := w.handOver()
	w.decide(letters)
	w.look(letters)
	w.stop()
	w.afterwards(data)
	w.heard("the service's log", []byte(w.log.String()))
	assert.Contains(t, w.log.String(), `"msg":"request"`, "requests are logged at debug")
	for _, s := range w.said {
		assert.Empty(t, hits(s.text), "%s:\n%.2000s", s.where, s.text)
	}
	checkFolder(t, data)
	t.Logf("%d answers and outputs", len(w.said))
}

// handOver submits every letter, and failures of every letter that quote it, by all ways there are.
func (w *witness) handOver() (refs []string) {
	t := w.t
	for i, l := range lettersOfPeople() {
		status, answer := w.ask("POST", "/v1/payloads?wait=20s", http.Header{"Content-Type": {l.contentType}}, l.body)
		require.Equal(t, http.StatusCreated, status, "%s: %s", l.name, answer)
		var r receipt
		require.NoError(t, json.Unmarshal(answer, &r))
		require.Equal(t, i == 0, r.Disposition == "resolved", "%s: %s", l.name, answer)
		refs = append(refs, r.PayloadRef)
		for _, f := range []map[string]any{
			{"message": "parse error near " + gossip, "error_type": "crash:Zanzibar-Quartz-77", "stage": "parse"},
			{"message": fmt.Sprintf("panic: cannot handle %q\n\ngoroutine 1 [running]:\n%s", gossip, strings.ToUpper(gossip)), "error_type": "panic:John Q. Public", "stage": "parse"},
			{"message": escapes(gossip), "error_type": gossip[:90], "stage": "dispatch"},
			{"message": string(l.body), "http_status": 503, "retry_after": "Zanzibar-Quartz-77", "stage": "dispatch"},
			{"message": "x", "error_code": "parse.zanzibar_quartz_77", "stage": "parse"},
		} {
			f["payload_ref"] = r.PayloadRef
			w.fail("", "application/json", nil, f)
		}
		w.fail("?stage=normalize&error_type=timeout", l.contentType, l.body, nil)
		w.failInParts(l)
	}
	w.stranger()
	return refs
}

// stranger is a letter that holds nothing about people, quoted with what is known by its spelling alone.
func (w *witness) stranger() {
	t := w.t
	const text = "call 555-12-3456 or jane.doe@example.com, 1TSTTRK83RX000101, 271828182845904"
	status, answer := w.ask("POST", "/v1/failures?stage=parse", http.Header{"Holdfast-Error-Message": {text}}, []byte("{}"))
	require.Equal(t, http.StatusCreated, status, string(answer))
	var r receipt
	require.NoError(t, json.Unmarshal(answer, &r))
	w.tool(0, true, "annotate", r.PayloadRef, "--note", text)
	w.tool(0, true, "payload", r.PayloadRef, "--reason", text)
	w.tool(0, true, "resolve", r.PayloadRef, "--reason", text)
	w.tool(0, true, "show", r.PayloadRef)
}

// fail hands a failure over, with fields as JSON if there are any; a refusal is as good, if it says nothing.
func (w *witness) fail(query, contentType string, body []byte, fields map[string]any) {
	w.t.Helper()
	if fields != nil {
		var err error
		body, err = json.Marshal(fields)
		require.NoError(w.t, err)
	}
	status, answer := w.ask("POST", "/v1/failures"+query,
		http.Header{"Content-Type": {contentType}, "Holdfast-Error-Message": {"cannot read " + gossip}}, body)
	assert.Less(w.t, status, 500, string(answer))
}

// failInParts does it as a form.
func (w *witness) failInParts(l letterOfPeople) {
	w.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	require.NoError(w.t, form.WriteField("stage", "parse"))
	require.NoError(w.t, form.WriteField("message", "unexpected "+gossip))
	payload, err := form.CreateFormFile("payload", "Zanzibar-Quartz-77.json")
	require.NoError(w.t, err)
	_, err = payload.Write(l.body)
	require.NoError(w.t, err)
	require.NoError(w.t, form.Close())
	w.fail("", form.FormDataContentType(), body.Bytes(), nil)
}

// decide replays, annotates and resolves with words that quote the payload.
func (w *witness) decide(refs []string) {
	t := w.t
	const left = 2 // to the command line
	for i, ref := range refs {
		order, err := json.Marshal(map[string]any{"reason": "told by " + gossip, "override": true})
		require.NoError(t, err)
		note, err := json.Marshal(map[string]string{"note": "ask " + strings.ToUpper(gossip)})
		require.NoError(t, err)
		closing, err := json.Marshal(map[string]string{"reason": "settled with " + escapes(gossip)[:480]})
		require.NoError(t, err)
		w.settled(ref)
		for _, step := range []struct {
			path string
			body []byte
			want []int
		}{
			{"replay", order, []int{200, 409}},
			{"annotations", note, []int{200}},
			{"annotations", []byte(`{"owner":"jane.doe@example.com"}`), []int{422}},
			{"annotations", []byte(`{"tag":"John Q. Public"}`), []int{422}},
			{"resolve", closing, []int{200, 409}},
		} {
			if i == left && step.path == "resolve" {
				continue
			}
			status, answer := w.ask("POST", "/v1/letters/"+ref+"/"+step.path, http.Header{"Content-Type": {"application/json"}}, step.body)
			assert.Contains(t, step.want, status, "%s of letter %d: %s", step.path, i, answer)
			w.settled(ref)
		}
		status, _, err := w.do(t.Context(), "GET", "/v1/letters/"+ref+"/payload?reason="+url.QueryEscape(gossip), "", nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, status)
		w.tool(0, true, "annotate", ref, "--note", gossip)
	}
	w.tool(0, true, "replay", refs[left], "--override", "--wait", "--reason", gossip)
	w.tool(0, true, "resolve", refs[left], "--reason", gossip, "--output", "json")
}

// settled waits until a letter is not about to be processed.
func (w *witness) settled(ref string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		var c struct{ Letter struct{ Disposition string } }
		w.get("/v1/letters/"+ref, &c)
		return c.Letter.Disposition != "received" && c.Letter.Disposition != "replayed"
	}, 30*time.Second, 5*time.Millisecond)
}

// mistakes are requests and commands that quote personal data where it does not belong.
func (w *witness) mistakes() {
	t := w.t
	quoted, text := url.QueryEscape(gossip), http.Header{"Content-Type": {"application/json"}}
	ref := strings.Repeat("ab", 32)
	for _, m := range []struct {
		method, path string
		header       http.Header
		body         string
	}{
		{"POST", "/v1/failures?stage=" + quoted, text, gossip},
		{"POST", "/v1/failures?stage=parse&first_seen=" + quoted, text, gossip},
		{"POST", "/v1/failures?stage=parse&attempt=" + quoted, text, gossip},
		{"POST", "/v1/failures?stage=parse&error_code=" + quoted, text, gossip},
		{"POST", "/v1/failures?payload_ref=" + quoted, text, gossip},
		{"POST", "/v1/failures", text, `{"payload_ref":"` + gossip + `"}`},
		{"POST", "/v1/failures", text, `{"payload_ref":"` + ref + `","stage":"parse","Zanzibar-Quartz-77":1}`},
		{"POST", "/v1/failures", text, `{"payload_ref":"` + ref + `","stage":"parse","attempt":"John Q. Public"}`},
		{"POST", "/v1/failures", text, gossip},
		{"POST", "/v1/failures", http.Header{"Content-Type": {"multipart/form-data; boundary=b"}},
			"--b\r\nContent-Disposition: form-data; name=\"Zanzibar-Quartz-77\"\r\n\r\n" + gossip + "\r\n--b--\r\n"},
		{"POST", "/v1/failures", http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}, "--b\r\nJohn Q. Public\r\n\r\n" + gossip},
		{"POST", "/v1/payloads?channel=" + quoted, text, gossip},
		{"POST", "/v1/payloads?source=" + quoted, text, gossip},
		{"POST", "/v1/payloads?wait=" + quoted, text, gossip},
		{"POST", "/v1/payloads?Zanzibar-Quartz-77=1", text, gossip},
		{"POST", "/v1/payloads", http.Header{"Content-Type": {"John Q. Public"}}, gossip},
		{"POST", "/v1/payloads", http.Header{"Content-Type": text["Content-Type"], "Content-Encoding": {"John Q. Public"}}, gossip},
		{"POST", "/v1/payloads", http.Header{"Authorization": {"Bearer Zanzibar-Quartz-77"}}, gossip},
		{"POST", "/v1/payloads", http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("jane.doe@example.com:Zanzibar-Quartz-77"))}}, gossip},
		{"GET", "/v1/letters?cursor=" + quoted[:80], nil, ""},
		{"GET", "/v1/letters?limit=" + quoted, nil, ""},
		{"GET", "/v1/letters?since=" + quoted, nil, ""},
		{"GET", "/v1/letters?disposition=" + quoted, nil, ""},
		{"GET", "/v1/letters?name=" + quoted, nil, ""},
		{"GET", "/v1/letters?" + quoted + "=1", nil, ""},
		{"GET", "/v1/letters/Zanzibar-Quartz-77", nil, ""},
		{"GET", "/v1/letters/" + url.PathEscape(gossip) + "/payload?reason=x", nil, ""},
		{"GET", "/v1/Zanzibar-Quartz-77/John%20Q.%20Public", nil, ""},
		{"GET", "/v1/letters//Zanzibar-Quartz-77", nil, ""},
		{"GET", "/v1/events?after=" + quoted, nil, ""},
		{"GET", "/v1/events", http.Header{"Last-Event-Id": {"John Q. Public"}, "Accept": {"text/event-stream"}}, ""},
		{"ZANZIBAR", "/v1/letters", http.Header{"X-Request-Id": {"Zanzibar-Quartz-77"}}, ""},
		{"POST", "/v1/letters/" + ref + "/replay", text, `{"reason":"` + gossip + `"}`},
		{"POST", "/v1/letters/" + ref + "/replay", text, `{"Zanzibar-Quartz-77":"` + gossip + `"}`},
		{"POST", "/v1/letters/" + ref + "/replay", text, `{"override":"John Q. Public"}`},
		{"POST", "/v1/letters/" + ref + "/resolve", text, `"` + gossip + `"`},
		{"POST", "/v1/letters/" + ref + "/resolve", text, gossip},
		{"POST", "/v1/letters/" + ref + "/annotations", text, `{"untag":"John Q. Public"}`},
	} {
		status, answer := w.ask(m.method, m.path, m.header, []byte(m.body))
		assert.True(t, 400 <= status && status < 500, "%s %s: %d %s", m.method, m.path, status, answer)
	}
	w.misuse()
}

func (w *witness) misuse() {
	t := w.t
	dir := t.TempDir()
	file, config := filepath.Join(dir, "payload.json"), filepath.Join(dir, "roster.json")
	require.NoError(t, os.WriteFile(file, []byte(gossip), 0o600))
	require.NoError(t, os.WriteFile(config, []byte(`{"units":[{"unit_number":"Zanzibar-Quartz-77","vin":"John Q. Public"}]}`), 0o600))
	w.wrong(true, "ingest", file, "--channel", gossip)
	w.wrong(true, "ingest", file, "--timeout", gossip)
	w.wrong(true, "ingest", file, "--source", gossip)
	w.wrong(true, "ingest", file, "--content-type", "John Q. Public")
	w.wrong(true, "fail", file, "--stage", gossip)
	w.wrong(true, "fail", file, "--stage", "parse", "--first-seen", gossip)
	w.wrong(true, "fail", file, "--stage", "parse", "--http-status", gossip)
	w.wrong(true, "fail", file, "--stage", "parse", "--error-code", gossip)
	w.wrong(true, "fail", "--ref", gossip, "--stage", "parse")
	w.wrong(true, "show", gossip)
	w.wrong(true, "payload", "Zanzibar-Quartz-77")
	w.wrong(true, "replay", "Zanzibar-Quartz-77", "--reason", gossip)
	w.wrong(true, "list", "--cursor", "Zanzibar-Quartz-77")
	w.wrong(true, "list", "--limit", gossip)
	w.wrong(true, "list", "--since", gossip)
	w.wrong(true, "list", "--disposition", gossip)
	w.wrong(true, "show", "abababab", gossip)
	w.wrong(false, "list", "--server", w.url, "--token", "Zanzibar-Quartz-77")
	w.wrong(false, "list", "--output", gossip)
	w.wrong(false, "dvir", "check", file, "--dvir-config", config)
	w.tool(0, false, "dvir", "check", file)
	w.wrong(false, "token", "create", "John Q. Public", "--role", "auditor", "--data", dir)
	w.wrong(false, "token", "revoke", "Zanzibar-Quartz-77", "--data", dir)
}

// look asks for everything that can be seen of the letters, apart from their bytes.
func (w *witness) look(refs []string) {
	t := w.t
	for _, path := range []string{"/v1/letters?limit=500", "/v1/letters?limit=500&order=newest", "/v1/groups", "/v1/stats",
		"/v1/events?limit=10000", "/v1/log/entries", "/openapi.json", "/healthz", "/readyz"} {
		status, answer := w.ask("GET", path, nil, nil)
		require.Equal(t, http.StatusOK, status, "%s: %s", path, answer)
	}
	for _, verb := range [][]string{{"list", "--limit", "0"}, {"groups"}, {"tail", "--from", "0"}} {
		w.tool(0, true, verb...)
		w.tool(0, true, append(verb, "--output", "json")...)
	}
	w.tool(0, true, "tail", "--raw", "--from", "0")
	for i, ref := range refs {
		shown := w.tool(0, true, "show", ref)
		assert.Contains(t, shown, "***", "letter %d was quoted, and it shows that something was masked", i)
		w.tool(0, true, "show", ref, "--output", "json")
	}
	dir := t.TempDir()
	for i, l := range lettersOfPeople() {
		path := filepath.Join(dir, fmt.Sprint(i, ".json"))
		require.NoError(t, os.WriteFile(path, l.body, 0o600))
		w.tool(0, false, "dvir", "check", path)
		w.tool(0, false, "dvir", "check", path, "--output", "json")
		w.tool(0, true, "ingest", path, "--wait")
		w.tool(0, true, "fail", path, "--stage", "dispatch", "--message", gossip, "--output", "json")
	}
}

// afterwards is what can be asked of the folder alone. A payload is damaged, so that there is a finding.
func (w *witness) afterwards(data string) {
	w.tool(0, false, "verify", "--data", data)
	w.tool(0, false, "verify", "--data", data, "--output", "json")
	w.tool(0, false, "rebuild", "--data", data)
	c := &custody{data: data}
	c.read(w.t)
	for _, line := range c.lines {
		w.heard("stored event", line)
	}
	copied := c.copied(w.t)
	refs := payloadRefs(w.t, copied.data)
	copied.spoil(w.t, refs[0])
	copied.remove(w.t, refs[1])
	w.tool(2, false, "verify", "--data", copied.data)
	w.tool(2, false, "verify", "--data", copied.data, "--output", "json")
}

// payloadRefs are the stored bytes that hold canaries.
func payloadRefs(t testing.TB, data string) (refs []string) {
	t.Helper()
	for path, content := range files(t, filepath.Join(data, "blobs")) {
		if len(hits(content)) > 0 {
			refs = append(refs, filepath.Base(path))
		}
	}
	slices.Sort(refs)
	require.GreaterOrEqual(t, len(refs), len(lettersOfPeople()), "payloads and error texts are kept whole")
	return refs
}

// files are the regular files below a folder.
func files(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		all[path], err = os.ReadFile(path)
		return err
	}))
	return all
}

// checkFolder holds that canaries stand in the folder of the payloads and nowhere else.
func checkFolder(t *testing.T, data string) {
	t.Helper()
	payloadRefs(t, data)
	for _, name := range []string{"log", "state.db", "head", "tokens.json", "admin-token", "node"} {
		found := files(t, filepath.Join(data, name))
		assert.NotEmpty(t, found, name)
	}
	for path, content := range files(t, data) {
		name, err := filepath.Rel(data, path)
		require.NoError(t, err)
		assert.Empty(t, hits([]byte(name)))
		if !strings.HasPrefix(name, "blobs"+string(filepath.Separator)) {
			assert.Empty(t, hits(content), name)
		}
	}
}
