package scenarios_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
	"weir/limiter/spend"
)

// breakers starts two nodes with a spend budget "ai" of tokens.
func (s stage) breakers(t testing.TB, budget spend.Budget) (a, b *spend.Breaker, below *node) {
	t.Helper()
	budget.Name, budget.Deadline = "ai", patience
	plan, err := spend.NewPlan([]spend.Budget{budget}, []spend.Model{
		{Name: "fast", Number: 1, Input: 1_000_000, Output: 1_000_000, Cached: 1_000_000},
	})
	if err != nil {
		t.Fatal(err)
	}
	nodes := [2]*node{}
	nodes[0], nodes[1] = s.pair(t, rulesOf(t, plan.Rules(limiter.Rules{})))
	made := [2]*spend.Breaker{}
	for i, n := range nodes {
		made[i], err = spend.New(n.Limiter, plan, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	return made[0], made[1], nodes[1]
}

// authorize asks for a call of so many tokens.
func authorize(t testing.TB, b *spend.Breaker, input uint64) spend.Authorization {
	t.Helper()
	a, err := b.Authorize(t.Context(), spend.Call{
		Budget: "ai", Subject: "alice", Model: "fast", InputTokens: input,
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// spent settles a call of so many tokens, of which each costs a millionth.
func spent(t testing.TB, b *spend.Breaker, receipt ledgers.ID, input uint64) spend.Settlement {
	t.Helper()
	s, err := b.Settle(t.Context(), receipt, spend.Usage{
		Route: spend.RouteModel, InputTokens: &input, OutputTokens: new(uint64(0)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantSpent compares what alice has used of the budget, by the balances and by the day's events.
func wantSpent(t testing.TB, b *spend.Breaker, below *node, want uint64) []spend.Event {
	t.Helper()
	for _, limit := range []string{"ai:tokens", "ai:usd"} {
		balance, err := below.Balance(t.Context(), limit, "alice")
		if err != nil {
			t.Fatal(err)
		}
		if balance.Used+balance.Overage != want {
			t.Errorf("%s: got %d used and %d overage, want %d", limit, balance.Used, balance.Overage, want)
		}
	}
	return dayOf(t, b)
}

// dayOf reads what happened to alice today.
func dayOf(t testing.TB, b *spend.Breaker) []spend.Event {
	t.Helper()
	from, to, err := b.Day("ai", "")
	if err != nil {
		t.Fatal(err)
	}
	events, _, err := b.Events(t.Context(), "ai", "alice", from, to)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// B8: streams at the same time over two nodes hold no more than the budget, and end exactly.
func testSpendInParallel(t *testing.T, s stage) {
	a, b, below := s.breakers(t, spend.Budget{Tokens: 1000, USD: 1000, Window: time.Hour})
	var streams sync.WaitGroup
	var held, booked, closed atomic.Uint64
	for i := range 20 {
		streams.Go(func() {
			breaker := []*spend.Breaker{a, b}[i%2]
			authorized := authorize(t, breaker, 70)
			held.Add(authorized.Reserved.Tokens)
			if authorized.Route == spend.RouteFallback {
				closed.Add(1)
				return
			}
			if held.Load() > 900 {
				t.Errorf("%d tokens are held, want at most 900", held.Load())
			}
			if i%3 > 0 {
				spent(t, breaker, authorized.Transfer, 70)
			}
			booked.Add(70)
		})
	}
	streams.Wait()
	if booked.Load() != 840 || closed.Load() != 8 { // 12 times 70 is at most 900
		t.Errorf("got %d tokens and %d closed, want 840 and 8", booked.Load(), closed.Load())
	}
	wantSpent(t, a, below, 840)
}

// B2, B3, B4, B5 and B10 through authorize and settle, and a correction, each on the other node.
func testSpendEndings(t *testing.T, s stage) {
	a, b, below := s.breakers(t, spend.Budget{
		Tokens: 100, USD: 100, Window: 20 * time.Second, Hold: 2 * time.Second,
	})
	first := authorize(t, a, 10)
	made := time.Now()
	if got := spent(t, b, first.Transfer, 35); got.Booked.Tokens != 35 || got.Remaining.Tokens != 65 {
		t.Errorf("settled above: got %+v, want 35 booked and 65 left", got)
	}
	if got := spent(t, a, first.Transfer, 35); !got.Replayed {
		t.Errorf("settled again: got %+v, want it replayed", got)
	}
	zero := authorize(t, b, 5)
	spent(t, a, zero.Transfer, 0)
	late := authorize(t, a, 10)
	rest(late.ExpiresAt)
	wantSpent(t, a, below, 35)
	if got := spent(t, b, late.Transfer, 7); !got.Late || got.Booked.Tokens != 7 {
		t.Errorf("settled late: got %+v, want 7 booked", got)
	}
	corrected, err := b.Correct(t.Context(), first.Transfer, "c", spend.Usage{
		Route: spend.RouteModel, InputTokens: new(uint64(30)), OutputTokens: new(uint64(90)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if corrected.Booked.Tokens != 120 || corrected.Overage.Tokens != 27 {
		t.Errorf("corrected: got %+v, want 120 booked, 27 of them overage", corrected)
	}
	closed := authorize(t, a, 1)
	events := wantSpent(t, a, below, 127)
	inTime(t, made.Add(20*time.Second))
	if closed.Route != spend.RouteFallback || closed.Reason != spend.TokenBudget {
		t.Errorf("got %+v, want the budget closed", closed)
	}
	kinds := make(map[spend.Kind]int)
	for _, e := range events {
		kinds[e.Kind]++
	}
	if kinds[spend.Authorized] != 3 || kinds[spend.Settled] != 3 || kinds[spend.Correction] != 1 ||
		kinds[spend.Closed] != 1 {
		t.Errorf("got events %v, want 3 authorized, 3 settled, a correction and a closing", kinds)
	}
}

// A loop against a closed budget writes once a minute, on the limit's ledger and whatever it asks.
func testSpendRunaway(t *testing.T, s stage) {
	a, b, below := s.breakers(t, spend.Budget{Tokens: 100, Window: time.Hour})
	spent(t, a, authorize(t, a, 80).Transfer, 90)
	for _, breaker := range []*spend.Breaker{a, b} {
		authorize(t, breaker, 10) // the ledger says no once to each node
	}
	operator := s.namespace.OperatorAccount("ai:tokens")
	before := len(journal(t, below, operator))
	calls := below.calls.Calls(ledgertest.CallCreateTransfers)
	for i := range 200 {
		got := authorize(t, []*spend.Breaker{a, b}[i%2], 10+uint64(i)%3)
		if got.Route != spend.RouteFallback {
			t.Fatalf("try %d: got %+v, want fallback", i, got)
		}
	}
	// Every call that creates transfers is counted, whether the ledger takes them or not.
	grown := len(journal(t, below, operator)) - before
	asked := below.calls.Calls(ledgertest.CallCreateTransfers) - calls
	minutes := 3 // 200 reads may take more than one
	if grown > minutes || asked > minutes {
		t.Errorf("the loop wrote %d entries in %d calls of a node, want one a minute", grown, asked)
	}
}

// Whatever two nodes do to one subject at once, each call is booked once, the last correction of it
// counts, and the day's lines add up to the balances.
func testSpendAtOnce(t *testing.T, s stage) {
	a, b, below := s.breakers(t, spend.Budget{Tokens: 400, USD: 500, Window: time.Hour})
	breakers := []*spend.Breaker{a, b}
	var workers sync.WaitGroup
	var passed atomic.Uint64
	for i := range uint64(8) {
		workers.Go(func() {
			for k := range uint64(6) {
				authorized := authorize(t, breakers[(i+k)%2], 60)
				if authorized.Route == spend.RouteModel {
					passed.Add(1)
					endAtOnce(t, breakers, authorized.Transfer, 10*i+k)
				}
			}
		})
	}
	workers.Wait()
	events := dayOf(t, a)
	var sum, settled uint64
	last := make(map[ledgers.ID]uint64)
	for _, e := range events {
		if e.Kind == spend.Settled {
			settled++
		}
		if e.Kind != spend.Closed {
			last[e.Transfer] = e.InputTokens
		}
	}
	for _, tokens := range last {
		sum += tokens
	}
	wantSpent(t, a, below, sum)
	if settled != passed.Load() || uint64(len(last)) != settled {
		t.Errorf("got %d settlements of %d calls, want %d of each", settled, len(last), passed.Load())
	}
}

// endAtOnce settles a call on both nodes at the same time, and corrects it on both.
func endAtOnce(t testing.TB, breakers []*spend.Breaker, receipt ledgers.ID, number uint64) {
	t.Helper()
	var group sync.WaitGroup
	var first atomic.Uint64
	for _, b := range breakers {
		group.Go(func() {
			got := spent(t, b, receipt, number%90)
			if !got.Replayed {
				first.Add(1)
			}
		})
	}
	group.Wait()
	if first.Load() != 1 {
		t.Errorf("a call was settled %d times", first.Load())
	}
	for k, b := range breakers {
		group.Go(func() {
			usage := spend.Usage{
				Route: spend.RouteModel, InputTokens: new(uint64(k) * (number % 200)),
				OutputTokens: new(uint64(0)),
			}
			_, err := b.Correct(t.Context(), receipt, strconv.Itoa(k), usage)
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}
