package api_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/api"
)

// tidy:table a list of subtests
func TestGrant(t *testing.T) {
	const grant = `{"limit":"api-requests","subject":"u","amount":5,"id":"g"}`
	t.Run("OK", func(t *testing.T) {
		s := newService(t, api.Options{AdminToken: "admin"})
		s.check(`{"limit":"api-requests","subject":"u","cost":10}`).want(t, 200)
		s.check(`{"limit":"api-requests","subject":"u"}`).want(t, 429)
		first := s.admin("grants", grant)
		first.want(t, 200, "limit", "api-requests", "subject", "u", "amount", "5", "quota", "15",
			"remaining", "5", "replayed", "false")
		first.wantHeader(t, "Cache-Control", "no-store")
		s.check(`{"limit":"api-requests","subject":"u"}`).want(t, 200)
		s.clock.Add(100 * 24 * time.Hour) // a grant's id is known for ever
		s.admin("grants", grant).want(t, 200, "replayed", "true", "quota", "15", "remaining", "15",
			"transfer", first.field("transfer"), "at", first.field("at"))
		s.admin("grants", `{"limit":"api-requests","subject":"u","amount":"5"}`,
			`Idempotency-Key: "g"`).want(t, 200, "replayed", "true")
	})
	t.Run("InParallel", func(t *testing.T) { // R8
		s := newService(t, api.Options{AdminToken: "admin"})
		var wait sync.WaitGroup
		var mu sync.Mutex
		replayed := map[string]int{}
		for range 100 {
			wait.Go(func() {
				a := s.admin("grants", grant)
				a.want(t, 200, "quota", "15")
				mu.Lock()
				defer mu.Unlock()
				replayed[a.field("replayed")]++
			})
		}
		wait.Wait()
		if replayed["false"] != 1 || replayed["true"] != 99 {
			t.Errorf("got replayed %v, want false once and true 99 times", replayed)
		}
	})
	t.Run("ErrIDConflict", func(t *testing.T) { // R8
		s := newService(t, api.Options{AdminToken: "admin"})
		s.admin("grants", grant).want(t, 200)
		s.admin("grants", `{"limit":"api-requests","subject":"u","amount":6,"id":"g"}`).
			want(t, 422, "code", "id-conflict")
		s.call("GET", "/v1/balance?limit=api-requests&subject=u", "").want(t, 200, "quota", "15")
	})
	t.Run("ErrQuotaTooLarge", func(t *testing.T) {
		s := newService(t, api.Options{AdminToken: "admin"})
		s.admin("grants", `{"limit":"most","subject":"u","amount":1,"id":"g"}`).
			want(t, 422, "code", "quota-too-large", "limit", "most", "free", "")
	})
	t.Run("ErrBadRequest", func(t *testing.T) { // N5, R8
		s := newService(t, api.Options{AdminToken: "admin"})
		for _, noun := range []string{"grants", "revocations"} {
			for _, amount := range []string{
				`-1`, `-0.5`, `1.5`, `"1e3"`, `1e3`, `""`, `null`, `NaN`, `0`, `"0"`, `1000000000000000`,
			} {
				s.admin(noun, fmt.Sprintf(`{"limit":"a","subject":"u","id":"x","amount":%s}`, amount)).
					want(t, 400, "code", "bad-request")
			}
			for _, body := range []string{
				`{"limit":"a","subject":"u","amount":1}`, // no id
				`{"limit":"a","subject":"u","id":"x"}`,
				`{"limit":"a","amount":1,"id":"x"}`,
				`{"subject":"u","amount":1,"id":"x"}`,
				`{"limit":"a","subject":"u","amount":1,"id":"x","cost":1}`,
			} {
				s.admin(noun, body).want(t, 400, "code", "bad-request")
			}
			s.admin(noun, `{"limit":"zz","subject":"u","amount":1,"id":"x"}`).
				want(t, 404, "code", "unknown-limit")
		}
		s.call("GET", "/v1/balance?limit=a&subject=u", "").want(t, 200, "quota", "1", "used", "0")
	})
}

func TestRevoke(t *testing.T) {
	s := newService(t, api.Options{AdminToken: "admin"})
	const revoke = `{"limit":"api-requests","subject":"u","amount":4,"id":"r"}`
	t.Run("OK", func(t *testing.T) {
		s.admin("revocations", revoke).want(t, 200, "quota", "6", "remaining", "6", "amount", "4")
		s.admin("revocations", revoke).want(t, 200, "quota", "6", "replayed", "true")
	})
	t.Run("ErrQuotaInUse", func(t *testing.T) {
		s.check(`{"limit":"api-requests","subject":"u","cost":4}`).want(t, 200)
		s.admin("revocations", `{"limit":"api-requests","subject":"u","amount":3,"id":"r2"}`).
			want(t, 422, "code", "quota-in-use", "free", "2", "limit", "api-requests")
		s.check(`{"limit":"api-requests","subject":"u","cost":2}`).want(t, 200)
		s.admin("revocations", `{"limit":"api-requests","subject":"u","amount":3,"id":"r3"}`).
			want(t, 422, "code", "quota-in-use", "free", "0")
	})
}
