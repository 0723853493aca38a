package process

import (
	"slices"
	"strings"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/projection"
)

// Route sends letters to a target. A letter takes the first route all of whose members that are set hold for it.
type Route struct {
	Channel     chain.Channel
	Stage       chain.Stage // of the last failure; a letter without one is at ingest
	ContentType string      // a media type without parameters, or all of one type as in "image/*"
	Target      string
}

// Default is the target of letters that no route means.
const Default = "builtin"

// Routes decide which target a letter goes to. They are pure: the same letter always takes the same route.
type Routes struct{ routes []Route }

// NewRoutes checks routes to targets. The error is a *chain.FieldError that names the member.
func NewRoutes(routes []Route, targets []string) (*Routes, error) {
	for _, r := range routes {
		switch {
		case r.Channel != "" && !r.Channel.Valid():
			return nil, &chain.FieldError{Field: "channel", Rule: "must be ocr_document, mobile_export, telematics_api, manual_entry or other"}
		case r.Stage != "" && !r.Stage.Valid():
			return nil, &chain.FieldError{Field: "stage", Rule: "must be ingest, validate, parse, normalize or dispatch"}
		case r.ContentType != "" && strings.Count(r.ContentType, "/") != 1, r.ContentType != strings.ToLower(r.ContentType),
			strings.ContainsAny(r.ContentType, "; "):
			return nil, &chain.FieldError{Field: "content_type", Rule: "must be a media type in lower case without parameters, such as image/png or image/*"}
		case !slices.Contains(targets, r.Target):
			return nil, &chain.FieldError{Field: "processor", Rule: "must be the name of a processor"}
		}
	}
	return &Routes{slices.Clone(routes)}, nil
}

// Target is where letters of a kind go.
func (r *Routes) Target(k projection.Kind) string {
	for _, route := range r.routes {
		if route.means(k) {
			return route.Target
		}
	}
	return Default
}

// Of is where a letter goes.
func (r *Routes) Of(l chain.Letter) string { return r.Target(projection.KindOf(&l)) }

// Picks tells of each kind whether its letters go to target.
func (r *Routes) Picks(target string) func(projection.Kind) bool {
	return func(k projection.Kind) bool { return r.Target(k) == target }
}

func (r Route) means(k projection.Kind) bool {
	family, all := strings.CutSuffix(r.ContentType, "*")
	return (r.Channel == "" || r.Channel == k.Channel) && (r.Stage == "" || r.Stage == k.Stage) &&
		(r.ContentType == "" || r.ContentType == k.ContentType || all && strings.HasPrefix(k.ContentType, family))
}
