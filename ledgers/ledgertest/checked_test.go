package ledgertest_test

import (
	"context"
	"errors"
	"testing"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
)

// errDown is what a ledger that is away answers.
var errDown = errors.New("the ledger is down")

// forged is a driver whose accounts are looked up as the test says.
type forged struct {
	ledgers.Driver
	forge func(accounts []ledgers.Account)
}

func (f *forged) LookupAccounts(
	ctx context.Context, ids []ledgers.ID,
) ([]ledgers.Account, error) {
	accounts, err := f.Driver.LookupAccounts(ctx, ids)
	f.forge(accounts)
	return accounts, err
}

// useLedger makes three accounts on two ledgers and moves 5 of the 10 that account 2 has.
func useLedger(t testing.TB, d ledgers.Driver) {
	t.Helper()
	_, err := d.CreateAccounts(context.Background(), []ledgers.Account{
		{ID: ledgers.ID{Lo: 1}, Ledger: 1, Code: 1},
		{ID: ledgers.ID{Lo: 2}, Ledger: 1, Code: 1, Flags: ledgers.DebitsMustNotExceedCredits},
		{ID: ledgers.ID{Lo: 3}, Ledger: 2, Code: 1, Flags: ledgers.CreditsMustNotExceedDebits},
		{ID: ledgers.ID{Lo: 4}, Code: 1}, // refused
	})
	if err != nil {
		t.Fatalf("create accounts: %v", err)
	}
	results, err := d.CreateTransfers(context.Background(), []ledgers.Transfer{
		move(10, 1, 2, 10), hold(11, 2, 1, 5),
	})
	if err != nil {
		t.Fatalf("create transfers: %v", err)
	}
	for _, r := range results {
		if r.Status != ledgers.TransferCreated {
			t.Fatalf("create transfers: got %v, want created", r.Status)
		}
	}
}

func move(id, debit, credit, amount uint64) ledgers.Transfer {
	return ledgers.Transfer{
		ID: ledgers.ID{Lo: id}, DebitAccountID: ledgers.ID{Lo: debit},
		CreditAccountID: ledgers.ID{Lo: credit}, Amount: ledgers.AmountOf(amount),
		Ledger: 1, Code: 1,
	}
}

func hold(id, debit, credit, amount uint64) ledgers.Transfer {
	t := move(id, debit, credit, amount)
	t.Flags = ledgers.Pending
	return t
}

func TestChecked(t *testing.T) {
	for _, test := range []struct {
		name  string
		forge func(accounts []ledgers.Account)
		want  []string
	}{
		{"OK", func([]ledgers.Account) {}, nil},
		{"ErrPosted", func(a []ledgers.Account) {
			a[0].DebitsPosted = ledgers.AmountOf(11)
		}, []string{"ledger 1: debits posted are 11, credits posted 10"}},
		{"ErrPending", func(a []ledgers.Account) {
			a[0].CreditsPending = ledgers.AmountOf(4)
		}, []string{"ledger 1: debits pending are 5, credits pending 4"}},
		{"ErrAcrossLedgers", func(a []ledgers.Account) {
			a[1].DebitsPending, a[2].DebitsPending = ledgers.Amount{}, ledgers.AmountOf(5)
		}, []string{
			"ledger 1: debits pending are 0, credits pending 5",
			"ledger 2: debits pending are 5, credits pending 0",
		}},
		{"ErrDebitsExceedCredits", func(a []ledgers.Account) {
			a[0].CreditsPending, a[1].DebitsPending = ledgers.AmountOf(11), ledgers.AmountOf(11)
		}, []string{"debits exceed credits: id=2 debits_pending=11 credits_posted=10 ledger=1 code=1 " +
			"flags=2 timestamp=1799999999999999998"}},
		{"ErrCreditsExceedDebits", func(a []ledgers.Account) {
			a[2].CreditsPosted, a[2].DebitsPending = ledgers.AmountOf(1), ledgers.AmountOf(1)
		}, []string{
			"credits exceed debits: id=3 debits_pending=1 credits_posted=1 ledger=2 code=1 " +
				"flags=4 timestamp=1799999999999999999",
			"ledger 2: debits pending are 1, credits pending 0",
			"ledger 2: debits posted are 0, credits posted 1",
		}},
		{"ErrOverflow", func(a []ledgers.Account) {
			a[0].DebitsPending, a[1].CreditsPending = ledgers.MaxAmount, ledgers.MaxAmount
		}, []string{
			"debits do not fit into 128 bits: id=1 " +
				"debits_pending=340282366920938463463374607431768211455 debits_posted=10 " +
				"credits_pending=5 ledger=1 code=1 timestamp=1799999999999999997",
			"credits do not fit into 128 bits: id=2 debits_pending=5 " +
				"credits_pending=340282366920938463463374607431768211455 credits_posted=10 " +
				"ledger=1 code=1 flags=2 timestamp=1799999999999999998",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := record(t, func(t testing.TB) {
				d := &forged{Driver: openTwin(t).Driver, forge: test.forge}
				useLedger(t, ledgertest.Checked(t, d))
			})
			wantFailures(t, got, test.want)
		})
	}
}

func wantFailures(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got failures %q, want %q", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("failure %d:\n\tgot  %s\n\twant %s", i, got[i], want[i])
		}
	}
}

// TestCheckedClose has the check run when the wrapper is closed, once, and says so if it was too
// late.
func TestCheckedClose(t *testing.T) {
	unbalanced := func(accounts []ledgers.Account) { accounts[0].DebitsPosted = ledgers.MaxAmount }
	t.Run("OK", func(t *testing.T) {
		got := record(t, func(t testing.TB) {
			d := ledgertest.Checked(t, openTwin(t).Driver)
			useLedger(t, d)
			for range 2 {
				err := d.Close()
				if err != nil {
					t.Errorf("close: %v", err)
				}
			}
		})
		wantFailures(t, got, nil)
	})
	t.Run("ErrOnce", func(t *testing.T) {
		got := record(t, func(t testing.TB) {
			d := ledgertest.Checked(t, &forged{Driver: openTwin(t).Driver, forge: unbalanced})
			useLedger(t, d)
			err := d.Close()
			if err != nil {
				t.Errorf("close: %v", err)
			}
		})
		if len(got) != 1 {
			t.Errorf("got failures %q, want one", got)
		}
	})
	t.Run("ErrClosedBelow", func(t *testing.T) {
		got := record(t, func(t testing.TB) {
			twin := openTwin(t).Driver
			useLedger(t, ledgertest.Checked(t, twin))
			err := twin.Close()
			if err != nil {
				t.Errorf("close: %v", err)
			}
		})
		wantFailures(t, got, []string{
			"the ledger was closed before it was checked: close the Checked driver",
		})
	})
	t.Run("ErrAway", func(t *testing.T) {
		got := record(t, func(t testing.TB) {
			faulty := ledgertest.NewFaulty(openTwin(t).Driver)
			useLedger(t, ledgertest.Checked(t, faulty))
			faulty.Inject(ledgertest.Fault{Before: errDown})
		})
		wantFailures(t, got, []string{"look-up of 4 accounts for the check: the ledger is down"})
	})
}
