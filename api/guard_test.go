package api_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/accounts"
	"weir/api"
	"weir/api/client"
	"weir/api/wire"
	"weir/ledgers/embedded"
	"weir/ledgers/ledgertest"
	"weir/limiter"
	"weir/limiter/spend"
)

// spenders are two servers on one ledger and what an application has of them: a client of each. The
// addresses outlive a restart.
type spenders struct {
	testing.TB
	clock   *clock
	options embedded.Options
	shared  bool // whether the servers know that others write to their ledger
	dir     string
	budgets []spend.Budget
	ledger  *ledgertest.Faulty
	clients [2]*client.Client

	breakers [2]*spend.Breaker
	handlers [2]atomic.Pointer[http.Handler]
}

// newSpenders serves these budgets. Of the model "small" a token in costs 1 millionth of a USD and
// one out 2, of "exact" 1,000 tokens of either 0.004 USD.
func newSpenders(t testing.TB, budgets ...spend.Budget) *spenders {
	t.Helper()
	c := newClock()
	s := &spenders{
		TB: t, clock: c, shared: true, budgets: budgets,
		options: embedded.Options{Now: c.Now, Elapsed: c.Elapsed, Volatile: true},
	}
	s.start()
	return s
}

// start opens the ledger and serves until the test ends.
func (s *spenders) start() {
	s.Helper()
	s.dir = s.TempDir()
	for i := range s.budgets {
		s.budgets[i].Deadline = 10 * time.Second // a busy machine is not a ledger that is away
	}
	s.open()
	s.Cleanup(s.close)
	for i := range s.clients {
		listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			(*s.handlers[i].Load()).ServeHTTP(w, r)
		}))
		s.Cleanup(listener.Close)
		c, err := client.New(listener.URL, &client.Options{Token: "user", AdminToken: "admin"})
		if err != nil {
			s.Fatal(err)
		}
		s.clients[i] = c
	}
}

// open starts both servers on the directory.
func (s *spenders) open() {
	s.Helper()
	ledger, err := embedded.Open(s.dir, &s.options)
	if err != nil {
		s.Fatal(err)
	}
	s.ledger = ledgertest.NewFaulty(ledger)
	for i := range s.handlers {
		s.breakers[i] = s.serve(i)
	}
}

