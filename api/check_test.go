package api_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/api"
	"weir/ledgers/ledgertest"
)

func TestCheck(t *testing.T) {
	t.Run("OK", func(t *testing.T) {
		s := newService(t, api.Options{})
		a := s.check(`{"limit":"api-requests","subject":"u"}`)
		a.want(t, 200, "allowed", "true", "replayed", "false", "degraded", "false",
			path("limits", 0, "limit"), "api-requests", path("limits", 0, "subject"), "u",
			path("limits", 0, "cost"), "1", path("limits", 0, "quota"), "10",
			path("limits", 0, "remaining"), "9", path("limits", 0, "window_seconds"), "60",
			path("limits", 0, "reset_seconds"), "60", path("limits", 1), "",
			"retry_after_ms", "", "new_id_required", "", "id_recorded", "")
		a.wantHeader(t, "Content-Type", "application/json")
		a.wantHeader(t, "RateLimit-Policy", `"api-requests";q=10;w=60`)
		a.wantHeader(t, "RateLimit", `"api-requests";r=9;t=60`)
		a.wantHeader(t, "Retry-After", "")
		a.wantHeader(t, "Cache-Control", "no-store")
		receipt := a.field("transfer")
		if len(receipt) != 32 || strings.Trim(receipt, "0123456789abcdef") != "" {
			t.Errorf("got transfer %q, want 32 hex digits", receipt)
		}
		at := a.field("at")
		const about = "2026-03-01T12:00:00.000000000Z"
		if !strings.HasPrefix(at, about[:20]) || len(at) != len(about) {
			t.Errorf("got at %q, want RFC 3339 with nanoseconds", at)
		}
	})
	t.Run("ContentTypePlaysNoPart", func(t *testing.T) {
		s := newService(t, api.Options{})
		a := s.check(`{"limit":"a","subject":"u"}`, "Content-Type: text/plain; charset=latin1")
		a.want(t, 200, "allowed", "true")
	})
	t.Run("ElevenInARow", func(t *testing.T) { // N1
		s := newService(t, api.Options{})
		for left := 9; left >= 0; left-- {
			a := s.check(`{"limit":"api-requests","subject":"u","cost":1}`)
			a.want(t, 200, path("limits", 0, "remaining"), strconv.Itoa(left))
		}
		for range 2 { // by the ledger, then from memory
			s.check(`{"limit":"api-requests","subject":"u","cost":1}`).
				want(t, 429, "allowed", "false", path("limits", 0, "remaining"), "0")
		}
	})
	t.Run("WholeQuota", func(t *testing.T) { // N2
		s := newService(t, api.Options{})
		s.check(`{"limit":"api-requests","subject":"u","cost":"10"}`).
			want(t, 200, path("limits", 0, "remaining"), "0")
	})
	t.Run("NothingRead", func(t *testing.T) { // remaining: off
		s := newService(t, api.Options{})
		a := s.check(`{"limit":"blind","subject":"u"}`)
		a.want(t, 200, "allowed", "true", path("limits", 0, "quota"), "",
			path("limits", 0, "remaining"), "", path("limits", 0, "reset_seconds"), "",
			path("limits", 0, "window_seconds"), "60")
		a.wantHeader(t, "RateLimit-Policy", "")
		a.wantHeader(t, "RateLimit", "")
	})
	t.Run("CostZero", func(t *testing.T) { // N4
		s := newService(t, api.Options{})
		a := s.check(`{"limit":"api-requests","subject":"u","cost":0}`)
		a.want(t, 200, path("limits", 0, "remaining"), "10", path("limits", 0, "reset_seconds"), "0",
			"transfer", "")
		a.wantHeader(t, "RateLimit", `"api-requests";r=10;t=0`)
		writes := s.ledger.Calls(ledgertest.CallCreateTransfers)
		if writes != 0 {
			t.Errorf("got %d ledger writes, want none", writes)
		}
		s.check(`{"limit":"api-requests","subject":"u","cost":10}`).want(t, 200)
		s.check(`{"limit":"api-requests","subject":"u","cost":0}`).
			want(t, 429, path("limits", 0, "remaining"), "0")
	})
}

