package credit

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count what the gate of one limit does. Labels hold limits, never subjects.
type metrics struct {
	allowed, blocked prometheus.Counter
	unknown, stale   prometheus.Counter
	// refreshes counts fetches in the background, and fetches those that somebody waited for.
	refreshes, fetches fetchMetrics
	readTimeouts       prometheus.Counter
	readErrors         prometheus.Counter
	writeErrors        prometheus.Counter

	registerer prometheus.Registerer
	registered []prometheus.Collector
}

// fetchMetrics count fetches by what came of them.
type fetchMetrics struct{ known, none, failed, dropped prometheus.Counter }

func newMetrics(limit string, registerer prometheus.Registerer) (metrics, error) {
	var collectors []prometheus.Collector
	vector := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name, Help: help, ConstLabels: prometheus.Labels{"limit": limit},
		}, []string{label})
		collectors = append(collectors, c)
		return c
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{
			Name: name, Help: help, ConstLabels: prometheus.Labels{"limit": limit},
		})
		collectors = append(collectors, c)
		return c
	}
	decisions := vector("weir_credit_decisions_total",
		"Decisions of the credit gate by result: allowed or blocked.", "result")
	refreshes := vector("weir_credit_refreshes_total",
		"Refreshes in the background by result: known, none, failed or dropped.", "result")
	fetches := vector("weir_credit_fetches_total",
		"Fetches that a reader waited for by result: known, none, failed or dropped.", "result")
	cacheErrors := vector("weir_credit_cache_errors_total",
		"Calls of the cache that failed, by operation: read or write.", "operation")
	m := metrics{
		allowed: decisions.WithLabelValues("allowed"), blocked: decisions.WithLabelValues("blocked"),
		unknown: counter("weir_credit_unknown_total",
			"Decisions that let pass because no balance is known."),
		stale: counter("weir_credit_stale_total",
			"Decisions by a balance that is stale."),
		refreshes: newFetchMetrics(refreshes), fetches: newFetchMetrics(fetches),
		readTimeouts: counter("weir_credit_read_timeouts_total",
			"Reads of the cache that took longer than their budget."),
		readErrors:  cacheErrors.WithLabelValues("read"),
		writeErrors: cacheErrors.WithLabelValues("write"),
	}
	if registerer == nil {
		return m, nil
	}
	m.registerer = registerer
	for _, c := range collectors {
		err := registerer.Register(c)
		if err != nil {
			m.unregister()
			return metrics{}, fmt.Errorf("metrics of the credit gate of limit %q: %w", limit, err)
		}
		m.registered = append(m.registered, c)
	}
	return m, nil
}

// unregister makes way for the gate that a limit gets when its config changes.
func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.registerer.Unregister(c)
	}
}

func newFetchMetrics(v *prometheus.CounterVec) fetchMetrics {
	return fetchMetrics{
		known: v.WithLabelValues("known"), none: v.WithLabelValues("none"),
		failed: v.WithLabelValues("failed"), dropped: v.WithLabelValues("dropped"),
	}
}

func (m *metrics) decided(d *Decision) {
	if d.Blocked {
		m.blocked.Inc()
	} else {
		m.allowed.Inc()
	}
	if !d.Known {
		m.unknown.Inc()
	}
	if d.Stale {
		m.stale.Inc()
	}
}

// unread counts a read of the cache that failed.
func (m *metrics) unread(err error) {
	if errors.Is(err, errReadTimeout) {
		m.readTimeouts.Inc()
		return
	}
	m.readErrors.Inc()
}
