package spend_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/limiter"
	"weir/limiter/spend"
)

// standing is what the events of a day add up to at some time.
func standing(events []spend.Event, at time.Time) (sum spend.Amount) {
	type state struct {
		amount spend.Amount
		until  time.Time // zero of what is booked
	}
	calls := make(map[ledgers.ID]state)
	for _, e := range events {
		s := state{amount: spend.Amount{Tokens: e.InputTokens + e.OutputTokens, USD: e.USD}}
		switch e.Kind {
		case spend.Authorized:
			s.until = e.ExpiresAt
		case spend.Closed:
			continue
		}
		calls[e.Transfer] = s
	}
	for _, s := range calls {
		if s.until.IsZero() || at.Before(s.until) {
			sum.Tokens += s.amount.Tokens
			sum.USD += s.amount.USD
		}
	}
	return sum
}

// The day as the ledger tells it adds up to the ledger's balances, whatever happened in it, over
// several pages and on any node.
func TestReplay(t *testing.T) {
	clock := newClock()
	ledger := openLedger(t, clock)
	n := newNode(t, ledger, clock, spend.Budget{Name: "ai", Tokens: 200_000, USD: 300_000})
	random := rand.New(rand.NewPCG(1, 2))
	ctx := context.Background()
	routes := []spend.Route{spend.RouteModel, spend.RouteFallback, spend.RouteError}
	var settled []ledgers.ID
	for i := range rounds(700, 5000) {
		clock.Advance(time.Duration(random.IntN(2000)) * time.Millisecond)
		c := call("alice", random.Uint64N(400), 1+random.Uint64N(400))
		if random.IntN(4) == 0 {
			c.Model = "local"
		}
		a := n.authorize(t, c)
		if a.Route == spend.RouteFallback {
			continue
		}
		usage := spend.Usage{Route: routes[random.IntN(len(routes))]}
		if random.IntN(2) == 0 {
			usage.InputTokens, usage.OutputTokens = new(random.Uint64N(500)), new(random.Uint64N(600))
		}
		switch random.IntN(10) {
		case 0: // never settled
			continue
		case 1: // settled late
			clock.Advance(11 * time.Minute)
		}
		n.settle(t, a.Transfer, usage)
		settled = append(settled, a.Transfer)
		if random.IntN(5) == 0 {
			corrected := settled[random.IntN(len(settled))]
			_, err := n.Correct(ctx, corrected, name("c", i), used(random.Uint64N(500), 3))
			if err != nil {
				t.Fatal(err)
			}
		}
		if clock.Now().Hour() == 23 {
			break // the day's end is not in this test
		}
	}
	fresh := newNode(t, ledger, clock, big())
	events := fresh.events(t, "alice", "2026-10-16")
	if len(events) < 600 {
		t.Fatalf("got %d events: too few for several pages", len(events))
	}
	for i := range events[1:] {
		if !events[i].At.Before(events[i+1].At) {
			t.Fatalf("event %d is not behind the one before", i+1)
		}
	}
	sum := standing(events, clock.Now())
	fresh.wantUsed(t, "alice", sum.Tokens, sum.USD)
	if yesterday := fresh.events(t, "alice", "2026-10-15"); len(yesterday) != 0 {
		t.Errorf("got %d events of the day before, want none", len(yesterday))
	}
}

