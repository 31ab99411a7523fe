package api_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/api"
	"weir/api/wire"
	"weir/ledgers/ledgertest"
	"weir/limiter"
	"weir/limiter/spend"
)

// newSpending serves with both tokens and these budgets: ai closes at 9,000 tokens or 0.90 USD, usd
// at 0.045 USD, and wide at no number that a test comes near. A call of 1,000 tokens in and 500 out
// costs 0.0105 USD of the model big: 0.003 and 0.0075.
func newSpending(t testing.TB) *service {
	t.Helper()
	s := newService(t, api.Options{Token: "user", AdminToken: "admin"})
	const deadline = 10 * time.Second
	plan, err := spend.NewPlan([]spend.Budget{
		{Name: "ai", Tokens: 10_000, USD: 1_000_000, Hold: time.Minute, Deadline: deadline},
		{Name: "usd", USD: 50_000, Deadline: deadline, Timezone: "Europe/Berlin", Align: "day"},
		{Name: "wide", Tokens: 1_000_000_000, Hold: 12 * time.Hour, Deadline: deadline},
	}, []spend.Model{
		{Name: "big", Number: 7, Input: 3_000_000, Output: 15_000_000, Cached: 300_000},
		{Name: "free", Number: 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := limiter.NewRules(plan.Rules(testRules()))
	if err != nil {
		t.Fatal(err)
	}
	s.limiter.SetLimits(rules)
	breaker, err := spend.New(s.limiter, plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.server, err = api.New(s.limiter, &api.Options{
		Token: "user", AdminToken: "admin", Spend: breaker, Now: s.clock.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(s.server.Handler())
	t.Cleanup(listener.Close)
	s.url = listener.URL
	return s
}

const aiCall = `{"budget":"ai","subject":"u","model":"big","input_tokens":1000,` +
	`"max_output_tokens":500}`

// authorize asks for a call of the subject u on the budget ai, without an id if that is empty.
func (s *service) authorize(id string) answer {
	s.Helper()
	return s.post("/v1/spend/authorize", callWith(id))
}

func callWith(id string) string {
	if id == "" {
		return aiCall
	}
	return strings.Replace(aiCall, "{", fmt.Sprintf(`{"id":%q,`, id), 1)
}

// callOn is a call on another budget.
func callOn(budget string) string { return strings.Replace(aiCall, "ai", budget, 1) }

// settleCall settles the call with this receipt.
func (s *service) settleCall(receipt, body string, headers ...string) answer {
	s.Helper()
	return s.post("/v1/spend/"+receipt+"/settle", body, headers...)
}

// correctCall corrects the call with this receipt.
func (s *service) correctCall(receipt, id, usage string) answer {
	s.Helper()
	return s.admin("corrections", fmt.Sprintf(`{"transfer":%q,"id":%q,%s}`, receipt, id, usage))
}

// wantSpent compares what the balances of the subject u on the budget ai say is taken.
func (s *service) wantSpent(tokens, usd string) {
	s.Helper()
	const token = "Authorization: Bearer user"
	s.call("GET", "/v1/balance?limit=ai:tokens&subject=u", "", token).want(s, 200, "used", tokens)
	s.call("GET", "/v1/balance?limit=ai:usd&subject=u", "", token).want(s, 200, "used", usd)
}

// day reads a page of a budget's day.
func (s *service) day(query string) answer {
	s.Helper()
	return s.call("GET", "/v1/admin/spend/journal?"+query, "", "Authorization: Bearer admin")
}

// tidy:table a list of subtests
func TestAuthorize(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newSpending(t)
		a := s.authorize("")
		a.want(t, 200, "route", "model", "reason", "", "replayed", "false",
			path("reserved", "tokens"), "1500", path("reserved", "usd"), "0.010500",
			path("remaining", "tokens"), "8500", path("remaining", "usd"), "0.989500",
			"reopens_at", "")
		if len(a.field("transfer")) != 32 || !strings.Contains(a.text, `"usd":"0.010500"`) ||
			!strings.HasPrefix(a.field("expires_at"), "2026-03-01T12:01:00.") {
			t.Errorf("got %s, want a receipt, money as a string, and a minute to call", a.text)
		}
		a.wantHeader(t, "Cache-Control", "no-store")
		a.wantHeader(t, "RateLimit", "")
		a.wantHeader(t, "RateLimit-Policy", "")
		s.authorize("").want(t, 200, "replayed", "false") // each is a call of its own
		s.wantSpent("3000", "0.021000")
	})
	t.Run("Text", func(t *testing.T) { // one token for every four characters, rounded up
		s := newSpending(t)
		const body = `{"budget":"ai","subject":"u","model":"free",%s"max_output_tokens":"0"}`
		for input, want := range map[string]string{
			`"input_text":"1234",`: "1", `"input_text":"12345",`: "2", `"input_text":"äöüß€",`: "2",
			`"input_text":"1234","input_tokens":9,`: "9", `"input_tokens":"10",`: "10",
		} {
			s.post("/v1/spend/authorize", fmt.Sprintf(body, input)).
				want(t, 200, path("reserved", "tokens"), want, path("reserved", "usd"), "0.000000")
		}
	})
	t.Run("Replay", func(t *testing.T) {
		s := newSpending(t)
		first := s.authorize("a")
		s.authorize("a").want(t, 200, "route", "model", "replayed", "true",
			"transfer", first.field("transfer"), "at", first.field("at"),
			path("reserved", "tokens"), "1500")
		s.post("/v1/spend/authorize", aiCall, `Idempotency-Key: "a"`).
			want(t, 200, "replayed", "true", "transfer", first.field("transfer"))
		s.post("/v1/spend/authorize", callWith("b"), `Idempotency-Key: "a"`).want(t, 400)
		s.wantSpent("1500", "0.010500")
	})
	t.Run("ErrIDConflict", func(t *testing.T) {
		s := newSpending(t)
		s.authorize("a").want(t, 200)
		other := strings.Replace(callWith("a"), "1000", "999", 1)
		s.post("/v1/spend/authorize", other).want(t, 422, "code", "id-conflict")
		s.wantSpent("1500", "0.010500")
	})
	t.Run("ErrReservationClosed", func(t *testing.T) {
		s := newSpending(t)
		s.settleCall(s.authorize("a").field("transfer"), `{"route":"model"}`).want(t, 200)
		s.authorize("a").want(t, 409, "code", "reservation-closed")
	})
	t.Run("TokenBudget", func(t *testing.T) { // closes at 90 %, and opens the next day
		s := newSpending(t)
		for range 6 {
			s.authorize("").want(t, 200, "route", "model")
		}
		a := s.authorize("a")
		a.want(t, 200, "route", "fallback", "reason", "token-budget", "transfer", "",
			"expires_at", "", path("reserved", "tokens"), "0", path("reserved", "usd"), "0.000000",
			path("remaining", "tokens"), "1000")
		a.wantHeader(t, "Retry-After", "")
		// What is held comes back after a minute, before the day is over.
		if got := a.field("reopens_at"); !strings.HasPrefix(got, "2026-03-01T12:01:0") {
			t.Errorf("got reopens_at %q, want a minute later", got)
		}
		s.authorize("a").want(t, 200, "route", "fallback")
		s.clock.Add(12*time.Hour + time.Second)
		s.authorize("b").want(t, 200, "route", "model", path("remaining", "tokens"), "8500")
	})
	t.Run("USDBudget", func(t *testing.T) {
		s := newSpending(t)
		body := callOn("usd")
		for range 4 {
			s.post("/v1/spend/authorize", body).want(t, 200, "route", "model")
		}
		s.post("/v1/spend/authorize", body).want(t, 200, "route", "fallback", "reason", "usd-budget",
			path("remaining", "usd"), "0.008000")
	})
	t.Run("AboveAll", func(t *testing.T) { // waiting does not help
		s := newSpending(t)
		body := strings.Replace(aiCall, `1000`, `10000`, 1)
		s.post("/v1/spend/authorize", body).want(t, 200, "route", "fallback",
			"reason", "token-budget", "reopens_at", "", "remaining", "")
	})
	t.Run("ErrLedgerUnavailable", func(t *testing.T) {
		s := newSpending(t)
		s.authorize("a").want(t, 200)
		s.ledger.Inject(ledgertest.Fault{
			On: ledgertest.CallCreateTransfers, Before: errDown, Times: 1,
		})
		a := s.authorize("b")
		a.want(t, 503, "code", "ledger-unavailable")
		a.wantHeader(t, "Retry-After", "1")
	})
}

// tidy:table the fields of a request and what is wrong with them
func TestAuthorizeErrors(t *testing.T) {
	s := newSpending(t)
	for body, want := range map[string]string{
		`{}`:             "budget is missing",
		`{"budget":"x"}`: "model is missing",
		`{"budget":"ai","model":"big","max_output_tokens":1}`:                       "input_tokens and input_text",
		`{"budget":"ai","model":"big","input_text":"","max_output_tokens":1}`:       "input_text: an empty",
		`{"budget":"ai","model":"big","input_tokens":1}`:                            "max_output_tokens is missing",
		`{"budget":"ai","model":"big","input_tokens":1,"max_output_tokens":1}`:      "subject is missing",
		`{"budget":"ai","subject":"u","model":"x","input_tokens":1,%s}`:             `model "x"`,
		`{"budget":"ai","subject":"u","model":"big","input_tokens":"1.5",%s}`:       "input_tokens: want a whole",
		`{"budget":"ai","subject":"u","model":"big","input_tokens":1.5,%s}`:         "input_tokens",
		`{"budget":"ai","subject":"u","model":"big","input_tokens":-1,%s}`:          "input_tokens",
		`{"budget":"ai","subject":"u","model":"big","input_tokens":null,%s}`:        "input_tokens",
		`{"budget":"ai","subject":"u","model":"big","input_tokens":268435456,%s}`:   "input_tokens: want at most",
		`{"budget":"ai","subject":"u","model":"big","input_text":7,%s}`:             "input_text",
		`{"budget":"ai","subject":"u","model":"big","input_tokens":1,"cost":1,%s}`:  "cost",
		`{"budget":"ai","subject":"u","model":"big","input_tokens":1,"id":"\n",%s}`: "id",
		`{"budget":"ai","subject":"u","model":"big","input_tokens":0,` +
			`"max_output_tokens":0}`: "want one token at least",
		`{"budget":"ai","subject":"u","model":"big","input_tokens":0,` +
			`"max_output_tokens":268435456}`: "max_output_tokens: want at most",
		`{"budget":"ai","subject":"u","model":"big","input_tokens":0,` +
			`"max_output_tokens":"0.5"}`: "max_output_tokens: want a whole",
	} {
		a := s.post("/v1/spend/authorize", strings.Replace(body, "%s", `"max_output_tokens":1`, 1))
		a.want(t, 400, "code", "bad-request")
		if !strings.Contains(a.field("detail"), want) {
			t.Errorf("%s: got detail %q, want it to contain %q", body, a.field("detail"), want)
		}
	}
	s.wantSpent("0", "0.000000")
	a := s.post("/v1/spend/authorize", callOn("zz"))
	a.want(t, 404, "code", "unknown-limit", "limit", "zz")
	s.call("POST", "/v1/spend/authorize", aiCall).want(t, 401)
}

// tidy:table a list of subtests
func TestSettleSpend(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newSpending(t)
		receipt := s.authorize("a").field("transfer")
		// 600 of 1,000 tokens in at 3 USD, 400 from the cache at 0.30, and 100 out at 15.
		const usage = `{"route":"model","input_tokens":1000,"output_tokens":100,"cached_tokens":400}`
		a := s.settleCall(receipt, usage, "Idempotency-Key: of no use")
		a.want(t, 200, "transfer", receipt, "replayed", "false", "late", "false", "estimated", "false",
			"route", "model", path("reserved", "tokens"), "1500", path("reserved", "usd"), "0.010500",
			path("booked", "tokens"), "1100", path("booked", "usd"), "0.003420",
			path("overage", "tokens"), "0", path("overage", "usd"), "0.000000",
			path("remaining", "tokens"), "8900", path("remaining", "usd"), "0.996580")
		a.wantHeader(t, "Cache-Control", "no-store")
		a.wantHeader(t, "RateLimit", "")
		s.settleCall(receipt, usage).want(t, 200, "replayed", "true", path("booked", "tokens"), "1100")
		s.settleCall(receipt, `{"route":"model","input_tokens":1}`).
			want(t, 409, "code", "reservation-closed")
		s.wantSpent("1100", "0.003420")
	})
	for name, row := range map[string]struct{ usage, tokens, usd, estimated string }{
		"NoReport": {`{"route":"model"}`, "1500", "0.010500", "true"},
		"OutputMissing": { // 0.0003 and 0.0075
			`{"route":"model","input_tokens":100}`, "600", "0.007800", "true",
		},
		"TheProvidersPrice": {
			`{"route":"model","input_tokens":1,"output_tokens":1,"usd":"0.5"}`, "2", "0.500000", "false",
		},
		"MoreThanReserved": { // 0.006 and 0.015
			`{"route":"model","input_tokens":2000,"output_tokens":1000}`, "3000", "0.021000", "false",
		},
		"Failed": { // its input counts
			`{"route":"error","error":"timeout"}`, "1000", "0.003000", "true",
		},
		"FailedReported": {
			`{"route":"error","error":"rate-limited","input_tokens":"0"}`, "0", "0.000000", "false",
		},
		"Fallback": {`{"route":"fallback"}`, "0", "0.000000", "false"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpending(t)
			s.settleCall(s.authorize("a").field("transfer"), row.usage).want(t, 200,
				path("booked", "tokens"), row.tokens, path("booked", "usd"), row.usd,
				"estimated", row.estimated, "late", "false")
			s.wantSpent(row.tokens, row.usd)
		})
	}
	t.Run("Overage", func(t *testing.T) {
		s := newSpending(t)
		s.settleCall(s.authorize("a").field("transfer"),
			`{"route":"model","input_tokens":12000,"output_tokens":0}`).want(t, 200,
			path("booked", "tokens"), "12000", path("overage", "tokens"), "2000",
			path("overage", "usd"), "0.000000", path("remaining", "tokens"), "0")
		s.call("GET", "/v1/balance?limit=ai:tokens&subject=u", "", "Authorization: Bearer user").
			want(t, 200, "used", "10000", "overage", "2000")
	})
	t.Run("Late", func(t *testing.T) { // booked once, and marked
		s := newSpending(t)
		receipt := s.authorize("a").field("transfer")
		s.clock.Add(time.Minute + time.Second)
		s.wantSpent("0", "0.000000")
		const usage = `{"route":"model","input_tokens":1000,"output_tokens":10}`
		s.settleCall(receipt, usage).want(t, 200, "late", "true", "replayed", "false",
			path("booked", "tokens"), "1010", path("booked", "usd"), "0.003150")
		s.settleCall(receipt, usage).want(t, 200, "late", "true", "replayed", "true")
		s.wantSpent("1010", "0.003150")
		s.day("budget=ai&subject=u").want(t, 200, path("events", 1, "event"), "settle",
			path("events", 1, "late"), "true", path("events", 2), "")
	})
	t.Run("ErrReservationUnknown", func(t *testing.T) {
		s := newSpending(t)
		check := s.post("/v1/check", `{"limit":"api-requests","subject":"u"}`).field("transfer")
		hold := s.post("/v1/reservations",
			`{"limit":"api-requests","subject":"u","hold_seconds":60}`).field("transfer")
		for _, receipt := range []string{strings.Repeat("0", 31) + "1", check, hold} {
			s.settleCall(receipt, `{"route":"model"}`).want(t, 404, "code", "reservation-unknown")
			s.correctCall(receipt, "c", `"route":"model"`).want(t, 404, "code", "reservation-unknown")
		}
		s.settleCall("zz", `{"route":"model"}`).want(t, 400)
		s.call("POST", "/v1/spend/"+check+"/settle", `{"route":"model"}`).want(t, 401)
	})
}

// tidy:table the fields of a usage and what is wrong with them
func TestSpendUsageErrors(t *testing.T) {
	s := newSpending(t)
	receipt := s.authorize("a").field("transfer")
	for usage, want := range map[string]string{
		`"id":"x"`:                                                        "", // a correction has one
		`"input_tokens":1`:                                                "route is missing",
		`"route":""`:                                                      "route: an empty",
		`"route":"modell"`:                                                "route: want model, fallback, error",
		`"route":"model","error":"timeout"`:                               "error",
		`"route":"error","error":"late"`:                                  "error: want timeout, ",
		`"route":"model","input_tokens":"0.5"`:                            "input_tokens: want a whole",
		`"route":"model","output_tokens":1e3`:                             "output_tokens",
		`"route":"model","output_tokens":268435456`:                       "output_tokens: want at most",
		`"route":"model","input_tokens":268435456`:                        "input_tokens: want at most",
		`"route":"model","cached_tokens":1001`:                            "cached_tokens: 1001",
		`"route":"model","cached_tokens":null`:                            "cached_tokens",
		`"route":"model","usd":1`:                                         "usd: ",
		`"route":"model","usd":"0.0000001"`:                               "usd: ",
		`"route":"model","usd":"-1"`:                                      "usd",
		`"route":"model","usd":"1000000000"`:                              "usd",
		`"route":"model","tokens":1`:                                      "tokens",
		`"route":"model","input_tokens":1,"input_tokens":2`:               "input_tokens",
		`"route":"model","input_tokens":1,"output_tokens":1,"usd":""`:     "usd",
		`"route":"model","input_tokens":1,"output_tokens":1,"error":null`: "error",
	} {
		a := s.settleCall(receipt, "{"+usage+"}")
		a.want(t, 400, "code", "bad-request")
		if !strings.Contains(a.field("detail"), want) {
			t.Errorf("%s: got detail %q, want it to contain %q", usage, a.field("detail"), want)
		}
		if want == "" {
			continue
		}
		a = s.correctCall(receipt, "c", usage)
		a.want(t, 400, "code", "bad-request")
		if !strings.Contains(a.field("detail"), want) {
			t.Errorf("%s: got detail %q of the correction, want %q", usage, a.field("detail"), want)
		}
	}
	s.wantSpent("1500", "0.010500")
}

func TestCorrection(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newSpending(t)
		receipt := s.authorize("a").field("transfer")
		s.settleCall(receipt, `{"route":"model"}`).want(t, 200)
		const less = `"route":"model","input_tokens":100,"output_tokens":100`
		s.correctCall(receipt, "one", less).want(t, 200, "transfer", receipt, "replayed", "false",
			path("booked", "tokens"), "200", path("booked", "usd"), "0.001800", "estimated", "false")
		s.correctCall(receipt, "one", less).want(t, 200, "replayed", "true",
			path("booked", "tokens"), "200")
		s.wantSpent("200", "0.001800")
		s.correctCall(receipt, "one", `"route":"fallback"`).want(t, 422, "code", "id-conflict")
		s.admin("corrections", fmt.Sprintf(
			`{"transfer":%q,"route":"model","input_tokens":2000,"output_tokens":0,"usd":"0.1"}`, receipt),
			`Idempotency-Key: "two"`).want(t, 200, path("booked", "tokens"), "2000")
		s.wantSpent("2000", "0.100000") // of several the last counts
		s.correctCall(receipt, "one", less).want(t, 200, "replayed", "true")
		s.wantSpent("2000", "0.100000")
		s.day("budget=ai&subject=u").want(t, 200, path("events", 2, "event"), "correction",
			path("events", 2, "input_tokens"), "100", path("events", 3, "event"), "correction",
			path("events", 3, "usd"), "0.100000", path("events", 4), "")
	})
	t.Run("ErrReservationClosed", func(t *testing.T) { // there is nothing to correct yet
		s := newSpending(t)
		receipt := s.authorize("a").field("transfer")
		s.correctCall(receipt, "one", `"route":"model"`).want(t, 409, "code", "reservation-closed")
		s.wantSpent("1500", "0.010500")
	})
	t.Run("ErrBadRequest", func(t *testing.T) {
		s := newSpending(t)
		receipt := s.authorize("a").field("transfer")
		s.settleCall(receipt, `{"route":"model"}`).want(t, 200)
		s.correctCall("", "one", `"route":"model"`).want(t, 400)
		s.correctCall("zz", "one", `"route":"model"`).want(t, 400)
		s.admin("corrections", fmt.Sprintf(`{"transfer":%q,"route":"model"}`, receipt)).
			want(t, 400, "detail", "id is missing")
		s.correctCall(receipt, "", `"route":"model"`).want(t, 400)
		s.correctCall(receipt, strings.Repeat("x", 256), `"route":"model"`).want(t, 400)
		s.post("/v1/admin/corrections", "{}").want(t, 401)
		s.wantSpent("1500", "0.010500")
	})
}

