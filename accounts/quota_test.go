package accounts_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
)

func wantError(t testing.TB, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("error: got %v, want %v", got, want)
	}
}

// revised returns a limit as a later config gives it.
func revised(limit accounts.Limit, revision uint32, quota uint64) accounts.Limit {
	limit.Revision, limit.Quota = revision, quota
	return limit
}

// L8: use 8 of 10; to 5: nothing is left until they expire; to 20: 12 are.
func TestQuotaChanges(t *testing.T) {
	clock := newClock()
	book := newBook(t, openLedger(t, clock), clock)
	limit := limitOf("api", 10, 30)
	wantOutcome(t, charge(t, book, "", book.NewCharge(limit, "alice", 8)), accounts.Accepted)

	lower := revised(limit, 0, 5)
	wantBalance(t, book, book.NewCharge(lower, "alice", 0), 5, 8, 0)
	wantOutcome(t, charge(t, book, "", book.NewCharge(lower, "alice", 1)), accounts.Refused)
	wantBalance(t, book, book.NewCharge(lower, "alice", 0), 5, 8, 0)

	higher := revised(limit, 0, 20)
	wantBalance(t, book, book.NewCharge(higher, "alice", 0), 20, 8, 12)
	wantOutcome(t, charge(t, book, "", book.NewCharge(higher, "alice", 12)), accounts.Accepted)
	wantOutcome(t, charge(t, book, "", book.NewCharge(higher, "alice", 1)), accounts.Refused)
}

// After lowering to 5 with 8 in use, exactly 5 pass per window once the 8 expire, and each unit
// that comes back goes to the lowering first.
func TestQuotaLoweredWhileInUse(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	book := newBook(t, driver, clock)
	limit := limitOf("api", 10, 30)
	for range 8 {
		charge(t, book, "", book.NewCharge(limit, "alice", 1))
		clock.Advance(time.Second)
	}
	lower := revised(limit, 0, 5)
	one := book.NewCharge(lower, "alice", 1)
	admitted := 0
	for range 22 { // up to 30 s after the first charge: nothing has come back
		if charge(t, book, "", one).Outcome == accounts.Accepted {
			admitted++
		}
		clock.Advance(time.Second)
	}
	if admitted != 0 {
		t.Fatalf("admitted while 8 of 5 were in use: %d, want 0", admitted)
	}
	for second := range 8 { // one unit comes back each second: 8 used, 7, 6, 5, 4 ...
		got := charge(t, book, "", one).Outcome == accounts.Accepted
		want := second >= 3
		if got != want {
			t.Fatalf("second %d: admitted %v, want %v", second, got, want)
		}
		clock.Advance(time.Second)
	}
	var times []time.Time
	for range 90 {
		if charge(t, book, "", one).Outcome == accounts.Accepted {
			times = append(times, clock.Now())
		}
		clock.Advance(1001 * time.Millisecond)
	}
	for i := 5; i < len(times); i++ {
		if apart := times[i].Sub(times[i-5]); apart < 30*time.Second {
			t.Fatalf("admissions %d and %d are %v apart, want 30 s", i-5, i, apart)
		}
	}
	if len(times) < 14 { // 5 in each of three windows, less what the last of the 8 still held
		t.Errorf("admitted in 90 s: %d, want at least 14", len(times))
	}
	steps := 0
	for _, e := range transfers(t, driver, one.Account()) {
		if e.Code == accounts.CodeRequota {
			steps++
		}
	}
	if steps != 2 { // what was free at once, and the rest ahead of the first charge that passed
		t.Errorf("quota steps: got %d, want 2", steps)
	}
}

// Restarts and reloads of the same config write nothing (L7, L9).
func TestQuotaUnchanged(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	limit := limitOf("api", 10, 300)
	for restart := range 5 {
		book := newBook(t, driver, clock)
		c := book.NewCharge(limit, "alice", 1)
		for range 20 {
			wantBalance(t, book, c, 10, uint64(restart), 10-uint64(restart))
		}
		wantOutcome(t, charge(t, book, "", c), accounts.Accepted)
	}
	book := newBook(t, driver, clock)
	c := book.NewCharge(limit, "alice", 0)
	if got := len(transfers(t, driver, c.Account())); got != 6 {
		t.Errorf("entries: got %d, want the quota and 5 charges", got)
	}
}

