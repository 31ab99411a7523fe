package spend_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/accounts"
	"weir/ledgers/ledgertest"
	"weir/limiter"
	"weir/limiter/spend"
)

// What was spent above the budget counts at the gate, also after another call gave units back.
func TestOverageClosesGate(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, spend.Budget{Name: "ai", Tokens: 100})
	first := n.passes(t, call("alice", 60, 0)).Transfer
	second := n.passes(t, call("alice", 30, 0)).Transfer
	n.settle(t, first, used(150, 0)) // 70 of the budget, and 80 above it
	n.settle(t, second, used(0, 0))
	n.wantUsed(t, "alice", 150, 150)
	closed := n.closes(t, call("alice", 1, 0), spend.TokenBudget)
	midnight := time.Date(2026, 10, 17, 0, 0, 0, 0, time.UTC)
	if late := closed.ReopensAt.Sub(midnight); late < 0 || late > time.Second {
		t.Errorf("reopens at %v, want %v or less than a second later", closed.ReopensAt, midnight)
	}
	clock.Advance(closed.ReopensAt.Sub(clock.Now()))
	n.passes(t, call("alice", 90, 0))
}

// A settlement that booked nothing is told so for ever, whatever corrections booked since.
func TestSettledNothing(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, spend.Budget{Name: "ai", Tokens: 100})
	receipt := n.passes(t, call("alice", 10, 0)).Transfer
	first := n.settle(t, receipt, used(0, 0))
	_, err := n.Correct(context.Background(), receipt, "c", used(150, 0))
	if err != nil {
		t.Fatal(err)
	}
	again := n.settle(t, receipt, used(0, 0))
	if again.Booked != first.Booked || again.Overage != first.Overage || !again.Replayed {
		t.Errorf("got %+v, want %+v replayed", again, first)
	}
}

// Of two corrections at the same time of a call for which nothing is booked, the last counts, too.
func TestCorrectNothingBooked(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	n := newNode(t, faulty, clock, big())
	ctx := context.Background()
	for i, outer := range []uint64{70, 0} {
		subject := name("subject", i)
		receipt := n.passes(t, call(subject, 10, 0)).Transfer
		n.settle(t, receipt, spend.Usage{Route: spend.RouteFallback})
		faulty.Inject(ledgertest.Fault{
			On: ledgertest.CallCreateTransfers,
			WaitBefore: func(context.Context) error {
				_, err := n.Correct(ctx, receipt, "inner", used(70-outer, 0))
				return err
			},
		})
		_, err := n.Correct(ctx, receipt, "outer", used(outer, 0))
		if err != nil {
			t.Fatal(err)
		}
		events := n.events(t, subject, "")
		last := events[len(events)-1]
		n.wantUsed(t, subject, last.InputTokens, last.USD)
	}
}

// A day's last event may have its second note behind midnight, and fill a page.
func TestPageToMidnight(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, spend.Budget{Name: "ai", Tokens: 1_000_000})
	for range accounts.MaxPage/4 - 1 {
		n.settle(t, n.passes(t, call("alice", 1, 0)).Transfer, used(1, 0))
	}
	receipt := n.passes(t, call("alice", 1, 0)).Transfer
	from, to, err := n.Day("ai", "")
	if err != nil {
		t.Fatal(err)
	}
	// How far behind the clock the first note of a settlement comes, another subject tells.
	other := n.passes(t, call("bob", 1, 0)).Transfer
	clock.Advance(time.Hour)
	n.settle(t, other, used(1, 0))
	told := n.events(t, "bob", "")
	clock.Advance(to.Sub(told[1].At) - time.Nanosecond)
	n.settle(t, receipt, used(1, 0))
	page, next, err := n.Events(context.Background(), "ai", "alice", from, to)
	if err != nil {
		t.Fatal(err)
	}
	if len(page) != accounts.MaxPage/2 || !next.IsZero() {
		t.Errorf("got %d events and next %v, want %d and none", len(page), next, accounts.MaxPage/2)
	}
}

// The counts of many subjects do not keep a node from ending while the ledger is away.
func TestCloseLedgerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newClock()
		faulty := ledgertest.NewFaulty(openLedger(t, clock))
		n := newNode(t, faulty, clock, spend.Budget{Name: "ai", Tokens: 100})
		for i := range 50 {
			n.closes(t, call(name("s", i), 1000, 0), spend.TokenBudget)
			n.closes(t, call(name("s", i), 1000, 0), spend.TokenBudget)
		}
		clock.Advance(time.Minute)
		heal := faulty.Inject(ledgertest.Fault{
			WaitBefore: ledgertest.For(time.Hour), Times: ledgertest.Always,
		})
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		start := time.Now()
		n.Close(ctx)
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		heal()
		time.Sleep(2 * time.Hour)
	})
}

