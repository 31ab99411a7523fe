package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"weir/ledgers"
	"weir/ledgers/guard"
	"weir/ledgers/ledgertest"
)

// gather returns the counters and gauges of a registry by name, and of its histograms the count and
// the sum by name, call and "count" or "sum".
func gather(t testing.TB, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) != 0 {
		t.Errorf("lint of the metrics: got %v and %v, want nothing", problems, err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name, histogram := family.GetName(), m.GetHistogram()
			if histogram == nil {
				values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
				continue
			}
			name += " " + m.GetLabel()[0].GetValue()
			values[name+" count"] = float64(histogram.GetSampleCount())
			values[name+" sum"] = histogram.GetSampleSum()
		}
	}
	return values
}

func wantValues(t testing.TB, registry *prometheus.Registry, when string, want map[string]float64) {
	t.Helper()
	got := gather(t, registry)
	for name, value := range want {
		v, ok := got["weir_ledger_"+name]
		if !ok || v != value {
			t.Errorf("%s: %s: got %v, there: %v; want %v", when, name, v, ok, value)
		}
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		f := openTwin(t)
		answer := pause(t, f, ledgertest.CallLookupAccounts)
		g := newGuard(t, f, &guard.Options{Registerer: registry})
		state := func(when string, up, inFlight, abandoned, opened float64) {
			t.Helper()
			wantValues(t, registry, when, map[string]float64{
				"up": up, "calls_in_flight": inFlight, "calls_abandoned_total": abandoned,
				"breaker_opened_total": opened,
			})
		}
		state("before the first probe", 0, 0, 0, 0)
		answer()
		synctest.Wait()
		state("after it", 1, 0, 0, 0)

		_, err := g.CreateTransfers(t.Context(), []ledgers.Transfer{move(10), move(11), move(12)})
		if err != nil {
			t.Fatal(err)
		}
		resume := pause(t, f, ledgertest.CallCreateTransfers)
		for n := range guard.DefaultFailures {
			_ = send(t.Context(), g, uint64(20+n))
		}
		state("when it opened", 0, 5, 5, 1)
		_ = send(t.Context(), g, 30) // not sent
		resume()
		time.Sleep(time.Second)
		state("when it is back", 1, 0, 5, 1)
		for _, call := range allCalls {
			_ = call(t.Context(), g)
		}
		resume = pause(t, f, ledgertest.CallLookupAccounts)
		_, err = g.LookupAccounts(t.Context(), []ledgers.ID{id(1), id(2)})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("look-up: got error %v, want DeadlineExceeded", err)
		}
		resume()
		state("after one that the driver has ended", 1, 0, 6, 1)
		want := map[string]float64{
			// Of 3 events, 5 times of 1 that took the deadline, and of 1.
			"batch_events create_transfers count": 7, "batch_events create_transfers sum": 9,
			"call_seconds create_transfers count": 7, "call_seconds create_transfers sum": 1.25,
			"batch_events lookup_accounts count": 2, "batch_events lookup_accounts sum": 3,
			"call_seconds lookup_accounts count": 2, "call_seconds lookup_accounts sum": 0.25,
		}
		for _, call := range []string{"create_accounts", "lookup_transfers", "account_transfers"} {
			want["batch_events "+call+" count"], want["batch_events "+call+" sum"] = 1, 1
			want["call_seconds "+call+" count"], want["call_seconds "+call+" sum"] = 1, 0
		}
		wantValues(t, registry, "calls", want)
	})
}

// TestMetricsTwice has one guard after the other on a registry, and two at once.
func TestMetricsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		options := &guard.Options{Registerer: registry}
		first := newGuard(t, openTwin(t), options)
		_, err := guard.New(openTwin(t), options)
		_, ok := errors.AsType[prometheus.AlreadyRegisteredError](err)
		if !ok {
			t.Errorf("a second guard: got error %v, want AlreadyRegisteredError", err)
		}
		err = first.Close()
		if err != nil {
			t.Errorf("close: %v", err)
		}
		newGuard(t, openTwin(t), options)
	})
}