func (s *spenders) serve(i int) *spend.Breaker {
	s.Helper()
	id, err := accounts.ParseNamespace(namespace)
	if err != nil {
		s.Fatal(err)
	}
	book, err := accounts.NewBook(s.ledger, id, &accounts.Options{
		Now: s.options.Now, Elapsed: s.options.Elapsed, Shared: s.shared,
	})
	if err != nil {
		s.Fatal(err)
	}
	plan, err := spend.NewPlan(s.budgets, []spend.Model{
		{Name: "small", Number: 1, Input: 1_000_000, Output: 2_000_000, Cached: 1_000_000},
		{Name: "exact", Number: 2, Input: 4_000_000, Output: 4_000_000, Cached: 4_000_000},
	})
	if err != nil {
		s.Fatal(err)
	}
	rules, err := limiter.NewRules(plan.Rules(limiter.Rules{}))
	if err != nil {
		s.Fatal(err)
	}
	l, err := limiter.New(book, rules, &limiter.Options{Shared: s.shared})
	if err != nil {
		s.Fatal(err)
	}
	breaker, err := spend.New(l, plan, nil)
	if err != nil {
		s.Fatal(err)
	}
	server, err := api.New(l, &api.Options{
		Token: "user", AdminToken: "admin", Spend: breaker, Now: s.options.Now,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.Fatal(err)
	}
	handler := server.Handler()
	s.handlers[i].Store(&handler)
	return breaker
}

// close ends both servers, as a process does that is told to, and closes their ledger.
func (s *spenders) close() {
	s.Helper()
	for _, b := range s.breakers {
		b.Close(context.Background())
	}
	err := s.ledger.Close()
	if err != nil {
		s.Error(err)
	}
}

// guards are one guard a server, on the budget "ai". They retry without a pause.
func (s *spenders) guards() [2]*client.Guard {
	options := client.GuardOptions{Backoff: time.Nanosecond}
	return [2]*client.Guard{
		s.clients[0].NewGuard("ai", &options), s.clients[1].NewGuard("ai", &options),
	}
}

// askFor is a call of the subject "feature", of so many tokens.
func askFor(input, output uint64) client.Ask {
	return client.Ask{
		Subject: "feature", Model: "small", InputTokens: input, MaxOutputTokens: output,
	}
}

// took is what a model reports.
func took(input, output uint64) wire.SpendUsage {
	return wire.SpendUsage{
		InputTokens: new(wire.Count(input)), OutputTokens: new(wire.Count(output)),
	}
}

// wantTaken compares what both servers say the feature has taken of the budget, overage included.
func (s *spenders) wantTaken(when string, tokens, usd uint64) {
	s.Helper()
	for i, c := range s.clients {
		for limit, want := range map[string]uint64{"ai:tokens": tokens, "ai:usd": usd} {
			b, err := c.Balance(s.Context(), limit, "feature")
			if err != nil {
				s.Fatal(err)
			}
			if got := b.Used.Units + b.Overage.Units; got != want {
				s.Errorf("%s, server %d: got %d of %s taken, want %d", when, i, got, limit, want)
			}
		}
	}
}

// events reads the feature's day.
func (s *spenders) events() []wire.SpendEvent {
	s.Helper()
	q := client.SpendQuery{Budget: "ai", Subject: "feature"}
	var all []wire.SpendEvent
	for {
		page, err := s.clients[0].SpendJournal(s.Context(), q)
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, page.Events...)
		if page.Cursor == "" {
			return all
		}
		q.Cursor = page.Cursor
	}
}

// entries counts the ledger's entries of the feature's tokens.
func (s *spenders) entries() int {
	s.Helper()
	q, n := client.JournalQuery{Limit: "ai:tokens", Subject: "feature"}, 0
	for {
		page, err := s.clients[0].Journal(s.Context(), q)
		if err != nil {
			s.Fatal(err)
		}
		n += len(page.Entries)
		if page.Cursor == "" {
			return n
		}
		q.Cursor = page.Cursor
	}
}

// TestGuardedDay makes 40 calls of about 30 tokens in and out against a budget of 1,000 a day, by
// two applications, over a restart in the middle of a call.
func TestGuardedDay(t *testing.T) {
	s := newSpenders(t, spend.Budget{Name: "ai", Tokens: 1000, USD: 1_000_000})
	guards := s.guards()
	var tokens, usd uint64
	var routes, reasons []string
	for i := range 40 {
		output := 28 + uint64(i)%4
		r, err := guards[i%2].Do(t.Context(), askFor(30, 30),
			func(context.Context) (wire.SpendUsage, error) {
				if i == 7 { // 29 calls in 7: 3*30 + 28+29+30 and 28+29+30+31 and 4*30 are 415
					s.close()
					s.open()
					s.wantTaken("restarted within call 7", 415+60, 7*30+2*205+90)
				}
				tokens += 30 + output
				usd += 30 + 2*output
				return took(30, output), nil
			},
			func(_ context.Context, reason string) error {
				reasons = append(reasons, reason)
				return nil
			})
		if err != nil || r.Err != nil || r.Unsettled != nil {
			t.Fatalf("call %d: got %+v and error %v", i, r, err)
		}
		routes = append(routes, r.Route)
		s.clock.Add(time.Minute)
	}
	// A call passes while what is spent and 60 are at most 900. Four take 238: 12 are at 714, and 58,
	// 59 and 60 more make 891, 60 below which is 831.
	want := slices.Concat(
		slices.Repeat([]string{wire.RouteModel}, 15), slices.Repeat([]string{wire.RouteFallback}, 25))
	if !slices.Equal(routes, want) || tokens != 891 || usd != 15*30+2*441 {
		t.Errorf("got routes %q, %d tokens and %d millionths, want 15 calls of 891 and 1,332",
			routes, tokens, usd)
	}
	if !slices.Equal(reasons, slices.Repeat([]string{wire.ReasonTokens}, 25)) {
		t.Errorf("got fallbacks for %q, want 25 for %s", reasons, wire.ReasonTokens)
	}
	s.wantTaken("at the end of the day", 891, 1332)
	s.wantNextDay(guards)
}

