package spend

import "github.com/prometheus/client_golang/prometheus"

// metrics count calls. Labels hold budgets, never subjects or ids.
type metrics struct {
	authorized *prometheus.CounterVec
	settled    *prometheus.CounterVec
	tokens     *prometheus.CounterVec
	usd        *prometheus.CounterVec
	unrecorded prometheus.Counter
	forgotten  prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (metrics, error) {
	m := metrics{
		authorized: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_spend_authorizations_total",
			Help: "Calls that asked for a budget, by route (model, fallback) and why it was closed.",
		}, []string{"budget", "route", "reason"}),
		settled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_spend_settlements_total",
			Help: "Calls that were settled, by route: model, fallback or error.",
		}, []string{"budget", "route"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_spend_tokens_total", Help: "Tokens booked by settlements.",
		}, []string{"budget"}),
		usd: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_spend_usd_millionths_total", Help: "Millionths of USD booked by settlements.",
		}, []string{"budget"}),
		unrecorded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_spend_closings_unrecorded_total",
			Help: "Times that a closing could not be written down; it is tried again.",
		}),
		forgotten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_spend_closings_forgotten_total",
			Help: "Calls turned away that were pushed out of memory before they were written down.",
		}),
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.authorized, m.settled, m.tokens, m.usd, m.unrecorded, m.forgotten,
	} {
		err := registerer.Register(c)
		if err != nil {
			return metrics{}, err
		}
	}
	return m, nil
}
