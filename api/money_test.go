package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/api"
	"weir/ledgers/ledgertest"
)

// newBank serves with both tokens, and alice has 2,000 USD and bob 1.
func newBank(t testing.TB) *service {
	t.Helper()
	s := newService(t, api.Options{Token: "user", AdminToken: "admin"})
	s.deposit("alice", "2000", "first").want(t, 200, "balance", "2000.00")
	s.deposit("bob", "1", "first").want(t, 200, "balance", "1.00")
	return s
}

func (s *service) deposit(subject, amount, id string) answer {
	s.Helper()
	return s.admin("deposits", fmt.Sprintf(`{"asset":"USD","subject":%q,"amount":%q,"id":%q}`,
		subject, amount, id))
}

// post posts as a user.
func (s *service) post(path, body string, headers ...string) answer {
	s.Helper()
	return s.call("POST", path, body, append(headers, "Authorization: Bearer user")...)
}

// pay transfers on the limit daily-usd.
func (s *service) pay(from, to, amount, id string) answer {
	s.Helper()
	return s.post("/v1/transfers", fmt.Sprintf(
		`{"limit":"daily-usd","from":%q,"to":%q,"amount":%q,"id":%q}`, from, to, amount, id))
}

// wantFunds compares what a subject has and what it used of its limit.
func (s *service) wantFunds(subject, balance, used string) {
	s.Helper()
	const token = "Authorization: Bearer user"
	s.call("GET", "/v1/accounts?asset=USD&subject="+subject, "", token).
		want(s, 200, "asset", "USD", "subject", subject, "balance", balance)
	s.call("GET", "/v1/balance?limit=daily-usd&subject="+subject, "", token).
		want(s, 200, "used", used)
}

func TestTransfer(t *testing.T) {
	t.Run("Recipe", testTransferRecipe)
	t.Run("FurtherLimits", testTransferFurtherLimits)
	t.Run("ErrLedgerUnavailable", testTransferUnanswered)
	t.Run("ErrInsufficientFunds", func(t *testing.T) {
		s := newBank(t)
		a := s.pay("bob", "alice", "1.01", "one")
		a.want(t, 422, "code", "insufficient-funds", "title", "Unprocessable Content",
			"new_id_required", "true", "allowed", "")
		a.wantHeader(t, "Retry-After", "")
		s.wantFunds("bob", "1.00", "0.00")
		s.pay("bob", "alice", "1", "two").want(t, 200)
		s.wantFunds("bob", "0.00", "1.00")
	})
	t.Run("ErrAccountUnknown", func(t *testing.T) {
		s := newBank(t)
		s.pay("carol", "alice", "1", "one").want(t, 404, "code", "account-unknown")
		s.pay("alice", "carol", "1", "one").want(t, 404, "code", "account-unknown",
			"new_id_required", "")
		s.call("GET", "/v1/accounts?asset=USD&subject=carol", "", "Authorization: Bearer user").
			want(t, 404, "code", "account-unknown")
		s.deposit("carol", "0.01", "first").want(t, 200)
		s.pay("alice", "carol", "1", "one").want(t, 200, "replayed", "false")
	})
	t.Run("ErrCostExceedsQuota", func(t *testing.T) {
		s := newBank(t)
		a := s.pay("alice", "bob", "1000.01", "one")
		a.want(t, 422, "code", "cost-exceeds-quota", "limit", "daily-usd")
		a.wantHeader(t, "Retry-After", "")
		s.wantFunds("alice", "2000.00", "0.00")
	})
	t.Run("ErrIDConflict", func(t *testing.T) {
		s := newBank(t)
		s.pay("alice", "bob", "5", "one").want(t, 200)
		s.pay("alice", "bob", "6", "one").want(t, 422, "code", "id-conflict")
		s.wantFunds("alice", "1995.00", "5.00")
	})
	t.Run("IdempotencyKey", func(t *testing.T) {
		s := newBank(t)
		const body = `{"limit":"daily-usd","from":"alice","to":"bob","amount":"5"}`
		s.post("/v1/transfers", body, `Idempotency-Key: "one"`).want(t, 200, "replayed", "false")
		s.post("/v1/transfers", body, `Idempotency-Key: one`).want(t, 200, "replayed", "true")
		s.post("/v1/transfers", body).want(t, 400, "detail", "id is missing")
	})
	t.Run("Giant", func(t *testing.T) { // the denial has no number for such a cost
		s := newBank(t)
		s.deposit("alice", "10000000000000", "second").want(t, 200, "balance", "10000000002000.00")
		a := s.post("/v1/transfers", `{"limit":"no-usd","from":"alice","to":"bob",`+
			`"amount":"10000000000000.00","id":"one"}`)
		a.want(t, 429, path("limits", 0, "cost"), "9999999999999.99")
		a.wantHeader(t, "Retry-After", "")
	})
}