// wantNextDay has the gate closed to the last moment of the day, over a restart, and open in the
// first of the next.
func (s *spenders) wantNextDay(guards [2]*client.Guard) {
	s.Helper()
	wantRoutes := func(when, want string) {
		s.Helper()
		for i, g := range guards {
			r, err := g.Do(s.Context(), askFor(30, 30),
				func(context.Context) (wire.SpendUsage, error) { return took(30, 30), nil },
				func(context.Context, string) error { return nil })
			if err != nil || r.Route != want {
				s.Errorf("%s, server %d: got %+v and error %v, want %s", when, i, r, err, want)
			}
		}
	}
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	call, err := guards[0].Authorize(s.Context(), askFor(30, 30))
	if err != nil {
		s.Fatal(err)
	}
	if call.ReopensAt == nil || call.ReopensAt.Before(midnight) ||
		call.ReopensAt.Sub(midnight) > time.Second {
		s.Errorf("got %+v, want it to reopen at %v", call.Authorization, midnight)
	}
	s.close()
	s.open()
	s.wantTaken("restarted while closed", 891, 1332)
	wantRoutes("restarted while closed", wire.RouteFallback)
	s.clock.Add(midnight.Sub(s.clock.Now()) - time.Millisecond)
	wantRoutes("at the end of the day", wire.RouteFallback)
	s.close() // which writes down what is still counted
	s.open()
	counts := map[string]uint64{}
	for _, e := range s.events() {
		counts[e.Event] += max(1, e.Count)
	}
	// 25 of the day, the one that was asked when it reopens, and twice two.
	if counts[wire.EventAuthorize] != 15 || counts[wire.EventSettle] != 15 ||
		counts[wire.EventClosed] != 25+1+4 {
		s.Errorf("got events %v, want 15 calls and 30 turned away", counts)
	}
	s.clock.Add(call.ReopensAt.Sub(s.clock.Now()))
	s.wantTaken("the next day", 0, 0)
	wantRoutes("the next day", wire.RouteModel)
	s.wantTaken("two calls later", 120, 2*90)
}

