package limiter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// tried is a limit of 2 in a minute that is only tried out.
func tried() limiter.Limit {
	l := rate("tried", 2, time.Minute)
	l.Shadow = true
	return l
}

// trying is a node with that limit, one of 4 that decides, and one more that is tried out.
func trying(t *testing.T) (*node, *ledgertest.Faulty) {
	t.Helper()
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	more := rate("more", 100, time.Minute)
	more.Shadow = true
	return spooling(t, faulty, clock, t.TempDir(), tried(), rate("api", 4, time.Minute), more), faulty
}

// both asks the limit that is tried out and, behind it, the one that decides.
func both(cost uint64) limiter.Request {
	return limiter.Request{Members: []limiter.Member{
		{Limit: "tried", Subject: "s", Cost: cost}, {Limit: "api", Subject: "s", Cost: cost},
	}}
}

// wantShadow compares what was counted for the limit that is tried out.
func (n *node) wantShadow(t testing.TB, allowed, denied, failed float64) {
	t.Helper()
	for result, want := range map[string]float64{
		"allowed": allowed, "denied": denied, "error": failed,
	} {
		if got := n.count(t, "weir_shadow_decisions_total", "tried", result); got != want {
			t.Errorf("%s: got %v, want %v", result, got, want)
		}
	}
	if got := n.count(t, "weir_decisions_total", "tried"); got != 0 {
		t.Errorf("among the decisions: got %v, want 0", got)
	}
}

// A limit that is tried out denies nothing, takes what it would have admitted, and says what it
// would have done. A denied request takes nothing of it, and does not ask it.
func TestShadow(t *testing.T) {
	l, _ := trying(t)
	for i, would := range []bool{false, false, true, true} {
		d := check(t, l.Limiter, both(1))
		s := d.Limits[0]
		if !d.Allowed || d.RetryAfter != 0 || !s.Shadow || s.WouldDeny != would || d.Limits[1].Shadow {
			t.Errorf("check %d: got %+v, want allowed, would deny %v", i+1, d, would)
		}
		if want := []uint64{1, 0, 0, 0}[i]; !s.Known || s.Remaining != want || s.Quota != 2 {
			t.Errorf("check %d: got %+v, want %d of 2 remaining", i+1, s, want)
		}
		if d.Tightest() != 1 {
			t.Errorf("check %d: the tightest is %d, want the one that decides", i+1, d.Tightest())
		}
	}
	d := check(t, l.Limiter, both(1))
	if d.Allowed || d.Denied != 1 || d.Tightest() != 1 || d.Limits[0].WouldDeny {
		t.Errorf("past the quota: got %+v, want denied by the second", d)
	}
	wantBalance(t, l.Limiter, "tried", "s", 2, 2, 0)
	wantBalance(t, l.Limiter, "api", "s", 4, 4, 0)
	l.wantShadow(t, 2, 2, 0)
}

// A cost that never passes there passes all the same, and one that is charged elsewhere is looked
// at.
func TestShadowCosts(t *testing.T) {
	l, _ := trying(t)
	d := check(t, l.Limiter, both(3))
	if !d.Allowed || !d.Limits[0].WouldDeny {
		t.Errorf("cost 3 of 2: got %+v, want allowed and would deny", d)
	}
	wantBalance(t, l.Limiter, "tried", "s", 2, 0, 2)
	wantCode(t, l.Limiter, both(5), limiter.CodeCostExceedsQuota) // of the one that decides
	r := both(0)
	r.Members[1].Cost = 1
	if d := check(t, l.Limiter, r); !d.Allowed || d.Limits[0].WouldDeny {
		t.Errorf("a look: got %+v, want allowed", d)
	}
	l.wantShadow(t, 1, 1, 0)
}

// A request that is sent again is charged once on either, and counted once.
func TestShadowReplayed(t *testing.T) {
	l, _ := trying(t)
	first := check(t, l.Limiter, named("a", both(1)))
	for range 2 {
		d := check(t, l.Limiter, named("a", both(1)))
		if !d.Replayed || d.Transfer != first.Transfer || d.Limits[0].WouldDeny {
			t.Errorf("again: got %+v, want a replay of %+v", d, first)
		}
	}
	wantBalance(t, l.Limiter, "tried", "s", 2, 1, 1)
	l.wantShadow(t, 1, 0, 0)
	other := both(1)
	other.Members[0].Cost = 2 // it was sent, too
	wantCode(t, l.Limiter, named("a", other), limiter.CodeIDConflict)

	enforced, tried := rate("api", 4, time.Minute), tried()
	tried.Shadow = false // which changes nothing of what was decided
	reload(t, l.Limiter, tried, enforced)
	d := check(t, l.Limiter, named("a", both(1)))
	if !d.Replayed || d.Transfer != first.Transfer || d.Limits[0].Shadow {
		t.Errorf("once it decides: got %+v, want a replay of %+v", d, first)
	}
	wantBalance(t, l.Limiter, "tried", "s", 2, 1, 1)
	wantBalance(t, l.Limiter, "api", "s", 4, 1, 3)
}