// Two nodes with an old and a new config do not undo each other (7.8).
func TestQuotaRevisions(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	older, newer := newBook(t, driver, clock), newBook(t, driver, clock)
	before := revised(limitOf("api", 10, 30), 1, 10)
	after := revised(before, 2, 5)

	wantOutcome(t, charge(t, older, "", older.NewCharge(before, "alice", 8)), accounts.Accepted)
	wantOutcome(t, charge(t, newer, "", newer.NewCharge(after, "alice", 1)), accounts.Refused)
	since, err := older.Refresh(context.Background(), before, 0)
	if err != nil {
		t.Fatal(err)
	}
	entries := len(transfers(t, driver, older.NewCharge(before, "alice", 0).Account()))
	for range 10 {
		wantOutcome(t, charge(t, older, "", older.NewCharge(before, "alice", 1)), accounts.Refused)
		wantOutcome(t, charge(t, newer, "", newer.NewCharge(after, "alice", 1)), accounts.Refused)
		wantBalance(t, older, older.NewCharge(before, "alice", 0), 5, 8, 0)
		wantBalance(t, newer, newer.NewCharge(after, "alice", 0), 5, 8, 0)
	}
	got := len(transfers(t, driver, older.NewCharge(before, "alice", 0).Account()))
	if got != entries {
		t.Errorf("entries after 10 rounds: got %d, want %d", got, entries)
	}
	clock.Advance(31 * time.Second)
	total := 0
	for range 10 {
		for _, node := range []struct {
			book  *accounts.Book
			limit accounts.Limit
		}{{older, before}, {newer, after}} {
			c := node.book.NewCharge(node.limit, "alice", 1)
			if charge(t, node.book, "", c).Outcome == accounts.Accepted {
				total++
			}
		}
	}
	if total != 5 {
		t.Errorf("admitted by both nodes: got %d, want 5", total)
	}
	again, err := older.Refresh(context.Background(), before, since)
	if err != nil || again < since {
		t.Errorf("second refresh: got %d, %v, want at least %d", again, err, since)
	}
}

// A grant survives changes of the quota and lives beside them.
func TestQuotaKeepsGrants(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	book := newBook(t, driver, clock)
	limit := limitOf("api", 10, 30)
	grant(t, book, "g", book.NewCharge(limit, "alice", 5))
	wantBalance(t, book, book.NewCharge(limit, "alice", 0), 15, 0, 15)
	for _, quota := range []uint64{3, 0, 20, 10} {
		c := book.NewCharge(revised(limit, 0, quota), "alice", 0)
		wantBalance(t, book, c, quota+5, 0, quota+5)
		wantOutcome(t, charge(t, book, "", book.NewCharge(c.Limit, "alice", quota+5)),
			accounts.Accepted)
		clock.Advance(31 * time.Second)
		wantBalance(t, newBook(t, driver, clock), c, quota+5, 0, quota+5)
	}
}

// A quota of 0 is booked, refuses everything and can be raised.
func TestQuotaZero(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	book := newBook(t, driver, clock)
	limit := limitOf("api", 0, 30)
	wantOutcome(t, charge(t, book, "", book.NewCharge(limit, "alice", 1)), accounts.Refused)
	raised := revised(limit, 0, 2)
	wantOutcome(t, charge(t, book, "", book.NewCharge(raised, "alice", 2)), accounts.Accepted)
	wantOutcome(t, charge(t, book, "", book.NewCharge(raised, "alice", 1)), accounts.Refused)
	entries := transfers(t, driver, book.NewCharge(limit, "alice", 0).Account())
	if entries[0].Code != accounts.CodeQuota || entries[0].Amount != (ledgers.Amount{}) {
		t.Errorf("first entry: got %+v, want a quota of 0", entries[0])
	}
}

