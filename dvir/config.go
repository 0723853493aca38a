package dvir

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Config is what a site knows and payloads do not: its units, and what its vendors call
// the parts of a vehicle.
type Config struct {
	Units         []Unit
	DefectAliases map[string]string // vendor code to part code of the contract
}

// Unit is one entry of the roster: the VIN behind a unit number. An empty USDOT stands for
// every carrier.
type Unit struct {
	UnitNumber string
	USDOT      string
	VIN        string
}

// ConfigError tells where a configuration is wrong and why. It names members, never values.
type ConfigError struct {
	Pointer string // RFC 6901
	Problem string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("dvir configuration at %q: %s", e.Pointer, e.Problem)
}

// ParseConfig reads a configuration: strict JSON of the form
//
//	{"units":[{"unit_number":"417","usdot":"9999999","vin":"1TSTTRK83RX000101"}],
//	 "defect_aliases":{"BRAKE_SYS":"SERVICE_BRAKES"}}
//
// with every member but unit_number and vin optional. Anything else is a *ConfigError.
func ParseConfig(data []byte) (Config, error) {
	v, f := decode(data)
	if f != nil {
		return Config{}, &ConfigError{f.pointer(), "not strict JSON: " + f.code}
	}
	var c Config
	if err := c.fill(v); err != nil {
		return Config{}, err
	}
	if _, err := New(c); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (c *Config) fill(v any) error {
	o, err := only(v, "", "units", "defect_aliases")
	if err != nil {
		return err
	}
	units, isList := o["units"].([]any)
	if _, there := o["units"]; there && !isList {
		return &ConfigError{"/units", "not a list"}
	}
	for n, u := range units {
		unit, err := parseUnit(u, pointer("units", strconv.Itoa(n)))
		if err != nil {
			return err
		}
		c.Units = append(c.Units, unit)
	}
	if aliases, there := o["defect_aliases"]; there {
		return c.fillAliases(aliases)
	}
	return nil
}

func parseUnit(v any, at string) (Unit, error) {
	o, err := only(v, at, "unit_number", "usdot", "vin")
	if err != nil {
		return Unit{}, err
	}
	for name, value := range o {
		if _, ok := value.(string); !ok {
			return Unit{}, &ConfigError{at + "/" + name, "not a string"}
		}
	}
	return Unit{textOf(o, "unit_number"), textOf(o, "usdot"), textOf(o, "vin")}, nil
}

func (c *Config) fillAliases(v any) error {
	o, ok := v.(object)
	if !ok {
		return &ConfigError{"/defect_aliases", "not an object"}
	}
	c.DefectAliases = make(map[string]string, len(o))
	for alias, part := range o {
		name, ok := part.(string)
		if !ok {
			return &ConfigError{aliasPointer(alias), "not a string"}
		}
		c.DefectAliases[alias] = name
	}
	return nil
}

func aliasPointer(alias string) string {
	return "/defect_aliases/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(alias)
}

// only is the object that v is, with no members but the named ones.
func only(v any, at string, names ...string) (object, error) {
	o, ok := v.(object)
	if !ok {
		return nil, &ConfigError{at, "not an object"}
	}
	known := 0
	for _, name := range names {
		if _, there := o[name]; there {
			known++
		}
	}
	if known < len(o) {
		return nil, &ConfigError{at, "unknown member"}
	}
	return o, nil
}

var usdotNumber = regexp.MustCompile(`^[1-9][0-9]{0,7}$`)

func checkAliases(aliases map[string]string) error {
	parts := contract().parts
	for _, alias := range slices.Sorted(maps.Keys(aliases)) {
		switch {
		case alias == "" || len(alias) > 300:
			return &ConfigError{"/defect_aliases", "alias shorter than 1 or longer than 300 characters"}
		case parts[alias]:
			return &ConfigError{aliasPointer(alias), "a part code of the contract cannot be an alias"}
		case !parts[aliases[alias]]:
			return &ConfigError{aliasPointer(alias), "not a part code of the contract"}
		}
	}
	return nil
}

// unitKey names a unit within a carrier.
type unitKey struct{ usdot, number string }

// roster finds the VIN of a unit and the unit of a VIN.
type roster struct {
	vins  map[unitKey]string
	units map[string]unitKey
}

func newRoster(units []Unit) (roster, error) {
	r := roster{map[unitKey]string{}, map[string]unitKey{}}
	for n, u := range units {
		at := pointer("units", strconv.Itoa(n))
		key := unitKey{u.USDOT, u.UnitNumber}
		_, twice := r.vins[key]
		_, shared := r.units[u.VIN]
		switch {
		case u.UnitNumber == "":
			return r, &ConfigError{at + "/unit_number", "missing"}
		case u.USDOT != "" && !usdotNumber.MatchString(u.USDOT):
			return r, &ConfigError{at + "/usdot", "not a USDOT number"}
		case vinShape(u.VIN) != "" || vinPlaceholder(u.VIN) || northAmerican(u.VIN) && !checkDigitFits(u.VIN):
			return r, &ConfigError{at + "/vin", "not a valid VIN"}
		case twice:
			return r, &ConfigError{at, "the unit is listed before"}
		case shared:
			return r, &ConfigError{at + "/vin", "the VIN is listed before"}
		}
		r.vins[key], r.units[u.VIN] = u.VIN, key
	}
	return r, nil
}

// vinOf is the VIN of the unit that a report names by number, "" if the roster has none.
func (r roster) vinOf(report object) string {
	number := textOf(member(report, "vehicle"), "unit_number")
	if vin := r.vins[unitKey{textOf(member(report, "carrier"), "usdot_number"), number}]; vin != "" {
		return vin
	}
	return r.vins[unitKey{"", number}]
}

// mismatch tells that number and VIN of a report are those of different units.
func (r roster) mismatch(report object) bool {
	vin := textOf(member(report, "vehicle"), "vin")
	number := textOf(member(report, "vehicle"), "unit_number")
	if vin == "" || number == "" {
		return false
	}
	if listed := r.vinOf(report); listed != "" {
		return listed != vin
	}
	owner, known := r.units[vin]
	usdot := textOf(member(report, "carrier"), "usdot_number")
	foreign := owner.usdot != "" && usdot != "" && owner.usdot != usdot
	return known && !foreign && owner.number != number
}

// resolveAliases puts the contract's part codes in the place of the site's aliases and
// tells whether there were any. A defect keeps the vendor's code as its label, unless the
// payload has a label already.
func (p *Processor) resolveAliases(report object) bool {
	resolved := false
	for _, d := range objects(report, "defects") {
		alias := textOf(d, "code")
		part, known := p.aliases[alias]
		if !known {
			continue
		}
		resolved = true
		d["code"] = part
		if _, labelled := d["vendor_label"]; !labelled {
			d["vendor_label"] = alias
		}
	}
	return p.resolveParts(member(report, "inspection")) || resolved
}

// resolveParts does the same in the list of checked parts, where two aliases may mean one
// part.
func (p *Processor) resolveParts(inspection object) bool {
	parts, _ := inspection["parts_checked"].([]any)
	resolved := false
	for n, v := range parts {
		alias, _ := v.(string)
		if part, known := p.aliases[alias]; known {
			resolved = true
			parts[n] = part
		}
	}
	if resolved {
		inspection["parts_checked"] = distinct(parts)
	}
	return resolved
}

// distinct drops repeated texts and leaves anything else to the schema.
func distinct(list []any) []any {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(v any) bool {
		text, ok := v.(string)
		twice := seen[text]
		seen[text] = seen[text] || ok
		return ok && twice
	})
}