// Each event says all that happened.
func TestEvents(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, spend.Budget{Name: "ai", Tokens: 1000})
	receipt := n.passes(t, call("alice", 100, 50)).Transfer
	n.settle(t, receipt, spend.Usage{
		Route: spend.RouteModel, InputTokens: new(uint64(90)), OutputTokens: new(uint64(10)),
		CachedTokens: new(uint64(80)),
	})
	failed := n.passes(t, call("alice", 7, 0)).Transfer
	n.settle(t, failed, spend.Usage{Route: spend.RouteError, Error: "rate-limited"})
	n.closes(t, call("alice", 1000, 0), spend.TokenBudget)
	_, err := n.Correct(context.Background(), receipt, "c", used(91, 10))
	if err != nil {
		t.Fatal(err)
	}
	noon := clock.Now().UTC()
	want := []spend.Event{
		{
			Kind: spend.Authorized, Transfer: receipt, Route: spend.RouteModel, Model: "fast",
			InputTokens: 100, OutputTokens: 50, USD: 200, ExpiresAt: noon.Add(10 * time.Minute),
		},
		{
			Kind: spend.Settled, Transfer: receipt, Route: spend.RouteModel, Model: "fast",
			InputTokens: 90, OutputTokens: 10, CachedTokens: 80, USD: 10 + 40 + 20,
		},
		{
			Kind: spend.Authorized, Transfer: failed, Route: spend.RouteModel, Model: "fast",
			InputTokens: 7, USD: 7, ExpiresAt: noon.Add(10 * time.Minute),
		},
		{
			Kind: spend.Settled, Transfer: failed, Route: spend.RouteError, Reason: "rate-limited",
			Model: "fast", InputTokens: 7, USD: 7, Estimated: true,
		},
		{Kind: spend.Closed, Route: spend.RouteFallback, Reason: "token-budget", Model: "fast", Count: 1},
		{
			Kind: spend.Correction, Transfer: receipt, Route: spend.RouteModel, Model: "fast",
			InputTokens: 91, OutputTokens: 10, USD: 111,
		},
	}
	got := n.events(t, "alice", "")
	if len(got) != len(want) {
		t.Fatalf("got %d events, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		e := got[i]
		if e.At.Sub(noon) < 0 || e.At.Sub(noon) > time.Millisecond {
			t.Errorf("event %d is at %v, want %v", i, e.At, noon)
		}
		if (e.ExpiresAt.Sub(want[i].ExpiresAt)).Abs() > time.Millisecond {
			t.Errorf("event %d ends at %v, want %v", i, e.ExpiresAt, want[i].ExpiresAt)
		}
		e.At, e.ExpiresAt = time.Time{}, want[i].ExpiresAt
		if e != want[i] {
			t.Errorf("event %d: got %+v, want %+v", i, e, want[i])
		}
	}
}

// The bits in the ledger are a promise, written out in the package's comment.
func TestPacking(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, spend.Budget{Name: "ai", Tokens: 1000})
	n.closes(t, call("alice", 1001, 0), spend.TokenBudget)
	receipt := n.passes(t, call("alice", 0x12, 0x34)).Transfer
	n.settle(t, receipt, spend.Usage{
		Route: spend.RouteError, InputTokens: new(uint64(0x56)), OutputTokens: new(uint64(0x78)),
		CachedTokens: new(uint64(0x9)), USD: new(uint64(0xabcde)), Error: "provider-error",
	})
	n.settle(t, n.passes(t, call("alice", 1, 1)).Transfer, spend.Usage{Route: spend.RouteModel})
	from, to, err := n.Day("ai", "")
	if err != nil {
		t.Fatal(err)
	}
	notes, err := n.limiter.Notes(context.Background(), "ai:tokens", "alice", from, to)
	if err != nil {
		t.Fatal(err)
	}
	want := []accounts.Note{
		{Lo: 0x3000_0000_0000_0001, Hi: 0x0001_0001},
		{Lo: 0x1000_0001_2000_0034, Hi: 0},
		{Lo: 0x9000_0000_0000_007a, Hi: 0x0001_0258}, // 0x12 + 2*0x34 = 0x7a; 600 s
		{Lo: 0x2300_0005_6000_0078, Hi: 0xc000_0009},
		{Lo: 0xa000_0000_000a_bcde, Hi: 0x0001_0000},
		{Lo: 0x1000_0000_1000_0001, Hi: 0},
		{Lo: 0x9000_0000_0000_0003, Hi: 0x0001_0258},
		{Lo: 0x2000_0000_1000_0001, Hi: 0x6000_0000}, // estimated
		{Lo: 0xa000_0000_0000_0003, Hi: 0x0001_0000},
	}
	if len(notes) != len(want) {
		t.Fatalf("got %d notes, want %d", len(notes), len(want))
	}
	notes[0].Lo &^= 0x0fff_ff00_0000_0000 // the node's number
	for i, note := range notes {
		if note.Note != want[i] {
			t.Errorf("note %d: got %x, want %x", i, note.Note, want[i])
		}
		about := receipt
		switch {
		case i == 0:
			about = ledgers.ID{}
		case i > 4:
			continue
		}
		if note.About != about {
			t.Errorf("note %d is about %s, want %s", i, note.About, about)
		}
	}
}