// Where no limit decides, all passes, with no receipt.
func TestShadowAlone(t *testing.T) {
	l, faulty := trying(t)
	request := limiter.Request{Members: []limiter.Member{
		{Limit: "tried", Subject: "s", Cost: 1}, {Limit: "more", Subject: "s", Cost: 1},
	}}
	for i, would := range []bool{false, false, true} {
		d := check(t, l.Limiter, request)
		if !d.Allowed || !d.Transfer.IsZero() || d.Denied != -1 || d.Tightest() != -1 ||
			d.Limits[0].WouldDeny != would || d.Limits[1].WouldDeny {
			t.Errorf("check %d: got %+v, want allowed, would deny %v", i+1, d, would)
		}
	}
	wantBalance(t, l.Limiter, "tried", "s", 2, 2, 0)
	wantBalance(t, l.Limiter, "more", "s", 100, 3, 97)
	back := away(faulty)
	d := check(t, l.Limiter, request)
	if !d.Allowed || !d.Limits[0].WouldDeny || d.Limits[1].Known || d.Limits[1].WouldDeny {
		t.Errorf("without the ledger: got %+v, want allowed, and the first by memory", d)
	}
	back()
	l.wantShadow(t, 2, 2, 0)
	if got := l.count(t, "weir_shadow_decisions_total", "more", "error"); got != 1 {
		t.Errorf("errors: got %v, want 1", got)
	}
	l.book(t)
	l.wantUnits(t, 0, 0, 0) // nothing is booked later
}

// What a limit that is tried out remembers to be used up is not written again.
func TestShadowFlood(t *testing.T) {
	l, faulty := trying(t)
	request := one("tried", "s", 1)
	for range 3 {
		check(t, l.Limiter, request)
	}
	writes := faulty.Calls(ledgertest.CallCreateTransfers)
	for range 100 {
		if d := check(t, l.Limiter, request); !d.Allowed || !d.Limits[0].WouldDeny {
			t.Fatalf("got %+v, want allowed, would deny", d)
		}
	}
	if got := faulty.Calls(ledgertest.CallCreateTransfers) - writes; got != 0 {
		t.Errorf("writes: got %d, want 0", got)
	}
	l.wantShadow(t, 2, 101, 0)
}

// slowFor is a ledger that does not answer what is written on one of its ledgers.
type slowFor struct {
	ledgers.Driver
	ledger uint32
}

