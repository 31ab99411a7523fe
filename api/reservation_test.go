package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/api"
	"weir/ledgers/ledgertest"
)

func (s *service) reserve(body string, headers ...string) answer {
	s.Helper()
	return s.call("POST", "/v1/reservations", body, headers...)
}

// on does something with a reservation.
func (s *service) on(receipt, action, body string, headers ...string) answer {
	s.Helper()
	return s.call("POST", "/v1/reservations/"+receipt+"/"+action, body, headers...)
}

func TestReserve(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newService(t, api.Options{})
		const body = `{"limit":"tokens","subject":"u","cost":60,"hold_seconds":30,"id":"one"}`
		a := s.reserve(body)
		a.want(t, 200, "allowed", "true", "replayed", "false", path("limits", 0, "cost"), "60",
			path("limits", 0, "remaining"), "40")
		if held := s.expiry(a).Sub(a.at(t)); held != 30*time.Second {
			t.Errorf("got it held for %v, want 30 s: %s", held, a.text)
		}
		s.reserve(body).want(t, 200, "replayed", "true", "transfer", a.field("transfer"),
			"expires_at", a.field("expires_at"))
		s.reserve(strings.Replace(body, "30", "31", 1)).want(t, 422, "code", "id-conflict")
		s.clock.Add(time.Millisecond)
		a = s.reserve(`{"limit":"tokens","subject":"u","cost":41,"hold_seconds":30}`)
		a.want(t, 429, "code", "quota-exceeded", "expires_at", "")
		a.wantHeader(t, "Retry-After", "30")
		s.clock.Add(31 * time.Second) // it comes back by itself
		s.wantUsed("tokens", "u", "0")
		s.reserve(body).want(t, 409, "code", "id-expired")
	})
	t.Run("Slots", func(t *testing.T) {
		s := newService(t, api.Options{})
		const body = `{"limit":"slots","subject":"u","hold_seconds":60}`
		first := s.reserve(body)
		first.want(t, 200, path("limits", 0, "remaining"), "1", path("limits", 0, "window_seconds"), "0")
		first.wantHeader(t, "RateLimit-Policy", `"slots";q=2`)
		s.reserve(body).want(t, 200, path("limits", 0, "remaining"), "0")
		s.reserve(body).want(t, 429)
		s.on(first.field("transfer"), "settle", `{"cost":1}`).want(t, 400)
		s.on(first.field("transfer"), "release", `{}`).want(t, 200, path("limits", 0, "booked"), "0",
			path("limits", 0, "remaining"), "1")
		s.reserve(body).want(t, 200)
		s.check(`{"limit":"slots","subject":"u"}`).want(t, 400)
	})
	t.Run("IdempotencyKey", func(t *testing.T) {
		s := newService(t, api.Options{})
		const body = `{"limit":"site","subject":"u","hold_seconds":60}`
		s.reserve(body, `Idempotency-Key: "k"`).want(t, 200, "replayed", "false")
		s.reserve(body, `Idempotency-Key: "k"`).want(t, 200, "replayed", "true")
	})
	t.Run("ErrBadRequest", func(t *testing.T) {
		s := newService(t, api.Options{})
		for hold, detail := range map[string]string{
			`0`:                    "hold_seconds: want 1 to 2592000",
			`-1`:                   "hold_seconds: want 1 to 2592000",
			`2592001`:              "hold_seconds: want 1 to 2592000",
			`9223372036854775807`:  "hold_seconds: want 1 to 2592000",
			`9223372036854775808`:  "hold_seconds: want a whole number, not number 9223372036854775808",
			`1.5`:                  "hold_seconds: want a whole number, not number 1.5",
			`"60"`:                 "hold_seconds: want a whole number, not string",
			`60,"hold_seconds":60`: `field "hold_seconds" is given twice`,
		} {
			s.reserve(`{"limit":"site","subject":"u","hold_seconds":`+hold+`}`).
				want(t, 400, "detail", detail)
		}
		s.reserve(`{"limit":"site","subject":"u","cost":-1,"hold_seconds":60}`).want(t, 400, "detail",
			`cost: want a whole number from 0 to 999999999999999, or money in quotes, as in "1.50", `+
				"not number -1")
		s.reserve(`{"limit":"site","subject":"u"}`).want(t, 400)
		s.reserve(`{"limit":"daily-usd","subject":"u","cost":"1.00","hold_seconds":1}`).want(t, 400)
		s.check(`{"limit":"site","subject":"u","hold_seconds":60}`).want(t, 400)
	})
}

// expiry reads when what is held comes back.
func (s *service) expiry(a answer) time.Time {
	s.Helper()
	at, err := time.Parse(time.RFC3339Nano, a.field("expires_at"))
	if err != nil {
		s.Fatal(err)
	}
	return at
}