// path makes the path of a field for answer.want.
func path(steps ...any) []any { return steps }

func TestCheckDenied(t *testing.T) {
	s := newService(t, api.Options{})
	s.check(`{"limit":"slow","subject":"u"}`).want(t, 200)
	s.clock.Add(300 * time.Millisecond)
	a := s.check(`{"limit":"slow","subject":"u","id":"second"}`)
	a.want(t, 429,
		"type", "https://iana.org/assignments/http-problem-types#quota-exceeded",
		"title", "Request cannot be satisfied as assigned quota has been exceeded",
		"status", "429", "code", "quota-exceeded", "instance", "/v1/check",
		"detail", `limit "slow" does not have 1 left; it will in 2 s`,
		"violated-policies", `["slow"]`,
		"allowed", "false", "replayed", "false", "degraded", "false", "transfer", "",
		"new_id_required", "true", "id_recorded", "",
		path("limits", 0, "limit"), "slow", path("limits", 0, "quota"), "1",
		path("limits", 0, "remaining"), "0", path("limits", 0, "window_seconds"), "2")
	a.wantHeader(t, "Content-Type", "application/problem+json")
	a.wantHeader(t, "Cache-Control", "no-store")
	a.wantHeader(t, "RateLimit-Policy", `"slow";q=1;w=2`)
	a.wantHeader(t, "RateLimit", `"slow";r=0;t=2`)
	a.wantHeader(t, "Retry-After", "2")
	wait, err := strconv.Atoi(a.field("retry_after_ms"))
	if err != nil || wait < 1700 || wait > 1701 {
		t.Fatalf("got retry_after_ms %d, want what is left of 2 s after 300 ms", wait)
	}
	s.clock.Add(time.Duration(wait) * time.Millisecond)
	s.check(`{"limit":"slow","subject":"u","id":"third"}`).want(t, 200)
}

func TestCheckQuotaZero(t *testing.T) { // N9
	s := newService(t, api.Options{})
	for range 2 {
		a := s.check(`{"limit":"none","subject":"u"}`)
		a.want(t, 429, "code", "quota-exceeded", "retry_after_ms", "", path("limits", 0, "quota"), "0",
			path("limits", 0, "remaining"), "0")
		a.wantHeader(t, "RateLimit-Policy", `"none";q=0;w=60`)
		a.wantHeader(t, "RateLimit", `"none";r=0;t=0`)
		a.wantHeader(t, "Retry-After", "")
	}
}

func TestCheckErrCost(t *testing.T) { // N3
	s := newService(t, api.Options{})
	tooMuch := func() {
		t.Helper()
		a := s.check(`{"limit":"api-requests","subject":"u","cost":11}`)
		a.want(t, 422, "code", "cost-exceeds-quota", "limit", "api-requests", "type", "",
			"title", "Unprocessable Content", "retry_after_ms", "", "allowed", "")
		a.wantHeader(t, "Retry-After", "")
	}
	tooMuch()
	s.wantUsed("api-requests", "u", "0")
	s.check(`{"limit":"api-requests","subject":"u","cost":5}`).want(t, 200)
	tooMuch()
	s.wantUsed("api-requests", "u", "5")
	s.check(`{"limit":"api-requests","subject":"u","cost":1}`).want(t, 200)

	// On a limit that counts bytes there is no cost to assume.
	s.check(`{"limit":"bytes","subject":"u"}`).want(t, 400, "code", "bad-request")
}

// wantUsed compares what a subject has used.
func (s *service) wantUsed(limit, subject, used string) {
	s.Helper()
	s.call("GET", "/v1/balance?limit="+limit+"&subject="+subject, "").want(s, 200, "used", used)
}