// testTransferRecipe allows 1,000 USD a day.
func testTransferRecipe(t *testing.T) {
	s := newBank(t)
	a := s.pay("alice", "bob", "999.99", "one")
	a.want(t, 200, "allowed", "true", path("limits", 0, "limit"), "daily-usd",
		path("limits", 0, "subject"), "alice", path("limits", 0, "cost"), "999.99",
		path("limits", 0, "quota"), "1000.00", path("limits", 0, "remaining"), "0.01",
		path("limits", 0, "window_seconds"), "86400")
	a.wantHeader(t, "RateLimit", "")
	a.wantHeader(t, "RateLimit-Policy", "")
	if !strings.Contains(a.text, `"remaining":"0.01"`) {
		t.Errorf("got money that is no string: %s", a.text)
	}
	// The ledger gives each entry a nanosecond of its own, ahead of a clock that stands still.
	s.clock.Add(time.Hour + time.Millisecond)
	a = s.pay("alice", "bob", "0.02", "two")
	a.want(t, 429, "code", "quota-exceeded", "allowed", "false", "new_id_required", "true",
		path("violated-policies", 0), "daily-usd", path("limits", 0, "remaining"), "0.01",
		"detail", `limit "daily-usd" does not have 0.02 left; it will in 82800 s`)
	a.wantHeader(t, "Retry-After", "82800") // 23 h
	a.wantHeader(t, "RateLimit", "")
	s.wantFunds("alice", "1000.01", "999.99")
	s.wantFunds("bob", "1000.99", "0.00")
	s.clock.Add(23 * time.Hour)
	s.pay("alice", "bob", "0.02", "three").want(t, 200, path("limits", 0, "remaining"), "999.98")
	s.wantFunds("alice", "999.99", "0.02")
	s.pay("alice", "bob", "999.99", "one").want(t, 200, "replayed", "true", "transfer",
		s.pay("alice", "bob", "999.99", "one").field("transfer"))
	s.wantFunds("alice", "999.99", "0.02")
}

// testTransferUnanswered says that nobody knows, and how to find out.
func testTransferUnanswered(t *testing.T) {
	s := newBank(t)
	s.ledger.Inject(ledgertest.Fault{
		On: ledgertest.CallCreateTransfers, Before: errDown, Times: 1,
	})
	a := s.pay("alice", "bob", "5", "one")
	a.want(t, 503, "code", "ledger-unavailable")
	a.wantHeader(t, "Retry-After", "1")
	const word = "the same id, sent again, will tell"
	if !strings.Contains(a.field("detail"), word) {
		t.Errorf("got detail %q, want that %s", a.field("detail"), word)
	}
	s.pay("alice", "bob", "5", "one").want(t, 200)
	s.wantFunds("alice", "1995.00", "5.00")
}

// testTransferFurtherLimits has two payments an hour, besides.
func testTransferFurtherLimits(t *testing.T) {
	s := newBank(t)
	pay := func(id, further string) answer {
		return s.post("/v1/transfers", fmt.Sprintf(`{"limit":"daily-usd","from":"alice","to":"bob",`+
			`"amount":"5","id":%q,"limits":[%s]}`, id, further))
	}
	const payments = `{"limit":"payments"}`
	a := pay("one", payments)
	a.want(t, 200, path("limits", 1, "limit"), "payments", path("limits", 1, "subject"), "alice",
		path("limits", 1, "cost"), "1", path("limits", 1, "remaining"), "1")
	a.wantHeader(t, "RateLimit", `"payments";r=1;t=3600`)
	pay("two", payments).want(t, 200)
	s.clock.Add(time.Minute + time.Millisecond)
	a = pay("three", payments)
	a.want(t, 429, path("violated-policies", 0), "payments")
	a.wantHeader(t, "Retry-After", "3540")
	s.wantFunds("alice", "1990.00", "10.00")
	pay("four", `{"limit":"payments","subject":"the bank","cost":2}`).
		want(t, 200, path("limits", 1, "remaining"), "0")
	pay("five", `{"limit":"zz"}`).want(t, 404, "code", "unknown-limit")
	pay("six", `{"subject":"u"}`).want(t, 400, "detail", "limits[0]: limit is missing")
	pay("seven", `{"limit":"daily-usd","cost":"1"}`).want(t, 400)
}

