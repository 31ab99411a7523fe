package client_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

// calls are one of each kind, and whether it is safe to make it again.
//
// tidy:table every call of the client, with the route that it asks for
var calls = []struct {
	route  string
	repeat bool
	make   func(context.Context, *client.Client) error
}{
	{"Post /v1/check", false, func(ctx context.Context, c *client.Client) error {
		return last(c.Check(ctx, wire.CheckRequest{Limit: "a", Subject: "u"}))
	}},
	{"Post /v1/check", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Check(ctx, wire.CheckRequest{Limit: "a", Subject: "u", ID: "i"}))
	}},
	{"Post /v1/check/batch", false, func(ctx context.Context, c *client.Client) error {
		return last(c.CheckBatch(ctx, []wire.CheckRequest{{ID: "i"}, {}}))
	}},
	{"Post /v1/check/batch", true, func(ctx context.Context, c *client.Client) error {
		return last(c.CheckBatch(ctx, []wire.CheckRequest{{ID: "i"}, {ID: "j"}}))
	}},
	{"Get /v1/gate", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Gate(ctx, "a", "u"))
	}},
	{"Post /v1/track", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Track(ctx, wire.TrackRequest{ID: "i"}))
	}},
	{"Get /v1/limits", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Limits(ctx))
	}},
	{"Get /v1/balance", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Balance(ctx, "a", "u"))
	}},
	{"Post /v1/reservations", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Reserve(ctx, wire.ReservationRequest{}))
	}},
	{"Post /v1/reservations/:transfer/settle", true,
		func(ctx context.Context, c *client.Client) error {
			return last(c.Settle(ctx, "r", wire.SettleRequest{}))
		}},
	{"Post /v1/reservations/:transfer/release", true,
		func(ctx context.Context, c *client.Client) error { return last(c.Release(ctx, "r")) }},
	{"Post /v1/reservations/:transfer/renew", true,
		func(ctx context.Context, c *client.Client) error {
			return last(c.Renew(ctx, "r", wire.RenewRequest{}))
		}},
	{"Post /v1/transfers", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Transfer(ctx, wire.TransferRequest{ID: "i"}))
	}},
	{"Get /v1/accounts", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Account(ctx, "USD", "u"))
	}},
	{"Post /v1/spend/authorize", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Authorize(ctx, wire.SpendRequest{}))
	}},
	{"Post /v1/spend/:transfer/settle", true, func(ctx context.Context, c *client.Client) error {
		return last(c.SettleSpend(ctx, "r", wire.SpendUsage{Route: wire.RouteModel}))
	}},
	{"Post /v1/admin/corrections", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Correct(ctx, wire.CorrectionRequest{ID: "i"}))
	}},
	{"Get /v1/admin/spend/journal", true, func(ctx context.Context, c *client.Client) error {
		return last(c.SpendJournal(ctx, client.SpendQuery{Budget: "b", Subject: "u"}))
	}},
	{"Post /v1/admin/grants", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Grant(ctx, wire.ChangeRequest{ID: "i"}))
	}},
	{"Post /v1/admin/revocations", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Revoke(ctx, wire.ChangeRequest{ID: "i"}))
	}},
	{"PUT /v1/admin/quota", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Override(ctx, wire.QuotaRequest{}))
	}},
	{"DELETE /v1/admin/quota", true, func(ctx context.Context, c *client.Client) error {
		return last(c.ClearOverride(ctx, "a", "u"))
	}},
	{"Post /v1/admin/deposits", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Deposit(ctx, wire.MovementRequest{ID: "i"}))
	}},
	{"Post /v1/admin/withdrawals", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Withdraw(ctx, wire.MovementRequest{ID: "i"}))
	}},
	{"Get /v1/admin/journal", true, func(ctx context.Context, c *client.Client) error {
		return last(c.Journal(ctx, client.JournalQuery{Limit: "a", Subject: "u"}))
	}},
	{"Get /healthz", false, func(ctx context.Context, c *client.Client) error {
		return last(c.Health(ctx))
	}},
	{"Get /readyz", false, func(ctx context.Context, c *client.Client) error {
		return last(c.Ready(ctx))
	}},
}

// last drops an answer.
func last[T any](_ T, err error) error { return err }