func TestCheckSeveralLimits(t *testing.T) {
	s := newService(t, api.Options{})
	t.Run("OK", func(t *testing.T) {
		a := s.check(`{"subject":"u","limits":[{"limit":"site","subject":"all","cost":3},
			{"limit":"api-requests"}]}`)
		a.want(t, 200, path("limits", 0, "limit"), "site", path("limits", 0, "subject"), "all",
			path("limits", 0, "cost"), "3", path("limits", 0, "remaining"), "997",
			path("limits", 1, "limit"), "api-requests", path("limits", 1, "subject"), "u",
			path("limits", 1, "remaining"), "9")
		a.wantHeader(t, "RateLimit", `"api-requests";r=9;t=60`) // 9 of 10 is closer to empty
	})
	t.Run("Denied", func(t *testing.T) {
		s.check(`{"limit":"api-requests","subject":"u","cost":9}`).want(t, 200)
		for _, order := range []string{
			`{"limit":"site","subject":"all"},{"limit":"api-requests","subject":"u"}`,
			`{"limit":"api-requests","subject":"u"},{"limit":"site","subject":"all"}`,
		} {
			a := s.check(`{"limits":[` + order + `]}`)
			a.want(t, 429, "violated-policies", `["api-requests"]`)
			a.wantHeader(t, "RateLimit-Policy", `"api-requests";q=10;w=60`)
		}
		s.wantUsed("site", "all", "3")
	})
	t.Run("SameAccountTwice", func(t *testing.T) { // C4
		const twice = `{"limits":[{"limit":"api-requests"},{"limit":"api-requests","cost":9}],
			"subject":"twice"}`
		a := s.check(twice)
		a.want(t, 200, path("limits", 0, "cost"), "10", path("limits", 1), "")
		s.check(twice).want(t, 429)
	})
}

// tidy:table a list of subtests
func TestCheckID(t *testing.T) {
	const check = `{"limit":"api-requests","subject":"u","id":"one"}`
	t.Run("Replayed", func(t *testing.T) { // R1
		s := newService(t, api.Options{})
		first := s.check(check)
		first.want(t, 200, "replayed", "false")
		s.clock.Add(time.Second)
		for _, again := range []answer{
			s.check(check),
			s.check(`{"limit":"api-requests","subject":"u"}`, "Idempotency-Key: one"),
			s.check(`{"limit":"api-requests","subject":"u"}`, `Idempotency-Key: "one"`),
			s.check(check, `Idempotency-Key: "one"`),
		} {
			again.want(t, 200, "allowed", "true", "replayed", "true",
				"transfer", first.field("transfer"), "at", first.field("at"),
				path("limits", 0, "remaining"), "9")
		}
		s.wantUsed("api-requests", "u", "1")
	})
	t.Run("ReplyLost", func(t *testing.T) { // R1: the first answer never came
		s := newService(t, api.Options{})
		s.check(`{"limit":"api-requests","subject":"u"}`).want(t, 200)
		s.ledger.Inject(ledgertest.Fault{
			On: ledgertest.CallCreateTransfers, After: errDown,
		})
		a := s.check(check)
		a.want(t, 503, "code", "ledger-unavailable", "allowed", "")
		a.wantHeader(t, "Retry-After", "1")
		s.check(check).want(t, 200, "replayed", "true", path("limits", 0, "remaining"), "8")
	})
	t.Run("DeniedStaysDenied", func(t *testing.T) { // R3
		s := newService(t, api.Options{})
		s.check(`{"limit":"slow","subject":"u"}`).want(t, 200)
		s.check(`{"limit":"slow","subject":"u","id":"one"}`).
			want(t, 429, "replayed", "false", "new_id_required", "true")
		s.clock.Add(2*time.Second + time.Millisecond) // the ledger counts nanoseconds between calls
		a := s.check(`{"limit":"slow","subject":"u","id":"one"}`)
		a.want(t, 429, "replayed", "true", "new_id_required", "true", "retry_after_ms", "",
			"transfer", "")
		a.wantHeader(t, "Retry-After", "")
		s.check(`{"limit":"slow","subject":"u","cost":0,"id":"two"}`).want(t, 200)
		s.check(`{"limit":"slow","subject":"u","id":"two"}`).want(t, 200, "replayed", "false")
	})
	t.Run("ErrConflict", func(t *testing.T) { // R4
		s := newService(t, api.Options{})
		s.check(check).want(t, 200)
		s.check(`{"limit":"api-requests","subject":"u","id":"one","cost":2}`).
			want(t, 422, "code", "id-conflict", "new_id_required", "true")
		s.wantUsed("api-requests", "u", "1")
	})
	t.Run("ErrExpired", func(t *testing.T) { // R5
		s := newService(t, api.Options{})
		s.check(check).want(t, 200)
		s.clock.Add(61 * time.Second)
		s.check(check).want(t, 409, "code", "id-expired", "title", "Conflict")
		s.wantUsed("api-requests", "u", "0")
	})
	t.Run("TwoSubjects", func(t *testing.T) { // R7
		s := newService(t, api.Options{})
		for _, subject := range []string{"u", "v"} {
			s.check(`{"limit":"a","id":"one","subject":"`+subject+`"}`).
				want(t, 200, "replayed", "false", path("limits", 0, "remaining"), "0")
		}
	})
	t.Run("PastTheCap", func(t *testing.T) { // a flood with ids is denied without recording them
		s := newService(t, api.Options{})
		s.check(`{"limit":"a","subject":"u"}`).want(t, 200)
		recorded := ""
		for i := range 50 {
			a := s.check(fmt.Sprintf(`{"limit":"a","subject":"u","id":"flood-%d"}`, i))
			a.want(t, 429)
			recorded = a.field("id_recorded")
			if recorded == "false" {
				a.want(t, 429, "new_id_required", "")
				break
			}
		}
		if recorded != "false" {
			t.Error("got no id_recorded false in 50 denials")
		}
	})
}

