package api_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/api"
	"weir/ledgers/ledgertest"
)

// tidy:table bodies that no check can have
func badChecks() map[string]string {
	return map[string]string{
		// Not JSON, or not just one object.
		"Empty":     ``,
		"Space":     ` `,
		"Text":      `limit=a&subject=u`,
		"CutShort":  `{"limit":"a","subject":"u"`,
		"Null":      `null`,
		"Array":     `[{"limit":"a","subject":"u"}]`,
		"String":    `"a"`,
		"Two":       `{"limit":"a","subject":"u"}{"limit":"a","subject":"u"}`,
		"Trailing":  `{"limit":"a","subject":"u"} x`,
		"Comment":   `{"limit":"a","subject":"u"} // x`,
		"NaN":       `{"limit":"a","subject":"u","cost":NaN}`,
		"ByteOrder": "\ufeff" + `{"limit":"a","subject":"u"}`,
		"NotUTF8":   `{"limit":"a","subject":"u","id":"` + "\xff" + `"}`,
		// Fields.
		"Unknown":       `{"limit":"a","subject":"u","costs":1}`,
		"UnknownDeeper": `{"limits":[{"limit":"a","subject":"u","id":"x"}]}`,
		"Capitals":      `{"Limit":"a","subject":"u"}`,
		"Twice":         `{"limit":"a","subject":"u","subject":"v"}`,
		"TwiceDeeper":   `{"subject":"u","limits":[{"limit":"a","cost":1,"cost":2}]}`,
		"LongS":         `{"limit":"a","ſubject":"u"}`,
		"NoLimit":       `{"subject":"u"}`,
		"NoSubject":     `{"limit":"a"}`,
		"Nothing":       `{}`,
		"NullLimit":     `{"limit":null,"subject":"u"}`,
		"NullSubject":   `{"limit":"a","subject":null}`,
		"NullID":        `{"limit":"a","subject":"u","id":null}`,
		"NullLimits":    `{"limit":"a","subject":"u","limits":null}`,
		"NumberSubject": `{"limit":"a","subject":1}`,
		"EmptyLimit":    `{"limit":"","subject":"u"}`,
		"EmptyID":       `{"limit":"a","subject":"u","id":""}`,
		"LongID":        `{"limit":"a","subject":"u","id":"` + strings.Repeat("x", 256) + `"}`,
		// Both forms, or neither whole.
		"BothForms":      `{"limit":"a","subject":"u","limits":[{"limit":"a"}]}`,
		"CostBeside":     `{"subject":"u","cost":1,"limits":[{"limit":"a"}]}`,
		"NoLimits":       `{"subject":"u","limits":[]}`,
		"LimitsObject":   `{"subject":"u","limits":{"limit":"a"}}`,
		"LimitsOfText":   `{"subject":"u","limits":["a"]}`,
		"MemberNull":     `{"subject":"u","limits":[null]}`,
		"MemberLimit":    `{"subject":"u","limits":[{"cost":1}]}`,
		"MemberSubject":  `{"limits":[{"limit":"a"}]}`,
		"MemberNoString": `{"subject":"u","limits":[{"limit":"a","subject":""}]}`,
		"Seventeen": `{"subject":"u","limits":[` + strings.Repeat(`{"limit":"a"},`, 16) +
			`{"limit":"a"}]}`,
		// Numbers (N5).
		"Negative":     `{"limit":"a","subject":"u","cost":-1}`,
		"NegativeText": `{"limit":"a","subject":"u","cost":"-1"}`,
		"MinusZero":    `{"limit":"a","subject":"u","cost":-0}`,
		"MinusHalf":    `{"limit":"a","subject":"u","cost":-0.5}`,
		"Fraction":     `{"limit":"a","subject":"u","cost":1.5}`,
		"Point":        `{"limit":"a","subject":"u","cost":1.0}`,
		"Exponent":     `{"limit":"a","subject":"u","cost":1e3}`,
		"ExponentText": `{"limit":"a","subject":"u","cost":"1e3"}`,
		"EmptyText":    `{"limit":"a","subject":"u","cost":""}`,
		"PlusText":     `{"limit":"a","subject":"u","cost":"+1"}`,
		"SpaceText":    `{"limit":"a","subject":"u","cost":" 1"}`,
		"ZeroText":     `{"limit":"a","subject":"u","cost":"01"}`,
		"HexText":      `{"limit":"a","subject":"u","cost":"0x1"}`,
		"NullCost":     `{"limit":"a","subject":"u","cost":null}`,
		"True":         `{"limit":"a","subject":"u","cost":true}`,
		"ArrayCost":    `{"limit":"a","subject":"u","cost":[1]}`,
		"ObjectCost":   `{"limit":"a","subject":"u","cost":{}}`,
	}
}

