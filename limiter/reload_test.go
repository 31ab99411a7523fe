package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

func reload(t testing.TB, l *limiter.Limiter, limits ...limiter.Limit) {
	t.Helper()
	set, err := limiter.NewLimits(0, patient(limits))
	if err != nil {
		t.Fatal(err)
	}
	l.SetLimits(set)
}

// L8: use 8 of 10; to 5: denied, remaining 0; to 20: remaining 12. Usage is never forgotten.
func TestReloadKeepsUsage(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 10, 30*time.Second))
	for range 8 {
		check(t, l, one("api", "alice", 1))
	}
	reload(t, l, rate("api", 5, 30*time.Second))
	d := check(t, l, one("api", "alice", 1))
	if d.Allowed || d.Limits[0].Remaining != 0 || d.Limits[0].Quota != 5 ||
		d.RetryAfter.Round(time.Second) != 30*time.Second {
		t.Fatalf("at 5 with 8 used: got %+v, want denied for 30 s", d)
	}
	reload(t, l, rate("api", 20, 30*time.Second))
	wantBalance(t, l, "api", "alice", 20, 8, 12)
	reload(t, l, rate("api", 5, 30*time.Second))
	check(t, l, one("api", "alice", 1))
	for window := range 3 {
		clock.Advance(31 * time.Second)
		allowed := 0
		for range 10 {
			if check(t, l, one("api", "alice", 1)).Allowed {
				allowed++
			}
		}
		if allowed != 5 {
			t.Errorf("window %d after the lowering: got %d, want 5", window+1, allowed)
		}
	}
}

// L9: 100 reloads of the same config refill nothing and write nothing.
func TestReloadOfTheSame(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := newLimiter(t, faulty, clock, rate("api", 10, time.Minute))
	check(t, l, one("api", "alice", 4))
	writes := faulty.Calls(ledgertest.CallCreateTransfers)
	for range 100 {
		reload(t, l, rate("api", 10, time.Minute))
		wantBalance(t, l, "api", "alice", 10, 4, 6)
	}
	if got := faulty.Calls(ledgertest.CallCreateTransfers); got != writes {
		t.Errorf("writes: got %d, want 0", got-writes)
	}
}

// half is one of two nodes on a ledger.
type half struct {
	*limiter.Limiter
	book  *accounts.Book
	since uint64 // from where on new quota steps are read
}

