package limiter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// away makes every call of a ledger fail until it is called back.
func away(f *ledgertest.Faulty) (back func()) {
	return f.Inject(ledgertest.Fault{Times: ledgertest.Always, Before: ledgers.ErrClosed})
}

// node is a limiter with a spool, until it is stopped.
type node struct {
	*limiter.Limiter
	spool    *limiter.Spool
	registry *prometheus.Registry
	log      bytes.Buffer // to be read once nothing is going on
}

// spooling returns a limiter with a spool in a directory.
func spooling(t testing.TB, driver ledgers.Driver, clock *testClock, dir string,
	limits ...limiter.Limit,
) *node {
	t.Helper()
	book, err := accounts.NewBook(driver, accounts.Namespace{9}, &accounts.Options{Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	set, err := limiter.NewLimits(0, patient(limits))
	if err != nil {
		t.Fatal(err)
	}
	spool, err := limiter.OpenSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{spool: spool, registry: prometheus.NewRegistry()}
	n.Limiter, err = limiter.New(book, set, &limiter.Options{
		Spool: spool, Registerer: n.registry, Logger: slog.New(slog.NewTextHandler(&n.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.stop(t) })
	return n
}

// stop closes the node's spool, once.
func (n *node) stop(t testing.TB) {
	t.Helper()
	if n.spool == nil {
		return
	}
	err := n.spool.Close()
	if err != nil {
		t.Error(err)
	}
	n.spool = nil
}

func (n *node) book(t testing.TB) {
	t.Helper()
	err := n.BookSpool(context.Background())
	if err != nil {
		t.Fatal(err)
	}
}

// count returns the sum of a counter over all series that have these values among their labels.
func (n *node) count(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, label := range m.GetLabel() {
				values = append(values, label.GetValue())
			}
			fits := true
			for _, label := range labels {
				fits = fits && slices.Contains(values, label)
			}
			if fits {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// wantUnits compares what became of the units that were let through.
func (n *node) wantUnits(t testing.TB, booked, overage, dropped float64) {
	t.Helper()
	for result, want := range map[string]float64{
		"booked": booked, "overage": overage, "dropped": dropped,
	} {
		if got := n.count(t, "weir_spooled_units_total", result); got != want {
			t.Errorf("units %s: got %v, want %v", result, got, want)
		}
	}
}

func closed(l limiter.Limit) limiter.Limit {
	l.OnFailure = limiter.Closed
	return l
}

// A ledger that does not answer is never a denial, and a denial is never a failure.
func TestPolicies(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := newLimiter(t, faulty, clock,
		rate("open", 2, time.Minute), closed(rate("closed", 2, time.Minute)))
	for _, name := range []string{"open", "closed"} {
		check(t, l, one(name, "used up", 2))
	}
	back := away(faulty)
	d := check(t, l, one("open", "alice", 1))
	if !d.Allowed || !d.Degraded || d.Limits[0].Known || d.Denied != -1 {
		t.Errorf("open: got %+v, want allowed, degraded, without figures", d)
	}
	d = check(t, l, one("open", "alice", 0))
	if !d.Allowed || !d.Degraded {
		t.Errorf("open, a look: got %+v, want allowed and degraded", d)
	}
	wantCode(t, l, one("closed", "alice", 1), limiter.CodeLedgerUnavailable)
	wantCode(t, l, one("closed", "alice", 0), limiter.CodeLedgerUnavailable)
	both := one("open", "alice", 1)
	both.Members = append(both.Members, one("closed", "alice", 1).Members...)
	wantCode(t, l, both, limiter.CodeLedgerUnavailable)
	wantCode(t, l, one("open", "alice", limiter.MaxCost+1), limiter.CodeBadRequest)
	back()
	for _, name := range []string{"open", "closed"} {
		if d := check(t, l, one(name, "used up", 1)); d.Allowed || d.Degraded {
			t.Errorf("%s, used up: got %+v, want denied", name, d)
		}
	}
}

// What is known to be exhausted stays denied while the ledger is away.
func TestDenialOutlivesTheLedger(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := newLimiter(t, faulty, clock, rate("open", 2, time.Minute))
	check(t, l, one("open", "alice", 2))
	check(t, l, one("open", "alice", 1))
	defer away(faulty)()
	if d := check(t, l, one("open", "alice", 1)); d.Allowed || d.Degraded {
		t.Errorf("got %+v, want denied", d)
	}
}

// What was let through is booked once when the ledger is back: units charged + overage + dropped
// are the answers allowed, whatever became of the calls.
func TestSpoolIsBookedOnce(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	faulty := ledgertest.NewFaulty(driver)
	dir := t.TempDir()
	limit := rate("open", 10, 30*time.Second)
	l := spooling(t, faulty, clock, dir, limit)
	check(t, l.Limiter, one("open", "alice", 4))

	back := away(faulty)
	for i := range 5 { // without ids, and never sent
		d := check(t, l.Limiter, one("open", "alice", 1))
		if !d.Degraded {
			t.Fatalf("check %d: got %+v, want degraded", i, d)
		}
	}
	back()
	lost := faulty.Inject(ledgertest.Fault{
		On: ledgertest.CallCreateTransfers, Times: ledgertest.Always, After: ledgers.ErrClosed,
	})
	d := check(t, l.Limiter, named("id", one("open", "alice", 1))) // sent, and the reply lost
	if !d.Degraded {
		t.Fatalf("with a lost reply: got %+v, want degraded", d)
	}
	lost()

	clock.Advance(10 * time.Second)
	l.book(t)
	l.wantUnits(t, 6, 0, 0)
	wantBalance(t, l.Limiter, "open", "alice", 10, 10, 0)
	l.stop(t)
	l = spooling(t, faulty, clock, dir, limit) // the next process finds nothing left to do
	l.book(t)
	l.wantUnits(t, 0, 0, 0)
	wantBalance(t, l.Limiter, "open", "alice", 10, 10, 0)
	if d := check(t, l.Limiter, named("id", one("open", "alice", 1))); !d.Replayed {
		t.Errorf("the id sent again: got %+v, want a replay", d)
	}
	clock.Advance(21*time.Second + time.Millisecond) // a window after, whole seconds rounded up
	wantBalance(t, l.Limiter, "open", "alice", 10, 0, 10)
}

// More than the quota was let through: the rest is overage, and what is a window old is dropped.
func TestSpoolOverageAndDropped(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := spooling(t, faulty, clock, t.TempDir(), rate("open", 10, 30*time.Second))
	check(t, l.Limiter, one("open", "alice", 1))
	back := away(faulty)
	for range 3 {
		check(t, l.Limiter, one("open", "alice", 2))
	}
	clock.Advance(40 * time.Second)
	for range 7 {
		check(t, l.Limiter, one("open", "alice", 2))
	}
	back()
	l.book(t)
	l.wantUnits(t, 10, 4, 6)
	b, err := l.Balance(context.Background(), "open", "alice")
	if err != nil {
		t.Fatal(err)
	}
	if b.Used != 10 || b.Remaining != 0 || b.Overage != 4 { // 3 x 2 dropped, 7 x 2 = 10 + 4
		t.Errorf("balance: got %+v, want 10 used and 4 over", b)
	}
	clock.Advance(32 * time.Second)
	b, err = l.Balance(context.Background(), "open", "alice")
	if err != nil || b.Used != 0 || b.Overage != 0 {
		t.Errorf("a window later: got %+v, %v, want all of it back", b, err)
	}
}

// The ledger goes away again while the spool is booked: what is booked stays booked once, the rest
// is booked later, also by another process.
func TestSpoolInterrupted(t *testing.T) {
	for failing := range 8 {
		t.Run(fmt.Sprint("call ", failing), func(t *testing.T) {
			clock := newClock()
			faulty := ledgertest.NewFaulty(openLedger(t, clock))
			dir := t.TempDir()
			limit := rate("open", 5, time.Minute)
			l := spooling(t, faulty, clock, dir, limit)
			back := away(faulty)
			for range 4 {
				check(t, l.Limiter, one("open", "alice", 2)) // 8 units: 4 charged or 5, the rest over
			}
			back()
			for _, after := range []bool{false, true} {
				fault := ledgertest.Fault{Skip: failing}
				if after {
					fault.After = ledgers.ErrClosed
				} else {
					fault.Before = ledgers.ErrClosed
				}
				remove := faulty.Inject(fault)
				err := l.BookSpool(context.Background())
				if err != nil && !errors.Is(err, ledgers.ErrClosed) {
					t.Fatal(err)
				}
				remove()
				l.stop(t)
				l = spooling(t, faulty, clock, dir, limit)
			}
			l.book(t)
			b, err := l.Balance(context.Background(), "open", "alice")
			if err != nil {
				t.Fatal(err)
			}
			if b.Used+b.Overage != 8 || b.Used > 5 {
				t.Errorf("got %+v, want 8 units used or over, at most 5 used", b)
			}
		})
	}
}
