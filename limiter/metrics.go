package limiter

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count decisions. Labels hold limits and codes, never subjects or ids.
type metrics struct {
	decisions  *prometheus.CounterVec
	shadow     *prometheus.CounterVec
	errors     *prometheus.CounterVec
	remembered prometheus.Counter
	unread     prometheus.Counter
	setAside   prometheus.Counter
	units      *prometheus.CounterVec
	late       *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (metrics, error) {
	m := metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_decisions_total",
			Help: "Decisions by limit and result: allowed, denied, replayed or degraded.",
		}, []string{"limit", "result"}),
		shadow: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_shadow_decisions_total",
			Help: "What limits that are only tried out would have decided, of what the others let " +
				"pass: allowed, denied, or error where the ledger did not say.",
		}, []string{"limit", "result"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_check_errors_total",
			Help: "Checks that were not decided, by code.",
		}, []string{"code"}),
		remembered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_denials_remembered_total",
			Help: "Denials given from the exhaustion memory, without a ledger write.",
		}),
		setAside: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_spool_set_aside_total",
			Help: "Entries of the spool that cannot be booked and were set aside.",
		}),
		units: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_spooled_units_total",
			Help: "Units let through while the ledger did not answer, those of an id once: spooled, " +
				"and of those later booked, overage or dropped. What could not be spooled is dropped " +
				"at once.",
		}, []string{"limit", "result"}),
		late: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_late_charges_total",
			Help: "Charges that the ledger accepted after they were given up: voided or kept; " +
				"and those not looked after, because too many are or weir ends.",
		}, []string{"result"}),
		unread: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_balances_unread_total",
			Help: "Decisions whose balances could not be read after the charge.",
		}),
	}
	if registerer == nil {
		return m, nil
	}
	collectors := []prometheus.Collector{
		m.decisions, m.shadow, m.errors, m.remembered, m.unread, m.setAside, m.units, m.late,
	}
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
	case d.Degraded:
		result = "degraded"
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
	m.errors.WithLabelValues(string(codeOf(err))).Inc()
}

func codeOf(err error) Code {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return CodeInternal
	}
	return e.Code
}
