package spend_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"weir/ledgers/embedded"
	"weir/limiter/spend"
)

// BenchmarkCall measures what the breaker adds to a call, authorization and settlement together, on
// a durable ledger: p50-us and p99-us.
func BenchmarkCall(b *testing.B) {
	ledger, err := embedded.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = ledger.Close() }()
	clock := newClock()
	clock.nanos.Store(time.Now().UnixNano())
	n := newNode(b, ledger, clock, big())
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		start := time.Now()
		a, err := n.Authorize(context.Background(), call("alice", 3, 2))
		if err != nil {
			b.Fatal(err)
		}
		if a.Route == spend.RouteModel {
			_, err = n.Settle(context.Background(), a.Transfer, used(2, 1))
		}
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}
