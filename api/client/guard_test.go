package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

// ask is for 30 tokens in and at most 30 out.
var ask = client.Ask{
	Subject: "u", Model: "small", Input: strings.Repeat("é", 118), MaxOutputTokens: 30,
}

func usage(input, output uint64) wire.SpendUsage {
	return wire.SpendUsage{
		InputTokens: new(wire.Count(input)), OutputTokens: new(wire.Count(output)),
	}
}

// answers is a model that answers, and says how much that took.
func answers(input, output uint64) func(context.Context) (wire.SpendUsage, error) {
	return func(context.Context) (wire.SpendUsage, error) { return usage(input, output), nil }
}

// throws is a model that fails.
func throws(err error) func(context.Context) (wire.SpendUsage, error) {
	return func(context.Context) (wire.SpendUsage, error) { return wire.SpendUsage{}, err }
}

// hanging is a model that takes as long as it may.
func hanging(ctx context.Context) (wire.SpendUsage, error) {
	<-ctx.Done()
	return wire.SpendUsage{}, ctx.Err()
}

// recorded is a fallback that keeps the reasons it was called for.
type recorded []string

func (r *recorded) fallback(_ context.Context, reason string) error {
	*r = append(*r, reason)
	return nil
}

// TestBudget makes 40 calls of 30 tokens in and 30 out against a budget of 1,000. Each may be made
// while what is booked, and the 60 of the next, are at most 900: so 15 are.
func TestBudget(t *testing.T) {
	b := &budget{tokens: 1000}
	g := b.guard(t, client.GuardOptions{})
	var reasons recorded
	for i := range 40 {
		r, err := g.Do(t.Context(), ask, answers(30, 30), reasons.fallback)
		want := wire.RouteModel
		if i >= 15 {
			want = wire.RouteFallback
		}
		if err != nil || r.Route != want || r.Err != nil || r.Unsettled != nil {
			t.Errorf("call %d: got %+v and error %v, want route %s", i, r, err, want)
		}
		if i == 0 && (r.Settlement == nil || r.Settlement.Booked != spend(60) || r.Attempts != 1) {
			t.Errorf("got %+v, want 60 tokens booked by one attempt", r)
		}
	}
	b.check(t)
	if b.spent != 900 || b.closed != 25 || len(reasons) != 25 || reasons[24] != wire.ReasonTokens {
		t.Errorf("got %d tokens spent, closed %d times for %q", b.spent, b.closed, reasons)
	}
}

// TestProviderFails has every kind of failure: those that pass are tried three times, each attempt
// is under the gate, and its input of 30 is booked.
func TestProviderFails(t *testing.T) {
	cases := []struct {
		name     string
		err      error
		kind     string
		attempts int
	}{
		{"RateLimited", &client.ProviderError{Status: 429}, wire.ErrorRateLimited, 3},
		{"Unavailable", &client.ProviderError{Status: 503}, wire.ErrorProvider, 3},
		{"Wrapped", fmt.Errorf("sdk: %w", &client.ProviderError{Status: 500, Err: io.EOF}),
			wire.ErrorProvider, 3},
		{"RequestTimeout", &client.ProviderError{Status: 408}, wire.ErrorTimeout, 3},
		{"Timeout", &client.ProviderError{Err: context.DeadlineExceeded}, wire.ErrorTimeout, 3},
		{"Cut", fmt.Errorf("read: %w", io.ErrUnexpectedEOF), wire.ErrorProvider, 3},
		{"BadRequest", &client.ProviderError{Status: 400}, wire.ErrorOther, 1},
		{"Bug", io.EOF, wire.ErrorOther, 1},
		{"PatienceEnds", &client.ProviderError{Status: 429, RetryAfter: time.Hour},
			wire.ErrorRateLimited, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &budget{tokens: 1000}
				var reasons recorded
				g := b.guard(t, client.GuardOptions{})
				r, err := g.Do(t.Context(), ask, throws(c.err), reasons.fallback)
				route, passes := wire.RouteFallback, c.name != "Bug" && c.name != "BadRequest"
				if !passes {
					route = wire.RouteError
				}
				if r.Route != route || r.Reason != c.kind || r.Attempts != c.attempts ||
					!errors.Is(r.Err, c.err) || passes == (err != nil) || passes != (len(reasons) == 1) {
					t.Errorf("got %+v, error %v and fallbacks for %q", r, err, reasons)
				}
				b.check(t)
				if b.spent != uint64(30*c.attempts) || len(b.asked) != c.attempts {
					t.Errorf("got %d spent in %d authorizations, want 30 each", b.spent, len(b.asked))
				}
				for _, u := range b.settled {
					if u.Route != wire.RouteError || u.Error != c.kind || u.InputTokens != nil {
						t.Errorf("got %+v settled, want the error", u)
					}
				}
			})
		})
	}
}

func TestProviderRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{tokens: 1000}
		start := time.Now()
		var at []time.Duration
		r, err := b.guard(t, client.GuardOptions{}).Do(t.Context(), ask,
			func(context.Context) (wire.SpendUsage, error) {
				at = append(at, time.Since(start))
				switch len(at) {
				case 1:
					return usage(25, 4), &client.ProviderError{Status: 429, RetryAfter: 7 * time.Second}
				case 2:
					return wire.SpendUsage{}, &client.ProviderError{Status: 500}
				}
				return usage(28, 9), nil
			}, nil)
		if err != nil || r.Route != wire.RouteModel || r.Reason != "" || r.Attempts != 3 ||
			r.Err != nil || r.Settlement.Booked != spend(37) {
			t.Errorf("got %+v and error %v, want the third attempt's answer", r, err)
		}
		pause := at[2] - at[1] // base 500 ms, doubled once
		if at[1] != 7*time.Second || pause < time.Second || pause > 2*time.Second {
			t.Errorf("got attempts at %v, want a wait of 7 s and one of 1 to 2 s", at)
		}
		b.check(t)
		if b.spent != 29+30+37 {
			t.Errorf("got %d spent, want what each attempt took", b.spent)
		}
	})
}

// TestRunaway calls a provider that never answers, for ever.
func TestRunaway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{tokens: 1000}
		g := b.guard(t, client.GuardOptions{CallTimeout: 10 * time.Second})
		made := 0
		var reasons recorded
		for range 500 {
			r, err := g.Do(t.Context(), ask, func(ctx context.Context) (wire.SpendUsage, error) {
				made++
				return hanging(ctx)
			}, reasons.fallback)
			if err != nil || r.Route != wire.RouteFallback {
				t.Fatalf("got %+v and error %v, want the fallback", r, err)
			}
		}
		b.check(t)
		// A call of 60 passes up to 840 booked, which 29 failures of 30 are within the first time.
		if made != 29 || b.spent != 870 || len(reasons) != 500 || reasons[499] != wire.ReasonTokens {
			t.Errorf("got %d calls and %d tokens, last for %q", made, b.spent, reasons[499])
		}
	})
}