// TestSpendLimits says that a budget's limits are listed and read as others, and charged by calls
// only.
func TestSpendLimits(t *testing.T) {
	s := newSpending(t)
	n := len(testLimits())
	s.call("GET", "/v1/limits", "", "Authorization: Bearer user").want(t, 200,
		path("limits", n, "name"), "ai:tokens", path("limits", n, "kind"), "budget",
		path("limits", n, "quota"), "10000", path("limits", n, "align"), "day",
		path("limits", n, "close_at"), "0.9",
		path("limits", n+1, "name"), "ai:usd", path("limits", n+1, "quota"), "1.000000")
	receipt := s.authorize("a").field("transfer")
	for name, a := range map[string]answer{
		"Check": s.post("/v1/check", `{"limit":"ai:tokens","subject":"u","cost":1}`),
		"Among": s.post("/v1/check",
			`{"subject":"u","limits":[{"limit":"api-requests"},{"limit":"ai:usd","cost":"0.1"}]}`),
		"Reserve": s.post("/v1/reservations",
			`{"limit":"ai:usd","subject":"u","cost":"0.000001","hold_seconds":9}`),
		"Track":   s.post("/v1/track", `{"limit":"ai:tokens","subject":"u","amount":1,"id":"x"}`),
		"Settle":  s.post("/v1/reservations/"+receipt+"/settle", `{"cost":1}`),
		"Release": s.post("/v1/reservations/"+receipt+"/release", `{}`),
		"Renew":   s.post("/v1/reservations/"+receipt+"/renew", `{"hold_seconds":9}`),
	} {
		t.Run(name, func(t *testing.T) {
			a.want(t, 400, "code", "bad-request")
			if !strings.Contains(a.field("detail"), "spend budget") {
				t.Errorf("got detail %q, want what it is", a.field("detail"))
			}
		})
	}
	s.wantSpent("1500", "0.010500")
	batch := s.post("/v1/check/batch", `{"checks":[{"limit":"ai:tokens","subject":"u","cost":1}]}`)
	batch.want(t, 200, path("results", 0, "code"), "bad-request")
}

