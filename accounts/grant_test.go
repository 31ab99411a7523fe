package accounts_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// What a prepaid balance was overdrawn by is paid first by the next grant, once, and is to be seen
// in the journal.
func TestGrantPaysOverage(t *testing.T) {
	clock := newClock()
	d := newDesk(t, clock)
	held := d.hold(t, "", 10, d.of(prepaid, 10))
	settle(t, d.book, held.Transfer, map[string]uint64{"prepaid": 80})
	d.wantUsed(t, prepaid, 50)
	d.wantOverage(t, prepaid, 30)
	wantBalance(t, d.book, d.of(prepaid, 0), 50, 50, 0)

	wantOutcome(t, grant(t, d.book, "first", d.of(prepaid, 10)), accounts.Accepted)
	wantOutcome(t, grant(t, d.stranger(), "first", d.of(prepaid, 10)), accounts.Replayed)
	d.wantOverage(t, prepaid, 20)
	wantBalance(t, d.stranger(), d.of(prepaid, 0), 60, 60, 0)

	var group sync.WaitGroup
	for i := range 4 { // each of them could pay all that is outstanding
		book := d.stranger()
		group.Go(func() {
			_, err := book.Grant(context.Background(), fmt.Sprint(i),
				book.NewCharge(prepaid, "alice", 25))
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	d.wantOverage(t, prepaid, 0)
	wantBalance(t, d.stranger(), d.of(prepaid, 0), 160, 80, 80)

	page, err := d.book.Journal(context.Background(), d.of(prepaid, 0), 0, false, 100)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]uint64{}
	for _, e := range page.Entries {
		kinds[e.Kind] += e.Amount
	}
	want := map[string]uint64{"quota": 50, "hold": 10 + 10, "overage": 50 + 30, "grant": 110}
	if !maps.Equal(kinds, want) {
		t.Errorf("journal: got units %v, want %v", kinds, want)
	}
}

// What is taken back of a prepaid balance lowers the quota, what is used does not.
func TestPrepaidBalance(t *testing.T) {
	clock := newClock()
	d := newDesk(t, clock)
	wantOutcome(t, charge(t, d.book, "", d.of(prepaid, 20)), accounts.Accepted)
	clock.Advance(1000 * time.Hour)
	d.wantUsed(t, prepaid, 20)
	result, err := d.book.Revoke(context.Background(), "r", d.of(prepaid, 12))
	if err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, result, accounts.Accepted)
	wantBalance(t, d.stranger(), d.of(prepaid, 0), 38, 20, 18)
	d.hold(t, "", 10, d.of(prepaid, 18))
	wantBalance(t, d.stranger(), d.of(prepaid, 0), 38, 38, 0)

	attempt, err := d.book.NewAttempt("late", []accounts.Charge{d.of(prepaid, 3)})
	if err != nil {
		t.Fatal(err)
	}
	clock.Advance(11 * time.Second) // the hold is back
	for range 2 {                   // taken by mistake, and paid back
		_, err = d.book.Charge(context.Background(), attempt)
		if err != nil {
			t.Fatal(err)
		}
		err = d.book.Undo(context.Background(), attempt)
		if err != nil {
			t.Fatal(err)
		}
		wantBalance(t, d.stranger(), d.of(prepaid, 0), 38, 20, 18)
	}
}

// A limit that closes early lets nothing past its margin, which what was held may use all the same.
func TestCloseEarly(t *testing.T) {
	clock := newClock()
	d := newDesk(t, clock)
	early := spend
	early.Quota, early.CloseAt = 10, 750_000 // floor of 7.5, so that 3 stay free
	wantOutcome(t, charge(t, d.book, "", d.of(early, 8)), accounts.Refused)
	wantOutcome(t, charge(t, d.book, "", d.of(early, 4)), accounts.Accepted)
	held := d.hold(t, "", 10, d.of(early, 3))
	wantOutcome(t, charge(t, d.book, "", d.of(early, 1)), accounts.Refused)
	wantOutcome(t, d.tryHold(t, "", 10, d.of(early, 1)), accounts.Refused)
	beside := d.of(slots, 1)
	wantOutcome(t, charge(t, d.book, "", beside, d.of(early, 0)), accounts.Refused) // a look
	balances, err := d.book.Balances(context.Background(), []accounts.Charge{d.of(early, 0)})
	if err != nil {
		t.Fatal(err)
	}
	want := accounts.Balance{Quota: 10, Used: 7, Remaining: 3, Out: 7, Margin: 3}
	if balances[0] != want {
		t.Errorf("got %+v, want %+v", balances[0], want)
	}
	settle(t, d.book, held.Transfer, map[string]uint64{"spend": 6})
	wantBalance(t, d.stranger(), d.of(early, 0), 10, 10, 0)
	d.wantOverage(t, early, 0)
	d.advance(time.Minute)
	wantOutcome(t, charge(t, d.book, "", beside, d.of(early, 0)), accounts.Accepted)
	wantOutcome(t, charge(t, d.book, "", d.of(early, 7)), accounts.Accepted)
}