// hold reserves and returns the receipt.
func (s *service) hold(limit, cost string) string {
	s.Helper()
	a := s.reserve(fmt.Sprintf(`{"limit":%q,"subject":"u","cost":%s,"hold_seconds":60}`, limit, cost))
	a.want(s, 200)
	return a.field("transfer")
}

func TestSettle(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newService(t, api.Options{})
		held := s.hold("tokens", "60")
		a := s.on(held, "settle", `{"cost":20}`)
		a.want(t, 200, "transfer", held, "replayed", "false", "late", "false",
			path("limits", 0, "limit"), "tokens", path("limits", 0, "subject"), "u",
			path("limits", 0, "held"), "60", path("limits", 0, "booked"), "20",
			path("limits", 0, "overage"), "0", path("limits", 0, "remaining"), "80")
		// The id that the header brings has nothing to say.
		s.on(held, "settle", `{"cost":20}`, "Idempotency-Key: other").want(t, 200, "replayed", "true",
			path("limits", 0, "booked"), "20")
		s.on(held, "settle", `{"cost":21}`).want(t, 409, "code", "reservation-closed")
		s.on(held, "release", `{}`).want(t, 409, "code", "reservation-closed")
		s.wantUsed("tokens", "u", "20")
		s.clock.Add(61 * time.Second) // a window after the reservation
		s.wantUsed("tokens", "u", "0")
	})
	t.Run("Overage", func(t *testing.T) {
		s := newService(t, api.Options{})
		held := s.hold("credits", "6")
		s.on(held, "settle", `{"cost":13}`).want(t, 200, path("limits", 0, "booked"), "13",
			path("limits", 0, "overage"), "3", path("limits", 0, "remaining"), "0")
		s.call("GET", "/v1/balance?limit=credits&subject=u", "").want(t, 200, "overage", "3")
	})
	t.Run("Late", func(t *testing.T) {
		s := newService(t, api.Options{})
		held := s.hold("tokens", "60")
		s.clock.Add(61 * time.Second)
		s.on(held, "settle", `{"cost":20}`).want(t, 200, "late", "true",
			path("limits", 0, "booked"), "20")
	})
	t.Run("Money", func(t *testing.T) {
		s := newService(t, api.Options{})
		held := s.hold("spend", `"60.00"`)
		s.on(held, "settle", `{"cost":20}`).want(t, 400)
		s.on(held, "settle", `{"cost":"20.001"}`).want(t, 400)
		s.on(held, "settle", `{"cost":"19.9"}`).want(t, 200, path("limits", 0, "held"), "60.00",
			path("limits", 0, "booked"), "19.90", path("limits", 0, "remaining"), "80.10")
		s.on(s.hold("tokens", "1"), "settle", `{"cost":"0.5"}`).want(t, 400)
	})
	t.Run("SeveralLimits", testSettleSeveralLimits)
	t.Run("ErrLedgerUnavailable", func(t *testing.T) {
		s := newService(t, api.Options{})
		held := s.hold("tokens", "60")
		s.ledger.Inject(ledgertest.Fault{
			On: ledgertest.CallCreateTransfers, Before: errDown, Times: 1,
		})
		a := s.on(held, "settle", `{"cost":20}`)
		a.want(t, 503, "code", "ledger-unavailable")
		if !strings.Contains(a.field("detail"), "the same call, sent again, will tell") {
			t.Errorf("got detail %q", a.field("detail"))
		}
		s.on(held, "settle", `{"cost":20}`).want(t, 200)
	})
}

// testSettleSeveralLimits settles a reservation of units, money and a slot.
func testSettleSeveralLimits(t *testing.T) {
	s := newService(t, api.Options{})
	held := s.reserve(`{"subject":"u","hold_seconds":60,"limits":[{"limit":"tokens","cost":50},` +
		`{"limit":"spend","cost":"1.00"},{"limit":"slots"}]}`).field("transfer")
	for _, body := range []string{
		`{}`, `{"cost":1}`, `{"limits":[{"limit":"tokens","cost":1}]}`,
		`{"limits":[{"limit":"tokens","cost":1},{"limit":"spend"}]}`,
		`{"limits":[{"limit":"tokens","cost":1},{"limit":"spend","cost":1}]}`,
		`{"limits":[{"limit":"tokens","cost":1},{"limit":"slots","cost":1}]}`,
	} {
		s.on(held, "settle", body).want(t, 400, "code", "bad-request")
	}
	a := s.on(held, "settle", `{"limits":[{"limit":"spend","subject":"u","cost":"0.50"},`+
		`{"limit":"tokens","cost":40}]}`)
	a.want(t, 200)
	for limit, booked := range map[string]string{"tokens": "40", "spend": "0.50", "slots": "0"} {
		if got := a.booked(limit); got != booked {
			t.Errorf("got %s booked on %s, want %s in %s", got, limit, booked, a.text)
		}
	}
	s.wantUsed("slots", "u", "0")
}

