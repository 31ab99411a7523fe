package embedded

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what a ledger shows of itself; names begin with weir_embedded_.
type metrics struct {
	registerer prometheus.Registerer
	collectors []prometheus.Collector

	groupEvents  prometheus.Histogram
	groupSeconds prometheus.Histogram
	syncSeconds  prometheus.Histogram
	expired      prometheus.Counter
	retired      prometheus.Counter
	cached       prometheus.Gauge
	waiting      prometheus.Gauge
	live         prometheus.Gauge
}

func newMetrics(l *Ledger) (*metrics, error) {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "weir", Subsystem: "embedded", Name: name, Help: help}
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "weir", Subsystem: "embedded", Name: name, Help: help, Buckets: buckets,
		})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
	}
	computed := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts(name, help)), value)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
	}
	seconds := prometheus.ExponentialBuckets(50e-6, 2, 16)
	m := &metrics{
		groupEvents: histogram("group_events", "Events and ids applied together.",
			prometheus.ExponentialBuckets(1, 2, 14)),
		groupSeconds: histogram("apply_seconds", "Time to apply and write a group.", seconds),
		syncSeconds:  histogram("sync_seconds", "Time that a group waits for its sync.", seconds),
		expired:      counter("expired_total", "Pending transfers that timed out."),
		retired:      counter("retired_total", "Transfers and burnt ids that retention deleted."),
		cached:       gauge("accounts_cached", "Accounts in memory."),
		waiting:      gauge("accounts_waiting", "Changed accounts that wait for being stored."),
		live:         gauge("live_in_memory", "Live pending transfers in memory."),
	}
	m.collectors = []prometheus.Collector{
		m.groupEvents, m.groupSeconds, m.syncSeconds, m.expired, m.retired,
		m.cached, m.waiting, m.live,
		computed("queue_length", "Calls that wait for the writer.", func() float64 {
			return float64(l.queue.length())
		}),
		computed("clock_ahead_seconds", "How far the ledger's time is ahead of the clock.",
			func() float64 { return float64(l.clock.offset.Load()) / 1e9 }),
	}
	return m, m.register(l.options.Registerer)
}

func (m *metrics) register(registerer prometheus.Registerer) error {
	if registerer == nil {
		return nil
	}
	m.registerer = registerer
	var errs []error
	for _, c := range m.collectors {
		errs = append(errs, registerer.Register(c))
	}
	return errors.Join(errs...)
}

// unregister makes room for the metrics of another ledger.
func (m *metrics) unregister() {
	if m == nil || m.registerer == nil {
		return
	}
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
}

// addExpired counts pending transfers that timed out. While a ledger is opened nothing is counted.
func (m *metrics) addExpired(n int) {
	if m != nil {
		m.expired.Add(float64(n))
	}
}
