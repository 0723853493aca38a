package web

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Access is the table of roles, for the test that asks for a row per route.
var Access = access

// Routes lists what a handler registers: the described operations, and the description itself.
func Routes(c Config) []string {
	routes := []string{"GET /openapi.json"}
	for path, item := range newAPI(c).huma.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Head, item.Post, item.Put, item.Patch, item.Delete, item.Options} {
			if op != nil {
				routes = append(routes, op.Method+" "+path)
			}
		}
	}
	return routes
}

// Served tells whether a request for route reaches it.
func Served(c Config, route string) bool {
	method, path, _ := strings.Cut(route, " ")
	r, err := http.NewRequest(method, strings.NewReplacer("{ref}", "00000000", "{id}", "p0", "{lease}", "l0").Replace(path), nil)
	if err != nil {
		return false
	}
	_, pattern := newAPI(c).mux.Handler(r)
	return pattern == route
}
