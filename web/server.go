package web

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/process"
	"github.com/holdfast-dvir/holdfast/projection"
)

// Config is what the API stands on. Queue must be running, and State following the log.
type Config struct {
	Queue      *deadletter.Queue
	State      *projection.DB
	Events     chain.Reader  // the log, for who verifies it
	Desk       *process.Desk // where workers outside of the service come
	Tokens     *Tokens
	MaxPayload int64                       // bytes; a payload of exactly this size is accepted; 0 means 64 MiB
	Version    string                      // of the software
	Log        *slog.Logger                // nil means none
	Ready      func(context.Context) error // what /readyz asks; nil means always ready
	Metrics    http.Handler                // of /metrics; nil means an empty page
}

// api is the state of one Handler.
type api struct {
	Config
	huma huma.API
	mux  *http.ServeMux
}

// anyone is the role of routes that need no token.
const anyone Role = ""

// access says who may call what. A route that is not listed is closed to all.
var access = map[string][]Role{
	"POST /v1/payloads":                  {Submitter, Admin},
	"POST /v1/failures":                  {Submitter, Worker, Admin},
	"GET /v1/letters":                    {Reviewer, Auditor, Admin},
	"GET /v1/letters/{ref}":              {Reviewer, Auditor, Admin},
	"GET /v1/letters/{ref}/payload":      {Reviewer, Auditor, Admin},
	"POST /v1/letters/{ref}/replay":      {Reviewer, Admin},
	"POST /v1/letters/{ref}/resolve":     {Reviewer, Admin},
	"POST /v1/letters/{ref}/annotations": {Reviewer, Admin},
	"POST /v1/letters/{ref}/hold":        {Reviewer, Admin}, // lifting: Admin
	"POST /v1/plans":                     {Reviewer, Admin},
	"GET /v1/plans":                      {Reviewer, Auditor, Admin},
	"GET /v1/plans/{id}":                 {Reviewer, Auditor, Admin},
	"DELETE /v1/plans/{id}":              {Reviewer, Admin},
	"POST /v1/plans/{id}/resume":         {Reviewer, Admin},
	"POST /v1/work/lease":                {Worker, Admin},
	"GET /v1/work/{lease}/payload":       {Worker, Admin},
	"POST /v1/work/{lease}/heartbeat":    {Worker, Admin},
	"POST /v1/work/{lease}/complete":     {Worker, Admin},
	"POST /v1/work/{lease}/fail":         {Worker, Admin},
	"POST /v1/work/{lease}/release":      {Worker, Admin},
	"GET /v1/groups":                     {Reviewer, Auditor, Admin},
	"GET /v1/stats":                      {Reviewer, Auditor, Admin},
	"GET /v1/events":                     {Reviewer, Auditor, Admin},
	"GET /v1/log/entries":                {Reviewer, Auditor, Admin},
	"GET /healthz":                       {anyone},
	"GET /readyz":                        {anyone},
	"GET /metrics":                       {anyone},
	"GET /openapi.json":                  {anyone},
}

// Handler serves the API.
func Handler(c Config) http.Handler { return newAPI(c).around() }

func newAPI(c Config) *api {
	if c.MaxPayload == 0 {
		c.MaxPayload = 64 << 20
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	a := &api{Config: c, mux: http.NewServeMux()}
	a.huma = humago.New(a.mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{Title: "Holdfast", Version: c.Version,
				Description: "Custody of vehicle inspection payloads that arrive, fail, wait, are replayed and are resolved."},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{"bearer": {Type: "http", Scheme: "bearer"}},
			},
		},
		Formats:                      map[string]huma.Format{"application/json": strictJSON, "json": strictJSON},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	})
	a.huma.UseMiddleware(a.authorise)
	a.routes()
	return a
}

// routes registers every operation.
func (a *api) routes() {
	a.intakeRoutes()
	a.letterRoutes()
	a.planRoutes()
	a.workRoutes()
	a.overviewRoutes()
	a.streamRoutes()
	register(a, huma.Operation{Method: "GET", Path: "/healthz", OperationID: "health", Summary: "The process answers"}, a.health)
	register(a, huma.Operation{Method: "GET", Path: "/readyz", OperationID: "ready", Summary: "The service takes requests"}, a.ready)
	a.metricsRoute()
	a.describe()
}

