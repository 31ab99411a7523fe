package api_test

import (
	"testing"
	"time"

	"weir/api"
)

const tiers = `{"group":"tiers","fields":{"User-ID":"al/ice","tenant":"acme"},"id":"one"}`

func TestGroup(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newService(t, api.Options{})
		a := s.check(tiers)
		a.want(t, 200, "allowed", "true", "replayed", "false",
			path("limits", 0, "limit"), "five", path("limits", 0, "subject"), "al%2Fice/acme",
			path("limits", 0, "remaining"), "4",
			path("limits", 1, "limit"), "ten", path("limits", 1, "subject"), "acme",
			path("limits", 1, "remaining"), "9",
			path("limits", 2, "limit"), "tried", path("limits", 2, "subject"), "al/ice")
		s.check(tiers).want(t, 200, "replayed", "true", "transfer", a.field("transfer"))
		s.check(`{"group":"tiers","fields":{"tenant":"acme","User-ID":"al/ice"},"cost":1,"id":"one"}`).
			want(t, 422, "code", "id-conflict") // the cost was not sent before
		s.check(`{"subject":"al%2Fice/acme","limits":[{"limit":"five","cost":5}]}`).want(t, 429)
		s.wantUsed("ten", "acme", "1")
	})
	t.Run("Denied", func(t *testing.T) {
		s := newService(t, api.Options{})
		a := s.check(`{"group":"tiers","fields":{"User-ID":"u","tenant":"acme"},"cost":6}`)
		a.want(t, 422, "code", "cost-exceeds-quota", "limit", "five")
		s.check(`{"limit":"ten","subject":"acme","cost":8}`).want(t, 200)
		a = s.check(`{"group":"tiers","fields":{"User-ID":"u","tenant":"acme"},"cost":3}`)
		a.want(t, 429, path("violated-policies", 0), "ten", path("limits", 0, "remaining"), "5")
		a.wantHeader(t, "RateLimit-Policy", `"ten";q=10;w=10`)
	})
	t.Run("Batch", func(t *testing.T) {
		s := newService(t, api.Options{})
		s.call("POST", "/v1/check/batch", `{"checks":[`+tiers+`,{"group":"tiers"}]}`).want(t, 200,
			path("results", 0, "allowed"), "true", path("results", 1, "code"), "bad-request")
	})
	t.Run("Reservation", func(t *testing.T) {
		s := newService(t, api.Options{})
		const hold = `{"group":"spending","fields":{"User-ID":"u"},"cost":"60.00","hold_seconds":60}`
		a := s.reserve(hold)
		a.want(t, 200, path("limits", 0, "subject"), "u", path("limits", 0, "remaining"), "40.00")
		s.on(a.field("transfer"), "settle", `{"cost":"0.01"}`).
			want(t, 200, path("limits", 0, "remaining"), "99.99")
	})
	t.Run("ErrUnknownGroup", func(t *testing.T) {
		s := newService(t, api.Options{})
		s.check(`{"group":"zz","fields":{"user":"u"}}`).want(t, 404, "code", "unknown-limit")
	})
	t.Run("ErrBadRequest", testGroupBadRequests)
}

