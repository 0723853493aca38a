package main

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/chain/chaintest"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/projection"
)

// TestMetricOfUnknownFailures: every stage is there from the start, so that a first burst shows as an increase.
func TestMetricOfUnknownFailures(t *testing.T) {
	store, err := blob.NewStore(&blobtest.Memory{}, blob.Config{})
	require.NoError(t, err)
	state, err := projection.Open(filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	defer state.Close()
	queue, err := deadletter.Open(t.Context(), deadletter.Config{Log: &chaintest.Log{}, Store: store, State: state, Origin: "test/log"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- queue.Run(ctx) }()
	defer func() { stop(); require.ErrorIs(t, <-ended, context.Canceled) }()

	page := func() string {
		w := httptest.NewRecorder()
		metrics(store, queue).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	for _, stage := range chain.Stages {
		require.Contains(t, page(), `holdfast_unclassified_total{stage="`+string(stage)+`"} 0`)
	}
	_, err = queue.Fail(t.Context(), deadletter.Failure{Submission: deadletter.Submission{Body: strings.NewReader("payload")},
		Stage: chain.StageParse, Signal: deadletter.Signal{Type: "KeyError"}})
	require.NoError(t, err)
	require.Contains(t, page(), `holdfast_unclassified_total{stage="parse"} 1`)
	require.Contains(t, page(), `holdfast_unclassified_total{stage="dispatch"} 0`)
}
