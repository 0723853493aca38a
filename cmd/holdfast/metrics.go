package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-dvir/holdfast/blob"
)

// metrics serves the numbers of a service. Labels never name a letter.
func metrics(store *blob.Store) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "holdfast_store_up",
			Help: "Whether the payload store takes payloads: 1, or 0 while it is away or unfit."},
			func() float64 {
				if store.Healthy() != nil {
					return 0
				}
				return 1
			}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "holdfast_store_refused_puts_total",
			Help: "Puts that were not taken because the payload store was away or unfit."},
			func() float64 { return float64(store.Refused()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "holdfast_store_shadowed_reads_total",
			Help: "Reads that met another version or a delete marker over the payload."},
			func() float64 { return float64(store.Shadowed()) }),
	)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}
