package spend_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"weir/ledgers"
	"weir/limiter"
	"weir/limiter/spend"
)

// big is a budget that no test uses up.
func big() spend.Budget { return spend.Budget{Name: "ai", Tokens: 1_000_000, USD: 100_000_000} }

// What each ending books: the report where there is one, else the estimate, and never nothing of a
// call that was made. 100 in and 50 out are reserved, at 1 and 2 millionths.
func TestEndings(t *testing.T) {
	for name, row := range map[string]struct { // tidy:table every ending
		usage       spend.Usage
		tokens, usd uint64
		estimated   bool
	}{
		"Reported": {used(80, 20), 100, 120, false},
		"Cached": {spend.Usage{
			Route: spend.RouteModel, InputTokens: new(uint64(80)), OutputTokens: new(uint64(20)),
			CachedTokens: new(uint64(60)),
		}, 100, 20 + 30 + 40, false},
		"ProviderPrice": {spend.Usage{
			Route: spend.RouteModel, InputTokens: new(uint64(80)), OutputTokens: new(uint64(20)), USD: new(uint64(77)),
		}, 100, 77, false},
		"More":          {used(500, 500), 1000, 1500, false},
		"ReportedZero":  {used(0, 0), 0, 0, false},
		"NoReport":      {spend.Usage{Route: spend.RouteModel}, 150, 200, true},
		"NoOutput":      {spend.Usage{Route: spend.RouteModel, InputTokens: new(uint64(10))}, 60, 110, true},
		"OnlyPrice":     {spend.Usage{Route: spend.RouteModel, USD: new(uint64(5))}, 150, 5, true},
		"Error":         {spend.Usage{Route: spend.RouteError, Error: "timeout"}, 100, 100, true},
		"ErrorInput":    {spend.Usage{Route: spend.RouteError, InputTokens: new(uint64(30))}, 30, 30, false},
		"ErrorHalf":     {spend.Usage{Route: spend.RouteError, InputTokens: new(uint64(30)), OutputTokens: new(uint64(4))}, 34, 38, false},
		"Fallback":      {spend.Usage{Route: spend.RouteFallback, Error: "rate-limited"}, 0, 0, false},
		"FallbackInput": {spend.Usage{Route: spend.RouteFallback, InputTokens: new(uint64(9))}, 9, 9, false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			n := newNode(t, openLedger(t, clock), clock, big())
			receipt := n.passes(t, call("alice", 100, 50)).Transfer
			s := n.settle(t, receipt, row.usage)
			want := spend.Settlement{
				Transfer: receipt, Estimated: row.estimated, Route: row.usage.Route,
				Reserved: spend.Amount{Tokens: 150, USD: 200},
				Booked:   spend.Amount{Tokens: row.tokens, USD: row.usd},
				Known:    true,
				Remaining: spend.Amount{
					Tokens: 1_000_000 - row.tokens, USD: 100_000_000 - row.usd,
				},
			}
			if s != want {
				t.Errorf("got %+v, want %+v", s, want)
			}
			n.wantUsed(t, "alice", row.tokens, row.usd)
			again := n.settle(t, receipt, row.usage)
			want.Replayed = true
			if again != want {
				t.Errorf("sent again: got %+v, want %+v", again, want)
			}
			n.wantUsed(t, "alice", row.tokens, row.usd)
			_, err := n.Settle(context.Background(), receipt, used(1, 1))
			wantError(t, err, limiter.CodeReservationClosed)
		})
	}
}

// B2 of a budget of 30: 50 tokens are booked and visible although 10 were reserved, and the gate is
// closed after that. B3 of a budget of 100: 35 leave 65.
func TestMoreThanReserved(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock,
		spend.Budget{Name: "ai", Tokens: 30, CloseAt: 1_000_000})
	s := n.settle(t, n.passes(t, call("alice", 10, 0)).Transfer, used(50, 0))
	if s.Booked.Tokens != 50 || s.Overage.Tokens != 20 || s.Remaining.Tokens != 0 {
		t.Fatalf("got %+v, want 50 booked, 20 of them overage, and 0 remaining", s)
	}
	n.closes(t, call("alice", 1, 0), spend.TokenBudget)
	n = newNode(t, openLedger(t, clock), clock, spend.Budget{Name: "ai", Tokens: 100})
	s = n.settle(t, n.passes(t, call("alice", 10, 0)).Transfer, used(35, 0))
	if s.Booked.Tokens != 35 || s.Overage.Tokens != 0 || s.Remaining.Tokens != 65 {
		t.Fatalf("got %+v, want 35 booked and 65 remaining", s)
	}
}