// A step that is made for an account which was forgotten and met anew meanwhile is not overlooked.
func TestQuotaStepOfForgottenAccount(t *testing.T) {
	clock := newClock()
	book, err := accounts.NewBook(openLedger(t, clock), namespace, &accounts.Options{
		Now: clock.Now, Remembered: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	raised := limitOf("api", 10, 30)
	lowered := revised(raised, 0, 5)
	wantOutcome(t, charge(t, book, "", book.NewCharge(lowered, "alice", 1)), accounts.Accepted)

	underWay := book.NewCharge(raised, "alice", 1)
	book.NewCharge(lowered, "bob", 1) // alice is forgotten
	wantOutcome(t, charge(t, book, "", book.NewCharge(lowered, "alice", 1)), accounts.Accepted)
	wantOutcome(t, charge(t, book, "", underWay), accounts.Accepted)

	wantBalance(t, book, book.NewCharge(lowered, "alice", 0), 5, 3, 2)
	wantOutcome(t, charge(t, book, "", book.NewCharge(lowered, "alice", 3)), accounts.Refused)
}

// Of one revision with two quotas the first stands on a shared ledger, and whoever has the other is
// told so at each charge. A lower revision is what a rollout looks like, and nothing to tell.
func TestQuotaDiffers(t *testing.T) {
	driver := openLedger(t, newClock())
	told := 0
	shared, err := accounts.NewBook(driver, accounts.Namespace{1}, &accounts.Options{
		Shared: true,
		Differs: func(limit accounts.Limit, target uint64) {
			told++
			if limit.Quota != 5 || target != 10 {
				t.Errorf("told of quota %d and target %d, want 5 and 10", limit.Quota, target)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	first := revised(limitOf("api", 10, 30), 2, 10)
	for i, row := range []struct {
		limit accounts.Limit
		told  int
	}{
		{first, 0}, {first, 0}, {revised(first, 1, 5), 0}, {revised(first, 2, 5), 1},
		{revised(first, 2, 5), 2}, {first, 2},
	} {
		wantOutcome(t, charge(t, shared, "", shared.NewCharge(row.limit, "alice", 1)),
			accounts.Accepted)
		if told != row.told {
			t.Errorf("charge %d: told %d times, want %d", i, told, row.told)
		}
	}
}

// An override stands whatever the config says, until it is cleared; usage and grants go on.
func TestOverride(t *testing.T) {
	ctx := context.Background()
	clock := newClock()
	driver := openLedger(t, clock)
	book := newBook(t, driver, clock)
	limit := limitOf("api", 10, 30)
	alice := book.NewCharge(limit, "alice", 1)
	override := func(quota uint64, want accounts.Outcome) {
		t.Helper()
		result, err := book.Override(ctx, alice, quota)
		wantError(t, err, nil)
		wantOutcome(t, result, want)
	}
	override(3, accounts.Accepted) // of a subject that was never seen
	wantBalance(t, book, alice, 3, 0, 3)
	override(3, accounts.Replayed)
	for range 3 {
		wantOutcome(t, charge(t, book, "", alice), accounts.Accepted)
	}
	wantOutcome(t, charge(t, book, "", alice), accounts.Refused)

	config := book.NewCharge(revised(limit, 7, 100), "alice", 1)
	wantOutcome(t, charge(t, book, "", config), accounts.Refused)
	wantBalance(t, book, config, 3, 3, 0)

	other := newBook(t, driver, clock) // another node, or this one after a restart
	balances, err := other.Balances(ctx, []accounts.Charge{other.NewCharge(limit, "alice", 0)})
	wantError(t, err, nil)
	if !balances[0].Overridden || balances[0].Quota != 3 {
		t.Errorf("on another node: got %+v, want the override of 3", balances[0])
	}

	_, err = book.Grant(ctx, "grant", book.NewCharge(limit, "alice", 2))
	wantError(t, err, nil)
	wantBalance(t, book, alice, 5, 3, 2)
	override(0, accounts.Accepted) // what is free of the 3, without the grant, is taken as it returns
	wantBalance(t, book, alice, 2, 3, 0)
	clock.Advance(31 * time.Second)
	wantOutcome(t, charge(t, book, "", book.NewCharge(limit, "alice", 2)), accounts.Accepted)
	wantOutcome(t, charge(t, book, "", alice), accounts.Refused)

	override(accounts.MaxQuota-1, accounts.TooLarge) // with the grant of 2
	override(accounts.MaxQuota-2, accounts.Accepted)
	wantBalance(t, book, alice, accounts.MaxQuota, 2, accounts.MaxQuota-2)

	for _, want := range []accounts.Outcome{accounts.Accepted, accounts.Replayed} {
		result, err := book.ClearOverride(ctx, alice)
		wantError(t, err, nil)
		wantOutcome(t, result, want)
		wantBalance(t, book, alice, 12, 2, 10)
	}
}

// A ban is an override of 0: nothing passes, until it is lifted.
func TestBan(t *testing.T) {
	ctx := context.Background()
	clock := newClock()
	book := newBook(t, openLedger(t, clock), clock)
	alice := book.NewCharge(limitOf("api", 10, 30), "alice", 1)
	wantOutcome(t, charge(t, book, "", alice), accounts.Accepted)
	_, err := book.Override(ctx, alice, 0)
	wantError(t, err, nil)
	wantOutcome(t, charge(t, book, "", alice), accounts.Refused)
	clock.Advance(time.Hour)
	wantOutcome(t, charge(t, book, "", alice), accounts.Refused)
	_, err = book.ClearOverride(ctx, alice)
	wantError(t, err, nil)
	wantOutcome(t, charge(t, book, "", alice), accounts.Accepted)
}
