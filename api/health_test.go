package api_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/api"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

func TestHealth(t *testing.T) {
	var reached, up atomic.Bool
	s := newService(t, api.Options{Ready: reached.Load, LedgerUp: up.Load})
	s.ledger.Inject(ledgertest.Fault{Before: errDown, Times: ledgertest.Always})

	s.call("GET", "/healthz", "").want(t, 200, "status", "ok", "ledger", "")
	a := s.call("GET", "/readyz", "")
	a.want(t, 503, "code", "not-ready", "ledger", "down")
	a.wantHeader(t, "Retry-After", "1")

	reached.Store(true)
	up.Store(true)
	s.call("GET", "/readyz", "").want(t, 200, "status", "ready", "ledger", "up")
	up.Store(false) // a later outage does not make the server unready
	s.call("GET", "/readyz", "").want(t, 200, "status", "ready", "ledger", "down")
	s.call("HEAD", "/readyz", "").want(t, 200)
	s.call("GET", "/healthz?verbose", "").want(t, 200)

	closed, err := limiter.NewLimits(0, []limiter.Limit{
		{Name: "a", Kind: limiter.RequestRate, Window: time.Second, OnFailure: limiter.Closed},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.limiter.SetLimits(closed) // an outage that leaves nothing to answer does
	s.call("GET", "/readyz", "").want(t, 503, "code", "not-ready", "ledger", "down")
	s.call("GET", "/healthz", "").want(t, 200)
	up.Store(true)
	s.call("GET", "/readyz", "").want(t, 200, "status", "ready", "ledger", "up")
}

// TestNothingLeaks makes calls with marked subjects, ids and tokens, and looks for the marks.
func TestNothingLeaks(t *testing.T) {
	s := newService(t, api.Options{Token: "mark-token", AdminToken: "mark-admin"})
	const user, admin = "Authorization: Bearer mark-token", "Authorization: Bearer mark-admin"
	const check = `{"limit":"a","subject":"mark-subject","id":"mark-id"}`
	s.check(check, user).want(t, 200)
	s.check(check, user).want(t, 200)
	s.check(`{"limit":"a","subject":"mark-subject","id":"mark-2"}`, user).want(t, 429)
	s.check(`{"limit":"a","subject":"mark-subject","id":"mark-id","cost":0}`, user)
	s.check(`{"limit":"mark-limit","subject":"mark-subject"}`, user).want(t, 404)
	s.check(`{"mark":1}`, user).want(t, 400)
	s.check(check, "Authorization: Bearer mark-wrong").want(t, 401)
	s.call("GET", "/v1/balance?limit=a&subject=mark-subject", "", user).want(t, 200)
	s.call("GET", "/v1/mark-path?mark=1", "").want(t, 404)
	s.call("MARK", "/v1/check", "").want(t, 405)
	s.call("POST", "/v1/admin/grants", `{"limit":"a","subject":"mark-subject","amount":1,"id":"mark"}`,
		admin).want(t, 200)
	heal := s.ledger.Inject(ledgertest.Fault{Before: errDown, Times: ledgertest.Always})
	s.check(`{"limit":"a","subject":"mark-subject-2","id":"mark-3"}`, user).want(t, 503)
	heal()

	metrics := s.call("GET", "/metrics", "").text
	if strings.Contains(strings.ToLower(metrics), "mark") {
		t.Errorf("the metrics hold what a caller sent:\n%s", metrics)
	}
	logs := s.logs.String()
	if strings.Contains(strings.ToLower(logs), "mark") {
		t.Errorf("the logs hold what a caller sent:\n%s", logs)
	}
	for _, line := range []string{
		`weir_http_requests_total{route="/v1/check",status="200"} 2`,
		`weir_http_requests_total{route="/v1/check",status="503"} 1`,
		`weir_http_requests_total{route="unmatched",status="404"} 1`,
		`weir_http_requests_total{route="unmatched",status="405"} 1`,
		`weir_http_request_duration_seconds_count{route="/v1/balance",status="200"} 1`,
		`weir_http_panics_total 0`,
		`weir_decisions_total{limit="a",result="denied"} `, // what others registered is shown too
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics have no line %s in\n%s", line, metrics)
		}
	}
	for _, part := range []string{
		`"level":"DEBUG","msg":"call","method":"POST","route":"/v1/check","status":200,"code":"",`,
		`"level":"DEBUG","msg":"call","method":"POST","route":"/v1/check","status":429,"code":"",`,
		`"level":"INFO","msg":"call","method":"POST","route":"/v1/check","status":400,"code":"bad-req`,
		`"level":"INFO","msg":"call","method":"other","route":"unmatched","status":405,`,
		`"level":"ERROR","msg":"call failed","code":"ledger-unavailable","cause":"`,
		`"duration":`,
	} {
		if !strings.Contains(logs, part) {
			t.Errorf("the logs have no %s in\n%s", part, logs)
		}
	}
}

func TestNewErrRegistered(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := newClock()
	twin := ledgertest.NewTwin(func() uint64 { return uint64(c.Now().UnixNano()) })
	l := newLimiter(t, twin, c, nil, openSpool(t))
	_, err := api.New(l, &api.Options{Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	_, err = api.New(l, &api.Options{Registry: registry})
	if err == nil {
		t.Error("got no error from a registry that has these metrics")
	}
	_, err = api.New(l, nil)
	if err != nil {
		t.Errorf("got error %v without options", err)
	}
}