// tidy:table a list of subtests, one for each way a call can end
func TestCallEnds(t *testing.T) {
	t.Run("Panic", func(t *testing.T) {
		b := &budget{tokens: 1000}
		g := b.guard(t, client.GuardOptions{})
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic is not the function's")
				}
			}()
			_, _ = g.Do(t.Context(), ask, func(context.Context) (wire.SpendUsage, error) {
				panic("boom")
			}, nil)
		}()
		b.check(t)
		if len(b.settled) != 1 || b.settled[0].Error != wire.ErrorOther || b.spent != 30 {
			t.Errorf("got %+v settled and %d spent, want an error", b.settled, b.spent)
		}
	})
	t.Run("Canceled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &budget{tokens: 1000}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			var reasons recorded
			r, err := b.guard(t, client.GuardOptions{}).Do(ctx, ask,
				func(ctx context.Context) (wire.SpendUsage, error) {
					<-ctx.Done()
					return usage(30, 2), errors.New("an SDK's own error")
				}, reasons.fallback)
			if !errors.Is(err, context.Canceled) || r.Route != wire.RouteError || len(reasons) > 0 {
				t.Errorf("got %+v and error %v, want it canceled", r, err)
			}
			b.check(t)
			if b.settled[0].Error != wire.ErrorCanceled || b.spent != 32 {
				t.Errorf("got %+v settled and %d spent", b.settled, b.spent)
			}
		})
	})
	t.Run("CanceledInPause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &budget{tokens: 1000}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			var reasons recorded
			_, err := b.guard(t, client.GuardOptions{}).Do(ctx, ask,
				throws(&client.ProviderError{Status: 500}), reasons.fallback)
			if err == nil || len(reasons) > 0 || len(b.asked) != 1 {
				t.Errorf("got error %v, fallbacks %q and %d attempts", err, reasons, len(b.asked))
			}
			b.check(t)
		})
	})
	t.Run("CanceledWhileAway", func(t *testing.T) { // is no outage
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			var reasons recorded
			for _, failOpen := range []bool{false, true} {
				r, err := within(t, proxies(502), client.Options{}).NewGuard("llm",
					&client.GuardOptions{FailOpen: failOpen}).Do(ctx, ask, answers(1, 1), reasons.fallback)
				if err == nil || r.Route != wire.RouteError || r.Attempts != 0 || len(reasons) > 0 {
					t.Errorf("got %+v, error %v and fallbacks for %q", r, err, reasons)
				}
			}
		})
	})
	t.Run("Deadline", func(t *testing.T) { // of the caller, who wants the fallback by then
		synctest.Test(t, func(t *testing.T) {
			b := &budget{tokens: 1000}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var reasons recorded
			r, err := b.guard(t, client.GuardOptions{}).Do(ctx, ask, hanging, reasons.fallback)
			if err != nil || r.Route != wire.RouteFallback || r.Reason != wire.ErrorTimeout ||
				r.Attempts != 1 {
				t.Errorf("got %+v and error %v, want the fallback", r, err)
			}
			b.check(t)
		})
	})
	t.Run("HoldIsOver", func(t *testing.T) { // no call takes longer than what it may cost is held
		synctest.Test(t, func(t *testing.T) {
			b := &budget{tokens: 1000}
			start := time.Now()
			_, _ = b.guard(t, client.GuardOptions{CallTimeout: time.Hour, Retries: -1}).Do(t.Context(),
				ask, hanging, nil)
			if time.Since(start) != time.Minute {
				t.Errorf("it took %v, want the minute that is held", time.Since(start))
			}
		})
	})
	t.Run("NoFallback", func(t *testing.T) {
		b := &budget{tokens: 50}
		g := b.guard(t, client.GuardOptions{})
		r, err := g.Do(t.Context(), ask, answers(1, 1), nil)
		if err != nil || r.Route != wire.RouteFallback || r.Reason != wire.ReasonTokens {
			t.Errorf("got %+v and error %v, want a closed gate", r, err)
		}
		b.tokens = 1000
		failure := &client.ProviderError{Status: 500}
		g = b.guard(t, client.GuardOptions{Retries: -1})
		r, err = g.Do(t.Context(), ask, throws(failure), nil)
		if !errors.Is(err, failure) || r.Route != wire.RouteError || r.Reason != wire.ErrorProvider {
			t.Errorf("got %+v and error %v, want the provider's error", r, err)
		}
	})
	t.Run("FallbackFails", func(t *testing.T) {
		b := &budget{}
		r, err := b.guard(t, client.GuardOptions{}).Do(t.Context(), ask, answers(1, 1),
			func(context.Context, string) error { return io.EOF })
		if !errors.Is(err, io.EOF) || r.Route != wire.RouteFallback {
			t.Errorf("got %+v and error %v, want the fallback's error", r, err)
		}
	})
}

// TestGuardWithoutWeir has all that weir can say or not say, for both policies.
func TestGuardWithoutWeir(t *testing.T) {
	cases := []struct {
		name         string
		away         http.HandlerFunc
		closed, open string // the routes
		reason       string
	}{
		{"Hangs", hangs, wire.RouteFallback, wire.RouteModel, client.ReasonAway},
		{"BadGateway", proxies(502), wire.RouteFallback, wire.RouteModel, client.ReasonAway},
		{"LedgerAway", fails(wire.CodeLedgerUnavailable, "1"), wire.RouteFallback,
			wire.RouteFallback, string(wire.CodeLedgerUnavailable)},
		{"Busy", fails(wire.CodeBusy, "1"), wire.RouteFallback, wire.RouteFallback,
			string(wire.CodeBusy)},
		{"Closed", says(wire.Authorization{
			Route: wire.RouteFallback, Reason: wire.ReasonUSD,
		}), wire.RouteFallback, wire.RouteFallback, wire.ReasonUSD},
		{"Degraded", says(wire.Authorization{Route: wire.RouteModel}), wire.RouteModel,
			wire.RouteModel, ""},
		{"UnknownBudget", fails(wire.CodeUnknownLimit, ""), wire.RouteError, wire.RouteError, ""},
		{"Unauthorized", fails(wire.CodeUnauthorized, ""), wire.RouteError, wire.RouteError, ""},
		{"NotWeir", proxies(404), wire.RouteError, wire.RouteError, ""},
	}
	for _, c := range cases {
		for failOpen, want := range map[bool]string{false: c.closed, true: c.open} {
			t.Run(fmt.Sprintf("%s/%t", c.name, failOpen), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := within(t, c.away, client.Options{}).NewGuard("llm",
						&client.GuardOptions{FailOpen: failOpen})
					var reasons recorded
					r, err := g.Do(t.Context(), ask, answers(1, 1), reasons.fallback)
					if r.Route != want || r.Reason != c.reason || (err != nil) != (want == wire.RouteError) ||
						r.Settlement != nil || r.Unsettled != nil ||
						(len(reasons) == 1) != (want == wire.RouteFallback) {
						t.Errorf("got %+v, error %v and fallbacks for %q, want route %s", r, err, reasons, want)
					}
				})
			})
		}
	}
}

