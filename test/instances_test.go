package test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/blob/blobtest"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/jetstream/natstest"
	"github.com/holdfast-dvir/holdfast/web"
)

// TestTC12RollingRestart: two instances share a log and a bucket and are restarted one after the other, again and again, while
// payloads come in. No letter is ever run twice at once, none twice to an end, and no attempt is used for a restart.
func TestTC12RollingRestart(t *testing.T) {
	url, system := natstest.Start(t)
	bucket := blobtest.MinIO(t)
	ran := t.TempDir() + "/ran"
	file := configure(t, `
processors:
  - {name: slow, kind: exec, workers: 3, command: [sh, -c, 'echo "begin $HOLDFAST_PAYLOAD_REF" >>%s; sleep 0.1; echo "end $HOLDFAST_PAYLOAD_REF" >>%s']}
routes: [{processor: slow}]
`, ran, ran)
	flags := with(blobtest.Flags(t, bucket.Config(bucket.NewBucket(t))), "--nats-url", url, "--nats-system-url", system, "--processors", file)
	data := []string{t.TempDir(), t.TempDir()}
	instances := []*server{serve(t, data[0], flags...), serve(t, data[1], flags...)}
	var mu sync.RWMutex // of instances: who submits does not do so to one that is being stopped
	done := make(chan struct{})
	var submitting sync.WaitGroup
	var refs []chain.Digest
	submitting.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			mu.RLock()
			r, err := instances[i%2].client().Submit(t.Context(), strings.NewReader(fmt.Sprint("payload ", i)), web.SubmitOptions{})
			mu.RUnlock()
			if assert.NoError(t, err) {
				refs = append(refs, r.PayloadRef)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	for round := range 6 {
		time.Sleep(500 * time.Millisecond)
		i := round % 2
		mu.Lock()
		instances[i].stop()
		instances[i] = serve(t, data[i], flags...)
		mu.Unlock()
	}
	close(done)
	submitting.Wait()
	for _, ref := range refs {
		l := instances[0].until(ref, chain.Resolved)
		require.Equal(t, uint64(1), l.Attempt)
	}
	for i := range instances {
		instances[i].stop()
	}
	text, err := os.ReadFile(ran)
	require.NoError(t, err)
	runs := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		what, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		runs[ref] = append(runs[ref], what)
	}
	require.Len(t, runs, len(refs))
	for ref, what := range runs {
		require.Equal(t, []string{"begin", "end"}, what, ref)
	}
	t.Logf("%d payloads", len(refs))
}
