package main

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// TestMetricOfUnknownFailures: every stage is there from the start, so that a first burst shows as an increase.
func TestMetricOfUnknownFailures(t *testing.T) {
	s, err := openService(t.Context(), settings{Data: folder(t.TempDir()), Listen: "127.0.0.1:0", Origin: "test/log", Workers: 1,
		MaxPayload: 1 << 20, Retention: 18, NoImmutable: true}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	defer func() {
		stop()
		require.NoError(t, <-ended)
		require.NoError(t, s.close())
	}()
	page := func() string {
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	for _, stage := range chain.Stages {
		require.Contains(t, page(), `holdfast_unclassified_total{stage="`+string(stage)+`"} 0`)
	}
	_, err = s.queue.Fail(t.Context(), deadletter.Failure{Submission: deadletter.Submission{Body: strings.NewReader("payload")},
		Stage: chain.StageParse, Signal: deadletter.Signal{Type: "KeyError"}})
	require.NoError(t, err)
	require.Contains(t, page(), `holdfast_unclassified_total{stage="parse"} 1`)
	require.Contains(t, page(), `holdfast_unclassified_total{stage="dispatch"} 0`)
	require.Contains(t, page(), `holdfast_processor_up{processor="builtin"} 1`)
}