// TestEveryRoute has a call for all that the server serves but the metrics, which are Prometheus's
// to read.
func TestEveryRoute(t *testing.T) {
	var made []string
	for _, kind := range calls {
		made = append(made, strings.ToLower(kind.route))
		s := &script{steps: []http.HandlerFunc{proxies(http.StatusTeapot)}}
		_ = kind.make(t.Context(), within(t, s, client.Options{}))
		method, path, _ := strings.Cut(kind.route, " ")
		path = strings.Replace(path, ":transfer", "r", 1)
		if len(s.calls) != 1 || !strings.EqualFold(s.calls[0].method, method) ||
			s.calls[0].path != path {
			t.Errorf("%s: got calls %+v", kind.route, s.calls)
		}
	}
	for _, route := range serverRoutes(t) {
		if !slices.Contains(made, strings.ToLower(route)) && route != "Get /metrics" {
			t.Errorf("the client has no call for %s", route)
		}
	}
}

// TestRetry makes each call where there is no answer that counts: what is safe is asked for three
// times with the same words, the rest once.
func TestRetry(t *testing.T) {
	passing := map[string]http.HandlerFunc{
		"hang": hangs, "busy": fails(wire.CodeBusy, "1"),
		"ledger": fails(wire.CodeLedgerUnavailable, "1"), "502": proxies(502), "503": proxies(503),
		"504": proxies(504),
	}
	for name, step := range passing {
		for _, kind := range calls {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: []http.HandlerFunc{step}}
				err := kind.make(t.Context(), within(t, s, client.Options{UsageQueue: -1}))
				want := 1
				if kind.repeat {
					want = 3
				}
				if err == nil || len(s.calls) != want {
					t.Fatalf("%s, %s: got %d calls and error %v, want %d", kind.route, name,
						len(s.calls), err, want)
				}
				for _, c := range s.calls {
					if c.body != s.calls[0].body || c.path != s.calls[0].path {
						t.Errorf("%s, %s: got %+v, want the same as %+v", kind.route, name, c, s.calls[0])
					}
				}
			})
		}
	}
	t.Run("Answers", func(t *testing.T) { // for ever
		for _, step := range []http.HandlerFunc{
			denies(wire.Decision{RetryAfterMS: 1}), fails(wire.CodeInternal, ""), proxies(429),
			fails(wire.CodeIDConflict, ""), fails(wire.CodeCreditsExhausted, ""), proxies(500),
			fails(wire.CodeNotReady, "1"), proxies(404), fails(wire.CodeUnauthorized, ""),
		} {
			for _, kind := range calls {
				s := &script{steps: []http.HandlerFunc{step}}
				_ = kind.make(t.Context(), within(t, s, client.Options{}))
				if len(s.calls) != 1 {
					t.Errorf("%s: got %d calls, want 1", kind.route, len(s.calls))
				}
			}
		}
	})
	t.Run("Unsent", func(t *testing.T) { // is safe, whatever it is
		for _, kind := range calls {
			n := 0
			c := connectWith(t, client.Options{
				HTTPClient: &http.Client{Transport: unreachable{&n}}, Backoff: 1, Retries: 3,
				UsageQueue: -1,
			})
			err := kind.make(t.Context(), c)
			want := 4
			if strings.HasSuffix(kind.route, "z") {
				want = 1
			}
			if n != want || !client.IsAway(err) || !errors.Is(err, client.ErrNoAnswer) {
				t.Errorf("%s: got %d calls and error %v, want %d", kind.route, n, err, want)
			}
		}
	})
	t.Run("OK", func(t *testing.T) { // the second time, with an id that the client made
		synctest.Test(t, func(t *testing.T) {
			s := &script{steps: []http.HandlerFunc{hangs, says(wire.Authorization{Route: "model"})}}
			a, err := within(t, s, client.Options{}).Authorize(t.Context(), wire.SpendRequest{})
			if err != nil || a.Route != wire.RouteModel || len(idOf(t, s.calls[0])) < 20 {
				t.Errorf("got %+v, error %v and calls %+v", a, err, s.calls)
			}
		})
	})
}

var retried = wire.CheckRequest{Limit: "a", Subject: "u", ID: "i"}

