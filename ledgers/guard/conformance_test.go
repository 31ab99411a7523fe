package guard_test

import (
	"sync/atomic"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/ledgers/guard"
	"weir/ledgers/ledgertest"
)

// clock is a wall clock that moves when the test moves it.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.now.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) read() time.Time         { return time.Unix(0, c.now.Load()) }
func (c *clock) advance(d time.Duration) { c.now.Add(int64(d)) }

// guarded is a harness of a guard around a driver. The largest batches take longer than a service
// would wait.
func guarded(t testing.TB, driver ledgers.Driver, c *clock) ledgertest.Harness {
	t.Helper()
	g := newGuard(t, driver, &guard.Options{Deadline: time.Minute})
	err := g.Probe(t.Context())
	if err != nil {
		t.Fatalf("probe: %v", err)
	}
	return ledgertest.Harness{Driver: g, Advance: c.advance}
}

func openGuardedTwin(t testing.TB) ledgertest.Harness {
	c := newClock()
	return guarded(t, ledgertest.NewTwin(func() uint64 { return uint64(c.now.Load()) }), c)
}

func openGuardedEmbedded(t testing.TB) ledgertest.Harness {
	c := newClock()
	ledger, err := embedded.Open(t.TempDir(), &embedded.Options{Now: c.read, Volatile: true})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return guarded(t, ledger, c)
}

func TestConformanceTwin(t *testing.T) { ledgertest.Run(t, openGuardedTwin) }

func TestConformanceEmbedded(t *testing.T) { ledgertest.Run(t, openGuardedEmbedded) }

func TestRandom(t *testing.T) { ledgertest.RunRandom(t, 1, 300, openGuardedEmbedded) }
