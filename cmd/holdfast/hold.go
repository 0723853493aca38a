package main

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dvir/holdfast/web"
)

type holdCmd struct {
	Ref    reference `arg:"" help:"Payload reference; 8 digits or more, if no other begins with them."`
	Reason string    `required:"" help:"Why; recorded." placeholder:"TEXT"`
	On     bool      `help:"Set the legal hold: nothing of the letter expires until it is lifted."`
	Off    bool      `help:"Lift the legal hold; takes the role admin."`
	Until  date      `help:"Keep at least until then: the end of a day such as 2031-12-31, in UTC, or a time (RFC 3339). Nothing shortens a retention." placeholder:"DATE"`
	clientFlags
}

// date is a moment after 1970, given as a day or as a time.
type date time.Time

func parseDate(text string) (date, error) {
	at, err := time.Parse(time.RFC3339, text)
	if day, other := time.Parse(time.DateOnly, text); other == nil {
		at, err = day.AddDate(0, 0, 1).Add(-time.Second), nil
	}
	if at.Unix() <= 0 {
		err = errors.ErrUnsupported
	}
	return date(at), err
}

// Validate asks for something to do.
func (c *holdCmd) Validate() error {
	switch {
	case c.On && c.Off:
		return errors.New("--on and --off: not both")
	case !c.On && !c.Off && time.Time(c.Until).IsZero():
		return errors.New("one of --on, --off and --until is needed")
	}
	return nil
}

// Run gives the order.
func (c *holdCmd) Run(ctx context.Context) error {
	p := web.Protection{Reason: c.Reason, RetainUntil: time.Time(c.Until)}
	switch {
	case c.On:
		p.Hold = "on"
	case c.Off:
		p.Hold = "off"
	}
	r, err := c.client().Hold(ctx, string(c.Ref), p)
	return c.printReceipt(r, err)
}
