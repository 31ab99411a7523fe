package limiter

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count decisions. Labels hold limits and codes, never subjects or ids.
type metrics struct {
	decisions  *prometheus.CounterVec
	errors     *prometheus.CounterVec
	remembered prometheus.Counter
	unread     prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (metrics, error) {
	m := metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_decisions_total",
			Help: "Decisions by limit and result: allowed, denied or replayed.",
		}, []string{"limit", "result"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_check_errors_total",
			Help: "Checks that were not decided, by code.",
		}, []string{"code"}),
		remembered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_denials_remembered_total",
			Help: "Denials given from the exhaustion memory, without a ledger write.",
		}),
		unread: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_balances_unread_total",
			Help: "Decisions whose balances could not be read after the charge.",
		}),
	}
	if registerer == nil {
		return m, nil
	}
	collectors := []prometheus.Collector{m.decisions, m.errors, m.remembered, m.unread}
	for _, c := range collectors {
		err := registerer.Register(c)
		if err != nil {
			return metrics{}, err
		}
	}
	return m, nil
}

func (m *metrics) decided(charges []charge, d Decision) {
	result := "allowed"
	switch {
	case d.Replayed:
		result = "replayed"
	case !d.Allowed:
		m.decisions.WithLabelValues(charges[d.Denied].limit.Name, "denied").Inc()
		return
	}
	for _, c := range charges {
		m.decisions.WithLabelValues(c.limit.Name, result).Inc()
	}
}

func (m *metrics) failed(err error) {
	code := CodeInternal
	e, ok := errors.AsType[*Error](err)
	if ok {
		code = e.Code
	}
	m.errors.WithLabelValues(string(code)).Inc()
}
