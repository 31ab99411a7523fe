package api

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weir/api/wire"
	"weir/limiter"
)

// metrics count calls. Labels hold routes as they are listed, never what a caller wrote.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	panics   prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (metrics, error) {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_http_requests_total",
			Help: "HTTP calls answered, by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "weir_http_request_duration_seconds",
			Help:    "Time from the end of a call's headers to the end of its answer, by route and status.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5},
		}, []string{"route", "status"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_http_panics_total",
			Help: "Panics that became an answer with status 500. Each is a fault of weir.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.panics} {
		err := registerer.Register(c)
		if err != nil {
			return metrics{}, err
		}
	}
	return m, nil
}

// exposition shows the metrics of the whole process.
func (s *Server) exposition(c echo.Context) error {
	families, err := s.options.Registry.Gather()
	if err != nil {
		return fmt.Errorf("gather metrics: %w", err)
	}
	gathered := prometheus.GathererFunc(already(families))
	promhttp.HandlerFor(gathered, promhttp.HandlerOpts{}).ServeHTTP(c.Response(), c.Request())
	return nil
}

// already makes a function of its result.
func already[T any](result T) func() (T, error) { return func() (T, error) { return result, nil } }

// done counts and logs a call that was answered.
func (s *Server) done(c echo.Context, route string, start time.Time, err error) {
	took := s.options.Now().Sub(start)
	status := c.Response().Status
	text := strconv.Itoa(status)
	s.metrics.requests.WithLabelValues(route, text).Inc()
	s.metrics.seconds.WithLabelValues(route, text).Observe(took.Seconds())
	s.report(err)
	level := slog.LevelDebug
	code := ""
	if err != nil {
		level = slog.LevelInfo
		code = string(explain(err).Code)
	}
	ctx := c.Request().Context()
	if !s.log.Enabled(ctx, level) {
		return
	}
	s.log.LogAttrs(ctx, level, "call",
		slog.String("method", methodOf(c.Request().Method)), slog.String("route", route),
		slog.Int("status", status), slog.String("code", code), slog.Duration("duration", took))
}

// reportEvery is how often an outage is logged, in nanoseconds; each call of it is counted.
const reportEvery = int64(time.Second)

// report logs what weir could not do, with the cause. Errors below 500 are the caller's matter;
// their texts may name ids.
func (s *Server) report(err error) {
	if err == nil {
		return
	}
	e := explain(err)
	status := s.problemOf(e, "").Status
	switch {
	case status < http.StatusInternalServerError, e.Code == limiter.Code(wire.CodeNotReady):
		return // the caller's matter, or no more than an answer
	case status == http.StatusServiceUnavailable:
		now, last := s.options.Now().UnixNano(), s.reported.Load()
		if now-last < reportEvery || !s.reported.CompareAndSwap(last, now) {
			return
		}
	}
	cause := e.Unwrap()
	if cause == nil {
		cause = err
	}
	s.log.Error("call failed", "code", e.Code, "cause", cause)
}

// methodOf keeps what callers make up out of the log.
func methodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return method
	default:
		return "other"
	}
}

// health says that the process answers. Whatever the ledger does, restarting weir would not help.
func (s *Server) health(c echo.Context) error {
	return send(c, http.StatusOK, plainJSON, &wire.Health{Status: "ok"})
}

// ready says whether calls should be sent here. While the ledger is down they should, as long as
// some limit can be answered without it.
func (s *Server) ready(c echo.Context) error {
	switch {
	case s.draining.Load():
		return refused(wire.CodeNotReady, "shutting down")
	case !s.options.Ready():
		return refused(wire.CodeNotReady, "the ledger has not been reached yet")
	case !s.options.LedgerUp() && !s.someLimitOpen():
		return refused(wire.CodeNotReady, "the ledger does not answer, and no limit can without it")
	}
	return send(c, http.StatusOK, plainJSON, &wire.Health{Status: "ready", Ledger: s.ledgerState()})
}

func (s *Server) someLimitOpen() bool {
	return slices.ContainsFunc(s.limiter.Limits().All(), func(l limiter.Limit) bool {
		return l.OnFailure == limiter.Open
	})
}

func (s *Server) ledgerState() string {
	if s.options.LedgerUp() {
		return "up"
	}
	return "down"
}