func TestSettleIsLost(t *testing.T) {
	// lost has the first n answers to settlements lost, after they were made.
	lost := func(b *budget, n int) {
		b.away = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/settle") || n == 0 {
				return false
			}
			n--
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := &budget{tokens: 1000}
		lost(b, 2)
		r, err := b.guard(t, client.GuardOptions{}).Do(t.Context(), ask, answers(20, 10), nil)
		if err != nil || r.Unsettled != nil || r.Settlement.Booked != spend(30) {
			t.Errorf("got %+v and error %v, want it settled the third time", r, err)
		}
		b.check(t)
		b = &budget{tokens: 1000}
		lost(b, 3)
		r, err = b.guard(t, client.GuardOptions{}).Do(t.Context(), ask, answers(20, 10), nil)
		if err != nil || r.Route != wire.RouteModel || r.Settlement != nil ||
			!client.IsAway(r.Unsettled) || r.Transfer != "00000000000000000000000000000001" ||
			!strings.Contains(r.Unsettled.Error(), r.Transfer) {
			t.Errorf("got %+v and error %v, want the model's answer, and it unsettled", r, err)
		}
	})
}

// refusedUsage is one that weir refuses.
var refusedUsage = wire.SpendUsage{
	InputTokens: new(wire.Count(5)), CachedTokens: new(wire.Count(50)),
}

// TestUsageIsRefused has calls that are booked as estimated, and a caller who is told.
func TestUsageIsRefused(t *testing.T) {
	for route, c := range map[string]struct {
		err    error
		booked uint64
	}{
		wire.RouteModel: {nil, 60},
		wire.RouteError: {&client.ProviderError{Status: 400}, 30},
	} {
		b := &budget{tokens: 1000}
		r, err := b.guard(t, client.GuardOptions{Run: client.RunCap{Tokens: 100}}).Do(t.Context(), ask,
			func(context.Context) (wire.SpendUsage, error) { return refusedUsage, c.err }, nil)
		e, ok := errors.AsType[*client.Error](r.Unsettled)
		if !errors.Is(err, c.err) || r.Route != route || !ok || e.Code != wire.CodeBadRequest ||
			r.Settlement == nil || r.Settlement.Booked != spend(c.booked) || b.spent != c.booked {
			t.Errorf("got %+v and error %v, want %d booked for route %s", r, err, c.booked, route)
		}
		b.check(t)
	}
}

// TestReopensAt has a closed gate that says when it opens.
func TestReopensAt(t *testing.T) {
	midnight := wire.Time{Time: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}
	b := &budget{tokens: 1000, reopens: &midnight}
	g := b.guard(t, client.GuardOptions{})
	big := ask
	big.MaxOutputTokens = 871 // with the input of 30 one more than 900
	var reasons recorded
	for _, c := range []struct {
		ask  client.Ask
		want *wire.Time
	}{{ask, nil}, {big, &midnight}} {
		r, err := g.Do(t.Context(), c.ask, answers(1, 1), reasons.fallback)
		if err != nil || (r.ReopensAt == nil) != (c.want == nil) ||
			c.want != nil && !r.ReopensAt.Equal(c.want.Time) {
			t.Errorf("got %+v and error %v, want it to reopen at %v", r, err, c.want)
		}
	}
}