// B4: what is settled after it came back is booked once, marked late, and back when the window of
// the call is over.
func TestLate(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock,
		spend.Budget{Name: "ai", Tokens: 100, Window: time.Minute, Hold: 2 * time.Second})
	receipt := n.passes(t, call("alice", 10, 0)).Transfer
	clock.Advance(4 * time.Second)
	n.wantUsed(t, "alice", 0, 0)
	s := n.settle(t, receipt, used(7, 0))
	if !s.Late || s.Booked.Tokens != 7 {
		t.Fatalf("got %+v, want 7 booked late", s)
	}
	if again := n.settle(t, receipt, used(7, 0)); !again.Late || !again.Replayed {
		t.Fatalf("sent again: got %+v, want it late and replayed", again)
	}
	n.wantUsed(t, "alice", 7, 7)
	clock.Advance(56*time.Second - time.Millisecond)
	n.wantUsed(t, "alice", 7, 7)
	clock.Advance(2 * time.Millisecond)
	n.wantUsed(t, "alice", 0, 0)
	events := n.events(t, "alice", "")
	if len(events) != 2 || events[0].Late || !events[1].Late {
		t.Fatalf("got %+v, want a call and its late end", events)
	}
}

// B1: a caller that dies leaves nothing held past the time-out, whatever others did meanwhile.
func TestDeadCallers(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, spend.Budget{
		Name: "ai", Tokens: 100, CloseAt: 1_000_000, Hold: 2 * time.Second, Window: 365 * 24 * time.Hour,
	})
	var settled uint64
	for i := range rounds(30, 1000) {
		left := 100 - settled
		a := n.passes(t, call("alice", left, 0))
		switch i % 3 {
		case 0: // dies
		case 1:
			n.settle(t, a.Transfer, used(1, 0))
			settled++
		case 2:
			n.settle(t, a.Transfer, spend.Usage{Route: spend.RouteFallback})
		}
		clock.Advance(2*time.Second + time.Millisecond)
		n.wantUsed(t, "alice", settled, settled)
		if settled == 90 {
			return
		}
	}
}

// B5: of a settlement and another at the same time one wins, and a call is booked once.
func TestRacingEnds(t *testing.T) {
	for range rounds(20, 200) {
		clock := newClock()
		n := newNode(t, openLedger(t, clock), clock, big())
		receipt := n.passes(t, call("alice", 100, 50)).Transfer
		var group sync.WaitGroup
		results := make([]error, 4)
		for i := range results {
			group.Go(func() { _, results[i] = n.Settle(context.Background(), receipt, used(uint64(i), 0)) })
		}
		group.Wait()
		won := -1
		for i, err := range results {
			if err == nil && won >= 0 {
				t.Fatalf("settlements %d and %d both won", won, i)
			}
			if err == nil {
				won = i
				continue
			}
			wantError(t, err, limiter.CodeReservationClosed)
		}
		n.wantUsed(t, "alice", uint64(won), uint64(won))
	}
}

// N10: a budget of 10 USD whose calls cost 0.004 each admits 2,500 of them, to the millionth.
func TestExactMoney(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock,
		spend.Budget{Name: "ai", USD: 10_000_000, CloseAt: 1_000_000})
	c := call("alice", 600, 400)
	c.Model = "exact"
	for i := range 2500 {
		a := n.passes(t, c)
		if a.Reserved.USD != 4000 {
			t.Fatalf("call %d reserves %s USD, want 0.004000", i, spend.USD(a.Reserved.USD))
		}
		n.settle(t, a.Transfer, used(500, 500))
	}
	n.closes(t, c, spend.USDBudget)
	c.InputTokens, c.MaxOutputTokens = 1, 0
	a := n.closes(t, c, spend.USDBudget)
	if a.Remaining.USD != 0 {
		t.Errorf("got %s USD remaining, want none", spend.USD(a.Remaining.USD))
	}
	n.wantUsed(t, "alice", 2_500_000, 10_000_000)
}

