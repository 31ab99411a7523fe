package credit_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"weir/limiter/credit"
)

// BenchmarkDecide is the decision in process, with metrics, over 10,000 subjects. The goal is less
// than 1 µs and no allocation.
func BenchmarkDecide(b *testing.B) {
	for _, kind := range []string{"rich", "empty", "none"} {
		subjects := make([]string, 10_000)
		for i := range subjects {
			subjects[i] = fmt.Sprintf("%s-%d", kind, i)
		}
		g := open(b, newProvider(up), &credit.Options{Registerer: prometheus.NewRegistry()})
		for _, subject := range subjects {
			g.Balance(b.Context(), subject)
		}
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				g.Decide(subjects[i%len(subjects)])
				i++
			}
		})
		b.Run(kind+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(100)
			b.RunParallel(func(p *testing.PB) {
				i := 0
				for p.Next() {
					g.Decide(subjects[i%len(subjects)])
					i++
				}
			})
		})
		g.Close()
	}
}

// The decision costs no allocation: not where it allows, and not where it blocks and the refresh is
// debounced.
func TestDecideAllocatesNothing(t *testing.T) {
	g := open(t, newProvider(up), &credit.Options{Registerer: prometheus.NewRegistry()})
	for _, subject := range []string{"rich", "empty-a", "none-a"} {
		g.Balance(t.Context(), subject)
		got := testing.AllocsPerRun(1000, func() { g.Decide(subject) })
		if got != 0 {
			t.Errorf("%s: got %v allocations, want none", subject, got)
		}
	}
}
