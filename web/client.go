package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Client calls the API of a server. Its methods answer with *Problem when the server refused; other errors are those
// of the connection, and then it is not known whether the server did what was asked. Repeating a submission or
// failure is safe: it is recorded once.
type Client struct {
	URL   string       // of the server, such as http://127.0.0.1:8420
	Token string       // "" sends none
	HTTP  *http.Client // nil means http.DefaultClient
}

// SubmitOptions are what a sender may say about a payload.
type SubmitOptions struct {
	Channel         chain.Channel
	Source          string
	ContentType     string
	ContentEncoding string
	Wait            time.Duration // for the outcome; at most a minute
}

// Submit hands over a payload.
func (c *Client) Submit(ctx context.Context, body io.Reader, o SubmitOptions) (r Receipt, err error) {
	q := url.Values{}
	put(q, "channel", string(o.Channel))
	put(q, "source", o.Source)
	if o.Wait > 0 {
		q.Set("wait", o.Wait.String())
	}
	header := http.Header{}
	for name, value := range map[string]string{"Content-Type": o.ContentType, "Content-Encoding": o.ContentEncoding} {
		if value != "" {
			header.Set(name, value)
		}
	}
	err = c.do(ctx, call{"POST", "/v1/payloads", q, header, body}, &r)
	return r, err
}

// Fail hands over a failure: with the payload, or with a nil body for the payload that f.PayloadRef names.
func (c *Client) Fail(ctx context.Context, f Failure, body io.Reader) (r Receipt, err error) {
	if body == nil {
		return r, c.post(ctx, "/v1/failures", f, &r)
	}
	fields, err := f.values()
	if err != nil {
		return r, err
	}
	pipe, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() { w.CloseWithError(writeForm(form, fields, f.ContentType, body)) }()
	defer func() { _ = pipe.Close() }() // ends the writer
	header := http.Header{"Content-Type": {form.FormDataContentType()}}
	err = c.do(ctx, call{"POST", "/v1/failures", nil, header, pipe}, &r)
	return r, err
}

// values are the fields of f as text, by the names they have as JSON.
func (f Failure) values() (map[string]string, error) {
	raw, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	var members map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&members); err != nil {
		return nil, err
	}
	out := make(map[string]string, len(members))
	for name, v := range members {
		out[name] = fmt.Sprint(v)
	}
	return out, nil
}

