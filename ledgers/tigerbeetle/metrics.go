package tigerbeetle

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what a ledger shows of itself; names begin with weir_tigerbeetle_.
type metrics struct {
	registerer prometheus.Registerer
	collectors []prometheus.Collector

	requestEvents  *prometheus.HistogramVec
	requestSeconds *prometheus.HistogramVec
	evictions      prometheus.Counter
}

func newMetrics(l *Ledger) (*metrics, error) {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "weir", Subsystem: "tigerbeetle", Name: name, Help: help}
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "weir", Subsystem: "tigerbeetle", Name: name, Help: help, Buckets: buckets,
		}, []string{"call"})
	}
	m := &metrics{
		requestEvents: histogram("request_events", "Events or ids in a request to the cluster.",
			prometheus.ExponentialBuckets(1, 2, 14)),
		requestSeconds: histogram("request_seconds", "Time until a request is answered, the wait "+
			"for the one before it included.", prometheus.ExponentialBuckets(100e-6, 2, 18)),
		evictions: prometheus.NewCounter(prometheus.CounterOpts(opts("sessions_lost_total",
			"Sessions that the cluster has ended."))),
	}
	m.collectors = []prometheus.Collector{
		m.requestEvents, m.requestSeconds, m.evictions,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("queue_events",
			"Events and ids that wait for the cluster.")),
			func() float64 {
				l.mu.Lock()
				defer l.mu.Unlock()
				return float64(l.events)
			}),
	}
	return m, m.register(l.options.Registerer)
}

// register registers all or, where one is there already, none.
func (m *metrics) register(registerer prometheus.Registerer) error {
	if registerer == nil {
		return nil
	}
	for i, c := range m.collectors {
		err := registerer.Register(c)
		if err != nil {
			for _, registered := range m.collectors[:i] {
				registerer.Unregister(registered)
			}
			return fmt.Errorf("metrics of the TigerBeetle ledger: %w", err)
		}
	}
	m.registerer = registerer
	return nil
}

// unregister makes room for the metrics of another ledger.
func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
}

// observer counts the requests of one kind.
type observer struct{ events, seconds prometheus.Observer }

// of returns the observer of a call.
func (m *metrics) of(name string) observer {
	call := strings.ReplaceAll(name, " ", "_")
	return observer{m.requestEvents.WithLabelValues(call), m.requestSeconds.WithLabelValues(call)}
}

// observe counts a request that was answered.
func (o observer) observe(events int, took time.Duration) {
	o.events.Observe(float64(events))
	o.seconds.Observe(took.Seconds())
}