// An id is one call, also when its model's price was none and is some by now.
func TestPricedSince(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, big())
	c := call("alice", 100, 0)
	c.Model, c.ID = "local", "x"
	first := n.passes(t, c)
	dearer := models()
	dearer[2].Input = 1_000_000
	plan, err := spend.NewPlan([]spend.Budget{big()}, dearer)
	if err != nil {
		t.Fatal(err)
	}
	n.SetPlan(plan)
	again := n.passes(t, c)
	if again.Transfer != first.Transfer || !again.Replayed {
		t.Errorf("got %+v, want %+v replayed", again, first)
	}
	n.wantUsed(t, "alice", 100, 0)
}

// A count whose reply was lost is told once, whether it was written down or not.
func TestClosingReplyLost(t *testing.T) {
	away := errors.New("the ledger is away")
	for name, fault := range map[string]ledgertest.Fault{
		"Written": {After: away}, "NotWritten": {Before: away},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			faulty := ledgertest.NewFaulty(openLedger(t, clock))
			n := newNode(t, faulty, clock, spend.Budget{Name: "ai", Tokens: 100})
			ctx := context.Background()
			n.closes(t, call("alice", 101, 0), spend.TokenBudget)
			n.closes(t, call("alice", 101, 0), spend.TokenBudget) // waits for its minute
			clock.Advance(time.Minute)
			fault.On = ledgertest.CallCreateTransfers
			faulty.Inject(fault)
			n.Record(ctx)
			n.closes(t, call("alice", 101, 0), spend.TokenBudget)
			for range 2 {
				clock.Advance(time.Minute)
				n.Record(ctx)
			}
			var counts []uint64
			for _, e := range n.events(t, "alice", "") {
				counts = append(counts, e.Count)
			}
			if !slices.Equal(counts, []uint64{1, 1, 1}) {
				t.Errorf("got counts %v, want three times 1", counts)
			}
		})
	}
}

// A correction counts as long as what it corrects is booked, also where the window was longer when
// that was booked.
func TestCorrectInShorterWindow(t *testing.T) {
	clock := newClock()
	ledger := openLedger(t, clock)
	n := newNode(t, ledger, clock, spend.Budget{Name: "ai", Tokens: 100, Align: "month"})
	receipt := n.passes(t, call("alice", 10, 0)).Transfer
	n.settle(t, receipt, used(70, 0))
	clock.Advance(48 * time.Hour)
	n = newNode(t, ledger, clock, spend.Budget{Name: "ai", Tokens: 100})
	n.wantUsed(t, "alice", 70, 70)
	_, err := n.Correct(context.Background(), receipt, "c", used(7, 0))
	if err != nil {
		t.Fatal(err)
	}
	n.wantUsed(t, "alice", 7, 7)
}

// What was given up and is done later is done once, and of corrections the ledger's last counts.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newClock()
		faulty := ledgertest.NewFaulty(openLedger(t, clock))
		n := newNode(t, faulty, clock, spend.Budget{Name: "ai", Tokens: 1000})
		ctx := t.Context()
		n.settle(t, n.passes(t, call("alice", 1, 0)).Transfer, used(0, 0)) // its account is there
		giveUp := func(made func() error) {
			t.Helper()
			faulty.Inject(ledgertest.Fault{
				On: ledgertest.CallCreateTransfers, WaitBefore: ledgertest.For(time.Minute),
			})
			wantError(t, made(), limiter.CodeLedgerUnavailable)
		}
		c := call("alice", 100, 0)
		c.ID = "x"
		giveUp(func() error { _, err := n.Authorize(ctx, c); return err })
		n.wantUsed(t, "alice", 0, 0)
		time.Sleep(time.Hour)
		n.wantUsed(t, "alice", 100, 100)
		a := n.passes(t, c)
		if !a.Replayed {
			t.Errorf("got %+v, want it replayed", a)
		}
		giveUp(func() error { _, err := n.Settle(ctx, a.Transfer, used(70, 0)); return err })
		_, err := n.Correct(ctx, a.Transfer, "early", used(1, 0))
		wantError(t, err, limiter.CodeReservationClosed)
		time.Sleep(time.Hour)
		n.wantUsed(t, "alice", 70, 70)
		if s := n.settle(t, a.Transfer, used(70, 0)); !s.Replayed {
			t.Errorf("got %+v, want it replayed", s)
		}
		correct := func(id string, tokens uint64) error {
			_, err := n.Correct(ctx, a.Transfer, id, used(tokens, 0))
			return err
		}
		giveUp(func() error { return correct("first", 50) })
		err = correct("second", 40)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		n.wantUsed(t, "alice", 40, 40) // the first found other bookings than it had read
		err = correct("first", 50)
		if err != nil {
			t.Fatal(err)
		}
		n.wantUsed(t, "alice", 50, 50)
	})
}