// pauses makes a check and returns the pauses between its tries.
func pauses(t *testing.T, options client.Options, step http.HandlerFunc) []time.Duration {
	t.Helper()
	s := &script{steps: []http.HandlerFunc{step}}
	_, err := within(t, s, options).Check(t.Context(), retried)
	if err == nil {
		t.Fatal("got no error")
	}
	var between []time.Duration
	for i := 1; i < len(s.calls); i++ {
		between = append(between, s.calls[i].at.Sub(s.calls[i-1].at))
	}
	return between
}

func TestRetryPauses(t *testing.T) {
	t.Run("Backoff", func(t *testing.T) { // from base to twice that, where base doubles
		synctest.Test(t, func(t *testing.T) {
			distinct := map[time.Duration]bool{}
			for range 50 {
				got := pauses(t, client.Options{Retries: 10, Backoff: 100 * time.Millisecond}, proxies(502))
				want := 100 * time.Millisecond
				for i, pause := range got {
					if pause < want || pause > 2*want {
						t.Errorf("got %v as pause %d, want %v to %v", pause, i, want, 2*want)
					}
					distinct[pause] = true
					want = min(2*want, 30*time.Second)
				}
			}
			if len(distinct) < 400 {
				t.Errorf("got %d different pauses of 500", len(distinct))
			}
		})
	})
	t.Run("RetryAfter", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			got := pauses(t, client.Options{}, fails(wire.CodeBusy, "7"))
			if !slices.Equal(got, []time.Duration{7 * time.Second, 7 * time.Second}) {
				t.Errorf("got pauses %v, want 7 s", got)
			}
			got = pauses(t, client.Options{}, fails(wire.CodeBusy, "61"))
			if len(got) != 0 {
				t.Errorf("got pauses %v, want no wait for more than a minute", got)
			}
		})
	})
	t.Run("None", func(t *testing.T) {
		got := pauses(t, client.Options{Retries: -1}, proxies(502))
		if len(got) != 0 {
			t.Errorf("got pauses %v, want none", got)
		}
	})
}

func TestRetryEnds(t *testing.T) {
	t.Run("Deadline", func(t *testing.T) { // which no pause goes past
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			start := time.Now()
			s := &script{steps: []http.HandlerFunc{fails(wire.CodeBusy, "5")}}
			_, err := within(t, s, client.Options{}).Check(ctx, retried)
			e, ok := errors.AsType[*client.Error](err)
			if !ok || e.Code != wire.CodeBusy || len(s.calls) != 1 || time.Since(start) > 0 {
				t.Errorf("got %d calls in %v and error %v, want it at once", len(s.calls),
					time.Since(start), err)
			}
		})
	})
	t.Run("Canceled", func(t *testing.T) { // is no outage
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			s := &script{steps: []http.HandlerFunc{hangs}}
			_, err := within(t, s, client.Options{}).Check(ctx, retried)
			if !errors.Is(err, context.Canceled) || client.IsAway(err) || len(s.calls) != 1 {
				t.Errorf("got %d calls and error %v", len(s.calls), err)
			}
		})
	})
	t.Run("Timeout", func(t *testing.T) { // of each try
		synctest.Test(t, func(t *testing.T) {
			got := pauses(t, client.Options{Timeout: time.Second, Backoff: time.Millisecond}, hangs)
			if len(got) != 2 || got[0] < 1001*time.Millisecond || got[1] > 1004*time.Millisecond {
				t.Errorf("got pauses %v, want a second and some", got)
			}
		})
	})
}

func TestAway(t *testing.T) {
	for _, m := range wire.Meanings() {
		s := &script{steps: []http.HandlerFunc{fails(m.Code, "")}}
		_, err := within(t, s, client.Options{Retries: -1}).Limits(t.Context())
		if client.IsAway(err) {
			t.Errorf("%s: got %v for an outage", m.Code, err)
		}
	}
	for status, want := range map[int]bool{
		301: false, 401: false, 404: false, 429: false, 500: false, 502: true, 503: true, 504: true,
	} {
		s := &script{steps: []http.HandlerFunc{proxies(status)}}
		_, err := within(t, s, client.Options{Retries: -1}).Limits(t.Context())
		if client.IsAway(err) != want {
			t.Errorf("%d: got away %t, want %t", status, !want, want)
		}
	}
	if client.IsAway(nil) || client.IsAway(client.ErrNotUTF8) {
		t.Error("got an outage for what was never asked")
	}
}

