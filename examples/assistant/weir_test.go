package main

import (
	"net/http/httptest"
	"testing"
	"time"

	"weir/accounts"
	"weir/api"
	"weir/ledgers/embedded"
	"weir/limiter"
	"weir/limiter/spend"
)

// startWeir starts a weir with a budget of so many tokens, each at a millionth of a USD. It returns
// its URL.
func startWeir(t *testing.T, tokens uint64) string {
	t.Helper()
	ledger, err := embedded.Open(t.TempDir(), &embedded.Options{Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	book, err := accounts.NewBook(ledger, accounts.Namespace{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := spend.NewPlan(
		[]spend.Budget{{Name: "llm-daily", Tokens: tokens, Deadline: 10 * time.Second}},
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
	server, err := api.New(l, &api.Options{Token: "user", AdminToken: "admin", Spend: breaker})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		listener.Close()
		_ = ledger.Close()
	})
	return listener.URL
}
