package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"weir/limiter"
)

// moneyRules are a limit of 1,000.00 USD in a window, one of 2,500.00 in a day, and one of 5 calls.
func moneyRules(t testing.TB, window time.Duration) *limiter.Limits {
	t.Helper()
	money := func(name string, quota uint64, window time.Duration) limiter.Limit {
		return limiter.Limit{
			Name: name, Kind: limiter.TransferAmount, Asset: "USD", Quota: quota, Window: window,
		}
	}
	return rulesOf(t, limiter.Rules{
		Limits: []limiter.Limit{
			money("pay", 1_000_00, window), money("day", 2_500_00, 24*time.Hour),
			rate("calls", 5, time.Hour),
		},
		Assets: []limiter.Asset{{Code: "USD", Scale: 2}},
	})
}

func (n *node) deposit(t testing.TB, subject, amount string) {
	t.Helper()
	_, err := n.Deposit(context.Background(), limiter.Movement{
		Asset: "USD", Subject: subject, Amount: amount, ID: "deposit of " + amount,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (n *node) wantFunds(t testing.TB, subject, want string) {
	t.Helper()
	got, err := n.Funds(context.Background(), "USD", subject)
	if err != nil || got.Balance != want {
		t.Errorf("funds of %s: got %+v, %v, want %s", subject, got, err, want)
	}
}

// pay is a transfer from alice to bob, charged to further limits besides.
func pay(id, amount string, further ...limiter.Member) limiter.Transfer {
	return limiter.Transfer{
		Limit: "pay", From: "alice", To: "bob", Amount: amount, ID: id, Members: further,
	}
}

// transfer makes a transfer that has to be decided.
func (n *node) transfer(t testing.TB, r limiter.Transfer) limiter.Decision {
	t.Helper()
	d, err := n.Transfer(context.Background(), r)
	if err != nil {
		t.Fatalf("%+v: got %v", r, err)
	}
	return d
}

// The worked example, in seconds instead of a day: of 1,000.00 USD 999.99 pass; 0.02 more is
// denied, with both ledgers untouched, and passes when the window lets it. Too little money leaves
// the limit untouched.
func testTransfers(t *testing.T, s stage) {
	const window = 3 * time.Second
	a, b := s.pair(t, moneyRules(t, window))
	a.deposit(t, "alice", "1500.00")
	b.deposit(t, "bob", "0.01")
	first := a.transfer(t, pay("t-1", "999.99"))
	if !first.Allowed || first.Limits[0].Remaining != 1 {
		t.Fatalf("999.99: got %+v, want it made, 0.01 left", first)
	}
	denied := b.transfer(t, pay("t-2", "0.02"))
	inTime(t, first.At.Add(window))
	if denied.Allowed || !denied.NewIDRequired || denied.RetryAfter <= 0 ||
		denied.RetryAfter > window+2*lag || denied.Limits[0].Remaining != 1 {
		t.Fatalf("0.02 more: got %+v, want it denied for %v", denied, window)
	}
	a.wantFunds(t, "alice", "500.01")
	a.wantFunds(t, "bob", "1000.00")
	rest(first.At.Add(window))
	for i, n := range []*node{a, b} {
		d := n.transfer(t, pay("t-2", "0.02"))
		if d.Allowed || !d.Replayed || !d.NewIDRequired {
			t.Errorf("the denied id, by node %d: got %+v, want it to stay denied", i, d)
		}
	}
	d := a.transfer(t, pay("t-3", "0.02"))
	if !d.Allowed || d.Limits[0].Remaining != 999_98 {
		t.Errorf("another id: got %+v, want it made, 999.98 left", d)
	}
	replayed := b.transfer(t, pay("t-1", "999.99"))
	if !replayed.Replayed || replayed.Transfer != first.Transfer || !replayed.At.Equal(first.At) {
		t.Errorf("the first id: got %+v, want a replay of %+v", replayed, first)
	}
	rest(d.At.Add(window))
	_, err := b.Transfer(t.Context(), pay("t-4", "500.00"))
	wantCode(t, err, limiter.CodeInsufficientFunds)
	a.wantBalance(t, "pay", "alice", 1_000_00, 0, 1_000_00)
	a.wantFunds(t, "alice", "499.99")
	a.wantFunds(t, "bob", "1000.02")
}

// Outcomes are told apart also where the chain names another member, and further limits are charged
// with the transfer, all or nothing.
func testTransferOutcomes(t *testing.T, s stage) {
	a, b := s.pair(t, moneyRules(t, time.Hour))
	day := limiter.Member{Limit: "day", Cost: limiter.DefaultCost}
	calls := limiter.Member{Limit: "calls", Subject: "site", Cost: limiter.DefaultCost}
	refused := func(n *node, r limiter.Transfer, want limiter.Code) {
		t.Helper()
		_, err := n.Transfer(t.Context(), r)
		wantCode(t, err, want)
	}
	refused(a, pay("p", "1.00"), limiter.CodeAccountUnknown)
	a.deposit(t, "alice", "800.00")
	refused(b, pay("p", "1.00"), limiter.CodeAccountUnknown) // of bob
	a.deposit(t, "bob", "1.00")
	d := b.transfer(t, pay("p", "1.00", day, calls))
	if !d.Allowed || len(d.Limits) != 3 || d.Limits[1].Cost != 1_00 || d.Limits[2].Cost != 1 ||
		d.Limits[2].Subject != "site" {
		t.Fatalf("got %+v, want it made, 1.00 of both limits and a call", d)
	}
	for _, n := range []*node{a, b} {
		refused(n, pay("p", "2.00", day, calls), limiter.CodeIDConflict)
		refused(n, pay("huge", "1000.01", day, calls), limiter.CodeCostExceedsQuota)
		refused(n, pay("poor", "799.01", day, calls), limiter.CodeInsufficientFunds)
	}
	for i := range 4 {
		b.admit(t, under(fmt.Sprint(i), one("calls", "site", 1)))
	}
	for _, id := range []string{"calls", "poor"} { // the limit lacks today, and is named first
		d = b.transfer(t, pay(id, "799.01", day, calls))
		if d.Allowed || d.Limits[d.Denied].Limit != "calls" || !d.NewIDRequired {
			t.Errorf("%s: got %+v, want it denied by the calls", id, d)
		}
	}
	a.wantBalance(t, "pay", "alice", 1_000_00, 1_00, 999_00)
	a.wantBalance(t, "day", "alice", 2_500_00, 1_00, 2_499_00)
	a.wantBalance(t, "calls", "site", 5, 5, 0)
	a.wantFunds(t, "alice", "799.00")
	a.wantFunds(t, "bob", "2.00")
}

// Concurrent transfers over two nodes: totals are conserved to the unit, and each limit has taken
// what its subject paid, never more than the quota.
func testTransfersAtOnce(t *testing.T, s stage) {
	const deposit = 1_500_00
	subjects, transfers := rounds(10, 100), rounds(300, 10_000)
	a, b := s.pair(t, moneyRules(t, time.Hour))
	name := func(i int) string { return fmt.Sprint("subject ", i) }
	for i := range subjects {
		a.deposit(t, name(i), "1500.00")
	}
	random := rand.New(rand.NewPCG(5, 6))
	var mu sync.Mutex
	var callers sync.WaitGroup
	paid, got := make([]uint64, subjects), make([]uint64, subjects)
	outcomes := map[string]int{}
	for i := range transfers {
		from := random.IntN(subjects)
		to := (from + 1 + random.IntN(subjects-1)) % subjects
		cents := 1 + random.Uint64N(150_00)
		amount := fmt.Sprintf("%d.%02d", cents/100, cents%100)
		request := limiter.Transfer{
			Limit: "pay", From: name(from), To: name(to), Amount: amount, ID: fmt.Sprint(i),
		}
		callers.Go(func() {
			d, err := []*node{a, b}[i%2].Transfer(context.Background(), request)
			mu.Lock()
			defer mu.Unlock()
			e, ok := errors.AsType[*limiter.Error](err)
			switch {
			case ok:
				outcomes[string(e.Code)]++
			case err == nil && d.Allowed:
				outcomes["made"]++
				paid[from] += cents
				got[to] += cents
			default:
				outcomes["denied"]++
			}
		})
	}
	callers.Wait()
	t.Logf("outcomes: %v", outcomes)
	if outcomes["made"] == 0 || outcomes["denied"] == 0 ||
		outcomes["made"]+outcomes["denied"]+outcomes["insufficient-funds"] != transfers {
		t.Errorf("got %v, want some made and some denied, and no failure", outcomes)
	}
	for i := range subjects {
		b.wantBalance(t, "pay", name(i), 1_000_00, paid[i], 1_000_00-paid[i])
		left := deposit - paid[i] + got[i]
		b.wantFunds(t, name(i), fmt.Sprintf("%d.%02d", left/100, left%100))
	}
}