func (s slowFor) CreateTransfers(ctx context.Context, batch []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	for _, t := range batch {
		if t.Ledger == s.ledger {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	return s.Driver.CreateTransfers(ctx, batch)
}

// Where a limit that is tried out is not answered, the decision of the others stands.
func TestShadowUnanswered(t *testing.T) {
	t.Run("Slow", func(t *testing.T) {
		clock := newClock()
		ledger := slowFor{openLedger(t, clock), accounts.LedgerNumber("tried")}
		l := spooling(t, ledger, clock, t.TempDir(), tried(), rate("api", 4, time.Minute))
		hasty := rate("api", 4, time.Minute)
		hasty.OnFailure, hasty.Deadline = limiter.Closed, 200*time.Millisecond
		reload(t, l.Limiter, tried(), hasty)
		for left := range 3 {
			d := check(t, l.Limiter, both(1))
			if !d.Allowed || d.Degraded || d.Limits[0].Known || d.Limits[0].WouldDeny ||
				d.Limits[1].Remaining != uint64(3-left) {
				t.Errorf("got %+v, want allowed, %d remaining", d, 3-left)
			}
		}
		l.wantShadow(t, 0, 0, 3)
	})
	t.Run("Degraded", func(t *testing.T) {
		l, faulty := trying(t)
		back := away(faulty)
		d := check(t, l.Limiter, named("a", both(1)))
		if !d.Degraded || !d.Limits[0].Shadow || d.Limits[0].Limit != "tried" {
			t.Errorf("got %+v, want degraded", d)
		}
		back()
		l.wantShadow(t, 0, 0, 1)
		l.book(t)
		l.wantUnits(t, 1, 0, 0)
		wantBalance(t, l.Limiter, "tried", "s", 2, 0, 2)
		wantBalance(t, l.Limiter, "api", "s", 4, 1, 3)
		if d := check(t, l.Limiter, named("a", both(1))); !d.Replayed {
			t.Errorf("the id again: got %+v, want a replay", d)
		}
		wantBalance(t, l.Limiter, "tried", "s", 2, 1, 1) // now it could be asked
	})
	t.Run("Closed", func(t *testing.T) { // its own policy has no say
		clock := newClock()
		faulty := ledgertest.NewFaulty(openLedger(t, clock))
		l := spooling(t, faulty, clock, t.TempDir(), closed(tried()), rate("api", 4, time.Minute))
		defer away(faulty)()
		if d := check(t, l.Limiter, both(1)); !d.Degraded {
			t.Errorf("got %+v, want degraded", d)
		}
	})
}

// A reservation is a check to a limit that is tried out: what it settles is not booked there.
func TestShadowReserved(t *testing.T) {
	l, _ := trying(t)
	request := holding(10*time.Second, named("a", both(2)))
	d := reserved(t, l.Limiter, request)
	if !d.Limits[0].Shadow || d.Limits[0].WouldDeny || d.Limits[0].Remaining != 0 {
		t.Errorf("got %+v, want 0 of 2 remaining on the one that is tried out", d)
	}
	if again := reserved(t, l.Limiter, request); !again.Replayed || again.Transfer != d.Transfer {
		t.Errorf("again: got %+v, want a replay of %+v", again, d)
	}
	settled := settle(t, l.Limiter, d.Transfer, 1)
	if len(settled.Limits) != 1 || settled.Limits[0].Limit != "api" {
		t.Errorf("settled: got %+v, want the limit that decides alone", settled)
	}
	wantBalance(t, l.Limiter, "api", "s", 4, 1, 3)
	wantBalance(t, l.Limiter, "tried", "s", 2, 2, 0)
}

// A transfer is charged on a limit that is tried out once it is made.
func TestShadowTransfer(t *testing.T) {
	b := newBank(t)
	b.deposit(t, "alice", "100.00")
	b.deposit(t, "bob", "1.00")
	calls := rate("calls", 1, time.Minute)
	calls.Shadow = true
	grouped(t, b.Limiter, limiter.Rules{
		Limits: patient([]limiter.Limit{calls, {
			Name: "daily", Kind: limiter.TransferAmount, Asset: "USD", Quota: 1_000_00, Window: day,
		}}),
		Assets: []limiter.Asset{{Code: "USD", Scale: 2}},
	})
	further := limiter.Member{Limit: "calls", Cost: limiter.DefaultCost}
	first := b.transfer(t, pay("a", "10.00", further))
	if first.Limits[1].WouldDeny || !first.Limits[1].Shadow || first.Limits[0].Shadow {
		t.Errorf("first: got %+v, want the further limit tried out", first)
	}
	if d := b.transfer(t, pay("b", "10.00", further)); !d.Allowed || !d.Limits[1].WouldDeny {
		t.Errorf("second: got %+v, want made, would deny", d)
	}
	b.wantFunds(t, "alice", "80.00")
	b.refuse(t, pay("c", "90.00", further), limiter.CodeInsufficientFunds)
	b.clock.Advance(2 * time.Minute)
	d := b.transfer(t, pay("a", "10.00", further))
	if !d.Replayed || d.Transfer != first.Transfer {
		t.Errorf("again: got %+v, want a replay of %+v", d, first)
	}
	wantBalance(t, b.Limiter, "calls", "alice", 1, 0, 1)
	calls.Shadow = false
	rules := limiter.Rules{Limits: append(b.Limits().All()[1:], calls), Assets: b.Limits().Assets()}
	grouped(t, b.Limiter, rules)
	if d := b.transfer(t, pay("a", "10.00", further)); !d.Replayed {
		t.Errorf("once it decides: got %+v, want a replay", d)
	}
}

// Kinds that cannot be tried out say so at load.
func TestShadowRefused(t *testing.T) {
	slots := slotsOf("slots", 1)
	slots.Shadow = true
	_, err := limiter.NewLimits(0, []limiter.Limit{slots})
	e, ok := errors.AsType[*limiter.LimitError](err)
	if !ok || e.Key != "shadow" {
		t.Errorf("got %v, want an error at limits[0].shadow", err)
	}
}
