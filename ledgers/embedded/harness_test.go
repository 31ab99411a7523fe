package embedded_test

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"weir/ledgers"
	"weir/ledgers/embedded"
)

// fakeClock is a wall clock that stands still until it is set. It starts at a round date.
type fakeClock struct{ now atomic.Int64 }

func newClock() *fakeClock {
	c := &fakeClock{}
	c.now.Store(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano())
	return c
}

func (c *fakeClock) set(at uint64)           { c.now.Store(int64(at)) }
func (c *fakeClock) advance(d time.Duration) { c.now.Add(int64(d)) }
func (c *fakeClock) read() time.Time         { return time.Unix(0, c.now.Load()) }

func (c *fakeClock) options() *embedded.Options {
	return &embedded.Options{Now: c.read, Volatile: true}
}

// open opens a ledger and closes it at the end of the test.
func open(t testing.TB, dir string, options *embedded.Options) *embedded.Ledger {
	t.Helper()
	ledger, err := embedded.Open(dir, options)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		err := ledger.Close()
		if err != nil {
			t.Errorf("close: %v", err)
			return
		}
		verifyFiles(t, dir, vfs.Default)
	})
	return ledger
}

// count returns short, or long where WEIR_LONG=1 asks for the full counts.
func count(short, long int) int {
	if os.Getenv("WEIR_LONG") == "1" {
		return long
	}
	return short
}

// verifyFiles checks a closed ledger.
func verifyFiles(t testing.TB, dir string, files vfs.FS) {
	t.Helper()
	report, err := embedded.VerifyFiles(dir, files)
	if err != nil {
		t.Errorf("verify: %v", err)
	}
	for _, problem := range report.Problems {
		t.Errorf("verify: %s", problem)
	}
}

// create creates accounts that must be new.
func create(t testing.TB, ledger ledgers.Driver, accounts ...ledgers.Account) {
	t.Helper()
	results, err := ledger.CreateAccounts(t.Context(), accounts)
	if err != nil {
		t.Fatalf("create accounts: %v", err)
	}
	for i, r := range results {
		if r.Status != ledgers.AccountCreated {
			t.Fatalf("create account %v: got %v, want created", accounts[i].ID, r.Status)
		}
	}
}

// transfer creates transfers that must all be answered with one status.
func transfer(
	t testing.TB, ledger ledgers.Driver, want ledgers.TransferStatus, transfers ...ledgers.Transfer,
) []ledgers.TransferResult {
	t.Helper()
	results, err := ledger.CreateTransfers(t.Context(), transfers)
	if err != nil {
		t.Fatalf("create transfers: %v", err)
	}
	for i, r := range results {
		if r.Status != want {
			t.Fatalf("create transfer %v: got %v, want %v", transfers[i].ID, r.Status, want)
		}
	}
	return results
}
