package api_test

import (
	"fmt"
	"testing"

	"weir/api"
)

func (s *service) journal(query string) answer {
	s.Helper()
	return s.call("GET", "/v1/admin/journal?"+query, "", "Authorization: Bearer admin")
}

func TestJournal(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newService(t, api.Options{AdminToken: "admin"})
		check := s.check(`{"limit":"api-requests","subject":"u","cost":3}`)
		grant := s.admin("grants", `{"limit":"api-requests","subject":"u","amount":5,"id":"g"}`)
		a := s.journal("limit=api-requests&subject=u")
		a.want(t, 200, "limit", "api-requests", "subject", "u", "cursor", "", path("entries", 3), "",
			path("entries", 0, "kind"), "quota", path("entries", 0, "side"), "credit",
			path("entries", 0, "amount"), "10", path("entries", 0, "pending"), "false",
			path("entries", 0, "expires_at"), "", path("entries", 0, "ends"), "",
			path("entries", 1, "kind"), "charge", path("entries", 1, "side"), "debit",
			path("entries", 1, "amount"), "3", path("entries", 1, "pending"), "true",
			path("entries", 1, "transfer"), check.field("transfer"),
			path("entries", 1, "at"), check.field("at"),
			path("entries", 2, "kind"), "grant", path("entries", 2, "amount"), "5",
			path("entries", 2, "transfer"), grant.field("transfer"))
		expires := a.field("entries", 1, "expires_at")
		if expires[:17] != "2026-03-01T12:01:" {
			t.Errorf("got expires_at %q, want a minute after the check", expires)
		}
		s.journal("limit=api-requests&subject=u&reversed=true").
			want(t, 200, path("entries", 0, "kind"), "grant", path("entries", 2, "kind"), "quota")
		s.journal("limit=api-requests&subject=nobody&reversed=false").want(t, 200, "entries", "[]")
	})
	t.Run("Pages", func(t *testing.T) {
		s := newService(t, api.Options{AdminToken: "admin"})
		const most = 1000
		s.admin("grants", `{"limit":"site","subject":"u","amount":1000,"id":"g"}`).want(t, 200)
		for range 2 {
			s.call("POST", "/v1/check/batch", batchOf(`{"limit":"site","subject":"u"}`, most)).want(t, 200)
		}
		for _, order := range []string{"", "&reversed=true"} {
			seen := map[string]bool{}
			cursor, pages := "", 0
			for {
				a := s.journal("limit=site&subject=u" + order + cursor)
				a.want(t, 200)
				entries, _ := a.body["entries"].([]any)
				for i := range entries {
					seen[a.field("entries", i, "transfer")] = true
				}
				pages++
				if a.field("cursor") == "" {
					break
				}
				cursor = "&cursor=" + a.field("cursor")
			}
			if len(seen) != 2002 || pages != 3 { // a quota, a grant and the checks
				t.Errorf("got %d entries on %d pages, want 2002 on 3", len(seen), pages)
			}
		}
	})
	t.Run("ErrBadRequest", func(t *testing.T) {
		s := newService(t, api.Options{AdminToken: "admin"})
		for _, query := range []string{
			"", "limit=a", "limit=a&subject=u&reversed=1", "limit=a&subject=u&reversed=",
			"limit=a&subject=u&cursor=", "limit=a&subject=u&cursor=0", "limit=a&subject=u&cursor=x",
			"limit=a&subject=u&cursor=AAAAAAAAAAA", "limit=a&subject=u&cursor=__________8",
			"limit=a&subject=u&size=10",
		} {
			s.journal(query).want(t, 400, "code", "bad-request")
		}
		s.journal("limit=zz&subject=u").want(t, 404, "code", "unknown-limit")
	})
}

// batchOf repeats a check.
func batchOf(check string, n int) string {
	body := `{"checks":[` + check
	for range n - 1 {
		body += "," + check
	}
	return fmt.Sprintf("%s]}", body)
}

func TestBalance(t *testing.T) {
	s := newService(t, api.Options{})
	s.call("GET", "/v1/balance?limit=api-requests&subject=u", "").want(t, 200,
		"limit", "api-requests", "subject", "u", "quota", "10", "used", "0", "remaining", "10",
		"overage", "0", "window_seconds", "60", "reset_seconds", "0")
	s.check(`{"limit":"api-requests","subject":"u","cost":4}`).want(t, 200)
	s.call("GET", "/v1/balance?limit=api-requests&subject=u", "").want(t, 200,
		"used", "4", "remaining", "6", "reset_seconds", "60")
}

func TestLimits(t *testing.T) {
	s := newService(t, api.Options{})
	s.call("GET", "/v1/limits", "").want(t, 200,
		path("limits", 0, "name"), "api-requests", path("limits", 0, "kind"), "request-rate",
		path("limits", 0, "quota"), "10", path("limits", 0, "window_seconds"), "60",
		path("limits", 0, "on_failure"), "closed", path("limits", 0, "deadline_ms"), "10000",
		path("limits", 4, "kind"), "bandwidth", path("limits", 18, "on_failure"), "open",
		path("limits", 19, "kind"), "transfer-amount", path("limits", 19, "quota"), "1000.00",
		path("limits", 19, "asset"), "USD",
		path("limits", 23, "close_at"), "0.95",
		path("limits", 26, "shadow"), "true",
		path("limits", 27, "align"), "day", path("limits", 27, "timezone"), "Europe/Berlin",
		path("limits", 27, "window_seconds"), "0",
		path("limits", len(testLimits())), "")
}
