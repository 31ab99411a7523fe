package limiter_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers/embedded"
	"weir/limiter"
)

// benchLimiter opens a durable ledger on the real clock with many subjects that have been seen.
func benchLimiter(b *testing.B, window time.Duration) (*limiter.Limiter, []string) {
	b.Helper()
	ledger, err := embedded.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		err := ledger.Close()
		if err != nil {
			b.Error(err)
		}
	})
	book, err := accounts.NewBook(ledger, accounts.Namespace{9}, nil)
	if err != nil {
		b.Fatal(err)
	}
	set, err := limiter.NewLimits(0, patient([]limiter.Limit{
		rate("api", 1_000_000, window), rate("tight", 1, time.Hour),
	}))
	if err != nil {
		b.Fatal(err)
	}
	l, err := limiter.New(book, set, nil)
	if err != nil {
		b.Fatal(err)
	}
	subjects := make([]string, 10_000)
	for i := range subjects {
		subjects[i] = fmt.Sprint("subject ", i)
	}
	each(b, 256, len(subjects), func(i int) { check(b, l, one("api", subjects[i], 1)) })
	return l, subjects
}

// each calls f for 0 to n-1 from a number of callers.
func each(b *testing.B, callers, n int, f func(i int)) {
	b.Helper()
	var next atomic.Int64
	done := make(chan struct{})
	for range callers {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		}()
	}
	for range callers {
		<-done
	}
}

// BenchmarkCheck measures durable decisions: a second is so many checks.
func BenchmarkCheck(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		for _, window := range []time.Duration{time.Hour, 2 * time.Second} {
			b.Run(fmt.Sprintf("callers=%d/window=%v", callers, window), func(b *testing.B) {
				l, subjects := benchLimiter(b, window)
				b.ResetTimer()
				each(b, callers, b.N, func(i int) {
					d := check(b, l, one("api", subjects[i*7919%len(subjects)], 1))
					if !d.Allowed {
						b.Errorf("denied: %+v", d)
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
			})
		}
	}
}

// BenchmarkDeniedFlood measures denials of one exhausted subject.
func BenchmarkDeniedFlood(b *testing.B) {
	l, _ := benchLimiter(b, time.Hour)
	check(b, l, one("tight", "flood", 1))
	b.ResetTimer()
	each(b, 256, b.N, func(int) {
		d, err := l.Check(context.Background(), one("tight", "flood", 1))
		if err != nil || d.Allowed {
			b.Errorf("got %+v, %v, want a denial", d, err)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}
