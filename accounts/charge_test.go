package accounts_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/ledgertest"
)

// The entries of a first check are the recipe's: the quota, then the charge.
func TestChargeEntries(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	book := newBook(t, driver, clock)
	c := book.NewCharge(limitOf("api", 10, 60), "alice", 3)

	result := charge(t, book, "", c)

	wantOutcome(t, result, accounts.Accepted)
	entries := transfers(t, driver, c.Account())
	if len(entries) != 2 {
		t.Fatalf("entries: got %d, want 2", len(entries))
	}
	operator := namespace.OperatorAccount("api")
	quota, taken := entries[0], entries[1]
	if quota.Code != accounts.CodeQuota || quota.DebitAccountID != operator ||
		quota.Amount != ledgers.AmountOf(10) || quota.Flags != 0 {
		t.Errorf("quota entry: got %+v", quota)
	}
	if taken.ID != result.Transfer || taken.DebitAccountID != c.Account() ||
		taken.CreditAccountID != operator || taken.Amount != ledgers.AmountOf(3) ||
		taken.Flags != ledgers.Pending || taken.Timeout != 60 || taken.Code != accounts.CodeCharge {
		t.Errorf("charge entry: got %+v", taken)
	}
	if taken.Timestamp != result.Timestamp {
		t.Errorf("timestamp: got %d, want the entry's %d", result.Timestamp, taken.Timestamp)
	}
	wantBalance(t, book, c, 10, 3, 7)
}

func TestChargeOutcomes(t *testing.T) {
	clock := newClock()
	book := newBook(t, openLedger(t, clock), clock)
	limit := limitOf("api", 10, 60)
	take := func(n uint64) accounts.Charge { return book.NewCharge(limit, "alice", n) }

	first := charge(t, book, "id-1", take(6))
	wantOutcome(t, first, accounts.Accepted)

	again := charge(t, book, "id-1", take(6))
	wantOutcome(t, again, accounts.Replayed)
	if again.Transfer != first.Transfer || again.Timestamp != first.Timestamp {
		t.Errorf("replay: got %+v, want transfer and time of %+v", again, first)
	}
	wantOutcome(t, charge(t, book, "id-1", take(5)), accounts.Conflict)

	refused := charge(t, book, "id-2", take(5))
	wantOutcome(t, refused, accounts.Refused)
	if refused.Burnt || !refused.Transfer.IsZero() {
		t.Errorf("first refusal: got %+v, want no receipt and not burnt", refused)
	}
	clock.Advance(61 * time.Second)
	burnt := charge(t, book, "id-2", take(1))
	wantOutcome(t, burnt, accounts.Refused)
	if !burnt.Burnt {
		t.Error("a refused id sent again: want burnt")
	}
	wantOutcome(t, charge(t, book, "id-1", take(6)), accounts.Expired)
	wantBalance(t, book, take(0), 10, 0, 10)
}

// Two subjects may use the same id (R7), and a set of accounts is one scope in any order.
func TestChargeIDScope(t *testing.T) {
	clock := newClock()
	book := newBook(t, openLedger(t, clock), clock)
	a := book.NewCharge(limitOf("a", 10, 60), "s", 1)
	b := book.NewCharge(limitOf("b", 10, 60), "s", 1)

	wantOutcome(t, charge(t, book, "id", a), accounts.Accepted)
	wantOutcome(t, charge(t, book, "id", b), accounts.Accepted)
	wantOutcome(t, charge(t, book, "id", a, b), accounts.Accepted)
	wantOutcome(t, charge(t, book, "id", b, a), accounts.Replayed)
	wantBalance(t, book, a, 10, 2, 8)
	wantBalance(t, book, b, 10, 2, 8)
}

// Several accounts are charged all or none, whichever lacks (C3).
func TestChargeSeveral(t *testing.T) {
	clock := newClock()
	book := newBook(t, openLedger(t, clock), clock)
	user := book.NewCharge(limitOf("user", 2, 60), "alice", 1)
	site := book.NewCharge(limitOf("site", 1000, 60), "all", 1)

	for range 2 {
		wantOutcome(t, charge(t, book, "", site, user), accounts.Accepted)
	}
	for range 3 {
		got := charge(t, book, "", site, user)
		wantOutcome(t, got, accounts.Refused)
		if got.Refused != 1 {
			t.Errorf("refused member of (site, user): got %d, want 1", got.Refused)
		}
		got = charge(t, book, "", user, site)
		wantOutcome(t, got, accounts.Refused)
		if got.Refused != 0 {
			t.Errorf("refused member of (user, site): got %d, want 0", got.Refused)
		}
	}
	wantBalance(t, book, site, 1000, 2, 998)
}

