package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

const settingsHelp = `Every flag can also be set as HOLDFAST_<FLAG> in the environment, such as
HOLDFAST_DATA, or in a YAML file named by --config.`

// printHelp ends every help with what holds for all verbs.
func printHelp(o kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(o, ctx); err != nil {
		return err
	}
	_, err := fmt.Fprintf(os.Stdout, "\n%s\n\n%s\n", settingsHelp, exitHelp)
	return err
}

// flagHelp adds to the words about a flag which values it takes and which one it has.
func flagHelp(v *kong.Value) string {
	text := v.Help
	if v.Enum != "" {
		text = fmt.Sprintf("%s One of %s.", text, strings.Join(v.EnumSlice(), ", "))
	}
	if v.HasDefault && !v.IsBool() {
		text = fmt.Sprintf("%s (default %s).", strings.TrimSuffix(text, "."), v.Default)
	}
	return text
}

// values reads what is not plain text, with errors that do not quote it.
var values = []kong.Option{
	kong.TypeMapper(reflect.TypeFor[time.Time](), parsed("a time such as 2026-03-02T06:30:00Z",
		func(s string) (time.Time, error) { return time.Parse(time.RFC3339, s) })),
	kong.TypeMapper(reflect.TypeFor[time.Duration](), parsed("a duration such as 30s", positive)),
	kong.TypeMapper(reflect.TypeFor[reference](), parsed("8 to 64 lowercase hexadecimal digits", parseReference)),
	kong.TypeMapper(reflect.TypeFor[date](), parsed("a day such as 2031-12-31, or a time such as 2031-12-31T12:00:00Z, after 1970", parseDate)),
	kong.KindMapper(reflect.Int, parsed("a whole number", strconv.Atoi)),
	kong.KindMapper(reflect.Int64, parsed("a whole number",
		func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) })),
	kong.KindMapper(reflect.Float64, parsed("a number", finite)),
	kong.KindMapper(reflect.Uint, parsed("a whole number, not negative", natural)),
	kong.KindMapper(reflect.Uint64, parsed("a whole number, not negative", natural)),
}

func parsed[T any](what string, parse func(string) (T, error)) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("value", &text); err != nil {
			return err
		}
		v, err := parse(text)
		if err != nil {
			return errors.New("must be " + what)
		}
		target.Set(reflect.ValueOf(v).Convert(target.Type()))
		return nil
	}
}

func positive(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && d <= 0 {
		err = errors.ErrUnsupported
	}
	return d, err
}

func natural(s string) (uint64, error) { return strconv.ParseUint(s, 10, 63) }

func finite(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err == nil && (math.IsInf(f, 0) || math.IsNaN(f)) {
		err = errors.ErrUnsupported
	}
	return f, err
}

var (
	fromEnvironment = regexp.MustCompile(`(?s) \(from envar (\w+)=.*`)
	noValue         = regexp.MustCompile(`: expected \w+ value$`)
)

// usageText words what is wrong with the arguments, and names the help to read. The parser's own texts quote values;
// a value may be words about a person, and what is printed here may be kept in somebody's log.
func usageText(err error) string {
	text, verb := err.Error(), "holdfast"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context.Selected() != nil {
		verb += " " + parse.Context.Selected().Path()
		if strings.HasPrefix(text, "unexpected argument ") {
			text = "there is an argument too many; words with spaces need quotes"
		}
	}
	where := ""
	if m := fromEnvironment.FindStringSubmatch(text); m != nil {
		text, where = strings.TrimSuffix(text, m[0]), " (in the environment, "+m[1]+")"
	}
	text, _, _ = strings.Cut(text, " but got ")
	text = strings.ReplaceAll(noValue.ReplaceAllString(text, ": needs a value; one that begins with a dash is written with ="), `","`, `", "`)
	return fmt.Sprintf("%s%s; see %s --help", text, where, verb)
}
