package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"weir/accounts"
	"weir/api"
	"weir/ledgers/embedded"
	"weir/limiter"
	"weir/limiter/spend"
)

// hold is how long a call that nobody settles is held.
const hold = 10 * time.Minute

// weir is a server under test.
type weir struct {
	url   string
	nanos atomic.Int64 // its clock, which only the test moves
	away  atomic.Bool  // so that something in between answers
}

func (w *weir) now() time.Time { return time.Unix(0, w.nanos.Load()) }

func (w *weir) advance(d time.Duration) { w.nanos.Add(int64(d)) }

// startWeir starts a weir with a budget of so many tokens, each at a millionth of a USD.
func startWeir(t *testing.T, tokens uint64) *weir {
	t.Helper()
	w := &weir{}
	w.nanos.Store(time.Date(2026, 10, 16, 12, 0, 0, 0, time.UTC).UnixNano())
	ledger, err := embedded.Open(t.TempDir(), &embedded.Options{Now: w.now, Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	book, err := accounts.NewBook(ledger, accounts.Namespace{1}, &accounts.Options{Now: w.now})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := spend.NewPlan(
		[]spend.Budget{{Name: "llm-daily", Tokens: tokens, Deadline: 10 * time.Second, Hold: hold}},
		[]spend.Model{{Name: model, Number: 1, Input: 1_000_000, Output: 1_000_000}})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := limiter.NewRules(plan.Rules(limiter.Rules{}))
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(book, rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	breaker, err := spend.New(l, plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	server, err := api.New(l, &api.Options{
		Token: "user", AdminToken: "admin", Spend: breaker, Now: w.now,
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := server.Handler()
	listener := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.away.Load() {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(rw, r)
	}))
	t.Cleanup(func() {
		listener.Close()
		_ = ledger.Close()
	})
	w.url = listener.URL
	return w
}
