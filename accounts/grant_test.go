package accounts_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"weir/accounts"
)

func grant(t testing.TB, book *accounts.Book, id string, c accounts.Charge) accounts.Result {
	t.Helper()
	result, err := book.Grant(context.Background(), id, c)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func revoke(t testing.TB, book *accounts.Book, id string, c accounts.Charge) accounts.Result {
	t.Helper()
	result, err := book.Revoke(context.Background(), id, c)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// R8: the same grant 100 times at once is made once; another amount is a conflict.
func TestGrantOnce(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	books := []*accounts.Book{newBook(t, driver, clock), newBook(t, driver, clock)}
	limit := limitOf("api", 10, 60)
	var accepted, replayed atomic.Int64
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			book := books[i%2]
			result, err := book.Grant(context.Background(), "g", book.NewCharge(limit, "alice", 5))
			switch {
			case err != nil:
				t.Error(err)
			case result.Outcome == accounts.Accepted:
				accepted.Add(1)
			case result.Outcome == accounts.Replayed:
				replayed.Add(1)
			}
		})
	}
	group.Wait()
	if accepted.Load() != 1 || replayed.Load() != 99 {
		t.Errorf("accepted %d and replayed %d, want 1 and 99", accepted.Load(), replayed.Load())
	}
	wantOutcome(t, grant(t, books[0], "g", books[0].NewCharge(limit, "alice", 6)), accounts.Conflict)
	wantOutcome(t, revoke(t, books[0], "g", books[0].NewCharge(limit, "alice", 5)), accounts.Conflict)
	wantBalance(t, books[0], books[0].NewCharge(limit, "alice", 0), 15, 0, 15)
}

func TestRevoke(t *testing.T) {
	clock := newClock()
	book := newBook(t, openLedger(t, clock), clock)
	limit := limitOf("api", 10, 60)
	c := func(n uint64) accounts.Charge { return book.NewCharge(limit, "alice", n) }
	charge(t, book, "", c(4))

	wantOutcome(t, revoke(t, book, "r-1", c(7)), accounts.Refused)
	wantBalance(t, book, c(0), 10, 4, 6)
	wantOutcome(t, revoke(t, book, "r-1", c(6)), accounts.Accepted)
	wantBalance(t, book, c(0), 4, 4, 0)
	wantOutcome(t, revoke(t, book, "r-1", c(6)), accounts.Replayed)
	wantOutcome(t, charge(t, book, "", c(1)), accounts.Refused)
}

// One subject's giant grant never spoils another's (N6).
func TestGrantTooLarge(t *testing.T) {
	clock := newClock()
	book := newBook(t, openLedger(t, clock), clock)
	limit := limitOf("api", 10, 60)
	for _, subject := range []string{"a", "b", "c"} {
		c := func(n uint64) accounts.Charge { return book.NewCharge(limit, subject, n) }
		wantOutcome(t, grant(t, book, "1", c(accounts.MaxQuota)), accounts.TooLarge)
		wantOutcome(t, grant(t, book, "2", c(accounts.MaxQuota-10)), accounts.Accepted)
		wantOutcome(t, grant(t, book, "3", c(1)), accounts.TooLarge)
		wantBalance(t, book, c(0), accounts.MaxQuota, 0, accounts.MaxQuota)
	}
}

// Where the config raises the quota of a subject with a giant grant, the quota stays within what
// answers can carry, and the subject is charged as before.
func TestQuotaRaisedAboveGiantGrant(t *testing.T) {
	clock := newClock()
	book := newBook(t, openLedger(t, clock), clock)
	limit := limitOf("api", 10, 60)
	wantOutcome(t, grant(t, book, "1", book.NewCharge(limit, "vip", accounts.MaxQuota-10)),
		accounts.Accepted)
	raised := revised(limit, 0, 20)
	c := func(n uint64) accounts.Charge { return book.NewCharge(raised, "vip", n) }
	wantBalance(t, book, c(0), accounts.MaxQuota, 0, accounts.MaxQuota)
	wantOutcome(t, charge(t, book, "", c(7)), accounts.Accepted)
	wantBalance(t, book, c(0), accounts.MaxQuota, 7, accounts.MaxQuota-7)
	wantOutcome(t, grant(t, book, "2", c(1)), accounts.TooLarge)
}
