package spend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/ledgers/embedded"
	"weir/limiter"
	"weir/limiter/spend"
)

// The promise of the package: a feature cannot spend more than its budget, whatever it does, and
// finds the gate closed until the next day.
func TestDay(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	open := func() (*embedded.Ledger, [2]node) {
		ledger, err := embedded.Open(dir, &embedded.Options{Now: clock.Now, Volatile: true})
		if err != nil {
			t.Fatal(err)
		}
		budget := spend.Budget{Name: "ai", Tokens: 1000, USD: 1_000_000}
		return ledger, [2]node{newNode(t, ledger, clock, budget), newNode(t, ledger, clock, budget)}
	}
	ledger, nodes := open()
	var spent, usd uint64
	var last spend.Authorization
	fallbacks := 0
	for i := range 40 {
		if i == 15 { // refunds nothing
			err := ledger.Close()
			if err != nil {
				t.Fatal(err)
			}
			ledger, nodes = open()
		}
		n := nodes[i%2] // two processes share the budget
		last = n.authorize(t, call("feature", 30, 30))
		if last.Route == spend.RouteFallback {
			fallbacks++
			continue
		}
		if fallbacks > 0 {
			t.Fatalf("call %d passes behind a closed one", i)
		}
		n.settle(t, last.Transfer, used(30, 28+uint64(i)%4))
		spent += 58 + uint64(i)%4
		usd += 30 + 2*(28+uint64(i)%4)
		clock.Advance(time.Minute)
	}
	// Calls pass while what is spent and 60 more stay within 900: 15 of 59.4 on the average do.
	if last.Route != spend.RouteFallback || spent > 900 || fallbacks != 25 {
		t.Fatalf("got %d tokens, %d fallbacks and at last %v, want at most 900, 25 and fallback",
			spent, fallbacks, last.Route)
	}
	nodes[0].wantUsed(t, "feature", spent, usd)
	midnight := time.Date(2026, 10, 17, 0, 0, 0, 0, time.UTC)
	if last.ReopensAt.Before(midnight) || last.ReopensAt.Sub(midnight) > time.Second {
		t.Fatalf("reopens at %v, want %v or less than a second later", last.ReopensAt, midnight)
	}
	clock.Advance(midnight.Sub(clock.Now()) - time.Nanosecond)
	nodes[0].closes(t, call("feature", 30, 30), spend.TokenBudget)
	clock.Advance(last.ReopensAt.Sub(clock.Now()))
	nodes[1].passes(t, call("feature", 30, 30))
	err := ledger.Close()
	if err != nil {
		t.Fatal(err)
	}
}

// A worker that tries for ever, against a provider that never answers: what it spends is bounded,
// and so is what it writes.
func TestRunaway(t *testing.T) {
	clock := newClock()
	ledger := openLedger(t, clock)
	n := newNode(t, ledger, clock, spend.Budget{Name: "ai", Tokens: 10_000, USD: 1_000_000})
	calls, tries := 0, rounds(2_000, 100_000)
	entries := 0
	for i := range tries {
		a := n.authorize(t, call("worker", 100, 400))
		clock.Advance(20 * time.Millisecond)
		if a.Route == spend.RouteModel {
			calls++
			n.settle(t, a.Transfer, spend.Usage{Route: spend.RouteError, Error: "timeout"})
		}
		if i == tries/2 {
			entries = len(n.journal(t, "worker"))
		}
	}
	// Each try books its 100 tokens of input; the last one passes at 8,500 and fewer.
	if calls != 86 {
		t.Fatalf("got %d calls, want 86", calls)
	}
	n.wantUsed(t, "worker", 8_600, 8_600)
	minutes := int(time.Duration(tries) * 20 * time.Millisecond / time.Minute)
	grown := len(n.journal(t, "worker")) - entries
	if grown > minutes/2+1 {
		t.Fatalf("the ledger grew by %d entries in %d minutes of the loop, want one a minute",
			grown, minutes/2)
	}
	clock.Advance(time.Minute)
	n.Record(context.Background())
	var turned uint64
	for _, e := range n.events(t, "worker", "") {
		if e.Kind == spend.Closed {
			turned += e.Count
		}
	}
	if turned != uint64(tries-calls) {
		t.Fatalf("%d calls are written down as turned away, want %d", turned, tries-calls)
	}
}

// journal returns all entries of a subject's tokens, the oldest thousands.
func (n node) journal(t testing.TB, subject string) []ledgersEntry {
	t.Helper()
	var all []ledgersEntry
	q := limiter.JournalQuery{Limit: "ai:tokens", Subject: subject}
	for {
		page, err := n.limiter.Journal(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			all = append(all, ledgersEntry{e.Kind, e.Amount})
		}
		if page.Next == 0 {
			return all
		}
		q.Cursor = page.Next
	}
}

// ledgersEntry is what a test looks at of an entry.
type ledgersEntry struct {
	kind   string
	amount uint64
}

