package test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/jetstream"
)

// TestTC12EndedUnderLoad ends the service at random moments while clients submit payloads, hand over failures and replay:
// by kill -9, by SIGTERM as at a deployment, and by SIGTERM with a kill -9 soon after. Afterwards nothing acknowledged is
// missing, no report has two records, no attempt was charged for an end, nothing is poison, the chain verifies, and the
// projection equals a rebuild.
func TestTC12EndedUnderLoad(t *testing.T) {
	endUnderLoad(t, 100, []func(*server){(*server).kill, (*server).stop, (*server).stopInVain})
}

// killUnderLoad has the service run with flags.
func killUnderLoad(t *testing.T, flags ...string) {
	endUnderLoad(t, 50, []func(*server){(*server).kill}, flags...)
}

// stopInVain is an end by somebody who does not wait for it.
func (s *server) stopInVain() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	s.kill()
}

// endUnderLoad ends the service in one way after the other.
func endUnderLoad(t *testing.T, rounds int, ends []func(*server), flags ...string) {
	if testing.Short() {
		rounds = 6
	}
	data := t.TempDir()
	acked := &ledger{known: map[string]bool{}}
	for round := range rounds {
		s := serve(t, data, flags...)
		ctx, cancel := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		for c := range 8 {
			clients.Go(func() { s.load(ctx, fmt.Sprintf("%d-%d", round, c), acked) })
		}
		time.Sleep(time.Duration(20+rand.IntN(500)) * time.Millisecond)
		ends[round%len(ends)](s)
		cancel()
		clients.Wait()
	}
	s := serve(t, data, flags...)
	s.settle()
	acked.check(s)
	s.stop()
	code, out, errs := holdfast(t, append([]string{"verify", "--data", data, "--output", "json"}, flags...)...)
	require.Zero(t, code, "%s\n%s", out, errs)
	checkHistory(t, data, acked)
	t.Logf("%d rounds, %d payloads acknowledged", rounds, len(acked.known))
}

// ledger is what the service has acknowledged.
type ledger struct {
	mu    sync.Mutex
	known map[string]bool // payload_ref
}

func (l *ledger) add(body []byte) (ref string) {
	var receipt struct {
		PayloadRef string `json:"payload_ref"`
	}
	if json.Unmarshal(body, &receipt) != nil || receipt.PayloadRef == "" {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[receipt.PayloadRef] = true
	return receipt.PayloadRef
}

func (l *ledger) check(s *server) {
	for ref := range l.known {
		status, body, err := s.do(s.t.Context(), http.MethodGet, "/v1/letters/"+ref, "", nil)
		require.NoError(s.t, err)
		assert.Equal(s.t, http.StatusOK, status, "%s was acknowledged: %s", ref, body)
	}
}

// checkWhile is check for as long as the service runs.
func (l *ledger) checkWhile(s *server) {
	for ref := range l.known {
		status, body, err := s.do(s.t.Context(), http.MethodGet, "/v1/letters/"+ref, "", nil)
		if err != nil {
			select {
			case <-s.ended:
			case <-time.After(30 * time.Second):
				require.NoError(s.t, err)
			}
			return
		}
		assert.Equal(s.t, http.StatusOK, status, "%s was acknowledged: %s", ref, body)
	}
}

// load submits until the service dies: reports that pass, reports that fail, failures, and replays.
func (s *server) load(ctx context.Context, name string, acked *ledger) {
	for i := 0; ; i++ {
		id := fmt.Sprintf("%s-%d", name, i)
		path, body := "/v1/payloads?channel=mobile_export", report(id)
		switch i % 4 {
		case 1:
			body = []byte(strings.Replace(string(body), `"stage":"submitted"`, `"stage":"nonsense"`, 1))
		case 2:
			path = "/v1/failures?channel=mobile_export&stage=dispatch&http_status=503"
		}
		status, answer, err := s.do(ctx, http.MethodPost, path, "application/json", body)
		if err != nil {
			return
		}
		if status != http.StatusCreated && status != http.StatusOK {
			continue
		}
		if ref := acked.add(answer); i%4 == 1 {
			_, _, _ = s.do(ctx, http.MethodPost, "/v1/letters/"+ref+"/replay", "application/json", []byte(`{"reason":"again"}`))
		}
	}
}

// report is a canonical report of its own unit.
func report(id string) []byte {
	return fmt.Appendf(nil, `{"schema_version":"1.0","dvir_id":"dvir-%[1]s",`+
		`"source":{"channel":"mobile_export","vendor":"testfleet","record_id":"dvir-%[1]s","record_version":"1"},`+
		`"stage":"submitted","inspection":{"type":"post_trip","reported_at":"2026-03-10T18:09:40-05:00"},`+
		`"vehicle":{"unit_number":"unit-%[1]s"},"driver":{"driver_id":"drv-1"},"defects_found":false,"defects":[],`+
		`"safe_to_operate":true,"driver_signature":{"signer_id":"drv-1","role":"driver",`+
		`"signed_at":"2026-03-10T18:09:41-05:00","method":"pin"}}`, id)
}

// settle waits until nothing is waiting to be processed.
func (s *server) settle() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var stats struct {
			Letters map[string]uint64 `json:"letters"`
		}
		s.get("/v1/stats", &stats)
		return stats.Letters["received"] == 0 && stats.Letters["replayed"] == 0
	}, 90*time.Second, 50*time.Millisecond)
}

// checkHistory reads the log itself: no second record, no poison, every acknowledged payload received.
func checkHistory(t *testing.T, data string, acked *ledger) {
	log, err := jetstream.Open(t.Context(), jetstream.Config{Dir: data + "/log", ReadOnly: true})
	require.NoError(t, err)
	defer log.Close()
	admitted, present := map[chain.Digest]chain.Digest{}, map[string]bool{}
	var head chain.Head
	lost := 0
	for block, err := range log.Read(t.Context(), 0) {
		require.NoError(t, err)
		for _, line := range block.Lines {
			r, err := head.Check(line)
			require.NoError(t, err)
			head = r.Head()
			present[r.Event.PayloadRef.String()] = true
			switch r.Event.Type {
			case chain.TypePoison:
				t.Errorf("event %d: poison, %s", r.Seq, r.Event.Envelope.ErrorCode)
			case chain.TypeAttemptLost:
				assert.False(t, r.Event.Attributed, "event %d: an attempt is charged", r.Seq)
				lost++
			case chain.TypeResolved:
				first, again := admitted[r.Event.RecordVersion]
				assert.False(t, again && first != r.Event.RecordRef, "event %d: a second record", r.Seq)
				admitted[r.Event.RecordVersion] = r.Event.RecordRef
			}
		}
	}
	missing := slices.DeleteFunc(slices.Collect(maps.Keys(acked.known)), func(ref string) bool { return present[ref] })
	assert.Empty(t, missing, "acknowledged, and not in the log")
	t.Logf("%d events, %d attempts lost and given back", head.Size, lost)
}