// A price is worked out in whole millionths, rounded up once a call and not once a kind of token.
func TestRounding(t *testing.T) {
	clock := newClock()
	plan, err := spend.NewPlan([]spend.Budget{big()}, []spend.Model{
		{Name: "fast", Number: 1, Input: 75_000, Output: 300_001, Cached: 18_750},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, openLedger(t, clock), clock, big())
	n.SetPlan(plan)
	a := n.passes(t, call("alice", 7, 3))
	if a.Reserved.USD != 2 { // 7 * 0.075 + 3 * 0.300001 = 1.425003
		t.Errorf("got %d millionths reserved, want 2", a.Reserved.USD)
	}
	s := n.settle(t, a.Transfer, spend.Usage{
		Route: spend.RouteModel, InputTokens: new(uint64(1000)), OutputTokens: new(uint64(1000)),
		CachedTokens: new(uint64(400)),
	})
	if s.Booked.USD != 353 { // 600 * 0.075 + 400 * 0.01875 + 1000 * 0.300001 = 352.501
		t.Errorf("got %d millionths booked, want 353", s.Booked.USD)
	}
}

// What cannot be a usage is refused, and books nothing.
func TestBadUsage(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, big())
	receipt := n.passes(t, call("alice", 100, 50)).Transfer
	for name, usage := range map[string]spend.Usage{
		"NoRoute": {},
		"Route":   {Route: "modell"},
		"Input":   {Route: spend.RouteModel, InputTokens: new(uint64(spend.MaxTokens + 1))},
		"Output":  {Route: spend.RouteModel, OutputTokens: new(uint64(spend.MaxTokens + 1))},
		"Cached": {
			Route: spend.RouteModel, InputTokens: new(uint64(5)), CachedTokens: new(uint64(6)),
		},
		"USD":          {Route: spend.RouteModel, USD: new(uint64(spend.MaxBudget + 1))},
		"Error":        {Route: spend.RouteError, Error: "something"},
		"ErrorOfModel": {Route: spend.RouteModel, Error: "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := n.Settle(context.Background(), receipt, usage)
			wantError(t, err, limiter.CodeBadRequest)
		})
	}
	n.wantUsed(t, "alice", 150, 200)
	_, err := n.Settle(context.Background(), ledgers.ID{Lo: 12}, used(1, 1))
	wantError(t, err, limiter.CodeReservationUnknown)
}

// A correction takes the place of what was booked, upwards and downwards, and again.
func TestCorrections(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, spend.Budget{Name: "ai", Tokens: 1000, USD: 10_000})
	ctx := context.Background()
	receipt := n.passes(t, call("alice", 100, 50)).Transfer
	_, err := n.Correct(ctx, receipt, "early", used(1, 1))
	wantError(t, err, limiter.CodeReservationClosed)
	n.settle(t, receipt, used(80, 20))
	other := n.passes(t, call("alice", 0, 100)).Transfer
	n.settle(t, other, used(0, 100))
	for i, row := range []struct {
		input, output  uint64
		tokens, usd    uint64
		overage, spare uint64
	}{
		{80, 0, 80, 80, 0, 820},
		{400, 100, 500, 600, 0, 400},
		{2000, 0, 2000, 2000, 1100, 0},
		{0, 0, 0, 0, 0, 900},
		{10, 10, 20, 30, 0, 880},
	} {
		for range 2 {
			s, err := n.Correct(ctx, receipt, name("correction", i), used(row.input, row.output))
			if err != nil {
				t.Fatal(err)
			}
			if s.Booked != (spend.Amount{Tokens: row.tokens, USD: row.usd}) ||
				s.Overage.Tokens != row.overage || s.Remaining.Tokens != row.spare {
				t.Fatalf("correction %d: got %+v, want %+v", i, s, row)
			}
			n.wantUsed(t, "alice", row.tokens+100, row.usd+200)
		}
		_, err := n.Correct(ctx, receipt, name("correction", i), used(row.input+1, row.output))
		wantError(t, err, limiter.CodeIDConflict)
	}
	s, err := n.Correct(ctx, receipt, "correction-1", used(400, 100)) // made before, and stays so
	if err != nil || !s.Replayed {
		t.Fatalf("got %+v and %v, want the second correction replayed", s, err)
	}
	n.wantUsed(t, "alice", 120, 230)
	clock.Advance(13 * time.Hour) // it is all back
	s, err = n.Correct(ctx, receipt, "next day", used(500, 500))
	if err != nil || s.Replayed {
		t.Fatalf("got %+v and %v, want a correction", s, err)
	}
	n.wantUsed(t, "alice", 0, 0)
}