// tidy:table a list of subtests
func TestCallHandle(t *testing.T) {
	open := func(t *testing.T, b *budget) *client.Call {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel() // the request is over before its stream is
		call, err := b.guard(t, client.GuardOptions{}).Authorize(ctx, ask)
		if err != nil {
			t.Fatal(err)
		}
		return call
	}
	t.Run("OK", func(t *testing.T) {
		b := &budget{tokens: 1000}
		call := open(t, b)
		if call.Route != wire.RouteModel || call.Reserved != spend(60) {
			t.Errorf("got %+v, want 60 reserved", call.Authorization)
		}
		first, err := call.Settle(usage(20, 5))
		if err != nil || first.Booked != spend(25) {
			t.Errorf("got %+v and error %v, want 25 booked", first, err)
		}
		again, err := call.Settle(usage(7, 7))
		if err != nil || again != first {
			t.Errorf("got %+v and error %v, want what was settled", again, err)
		}
		err = call.Close()
		if err != nil || len(b.settled) != 1 {
			t.Errorf("got error %v and %+v settled, want it once", err, b.settled)
		}
	})
	t.Run("Abandoned", func(t *testing.T) {
		b := &budget{tokens: 1000}
		call := open(t, b)
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				err := call.Close()
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if len(b.settled) != 1 || b.spent != 60 {
			t.Errorf("got %+v settled and %d spent, want all that was reserved", b.settled, b.spent)
		}
	})
	t.Run("Failed", func(t *testing.T) {
		b := &budget{tokens: 1000}
		call := open(t, b)
		defer call.Close()
		_, err := call.Fail(usage(30, 12), io.ErrUnexpectedEOF)
		if err != nil || b.spent != 42 || b.settled[0].Error != wire.ErrorProvider {
			t.Errorf("got error %v and %+v settled, want 42 for a failure", err, b.settled)
		}
	})
	t.Run("Closed", func(t *testing.T) {
		call := open(t, &budget{})
		s, err := call.Settle(usage(1, 1))
		if err != nil || s.Transfer != "" || call.Route != wire.RouteFallback || call.Close() != nil {
			t.Errorf("got %+v and error %v, want nothing to settle", s, err)
		}
	})
	t.Run("ErrSettled", func(t *testing.T) { // with what is not the server's to decide
		b := &budget{tokens: 1000}
		call := open(t, b)
		b.held = nil
		_, err := call.Settle(usage(1, 1))
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.Code != wire.CodeReservationUnknown {
			t.Errorf("got error %v, want reservation-unknown", err)
		}
		err = call.Close() // leaves it to whoever got the error
		if err != nil {
			t.Errorf("got error %v, want nothing estimated", err)
		}
	})
	t.Run("ErrUsage", func(t *testing.T) { // one that weir refuses does not make the call free
		b := &budget{tokens: 1000}
		call := open(t, b)
		s, err := call.Settle(refusedUsage)
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.Code != wire.CodeBadRequest || s.Booked != spend(60) || !s.Estimated {
			t.Errorf("got %+v and error %v, want the estimate of 60 and bad-request", s, err)
		}
		again, err := call.Settle(usage(7, 7))
		if err != nil || again != s || call.Close() != nil || len(b.settled) != 1 {
			t.Errorf("got %+v and error %v, want what was settled", again, err)
		}
	})
	t.Run("Values", func(t *testing.T) { // of the context, such as a trace's, outlive its end
		type key struct{}
		b := &budget{tokens: 1000}
		var seen any
		b.away = func(_ http.ResponseWriter, r *http.Request) bool {
			seen = r.Context().Value(key{})
			return false
		}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
		call, err := b.guard(t, client.GuardOptions{}).Authorize(ctx, ask)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		seen = nil
		err = call.Close()
		if err != nil || seen != "trace" {
			t.Errorf("got error %v and value %v", err, seen)
		}
	})
}

