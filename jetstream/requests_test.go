package jetstream_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/jetstream"
	"github.com/holdfast-dvir/holdfast/jetstream/natstest"
)

// Requests are answered side by side: one that waits holds up no other one, and a refusal has its status and its body.
func TestAnswer(t *testing.T) {
	url, system := natstest.Start(t)
	log, err := jetstream.Open(t.Context(), jetstream.Config{URL: url, SystemURL: system})
	require.NoError(t, err)
	defer log.Close()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	ready := make(chan struct{})
	running.Go(func() {
		assert.ErrorIs(t, log.Answer(ctx, "test.work", "1.0.0", map[string]jetstream.Request{
			"say": func(_ context.Context, body []byte) ([]byte, int, string) {
				switch string(body) {
				case "wait":
					<-ready
				case "go":
					close(ready)
				case "no":
					return []byte(`{"why":"no"}`), 409, "no such luck"
				}
				return append([]byte("heard "), body...), 0, ""
			},
		}), context.Canceled)
	})
	ask := natstest.NewAsker(t, url)
	require.Eventually(t, ask.Serves("test.work.say"), 20*time.Second, 10*time.Millisecond)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		answer, status := ask.Ask("test.work.say", []byte("wait"))
		assert.Equal(t, "heard wait", string(answer))
		assert.Empty(t, status)
	})
	answer, status := ask.Ask("test.work.say", []byte("no"))
	require.Equal(t, `{"why":"no"}`, string(answer))
	require.Equal(t, "409", status)
	answer, _ = ask.Ask("test.work.say", []byte("go"))
	require.Equal(t, "heard go", string(answer))
	waiting.Wait()
	stop()
	running.Wait()
	require.Eventually(t, func() bool { return !ask.Serves("test.work.say")() }, 20*time.Second, 10*time.Millisecond)
}