// metricsRoute serves numbers alone: whoever scrapes them needs no token.
func (a *api) metricsRoute() {
	if a.Metrics == nil {
		a.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	}
	register(a, huma.Operation{Method: "GET", Path: "/metrics", OperationID: "metrics", Summary: "Metrics in the Prometheus text format"},
		func(context.Context, *struct{}) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: func(ctx huma.Context) {
				r, w := humago.Unwrap(ctx)
				a.Metrics.ServeHTTP(w, r)
			}}, nil
		})
}

// describe serves the description of what was registered before.
func (a *api) describe() {
	var spec []byte
	register(a, huma.Operation{Method: "GET", Path: "/openapi.json", OperationID: "openapi", Hidden: true},
		func(context.Context, *struct{}) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: func(ctx huma.Context) {
				ctx.SetHeader("Content-Type", "application/openapi+json")
				_, _ = ctx.BodyWriter().Write(spec)
			}}, nil
		})
	paths := a.huma.OpenAPI().Paths
	for _, path := range []string{"/v1/payloads", "/v1/failures", "/v1/plans"} { // huma adds it only to those that name no response
		paths[path].Post.Responses["default"] = paths["/v1/stats"].Get.Responses["default"]
	}
	var err error
	if spec, err = json.Marshal(a.huma.OpenAPI()); err != nil {
		panic(fmt.Sprintf("describe the API: %v", err)) // depends on nothing but this package
	}
}

// register adds an operation whose errors become problems.
func register[I, O any](a *api, op huma.Operation, do func(context.Context, *I) (*O, error)) {
	if !slices.Contains(access[op.Method+" "+op.Path], anyone) {
		op.Security = []map[string][]string{{"bearer": {}}}
	}
	op.MaxBodyBytes = maxJSON + 1 // huma refuses a body that reaches its limit
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := do(ctx, in)
		if err != nil {
			return nil, a.fail(ctx, &op, err)
		}
		return out, nil
	})
}

// strictJSON refuses what two readers could take for two things: a member that stands twice.
var strictJSON = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: func(raw []byte, v any) error {
	if repeats(raw) {
		return errRepeats
	}
	return json.Unmarshal(raw, v)
}}

var errRepeats = errors.New("a member stands twice in the body")

// repeats tells whether a JSON object has a member twice. Names that differ in case alone are the same to the decoder,
// and so they are here. Bodies are flat: only the outermost object has members of ours.
func repeats(raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	if first, _ := d.Token(); first != json.Delim('{') {
		return false
	}
	seen := make(map[string]bool)
	for d.More() {
		name, _ := d.Token()
		text, _ := name.(string)
		text = strings.ToLower(strings.ToUpper(text)) // one spelling for all that fold to the same
		var value json.RawMessage
		if seen[text] || d.Decode(&value) != nil {
			return seen[text]
		}
		seen[text] = true
	}
	return false
}

// maxJSON bounds the JSON bodies of operations, in bytes.
const maxJSON = 64 << 10

// keys of what a request's context carries.
type (
	requestIDKey struct{}
	identityKey  struct{}
)

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// actor is who makes the request, as events name it.
func actor(ctx context.Context) string {
	who, _ := ctx.Value(identityKey{}).(Identity)
	return who.Name
}

// role is the role of who makes the request.
func role(ctx context.Context) Role {
	who, _ := ctx.Value(identityKey{}).(Identity)
	return who.Role
}

// authorise lets requests through whose token has a role that access lists.
func (a *api) authorise(ctx huma.Context, next func(huma.Context)) {
	op := ctx.Operation()
	roles := access[op.Method+" "+op.Path]
	if slices.Contains(roles, anyone) {
		next(ctx)
		return
	}
	who, err := a.identify(ctx.Header("Authorization"))
	if err == nil && !slices.Contains(roles, who.Role) {
		err = problem(http.StatusForbidden, KindForbidden, "the token's role may not do this")
	}
	if err != nil {
		_, w := humago.Unwrap(ctx)
		a.fail(ctx.Context(), op, err).write(w, requestID(ctx.Context()))
		return
	}
	next(huma.WithValue(ctx, identityKey{}, who))
}

func (a *api) identify(authorization string) (Identity, error) {
	scheme, secret, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return Identity{}, problem(http.StatusUnauthorized, KindUnauthorised, "a bearer token is needed").
			with("WWW-Authenticate", `Bearer realm="holdfast"`)
	}
	who, err := a.Tokens.Check(secret)
	if errors.Is(err, ErrUnknownToken) {
		err = problem(http.StatusUnauthorized, KindUnauthorised, "the token is not known, or was revoked").
			with("WWW-Authenticate", `Bearer realm="holdfast", error="invalid_token"`)
	}
	return who, err
}