// tidy:table a list of subtests, one for each cap
func TestRunCap(t *testing.T) {
	// made runs 50 workers with 4 calls each, and returns how many reached the model.
	made := func(t *testing.T, b *budget, most client.RunCap, take uint64) int {
		t.Helper()
		g := b.guard(t, client.GuardOptions{Run: most})
		var mu sync.Mutex
		calls := 0
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				for range 4 {
					r, err := g.Do(t.Context(), ask, func(context.Context) (wire.SpendUsage, error) {
						mu.Lock()
						defer mu.Unlock()
						calls++
						return usage(take/2, take-take/2), nil
					}, nil)
					if err != nil || r.Route != wire.RouteModel && r.Reason != client.ReasonRunCap {
						t.Errorf("got %+v and error %v", r, err)
					}
				}
			})
		}
		group.Wait()
		b.check(t)
		return calls
	}
	t.Run("Calls", func(t *testing.T) {
		got := made(t, &budget{tokens: 1 << 40}, client.RunCap{Calls: 17}, 60)
		if got != 17 {
			t.Errorf("got %d calls, want 17", got)
		}
	})
	t.Run("Tokens", func(t *testing.T) {
		b := &budget{tokens: 1 << 40}
		got := made(t, b, client.RunCap{Tokens: 1000}, 60)
		if got != 16 || b.spent != 960 { // 16 times 60, exactly as estimated
			t.Errorf("got %d calls and %d tokens, want 16 and 960", got, b.spent)
		}
	})
	t.Run("USD", func(t *testing.T) {
		b := &budget{tokens: 1 << 40}
		got := made(t, b, client.RunCap{USDMicros: 1000}, 60)
		if got != 16 || b.spent != 960 {
			t.Errorf("got %d calls for %d millionths, want 16 for 960", got, b.spent)
		}
	})
	t.Run("Adjusted", func(t *testing.T) { // what was not taken is there for others
		b := &budget{tokens: 1 << 40}
		g := b.guard(t, client.GuardOptions{Run: client.RunCap{Tokens: 100, USDMicros: 100}})
		var routes []string
		for range 8 {
			r, err := g.Do(t.Context(), ask, answers(5, 5), nil)
			if err != nil {
				t.Fatal(err)
			}
			routes = append(routes, r.Route)
		}
		// After n calls of 10, one of 60 fits while 10n+60 <= 100: five of them.
		if b.spent != 50 || routes[4] != wire.RouteModel || routes[5] != wire.RouteFallback {
			t.Errorf("got %d tokens by %q, want five calls", b.spent, routes)
		}
	})
	t.Run("UsedUp", func(t *testing.T) { // nobody is asked any more
		for _, most := range []client.RunCap{{Calls: 1}, {Tokens: 60}, {USDMicros: 60}} {
			b := &budget{tokens: 1000}
			g := b.guard(t, client.GuardOptions{Run: most})
			for range 3 {
				_, err := g.Do(t.Context(), ask, answers(30, 30), nil)
				if err != nil {
					t.Fatal(err)
				}
			}
			if len(b.asked) != 1 {
				t.Errorf("%+v: got %d authorizations, want 1", most, len(b.asked))
			}
		}
	})
	t.Run("NotMade", func(t *testing.T) { // counts for nothing
		b := &budget{tokens: 1000}
		g := b.guard(t, client.GuardOptions{Run: client.RunCap{Calls: 1, Tokens: 60, USDMicros: 60}})
		b.away = func(w http.ResponseWriter, r *http.Request) bool {
			fails(wire.CodeUnknownLimit, "")(w, r)
			return true
		}
		_, err := g.Authorize(t.Context(), ask)
		if err == nil {
			t.Error("got no error")
		}
		b.away = nil
		for range 3 {
			call, err := g.Authorize(t.Context(), ask)
			if err != nil || call.Route != wire.RouteModel {
				t.Fatalf("got %+v and error %v, want it authorized", call, err)
			}
			_, err = call.Settle(wire.SpendUsage{Route: wire.RouteFallback})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("ClosedGate", func(t *testing.T) { // takes nothing of the run
		b := &budget{}
		g := b.guard(t, client.GuardOptions{Run: client.RunCap{Calls: 1}})
		for range 3 {
			r, err := g.Do(t.Context(), ask, answers(1, 1), nil)
			if err != nil || r.Reason != wire.ReasonTokens {
				t.Errorf("got %+v and error %v, want the budget closed", r, err)
			}
		}
	})
	t.Run("FailOpen", func(t *testing.T) {
		for most, want := range map[client.RunCap]int{
			{Calls: 2}: 2, {Tokens: 200}: 3, {USDMicros: 1 << 40}: 0,
		} {
			g := within(t, proxies(502), client.Options{Retries: -1}).NewGuard("llm",
				&client.GuardOptions{FailOpen: true, Run: most})
			got := 0
			for range 5 {
				r, err := g.Do(t.Context(), ask, answers(1, 1), nil)
				if err != nil {
					t.Fatal(err)
				}
				got += r.Attempts
			}
			if got != want {
				t.Errorf("%+v: got %d calls, want %d", most, got, want)
			}
		}
	})
}