func writeForm(form *multipart.Writer, fields map[string]string, contentType string, body io.Reader) error {
	for name, value := range fields {
		if err := form.WriteField(name, value); err != nil {
			return err
		}
	}
	header := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="payload"; filename="payload"`}}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	part, err := form.CreatePart(header)
	if err != nil {
		return err
	}
	if _, err := io.Copy(part, body); err != nil {
		return err
	}
	return form.Close()
}

// Letters is a page of the letters that q means.
func (c *Client) Letters(ctx context.Context, q Query) (p Page, err error) {
	v := q.values()
	put(v, "source", q.Source)
	put(v, "owner", q.Owner)
	put(v, "tag", q.Tag)
	putTime(v, "since", q.Since)
	putTime(v, "until", q.Until)
	putTime(v, "retention_ends_before", q.Ends)
	put(v, "order", q.Order)
	put(v, "cursor", q.Cursor)
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return p, c.get(ctx, "/v1/letters", v, &p)
}

func (f Filter) values() url.Values {
	v := url.Values{}
	for _, d := range f.Disposition {
		v.Add("disposition", string(d))
	}
	put(v, "stage", string(f.Stage))
	put(v, "error_code", f.ErrorCode)
	put(v, "channel", string(f.Channel))
	return v
}

func put(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

func putTime(v url.Values, name string, t time.Time) {
	if !t.IsZero() {
		v.Set(name, t.UTC().Format(time.RFC3339Nano))
	}
}

// Letter is a letter and its history. ref may be short, here and below: 8 hexadecimal digits that no other letter
// begins with.
func (c *Client) Letter(ctx context.Context, ref string) (l Case, err error) {
	return l, c.get(ctx, letterPath(ref, ""), nil, &l)
}

func letterPath(ref, rest string) string { return "/v1/letters/" + url.PathEscape(ref) + rest }

// Payload opens the bytes of a letter; that they are read, and why, is recorded. The caller closes the reader. Bytes
// are good only once io.EOF was seen: a server that finds them damaged cuts the connection.
func (c *Client) Payload(ctx context.Context, ref, reason string) (io.ReadCloser, error) {
	res, err := c.send(ctx, call{"GET", letterPath(ref, "/payload"), url.Values{"reason": {reason}}, nil, nil})
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// Replay puts a letter back to work.
func (c *Client) Replay(ctx context.Context, ref string, o Order) (r Receipt, err error) {
	return r, c.post(ctx, letterPath(ref, "/replay"), o, &r)
}

// Resolve closes a letter by hand.
func (c *Client) Resolve(ctx context.Context, ref, reason string) (r Receipt, err error) {
	return r, c.post(ctx, letterPath(ref, "/resolve"), Order{Reason: reason}, &r)
}

// Annotate notes something about a letter.
func (c *Client) Annotate(ctx context.Context, ref string, n Annotation) (r Receipt, err error) {
	return r, c.post(ctx, letterPath(ref, "/annotations"), n, &r)
}

// Hold sets or lifts the legal hold of a letter, or extends its retention.
func (c *Client) Hold(ctx context.Context, ref string, p Protection) (r Receipt, err error) {
	return r, c.post(ctx, letterPath(ref, "/hold"), p, &r)
}

// PreviewPlan counts what an order would replay; only its filter and override matter.
func (c *Client) PreviewPlan(ctx context.Context, o PlanOrder) (p PlanPreview, err error) {
	var a PlanAnswer
	if err = c.order(ctx, url.Values{"dry_run": {"true"}}, o, &a); err == nil && a.Preview != nil {
		p = *a.Preview
	}
	return p, err
}

// CreatePlan orders a bulk replay.
func (c *Client) CreatePlan(ctx context.Context, o PlanOrder) (p Plan, err error) {
	var a PlanAnswer
	if err = c.order(ctx, nil, o, &a); err == nil && a.Plan != nil {
		p = *a.Plan
	}
	return p, err
}

func (c *Client) order(ctx context.Context, q url.Values, o PlanOrder, into *PlanAnswer) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return c.do(ctx, call{"POST", "/v1/plans", q, http.Header{"Content-Type": {"application/json"}}, bytes.NewReader(raw)}, into)
}

// Plans are bulk replays ordered before event seq (0 for all), the latest first.
func (c *Client) Plans(ctx context.Context, before uint64, limit int) (p Plans, err error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	if before > 0 {
		q.Set("before", strconv.FormatUint(before, 10))
	}
	return p, c.get(ctx, "/v1/plans", q, &p)
}

// Plan is a bulk replay, and how far it is; counted, with what has become of its letters besides.
func (c *Client) Plan(ctx context.Context, id string, counted bool) (p Plan, err error) {
	q := url.Values{}
	if counted {
		q.Set("count", "true")
	}
	return p, c.get(ctx, planPath(id), q, &p)
}

func planPath(id string) string { return "/v1/plans/" + url.PathEscape(id) }

// CancelPlan cancels a running plan.
func (c *Client) CancelPlan(ctx context.Context, id, reason string) (p Plan, err error) {
	return p, c.do(ctx, call{"DELETE", planPath(id), url.Values{"reason": {reason}}, nil, nil}, &p)
}

// ResumePlan has the instance that answers carry out a plan of another.
func (c *Client) ResumePlan(ctx context.Context, id, reason string) (p Plan, err error) {
	return p, c.post(ctx, planPath(id)+"/resume", Order{Reason: reason}, &p)
}

// Groups are the letters that f means by disposition and error code; without dispositions, the open ones.
func (c *Client) Groups(ctx context.Context, f Filter) (g []Group, err error) {
	var out Groups
	err = c.get(ctx, "/v1/groups", f.values(), &out)
	return out.Groups, err
}

// Stats is the log and the backlog at a glance; the fingerprint reads the whole state.
func (c *Client) Stats(ctx context.Context, fingerprint bool) (s Stats, err error) {
	q := url.Values{}
	if fingerprint {
		q.Set("fingerprint", "true")
	}
	return s, c.get(ctx, "/v1/stats", q, &s)
}

// Ready tells whether the server takes requests.
func (c *Client) Ready(ctx context.Context) error {
	return c.get(ctx, "/readyz", nil, &struct{}{})
}

// Events yields the stored lines after sequence number after (-1 for all), at most limit, and waits up to wait for
// a first one. An error ends the sequence. A line is good until the next one.
func (c *Client) Events(ctx context.Context, after int64, limit int, wait time.Duration) iter.Seq2[[]byte, error] {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(limit)}}
	if wait > 0 {
		q.Set("wait", wait.String())
	}
	return c.lines(ctx, call{method: "GET", path: "/v1/events", query: q}, wholeLine)
}

// Entries yields the lines of the log itself after sequence number after (-1 for all) up to the end at the time of
// the call. An error ends the sequence: chain.ErrDamaged if the log cannot be read further. A line is good until the next one.
func (c *Client) Entries(ctx context.Context, after int64) iter.Seq2[[]byte, error] {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}}
	return c.lines(ctx, call{method: "GET", path: "/v1/log/entries", query: q}, wholeLine)
}

// Follow yields the stored lines after sequence number after (-1 for all) and then those to come, until ctx ends or
// the connection breaks, with the error of that last. A line is good until the next one.
func (c *Client) Follow(ctx context.Context, after int64) iter.Seq2[[]byte, error] {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}}
	header := http.Header{"Accept": {mediaEvents}}
	return func(yield func([]byte, error) bool) {
		for line, err := range c.lines(ctx, call{"GET", "/v1/events", q, header, nil}, dataLine) {
			if !yield(line, err) || err != nil {
				return
			}
		}
		yield(nil, io.ErrUnexpectedEOF)
	}
}

func wholeLine(line []byte) ([]byte, bool) { return line, len(line) > 0 }

func dataLine(line []byte) ([]byte, bool) { return bytes.CutPrefix(line, []byte("data: ")) }

// lines yields the lines of an answer that keep takes.
func (c *Client) lines(ctx context.Context, req call, keep func([]byte) ([]byte, bool)) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		res, err := c.send(ctx, req)
		if err != nil {
			yield(nil, err)
			return
		}
		defer res.Body.Close()
		in := bufio.NewScanner(res.Body)
		in.Buffer(make([]byte, 64<<10), chain.MaxEvent+100)
		for in.Scan() {
			if line, ok := keep(in.Bytes()); ok && !yield(line, nil) {
				return
			}
		}
		switch {
		case in.Err() != nil:
			yield(nil, fmt.Errorf("%s %s: %w", req.method, req.path, in.Err()))
		case res.Trailer.Get(trailerLog) == logDamaged:
			yield(nil, fmt.Errorf("%s %s: %w", req.method, req.path, chain.ErrDamaged))
		}
	}
}

// call is one request.
type call struct {
	method, path string
	query        url.Values
	header       http.Header
	body         io.Reader
}

func (c *Client) get(ctx context.Context, path string, q url.Values, into any) error {
	return c.do(ctx, call{"GET", path, q, nil, nil}, into)
}

func (c *Client) post(ctx context.Context, path string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.do(ctx, call{"POST", path, nil, http.Header{"Content-Type": {"application/json"}}, bytes.NewReader(raw)}, into)
}

func (c *Client) do(ctx context.Context, req call, into any) error {
	res, err := c.send(ctx, req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		return fmt.Errorf("%s %s: the answer cannot be read", req.method, req.path)
	}
	return nil
}

// send makes a request and turns refusals into *Problem. Errors of the connection lose the URL that the standard
// library puts into them: its query may hold a reason.
func (c *Client) send(ctx context.Context, req call) (*http.Response, error) {
	target := strings.TrimRight(c.URL, "/") + req.path
	if len(req.query) > 0 {
		target += "?" + req.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, req.method, target, req.body)
	if err != nil {
		return nil, errors.New("the server's address is not a URL")
	}
	if req.header != nil {
		r.Header = req.header
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(r)
	if e, ok := errors.AsType[*url.Error](err); ok {
		return nil, fmt.Errorf("%s %s: %w", req.method, req.path, e.Err)
	}
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		defer res.Body.Close()
		return nil, refusal(res)
	}
	return res, nil
}

// refusal reads a problem, or makes one of what something else between us and the server answered.
func refusal(res *http.Response) *Problem {
	p := &Problem{}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind != "application/problem+json" || json.NewDecoder(io.LimitReader(res.Body, maxJSON)).Decode(p) != nil {
		p = &Problem{Type: "about:blank", Title: http.StatusText(res.StatusCode)}
	}
	p.Status, p.header = res.StatusCode, res.Header
	return p
}

// RetryAfter is how long a server that cannot serve now asks to wait; 0 if it does not say.
func (p *Problem) RetryAfter() time.Duration {
	seconds, err := strconv.Atoi(p.header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
