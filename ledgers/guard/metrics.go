package guard

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what a guard shows of its ledger; names begin with weir_ledger_.
type metrics struct {
	registerer prometheus.Registerer
	collectors []prometheus.Collector

	createAccounts, createTransfers, lookupAccounts, lookupTransfers, accountTransfers observer
}

// observer counts the calls of one kind that were sent.
type observer struct{ events, seconds prometheus.Observer }

func (o observer) observe(events int, took time.Duration) {
	o.events.Observe(float64(events))
	o.seconds.Observe(took.Seconds())
}

func newMetrics(b *breaker, registerer prometheus.Registerer) (*metrics, error) {
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "weir", Subsystem: "ledger", Name: name, Help: help, Buckets: buckets,
		}, []string{"call"})
	}
	gauge := func(name, help string, value func(c counts) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "weir", Subsystem: "ledger", Name: name, Help: help,
		}, func() float64 { return float64(value(b.read())) })
	}
	counter := func(name, help string, value func(c counts) int) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "weir", Subsystem: "ledger", Name: name, Help: help,
		}, func() float64 { return float64(value(b.read())) })
	}
	seconds := histogram("call_seconds", "Time until a call was answered or given up.",
		prometheus.ExponentialBuckets(100e-6, 2, 18))
	events := histogram("batch_events", "Events or ids in a call.",
		prometheus.ExponentialBuckets(1, 2, 14))
	of := func(call string) observer {
		return observer{events.WithLabelValues(call), seconds.WithLabelValues(call)}
	}
	m := &metrics{
		collectors: []prometheus.Collector{
			seconds, events,
			gauge("up", "1 while calls are sent to the ledger, 0 while it counts as down.",
				func(c counts) int {
					if c.up {
						return 1
					}
					return 0
				}),
			gauge("calls_in_flight", "Calls that the driver has not returned from, those that "+
				"were given up included.", func(c counts) int { return c.calls }),
			counter("calls_abandoned_total", "Calls that were given up before the ledger answered.",
				func(c counts) int { return c.abandoned }),
			counter("breaker_opened_total", "Times that the ledger was taken for down.",
				func(c counts) int { return c.openings }),
		},
		createAccounts:   of("create_accounts"),
		createTransfers:  of("create_transfers"),
		lookupAccounts:   of("lookup_accounts"),
		lookupTransfers:  of("lookup_transfers"),
		accountTransfers: of("account_transfers"),
	}
	return m, m.register(registerer)
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
			return fmt.Errorf("metrics of the guarded ledger: %w", err)
		}
	}
	m.registerer = registerer
	return nil
}

// unregister makes room for the metrics of another guard.
func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
}