// A closed budget is written down once a minute over all nodes, and no call is forgotten.
func TestClosings(t *testing.T) {
	clock := newClock()
	ledger := openLedger(t, clock)
	budget := spend.Budget{Name: "ai", Tokens: 100, USD: 1_000_000}
	nodes := [2]node{newNode(t, ledger, clock, budget), newNode(t, ledger, clock, budget)}
	for range 3 { // minutes
		for range 30 {
			for _, n := range nodes {
				n.closes(t, call("alice", 60, 60), spend.TokenBudget)
				clock.Advance(time.Second)
			}
		}
	}
	for range 2 {
		clock.Advance(time.Minute)
		for _, n := range nodes {
			n.Record(context.Background())
		}
	}
	minutes := make(map[int64]int)
	var turned uint64
	for _, e := range nodes[0].events(t, "alice", "2026-10-16") {
		if e.Kind != spend.Closed || e.Reason != "token-budget" || e.Route != spend.RouteFallback ||
			e.Model != "fast" || !e.Transfer.IsZero() {
			t.Fatalf("got %+v, want closed for tokens", e)
		}
		minutes[e.At.Unix()/60]++
		turned += e.Count
	}
	for minute, count := range minutes {
		if count > 1 {
			t.Errorf("minute %d has %d records, want one", minute, count)
		}
	}
	if turned != 180 || len(minutes) != 5 {
		t.Fatalf("got %d calls in %d records, want 180 in 5", turned, len(minutes))
	}
}

// A node that ends writes down what it still counts.
func TestClose(t *testing.T) {
	clock := newClock()
	ledger := openLedger(t, clock)
	n := newNode(t, ledger, clock, spend.Budget{Name: "ai", Tokens: 100})
	for range 7 {
		n.closes(t, call("alice", 60, 60), spend.TokenBudget)
	}
	n.Close(context.Background())
	n.Close(context.Background())
	next := newNode(t, ledger, clock, spend.Budget{Name: "ai", Tokens: 100})
	next.closes(t, call("alice", 60, 60), spend.TokenBudget)
	clock.Advance(2 * time.Minute)
	next.Close(context.Background())
	var turned []uint64
	for _, e := range next.events(t, "alice", "") {
		turned = append(turned, e.Count)
	}
	if !slices.Equal(turned, []uint64{1, 6, 1}) {
		t.Fatalf("got %v calls turned away, want 1, 6 and 1", turned)
	}
}

// Closed for a reason: tokens are counted first, and one call may be too large while others pass.
func TestReasons(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock,
		spend.Budget{Name: "ai", Tokens: 1000, USD: 1000},
		spend.Budget{Name: "money", USD: 1000}, spend.Budget{Name: "tokens", Tokens: 1000})
	for _, row := range []struct {
		name          string
		budget, model string
		input, output uint64
		want          spend.Reason
	}{
		{"Tokens", "ai", "local", 901, 0, spend.TokenBudget},
		{"USD", "ai", "fast", 0, 451, spend.USDBudget},
		{"Both", "ai", "fast", 500, 401, spend.TokenBudget},
		{"Within", "ai", "fast", 450, 225, ""},
		{"Free", "ai", "local", 225, 0, ""},
		{"MoneyOnly", "money", "fast", 901, 0, spend.USDBudget},
		{"MoneyOnlyFree", "money", "local", 5_000_000, 0, ""},
		{"TokensOnly", "tokens", "exact", 900, 0, ""},
		{"TokensOnlyMore", "tokens", "exact", 1, 0, spend.TokenBudget},
	} {
		c := spend.Call{
			Budget: row.budget, Subject: "alice", Model: row.model, InputTokens: row.input,
			MaxOutputTokens: row.output,
		}
		if row.want == "" {
			n.passes(t, c)
			continue
		}
		a := n.closes(t, c, row.want)
		if row.budget != "tokens" && !a.ReopensAt.IsZero() {
			t.Errorf("%s: reopens at %v for a call that can never pass", row.name, a.ReopensAt)
		}
	}
	// 900 of 1,000 and 900 of 1,000 are held: what is left is the margin.
	a := n.closes(t, call("alice", 1, 0), spend.TokenBudget)
	if !a.Known || a.Remaining != (spend.Amount{Tokens: 100, USD: 100}) {
		t.Errorf("got %+v remaining, want 100 and 100", a.Remaining)
	}
}

// Streams at the same time never hold more than the budget, on two nodes.
func TestParallel(t *testing.T) {
	for round := range rounds(5, 50) {
		clock := newClock()
		ledger := openLedger(t, clock)
		budget := spend.Budget{Name: "ai", Tokens: 1000, USD: 1_000_000, CloseAt: 1_000_000}
		nodes := [2]node{newNode(t, ledger, clock, budget), newNode(t, ledger, clock, budget)}
		var group sync.WaitGroup
		var mu sync.Mutex
		var held uint64
		for i := range 20 {
			size := 40 + rand.Uint64N(80)
			group.Go(func() {
				a, err := nodes[i%2].Authorize(context.Background(), call("alice", size, size))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				held += a.Reserved.Tokens
			})
		}
		group.Wait()
		if held > 1000 || held < 1000-2*120 {
			t.Fatalf("round %d: %d tokens are held, want at most 1,000 and nearly so", round, held)
		}
		nodes[0].wantUsed(t, "alice", held, held/2*3)
	}
}