// A worker that tries for ever, by a guard and against a provider that times out: what it spends is
// bounded by the budget, it has its fallback each time, and it writes once a minute.
func TestGuardedRunaway(t *testing.T) {
	s := newSpenders(t, spend.Budget{Name: "ai", Tokens: 10_000, USD: 1_000_000})
	g := s.guards()[0]
	attempts, fallbacks, entries, writes := 0, map[string]int{}, 0, 0
	tries := rounds(1_900, 50_000)
	const pace = 60 * time.Millisecond
	try := func() string {
		var route string
		r, err := g.Do(t.Context(), askFor(100, 400),
			func(context.Context) (wire.SpendUsage, error) {
				attempts++
				return wire.SpendUsage{}, context.DeadlineExceeded
			},
			func(_ context.Context, reason string) error {
				fallbacks[reason]++
				route = reason
				return nil
			})
		if err != nil || r.Route != wire.RouteFallback || r.Unsettled != nil {
			t.Fatalf("got %+v and error %v, want the fallback", r, err)
		}
		s.clock.Add(pace)
		return route
	}
	for i := range tries {
		reason := try()
		// Each attempt books its 100 tokens of input, and passes while 500 more are at most 9,000: 86
		// do, of which each try makes three.
		want := wire.ErrorTimeout
		if i >= 28 {
			want = wire.ReasonTokens
		}
		if reason != want {
			t.Fatalf("try %d: got the fallback for %s, want %s", i, reason, want)
		}
		if i == 28 {
			entries, writes = s.entries(), s.ledger.Calls(ledgertest.CallCreateTransfers)
		}
	}
	if attempts != 86 || fallbacks[wire.ErrorTimeout] != 28 {
		t.Errorf("got %d calls and fallbacks %v, want 86 and 28 of time-outs", attempts, fallbacks)
	}
	// The clock began at a full minute, whose note is written when the gate closes.
	minutes := int(time.Duration(tries-1) * pace / time.Minute)
	grown, written := s.entries()-entries, s.ledger.Calls(ledgertest.CallCreateTransfers)-writes
	if grown != minutes || written != minutes {
		t.Errorf("%d tries on a closed gate wrote %d entries in %d calls of the ledger, want %d",
			tries-29, grown, written, minutes)
	}
	s.wantTaken("after the loop", 8600, 8600)
	for _, b := range s.breakers {
		b.Close(t.Context())
	}
	var turned uint64
	for _, e := range s.events() {
		turned += e.Count
	}
	if turned != uint64(tries-28) {
		t.Errorf("got %d calls written down as turned away, want %d", turned, tries-28)
	}
}

// Workers that run away together are bounded together, whatever the provider does.
func TestGuardedRunaways(t *testing.T) {
	s := newSpenders(t, spend.Budget{Name: "ai", Tokens: 10_000, USD: 1_000_000})
	guards := s.guards()
	var workers sync.WaitGroup
	var attempts atomic.Int64
	for i := range 8 {
		workers.Go(func() {
			for last := ""; last != wire.ReasonTokens && attempts.Load() < 1000; {
				r, err := guards[i%2].Do(t.Context(), askFor(100, 400),
					func(context.Context) (wire.SpendUsage, error) {
						attempts.Add(1)
						return wire.SpendUsage{}, &client.ProviderError{Status: http.StatusGatewayTimeout}
					}, func(context.Context, string) error { return nil })
				if err != nil || r.Route != wire.RouteFallback {
					t.Errorf("worker %d: got %+v and error %v, want the fallback", i, r, err)
					return
				}
				last = r.Reason
			}
		})
	}
	workers.Wait()
	n := uint64(attempts.Load())
	// Each passes while 100 of every one before it, or 500 while that runs, are at most 8,500, and to
	// the last worker the gate closes when none runs.
	if n != 86 {
		t.Errorf("got %d calls, want 86", n)
	}
	s.wantTaken("after the loops", 100*n, 100*n)
}

// BenchmarkGuard measures what a guard adds to a call, as it is for an application: one caller,
// over HTTP, on a durable ledger, around a function that does nothing. p50-us and p99-us are of a
// call.
func BenchmarkGuard(b *testing.B) {
	s := &spenders{TB: b, budgets: []spend.Budget{
		{Name: "ai", Tokens: 1_000_000_000_000, USD: 900_000_000_000},
	}}
	s.start()
	g := s.guards()[0]
	call := func(context.Context) (wire.SpendUsage, error) { return took(30, 20), nil }
	durations := make([]time.Duration, 0, b.N)
	for b.Loop() {
		start := time.Now()
		r, err := g.Do(b.Context(), askFor(30, 30), call, nil)
		durations = append(durations, time.Since(start))
		if err != nil || r.Route != wire.RouteModel || r.Unsettled != nil {
			b.Fatalf("got %+v and error %v, want the call made", r, err)
		}
	}
	slices.Sort(durations)
	b.ReportMetric(float64(durations[len(durations)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(durations[len(durations)*99/100].Microseconds()), "p99-us")
}