func TestAwaitCheck(t *testing.T) {
	denied := denies(wire.Decision{RetryAfterMS: 2000, NewIDRequired: true})
	passed := says(wire.Decision{Allowed: true})
	check := wire.CheckRequest{Limit: "a", Subject: "u", ID: "i"}
	// ids asks and returns the ids of the attempts and how long it took.
	ids := func(t *testing.T, ctx context.Context, check wire.CheckRequest, steps ...http.HandlerFunc,
	) (wire.Decision, []string, time.Duration) {
		s := &script{steps: steps}
		start := time.Now()
		d, err := within(t, s, client.Options{}).AwaitCheck(ctx, check)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, c := range s.calls {
			ids = append(ids, idOf(t, c))
		}
		return d, ids, time.Since(start)
	}
	synctest.Test(t, func(t *testing.T) {
		d, got, took := ids(t, t.Context(), check, denied, denied, passed)
		if !d.Allowed || !slices.Equal(got, []string{"i", "i.2", "i.3"}) || took < 4*time.Second ||
			took > 4200*time.Millisecond {
			t.Errorf("got %+v by %q in %v, want it allowed by the third id in 4 s", d, got, took)
		}
		d, got, _ = ids(t, t.Context(), check, denied) // for ever
		if d.Allowed || len(got) != 3 {
			t.Errorf("got %+v by %q, want it denied three times", d, got)
		}
		d, got, took = ids(t, t.Context(), check, // begun before
			denies(wire.Decision{Replayed: true, NewIDRequired: true}), passed)
		if !d.Allowed || len(got) != 2 || took > 100*time.Millisecond {
			t.Errorf("got %+v by %q in %v, want it allowed at once", d, got, took)
		}
		d, got, _ = ids(t, t.Context(), check, denies(wire.Decision{})) // a quota of 0
		if d.Allowed || len(got) != 1 {
			t.Errorf("got %+v by %q, want one denial", d, got)
		}
		d, got, _ = ids(t, t.Context(), wire.CheckRequest{Limit: "a", Subject: "u"}, denied, passed)
		if !d.Allowed || !slices.Equal(got, []string{"", ""}) {
			t.Errorf("got %+v by %q, want no ids", d, got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		d, got, took = ids(t, ctx, check, denied, passed)
		if d.Allowed || len(got) != 1 || took > 0 {
			t.Errorf("got %+v by %q in %v, want the denial at once", d, got, took)
		}
	})
}

func TestAwaitAuthorize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := fixed() // of a ledger whose clock is not this one
		closed := says(wire.Authorization{
			Route: wire.RouteFallback, Reason: wire.ReasonTokens, At: wire.Time{Time: at},
			ReopensAt: &wire.Time{Time: at.Add(time.Hour)},
		})
		s := &script{steps: []http.HandlerFunc{closed, says(wire.Authorization{Route: "model"})}}
		start := time.Now()
		a, err := within(t, s, client.Options{}).AwaitAuthorize(t.Context(), wire.SpendRequest{})
		took := time.Since(start)
		if err != nil || a.Route != wire.RouteModel || took < time.Hour ||
			took > time.Hour+100*time.Millisecond {
			t.Errorf("got %+v and error %v in %v, want it to wait for an hour", a, err, took)
		}
		if idOf(t, s.calls[0]) == idOf(t, s.calls[1]) {
			t.Errorf("got the same id twice: %+v", s.calls)
		}
		never := says(wire.Authorization{Route: wire.RouteFallback, Reason: wire.ReasonTokens})
		s = &script{steps: []http.HandlerFunc{never}}
		a, err = within(t, s, client.Options{}).AwaitAuthorize(t.Context(), wire.SpendRequest{})
		if err != nil || a.Route != wire.RouteFallback || len(s.calls) != 1 {
			t.Errorf("got %+v and error %v after %d calls, want it closed", a, err, len(s.calls))
		}
	})
}
