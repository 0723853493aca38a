package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-dvir/holdfast/projection"
)

const (
	sweepEvery = 24 * time.Hour
	sweepMost  = 10_000 // letters counted; more are "at least" as many
)

// sweep tells every day which open letters lose their protection soon. It changes nothing: whether a letter is to be
// closed or kept longer is for a person to decide.
func (s *service) sweep(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for s.cfg.ExpiryWarning > 0 {
		if err := s.tellExpiring(ctx, time.Now()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *service) tellExpiring(ctx context.Context, now time.Time) error {
	count, first, err := expiring(s.state, now.AddDate(0, 0, s.cfg.ExpiryWarning))
	if err != nil || count == 0 {
		return err
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "open letters lose their protection soon: close them, or extend their retention with holdfast hold",
		slog.Int("letters", count), slog.Bool("at_least", count == sweepMost), slog.Time("first", first), slog.Int("within_days", s.cfg.ExpiryWarning))
	return nil
}

// expiring counts the open letters whose retention ends before then, and tells when the first does.
func expiring(state *projection.DB, then time.Time) (count int, first time.Time, err error) {
	for cursor := ""; ; {
		page, err := state.List(projection.Filter{EndsBefore: then}, cursor, projection.MaxPage)
		if err != nil {
			return 0, first, err
		}
		for _, l := range page.Letters {
			if first.IsZero() || l.RetainUntil.Before(first) {
				first = l.RetainUntil
			}
		}
		if count += len(page.Letters); page.Next == "" || count >= sweepMost {
			return min(count, sweepMost), first, nil
		}
		cursor = page.Next
	}
}
