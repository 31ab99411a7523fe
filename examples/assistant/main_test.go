package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

const prompt = "Why is the sky blue?" // 20 characters, 5 tokens

// spender is an assistant under test and what it has around it.
type spender struct {
	*assistant
	*weir
	*client.Client
}

// start starts a weir with a budget of so many tokens, a model, and the assistant between them.
func start(t *testing.T, tokens uint64, behavior string) spender {
	t.Helper()
	model, err := startStub(behavior)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Close)
	w := startWeir(t, tokens)
	c, err := client.New(w.url, &client.Options{
		Token: "user", AdminToken: "admin", Backoff: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &assistant{
		guard: c.NewGuard("llm-daily", &client.GuardOptions{
			Backoff: time.Millisecond, CallTimeout: 200 * time.Millisecond,
		}),
		model: provider{model.URL},
	}
	return spender{a, w, c}
}

// settled reads the day and returns what its calls took, after it has seen that each is settled and
// nothing held: the balance is what they took, now and when all time-outs are over.
func (s spender) settled(t *testing.T) (tokens uint64, calls int) {
	t.Helper()
	day, err := s.SpendJournal(t.Context(), client.SpendQuery{Budget: "llm-daily", Subject: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{}
	for _, e := range day.Events {
		switch e.Event {
		case wire.EventAuthorize:
			open[e.Transfer] = true
			calls++
		case wire.EventSettle:
			delete(open, e.Transfer)
			tokens += e.InputTokens + e.OutputTokens
		}
	}
	if len(open) > 0 {
		t.Errorf("got calls %v open at the end of %+v", open, day.Events)
	}
	s.wantTaken(t, "at the end", tokens)
	s.advance(hold + time.Second)
	s.wantTaken(t, "when all time-outs are over", tokens)
	return tokens, calls
}

// wantTaken compares what is taken of the budget: used, held or overage.
func (s spender) wantTaken(t *testing.T, when string, tokens uint64) {
	t.Helper()
	b, err := s.Balance(t.Context(), "llm-daily:tokens", "alice")
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Used.Units + b.Overage.Units; got != tokens {
		t.Errorf("%s: got %d tokens taken, want %d", when, got, tokens)
	}
}

// TestEndings has every way in which a model can end a call.
func TestEndings(t *testing.T) {
	cases := []struct {
		behavior, route, reason string
		calls                   int
		tokens                  uint64
		estimated               bool
	}{
		{"answers", wire.RouteModel, "", 1, 5 + 3, false},
		{"streams", wire.RouteModel, "", 1, 5 + 3, false},
		{"omits", wire.RouteModel, "", 1, 5 + maxOutputTokens, true},
		{"breaks", wire.RouteFallback, wire.ErrorProvider, 3, 3 * (5 + 2), true}, // after "Forty-"
		{"hangs", wire.RouteFallback, wire.ErrorTimeout, 3, 3 * (5 + 2), true},
		{"limits", wire.RouteFallback, wire.ErrorRateLimited, 3, 3 * 5, true},
	}
	for _, c := range cases {
		t.Run(c.behavior, func(t *testing.T) {
			t.Parallel()
			a := start(t, 10_000, c.behavior)
			text, result, err := a.answer(t.Context(), "alice", prompt)
			want := "Forty-two, they say."
			if c.route == wire.RouteFallback {
				want = fallback(c.reason, prompt)
			}
			if err != nil || text != want || result.Route != c.route || result.Reason != c.reason ||
				result.Attempts != c.calls || result.Settlement.Estimated != c.estimated {
				t.Errorf("got %q by %+v and error %v, want %q", text, result, err, want)
			}
			tokens, calls := a.settled(t)
			if tokens != c.tokens || calls != c.calls {
				t.Errorf("got %d tokens in %d calls, want %d in %d", tokens, calls, c.tokens, c.calls)
			}
		})
	}
}

func TestBudgetEnds(t *testing.T) {
	a := start(t, 1000, "answers") // closes at 900
	routes := map[string]int{}
	for range 100 {
		_, result, err := a.answer(t.Context(), "alice", prompt)
		if err != nil {
			t.Fatal(err)
		}
		routes[result.Route]++
	}
	// A call holds 205 and takes 8: it passes while 8n + 205 <= 900, for n from 0 to 86.
	tokens, calls := a.settled(t)
	if routes[wire.RouteModel] != 87 || calls != 87 || tokens != 87*8 {
		t.Errorf("got routes %v and %d tokens in %d calls, want 87 calls", routes, tokens, calls)
	}
}

func TestCanceled(t *testing.T) {
	a := start(t, 1000, "hangs")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	time.AfterFunc(50*time.Millisecond, cancel)
	_, result, err := a.answer(ctx, "alice", prompt)
	if !errors.Is(err, context.Canceled) || result.Route != wire.RouteError {
		t.Errorf("got %+v and error %v, want it canceled", result, err)
	}
	tokens, _ := a.settled(t)
	if tokens != 5 && tokens != 5+2 { // before or after the first piece
		t.Errorf("got %d tokens, want the input and what came of the output", tokens)
	}
}

// TestNothingStaysHeld has the ways in which nobody settles a call: what it may cost is held, as it
// may have been spent, and comes back when the call has timed out.
func TestNothingStaysHeld(t *testing.T) {
	t.Run("Dies", func(t *testing.T) { // while the model answers
		s := start(t, 1000, "hangs")
		call, err := s.guard.Authorize(t.Context(), client.Ask{
			Subject: "alice", Model: model, Input: prompt, MaxOutputTokens: maxOutputTokens,
		})
		if err != nil || call.Route != wire.RouteModel {
			t.Fatalf("got %+v and error %v, want it allowed", call, err)
		}
		s.wantComesBack(t)
	})
	t.Run("WeirAway", func(t *testing.T) { // when the model has answered
		s := start(t, 1000, "answers")
		model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.away.Store(true)
			stub("answers").ServeHTTP(w, r)
		}))
		t.Cleanup(model.Close)
		s.model.url = model.URL
		text, result, err := s.answer(t.Context(), "alice", prompt)
		if err != nil || text != "Forty-two, they say." || result.Route != wire.RouteModel ||
			!client.IsAway(result.Unsettled) || result.Settlement != nil {
			t.Errorf("got %q by %+v and error %v, want the answer, unsettled", text, result, err)
		}
		text, result, err = s.answer(t.Context(), "alice", prompt)
		if err != nil || text != fallback(client.ReasonAway, prompt) || result.Attempts != 0 {
			t.Errorf("got %q by %+v and error %v, want the fallback", text, result, err)
		}
		s.away.Store(false)
		s.wantComesBack(t)
	})
}

// wantComesBack has one call held, of 5 tokens and 200, until it times out.
func (s spender) wantComesBack(t *testing.T) {
	t.Helper()
	s.advance(hold - time.Second)
	s.wantTaken(t, "a second before the time-out", 205)
	s.advance(2 * time.Second)
	s.wantTaken(t, "a second after it", 0)
}

func TestRun(t *testing.T) {
	t.Setenv("WEIR_TOKEN", "user")
	var out bytes.Buffer
	err := run([]string{"-weir", startWeir(t, 1000).url, "-subject", "alice", prompt}, &out)
	want := "Forty-two, they say.\n\nroute model, 1 calls, the last for 8 tokens and 0.000008 USD\n"
	if err != nil || out.String() != want {
		t.Errorf("got %q and error %v, want %q", out.String(), err, want)
	}
	err = run([]string{"-stub", "sings"}, &out)
	if err == nil || !strings.Contains(err.Error(), "-stub sings") {
		t.Errorf("got error %v, want it to name the flag", err)
	}
}
