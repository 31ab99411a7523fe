package api_test

import (
	"testing"

	"weir/api"
	"weir/ledgers/ledgertest"
)

func (s *service) track(body string, headers ...string) answer {
	s.Helper()
	return s.call("POST", "/v1/track", body, headers...)
}

func TestTrack(t *testing.T) {
	const seven = `{"limit":"credits","subject":"u","amount":7,"id":"a"}`
	t.Run("OK", func(t *testing.T) { // also past the balance of 10, and once
		s := newService(t, api.Options{})
		first := s.track(seven)
		first.want(t, 200, "limit", "credits", "subject", "u", "amount", "7", "booked", "7",
			"overage", "0", "spooled", "", "dropped", "")
		if len(first.field("transfer")) != 32 || first.field("at") == "" {
			t.Errorf("got no receipt: %s", first.text)
		}
		s.track(seven).want(t, 200, "booked", "7", "transfer", first.field("transfer"))
		const five = `{"limit":"credits","subject":"u","amount":5}`
		s.track(five, `Idempotency-Key: "b"`).want(t, 200, "booked", "3", "overage", "2")
		s.track(five, `Idempotency-Key: "b"`).want(t, 200, "booked", "3", "overage", "2")
		s.call("GET", "/v1/balance?limit=credits&subject=u", "").want(t, 200, "used", "10",
			"remaining", "0", "overage", "2")
	})
	t.Run("Money", func(t *testing.T) {
		s := newService(t, api.Options{})
		s.track(`{"limit":"spend","subject":"u","amount":"100.01","id":"a"}`).
			want(t, 200, "amount", "100.01", "booked", "100.00", "overage", "0.01")
	})
	t.Run("LedgerAway", func(t *testing.T) { // this server has no spool
		s := newService(t, api.Options{})
		remove := s.ledger.Inject(ledgertest.Fault{Before: errDown, Times: ledgertest.Always})
		s.track(seven).want(t, 200, "dropped", "true", "booked", "0", "overage", "0")
		remove()
		s.track(seven).want(t, 200, "dropped", "", "booked", "7")
	})
	t.Run("ErrIDConflict", func(t *testing.T) {
		s := newService(t, api.Options{})
		s.track(seven).want(t, 200)
		s.track(`{"limit":"credits","subject":"u","amount":8,"id":"a"}`).
			want(t, 422, "code", "id-conflict")
	})
	t.Run("ErrUnauthorized", func(t *testing.T) {
		s := newService(t, api.Options{Token: "user"})
		s.track(seven).want(t, 401, "code", "unauthorized")
		s.track(seven, "Authorization: Bearer user").want(t, 200)
	})
	t.Run("ErrBadRequest", func(t *testing.T) {
		s := newService(t, api.Options{})
		for _, body := range []string{
			`{"subject":"u","amount":7,"id":"a"}`, `{"limit":"credits","amount":7,"id":"a"}`,
			`{"limit":"credits","subject":"u","id":"a"}`, `{"limit":"credits","subject":"u","amount":7}`,
			`{"limit":"credits","subject":"u","amount":0,"id":"a"}`,
			`{"limit":"credits","subject":"u","amount":"0.5","id":"a"}`,
			`{"limit":"spend","subject":"u","amount":1,"id":"a"}`,
			`{"limit":"slots","subject":"u","amount":1,"id":"a"}`,
			`{"limit":"credits","subject":"u","amount":7,"id":"a","cost":1}`,
		} {
			s.track(body).want(t, 400, "code", "bad-request")
		}
		s.track(seven, `Idempotency-Key: "b"`).want(t, 400, "code", "bad-request")
		s.track(`{"limit":"none-such","subject":"u","amount":7,"id":"a"}`).
			want(t, 404, "code", "unknown-limit")
	})
}