// An id names one call.
func TestIDs(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock,
		spend.Budget{Name: "ai", Tokens: 1000, USD: 1_000_000})
	c := call("alice", 100, 100)
	c.ID = "one"
	first := n.passes(t, c)
	again := n.passes(t, c)
	if !again.Replayed || again.Transfer != first.Transfer || again.Reserved != first.Reserved {
		t.Fatalf("sent again: got %+v, want %+v replayed", again, first)
	}
	n.wantUsed(t, "alice", 200, 300)
	other := c
	other.InputTokens, other.MaxOutputTokens = 101, 99
	_, err := n.Authorize(context.Background(), other)
	wantError(t, err, limiter.CodeIDConflict)
	n.closes(t, call("alice", 800, 100), spend.TokenBudget) // from now on balances are read first
	again = n.passes(t, c)
	if !again.Replayed || again.Transfer != first.Transfer {
		t.Fatalf("sent again while closed: got %+v, want %+v replayed", again, first)
	}
	n.settle(t, first.Transfer, used(10, 10))
	_, err = n.Authorize(context.Background(), c)
	wantError(t, err, limiter.CodeReservationClosed)
	c.ID = "two"
	n.passes(t, c)
	clock.Advance(10*time.Minute + time.Second)
	_, err = n.Authorize(context.Background(), c)
	wantError(t, err, limiter.CodeIDExpired)
	n.wantUsed(t, "alice", 20, 30)
}

// What cannot be a call is refused, and changes nothing.
func TestBadCalls(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, spend.Budget{Name: "ai", Tokens: 1000})
	for what, change := range map[string]func(*spend.Call){
		"Budget":  func(c *spend.Call) { c.Budget = "other" },
		"Model":   func(c *spend.Call) { c.Model = "other" },
		"Subject": func(c *spend.Call) { c.Subject = "" },
		"Nothing": func(c *spend.Call) { c.InputTokens, c.MaxOutputTokens = 0, 0 },
		"Input":   func(c *spend.Call) { c.InputTokens = spend.MaxTokens + 1 },
		"Output":  func(c *spend.Call) { c.MaxOutputTokens = spend.MaxTokens + 1 },
	} {
		t.Run(what, func(t *testing.T) {
			c := call("alice", 1, 1)
			change(&c)
			_, err := n.Authorize(context.Background(), c)
			want := limiter.CodeBadRequest
			if what == "Budget" {
				want = limiter.CodeUnknownLimit
			}
			wantError(t, err, want)
		})
	}
	if events := n.events(t, "alice", ""); len(events) != 0 {
		t.Errorf("got %+v, want no events", events)
	}
}

// Nothing but the breaker charges a budget's limits, so that its journal tells all.
func TestOnlySpend(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, spend.Budget{Name: "ai", Tokens: 1000})
	ctx := context.Background()
	request := limiter.Request{Members: []limiter.Member{
		{Limit: "ai:tokens", Subject: "alice", Cost: 1},
	}}
	_, err := n.limiter.Check(ctx, request)
	wantError(t, err, limiter.CodeBadRequest)
	request.Hold = time.Minute
	_, err = n.limiter.Reserve(ctx, request)
	wantError(t, err, limiter.CodeBadRequest)
	_, err = n.limiter.Track(ctx, limiter.Usage{Limit: "ai:usd", Subject: "alice", Amount: 1, ID: "1"})
	wantError(t, err, limiter.CodeBadRequest)
	receipt := n.passes(t, call("alice", 1, 1)).Transfer
	_, err = n.limiter.Release(ctx, receipt)
	wantError(t, err, limiter.CodeBadRequest)
	_, err = n.limiter.Renew(ctx, receipt, time.Minute)
	wantError(t, err, limiter.CodeBadRequest)
	_, err = n.limiter.Settle(ctx, limiter.Settlement{Receipt: receipt, Members: []limiter.Member{
		{Limit: "ai:tokens", Cost: 1}, {Limit: "ai:usd", Cost: 1},
	}})
	wantError(t, err, limiter.CodeBadRequest)
	n.wantUsed(t, "alice", 2, 3)
	group := limiter.Group{Name: "g", Limits: []limiter.GroupMember{
		{Limit: "ai:usd", Fields: []string{"user"}},
	}}
	_, err = limiter.NewRules(n.Plan().Rules(limiter.Rules{Groups: []limiter.Group{group}}))
	if !errors.Is(err, limiter.ErrLimit) ||
		!strings.HasPrefix(err.Error(), "groups[0].limits[0].limit") {
		t.Errorf("a group with a budget's limit: got %v, want it refused", err)
	}
}

func ExampleUSD() {
	fmt.Println(spend.USD(2_500_004))
	// Output: 2.500004
}
