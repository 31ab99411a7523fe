package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/limiter"
)

// The cases of this file are faults that TestMixAgainstModel has found, each with the right answer
// worked out by hand.

// closing is a budget that closes when 70 % of it are used.
func closing(quota uint64) limiter.Limit {
	l := budget("close", quota, time.Minute)
	l.CloseAt = 700_000
	return l
}

// sharing returns one of several nodes on a ledger.
func sharing(t testing.TB, driver ledgers.Driver, clock *testClock, limits ...limiter.Limit,
) *limiter.Limiter {
	t.Helper()
	book, err := accounts.NewBook(driver, accounts.Namespace{9}, &accounts.Options{
		Now: clock.Now, Shared: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	set, err := limiter.NewLimits(1, patient(limits))
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(book, set, &limiter.Options{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Of a quota of 1 that closes at 70 %, 1 has to stay free. Nobody may ever take anything, and no
// waiting helps, neither who wants a unit nor who wants to see one.
func TestLookAtWhatIsAlwaysClosed(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, closing(1))
	d := check(t, l, one("close", "alice", 0))
	if d.Allowed || d.RetryAfter != 0 || d.Limits[0].Remaining != 1 {
		t.Errorf("a look: got %+v, want denied without Retry-After", d)
	}
	wantCode(t, l, one("close", "alice", 1), limiter.CodeCostExceedsQuota)
}

// A settlement that found nothing free has taken nothing that could come back. Of 5/60s, 2 are held
// at 0 s for 2 s; at 3 s all 5 are taken, until 63 s; the settlement at 4 s finds none. The next
// unit is back in 59 s, not 60 s after the hold.
func TestResetBesideASettlementOfNothing(t *testing.T) {
	clock := newClock()
	ledger := openLedger(t, clock)
	limit := budget("tokens", 5, time.Minute)
	l := newLimiter(t, ledger, clock, limit)
	receipt := reserved(t, l, holding(2*time.Second, one("tokens", "alice", 2))).Transfer
	clock.Advance(3 * time.Second)
	check(t, l, one("tokens", "alice", 5))
	clock.Advance(time.Second)
	s := settle(t, l, receipt, 2)
	if !s.Late || s.Limits[0].Overage != 2 {
		t.Fatalf("got %+v, want 2 late, all of it overage", s)
	}
	restarted := newLimiter(t, ledger, clock, limit) // which has to read what is out
	b, err := restarted.Balance(context.Background(), "tokens", "alice")
	if err != nil || b.Used != 5 || b.Reset != 59*time.Second {
		t.Errorf("got %+v, %v, want 5 used and the next unit back in 59 s", b, err)
	}
}

// The only slot is held by node A from 0 s to 10 s. Node B releases it at 1 s, and holds it from
// 2 s to 32 s. Who asks A at 3 s has to wait for 29 s.
func TestWaitForWhatAnotherNodeHolds(t *testing.T) {
	clock := newClock()
	ledger := openLedger(t, clock)
	a := sharing(t, ledger, clock, slotsOf("slots", 1))
	b := sharing(t, ledger, clock, slotsOf("slots", 1))
	receipt := reserved(t, a, holding(10*time.Second, one("slots", "alice", 1))).Transfer
	clock.Advance(time.Second)
	release(t, b, receipt)
	clock.Advance(time.Second)
	reserved(t, b, holding(30*time.Second, one("slots", "alice", 1)))
	clock.Advance(time.Second + time.Millisecond)
	d := reserve(t, a, holding(10*time.Second, one("slots", "alice", 1)))
	if d.Allowed || d.RetryAfter.Round(time.Second) != 29*time.Second ||
		d.Limits[0].Reset != 29*time.Second {
		t.Errorf("got %+v, want denied for 29 s", d)
	}
}

// A check that was sent before midnight in Berlin and made after it is put right, and keeps its
// receipt: what gives it back answers with the same.
func TestReleaseOfACheckAtMidnight(t *testing.T) {
	clock := newClock()
	clock.nanos.Store(time.Date(2026, 3, 27, 22, 59, 59, 0, time.UTC).UnixNano())
	driver := &mixDriver{Driver: openLedger(t, clock)}
	l := newLimiter(t, driver, clock, limiter.Limit{
		Name: "day", Kind: limiter.Budget, Quota: 10, Align: "day", Timezone: "Europe/Berlin",
	})
	check(t, l, one("day", "alice", 1))
	driver.before = func() { clock.Advance(2 * time.Second) }
	d := check(t, l, one("day", "alice", 4))
	wantBalance(t, l, "day", "alice", 10, 4, 6) // what was taken yesterday is back
	s := release(t, l, d.Transfer)
	if s.Transfer != d.Transfer {
		t.Errorf("released: got receipt %s, want the check's %s", s.Transfer, d.Transfer)
	}
	wantBalance(t, l, "day", "alice", 10, 0, 10)
}

// A transfer that was denied stays denied when it is sent again without the limit that denied it,
// wherever that stands in the chain.
func TestDeniedTransferWithFewerLimits(t *testing.T) {
	b := newBank(t)
	b.deposit(t, "bob", "1")
	for i := range 8 { // the order in the chain is that of the accounts' ids
		payer := fmt.Sprint("payer ", i)
		b.deposit(t, payer, "100")
		check(t, b.Limiter, one("calls", payer, 5)) // all of it
		p := pay("id", "10", limiter.Member{Limit: "calls", Cost: 1})
		p.From = payer
		if d := b.transfer(t, p); d.Allowed || !d.NewIDRequired {
			t.Fatalf("%s: got %+v, want denied for good", payer, d)
		}
		p.Members = nil
		d, err := b.Transfer(context.Background(), p)
		if err == nil && (d.Allowed || !d.NewIDRequired) {
			t.Errorf("%s, again without the limit: got %+v, want denied as before", payer, d)
		}
		b.wantFunds(t, payer, "100.00")
		wantBalance(t, b.Limiter, "daily", payer, 1_000_00, 0, 1_000_00)
		p.ID = "another id"
		if d := b.transfer(t, p); !d.Allowed {
			t.Errorf("%s, under another id: got %+v, want allowed", payer, d)
		}
	}
	b.wantFunds(t, "bob", "81.00")
}

// A budget of 10 that closes at 7 denies who comes after 7 of it. That id stays denied, also when
// the window is over and the budget is only looked at.
func TestDeniedWhereItCloses(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, closing(10), rate("rate", 10, time.Minute))
	both := func(cost uint64) limiter.Request {
		return named("id", limiter.Request{Members: []limiter.Member{
			{Limit: "close", Subject: "alice", Cost: cost}, {Limit: "rate", Subject: "alice", Cost: 1},
		}})
	}
	check(t, l, one("close", "alice", 7))
	d := check(t, l, both(1))
	if d.Allowed || d.Denied != 0 || !d.NewIDRequired {
		t.Fatalf("got %+v, want denied where it closes", d)
	}
	clock.Advance(61 * time.Second)
	for _, cost := range []uint64{0, 1, 0} {
		d = check(t, l, both(cost))
		if d.Allowed || !d.Replayed || !d.NewIDRequired || d.RetryAfter != 0 {
			t.Errorf("again with cost %d: got %+v, want denied as before", cost, d)
		}
	}
	wantBalance(t, l, "rate", "alice", 10, 0, 10)
}
