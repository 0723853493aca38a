package web_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/holdfast-dvir/holdfast/web"
)

// may says, independently of the server, who may call what: the initials of the roles; * is everyone.
var may = map[string]string{
	"POST /v1/payloads":                  "submitter admin",
	"POST /v1/failures":                  "submitter worker admin",
	"GET /v1/letters":                    "reviewer auditor admin",
	"GET /v1/letters/{ref}":              "reviewer auditor admin",
	"GET /v1/letters/{ref}/payload":      "reviewer auditor admin",
	"POST /v1/letters/{ref}/replay":      "reviewer admin",
	"POST /v1/letters/{ref}/resolve":     "reviewer admin",
	"POST /v1/letters/{ref}/annotations": "reviewer admin",
	"POST /v1/letters/{ref}/hold":        "reviewer admin",
	"POST /v1/plans":                     "reviewer admin",
	"GET /v1/plans":                      "reviewer auditor admin",
	"GET /v1/plans/{id}":                 "reviewer auditor admin",
	"DELETE /v1/plans/{id}":              "reviewer admin",
	"POST /v1/plans/{id}/resume":         "reviewer admin",
	"POST /v1/work/lease":                "worker admin",
	"GET /v1/work/{lease}/payload":       "worker admin",
	"POST /v1/work/{lease}/heartbeat":    "worker admin",
	"POST /v1/work/{lease}/complete":     "worker admin",
	"POST /v1/work/{lease}/fail":         "worker admin",
	"POST /v1/work/{lease}/release":      "worker admin",
	"GET /v1/groups":                     "reviewer auditor admin",
	"GET /v1/stats":                      "reviewer auditor admin",
	"GET /v1/events":                     "reviewer auditor admin",
	"GET /v1/log/entries":                "reviewer auditor admin",
	"GET /healthz":                       "*",
	"GET /readyz":                        "*",
	"GET /metrics":                       "*",
	"GET /openapi.json":                  "*",
}

func TestEveryRouteHasARow(t *testing.T) {
	b := newBench(t)
	routes := web.Routes(b.config)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(web.Access)), routes)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(may)), routes)
	for _, route := range routes {
		assert.True(t, web.Served(b.config, route), route)
	}
}

func TestRoles(t *testing.T) {
	b := newBench(t)
	for route, roles := range may {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{ref}", "00000000", "{id}", "p0", "{lease}", "l0").Replace(path)
		for _, role := range web.Roles {
			a := b.send(method, path, nil, "Authorization", "bearer "+b.secrets[role])
			if roles == "*" || strings.Contains(roles, string(role)) {
				assert.NotContains(t, []int{401, 403}, a.status, "%s as %s", route, role)
				continue
			}
			a.problem(t, http.StatusForbidden, web.KindForbidden)
		}
		for _, authorization := range []string{"", "Bearer", "Bearer hf_", "Bearer hf_" + strings.Repeat("A", 43),
			"Basic " + b.secrets[web.Admin], b.secrets[web.Admin]} {
			a := b.send(method, path, nil, "Authorization", authorization)
			if roles == "*" {
				assert.Equal(t, 200, a.status, route)
				continue
			}
			a.problem(t, http.StatusUnauthorized, web.KindUnauthorised)
			assert.Contains(t, a.header.Get("WWW-Authenticate"), "Bearer")
		}
	}
}
