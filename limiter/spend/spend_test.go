package spend_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/ledgers/ledgertest"
	"weir/limiter"
	"weir/limiter/spend"
)

// testClock is a clock that only the test moves.
type testClock struct{ nanos atomic.Int64 }

// newClock shows noon of a day in UTC.
func newClock() *testClock {
	c := &testClock{}
	c.nanos.Store(time.Date(2026, 10, 16, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *testClock) Now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *testClock) Advance(d time.Duration) { c.nanos.Add(int64(d)) }

// rounds is how often a case is tried: fewer times than WEIR_LONG=1 asks for.
func rounds(short, long int) int {
	if os.Getenv("WEIR_LONG") == "1" {
		return long
	}
	return short
}

// openLedger opens a ledger on the test's clock, whose invariants are checked when the test ends.
func openLedger(t testing.TB, clock *testClock) ledgers.Driver {
	t.Helper()
	ledger, err := embedded.Open(t.TempDir(), &embedded.Options{Now: clock.Now, Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := ledger.Close()
		if err != nil {
			t.Error(err)
		}
	})
	return ledgertest.Checked(t, ledger)
}

// node is one process: a breaker, and the limiter below it.
type node struct {
	*spend.Breaker
	limiter *limiter.Limiter
}

// models is the price table of the tests: of fast a token in costs 1 millionth and one out 2, of
// exact 1,000 tokens of either cost 0.004 USD, and local is free.
func models() []spend.Model {
	return []spend.Model{
		{Name: "fast", Number: 1, Input: 1_000_000, Output: 2_000_000, Cached: 500_000},
		{Name: "exact", Number: 2, Input: 4_000_000, Output: 4_000_000, Cached: 4_000_000},
		{Name: "local", Number: 7},
	}
}

// newNode returns a node on a ledger that others may write to.
func newNode(t testing.TB, driver ledgers.Driver, clock *testClock, budgets ...spend.Budget) node {
	t.Helper()
	for i := range budgets {
		budgets[i].Deadline = 10 * time.Second // a busy machine is not a ledger that is away
	}
	plan, err := spend.NewPlan(budgets, models())
	if err != nil {
		t.Fatal(err)
	}
	book, err := accounts.NewBook(driver, accounts.Namespace{7},
		&accounts.Options{Now: clock.Now, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := limiter.NewRules(plan.Rules(limiter.Rules{}))
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(book, rules, &limiter.Options{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := spend.New(l, plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	return node{b, l}
}

// call is a call of a subject on the budget "ai".
func call(subject string, input, output uint64) spend.Call {
	return spend.Call{
		Budget: "ai", Subject: subject, Model: "fast", InputTokens: input, MaxOutputTokens: output,
	}
}

func (n node) authorize(t testing.TB, c spend.Call) spend.Authorization {
	t.Helper()
	a, err := n.Authorize(context.Background(), c)
	if err != nil {
		t.Fatalf("authorize %+v: %v", c, err)
	}
	return a
}

// passes authorizes a call that the budget has to be open for.
func (n node) passes(t testing.TB, c spend.Call) spend.Authorization {
	t.Helper()
	a := n.authorize(t, c)
	if a.Route != spend.RouteModel || a.Transfer.IsZero() {
		t.Fatalf("authorize %+v: got %+v, want route model and a receipt", c, a)
	}
	return a
}

// closes authorizes a call that the budget has to be closed for.
func (n node) closes(t testing.TB, c spend.Call, want spend.Reason) spend.Authorization {
	t.Helper()
	a := n.authorize(t, c)
	if a.Route != spend.RouteFallback || a.Reason != want || !a.Transfer.IsZero() {
		t.Fatalf("authorize %+v: got %+v, want route fallback for %v", c, a, want)
	}
	return a
}

// used is the usage report of a model.
func used(input, output uint64) spend.Usage {
	return spend.Usage{Route: spend.RouteModel, InputTokens: &input, OutputTokens: &output}
}

func (n node) settle(t testing.TB, receipt ledgers.ID, u spend.Usage) spend.Settlement {
	t.Helper()
	s, err := n.Settle(context.Background(), receipt, u)
	if err != nil {
		t.Fatalf("settle %+v: %v", u, err)
	}
	return s
}

// wantUsed compares what a subject has used of the budget "ai", overage included.
func (n node) wantUsed(t testing.TB, subject string, tokens, usd uint64) {
	t.Helper()
	for limit, want := range map[string]uint64{"ai:tokens": tokens, "ai:usd": usd} {
		b, err := n.limiter.Balance(context.Background(), limit, subject)
		if err != nil {
			t.Fatal(err)
		}
		if b.Used+b.Overage != want {
			t.Fatalf("%s of %s: got %d used and %d overage, want %d in all", limit, subject, b.Used,
				b.Overage, want)
		}
	}
}

// wantError checks the code of an error.
func wantError(t testing.TB, err error, want limiter.Code) {
	t.Helper()
	e, ok := errors.AsType[*limiter.Error](err)
	if !ok || e.Code != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

// events reads all events of a subject's day, page by page.
func (n node) events(t testing.TB, subject, day string) []spend.Event {
	t.Helper()
	from, to, err := n.Day("ai", day)
	if err != nil {
		t.Fatal(err)
	}
	var all []spend.Event
	for !from.IsZero() {
		var page []spend.Event
		page, from, err = n.Events(context.Background(), "ai", subject, from, to)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
	}
	return all
}

// name makes an id.
func name(what string, i int) string { return what + "-" + strconv.Itoa(i) }
