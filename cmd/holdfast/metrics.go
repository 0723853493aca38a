package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
)

// metrics serves the numbers of a service. Labels never name a letter.
func metrics(store *blob.Store, queue *deadletter.Queue) http.Handler {
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
	for _, stage := range chain.Stages {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "holdfast_unclassified_total",
			Help:        "Failures that the classifier table does not know, recorded as <stage>.unclassified since the start.",
			ConstLabels: prometheus.Labels{"stage": string(stage)}},
			func() float64 { return float64(queue.Unclassified(stage)) }))
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}
