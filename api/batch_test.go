package api_test

import (
	"fmt"
	"strings"
	"testing"

	"weir/api"
	"weir/ledgers/ledgertest"
)

// tidy:table a list of subtests
func TestBatch(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newService(t, api.Options{})
		s.check(`{"limit":"a","subject":"used up"}`).want(t, 200)
		a := s.call("POST", "/v1/check/batch", `{"checks":[
			{"limit":"api-requests","subject":"u","cost":2,"id":"one"},
			{"limit":"a","subject":"used up"},
			{"limit":"zz","subject":"u"},
			{"limit":"a","subject":"v","cost":-1},
			{"limit":"a","subject":"v","Cost":1},
			null,
			{"limits":[{"limit":"site"},{"limit":"bytes","cost":5}],"subject":"w"},
			{"limit":"api-requests","subject":"x","cost":11}
		]}`)
		a.want(t, 200, path("results", 8), "",
			path("results", 0, "allowed"), "true", path("results", 0, "code"), "",
			path("results", 0, "limits", 0, "remaining"), "8",
			path("results", 1, "code"), "quota-exceeded", path("results", 1, "status"), "429",
			path("results", 1, "allowed"), "false", path("results", 1, "violated-policies"), `["a"]`,
			path("results", 1, "instance"), "/v1/check/batch#/checks/1",
			path("results", 2, "code"), "unknown-limit", path("results", 2, "status"), "404",
			path("results", 3, "code"), "bad-request", path("results", 3, "allowed"), "",
			path("results", 4, "code"), "bad-request",
			path("results", 5, "code"), "bad-request",
			path("results", 6, "allowed"), "true", path("results", 6, "limits", 1, "cost"), "5",
			path("results", 7, "code"), "cost-exceeds-quota")
		a.wantHeader(t, "Content-Type", "application/json")
		a.wantHeader(t, "Cache-Control", "no-store")
		a.wantHeader(t, "RateLimit", "")
		s.wantUsed("a", "v", "0")
		s.check(`{"limit":"api-requests","subject":"u","cost":2,"id":"one"}`).
			want(t, 200, "replayed", "true")
	})
	t.Run("Thousand", func(t *testing.T) {
		s := newService(t, api.Options{})
		checks := make([]string, 1000)
		for i := range checks {
			checks[i] = fmt.Sprintf(`{"limit":"a","subject":"u%d"}`, i/2)
		}
		a := s.call("POST", "/v1/check/batch", `{"checks":[`+strings.Join(checks, ",")+`]}`)
		a.want(t, 200)
		for i := 0; i < len(checks); i += 2 { // of two checks of one subject, one passes
			one, other := a.field("results", i, "allowed"), a.field("results", i+1, "allowed")
			subject := a.field("results", i, "limits", 0, "subject")
			if one == other || subject != fmt.Sprintf("u%d", i/2) {
				t.Fatalf("results %d and %d: got %s and %s for %s", i, i+1, one, other, subject)
			}
		}
		checks = append(checks, checks[0]) //nolint:makezero // it is full: one too many
		s.call("POST", "/v1/check/batch", `{"checks":[`+strings.Join(checks, ",")+`]}`).
			want(t, 400, "code", "bad-request")
	})
	t.Run("LedgerAway", func(t *testing.T) {
		s := newService(t, api.Options{})
		s.ledger.Inject(ledgertest.Fault{Before: errDown, Times: ledgertest.Always})
		a := s.call("POST", "/v1/check/batch", `{"checks":[{"limit":"a","subject":"u"}]}`)
		a.want(t, 200, path("results", 0, "code"), "ledger-unavailable",
			path("results", 0, "status"), "503")
	})
	t.Run("ErrBadRequest", func(t *testing.T) {
		s := newService(t, api.Options{})
		for _, body := range []string{
			``, `{}`, `{"checks":[]}`, `{"checks":null}`, `{"checks":{}}`, `[]`, `{"checks":[1,]}`,
			`{"checks":[{"limit":"a","subject":"u"}],"id":"x"}`,
			`{"checks":[{"limit":"a","subject":"u"}],"checks":[]}`,
		} {
			s.call("POST", "/v1/check/batch", body).want(t, 400, "code", "bad-request")
		}
		s.call("POST", "/v1/check/batch", `{"checks":[{"limit":"a","subject":"u"}]}`,
			"Idempotency-Key: x").want(t, 400, "code", "bad-request")
		s.wantUsed("a", "u", "0")
	})
}
