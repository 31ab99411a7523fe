package accounts_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/ledgers/ledgertest"
)

// testClock is a clock that only the test moves.
type testClock struct{ nanos atomic.Int64 }

func newClock() *testClock {
	c := &testClock{}
	c.nanos.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *testClock) Now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *testClock) Advance(d time.Duration) { c.nanos.Add(int64(d)) }

var namespace = accounts.Namespace{1, 2, 3}

// openLedger opens a ledger whose invariants are checked when the test ends.
func openLedger(t testing.TB, clock *testClock) ledgers.Driver {
	t.Helper()
	ledger, err := embedded.Open(t.TempDir(), &embedded.Options{Now: clock.Now, Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := ledger.Close()
		if err != nil {
			t.Error(err)
		}
	})
	return ledgertest.Checked(t, ledger)
}

func newBook(t testing.TB, driver ledgers.Driver, clock *testClock) *accounts.Book {
	t.Helper()
	book, err := accounts.NewBook(driver, namespace, &accounts.Options{Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return book
}

func limitOf(name string, quota uint64, window uint32) accounts.Limit {
	return accounts.Limit{
		Name: name, Ledger: accounts.LedgerNumber(name), Quota: quota, WindowSeconds: window,
	}
}

// charge charges one account and fails the test if the ledger does not answer.
func charge(t testing.TB, book *accounts.Book, id string, charges ...accounts.Charge,
) accounts.Result {
	t.Helper()
	result, err := tryCharge(book, id, charges...)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func tryCharge(book *accounts.Book, id string, charges ...accounts.Charge,
) (accounts.Result, error) {
	attempt, err := book.NewAttempt(id, charges)
	if err != nil {
		return accounts.Result{}, err
	}
	return book.Charge(context.Background(), attempt)
}

func wantOutcome(t testing.TB, got accounts.Result, want accounts.Outcome) {
	t.Helper()
	if got.Outcome != want {
		t.Fatalf("outcome: got %d, want %d (%+v)", got.Outcome, want, got)
	}
}

// wantBalance reads one balance and compares quota, used and remaining.
func wantBalance(t testing.TB, book *accounts.Book, c accounts.Charge, quota, used, left uint64) {
	t.Helper()
	balances, err := book.Balances(context.Background(), []accounts.Charge{c})
	if err != nil {
		t.Fatal(err)
	}
	got := balances[0]
	if got.Quota != quota || got.Used != used || got.Remaining != left {
		t.Fatalf("balance: got %+v, want quota %d, used %d, remaining %d", got, quota, used, left)
	}
}

// transfers reads the whole journal of an account as the ledger keeps it.
func transfers(t testing.TB, driver ledgers.Driver, account ledgers.ID) []ledgers.Transfer {
	t.Helper()
	found, err := driver.AccountTransfers(context.Background(), ledgers.AccountFilter{
		AccountID: account, Limit: ledgers.MaxEvents, Debits: true, Credits: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
