package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

const prompt = "Why is the sky blue?" // 20 characters, 5 tokens

// start starts a weir with a budget of so many tokens, a model, and the assistant between them.
func start(t *testing.T, tokens uint64, behavior string) (*assistant, *client.Client) {
	t.Helper()
	model, err := startStub(behavior)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Close)
	c, err := client.New(startWeir(t, tokens), &client.Options{Token: "user", AdminToken: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	return &assistant{
		guard: c.NewGuard("llm-daily", &client.GuardOptions{
			Backoff: time.Millisecond, CallTimeout: 200 * time.Millisecond,
		}),
		model: provider{model.URL},
	}, c
}

// settled reads the day and returns what its calls took, after it has seen that each is settled.
func settled(t *testing.T, c *client.Client) (tokens uint64, calls int) {
	t.Helper()
	day, err := c.SpendJournal(t.Context(), client.SpendQuery{Budget: "llm-daily", Subject: "alice"})
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
	return tokens, calls
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
			a, weir := start(t, 10_000, c.behavior)
			text, result, err := a.answer(t.Context(), "alice", prompt)
			want := "Forty-two, they say."
			if c.route == wire.RouteFallback {
				want = fallback(c.reason, prompt)
			}
			if err != nil || text != want || result.Route != c.route || result.Reason != c.reason ||
				result.Attempts != c.calls || result.Settlement.Estimated != c.estimated {
				t.Errorf("got %q by %+v and error %v, want %q", text, result, err, want)
			}
			tokens, calls := settled(t, weir)
			if tokens != c.tokens || calls != c.calls {
				t.Errorf("got %d tokens in %d calls, want %d in %d", tokens, calls, c.tokens, c.calls)
			}
		})
	}
}

func TestBudgetEnds(t *testing.T) {
	a, weir := start(t, 1000, "answers") // closes at 900
	routes := map[string]int{}
	for range 100 {
		_, result, err := a.answer(t.Context(), "alice", prompt)
		if err != nil {
			t.Fatal(err)
		}
		routes[result.Route]++
	}
	// A call holds 205 and takes 8: it passes while 8n + 205 <= 900, for n from 0 to 86.
	tokens, calls := settled(t, weir)
	if routes[wire.RouteModel] != 87 || calls != 87 || tokens != 87*8 {
		t.Errorf("got routes %v and %d tokens in %d calls, want 87 calls", routes, tokens, calls)
	}
}

func TestCanceled(t *testing.T) {
	a, weir := start(t, 1000, "hangs")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	time.AfterFunc(50*time.Millisecond, cancel)
	_, result, err := a.answer(ctx, "alice", prompt)
	if !errors.Is(err, context.Canceled) || result.Route != wire.RouteError {
		t.Errorf("got %+v and error %v, want it canceled", result, err)
	}
	tokens, _ := settled(t, weir)
	if tokens != 5 && tokens != 5+2 { // before or after the first piece
		t.Errorf("got %d tokens, want the input and what came of the output", tokens)
	}
}

func TestRun(t *testing.T) {
	t.Setenv("WEIR_TOKEN", "user")
	var out bytes.Buffer
	err := run([]string{"-weir", startWeir(t, 1000), "-subject", "alice", prompt}, &out)
	want := "Forty-two, they say.\n\nroute model, 1 calls, the last for 8 tokens and 0.000008 USD\n"
	if err != nil || out.String() != want {
		t.Errorf("got %q and error %v, want %q", out.String(), err, want)
	}
	err = run([]string{"-stub", "sings"}, &out)
	if err == nil || !strings.Contains(err.Error(), "-stub sings") {
		t.Errorf("got error %v, want it to name the flag", err)
	}
}
