package api_test

import (
	"context"
	"errors"
	"fmt"
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
			for last := ""; last != wire.ReasonTokens; {
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

// tidy:table cases of reservations, through the client: as authorizations and settlements over HTTP
func TestSpendCases(t *testing.T) {
	full := func(b spend.Budget) spend.Budget { // closes at its end
		b.Name, b.CloseAt = "ai", 1_000_000
		return b
	}
	t.Run("B2", func(t *testing.T) { // budget 30, reserve 10, settle 50
		s := newSpenders(t, full(spend.Budget{Tokens: 30}))
		got := s.settle(s.authorize(askFor(10, 0)), took(50, 0))
		if got.Booked.Tokens.Units != 50 || got.Overage.Tokens.Units != 20 {
			t.Errorf("got %+v, want 50 booked, 20 of them overage", got)
		}
		s.wantClosed(askFor(1, 0))
		b, err := s.clients[1].Balance(t.Context(), "ai:tokens", "feature")
		if err != nil || b.Used.Units != 30 || b.Overage.Units != 20 || b.Remaining.Units != 0 {
			t.Errorf("got %+v and error %v, want 30 used and an overage of 20", b, err)
		}
	})
	t.Run("B3", func(t *testing.T) { // budget 100, reserve 10, settle 35
		s := newSpenders(t, full(spend.Budget{Tokens: 100}))
		got := s.settle(s.authorize(askFor(10, 0)), took(35, 0))
		if got.Remaining == nil || got.Remaining.Tokens.Units != 65 || got.Overage.Tokens.Units != 0 {
			t.Errorf("got %+v, want 65 remaining", got)
		}
		s.settle(s.authorize(askFor(65, 0)), took(65, 0))
	})
	t.Run("B4", func(t *testing.T) { // reserve 10 for 2 s, settle 7 at 4 s, window 60 s
		s := newSpenders(t, full(spend.Budget{
			Tokens: 100, USD: 100, Hold: 2 * time.Second, Window: time.Minute,
		}))
		call := s.authorize(askFor(10, 0))
		s.wantTaken("held", 10, 10)
		s.clock.Add(2*time.Second + time.Millisecond)
		s.wantTaken("past the time-out", 0, 0)
		s.clock.Add(2*time.Second - time.Millisecond)
		got := s.settle(call, took(7, 0))
		again, err := s.clients[1].SettleSpend(t.Context(), call.Transfer,
			wire.SpendUsage{Route: wire.RouteModel, InputTokens: new(wire.Count(7)),
				OutputTokens: new(wire.Count(0))})
		if err != nil || !got.Late || got.Replayed || !again.Late || !again.Replayed {
			t.Errorf("got %+v, %+v and error %v, want it late, and then replayed", got, again, err)
		}
		s.clock.Add(56*time.Second - time.Millisecond)
		s.wantTaken("at the end of its window", 7, 7)
		s.clock.Add(2 * time.Millisecond)
		s.wantTaken("after its window", 0, 0)
	})
	t.Run("B5", testSpendEndsOnce)
	t.Run("B6", func(t *testing.T) { // a failed attempt with known input tokens
		s := newSpenders(t, full(spend.Budget{Tokens: 1000, USD: 1000}))
		r, err := s.guards()[0].Do(t.Context(), askFor(30, 100),
			func(context.Context) (wire.SpendUsage, error) {
				return wire.SpendUsage{InputTokens: new(wire.Count(25))},
					&client.ProviderError{Status: http.StatusTooManyRequests}
			}, func(context.Context, string) error { return nil })
		if err != nil || r.Attempts != 3 || r.Reason != wire.ErrorRateLimited || r.Settlement.Estimated {
			t.Errorf("got %+v and error %v, want three attempts as reported", r, err)
		}
		s.wantTaken("three attempts of 25", 75, 75)
	})
	t.Run("B7", func(t *testing.T) { // a stream that ends without a usage report
		s := newSpenders(t, full(spend.Budget{Tokens: 1000, USD: 1000}))
		calls := s.authorize(askFor(30, 100))
		err := calls.Close()
		if err != nil {
			t.Error(err)
		}
		r, err := s.guards()[1].Do(t.Context(), askFor(20, 50),
			func(context.Context) (wire.SpendUsage, error) { return wire.SpendUsage{}, nil }, nil)
		if err != nil || !r.Settlement.Estimated || r.Settlement.Booked.Tokens.Units != 70 {
			t.Errorf("got %+v and error %v, want the 70 that were reserved, marked", r, err)
		}
		s.wantTaken("130 and 70", 200, 230+120)
		for _, e := range s.events() {
			if e.Event == wire.EventSettle && (!e.Estimated || e.Route != wire.RouteModel) {
				t.Errorf("got %+v in the journal, want it marked as estimated", e)
			}
		}
	})
	t.Run("B8", testSpendStreams)
	t.Run("N10", testSpendExactly)
}

// authorize opens a call that has to be allowed.
func (s *spenders) authorize(ask client.Ask) *client.Call {
	s.Helper()
	call, err := s.guards()[0].Authorize(s.Context(), ask)
	if err != nil || call.Route != wire.RouteModel {
		s.Fatalf("got %+v and error %v, want %+v allowed", call, err, ask)
	}
	return call
}

// wantClosed asks for a call on both servers, that neither allows.
func (s *spenders) wantClosed(ask client.Ask) {
	s.Helper()
	for i, g := range s.guards() {
		call, err := g.Authorize(s.Context(), ask)
		if err != nil || call.Route != wire.RouteFallback || call.Transfer != "" {
			s.Errorf("server %d: got %+v and error %v, want the gate closed", i, call, err)
		}
	}
}

func (s *spenders) settle(call *client.Call, usage wire.SpendUsage) wire.SpendSettlement {
	s.Helper()
	settlement, err := call.Settle(usage)
	if err != nil {
		s.Fatal(err)
	}
	return settlement
}

// testSpendEndsOnce: 0 gives all back, the same end is answered the same, of several at once one
// wins, and after it the others are refused.
func testSpendEndsOnce(t *testing.T) {
	s := newSpenders(t, spend.Budget{Name: "ai", Tokens: 1_000_000, USD: 1_000_000_000})
	end := func(server int, receipt string, usage wire.SpendUsage) (wire.SpendSettlement, bool) {
		settlement, err := s.clients[server].SettleSpend(t.Context(), receipt, usage)
		wantCode(t, err, wire.CodeReservationClosed)
		return settlement, err == nil
	}
	model := func(input uint64) wire.SpendUsage {
		return wire.SpendUsage{
			Route: wire.RouteModel, InputTokens: new(wire.Count(input)), OutputTokens: new(wire.Count(0)),
		}
	}
	released := wire.SpendUsage{Route: wire.RouteFallback}
	zero := s.authorize(askFor(10, 0)).Transfer
	for i := range 2 {
		got, ok := end(i, zero, model(0))
		if !ok || got.Replayed != (i == 1) || got.Booked.Tokens.Units != 0 {
			t.Errorf("end %d: got %+v, want 0 booked once", i, got)
		}
	}
	s.wantTaken("settled at 0", 0, 0)
	gone := s.authorize(askFor(10, 0)).Transfer
	if _, ok := end(0, gone, released); !ok {
		t.Error("got it not released")
	}
	if got, ok := end(1, gone, model(10)); ok {
		t.Errorf("got %+v after it was released", got)
	}
	s.wantTaken("released", 0, 0)
	var taken uint64
	for round := range rounds(20, 500) {
		receipt := s.authorize(askFor(10, 0)).Transfer
		var ends sync.WaitGroup
		won := [2]bool{}
		for i, usage := range []wire.SpendUsage{model(10), released} {
			ends.Go(func() { _, won[i] = end((i+round)%2, receipt, usage) })
		}
		ends.Wait()
		if won[0] == won[1] {
			t.Fatalf("round %d: got %v, want one end to win", round, won)
		}
		if won[0] {
			taken += 10
		}
		s.wantTaken(fmt.Sprint("round ", round), taken, taken)
	}
}

// wantCode wants no error or one with this code.
func wantCode(t testing.TB, err error, code wire.Code) {
	t.Helper()
	if err == nil {
		return
	}
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Code != code {
		t.Errorf("got error %v, want %s", err, code)
	}
}

// testSpendStreams opens 20 streams at once, on both servers: of 70 tokens each there is place for
// 12 in 900, for as many as are not done.
func testSpendStreams(t *testing.T) {
	s := newSpenders(t, spend.Budget{Name: "ai", Tokens: 1000, USD: 1_000_000})
	guards := s.guards()
	open := func() (calls []*client.Call) {
		var mu sync.Mutex
		var streams sync.WaitGroup
		for i := range 20 {
			streams.Go(func() {
				call, err := guards[i%2].Authorize(t.Context(), askFor(20, 50))
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if call.Route == wire.RouteModel {
					calls = append(calls, call)
				}
			})
		}
		streams.Wait()
		return calls
	}
	calls := open()
	if len(calls) != 12 {
		t.Fatalf("got %d streams of 20 opened, want 12", len(calls))
	}
	s.wantTaken("12 held", 840, 12*120)
	var streams sync.WaitGroup
	for i, call := range calls {
		streams.Go(func() {
			var err error
			switch i % 3 {
			case 0: // reports
				_, err = call.Settle(took(20, 10))
			case 1: // does not
				err = call.Close()
			case 2: // is never heard of again
			}
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		})
	}
	streams.Wait()
	s.wantTaken("four reported, four closed, four held", 4*30+4*70+4*70, 4*40+4*120+4*120)
	if again := open(); len(again) != 3 { // 680 and 210 are 890
		t.Errorf("got %d streams of 20 opened, want 3", len(again))
	}
	s.clock.Add(10*time.Minute + time.Second)
	s.wantTaken("what was held has come back", 400, 640)
}

// Streams that open and end all the time never hold more than there is.
func TestStreamsHold(t *testing.T) {
	s := newSpenders(t, spend.Budget{Name: "ai", Tokens: 1000, USD: 1_000_000, CloseAt: 1_000_000})
	guards := s.guards()
	var held, most, opened atomic.Int64
	var streams sync.WaitGroup
	for i := range 20 {
		streams.Go(func() {
			size := uint64(60 + 7*i) // 60 to 193
			for range rounds(15, 100) {
				call, err := guards[i%2].Authorize(t.Context(), askFor(size, 0))
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
					return
				}
				if call.Route != wire.RouteModel {
					continue
				}
				opened.Add(1)
				now := held.Add(int64(size)) // at most what is held: it was before, and is yet
				for was := most.Load(); now > was && !most.CompareAndSwap(was, now); {
					was = most.Load()
				}
				held.Add(-int64(size))
				_, err = call.Settle(wire.SpendUsage{Route: wire.RouteFallback})
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
				}
			}
		})
	}
	streams.Wait()
	if most.Load() > 1000 || opened.Load() == 0 {
		t.Errorf("got %d tokens held at once by %d streams, want at most 1,000",
			most.Load(), opened.Load())
	}
	s.wantTaken("after all streams", 0, 0)
}