// Days are those of the budget's clocks, also where they are set.
func TestDays(t *testing.T) {
	clock := newClock()
	n := newNode(t, openLedger(t, clock), clock, spend.Budget{
		Name: "ai", Tokens: 1000, Align: "day", Timezone: "Europe/Berlin",
	}, spend.Budget{Name: "rolling", Tokens: 1000, Window: time.Hour})
	for _, row := range []struct{ budget, day, from, to string }{
		{"ai", "2026-10-25", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"}, // 25 hours
		{"ai", "2026-03-29", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"}, // 23
		{"ai", "", "2026-10-16T00:00:00+02:00", "2026-10-17T00:00:00+02:00"},
		{"rolling", "", "2026-10-16T00:00:00Z", "2026-10-17T00:00:00Z"},
	} {
		from, to, err := n.Day(row.budget, row.day)
		if err != nil {
			t.Fatal(err)
		}
		if from.Format(time.RFC3339) != row.from || to.Format(time.RFC3339) != row.to {
			t.Errorf("%s %s: got %v to %v, want %s to %s", row.budget, row.day, from, to, row.from, row.to)
		}
	}
	for _, day := range []string{"2026-02-30", "today", "2026-1-1", "0001-01-01", "9999-12-31"} {
		_, _, err := n.Day("ai", day)
		wantError(t, err, limiter.CodeBadRequest)
	}
	_, _, err := n.Day("other", "")
	wantError(t, err, limiter.CodeUnknownLimit)
}

// A plan that cannot be is refused, and the key named.
func TestPlanErrors(t *testing.T) {
	ok := spend.Model{Name: "fast", Number: 1}
	for want, row := range map[string]struct {
		budgets []spend.Budget
		models  []spend.Model
	}{
		"spend.budgets[0].name":     {[]spend.Budget{{Name: "", Tokens: 1}}, nil},
		"spend.budgets[1].name":     {[]spend.Budget{big(), big()}, nil},
		"spend.budgets[0].tokens":   {[]spend.Budget{{Name: "a"}}, nil},
		"spend.budgets[0].usd":      {[]spend.Budget{{Name: "a", USD: spend.MaxBudget + 1}}, nil},
		"spend.budgets[0].hold":     {[]spend.Budget{{Name: "a", USD: 1, Hold: 19 * time.Hour}}, nil},
		"spend.budgets[0].window":   {[]spend.Budget{{Name: "a", USD: 1, Window: time.Millisecond}}, nil},
		"spend.budgets[0].align":    {[]spend.Budget{{Name: "a", USD: 1, Align: "year"}}, nil},
		"spend.budgets[0].close_at": {[]spend.Budget{{Name: "a", USD: 1, CloseAt: 1_000_001}}, nil},
		"spend.budgets[0].deadline": {[]spend.Budget{{Name: "a", USD: 1, Deadline: time.Hour}}, nil},
		"spend.models[0].name":      {nil, []spend.Model{{Name: "a\n", Number: 1}}},
		"spend.models[1].name":      {nil, []spend.Model{ok, {Name: "fast", Number: 2}}},
		"spend.models[0].number":    {nil, []spend.Model{{Name: "a"}}},
		"spend.models[1].number":    {nil, []spend.Model{ok, {Name: "slow", Number: 1}}},
		"spend.models[0].cached":    {nil, []spend.Model{{Name: "a", Number: 1, Cached: 1e10 + 1}}},
	} {
		_, err := spend.NewPlan(row.budgets, row.models)
		if err == nil || !strings.HasPrefix(err.Error(), want+": ") || !errors.Is(err, limiter.ErrLimit) {
			t.Errorf("got %v, want an error of %s", err, want)
		}
	}
}