func TestCheckErrBadRequest(t *testing.T) {
	s := newService(t, api.Options{})
	for name, body := range badChecks() {
		t.Run(name, func(t *testing.T) {
			a := s.check(body)
			a.want(t, 400, "code", "bad-request", "title", "Bad Request")
			for _, ours := range []string{"wire.", "json:", "Go ", "struct", "*"} {
				if strings.Contains(a.field("detail"), ours) {
					t.Errorf("got detail %q, which speaks of %q", a.field("detail"), ours)
				}
			}
		})
	}
	writes := s.ledger.Calls(ledgertest.CallCreateTransfers)
	if writes != 0 {
		t.Errorf("got %d ledger writes, want none", writes)
	}
}

func TestCheckErrDetail(t *testing.T) {
	s := newService(t, api.Options{})
	const amount = `want a whole number from 0 to 999999999999999, or money in quotes, ` +
		`as in "1.50", not `
	tests := map[string]string{
		`{"cost":-1}`:              "cost: " + amount + "number -1",
		`{"cost":"1e3"}`:           "cost: " + amount + `string "1e3"`,
		`{"cost":0.5}`:             "cost: " + amount + "number 0.5",
		`{"cost":true}`:            "cost: " + amount + "true",
		`{"limits":[{"cost":{}}]}`: "limits.cost: " + amount + "object",
		`{"subject":1}`:            "subject: want a string, not number",
		`{"limits":{}}`:            "limits: want an array, not object",
		`[]`:                       "the body: want an object, not array",
		`{"x":1}`:                  `unknown field "x"`,
		`{"id":null}`:              "id: null is no value",
		`{"id":"a","id":"b"}`:      `field "id" is given twice`,
		`{"subject":"u"}`:          "limit is missing",
		`{"limit":"a"}`:            "subject is missing",
	}
	for body, want := range tests {
		s.check(body).want(t, 400, "detail", want)
	}
}

// TestNumbers sends the numbers of which other services make others (N6).
func TestNumbers(t *testing.T) {
	s := newService(t, api.Options{AdminToken: "admin"})
	for number, status := range map[string]int{
		"2147483648":                              200, // 2^31
		"4294967296":                              200, // 2^32
		"999999999999999":                         200,
		"1000000000000000":                        400,
		"9007199254740993":                        400, // 2^53+1
		"9223372036854775808":                     400, // 2^63
		"18446744073709551615":                    400,
		"18446744073709551616":                    400, // 2^64
		"18446744073709551617":                    400, // 2^64+1, which would wrap around to 1
		"340282366920938463463374607431768211455": 400, // 2^128-1
		"340282366920938463463374607431768211456": 400, // 2^128
	} {
		for i, form := range []string{number, `"` + number + `"`} {
			subject := fmt.Sprintf("%s-%d", number, i)
			a := s.check(fmt.Sprintf(`{"limit":"most","subject":%q,"cost":%s}`, subject, form))
			a.want(t, status)
			if status == 200 {
				a.want(t, 200, path("limits", 0, "cost"), number)
				s.wantUsed("most", subject, number)
			}
			a = s.admin("grants", fmt.Sprintf(
				`{"limit":"none","subject":%q,"amount":%s,"id":%q}`, subject, form, subject))
			a.want(t, status)
			if status == 200 {
				a.want(t, 200, "amount", number, "quota", number, "remaining", number)
			}
		}
	}
	// A giant grant of one subject is no matter of another's.
	s.admin("grants", `{"limit":"none","subject":"other","amount":1,"id":"other"}`).
		want(t, 200, "quota", "1")
}

// admin posts to one of the admin's routes.
func (s *service) admin(noun, body string, headers ...string) answer {
	s.Helper()
	headers = append(headers, "Authorization: Bearer admin")
	return s.call("POST", "/v1/admin/"+noun, body, headers...)
}

