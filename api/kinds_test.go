package api_test

import (
	"testing"
	"time"

	"weir/api"
)

// A denial is explained by what remains, also where that is more than was asked for.
func TestDenialDetails(t *testing.T) {
	s := newService(t, api.Options{})
	s.check(`{"limit":"tokens","subject":"u","cost":94}`).want(t, 200)
	s.clock.Add(time.Millisecond)
	for cost, detail := range map[string]string{ // 95 of 100 may be taken
		"2": `limit "tokens" does not have 2 left before it closes; it will in 60 s`,
		"0": `limit "tokens" does not have 1 left before it closes; it will in 60 s`,
		"7": `limit "tokens" does not have 7 left; it will in 60 s`,
	} {
		if cost == "0" {
			s.check(`{"limit":"tokens","subject":"u","cost":1}`).want(t, 200)
		}
		s.check(`{"limit":"tokens","subject":"u","cost":`+cost+`}`).want(t, 429, "detail", detail)
	}
	s.check(`{"limit":"tokens","subject":"u","cost":96}`).want(t, 422, "code", "cost-exceeds-quota",
		"detail", `cost 96 is above 95, where the quota of 100 closes, on limit "tokens" and can `+
			`never pass`)
	s.check(`{"limit":"slow","subject":"u"}`).want(t, 200)
	s.clock.Add(time.Millisecond)
	s.check(`{"subject":"u","limits":[{"limit":"slow"},{"limit":"minute"}]}`).want(t, 429, "detail",
		`limit "slow" does not have 1 left; all limits will have it in 2 s`)
}

func TestCredits(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newService(t, api.Options{})
		a := s.check(`{"limit":"credits","subject":"u","cost":4,"id":"one"}`)
		a.want(t, 200, path("limits", 0, "remaining"), "6", path("limits", 0, "window_seconds"), "0",
			path("limits", 0, "reset_seconds"), "0", path("limits", 0, "resets_at"), "")
		a.wantHeader(t, "RateLimit-Policy", `"credits";q=10`)
		a.wantHeader(t, "RateLimit", `"credits";r=6`)
		s.clock.Add(365 * 24 * time.Hour)
		s.check(`{"limit":"credits","subject":"u","cost":6}`).
			want(t, 200, path("limits", 0, "remaining"), "0")
	})
	t.Run("ErrExhausted", func(t *testing.T) {
		s := newService(t, api.Options{AdminToken: "admin"})
		const check = `{"limit":"credits","subject":"u","cost":11,"id":"one"}`
		a := s.check(check) // above the quota: a grant may raise it
		a.want(t, 402, "code", "credits-exhausted", "title", "Payment Required", "type", "",
			"allowed", "false", "new_id_required", "true", "retry_after_ms", "",
			path("violated-policies", 0), "credits", path("limits", 0, "remaining"), "10",
			"detail", `limit "credits" does not have 11 left`)
		a.wantHeader(t, "Content-Type", "application/problem+json")
		a.wantHeader(t, "Retry-After", "")
		a.wantHeader(t, "RateLimit", "")
		s.check(check).want(t, 402, "replayed", "true", "new_id_required", "true")
		s.admin("grants", `{"limit":"credits","subject":"u","amount":1,"id":"g"}`).
			want(t, 200, "remaining", "11")
		s.check(`{"limit":"credits","subject":"u","cost":11,"id":"two"}`).want(t, 200)
		s.check(`{"limit":"credits","subject":"u","cost":0}`).
			want(t, 402, "code", "credits-exhausted", "new_id_required", "")
		for range 3 { // also where it is remembered
			s.check(`{"limit":"credits","subject":"u","cost":1}`).want(t, 402, "code",
				"credits-exhausted", "retry_after_ms", "")
		}
	})
	t.Run("SeveralLimits", func(t *testing.T) {
		s := newService(t, api.Options{})
		const both = `{"subject":"u","limits":[{"limit":"five"},{"limit":"credits","cost":11}]}`
		a := s.check(both)
		a.want(t, 402, "code", "credits-exhausted", path("violated-policies", 0), "credits",
			path("limits", 0, "remaining"), "5")
		a.wantHeader(t, "Retry-After", "")
		s.check(`{"limit":"five","subject":"u","cost":5}`).want(t, 200)
		s.check(`{"subject":"u","limits":[{"limit":"five"},{"limit":"credits","cost":1}]}`).
			want(t, 429, "code", "quota-exceeded", path("violated-policies", 0), "five")
	})
	t.Run("Batch", func(t *testing.T) {
		s := newService(t, api.Options{})
		s.call("POST", "/v1/check/batch", `{"checks":[{"limit":"credits","subject":"u","cost":11},`+
			`{"limit":"credits","subject":"u","cost":10}]}`).want(t, 200,
			path("results", 0, "status"), "402", path("results", 0, "code"), "credits-exhausted",
			path("results", 1, "allowed"), "true")
	})
}