// halves returns two nodes on a ledger, both with the first revision of a limit.
func halves(t *testing.T, driver ledgers.Driver, clock *testClock, first *limiter.Limits,
) (older, newer *half) {
	t.Helper()
	nodes := make([]*half, 2)
	for i := range nodes {
		book, err := accounts.NewBook(driver, accounts.Namespace{9}, &accounts.Options{
			Now: clock.Now, Shared: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := limiter.New(book, first, &limiter.Options{Shared: true})
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = &half{Limiter: l, book: book}
	}
	return nodes[0], nodes[1]
}

// pass lets time pass, and both nodes read new quota steps once a second, as they do in service.
func pass(t *testing.T, clock *testClock, d time.Duration, nodes ...*half) {
	t.Helper()
	for range d / time.Second {
		clock.Advance(time.Second)
		for _, n := range nodes {
			next, err := n.book.Refresh(t.Context(), accounts.Limit{Name: "api"}, n.since)
			if err != nil {
				t.Fatal(err)
			}
			n.since = next
		}
	}
}

// revised is a set of one limit of a revision.
func revised(t *testing.T, revision uint32, quota uint64) *limiter.Limits {
	t.Helper()
	set, err := limiter.NewLimits(revision, patient([]limiter.Limit{
		rate("api", quota, 30*time.Second),
	}))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// L8 with two nodes on one ledger, one of which has the old config: they do not flap, and once what
// is in use has expired, exactly the new quota passes per window over both.
func TestReloadOnTwoNodes(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	older, newer := halves(t, driver, clock, revised(t, 1, 10))
	nodes := []*half{older, newer}
	for i := range 8 {
		if d := check(t, nodes[i%2].Limiter, one("api", "alice", 1)); !d.Allowed {
			t.Fatalf("check %d: got %+v", i+1, d)
		}
	}
	newer.SetLimits(revised(t, 2, 5))
	if d := check(t, newer.Limiter, one("api", "alice", 1)); d.Allowed {
		t.Fatalf("at 5 with 8 used: got %+v, want denied", d)
	}
	pass(t, clock, time.Second, nodes...)
	for range 5 {
		for name, n := range map[string]*half{"older": older, "newer": newer} {
			d := check(t, n.Limiter, one("api", "alice", 1))
			if d.Allowed || d.Limits[0].Remaining != 0 || d.Limits[0].Quota != 5 {
				t.Fatalf("%s: got %+v, want denied, 0 of 5 remaining", name, d)
			}
		}
		pass(t, clock, time.Second, nodes...)
	}
	pass(t, clock, 31*time.Second, nodes...)
	for window := range 3 {
		allowed := 0
		for i := range 20 {
			if check(t, nodes[i%2].Limiter, one("api", "alice", 1)).Allowed {
				allowed++
			}
		}
		if allowed != 5 {
			t.Errorf("window %d: both nodes allowed %d, want 5", window+1, allowed)
		}
		pass(t, clock, 31*time.Second, nodes...)
	}
	newer.SetLimits(revised(t, 3, 20))
	check(t, newer.Limiter, one("api", "alice", 8))
	pass(t, clock, time.Second, nodes...)
	for name, n := range map[string]*half{"older": older, "newer": newer} {
		d := check(t, n.Limiter, one("api", "alice", 0))
		if !d.Allowed || d.Limits[0].Remaining != 12 || d.Limits[0].Quota != 20 {
			t.Errorf("%s after the raise: got %+v, want 12 of 20 remaining", name, d)
		}
	}
	wantSteps(t, older.Limiter, 3) // to 5 as far as it was free, the rest of that, and to 20
}

// wantSteps counts the changes of a subject's quota.
func wantSteps(t *testing.T, l *limiter.Limiter, want int) {
	t.Helper()
	page, err := l.Journal(t.Context(), limiter.JournalQuery{Limit: "api", Subject: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for _, e := range page.Entries {
		if e.Kind == "requota" {
			steps++
		}
	}
	if steps != want {
		t.Errorf("quota steps: got %d, want %d", steps, want)
	}
}

// A shorter window binds new charges; the old ones come back when they were to, and the wait for
// them is told.
func TestReloadOfTheWindow(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	l := newLimiter(t, driver, clock, rate("api", 2, time.Hour))
	check(t, l, one("api", "alice", 1))
	clock.Advance(10 * time.Minute)
	for _, node := range []*limiter.Limiter{l, newLimiter(t, driver, clock)} {
		reload(t, node, rate("api", 2, 10*time.Second))
		d := check(t, node, one("api", "alice", 2))
		if d.Allowed || d.RetryAfter.Round(time.Second) != 50*time.Minute {
			t.Errorf("got %+v, want denied for the 50 min that the old charge has left", d)
		}
	}
}

// L14: past the retention the engine has forgotten the checks, those of ids included, never the
// quota or a grant. It looks for what is old by the machine's clock, which a bubble turns.
func TestRetention(t *testing.T) { synctest.Test(t, testRetention) }

func testRetention(t *testing.T) {
	clock := newClock()
	dir := t.TempDir()
	open := func() (*embedded.Ledger, *limiter.Limiter) {
		ledger, err := embedded.Open(dir, &embedded.Options{
			Now: clock.Now, Volatile: true, Retention: time.Hour, KeepCodes: accounts.QuotaCodes(),
		})
		if err != nil {
			t.Fatal(err)
		}
		return ledger, newLimiter(t, ledger, clock, rate("api", 10, time.Minute))
	}
	grant := limiter.Change{Limit: "api", Subject: "alice", Amount: 5, ID: "g"}
	ledger, l := open()
	check(t, l, named("admitted", one("api", "alice", 10)))
	if d := check(t, l, named("denied", one("api", "alice", 1))); d.Allowed {
		t.Fatalf("got %+v, want the quota used up", d)
	}
	granted, err := l.Grant(context.Background(), grant)
	if err != nil {
		t.Fatal(err)
	}
	clock.Advance(2 * time.Minute) // the window is over, the retention is not
	wantCode(t, l, named("admitted", one("api", "alice", 10)), limiter.CodeIDExpired)
	if d := check(t, l, named("denied", one("api", "alice", 1))); d.Allowed || !d.Replayed {
		t.Fatalf("a denied id within the retention: got %+v, want the denial", d)
	}
	for day := range 3 {
		err = ledger.Close()
		if err != nil {
			t.Fatal(err)
		}
		clock.Advance(24 * time.Hour)
		ledger, l = open()
		<-time.After(5 * time.Minute)
		again, err := l.Grant(context.Background(), grant)
		if err != nil || !again.Replayed || again.Transfer != granted.Transfer || again.Quota != 15 {
			t.Fatalf("day %d: got %+v, %v, want the grant replayed and a quota of 15", day, again, err)
		}
		for _, forgotten := range []string{"admitted", "denied"} {
			d := check(t, l, named(forgotten, one("api", "alice", 1)))
			if !d.Allowed || d.Replayed {
				t.Fatalf("day %d, the id %q again: got %+v, want it charged anew", day, forgotten, d)
			}
		}
		wantBalance(t, l, "api", "alice", 15, 2, 13)
		for i := range 14 {
			d := check(t, l, named(fmt.Sprint("check ", i), one("api", "alice", 1)))
			if d.Allowed != (i < 13) {
				t.Fatalf("day %d, check %d: got %+v", day, i+1, d)
			}
		}
	}
	err = ledger.Close()
	if err != nil {
		t.Fatal(err)
	}
}

// L15: after a step of the wall clock forward by a day and back nothing expires early, and what is
// due expires in time.
func TestClockSteps(t *testing.T) {
	wall, steady := newClock(), newClock()
	start := steady.Now()
	ledger, err := embedded.Open(t.TempDir(), &embedded.Options{
		Now: wall.Now, Volatile: true,
		Elapsed: func() time.Duration { return steady.Now().Sub(start) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	l := newLimiter(t, ledger, steady, rate("api", 1, 10*time.Second))
	pass := func(d time.Duration) { wall.Advance(d); steady.Advance(d) }

	check(t, l, one("api", "a", 1))
	wall.Advance(24 * time.Hour)
	check(t, l, one("api", "b", 1)) // the ledger has seen the future
	wall.Advance(-24 * time.Hour)
	for second := range 10 {
		if d := check(t, l, named(fmt.Sprint(second), one("api", "b", 1))); d.Allowed {
			t.Fatalf("second %d after the step back: got %+v, want denied", second, d)
		}
		pass(time.Second)
	}
	pass(time.Millisecond)
	d := check(t, l, one("api", "b", 1))
	if !d.Allowed {
		t.Fatalf("10 s later: got %+v, want allowed", d)
	}
}

// A node that sleeps for a day, as a suspended machine does, has a monotonic clock that stood still
// and a wall clock that did not. What expired meanwhile is back at once.
func TestNodeSleeps(t *testing.T) {
	wall, steady := newClock(), newClock()
	start := steady.Now()
	elapsed := func() time.Duration { return steady.Now().Sub(start) }
	ledger, err := embedded.Open(t.TempDir(), &embedded.Options{
		Now: wall.Now, Elapsed: elapsed, Volatile: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	book, err := accounts.NewBook(ledger, accounts.Namespace{9}, &accounts.Options{
		Now: wall.Now, Elapsed: elapsed,
	})
	if err != nil {
		t.Fatal(err)
	}
	set, err := limiter.NewLimits(0, patient([]limiter.Limit{rate("api", 1, time.Hour)}))
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(book, set, nil)
	if err != nil {
		t.Fatal(err)
	}
	check(t, l, named("id", one("api", "a", 1)))
	check(t, l, one("api", "a", 1)) // the denial is remembered

	wall.Advance(24 * time.Hour)
	wantCode(t, l, named("id", one("api", "a", 1)), limiter.CodeIDExpired)
	if d := check(t, l, one("api", "a", 1)); !d.Allowed {
		t.Errorf("a day later: got %+v, want allowed", d)
	}
}

// A node that starts with a clock behind the ledger's asks the ledger what time it is.
func TestStartWithClockBehind(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	open := func() (*limiter.Limiter, *embedded.Ledger) {
		ledger, err := embedded.Open(dir, &embedded.Options{Now: clock.Now, Volatile: true})
		if err != nil {
			t.Fatal(err)
		}
		return newLimiter(t, ledger, clock, rate("api", 1, time.Minute)), ledger
	}
	l, ledger := open()
	check(t, l, named("id", one("api", "a", 1)))
	clock.Advance(2 * time.Minute)
	check(t, l, one("api", "a", 1))
	err := ledger.Close()
	if err != nil {
		t.Fatal(err)
	}

	clock.Advance(-24 * time.Hour)
	l, ledger = open()
	defer ledger.Close()
	b, err := l.Balance(context.Background(), "api", "a")
	if err != nil || b.Used != 1 || b.Reset != time.Minute {
		t.Errorf("balance: got %+v, %v, want 1 used and back in a minute", b, err)
	}
	wantCode(t, l, named("id", one("api", "a", 1)), limiter.CodeIDExpired)
	d := check(t, l, one("api", "a", 0))
	if d.Allowed || d.RetryAfter.Round(time.Second) != time.Minute {
		t.Errorf("a look: got %+v, want denied for a minute", d)
	}
}