// An amount of 0 beside another wants a unit to be there and takes none.
func TestChargeGuard(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	book := newBook(t, driver, clock)
	user := book.NewCharge(limitOf("user", 1, 60), "alice", 0)
	site := book.NewCharge(limitOf("site", 10, 60), "all", 1)

	wantOutcome(t, charge(t, book, "g-1", user, site), accounts.Accepted)
	wantBalance(t, book, user, 1, 0, 1)
	wantBalance(t, book, site, 10, 1, 9)
	wantOutcome(t, charge(t, book, "g-1", user, site), accounts.Replayed)

	wantOutcome(t, charge(t, book, "", book.NewCharge(limitOf("user", 1, 60), "alice", 1)),
		accounts.Accepted)
	got := charge(t, book, "", user, site)
	wantOutcome(t, got, accounts.Refused)
	if got.Refused != 0 {
		t.Errorf("refused member: got %d, want the one that only looks", got.Refused)
	}
	wantBalance(t, book, site, 10, 1, 9)
}

// A refused id stays refused, whichever of its accounts lacked a unit and whatever costs it comes
// with again, also where some are 0.
func TestChargeRefusedStaysRefused(t *testing.T) {
	costs := [][]uint64{{1, 1, 1}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 0}, {1, 0, 1}, {0, 1, 1}}
	clock := newClock()
	book := newBook(t, openLedger(t, clock), clock)
	limits := []accounts.Limit{limitOf("a", 5, 1), limitOf("b", 5, 1), limitOf("c", 5, 1)}
	for empty := range limits {
		for i, first := range costs {
			for j, second := range costs {
				subject := fmt.Sprint(empty, i, j)
				charges := func(costs []uint64) []accounts.Charge {
					list := make([]accounts.Charge, len(costs))
					for k, cost := range costs {
						list[k] = book.NewCharge(limits[k], subject, cost)
					}
					return list
				}
				charge(t, book, "", book.NewCharge(limits[empty], subject, 5))
				wantOutcome(t, charge(t, book, "id", charges(first)...), accounts.Refused)
				clock.Advance(2 * time.Second)
				again := charge(t, book, "id", charges(second)...)
				if again.Outcome != accounts.Refused || !again.Burnt {
					t.Errorf("limit %d empty, costs %v, then %v: got %+v, want it refused again",
						empty, first, second, again)
				}
			}
		}
	}
}

// A never-seen subject gets its quota once, whatever the concurrency and over several nodes (C2).
func TestChargeFirstSight(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	books := []*accounts.Book{newBook(t, driver, clock), newBook(t, driver, clock)}
	for round := range 20 {
		subject := fmt.Sprint("subject ", round)
		var accepted atomic.Int64
		var group sync.WaitGroup
		for i := range 64 {
			group.Go(func() {
				book := books[i%len(books)]
				c := book.NewCharge(limitOf("api", 5, 60), subject, 1)
				result, err := tryCharge(book, "", c)
				switch {
				case err != nil:
					t.Error(err)
				case result.Outcome == accounts.Accepted:
					accepted.Add(1)
				}
			})
		}
		group.Wait()
		if accepted.Load() != 5 {
			t.Fatalf("round %d: accepted %d, want 5", round, accepted.Load())
		}
		wantBalance(t, books[0], books[0].NewCharge(limitOf("api", 5, 60), subject, 0), 5, 5, 0)
	}
}

