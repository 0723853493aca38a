package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-dvir/holdfast/chain"
)

// metrics serves the numbers of a service. Labels never name a letter.
func (s *service) metrics() http.Handler {
	r := prometheus.NewRegistry()
	s.storeMetrics(r)
	s.queueMetrics(r)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

func (s *service) storeMetrics(r *prometheus.Registry) {
	store := s.store
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
}

func (s *service) queueMetrics(r *prometheus.Registry) {
	for _, stage := range chain.Stages {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "holdfast_unclassified_total",
			Help:        "Failures that the classifier table does not know, recorded as <stage>.unclassified since the start.",
			ConstLabels: prometheus.Labels{"stage": string(stage)}},
			func() float64 { return float64(s.queue.Unclassified(stage)) }))
	}
	for i := range s.targets.Processors {
		name := s.targets.Processors[i].Name
		labels := prometheus.Labels{"processor": name}
		r.MustRegister(
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "holdfast_processor_up", ConstLabels: labels,
				Help: "Whether letters are brought to the processor: 1, or 0 while it fails and they wait."},
				func() float64 { return s.up(name) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "holdfast_processor_waiting_letters", ConstLabels: labels,
				Help: "Letters that wait for the processor, or for the time of their retry."},
				func() float64 { return s.waiting(name) }))
	}
}

// up is 0 for a processor that is taken to be down.
func (s *service) up(processor string) float64 {
	for _, t := range s.pool.States() {
		if t.Name == processor && t.Open {
			return 0
		}
	}
	return 1
}

// waiting counts the letters that wait for a processor. A state that cannot be read is told elsewhere.
func (s *service) waiting(processor string) (n float64) {
	kinds, _ := s.state.Waiting()
	for kind, count := range kinds {
		if s.routes.Target(kind) == processor {
			n += float64(count)
		}
	}
	return n
}