func testGroupBadRequests(t *testing.T) {
	s := newService(t, api.Options{})
	for name, body := range map[string]string{
		"NoGroup":      `{"fields":{"User-ID":"u","tenant":"a"}}`,
		"NoFields":     `{"group":"tiers"}`,
		"EmptyFields":  `{"group":"tiers","fields":{}}`,
		"NoField":      `{"group":"tiers","fields":{"User-ID":"u"}}`,
		"EmptyField":   `{"group":"tiers","fields":{"User-ID":"u","tenant":""}}`,
		"UnknownField": `{"group":"tiers","fields":{"User-ID":"u","tenant":"a","x":"y"}}`,
		"OtherCase":    `{"group":"tiers","fields":{"user-id":"u","tenant":"a"}}`,
		"Twice":        `{"group":"tiers","fields":{"User-ID":"u","tenant":"a","tenant":"a"}}`,
		"Escape":       `{"group":"tiers","fields":{"User-ID":"u","\u0074enant":"a"}}`,
		"Number":       `{"group":"tiers","fields":{"User-ID":1,"tenant":"a"}}`,
		"Null":         `{"group":"tiers","fields":{"User-ID":null,"tenant":"a"}}`,
		"NullFields":   `{"group":"tiers","fields":null}`,
		"Control":      `{"group":"tiers","fields":{"User-ID":"\n","tenant":"a"}}`,
		"Limit":        `{"group":"tiers","fields":{"User-ID":"u","tenant":"a"},"limit":"a"}`,
		"Limits":       `{"group":"tiers","fields":{"User-ID":"u","tenant":"a"},"limits":[]}`,
		"Subject":      `{"group":"tiers","fields":{"User-ID":"u","tenant":"a"},"subject":"u"}`,
		"Fraction":     `{"group":"tiers","fields":{"User-ID":"u","tenant":"a"},"cost":"1.5"}`,
		"NotMoney":     `{"group":"spending","fields":{"User-ID":"u"},"cost":1}`,
		"NoCost":       `{"group":"spending","fields":{"User-ID":"u"}}`,
		"Mixed":        `{"group":"mixed","fields":{"User-ID":"u"},"cost":"1"}`,
		"EmptyGroup":   `{"group":"","fields":{"User-ID":"u"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s.check(body).want(t, 400, "code", "bad-request")
		})
	}
}

// TestShadow has a limit that is tried out beside one that decides.
func TestShadow(t *testing.T) {
	s := newService(t, api.Options{})
	const both = `{"subject":"u","limits":[{"limit":"tried"},{"limit":"five"}]}`
	a := s.check(both)
	a.want(t, 200, path("limits", 0, "limit"), "tried", path("limits", 0, "shadow"), "true",
		path("limits", 0, "would_deny"), "", path("limits", 0, "remaining"), "0",
		path("limits", 1, "shadow"), "", path("limits", 1, "remaining"), "4")
	a.wantHeader(t, "RateLimit", `"five";r=4;t=60`)
	a = s.check(both)
	a.want(t, 200, path("limits", 0, "shadow"), "true", path("limits", 0, "would_deny"), "true",
		path("limits", 1, "remaining"), "3")
	a.wantHeader(t, "RateLimit-Policy", `"five";q=5;w=60`)
	s.check(`{"limit":"five","subject":"u","cost":3}`).want(t, 200)
	s.clock.Add(time.Millisecond) // past the nanoseconds by which the ledger is ahead
	a = s.check(both)
	a.want(t, 429, path("violated-policies", 0), "five", path("violated-policies", 1), "",
		path("limits", 0, "shadow"), "true", path("limits", 1, "remaining"), "0")
	a.wantHeader(t, "RateLimit", `"five";r=0;t=60`)
	// Alone it has nothing to say, and nothing is said of it in headers.
	a = s.check(`{"limit":"tried","subject":"u"}`)
	a.want(t, 200, "allowed", "true", path("limits", 0, "would_deny"), "true")
	a.wantHeader(t, "RateLimit", "")
	a.wantHeader(t, "Retry-After", "")
}

// quota sets a subject's quota.
func (s *service) quota(body string) answer {
	s.Helper()
	return s.call("PUT", "/v1/admin/quota", body, "Authorization: Bearer admin")
}

// clearQuota gives a subject the limit's quota again.
func (s *service) clearQuota(query string) answer {
	s.Helper()
	return s.call("DELETE", "/v1/admin/quota?"+query, "", "Authorization: Bearer admin")
}

func TestOverride(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newService(t, api.Options{AdminToken: "admin"})
		const balance = "/v1/balance?limit=five&subject=u"
		s.check(`{"limit":"five","subject":"u","cost":3}`).want(t, 200)
		s.call("GET", balance, "").want(t, 200, "overridden", "")
		s.quota(`{"limit":"five","subject":"u","quota":20}`).want(t, 200, "limit", "five",
			"subject", "u", "quota", "20", "remaining", "17", "overridden", "true", "replayed", "false")
		s.quota(`{"limit":"five","subject":"u","quota":20}`).want(t, 200, "replayed", "true")
		s.call("GET", balance, "").want(t, 200, "quota", "20", "used", "3", "overridden", "true")
		s.check(`{"limit":"five","subject":"u","cost":17}`).want(t, 200)
		s.clock.Add(61 * time.Second)
		s.clearQuota("limit=five&subject=u").want(t, 200, "quota", "5", "remaining", "5",
			"overridden", "false", "replayed", "false")
		s.clearQuota("limit=five&subject=u").want(t, 200, "replayed", "true")
		s.call("GET", balance, "").want(t, 200, "quota", "5", "overridden", "")
	})
	t.Run("Ban", func(t *testing.T) {
		s := newService(t, api.Options{AdminToken: "admin"})
		s.quota(`{"limit":"five","subject":"u","quota":0}`).want(t, 200, "quota", "0", "remaining", "0")
		a := s.check(`{"limit":"five","subject":"u"}`)
		a.want(t, 429, "code", "quota-exceeded")
		a.wantHeader(t, "Retry-After", "")
		s.check(`{"limit":"five","subject":"other"}`).want(t, 200)
		s.clearQuota("limit=five&subject=u").want(t, 200, "quota", "5", "remaining", "5")
		s.check(`{"limit":"five","subject":"u"}`).want(t, 200)
	})
	t.Run("Money", func(t *testing.T) {
		s := newBank(t)
		s.quota(`{"limit":"daily-usd","subject":"alice","quota":"1500.50"}`).
			want(t, 200, "quota", "1500.50", "remaining", "1500.50")
		s.pay("alice", "bob", "1500.50", "one").want(t, 200)
		s.quota(`{"limit":"daily-usd","subject":"alice","quota":1500}`).want(t, 400)
	})
	t.Run("ErrBadRequest", func(t *testing.T) {
		s := newService(t, api.Options{AdminToken: "admin"})
		for _, body := range []string{
			`{}`, `{"subject":"u","quota":1}`, `{"limit":"five","quota":1}`,
			`{"limit":"five","subject":"u"}`, `{"limit":"five","subject":"u","quota":-1}`,
			`{"limit":"five","subject":"u","quota":1000000000000000}`,
			`{"limit":"five","subject":"u","quota":1,"id":"x"}`,
			`{"limit":"credits","subject":"u","quota":1}`,
		} {
			s.quota(body).want(t, 400, "code", "bad-request")
		}
		s.clearQuota("limit=five").want(t, 400)
		s.clearQuota("subject=u").want(t, 400)
	})
	t.Run("ErrOthers", func(t *testing.T) {
		s := newService(t, api.Options{AdminToken: "admin"})
		s.quota(`{"limit":"zz","subject":"u","quota":1}`).want(t, 404, "code", "unknown-limit")
		s.clearQuota("limit=zz&subject=u").want(t, 404, "code", "unknown-limit")
		s.admin("grants", `{"limit":"five","subject":"u","amount":10,"id":"g"}`).want(t, 200)
		s.quota(`{"limit":"five","subject":"u","quota":999999999999999}`).
			want(t, 422, "code", "quota-too-large")
		s.call("PUT", "/v1/admin/quota", "{}").want(t, 401)
		s.call("DELETE", "/v1/admin/quota?limit=five&subject=u", "").want(t, 401)
		s.call("POST", "/v1/admin/quota", "{}").want(t, 405, "code", "method-not-allowed")
	})
}
