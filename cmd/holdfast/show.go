package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/web"
)

type showCmd struct {
	Ref reference `arg:"" help:"Payload reference; 8 digits or more, if no other begins with them."`
	clientFlags
}

// Run prints a letter and its history.
func (c *showCmd) Run(ctx context.Context) error {
	l, err := c.client().Letter(ctx, string(c.Ref))
	if err != nil {
		return c.told(err)
	}
	if c.json() {
		return printJSON(l)
	}
	c.head(l.Letter)
	t := newTable("SEQ", "AT", "EVENT", "ACTOR", "WHAT")
	for _, e := range l.Events {
		r, err := chain.Parse(e.Event)
		if err != nil {
			return fmt.Errorf("event %d: %w", e.Seq, err)
		}
		t.row(number(e.Seq), stamp(r.Event.At), string(r.Event.Type), r.Event.Actor, what(&r.Event))
	}
	return t.flush()
}

func (c *showCmd) head(l web.Letter) {
	line := func(name, value string) {
		if value != "" {
			fmt.Printf("%-14s %s\n", name, printable(value))
		}
	}
	line("ref", l.Ref.String())
	line("disposition", string(l.Disposition))
	line("outcome", strings.TrimSpace(string(l.Outcome)+" "+l.OutcomeCode))
	line("first seen", stamp(l.FirstSeen))
	line("payload", strings.TrimSpace(fmt.Sprintf("%d bytes %s %s", l.Size, l.ContentType, l.ContentEncoding)))
	line("kept until", stamp(l.RetainUntil))
	if l.Hold {
		line("legal hold", "on")
	}
	for _, s := range l.Submissions {
		line("submitted by", strings.TrimSpace(string(s.Channel)+" "+s.Source))
	}
	if l.Failure != nil {
		line("last error", l.Failure.LastError)
	}
	if !l.RecordRef.IsZero() {
		line("record", l.RecordRef.String())
	}
	line("next attempt", stamp(l.NextAttemptAt))
	line("owner", l.Owner)
	line("tags", strings.Join(l.Tags, " "))
	fmt.Println()
}

// what says in one line what an event did.
func what(e *chain.Event) string {
	var parts []string
	add := func(format string, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	if e.Envelope != nil {
		if !strings.HasPrefix(e.Envelope.LastError, e.Envelope.ErrorCode) {
			add("%s", e.Envelope.ErrorCode)
		}
		add("%s", e.Envelope.LastError)
		add("next %s", stamp(e.Envelope.NextAttemptAt))
	}
	if e.Type == chain.TypeAttempt {
		add("number %s", number(e.Attempt))
	}
	add("%s", string(e.Outcome))
	add("%s", e.OutcomeCode)
	add("record %s", short(e.RecordRef))
	add("from %s", string(e.Channel))
	add("%s", e.Source)
	add("owner %s", e.Owner)
	add("tag %s", e.Tag)
	if e.Type == chain.TypeRetention {
		add("hold %s", e.Hold)
		add("kept until %s", stamp(e.RetainUntil))
	}
	add("evidence %s", e.Evidence)
	add("%q", e.Note)
	add("by plan %s", e.Plan)
	add("because %q", e.Reason)
	return strings.Join(parts, ", ")
}
