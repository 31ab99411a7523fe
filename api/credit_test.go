package api_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"weir/api"
	"weir/ledgers/ledgertest"
	"weir/limiter/credit"
)

func (s *service) track(body string, headers ...string) answer {
	s.Helper()
	return s.call("POST", "/v1/track", body, headers...)
}

// tidy:table one subtest for each answer
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
	t.Run("LedgerAway", func(t *testing.T) { // it is booked later, once
		s := newService(t, api.Options{})
		remove := s.ledger.Inject(ledgertest.Fault{Before: errDown, Times: ledgertest.Always})
		for range 2 {
			s.track(seven).want(t, 200, "spooled", "true", "dropped", "", "booked", "0", "overage", "0")
		}
		remove()
		err := s.limiter.BookSpool(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.track(seven).want(t, 200, "spooled", "", "booked", "7")
		s.call("GET", "/v1/balance?limit=credits&subject=u", "").want(t, 200, "used", "7")
	})
	t.Run("LedgerAwaySpoolFull", func(t *testing.T) { // it is no failure of the caller's either
		s := newService(t, api.Options{})
		remove := s.ledger.Inject(ledgertest.Fault{Before: errDown, Times: ledgertest.Always})
		err := s.spool.Close() // it takes nothing more
		if err != nil {
			t.Fatal(err)
		}
		s.track(seven).want(t, 200, "spooled", "", "dropped", "true", "booked", "0", "overage", "0")
		remove()
		s.track(seven).want(t, 200, "dropped", "", "booked", "7") // sent again, as the docs say
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

// balances are a source of credits by subject. It fails for those that are not there.
type balances map[string]credit.Answer

func (b balances) Fetch(_ context.Context, subject string) (credit.Answer, error) {
	answer, ok := b[subject]
	if !ok {
		return credit.Answer{}, errors.New("the source does not answer")
	}
	return answer, nil
}

// newGated serves a gate on the limit "credits" that knows these balances.
func newGated(t testing.TB, known balances) *service {
	t.Helper()
	return newGatedAt(t, known, nil)
}

// newGatedAt is newGated by another clock.
func newGatedAt(t testing.TB, known balances, now func() time.Time) *service {
	t.Helper()
	g, err := credit.New("credits", known, &credit.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	for subject := range known {
		g.Balance(t.Context(), subject)
	}
	return newService(t, api.Options{Gate: func(limit string) *credit.Gate {
		if limit != "credits" {
			return nil
		}
		return g
	}})
}

func TestGate(t *testing.T) {
	left := func(n int64, flag credit.Flag) credit.Answer {
		return credit.Answer{Flag: flag, Balance: credit.Balance{
			Known: true, Granted: 10, Usage: 10 - n, Remaining: n,
		}}
	}
	s := newGated(t, balances{
		"rich": left(3, credit.FlagOn), "empty": left(0, credit.FlagOn), "over": left(-2, credit.FlagOn),
		"free":    left(-2, credit.FlagOff),
		"endless": {Flag: credit.FlagOn, Balance: credit.Balance{Known: true, Unlimited: true}},
		"vast": {Balance: credit.Balance{
			Known: true, Granted: math.MaxInt64, Usage: math.MaxInt64, Remaining: math.MinInt64,
		}},
		"none": {Flag: credit.FlagOn},
	})
	gate := func(query string) answer { return s.call("GET", "/v1/gate?limit=credits&"+query, "") }
	t.Run("OK", func(t *testing.T) {
		gate("subject=rich").want(t, 200, "limit", "credits", "subject", "rich", "blocked", "false",
			"exhausted", "false", "enforced", "true", "known", "true", "unlimited", "false",
			"granted", "10", "usage", "7", "remaining", "3", "stale", "false")
		gate("subject=free").want(t, 200, "blocked", "false", "exhausted", "true", "enforced", "false",
			"remaining", "-2")
		gate("subject=endless").want(t, 200, "blocked", "false", "unlimited", "true")
		gate("subject=vast").want(t, 200, "granted", "999999999999999",
			"remaining", "-999999999999999")
		gate("subject=rich").wantHeader(t, "Cache-Control", "no-store")
	})
	t.Run("Unknown", func(t *testing.T) { // whatever there is not to know, it passes
		for subject, none := range map[string]string{
			"none": "true", "stranger": "", "%F0%9F%A6%A6": "",
		} {
			gate("subject="+subject).want(t, 200, "blocked", "false", "known", "false",
				"remaining", "0", "none", none)
			gate("subject="+subject+"&wait=true").want(t, 200, "blocked", "false", "known", "false",
				"none", none)
		}
	})
	t.Run("Blocked", func(t *testing.T) {
		for subject, remaining := range map[string]string{"empty": "0", "over": "-2"} {
			a := gate("subject=" + subject)
			a.want(t, 402, "code", "credits-exhausted", "title", "Payment Required", "status", "402",
				"instance", "/v1/gate", "limit", "credits", "subject", subject, "blocked", "true",
				"exhausted", "true", "remaining", remaining, "allowed", "")
			a.wantHeader(t, "Content-Type", "application/problem+json")
			a.wantHeader(t, "Retry-After", "")
			a = gate("mode=mark&subject=" + subject)
			a.want(t, 200, "blocked", "true", "exhausted", "true", "remaining", remaining, "code", "")
			a.wantHeader(t, "Content-Type", "application/json")
		}
	})
	t.Run("ErrUnknownLimit", func(t *testing.T) {
		s.call("GET", "/v1/gate?limit=site&subject=u", "").
			want(t, 404, "code", "unknown-limit", "limit", "site")
		newService(t, api.Options{}).call("GET", "/v1/gate?limit=credits&subject=u", "").
			want(t, 404, "code", "unknown-limit")
	})
	t.Run("ErrBadRequest", func(t *testing.T) {
		for _, query := range []string{
			"subject=u&mode=block", "subject=u&mode=", "subject=u&mode=mark&mode=mark", "mode=mark",
			"subject=", "subject=u&wait=perhaps", "subject=u&x=1", "subject=u&limit=credits",
			"subject=" + strings.Repeat("u", 1025), "subject=a%00b", "subject=%FF", "subject=a%0Ab",
		} {
			gate(query).want(t, 400, "code", "bad-request")
		}
	})
}

// A gate that knows nothing yet passes at once, and a caller that can wait is told by its source.
func TestGateWait(t *testing.T) {
	known := balances{}
	s := newGated(t, known)
	known["empty"] = credit.Answer{Flag: credit.FlagOn, Balance: credit.Balance{Known: true}}
	s.call("GET", "/v1/gate?limit=credits&subject=empty", "").want(t, 200, "known", "false")
	s.call("GET", "/v1/gate?limit=credits&subject=empty&wait=true", "").
		want(t, 402, "code", "credits-exhausted")
	s.call("GET", "/v1/gate?limit=credits&subject=empty", "").want(t, 402)
}

// How old a balance is, and whether that is too old, is said; it blocks all the same.
func TestGateAge(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := newGatedAt(t, balances{"empty": {
		Flag: credit.FlagOn, Balance: credit.Balance{Known: true},
	}}, func() time.Time { return now })
	for _, row := range []struct {
		after      time.Duration
		age, stale string
	}{{1500 * time.Millisecond, "1500", "false"}, {4 * time.Minute, "241500", "true"}} {
		now = now.Add(row.after)
		s.call("GET", "/v1/gate?limit=credits&subject=empty", "").
			want(t, 402, "age_ms", row.age, "stale", row.stale)
	}
}

func TestGateErrUnauthorized(t *testing.T) {
	s := newService(t, api.Options{Token: "user"})
	s.call("GET", "/v1/gate?limit=credits&subject=u", "").want(t, 401, "code", "unauthorized")
}
