package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
)

type serveCmd struct {
	settings
}

// Run serves until interrupted.
func (c *serveCmd) Run(ctx context.Context) error {
	log := newLogger(c.LogLevel)
	s, err := openService(ctx, c.settings, log)
	if err != nil {
		return err
	}
	tip := s.state.Tip()
	log.LogAttrs(ctx, slog.LevelInfo, "serving", slog.String("url", s.url()), slog.String("data", string(c.Data)),
		slog.String("log_id", s.queue.LogID()), slog.Uint64("events", tip.Size))
	err = s.run(ctx)
	log.LogAttrs(ctx, slog.LevelInfo, "stopped")
	return errors.Join(err, s.close())
}

// newLogger logs JSON lines to standard error.
func newLogger(level string) *slog.Logger {
	var least slog.Level
	_ = least.UnmarshalText([]byte(level)) // one of the enum
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: least}))
}
