package accounts_test

import (
	"context"
	"fmt"
	"os"

	"weir/accounts"
	"weir/ledgers/embedded"
)

// One charge, what is left, and the entries that say so.
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
	limit := accounts.Limit{
		Name: "api", Ledger: accounts.LedgerNumber("api"), Quota: 10, WindowSeconds: 60,
	}
	ctx := context.Background()
	charge := book.NewCharge(limit, "alice", 3)
	attempt, err := book.NewAttempt("order 17", []accounts.Charge{charge})
	if err != nil {
		panic(err)
	}
	_, err = book.Charge(ctx, attempt)
	if err != nil {
		panic(err)
	}
	balances, err := book.Balances(ctx, []accounts.Charge{charge})
	if err != nil {
		panic(err)
	}
	fmt.Println(balances[0].Quota, balances[0].Used, balances[0].Remaining)
	page, err := book.Journal(ctx, charge, 0, false, accounts.MaxPage)
	if err != nil {
		panic(err)
	}
	for _, entry := range page.Entries {
		fmt.Println(entry.Kind, entry.Amount)
	}
	// Output:
	// 10 3 7
	// quota 10
	// charge 3
}