func TestCheckIdentity(t *testing.T) {
	t.Run("Separators", func(t *testing.T) { // I1
		s := newService(t, api.Options{})
		for _, separator := range []string{":", ".", "_", "-"} {
			one := fmt.Sprintf(`{"limit":"a","subject":"b%sc"}`, separator)
			s.check(one).want(t, 200)
			s.check(one).want(t, 429)
			s.check(fmt.Sprintf(`{"limit":"a%sb","subject":"c"}`, separator)).want(t, 200)
		}
	})
	t.Run("Escapes", func(t *testing.T) { // I1
		s := newService(t, api.Options{})
		for _, subject := range []string{"a/b", "a%2Fb", "a%252Fb"} {
			s.check(`{"limit":"a","subject":"`+subject+`"}`).want(t, 200,
				path("limits", 0, "subject"), subject, path("limits", 0, "remaining"), "0")
		}
	})
	t.Run("Works", func(t *testing.T) { // I2
		s := newService(t, api.Options{})
		for _, subject := range []string{
			"🦦🌊", "a b", "a+b", "../x", "<&>", strings.Repeat("x", 1024), "é", "e\u0301", "A", "a",
		} {
			s.check(`{"limit":"a","subject":"`+subject+`"}`).
				want(t, 200, path("limits", 0, "subject"), subject)
		}
		s.check(`{"limit":"a","subject":"\ud83e\udda6"}`).
			want(t, 200, path("limits", 0, "subject"), "🦦")
	})
	for name, subject := range map[string]string{ // I1, I2
		"ErrEmpty":         "",
		"ErrLong":          strings.Repeat("x", 10_000),
		"ErrNewline":       `a\nb`,
		"ErrNUL":           `a\u0000b`,
		"ErrDelete":        `a\u007fb`,
		"ErrNotUTF8":       "a\xffb",
		"ErrHalfPair":      `\ud800`,
		"ErrOtherHalf":     `a\udc00`,
		"ErrTwoFirstHalfs": `\ud800\ud800`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, api.Options{})
			s.check(`{"limit":"a","subject":"`+subject+`"}`).want(t, 400, "code", "bad-request")
		})
	}
}