// Corrections at the same time are made one after the other: the last counts, whole.
func TestRacingCorrections(t *testing.T) {
	for round := range rounds(10, 100) {
		clock := newClock()
		n := newNode(t, openLedger(t, clock), clock, big())
		receipt := n.passes(t, call("alice", 100, 50)).Transfer
		n.settle(t, receipt, used(100, 50))
		var group sync.WaitGroup
		for i := range 6 {
			group.Go(func() {
				_, err := n.Correct(context.Background(), receipt, name("c", i), used(uint64(i+1)*100, 0))
				if err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		group.Wait()
		events := n.events(t, "alice", "")
		last := events[len(events)-1]
		if len(events) != 8 || last.Kind != spend.Correction {
			t.Fatalf("got %d events, want 8, corrections at the end", len(events))
		}
		n.wantUsed(t, "alice", last.InputTokens, last.USD)
	}
}

// The same call sent again is the same whatever prices have become: it is answered as it was made.
func TestPriceChange(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, big())
	ctx := context.Background()
	c := call("alice", 100, 50)
	c.ID = "one"
	first := n.passes(t, c)
	settled := n.settle(t, first.Transfer, used(80, 20))
	corrected, err := n.Correct(ctx, first.Transfer, "c", used(10, 20))
	if err != nil {
		t.Fatal(err)
	}
	c.ID = "two"
	second := n.passes(t, c)
	dearer := models()
	dearer[0].Input, dearer[0].Output = 7_000_000, 9_000_000
	plan, err := spend.NewPlan([]spend.Budget{big()}, dearer)
	if err != nil {
		t.Fatal(err)
	}
	n.SetPlan(plan)
	if again := n.passes(t, c); !again.Replayed || again.Reserved != second.Reserved ||
		again.Transfer != second.Transfer {
		t.Errorf("authorized again: got %+v, want %+v replayed", again, second)
	}
	again := n.settle(t, first.Transfer, used(80, 20))
	if !again.Replayed || again.Booked != settled.Booked || again.Overage != settled.Overage {
		t.Errorf("settled again: got %+v, want %+v replayed", again, settled)
	}
	again, err = n.Correct(ctx, first.Transfer, "c", used(10, 20))
	if err != nil || !again.Replayed || again.Booked != corrected.Booked {
		t.Errorf("corrected again: got %+v and %v, want %+v replayed", again, err, corrected)
	}
	n.wantUsed(t, "alice", 30+150, 50+200)
	if s := n.settle(t, second.Transfer, used(1, 1)); s.Booked.USD != 16 {
		t.Errorf("settled by new prices: got %+v, want 16 millionths", s)
	}
}

// What is left of the money is told also of a model that costs none.
func TestFreeModel(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, spend.Budget{Name: "ai", Tokens: 1000, USD: 5000})
	n.settle(t, n.passes(t, call("alice", 100, 0)).Transfer, used(100, 0))
	c := call("alice", 300, 0)
	c.Model = "local"
	a := n.passes(t, c)
	if !a.Known || a.Remaining != (spend.Amount{Tokens: 600, USD: 4900}) {
		t.Errorf("authorized: got %+v, want 600 and 4,900 remaining", a)
	}
	usage := used(200, 0)
	usage.USD = new(uint64(77))
	s := n.settle(t, a.Transfer, usage)
	if s.Booked != (spend.Amount{Tokens: 200}) ||
		s.Remaining != (spend.Amount{Tokens: 700, USD: 4900}) {
		t.Errorf("settled: got %+v, want 200 tokens booked, 700 and 4,900 remaining", s)
	}
	c.InputTokens = 601
	if a := n.closes(t, c, spend.TokenBudget); a.Remaining.USD != 4900 {
		t.Errorf("closed: got %+v, want 4,900 remaining", a)
	}
}
