package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

func byKey(r *http.Request) string { return r.Header.Get("X-Key") }

// visit makes a request with a key through a middleware to a handler that answers "served".
func visit(t testing.TB, m func(http.Handler) http.Handler, key string,
) *httptest.ResponseRecorder {
	t.Helper()
	handler := m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := w.Write([]byte("served"))
		if err != nil || r.Context().Err() != nil {
			t.Errorf("got error %v and context %v", err, r.Context().Err())
		}
	}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/things/1?q=2", nil)
	r.Header.Set("X-Key", key)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// TestMiddlewareHeaders has the headers that weir itself sends, on admissions and denials.
func TestMiddlewareHeaders(t *testing.T) {
	url := start(t, fixed)
	for _, limit := range []string{"api-requests", "credits"} {
		m := connect(t, url).Middleware(limit, byKey, &client.MiddlewareOptions{
			Cost: func(*http.Request) uint64 { return 2 },
		})
		for range 6 {
			got := visit(t, m, "u")
			body := `{"limit":"` + limit + `","subject":"other","cost":2}`
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/check",
				strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer user")
			want, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			want.Body.Close()
			if got.Code != want.StatusCode {
				t.Fatalf("%s: got status %d, want %d", limit, got.Code, want.StatusCode)
			}
			for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
				values := got.Header()[name] // spelled so
				if strings.Join(values, "|") != strings.Join(want.Header.Values(name), "|") {
					t.Errorf("%s, %d: got %s %q, want %q", limit, got.Code, name, values,
						want.Header.Values(name))
				}
			}
		}
	}
}

func TestMiddleware(t *testing.T) {
	m := connect(t, start(t, fixed)).Middleware("api-requests", byKey, nil)
	for i := range 4 {
		got := visit(t, m, "u")
		if i < 3 {
			if got.Code != http.StatusOK || got.Body.String() != "served" ||
				got.Header().Get("Cache-Control") != "" {
				t.Errorf("got %d %s, want it served", got.Code, got.Body)
			}
			continue
		}
		var p wire.Problem
		err := json.Unmarshal(got.Body.Bytes(), &p)
		if err != nil || got.Code != http.StatusTooManyRequests || p.Status != got.Code ||
			p.Code != wire.CodeQuotaExceeded || p.Type != wire.TypeQuotaExceeded || p.Decision != nil ||
			p.Instance != "/things/1" || len(p.ViolatedPolicies) != 1 ||
			p.ViolatedPolicies[0] != "api-requests" || p.Title == "" ||
			got.Header().Get("Content-Type") != wire.ProblemType ||
			got.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("got %d %s and error %v, want a problem", got.Code, got.Body, err)
		}
	}
	if got := visit(t, m, "\xff"); got.Code != http.StatusBadRequest {
		t.Errorf("got %d %s, want a bad request", got.Code, got.Body)
	}
	if got := visit(t, m, ""); got.Code != http.StatusBadRequest {
		t.Errorf("got %d %s, want a bad request", got.Code, got.Body)
	}
}

// TestMiddlewareUndecided has all that weir can say or not say, for both policies: an outage is
// never taken for a denial, nor the other way.
func TestMiddlewareUndecided(t *testing.T) {
	denial := denies(wire.Decision{RetryAfterMS: 1})
	cases := []struct {
		name         string
		answer       http.HandlerFunc
		closed, open int // the statuses
		code         wire.Code
		retryAfter   string
	}{
		{"Denial", denial, 429, 429, wire.CodeQuotaExceeded, ""},
		{"Hangs", hangs, 503, 200, wire.CodeLedgerUnavailable, "1"},
		{"BadGateway", proxies(502), 503, 200, wire.CodeLedgerUnavailable, "1"},
		{"LedgerAway", fails(wire.CodeLedgerUnavailable, "3"), 503, 503, wire.CodeLedgerUnavailable,
			"3"},
		{"Busy", fails(wire.CodeBusy, "1"), 503, 503, wire.CodeBusy, "1"},
		{"TooMuch", fails(wire.CodeCostExceedsQuota, ""), 422, 422, wire.CodeCostExceedsQuota, ""},
		{"UnknownLimit", fails(wire.CodeUnknownLimit, ""), 500, 500, wire.CodeInternal, ""},
		{"Unauthorized", fails(wire.CodeUnauthorized, ""), 500, 500, wire.CodeInternal, ""},
		{"ProxyDenies", func(w http.ResponseWriter, _ *http.Request) { // it, not weir
			w.Header().Set("Retry-After", "9")
			w.WriteHeader(http.StatusTooManyRequests)
		}, 500, 500, wire.CodeInternal, ""},
		{"NoDecision", says(struct{}{}), 500, 500, wire.CodeInternal, ""},
	}
	for _, c := range cases {
		for failOpen, want := range map[bool]int{false: c.closed, true: c.open} {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var told error
				s := &script{steps: []http.HandlerFunc{c.answer}}
				m := within(t, s, client.Options{}).Middleware("a", byKey, &client.MiddlewareOptions{
					FailOpen: failOpen, OnError: func(_ *http.Request, err error) { told = err },
				})
				got := visit(t, m, "u")
				if got.Code != want || (told == nil) != (c.name == "Denial") || len(s.calls) != 1 ||
					time.Since(start) > time.Second || idOf(t, s.calls[0]) != "" {
					t.Fatalf("%s, open %t: got status %d, error %v, calls %+v, want status %d",
						c.name, failOpen, got.Code, told, s.calls, want)
				}
				if want == http.StatusOK {
					return
				}
				var p wire.Problem
				err := json.Unmarshal(got.Body.Bytes(), &p)
				if err != nil || p.Code != c.code || got.Header().Get("Retry-After") != c.retryAfter {
					t.Errorf("%s: got %s, headers %v and error %v, want code %s", c.name, got.Body,
						got.Header(), err, c.code)
				}
			})
		}
	}
}

func TestMiddlewareCanceled(t *testing.T) { // whose sender has gone is no outage
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		m := within(t, http.HandlerFunc(hangs), client.Options{}).Middleware("a", byKey,
			&client.MiddlewareOptions{FailOpen: true, OnError: func(_ *http.Request, err error) {
				t.Errorf("got error %v", err)
			}})
		w := httptest.NewRecorder()
		m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("it was served")
		})).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("got status %d, want 503", w.Code)
		}
	})
}

func TestMiddlewareUnreachable(t *testing.T) { // is asked again, which is safe
	n := 0
	c := connectWith(t, client.Options{
		HTTPClient: &http.Client{Transport: unreachable{&n}}, Backoff: 1,
	})
	var told error
	got := visit(t, c.Middleware("a", byKey, &client.MiddlewareOptions{
		FailOpen: true, OnError: func(_ *http.Request, err error) { told = err },
	}), "u")
	if got.Code != http.StatusOK || n != 3 || !errors.Is(told, client.ErrNoAnswer) {
		t.Errorf("got status %d after %d calls and error %v, want it served", got.Code, n, told)
	}
}