func TestIdempotencyKey(t *testing.T) {
	const check = `{"limit":"api-requests","subject":"u"}`
	t.Run("SameID", func(t *testing.T) { // spellings of one id
		s := newService(t, api.Options{})
		s.check(`{"limit":"api-requests","subject":"u","id":"a \"b\\"}`).want(t, 200)
		for _, header := range []string{`"a \"b\\"`, `a "b\`} {
			s.check(check, "Idempotency-Key: "+header).want(t, 200, "replayed", "true")
		}
	})
	t.Run("ErrBadRequest", func(t *testing.T) {
		s := newService(t, api.Options{})
		for _, header := range []string{
			`""`, `"`, `"a`, `"a"b`, `"a";b=1`, `"a\b"`, `"é"`, `"` + strings.Repeat("x", 256) + `"`,
			strings.Repeat("x", 256), "\xff",
		} {
			s.check(check, "Idempotency-Key: "+header).want(t, 400, "code", "bad-request")
		}
		s.check(check, "Idempotency-Key: a", "Idempotency-Key: a").want(t, 400)
		s.check(check, "Idempotency-Key: ").want(t, 400)
		s.check(`{"limit":"api-requests","subject":"u","id":"a"}`, "Idempotency-Key: b").want(t, 400)
		s.wantUsed("api-requests", "u", "0")
	})
	t.Run("Ignored", func(t *testing.T) { // on what takes no id
		s := newService(t, api.Options{})
		s.call("GET", "/v1/balance?limit=a&subject=u", "", `Idempotency-Key: "a`).want(t, 200)
		s.call("GET", "/v1/limits", "", "Idempotency-Key: ").want(t, 200)
	})
}

func TestQuery(t *testing.T) {
	s := newService(t, api.Options{})
	t.Run("Exactly", func(t *testing.T) { // I2
		for query, subject := range map[string]string{
			"a%2Fb":         "a/b",
			"a%252Fb":       "a%2Fb",
			"a%25252Fb":     "a%252Fb",
			"a/b":           "a/b",
			"a%20b":         "a b",
			"a+b":           "a b", // as forms write a space
			"a%2Bb":         "a+b",
			"..%2F.":        "../.",
			"%F0%9F%A6%A6":  "🦦",
			"a%26limit%3Db": "a&limit=b",
		} {
			s.call("GET", "/v1/balance?limit=a&subject="+query, "").want(t, 200, "subject", subject)
		}
	})
	t.Run("ErrBadRequest", func(t *testing.T) {
		for _, query := range []string{
			"", "limit=a", "subject=u", "limit=a&subject=", "limit=a&subject=u&x=1",
			"limit=a&subject=u&subject=v", "limit=a&subject=u&subject=u", "limit=a&subject=%zz",
			"limit=a;subject=u", "limit=a&subject=%FF", "limit=a&subject=%00", "limit=a&subject=%0A",
			"Limit=a&subject=u", "limit=a&subject=" + strings.Repeat("x", 1025),
		} {
			s.call("GET", "/v1/balance?"+query, "").want(t, 400, "code", "bad-request")
		}
		s.call("GET", "/v1/limits?x=1", "").want(t, 400)
		s.call("POST", "/v1/check?subject=u", `{"limit":"a"}`).want(t, 400)
	})
	t.Run("ErrUnknownLimit", func(t *testing.T) {
		s.call("GET", "/v1/balance?limit=zz&subject=u", "").want(t, 404, "code", "unknown-limit")
	})
}

// TestBodyCaps sends bodies of just the most bytes, and of one more.
func TestBodyCaps(t *testing.T) {
	s := newService(t, api.Options{})
	pad := func(body string, size int) string { return body + strings.Repeat(" ", size-len(body)) }
	const check = `{"limit":"site","subject":"u"}`
	s.check(pad(check, 64<<10)).want(t, 200)
	s.check(pad(check, 64<<10+1)).want(t, 413, "code", "body-too-large")
	batch := `{"checks":[` + check + `]}`
	s.call("POST", "/v1/check/batch", pad(batch, 1<<20)).want(t, 200)
	s.call("POST", "/v1/check/batch", pad(batch, 1<<20+1)).want(t, 413, "code", "body-too-large")
	s.wantUsed("site", "u", "2")
}

// FuzzCheck says that no body makes weir fail, and that what is not charged is a problem.
func FuzzCheck(f *testing.F) {
	for _, body := range badChecks() {
		f.Add(body)
	}
	f.Add(`{"limit":"api-requests","subject":"\ud83e\udda6","cost":"1","id":"x"}`)
	f.Add(`{"checks":[{"limit":"a","subject":"u"},null]}`)
	f.Add(tiers)
	f.Add(`{"limits":[{"limit":"spend","cost":"0.50"}]}`)
	f.Add(`{"limit":"a","subject":"u","hold_seconds":1}`)
	s := newService(f, api.Options{Logger: slog.New(slog.DiscardHandler)})
	f.Fuzz(func(t *testing.T, body string) {
		for _, route := range []string{
			"/v1/check", "/v1/check/batch", "/v1/reservations", "/v1/track",
			"/v1/reservations/0123456789abcdef0123456789abcdef/settle",
		} {
			recorder := httptest.NewRecorder()
			request := httptest.NewRequest(http.MethodPost, route, strings.NewReader(body))
			s.server.Handler().ServeHTTP(recorder, request)
			if recorder.Code >= 500 || !json.Valid(recorder.Body.Bytes()) {
				t.Errorf("%s: got status %d: %s", route, recorder.Code, recorder.Body)
			}
			code := strings.Contains(recorder.Body.String(), `"code":`)
			if recorder.Code != 200 && !code {
				t.Errorf("%s: got status %d without a code: %s", route, recorder.Code, recorder.Body)
			}
		}
	})
}
