package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-dvir/holdfast/chain"
)

type eventsInput struct {
	After       int64  `query:"after" default:"-1" minimum:"-1" maximum:"9007199254740991" doc:"Sequence number of the last event already had; -1 before the first"`
	Limit       int    `query:"limit" default:"1000" minimum:"1" maximum:"10000" doc:"Not of server-sent events"`
	Wait        string `query:"wait" doc:"Wait up to this long, at most 60s, for a first event" example:"30s"`
	LastEventID string `header:"Last-Event-ID" maxLength:"20" doc:"Of server-sent events: goes before after"`
	Accept      string `header:"Accept" hidden:"true"`
}

type entriesInput struct {
	After int64 `query:"after" default:"-1" minimum:"-1" maximum:"9007199254740991" doc:"Sequence number of the last event already had; -1 before the first"`
	Limit int64 `query:"limit" minimum:"1" maximum:"9007199254740991" doc:"All up to the present end if absent"`
}

// mediaLines and mediaEvents are how events come.
const (
	mediaLines  = "application/x-ndjson"
	mediaEvents = "text/event-stream"
)

func (a *api) streamRoutes() {
	text := &huma.MediaType{Schema: &huma.Schema{Type: "string"}}
	register(a, huma.Operation{Method: "GET", Path: "/v1/events", OperationID: "events", Summary: "Events as they happen",
		Description: "The stored lines: a page of them, or with Accept: text/event-stream a stream without end.",
		Responses: map[string]*huma.Response{"200": {Description: "Stored lines, byte for byte",
			Content: map[string]*huma.MediaType{mediaLines: text, mediaEvents: text}}}}, a.events)
	register(a, huma.Operation{Method: "GET", Path: "/v1/log/entries", OperationID: "entries", Summary: "The log, for verification",
		Description: "The lines of the log up to its present end, read from the log itself. A connection that is cut means that " +
			"not all could be read; the trailer Holdfast-Log: damaged, that the log cannot be read beyond them.",
		Responses: map[string]*huma.Response{"200": {Description: "Stored lines, byte for byte",
			Content: map[string]*huma.MediaType{mediaLines: text}}}}, a.entries)
}

func (a *api) events(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	wait, err := parseWait(in.Wait)
	if err != nil {
		return nil, err
	}
	if strings.Contains(in.Accept, mediaEvents) {
		return a.serverSent(in)
	}
	_ = a.catchUp(ctx)
	from := uint64(in.After + 1)
	if wait > 0 {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if err := a.State.Wait(ctx, from); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
	}
	return a.lines(from, from+uint64(in.Limit)), nil
}

// begin starts an answer that is written as it comes, however long that takes. header is names and values.
func begin(ctx huma.Context, media string, header ...string) http.ResponseWriter {
	_, w := humago.Unwrap(ctx)
	w.Header().Set("Content-Type", media)
	for i := 0; i < len(header); i += 2 {
		w.Header().Set(header[i], header[i+1])
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	w.WriteHeader(http.StatusOK)
	return w
}

// trailerLog says, after the lines, that the log could not be read to its end: it is damaged there.
const (
	trailerLog = "Holdfast-Log"
	logDamaged = "damaged"
)

// entries reads the log itself and not the projection's copy of its events: what is verified must be what is stored.
func (a *api) entries(_ context.Context, in *entriesInput) (*huma.StreamResponse, error) {
	from, end := uint64(in.After+1), uint64(chain.MaxInteger)
	if in.Limit > 0 {
		end = from + uint64(in.Limit)
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		w := begin(ctx, mediaLines, "Trailer", trailerLog)
		switch err := a.copyLog(ctx.Context(), w, from, end); {
		case errors.Is(err, chain.ErrDamaged), errors.Is(err, chain.ErrFraming):
			_ = a.fail(ctx.Context(), ctx.Operation(), err) // for the log of the service
			w.Header().Set(trailerLog, logDamaged)
		case err != nil:
			a.cut(ctx, err)
		}
	}}, nil
}

// copyLog writes the stored lines from from to before end. A client that is gone is no error.
func (a *api) copyLog(ctx context.Context, w io.Writer, from, end uint64) error {
	var seq uint64
	for block, err := range a.Events.Read(ctx, 0) {
		if err != nil {
			return err
		}
		for _, line := range block.Lines {
			if seq >= end {
				return nil
			}
			if seq >= from {
				if _, err := fmt.Fprintf(w, "%s\n", line); err != nil {
					return nil
				}
			}
			seq++
		}
	}
	return nil
}

// batch is how many lines are read at once.
const batch = 500

// lines answers with the events from from to before end, as far as there are any now.
func (a *api) lines(from, end uint64) *huma.StreamResponse {
	end = min(end, a.State.Tip().Size)
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		w := begin(ctx, mediaLines)
		for from < end {
			lines, err := a.State.Events(from, int(min(end-from, batch)))
			if err == nil && len(lines) == 0 {
				err = fmt.Errorf("event %d is missing", from)
			}
			if err != nil {
				a.cut(ctx, err)
			}
			for _, line := range lines {
				if _, err := w.Write(append(line, '\n')); err != nil {
					return // the client is gone
				}
			}
			from += uint64(len(lines))
		}
	}}
}

// heartbeat is how often a silent stream says that it is alive; proxies cut silent connections.
const heartbeat = 15 * time.Second

func (a *api) serverSent(in *eventsInput) (*huma.StreamResponse, error) {
	from := uint64(in.After + 1)
	if in.LastEventID != "" {
		last, err := strconv.ParseUint(in.LastEventID, 10, 53)
		if err != nil {
			return nil, &chain.FieldError{Field: "Last-Event-ID", Rule: "must be a sequence number"}
		}
		from = last + 1
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		w := begin(ctx, mediaEvents, "X-Accel-Buffering", "no") // nginx would hold events back
		if err := a.follow(ctx.Context(), w, from); err != nil && ctx.Context().Err() == nil {
			a.cut(ctx, err)
		}
	}}, nil
}

// follow writes events until its context ends or the client is gone, which is no error.
func (a *api) follow(ctx context.Context, w http.ResponseWriter, from uint64) error {
	flush := http.NewResponseController(w).Flush
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		changed := a.State.Changed()
		lines, err := a.State.Events(from, batch)
		if err != nil {
			return err
		}
		for i, line := range lines {
			if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", from+uint64(i), line); err != nil {
				return nil
			}
		}
		if flush() != nil {
			return nil
		}
		if from += uint64(len(lines)); len(lines) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-beat.C:
			if _, err := io.WriteString(w, ":\n\n"); err != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}