// A node may die anywhere between creating an account, giving it its quota and charging it; another
// one goes on from there.
func TestChargeAfterHalfAnOpening(t *testing.T) {
	for _, calls := range []struct {
		name  string
		fault ledgertest.Fault
	}{
		{"account not created", ledgertest.Fault{
			On: ledgertest.CallCreateAccounts, Before: ledgers.ErrClosed}},
		{"account created, no quota", ledgertest.Fault{
			On: ledgertest.CallCreateTransfers, Before: ledgers.ErrClosed}},
		{"all done, reply lost", ledgertest.Fault{
			On: ledgertest.CallCreateTransfers, After: ledgers.ErrClosed}},
	} {
		t.Run(calls.name, func(t *testing.T) {
			clock := newClock()
			driver := openLedger(t, clock)
			faulty := ledgertest.NewFaulty(driver)
			faulty.Inject(calls.fault)
			dying := newBook(t, faulty, clock)
			c := dying.NewCharge(limitOf("api", 5, 60), "alice", 2)
			_, err := tryCharge(dying, "id", c)
			if err == nil {
				t.Fatal("the fault did not strike")
			}

			for _, book := range []*accounts.Book{dying, newBook(t, driver, clock)} {
				c = book.NewCharge(limitOf("api", 5, 60), "alice", 2)
				got := charge(t, book, "id", c)
				if got.Outcome != accounts.Accepted && got.Outcome != accounts.Replayed {
					t.Fatalf("outcome: got %d, want accepted or replayed", got.Outcome)
				}
				wantBalance(t, book, c, 5, 2, 3)
			}
		})
	}
}

func TestChargeErrors(t *testing.T) {
	t.Run("ErrStatus", func(t *testing.T) {
		clock := newClock()
		driver := openLedger(t, clock)
		book := newBook(t, driver, clock)
		limit := limitOf("api", 5, 60)
		charge(t, book, "", book.NewCharge(limit, "alice", 1))
		limit.Ledger++ // the config was given another ledger under a name that has accounts
		moved := newBook(t, driver, clock)
		_, err := tryCharge(moved, "", moved.NewCharge(limit, "alice", 1))
		wantError(t, err, accounts.ErrStatus)
	})
	t.Run("ErrLedgerNumber", func(t *testing.T) {
		a, b := limitOf("a", 1, 1), limitOf("b", 1, 1)
		b.Ledger = a.Ledger
		wantError(t, accounts.CheckLedgers([]accounts.Limit{a, b}), accounts.ErrLedgerNumber)
		wantError(t, accounts.CheckLedgers([]accounts.Limit{{Name: "c"}}), accounts.ErrLedgerNumber)

		usd, limits := accounts.Asset{Code: "USD", Ledger: 7}, []accounts.Limit{a}
		err := accounts.CheckLedgers(limits, usd, accounts.Asset{Code: "EUR", Ledger: 8})
		if err != nil {
			t.Errorf("ledgers of their own: got %v, want no error", err)
		}
		wantError(t, accounts.CheckLedgers(limits, usd, accounts.Asset{Code: "EUR", Ledger: 7}),
			accounts.ErrLedgerNumber)
		wantError(t, accounts.CheckLedgers(limits, accounts.Asset{Code: "EUR", Ledger: a.Ledger}),
			accounts.ErrLedgerNumber)
		wantError(t, accounts.CheckLedgers(limits, accounts.Asset{Code: "EUR"}),
			accounts.ErrLedgerNumber)
	})
}

// What is put aside counts for the id and for what it stands for; nothing is taken of it.
func TestChargeAside(t *testing.T) {
	clock := newClock()
	book := newBook(t, openLedger(t, clock), clock)
	alice := book.NewCharge(limitOf("api", 10, 60), "alice", 3)
	aside := book.NewCharge(limitOf("tried", 10, 60), "alice", 3)
	aside.Aside = true

	first := charge(t, book, "a", aside, alice)
	wantOutcome(t, first, accounts.Accepted)
	wantBalance(t, book, alice, 10, 3, 7)
	wantBalance(t, book, aside, 10, 0, 10)

	other := aside
	other.Amount = 4
	wantOutcome(t, charge(t, book, "a", alice, other), accounts.Conflict)
	wantOutcome(t, charge(t, book, "a", alice), accounts.Accepted) // an id of other accounts
	taken := aside
	taken.Aside = false
	again := charge(t, book, "a", alice, taken)
	wantOutcome(t, again, accounts.Replayed)
	if again.Transfer != first.Transfer {
		t.Errorf("replay: got %s, want %s", again.Transfer, first.Transfer)
	}
	wantBalance(t, book, alice, 10, 6, 4)
	wantBalance(t, book, aside, 10, 0, 10)
}
