package embedded_test

import (
	"context"
	"fmt"
	"os"

	"weir/ledgers"
	"weir/ledgers/embedded"
)

func Example() {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ledger, err := embedded.Open(dir, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	operator, user := ledgers.ID{Lo: 1}, ledgers.ID{Lo: 2}
	_, err = ledger.CreateAccounts(ctx, []ledgers.Account{
		{ID: operator, Ledger: 1, Code: 1},
		{ID: user, Ledger: 1, Code: 1, Flags: ledgers.DebitsMustNotExceedCredits},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	charge := ledgers.Transfer{
		DebitAccountID: user, CreditAccountID: operator, Amount: ledgers.AmountOf(6),
		Ledger: 1, Code: 1, Flags: ledgers.Pending, Timeout: 60,
	}
	first, second := charge, charge
	first.ID, second.ID = ledgers.ID{Lo: 11}, ledgers.ID{Lo: 12}
	results, err := ledger.CreateTransfers(ctx, []ledgers.Transfer{
		{ID: ledgers.ID{Lo: 10}, DebitAccountID: operator, CreditAccountID: user,
			Amount: ledgers.AmountOf(10), Ledger: 1, Code: 1},
		first,
		second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range results {
		fmt.Println(r.Status)
	}
	err = ledger.Close()
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := embedded.Verify(dir)
	fmt.Println(report.Accounts, report.Transfers, report.Burnt, report.Live, report.Problems, err)
	// Output:
	// created
	// created
	// exceeds_credits
	// 2 2 1 1 [] <nil>
}
