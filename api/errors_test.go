package api_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"weir/api"
	"weir/api/wire"
	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

var errDown = errors.New("the ledger is down")

// TestProblems has one call for each answer that is neither a success nor a denial.
func TestProblems(t *testing.T) {
	const check = `{"limit":"a","subject":"u"}`
	tests := map[string]struct {
		method, path, body string
		status             int
		code, title        string
	}{
		"ErrBadRequest": {"POST", "/v1/check", "{", 400, "bad-request", "Bad Request"},
		"ErrUnknownLimit": {"POST", "/v1/check", `{"limit":"zz","subject":"u"}`, 404, "unknown-limit",
			"Not Found"},
		"ErrNotFound":     {"GET", "/v2/check", "", 404, "not-found", "Not Found"},
		"ErrRoot":         {"GET", "/", "", 404, "not-found", "Not Found"},
		"ErrSlash":        {"POST", "/v1/check/", check, 404, "not-found", "Not Found"},
		"ErrDoubleSlash":  {"POST", "//v1/check", check, 404, "not-found", "Not Found"},
		"ErrEscapedSlash": {"POST", "/v1%2Fcheck", check, 404, "not-found", "Not Found"},
		"ErrMethod":       {"GET", "/v1/check", "", 405, "method-not-allowed", "Method Not Allowed"},
		"ErrOddMethod":    {"BREW", "/healthz", "", 405, "method-not-allowed", "Method Not Allowed"},
		"ErrTooLarge": {"POST", "/v1/check", `{"limit":"` + strings.Repeat("x", 64<<10) + `"}`, 413,
			"body-too-large", "Content Too Large"},
		"ErrAdminDisabled": {"POST", "/v1/admin/grants", "{}", 403, "admin-disabled", "Forbidden"},
		"ErrMoneyDisabled": {"POST", "/v1/transfers", "{}", 403, "money-disabled", "Forbidden"},
	}
	s := newService(t, api.Options{})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := s.call(test.method, test.path, test.body)
			a.want(t, test.status, "code", test.code, "title", test.title, "type", "",
				"instance", test.path, "allowed", "", "limits", "")
			a.wantHeader(t, "Content-Type", "application/problem+json")
			a.wantHeader(t, "Cache-Control", "no-store")
			a.wantHeader(t, "Retry-After", "")
			if a.field("detail") == "" {
				t.Error("the problem has no detail")
			}
		})
	}
}

func TestAllow(t *testing.T) {
	s := newService(t, api.Options{})
	s.call("DELETE", "/v1/balance", "").wantHeader(t, "Allow", "OPTIONS, GET, HEAD")
	s.call("PUT", "/v1/check", "").wantHeader(t, "Allow", "OPTIONS, POST")
	a := s.call("OPTIONS", "/v1/check", "")
	a.want(t, 204)
	a.wantHeader(t, "Allow", "OPTIONS, POST")
	a = s.call("HEAD", "/v1/limits", "")
	a.want(t, 200)
	if a.text != "" {
		t.Errorf("HEAD: got body %q", a.text)
	}
}

// TestLedgerAway has the ledger fail in each way that a caller may hear of.
func TestLedgerAway(t *testing.T) {
	tests := map[string]struct {
		err        error
		status     int
		code       string
		retryAfter string
	}{
		"ErrUnavailable": {errDown, 503, "ledger-unavailable", "1"},
		"ErrDeadline":    {context.DeadlineExceeded, 503, "ledger-unavailable", "1"},
		"ErrBusy":        {ledgers.ErrBusy, 503, "busy", "1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newService(t, api.Options{AdminToken: "admin"})
			s.ledger.Inject(ledgertest.Fault{Before: test.err, Times: ledgertest.Always})
			for _, a := range []answer{
				s.check(`{"limit":"a","subject":"u"}`),
				s.check(`{"limit":"a","subject":"u","cost":0}`),
				s.call("GET", "/v1/balance?limit=a&subject=u", ""),
				s.call("POST", "/v1/admin/grants", `{"limit":"a","subject":"u","amount":1,"id":"g"}`,
					"Authorization: Bearer admin"),
				s.call("GET", "/v1/admin/journal?limit=a&subject=u", "", "Authorization: Bearer admin"),
			} {
				a.want(t, test.status, "code", test.code, "title", "Service Unavailable")
				a.wantHeader(t, "Retry-After", test.retryAfter)
				if strings.Contains(a.text, test.err.Error()) {
					t.Errorf("the cause was sent: %s", a.text)
				}
			}
			logged := strings.Count(s.logs.String(), `"call failed"`)
			if logged != 1 {
				t.Errorf("the outage was logged %d times within a second, want once", logged)
			}
		})
	}
}

