package dvir

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

const schemaID = "urn:holdfast:schema:dvir:1"

//go:embed schema.json
var schemaJSON []byte

// ruleset is the compiled contract and what its annotations say.
type ruleset struct {
	schema *jsonschema.Schema
	rules  map[string]rule // by pointer into the schema
	names  map[string]bool // property names
	words  map[string]bool // enumerated values
	parts  map[string]bool // part codes, which are words as well
}

// rule says what a violation of a subschema is: a code or the name of a judge, reported
// up levels above the violating value, where the annotated subschema applies.
type rule struct {
	code string
	up   int
}

// contract is the embedded schema, compiled once. A schema that does not compile is a
// broken build, hence the panic.
var contract = sync.OnceValue(func() *ruleset {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaJSON))
	if err != nil {
		panic(err)
	}
	doc = inline(doc, doc.(object)["$defs"].(object))
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(schemaID, doc); err != nil {
		panic(err)
	}
	r := &ruleset{
		schema: c.MustCompile(schemaID),
		rules:  map[string]rule{},
		names:  map[string]bool{},
		words:  map[string]bool{},
		parts:  map[string]bool{},
	}
	r.annotate(doc, "", rule{})
	return r
})

// inline puts definitions in the place of references, of which the schema has no circular
// ones: a validator visits half as many subschemas for it.
func inline(node any, defs object) any {
	switch node := node.(type) {
	case []any:
		for i, e := range node {
			node[i] = inline(e, defs)
		}
	case object:
		whole := object{}
		if ref, ok := node["$ref"].(string); ok {
			maps.Copy(whole, defs[strings.TrimPrefix(ref, "#/$defs/")].(object))
		}
		maps.Copy(whole, node)
		delete(whole, "$ref")
		for keyword, v := range whole {
			whole[keyword] = inline(v, defs)
		}
		return whole
	}
	return node
}

// annotate records the rule of node and of all subschemas below it.
func (r *ruleset) annotate(node any, path string, in rule) {
	o, ok := node.(object)
	if !ok {
		return
	}
	if code, ok := o["x-code"].(string); ok {
		in = rule{code: code}
	}
	r.rules[path] = in
	r.collectWords(o)
	deeper := rule{in.code, in.up + 1}
	for keyword, v := range o {
		at := path + "/" + keyword
		switch keyword {
		case "properties":
			for name, sub := range v.(object) {
				r.names[name] = true
				r.annotate(sub, at+"/"+name, deeper)
			}
		case "items", "contains":
			r.annotate(v, at, deeper)
		case "if", "then", "else", "not":
			r.annotate(v, at, in)
		case "allOf", "anyOf":
			for i, sub := range v.([]any) {
				r.annotate(sub, at+"/"+strconv.Itoa(i), in)
			}
		}
	}
}

func (r *ruleset) collectWords(o object) {
	values, _ := o["enum"].([]any)
	for _, v := range append(values, o["const"]) {
		if word, ok := v.(string); ok {
			r.words[word] = true
			r.parts[word] = r.parts[word] || o["x-code"] == "part"
		}
	}
}

// Vocabulary yields the property names and the enumerated words of the contract, sorted:
// the words that may be shown although they stand in a payload.
func Vocabulary() iter.Seq[string] {
	all := maps.Clone(contract().names)
	maps.Copy(all, contract().words)
	return slices.Values(slices.Sorted(maps.Keys(all)))
}

// violation is one broken rule: where, which member is missing if that is the trouble,
// and which code the annotations give it, "" if none.
type violation struct {
	path   []string
	member string
	code   string
	kind   jsonschema.ErrorKind
}

// check judges the structure of a report. Only locations and keywords of the library's
// errors are used: their texts quote the report.
func (r *ruleset) check(report object) []Finding {
	var all []violation
	if err, broken := errors.AsType[*jsonschema.ValidationError](r.schema.Validate(report)); broken {
		r.collect(err, &all)
	}
	named := map[string]bool{}
	for _, v := range all {
		if v.member != "" && v.code != "" {
			named[pointer(v.path...)+" "+v.member] = true
		}
	}
	var findings []Finding
	for _, v := range all {
		if v.member != "" && v.code == "" && named[pointer(v.path...)+" "+v.member] {
			continue
		}
		findings = append(findings, r.finding(report, v))
	}
	return reduce(report, findings)
}