func TestTransferErrBadRequest(t *testing.T) {
	s := newBank(t)
	for name, body := range map[string]string{
		"Empty":       `{}`,
		"NoLimit":     `{"from":"alice","to":"bob","amount":"1","id":"x"}`,
		"NoFrom":      `{"limit":"daily-usd","to":"bob","amount":"1","id":"x"}`,
		"NoTo":        `{"limit":"daily-usd","from":"alice","amount":"1","id":"x"}`,
		"NoAmount":    `{"limit":"daily-usd","from":"alice","to":"bob","id":"x"}`,
		"NoID":        `{"limit":"daily-usd","from":"alice","to":"bob","amount":"1"}`,
		"Self":        `{"limit":"daily-usd","from":"alice","to":"alice","amount":"1","id":"x"}`,
		"Number":      `{"limit":"daily-usd","from":"alice","to":"bob","amount":1,"id":"x"}`,
		"Zero":        `{"limit":"daily-usd","from":"alice","to":"bob","amount":"0.00","id":"x"}`,
		"Negative":    `{"limit":"daily-usd","from":"alice","to":"bob","amount":"-1","id":"x"}`,
		"ThreePlaces": `{"limit":"daily-usd","from":"alice","to":"bob","amount":"0.001","id":"x"}`,
		"Exponent":    `{"limit":"daily-usd","from":"alice","to":"bob","amount":"1e2","id":"x"}`,
		"OtherKind":   `{"limit":"site","from":"alice","to":"bob","amount":"1","id":"x"}`,
		"Subject":     `{"limit":"daily-usd","subject":"alice","to":"bob","amount":"1","id":"x"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s.post("/v1/transfers", body).want(t, 400, "code", "bad-request")
		})
	}
	s.wantFunds("alice", "2000.00", "0.00")
	// Only transfers are charged on such a limit.
	s.post("/v1/check", `{"limit":"daily-usd","subject":"alice","cost":"1.00"}`).want(t, 400)
}

func TestMovements(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newBank(t)
		first := s.deposit("alice", "0.5", "second")
		first.want(t, 200, "asset", "USD", "subject", "alice", "amount", "0.50", "balance", "2000.50",
			"replayed", "false")
		again := s.deposit("alice", "0.5", "second")
		again.want(t, 200, "replayed", "true", "transfer", first.field("transfer"), "at",
			first.field("at"))
		const body = `{"asset":"USD","subject":"alice","amount":"2000.50","id":"third"}`
		s.admin("withdrawals", body).want(t, 200, "amount", "2000.50", "balance", "0.00")
		s.admin("withdrawals", body).want(t, 200, "replayed", "true")
		s.deposit("alice", "2000.50", "third").want(t, 422, "code", "id-conflict")
	})
	t.Run("Largest", func(t *testing.T) { // 2^96-1 units
		s := newBank(t)
		const most = "792281625142643375935439503.35"
		s.deposit("carol", most, "one").want(t, 200, "amount", most, "balance", most)
		s.deposit("carol", "0.01", "two").want(t, 422, "code", "quota-too-large")
		s.deposit("carol", "792281625142643375935439503.36", "three").want(t, 400)
		s.pay("alice", "carol", "0.01", "one").want(t, 422, "code", "quota-too-large")
		s.wantFunds("carol", most, "0.00")
	})
	t.Run("ErrInsufficientFunds", func(t *testing.T) {
		s := newBank(t)
		s.admin("withdrawals", `{"asset":"USD","subject":"bob","amount":"1.01","id":"x"}`).
			want(t, 422, "code", "insufficient-funds")
		s.admin("withdrawals", `{"asset":"USD","subject":"carol","amount":"1","id":"x"}`).
			want(t, 404, "code", "account-unknown")
		s.wantFunds("bob", "1.00", "0.00")
	})
	t.Run("ErrBadRequest", func(t *testing.T) {
		s := newBank(t)
		for _, body := range []string{
			`{}`,
			`{"subject":"bob","amount":"1","id":"x"}`,
			`{"asset":"EUR","subject":"bob","amount":"1","id":"x"}`,
			`{"asset":"USD","amount":"1","id":"x"}`,
			`{"asset":"USD","subject":"bob","id":"x"}`,
			`{"asset":"USD","subject":"bob","amount":"1"}`,
			`{"asset":"USD","subject":"bob","amount":1,"id":"x"}`,
			`{"asset":"USD","subject":"bob","amount":"0","id":"x"}`,
		} {
			s.admin("deposits", body).want(t, 400, "code", "bad-request")
			s.admin("withdrawals", body).want(t, 400, "code", "bad-request")
		}
	})
}

// TestMoneyTokens says that money is never moved without a token.
func TestMoneyTokens(t *testing.T) {
	const transfer = `{"limit":"daily-usd","from":"alice","to":"bob","amount":"1","id":"x"}`
	const account = "/v1/accounts?asset=USD&subject=alice"
	t.Run("ErrUnauthorized", func(t *testing.T) {
		s := newBank(t)
		s.call("POST", "/v1/transfers", transfer).want(t, 401, "code", "unauthorized")
		s.call("GET", account, "", "Authorization: Bearer admin").want(t, 401)
		s.call("POST", "/v1/admin/deposits", "{}", "Authorization: Bearer user").want(t, 401)
		s.call("POST", "/v1/admin/withdrawals", "{}").want(t, 401)
	})
	t.Run("ErrMoneyDisabled", func(t *testing.T) {
		s := newService(t, api.Options{AdminToken: "admin"})
		for _, header := range []string{"X: y", "Authorization: Bearer user"} {
			s.call("POST", "/v1/transfers", transfer, header).want(t, 403, "code", "money-disabled")
			s.call("GET", account, "", header).want(t, 403, "code", "money-disabled")
		}
		s.deposit("alice", "1", "x").want(t, 200) // the admin has a token
	})
}