func TestPanic(t *testing.T) {
	s := newService(t, api.Options{Ready: func() bool { panic("the secret of the panic") }})
	for range 2 {
		a := s.call("GET", "/readyz", "")
		a.want(t, 500, "code", "internal", "title", "Internal Server Error")
		a.wantHeader(t, "Content-Type", "application/problem+json")
		if strings.Contains(a.text, "secret") {
			t.Errorf("the panic's text was sent: %s", a.text)
		}
	}
	if !strings.Contains(s.logs.String(), "the secret of the panic") {
		t.Error("the panic was not logged")
	}
	metrics := s.call("GET", "/metrics", "").text
	if !strings.Contains(metrics, "weir_http_panics_total 2\n") {
		t.Error("the panics were not counted")
	}
	s.call("GET", "/healthz", "").want(t, 200)
}

// TestCodes says that whatever code the limiter gives has a meaning on the wire.
func TestCodes(t *testing.T) {
	for _, code := range []limiter.Code{
		limiter.CodeBadRequest, limiter.CodeUnknownLimit, limiter.CodeCostExceedsQuota,
		limiter.CodeIDConflict, limiter.CodeIDExpired, limiter.CodeReservationClosed,
		limiter.CodeReservationUnknown, limiter.CodeInsufficientFunds, limiter.CodeAccountUnknown,
		limiter.CodeQuotaInUse, limiter.CodeQuotaTooLarge, limiter.CodeBusy,
		limiter.CodeLedgerUnavailable, limiter.CodeInternal,
	} {
		_, known := wire.MeaningOf(wire.Code(code))
		if !known {
			t.Errorf("code %q has no meaning on the wire", code)
		}
	}
}

// TestDegraded has a ledger that does not answer, and limits that let pass then.
func TestDegraded(t *testing.T) {
	s := newService(t, api.Options{})
	s.ledger.Inject(ledgertest.Fault{Before: errDown, Times: ledgertest.Always})
	for name, check := range map[string]string{
		"OK":     `{"limit":"open","subject":"u"}`,
		"Named":  `{"limit":"open","subject":"u","id":"one"}`,
		"Free":   `{"limit":"open","subject":"u","cost":0}`,
		"Exotic": `{"limit":"open","subject":"\u00fc"}`, // which encoding/json answers
	} {
		t.Run(name, func(t *testing.T) {
			a := s.check(check)
			a.want(t, 200, "allowed", "true", "degraded", "true", "replayed", "false", "code", "",
				path("limits", 0, "limit"), "open", path("limits", 0, "window_seconds"), "60")
			a.wantHeader(t, "Content-Type", "application/json")
			for _, header := range []string{"RateLimit", "RateLimit-Policy", "Retry-After"} {
				a.wantHeader(t, header, "")
			}
			for _, unknown := range []string{"quota", "remaining", "reset_seconds", "null"} {
				if strings.Contains(a.text, unknown) {
					t.Errorf("got %s in %s, want nothing that is not known", unknown, a.text)
				}
			}
		})
	}
	t.Run("Batch", func(t *testing.T) {
		s.call("POST", "/v1/check/batch", `{"checks":[{"limit":"open","subject":"u"}]}`).
			want(t, 200, path("results", 0, "degraded"), "true")
	})
	t.Run("ErrClosed", func(t *testing.T) { // one limit that needs the ledger is enough
		s.check(`{"subject":"u","limits":[{"limit":"open"},{"limit":"a"}]}`).
			want(t, 503, "code", "ledger-unavailable", "degraded", "")
	})
	t.Run("ErrBalance", func(t *testing.T) { // there is no policy for what is only told
		s.call("GET", "/v1/balance?limit=open&subject=u", "").want(t, 503, "code", "ledger-unavailable")
	})
}

// TestUnavailableDetail says what a caller who was given no decision can do.
func TestUnavailableDetail(t *testing.T) {
	s := newService(t, api.Options{})
	s.ledger.Inject(ledgertest.Fault{Before: errDown, Times: ledgertest.Always})
	const word = "the same id, sent again, will tell"
	named := s.check(`{"limit":"a","subject":"u","id":"one"}`)
	named.want(t, 503, "code", "ledger-unavailable", "new_id_required", "")
	named.wantHeader(t, "Retry-After", "1")
	if detail := named.field("detail"); !strings.Contains(detail, "unknown") ||
		!strings.Contains(detail, word) {
		t.Errorf("with an id: got detail %q, want that the outcome is unknown and %q", detail, word)
	}
	detail := s.check(`{"limit":"a","subject":"u"}`).field("detail")
	if strings.Contains(detail, word) {
		t.Errorf("without an id: got detail %q, which speaks of one", detail)
	}
}