func TestMoneyBudget(t *testing.T) {
	s := newService(t, api.Options{AdminToken: "admin"})
	a := s.check(`{"limit":"spend","subject":"u","cost":"99.99"}`)
	a.want(t, 200, path("limits", 0, "cost"), "99.99", path("limits", 0, "quota"), "100.00",
		path("limits", 0, "remaining"), "0.01", path("limits", 0, "window_seconds"), "3600")
	a.wantHeader(t, "RateLimit", "")
	a = s.check(`{"limit":"spend","subject":"u","cost":"0.02"}`)
	a.want(t, 429, "code", "quota-exceeded")
	a.wantHeader(t, "RateLimit-Policy", "")
	if a.header.Get("Retry-After") == "" {
		t.Error("got no Retry-After")
	}
	a = s.check(`{"limit":"spend","subject":"u","cost":"100.01"}`)
	a.want(t, 422, "code", "cost-exceeds-quota", "detail",
		`cost 100.01 is above the quota of 100.00 on limit "spend" and can never pass`)
	s.admin("revocations", `{"limit":"spend","subject":"u","amount":"0.02","id":"r"}`).
		want(t, 422, "code", "quota-in-use", "free", "0.01", "detail",
			"0.02 cannot be revoked: 0.01 is free")
	s.admin("grants", `{"limit":"spend","subject":"u","amount":"9999999999999.99","id":"g"}`).
		want(t, 422, "code", "quota-too-large", "detail", "the quota is 100.00; "+
			"with 9999999999999.99 more it would pass 9999999999999.99")
	for _, cost := range []string{`1`, `"0.001"`, `"1e1"`, `1.00`} {
		s.check(`{"limit":"spend","subject":"u","cost":`+cost+`}`).want(t, 400)
	}
	s.call("GET", "/v1/balance?limit=spend&subject=u", "").want(t, 200, "quota", "100.00",
		"used", "99.99", "remaining", "0.01", "overage", "0.00")
}

// TestCalendar has days of Berlin, one of them with 23 hours.
func TestCalendar(t *testing.T) {
	s := newService(t, api.Options{})
	const check = `{"limit":"berlin","subject":"u"}`
	a := s.check(check) // 13:00 there
	a.want(t, 200, path("limits", 0, "window_seconds"), "86400", path("limits", 0, "reset_seconds"),
		"39600", path("limits", 0, "resets_at"), "2026-03-02T00:00:00+01:00")
	a.wantHeader(t, "RateLimit-Policy", `"berlin";q=5;w=86400`)
	a.wantHeader(t, "RateLimit", `"berlin";r=4;t=39600`)
	s.call("GET", "/v1/balance?limit=berlin&subject=u", "").want(t, 200, "used", "1",
		"window_seconds", "86400", "resets_at", "2026-03-02T00:00:00+01:00")
	s.clock.Add(28 * 24 * time.Hour) // 29 March 12:00 UTC, where the day has lost an hour
	s.check(check).want(t, 200, path("limits", 0, "window_seconds"), "82800",
		path("limits", 0, "remaining"), "4", path("limits", 0, "resets_at"), "2026-03-30T00:00:00+02:00")
	s.check(`{"limit":"berlin","subject":"u","cost":5}`).want(t, 429,
		path("limits", 0, "resets_at"), "2026-03-30T00:00:00+02:00")
	s.call("GET", "/v1/balance?limit=site&subject=u", "").want(t, 200, "resets_at", "")
}