// booked digs out what was booked on a limit.
func (a answer) booked(limit string) string {
	for i := range 3 {
		if a.field("limits", i, "limit") == limit {
			return a.field("limits", i, "booked")
		}
	}
	return ""
}

func TestRelease(t *testing.T) {
	s := newService(t, api.Options{})
	held := s.hold("tokens", "60")
	s.on(held, "release", `{}`).want(t, 200, "transfer", held, "replayed", "false", "late", "false",
		path("limits", 0, "held"), "60", path("limits", 0, "booked"), "0",
		path("limits", 0, "remaining"), "100")
	s.on(held, "release", `{}`).want(t, 200, "replayed", "true")
	s.on(held, "settle", `{"cost":1}`).want(t, 409, "code", "reservation-closed")

	other := s.hold("tokens", "60")
	s.on(other, "settle", `{"limits":[{"limit":"five","cost":1}]}`).want(t, 400, "detail",
		`limits: the reservation has nothing to book on limit "five", or it is named twice`)
	s.on(other, "settle", `{"limits":[{"limit":"tokens","subject":"x","cost":1}]}`).want(t, 400,
		"detail", `limits: the reservation has nothing to book on limit "tokens" for subject "x", `+
			`or it is named twice`)
	s.on(other, "release", `{}`).want(t, 200)

	check := s.check(`{"limit":"five","subject":"u","cost":3}`).field("transfer")
	s.on(check, "settle", `{"cost":1}`).want(t, 400)
	s.on(check, "release", `{}`).want(t, 200, path("limits", 0, "remaining"), "5")
	spent := s.check(`{"limit":"credits","subject":"u","cost":3}`).field("transfer")
	s.on(spent, "release", `{}`).want(t, 409, "code", "reservation-closed")
}

func TestRenew(t *testing.T) {
	s := newService(t, api.Options{})
	held := s.hold("slots", "1")
	s.clock.Add(50 * time.Second)
	a := s.on(held, "renew", `{"hold_seconds":100}`)
	a.want(t, 200, "allowed", "true", "replayed", "false", path("limits", 0, "limit"), "slots",
		path("limits", 0, "subject"), "u", path("limits", 0, "remaining"), "1")
	if until := s.expiry(a).Sub(s.clock.Now()).Round(time.Millisecond); until != 100*time.Second {
		t.Errorf("got it held for %v, want 100 s", until)
	}
	newest := a.field("transfer")
	if newest == held {
		t.Error("got the same receipt")
	}
	s.on(held, "renew", `{"hold_seconds":100}`).want(t, 200, "replayed", "true", "transfer", newest)
	s.clock.Add(50 * time.Second)
	s.wantUsed("slots", "u", "1")
	s.on(held, "release", `{}`).want(t, 200, "transfer", newest) // the older one leads to it
	s.on(newest, "renew", `{"hold_seconds":100}`).want(t, 409, "code", "reservation-closed")
	s.on(newest, "renew", `{}`).want(t, 400)
	s.on(newest, "renew", `{"hold_seconds":2592001}`).want(t, 400)
	gone := s.hold("slots", "1")
	s.clock.Add(time.Hour)
	s.on(gone, "renew", `{"hold_seconds":100}`).want(t, 409, "code", "id-expired")
}

func TestReceipts(t *testing.T) {
	s := newService(t, api.Options{Token: "user"})
	for _, action := range []string{"settle", "release", "renew"} {
		body := map[string]string{
			"settle": `{"cost":1}`, "release": `{}`, "renew": `{"hold_seconds":1}`,
		}[action]
		for receipt, status := range map[string]int{
			"0123456789abcdef0123456789abcdef": 404,
			"ffffffffffffffffffffffffffffffff": 404,
			"0123456789ABCDEF0123456789ABCDEF": 400,
			"00000000000000000000000000000000": 400,
			"0123456789abcdef":                 400,
			"zz23456789abcdef0123456789abcdef": 400,
			"%2e%2e":                           400,
		} {
			code := map[int]string{404: "reservation-unknown", 400: "bad-request"}[status]
			s.post("/v1/reservations/"+receipt+"/"+action, body).want(t, status, "code", code,
				"instance", "/v1/reservations/"+receipt+"/"+action)
		}
		s.on("0123456789abcdef0123456789abcdef", action, body).want(t, 401)
		s.post("/v1/reservations/0123456789abcdef0123456789abcdef/"+action, "").want(t, 400)
		s.post("/v1/reservations/0123456789abcdef0123456789abcdef/"+action, `{"x":1}`).want(t, 400)
	}
	s.post("/v1/reservations/0123456789abcdef0123456789abcdef", "{}").want(t, 404, "code", "not-found")
	s.reserve(`{"limit":"a","subject":"u","hold_seconds":1}`).want(t, 401)
}