// testSpendExactly: a budget of 10.00 USD that closes at its end, or of a fifth of that, admits 2,500
// calls that cost 0.004 each, or a fifth of them.
func testSpendExactly(t *testing.T) {
	calls := rounds(500, 2500)
	s := newSpenders(t, spend.Budget{
		Name: "ai", USD: uint64(calls) * 4000, CloseAt: 1_000_000,
	})
	ask := askFor(600, 400)
	ask.Model = "exact"
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for i, g := range s.guards() {
		callers.Go(func() {
			for {
				r, err := g.Do(t.Context(), ask, func(context.Context) (wire.SpendUsage, error) {
					return took(500, 500), nil
				}, func(context.Context, string) error { return nil })
				if err != nil {
					t.Errorf("server %d: %v", i, err)
				}
				if err != nil || r.Route != wire.RouteModel {
					return
				}
				admitted.Add(1)
			}
		})
	}
	callers.Wait()
	if admitted.Load() != int64(calls) {
		t.Errorf("got %d calls admitted, want %d", admitted.Load(), calls)
	}
	b, err := s.clients[0].Balance(t.Context(), "ai:usd", "feature")
	all := fmt.Sprintf("%d.000000", calls/250)
	if err != nil || b.Used.String() != all || b.Quota.String() != all || b.Remaining.String() != "0.000000" ||
		b.Overage.Units != 0 {
		t.Errorf("got %+v and error %v, want %s used", b, err, all)
	}
	ask.InputTokens, ask.MaxOutputTokens = 1, 0
	s.wantClosed(ask)
}

// BenchmarkGuard measures what a guard adds to a call, as it is for an application: one caller, over
// HTTP, on a durable ledger, around a function that does nothing. p50-us and p99-us are of a call.
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