// collect flattens the tree of errors. Of anyOf and not only the whole is a violation:
// their branches are alternatives, not causes.
func (r *ruleset) collect(e *jsonschema.ValidationError, all *[]violation) {
	_, fragment, _ := strings.Cut(e.SchemaURL, "#")
	v := violation{path: e.InstanceLocation, code: r.rules[fragment].code, kind: e.ErrorKind}
	missing := []string{""}
	switch k := e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		for _, cause := range e.Causes {
			r.collect(cause, all)
		}
		return
	case *kind.Required:
		missing = k.Missing
	case *kind.DependentRequired:
		missing = k.Missing
	}
	v.path = r.lift(e, fragment)
	for _, v.member = range missing {
		*all = append(*all, v)
	}
}

// lift is the path at which the violation is reported.
func (r *ruleset) lift(e *jsonschema.ValidationError, fragment string) []string {
	if r.rules[fragment].code == "" {
		return e.InstanceLocation
	}
	return e.InstanceLocation[:max(0, len(e.InstanceLocation)-r.rules[fragment].up)]
}

func (r *ruleset) finding(report object, v violation) Finding {
	f := Finding{Code: v.code, Pointer: pointer(v.path...)}
	if !strings.Contains(v.code, ".") {
		f.Code = judge(v.code, report, lookup(report, v.path...), v.kind)
	}
	return f
}

// judge names a violation by the value that is there.
func judge(name string, report object, value any, k jsonschema.ErrorKind) string {
	text, isText := value.(string)
	_, isNumber := value.(json.Number)
	switch {
	case name == "version" && (isText || isNumber):
		return codeVersion
	case name == "vin" && isText:
		return vinShape(text)
	case name == "instant" && isText:
		return instantShape(text, textOf(member(report, "inspection"), "local_time_zone"))
	case name == "score" && isNumber:
		return codeScale
	case name == "distance" && isNumber:
		if _, low := k.(*kind.Minimum); low {
			return codeNegative
		}
		return codeImplausible
	case name == "part" && isText:
		return codeDefectUnknown
	case name == "" && isNumber && wantsText(k) && imprecise(value):
		return codePrecision
	}
	return codeSchema
}

func wantsText(k jsonschema.ErrorKind) bool {
	t, ok := k.(*kind.Type)
	return ok && slices.Contains(t.Want, "string")
}

// imprecise tells a whole number beyond 2^53, which a 64-bit float may not keep.
func imprecise(v any) bool {
	n, ok := new(big.Rat).SetString(string(v.(json.Number)))
	limit := new(big.Int).Lsh(big.NewInt(1), 53)
	return ok && n.IsInt() && n.Num().CmpAbs(limit) > 0
}

// reduce drops findings that only follow from others: bands and floors of a score that is
// no score, and empty identities where nothing identifies the vehicle.
func reduce(report object, findings []Finding) []Finding {
	unidentified := anonymous(member(report, "vehicle"))
	noScore := map[string]bool{}
	for _, f := range findings {
		if f.Code == codeScale {
			noScore[f.Pointer] = true
		}
	}
	kept := slices.DeleteFunc(findings, func(f Finding) bool {
		return f.Code == codeBand && noScore[f.Pointer+"/score"] ||
			f.Code == codeFloor && noScore[f.Pointer+"/severity/score"] ||
			unidentified && slices.Contains(identities, f.Pointer)
	})
	if unidentified {
		kept = append(kept, Finding{Code: codeUnidentified, Pointer: "/vehicle"})
	}
	return kept
}

var identities = []string{"/vehicle/vin", "/vehicle/unit_number", "/vehicle/serial_number", "/vehicle/plate", "/vehicle/plate/number"}

// anonymous tells a vehicle all of whose identities are blank.
func anonymous(vehicle object) bool {
	if vehicle == nil {
		return false
	}
	for _, name := range []string{"vin", "unit_number", "serial_number"} {
		if !blank(vehicle[name]) {
			return false
		}
	}
	plate, isObject := vehicle["plate"].(object)
	return isObject && blank(plate["number"]) || blank(vehicle["plate"])
}

func blank(v any) bool {
	text, ok := v.(string)
	return v == nil || ok && strings.TrimSpace(text) == ""
}

// lookup follows names and indices to a value of the report, nil if there is none.
func lookup(v any, path ...string) any {
	for _, name := range path {
		switch parent := v.(type) {
		case object:
			v = parent[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(parent) {
				return nil
			}
			v = parent[i]
		default:
			return nil
		}
	}
	return v
}
