package projection

import (
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Text is f in the one form that means it, a URL query; ParseFilter reads it. It has no order.
// Errors are *chain.FieldError: words that are none of ours, and EndsBefore, which has no form.
func (f Filter) Text() (string, error) {
	if err := f.validate(); err != nil {
		return "", err
	}
	if !f.EndsBefore.IsZero() {
		return "", &chain.FieldError{Field: "retention_ends_before", Rule: "cannot stand in the filter of a plan"}
	}
	v := url.Values{}
	for _, d := range slices.Compact(slices.Sorted(slices.Values(f.Dispositions))) {
		v.Add("disposition", string(d))
	}
	for name, value := range map[string]string{"stage": string(f.Stage), "error_code": f.ErrorCode, "channel": string(f.Channel)} {
		if value != "" {
			v.Set(name, value)
		}
	}
	for name, value := range map[string]string{"source": f.Source, "owner": f.Owner, "tag": f.Tag} {
		if value != "" && !chain.ValidToken(value) {
			return "", &chain.FieldError{Field: name, Rule: "must be an identifier"}
		}
		if value != "" {
			v.Set(name, value)
		}
	}
	if !f.Unit.IsZero() {
		v.Set("unit", f.Unit.String())
	}
	for name, at := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !at.IsZero() {
			v.Set(name, chain.Instant(at).Format(time.RFC3339Nano))
		}
	}
	return v.Encode(), nil
}

// errFilter says nothing of the text: it may hold anything.
var errFilter = errors.New("the filter is not one that this version writes")

// ParseFilter reads what Text wrote.
func ParseFilter(text string) (f Filter, err error) {
	v, err := url.ParseQuery(text)
	if err != nil {
		return Filter{}, errFilter
	}
	for name, values := range v {
		if len(values) != 1 && name != "disposition" {
			return Filter{}, errFilter
		}
		switch value := values[0]; name {
		case "disposition":
			for _, d := range values {
				f.Dispositions = append(f.Dispositions, chain.Disposition(d))
			}
		case "stage":
			f.Stage = chain.Stage(value)
		case "error_code":
			f.ErrorCode = value
		case "channel":
			f.Channel = chain.Channel(value)
		case "source":
			f.Source = value
		case "owner":
			f.Owner = value
		case "tag":
			f.Tag = value
		case "unit":
			err = f.Unit.UnmarshalText([]byte(value))
		case "since":
			f.Since, err = time.Parse(time.RFC3339Nano, value)
		case "until":
			f.Until, err = time.Parse(time.RFC3339Nano, value)
		default:
			err = errFilter
		}
		if err != nil {
			return Filter{}, errFilter
		}
	}
	if again, err := f.Text(); err != nil || again != text {
		return Filter{}, errFilter
	}
	return f, nil
}

// Means tells whether f means l as it is.
func (f Filter) Means(l *chain.Letter) bool {
	return f.matches(l) && !l.FirstSeen.Before(f.Since) && (f.Until.IsZero() || l.FirstSeen.Before(f.Until))
}