// TestNoSpend says what a server without budgets answers.
func TestNoSpend(t *testing.T) {
	s := newService(t, api.Options{Token: "user", AdminToken: "admin"})
	s.authorize("a").want(t, 404, "code", "unknown-limit", "limit", "ai")
	s.day("budget=ai&subject=u").want(t, 404, "code", "unknown-limit")
	receipt := strings.Repeat("0", 31) + "1"
	s.settleCall(receipt, `{"route":"model"}`).want(t, 404, "code", "reservation-unknown")
	s.correctCall(receipt, "c", `"route":"model"`).want(t, 404, "code", "reservation-unknown")
}

// tidy:table a list of subtests
func TestSpendJournal(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newSpending(t)
		receipts := []string{s.authorize("a").field("transfer"), s.authorize("b").field("transfer")}
		s.settleCall(receipts[0],
			`{"route":"model","input_tokens":1000,"output_tokens":100,"cached_tokens":400}`).want(t, 200)
		s.settleCall(receipts[1], `{"route":"error","error":"provider-error"}`).want(t, 200)
		for range 6 {
			s.authorize("")
		}
		a := s.day("budget=ai&subject=u")
		a.want(t, 200, "budget", "ai", "subject", "u", "cursor", "",
			"from", "2026-03-01T00:00:00.000000000Z", "to", "2026-03-02T00:00:00.000000000Z",
			path("events", 0, "event"), "authorize", path("events", 0, "transfer"), receipts[0],
			path("events", 0, "route"), "model", path("events", 0, "model"), "big",
			path("events", 0, "input_tokens"), "1000", path("events", 0, "output_tokens"), "500",
			path("events", 0, "usd"), "0.010500", path("events", 0, "cached_tokens"), "0",
			path("events", 2, "event"), "settle", path("events", 2, "transfer"), receipts[0],
			path("events", 2, "input_tokens"), "1000", path("events", 2, "output_tokens"), "100",
			path("events", 2, "cached_tokens"), "400", path("events", 2, "usd"), "0.003420",
			path("events", 2, "expires_at"), "", path("events", 2, "estimated"), "",
			path("events", 3, "route"), "error", path("events", 3, "reason"), "provider-error",
			path("events", 3, "estimated"), "true", path("events", 3, "input_tokens"), "1000",
			path("events", 3, "output_tokens"), "0",
			path("events", 8, "event"), "closed", path("events", 8, "route"), "fallback",
			path("events", 8, "reason"), "token-budget", path("events", 8, "count"), "1",
			path("events", 8, "transfer"), "", path("events", 9), "")
		if !strings.HasPrefix(a.field("events", 0, "expires_at"), "2026-03-01T12:01:00.") {
			t.Errorf("got expires_at %q, want a minute later", a.field("events", 0, "expires_at"))
		}
		s.day("budget=ai&subject=u&day=2026-03-01").want(t, 200, path("events", 9), "",
			path("events", 8, "event"), "closed")
		s.day("budget=ai&subject=u&day=2026-02-28").want(t, 200, "events", "[]",
			"from", "2026-02-28T00:00:00.000000000Z")
		s.day("budget=ai&subject=nobody").want(t, 200, "events", "[]")
	})
	t.Run("Timezone", func(t *testing.T) { // days begin where the budget's do
		s := newSpending(t)
		s.day("budget=usd&subject=u&day=2026-03-29").want(t, 200, // of 23 hours
			"from", "2026-03-28T23:00:00.000000000Z", "to", "2026-03-29T22:00:00.000000000Z")
	})
	t.Run("Pages", testSpendPages)
	t.Run("ErrBadRequest", func(t *testing.T) {
		s := newSpending(t)
		for _, query := range []string{
			"", "budget=ai", "subject=u", "budget=ai&subject=u&day=", "budget=ai&subject=u&day=today",
			"budget=ai&subject=u&day=2026-3-1", "budget=ai&subject=u&day=2026-02-30",
			"budget=ai&subject=u&day=1969-12-31", "budget=ai&subject=u&cursor=x",
			"budget=ai&subject=u&cursor=AAAAAAAAAAE", "budget=ai&subject=u&reversed=true",
			"budget=ai&subject=u&day=2026-03-01&cursor=AAAAAAAAAAE",
			"budget=ai&subject=u&day=2026-03-01&cursor=f_________8",
			"budget=ai&subject=u&subject=v", "limit=ai&subject=u",
		} {
			s.day(query).want(t, 400, "code", "bad-request")
		}
		s.day("budget=zz&subject=u").want(t, 404, "code", "unknown-limit")
		s.call("GET", "/v1/admin/spend/journal?budget=ai&subject=u", "",
			"Authorization: Bearer user").want(t, 401)
	})
}

// testSpendPages reads a day of more than one page, over the midnight after it.
func testSpendPages(t *testing.T) {
	s := newSpending(t)
	const calls = 1200 // of two notes each
	body := callOn("wide")
	want := make(map[string]bool, calls)
	for range calls {
		want[s.post("/v1/spend/authorize", body).field("transfer")] = true
	}
	cursor, pages, last := "", 0, ""
	for {
		a := s.day("budget=wide&subject=u" + cursor)
		a.want(t, 200, "from", "2026-03-01T00:00:00.000000000Z")
		var page wire.SpendJournal
		err := json.Unmarshal([]byte(a.text), &page)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			at := e.At.Format(time.RFC3339Nano)
			if !want[e.Transfer] || e.Event != wire.EventAuthorize || at <= last && len(at) == len(last) {
				t.Fatalf("got %+v after %s, want each call once and in order", e, last)
			}
			delete(want, e.Transfer)
			last = at
		}
		pages++
		if page.Cursor == "" {
			break
		}
		cursor = "&cursor=" + page.Cursor
		s.clock.Add(6 * time.Hour)
	}
	if len(want) > 0 || pages != 3 {
		t.Errorf("got %d pages without %d calls, want all on 3", pages, len(want))
	}
}
