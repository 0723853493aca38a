package dvir_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/dvir"
)

// BenchmarkProcess judges a report of 1.5 KiB with one defect. The ratio compares with
// encoding/json decoding the same bytes into any, in the same run.
func BenchmarkProcess(b *testing.B) {
	data, err := os.ReadFile(filepath.Join(corpus, "a02_canonical_defect_submitted.json"))
	require.NoError(b, err)
	p := newProcessor(b, fleet)
	in := dvir.Input{Data: data, ContentType: "application/json", ReceivedAt: readManifest(b).Clock}
	require.Equal(b, dvir.Admit, p.Process(in, nil).Outcome)
	b.ReportAllocs()
	for b.Loop() {
		p.Process(in, nil)
	}
	own := b.Elapsed() / time.Duration(b.N)

	start := time.Now()
	for range b.N {
		var v any
		if err := json.Unmarshal(data, &v); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(own)/float64(time.Since(start)/time.Duration(b.N)), "ratio")
}
