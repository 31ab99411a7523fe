package limiter_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"weir/accounts"
	"weir/ledgers/embedded"
	"weir/limiter"
)

// A limiter in one process: three requests a minute, and the fourth is told when to come back.
func Example() {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ledger, err := embedded.Open(dir, nil)
	if err != nil {
		panic(err)
	}
	defer ledger.Close()
	book, err := accounts.NewBook(ledger, accounts.Namespace{}, nil)
	if err != nil {
		panic(err)
	}
	limits, err := limiter.NewLimits(0, []limiter.Limit{
		{Name: "api", Kind: limiter.RequestRate, Quota: 3, Window: time.Minute},
	})
	if err != nil {
		panic(err)
	}
	l, err := limiter.New(book, limits, nil)
	if err != nil {
		panic(err)
	}
	request := limiter.Request{Members: []limiter.Member{
		{Limit: "api", Subject: "alice", Cost: limiter.DefaultCost},
	}}
	for range 4 {
		decision, err := l.Check(context.Background(), request)
		if err != nil {
			panic(err)
		}
		fmt.Println(decision.Allowed, decision.Limits[0].Remaining,
			decision.RetryAfter.Round(time.Second))
	}
	// Output:
	// true 2 0s
	// true 1 0s
	// true 0 0s
	// false 0 1m0s
}
