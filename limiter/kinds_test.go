package limiter_test

import (
	"context"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

func grant(t testing.TB, l *limiter.Limiter, id, limit, subject string, amount uint64,
) limiter.Changed {
	t.Helper()
	c, err := l.Grant(context.Background(),
		limiter.Change{Limit: limit, Subject: subject, Amount: amount, ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A prepaid balance is used up, however long one waits: every denial says so, and none that the
// cost is above the quota, which grants raise.
func TestCredits(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, credits("pre", 10), rate("api", 5, time.Minute))
	wantDenied := func(r limiter.Request, remaining uint64) {
		t.Helper()
		d := check(t, l, r)
		s := d.Limits[max(0, d.Denied)]
		if d.Allowed || s.Kind != limiter.Credits || d.RetryAfter != 0 || s.Reset != 0 ||
			s.Window != 0 || s.Remaining != remaining {
			t.Fatalf("got %+v, want denied for good with %d left", d, remaining)
		}
	}
	wantDenied(one("pre", "alice", 11), 10)
	check(t, l, one("pre", "alice", 8))
	wantDenied(one("pre", "alice", 3), 2)
	clock.Advance(1000 * time.Hour)
	wantDenied(one("pre", "alice", 3), 2)
	check(t, l, one("pre", "alice", 2))
	wantDenied(one("pre", "alice", 0), 0) // a look
	wantDenied(limiter.Request{Members: []limiter.Member{
		{Limit: "api", Subject: "alice", Cost: 1}, {Limit: "pre", Subject: "alice", Cost: 1},
	}}, 0)
	wantBalance(t, l, "api", "alice", 5, 0, 5)

	c := grant(t, l, "g", "pre", "alice", 5)
	if c.Quota != 15 || c.Remaining != 5 {
		t.Errorf("granted: got %+v, want a quota of 15, 5 left", c)
	}
	d := check(t, l, one("pre", "alice", 4))
	if !d.Allowed || d.Limits[0].Quota != 15 || d.Limits[0].Remaining != 1 || d.Limits[0].Reset != 0 {
		t.Errorf("after the grant: got %+v, want 1 of 15 left", d)
	}
	wantDenied(one("pre", "eve", 11), 10)
	held := reserved(t, l, holding(time.Minute, one("pre", "alice", 1)))
	wantDenied(one("pre", "alice", 1), 0)
	release(t, l, held.Transfer)
	if !check(t, l, one("pre", "alice", 1)).Allowed {
		t.Error("after the release: got denied")
	}
	_, err := l.Release(context.Background(), d.Transfer)
	wantCodes(t, limiter.CodeReservationClosed, codeOf(err)) // a check keeps its credits
}

// A flood of requests on a used up balance does not write, for as long as nobody gives anything.
func TestCreditsFlood(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := newLimiter(t, faulty, clock, credits("pre", 10))
	held := reserved(t, l, holding(time.Hour, one("pre", "alice", 4)))
	check(t, l, one("pre", "alice", 6))
	writes := faulty.Calls(ledgertest.CallCreateTransfers)
	flood := func() {
		t.Helper()
		for range rounds(200, 2000) {
			clock.Advance(time.Second)
			if check(t, l, one("pre", "alice", 1)).Allowed {
				t.Fatal("got allowed")
			}
		}
	}
	flood()
	settle(t, l, held.Transfer, 3)
	if !check(t, l, one("pre", "alice", 1)).Allowed {
		t.Fatal("after the settlement: got denied")
	}
	flood()
	if got := faulty.Calls(ledgertest.CallCreateTransfers) - writes; got > 4 {
		t.Errorf("writes: got %d, want the settlement, the check and one for each flood", got)
	}
	dead := reserved(t, l, holding(time.Minute, one("pre", "bob", 10)))
	if check(t, l, one("pre", "bob", 10)).Allowed {
		t.Fatal("while all is held: got allowed")
	}
	clock.Advance(time.Minute + time.Millisecond)
	if !check(t, l, one("pre", "bob", 10)).Allowed {
		t.Errorf("after %s timed out: got denied", dead.Transfer)
	}
}

// What was used beyond a prepaid balance is seen in it, and paid first by the next grant.
func TestCreditsOverage(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, credits("pre", 10))
	held := reserved(t, l, holding(time.Minute, one("pre", "alice", 4)))
	s := settle(t, l, held.Transfer, 25)
	if s.Limits[0].Overage != 15 || s.Limits[0].Remaining != 0 {
		t.Errorf("settled: got %+v, want 15 overage", s)
	}
	for _, step := range []struct{ grant, overage, remaining uint64 }{{5, 10, 0}, {12, 0, 2}} {
		c := grant(t, l, string(rune('a'+step.grant)), "pre", "alice", step.grant)
		b, err := l.Balance(context.Background(), "pre", "alice")
		if err != nil || c.Remaining != step.remaining || b.Overage != step.overage ||
			b.Remaining != step.remaining {
			t.Errorf("grant of %d: got %+v, %+v, %v, want %+v", step.grant, c, b, err, step)
		}
	}
	wantBalance(t, l, "pre", "alice", 27, 25, 2)
	if check(t, l, one("pre", "alice", 3)).Allowed {
		t.Error("3 of 2: got allowed")
	}
}

// With a calendar, all comes back when the period ends, whose length the clocks decide.
func TestCalendarDecisions(t *testing.T) {
	clock := newClock()
	limit := limiter.Limit{
		Name: "spend", Kind: limiter.Budget, Quota: 100, Align: "day", Timezone: "Europe/Berlin",
	}
	l := newLimiter(t, openLedger(t, clock), clock, limit)
	clock.nanos.Store(time.Date(2026, 3, 29, 10, 0, 0, 0, time.UTC).UnixNano()) // 23 hours long
	d := check(t, l, named("id", one("spend", "alice", 100)))
	s := d.Limits[0]
	const midnight = "2026-03-30T00:00:00+02:00"
	if !d.Allowed || s.Window != 23*time.Hour || s.Reset != 12*time.Hour ||
		s.ResetsAt.Format(time.RFC3339Nano) != midnight {
		t.Errorf("got %+v, want 12 h of a day of 23 h left, until %s", s, midnight)
	}
	clock.Advance(2*time.Second + 300*time.Millisecond)
	again := check(t, l, named("id", one("spend", "alice", 100))) // R6
	if !again.Replayed || again.Transfer != d.Transfer {
		t.Errorf("2 s later: got %+v, want a replay", again)
	}
	denied := check(t, l, one("spend", "alice", 1))
	left := 12*time.Hour - 2300*time.Millisecond
	if denied.Allowed || denied.RetryAfter < left || denied.RetryAfter > left+time.Second ||
		denied.Limits[0].ResetsAt.Format(time.RFC3339) != midnight {
		t.Errorf("got %+v, want denied until midnight", denied)
	}
	clock.Advance(denied.RetryAfter)
	next := check(t, l, one("spend", "alice", 100))
	if !next.Allowed || next.Limits[0].Window != 24*time.Hour ||
		next.Limits[0].ResetsAt.Format(time.RFC3339) != "2026-03-31T00:00:00+02:00" {
		t.Errorf("after that: got %+v, want allowed, in a day of 24 h", next)
	}
	wantCode(t, l, named("id", one("spend", "alice", 100)), limiter.CodeIDExpired)
	b, err := l.Balance(context.Background(), "spend", "alice")
	if err != nil || b.Window != 24*time.Hour || b.ResetsAt.IsZero() || b.Reset > 24*time.Hour {
		t.Errorf("balance: got %+v, %v", b, err)
	}
}

// A budget that closes at 70 % lets nothing past that, not even a look, and what was held may use
// the rest.
func TestCloseAt(t *testing.T) {
	clock := newClock()
	limit := budget("spend", 10, time.Minute)
	limit.CloseAt = 700_000
	l := newLimiter(t, openLedger(t, clock), clock, limit)
	wantCode(t, l, one("spend", "alice", 8), limiter.CodeCostExceedsQuota)
	check(t, l, one("spend", "alice", 5))
	wantCode(t, l, one("spend", "alice", 8), limiter.CodeCostExceedsQuota)
	clock.Advance(10 * time.Second)
	held := reserved(t, l, holding(time.Minute, one("spend", "alice", 2)))
	for _, cost := range []uint64{0, 1, 5} {
		d := check(t, l, one("spend", "alice", cost))
		if d.Allowed || d.Limits[0].Remaining != 3 || d.RetryAfter.Round(time.Second) != 50*time.Second {
			t.Fatalf("cost %d: got %+v, want denied for 50 s with 3 left", cost, d)
		}
	}
	settle(t, l, held.Transfer, 5)
	wantBalance(t, l, "spend", "alice", 10, 10, 0)
	d := check(t, l, one("spend", "alice", 2))
	if d.Allowed {
		t.Fatalf("got %+v, want denied", d)
	}
	clock.Advance(d.RetryAfter)
	if !check(t, l, one("spend", "alice", 2)).Allowed {
		t.Error("after the wait: got denied")
	}
}

// L8 and L9 of a budget: a changed or reloaded config forgets no usage, and moves where it closes.
func TestReloadOfBudgets(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	closing := func(quota uint64) limiter.Limit {
		limit := budget("spend", quota, 30*time.Second)
		limit.CloseAt = 900_000
		return limit
	}
	l := newLimiter(t, faulty, clock, closing(10))
	held := reserved(t, l, holding(time.Minute, one("spend", "alice", 8)))
	reload(t, l, closing(5))
	if d := check(t, l, one("spend", "alice", 1)); d.Allowed || d.Limits[0].Quota != 5 ||
		d.Limits[0].Remaining != 0 {
		t.Fatalf("lowered: got %+v, want denied, nothing left of 5", d)
	}
	reload(t, l, closing(20))
	if d := check(t, l, one("spend", "alice", 10)); !d.Allowed || d.Limits[0].Remaining != 2 {
		t.Fatalf("raised: got %+v, want 2 of 20 left", d)
	}
	if check(t, l, one("spend", "alice", 1)).Allowed { // a margin of 2
		t.Fatal("past the margin: got allowed")
	}
	writes := faulty.Calls(ledgertest.CallCreateTransfers)
	for range 100 {
		reload(t, l, closing(20))
	}
	if got := faulty.Calls(ledgertest.CallCreateTransfers); got != writes {
		t.Errorf("100 reloads: got %d writes, want none", got-writes)
	}
	reload(t, l, closing(5))
	settle(t, l, held.Transfer, 4)
	wantBalance(t, l, "spend", "alice", 5, 14, 0)
	clock.Advance(31 * time.Second)
	for range 2 { // floor(0.9 * 5) of each window
		for want := 4; want >= 0; want-- {
			if got := check(t, l, one("spend", "alice", 1)).Allowed; got != (want > 0) {
				t.Fatalf("lowered, with %d left to be taken: got allowed %t", want, got)
			}
		}
		clock.Advance(31 * time.Second)
	}
}

// Slots of two nodes: what is held is never above the quota, and a dead holder's come back.
func TestSlots(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	nodes := []*limiter.Limiter{
		newLimiter(t, driver, clock, slotsOf("jobs", 3)),
		newLimiter(t, driver, clock, slotsOf("jobs", 3)),
	}
	var held []ledgers.ID
	for i := range rounds(200, 2000) {
		node := nodes[i%2]
		d := reserve(t, node, holding(10*time.Second, one("jobs", "alice", limiter.DefaultCost)))
		if d.Allowed != (len(held) < 3) {
			t.Fatalf("round %d with %d held: got allowed %t", i, len(held), d.Allowed)
		}
		if d.Allowed {
			held = append(held, d.Transfer)
		}
		switch {
		case i%11 == 10: // all die
			clock.Advance(11 * time.Second)
			held = nil
		case i%3 == 2:
			release(t, nodes[1-i%2], held[0])
			held = held[1:]
			clock.Advance(time.Second + time.Millisecond) // others' releases are not seen at once
			held = liveOf(t, node, held)
		}
	}
}

// liveOf renews what is held and returns the new receipts.
func liveOf(t *testing.T, l *limiter.Limiter, held []ledgers.ID) []ledgers.ID {
	t.Helper()
	var live []ledgers.ID
	for _, receipt := range held {
		d, err := l.Renew(context.Background(), receipt, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		live = append(live, d.Transfer)
	}
	return live
}