// around is what happens to every request, whatever its route.
func (a *api) around() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, id := time.Now(), newRequestID()
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
		out := &response{ResponseWriter: w}
		secure(out.Header(), id)
		defer func() {
			a.Log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("method", methodOf(r)),
				slog.String("route", r.Pattern), slog.Int("status", out.status), slog.Int64("bytes", out.bytes),
				slog.Duration("took", time.Since(start)), slog.String("request_id", id))
		}()
		defer func() { a.recovered(out, r, recover()) }()
		a.route(out, r)
	})
}

// methodOf is the method as far as it is one of ours: others are words of the client.
func methodOf(r *http.Request) string {
	if r.Pattern == "" {
		return "other"
	}
	return r.Method
}

func newRequestID() string {
	var bits [8]byte
	rand.Read(bits[:])
	return hex.EncodeToString(bits[:])
}

func secure(h http.Header, id string) {
	h.Set("X-Request-Id", id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// recovered answers for an operation that panicked, if it still can. The value of a panic may hold anything; its
// type and place tell enough.
func (a *api) recovered(w *response, r *http.Request, value any) {
	if value == nil {
		return
	}
	if err, ok := value.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	if r.Context().Err() == nil {
		a.Log.LogAttrs(r.Context(), slog.LevelError, "request panicked", slog.String("method", methodOf(r)), slog.String("route", r.Pattern),
			slog.String("request_id", requestID(r.Context())), slog.String("kind", fmt.Sprintf("%T", value)), slog.String("stack", string(debug.Stack())))
	}
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	problem(http.StatusInternalServerError, KindInternal, "").write(w, requestID(r.Context()))
}

// route finds the operation; what has none is answered here, in our words and not in those of the standard library.
func (a *api) route(w *response, r *http.Request) {
	_, pattern := a.mux.Handler(r)
	if pattern != "" && path.Clean(r.URL.Path) == r.URL.Path {
		a.mux.ServeHTTP(w, r)
		return
	}
	if allow := a.allowed(r, pattern); allow != "" {
		problem(http.StatusMethodNotAllowed, KindMethod, "this path takes other methods, see the Allow header").
			with("Allow", allow).write(w, requestID(r.Context()))
		return
	}
	problem(http.StatusNotFound, KindNotFound, "there is nothing at this path").write(w, requestID(r.Context()))
}

// allowed lists the methods that a path without a pattern for this one takes; only the mux knows them.
func (a *api) allowed(r *http.Request, pattern string) string {
	if pattern != "" {
		return ""
	}
	var probe probe
	a.mux.ServeHTTP(&probe, r)
	return probe.Header().Get("Allow")
}

// probe takes an answer nobody is to see.
type probe struct{ header http.Header }

func (p *probe) Header() http.Header {
	if p.header == nil {
		p.header = http.Header{}
	}
	return p.header
}
func (p *probe) Write(b []byte) (int, error) { return len(b), nil }
func (p *probe) WriteHeader(int)             {}

// response remembers what was answered.
type response struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// Unwrap lets http.ResponseController reach the connection.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *response) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *response) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

type statusOutput struct {
	Body struct {
		Status string `json:"status" enum:"ok"`
	}
}

func (a *api) health(context.Context, *struct{}) (*statusOutput, error) {
	out := &statusOutput{}
	out.Body.Status = "ok"
	return out, nil
}

func (a *api) ready(ctx context.Context, _ *struct{}) (*statusOutput, error) {
	if a.Ready != nil {
		if err := a.Ready(ctx); err != nil {
			return nil, &notReadyError{err}
		}
	}
	return a.health(ctx, nil)
}

// notReadyError keeps the reason for the log; whoever asks without a token learns the fact alone.
type notReadyError struct{ reason error }

func (e *notReadyError) Error() string { return "not ready: " + e.reason.Error() }

func (e *notReadyError) Unwrap() error { return e.reason }

func (e *notReadyError) As(target any) bool {
	p, ok := target.(**Problem)
	if ok {
		*p = problem(http.StatusServiceUnavailable, KindNotReady, "the service is not ready").with("Retry-After", "1")
	}
	return ok
}
