package embedded_test

import (
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/embedded"
)

const (
	day       = 24 * time.Hour
	quotaCode = 7
)

func ended(id, pendingID uint64, flags ledgers.TransferFlags) ledgers.Transfer {
	return ledgers.Transfer{
		ID: ledgers.ID{Lo: id}, PendingID: ledgers.ID{Lo: pendingID}, Flags: flags,
	}
}

// TestRetention ages one of each kind and looks at what is left.
func TestRetention(t *testing.T) {
	clock := newClock()
	dir := t.TempDir()
	options := clock.options()
	options.Retention = 30 * day
	options.KeepCodes = []uint16{quotaCode}
	ledger := open(t, dir, options)
	fund(t, ledger, 1)
	clock.advance(time.Second)

	posted := pending(9, 3, 60)
	posted.Flags, posted.Timeout = 0, 0
	step := posted
	step.ID, step.Amount, step.Code = ledgers.ID{Lo: 10}, ledgers.Amount{}, quotaCode
	nothing := posted
	nothing.ID, nothing.Amount = ledgers.ID{Lo: 11}, ledgers.Amount{}
	transfer(t, ledger, ledgers.TransferCreated,
		posted, step, nothing,
		pending(20, 1, 60),         // expires
		pending(21, 1, 60),         // voided
		pending(22, 1, 60),         // posted
		pending(23, 1, 0),          // live for ever
		pending(24, 1, 0),          // voided a month later
		pending(25, 1, 40*24*3600), // outlives the retention
		pending(26, 1, 40*24*3600), // the same, and is posted
		ended(31, 21, ledgers.VoidPending),
		ended(32, 22, ledgers.PostPending),
	)
	tooMuch := pending(40, 1<<50, 60)
	transfer(t, ledger, ledgers.TransferExceedsCredits, tooMuch)
	clock.advance(29 * day)
	transfer(t, ledger, ledgers.TransferCreated, ended(34, 24, ledgers.VoidPending))
	retain(t, ledger)
	wantStored(t, ledger, 9, 10, 11, 20, 21, 22, 23, 24, 25, 26, 31, 32, 34)
	transfer(t, ledger, ledgers.TransferIDAlreadyFailed, tooMuch)

	clock.advance(2 * day)
	transfer(t, ledger, ledgers.TransferCreated, ended(36, 26, ledgers.PostPending))
	before := accountsOf(t, ledger)
	settle(t, ledger, clock)
	wantStored(t, ledger, 9, 10, 22, 23, 24, 25, 26, 32, 34, 36)
	transfer(t, ledger, ledgers.TransferExists, posted)
	ledger.Close()

	// The same after a restart: a posted id is known for ever, and the balance is what it was.
	ledger = open(t, dir, options)
	transfer(t, ledger, ledgers.TransferExists, posted)
	if accountsOf(t, ledger) != before {
		t.Errorf("balances have changed: got %+v, want %+v", accountsOf(t, ledger), before)
	}
	clock.advance(40 * day)
	settle(t, ledger, clock)
	wantStored(t, ledger, 9, 10, 22, 23, 26, 32, 36)
	// What was deleted is unknown; the id of the refused transfer may be used.
	transfer(t, ledger, ledgers.TransferCreated, pending(40, 1, 60), pending(20, 1, 60))
}

// settle lets enough happen for the stored accounts to hold all that is old, then runs retention.
func settle(t *testing.T, ledger *embedded.Ledger, clock *fakeClock) {
	t.Helper()
	for i := range 3 {
		clock.advance(10 * time.Second)
		id := uint64(clock.now.Load()) + uint64(i)
		transfer(t, ledger, ledgers.TransferCreated, pending(id, 0, 1))
	}
	retain(t, ledger)
}

func retain(t *testing.T, ledger *embedded.Ledger) {
	t.Helper()
	err := ledger.Retain()
	if err != nil {
		t.Fatalf("retention: %v", err)
	}
}

// wantStored checks which of the ids 9 to 49 are stored, by id and in the journals.
func wantStored(t *testing.T, ledger *embedded.Ledger, want ...uint64) {
	t.Helper()
	var ids []ledgers.ID
	for id := uint64(9); id < 50; id++ {
		ids = append(ids, ledgers.ID{Lo: id})
	}
	found, err := ledger.LookupTransfers(t.Context(), ids)
	if err != nil {
		t.Fatalf("look up: %v", err)
	}
	wantIDs(t, "look-up", found, want)
	filter := ledgers.AccountFilter{AccountID: ledgers.ID{Lo: 2}, Limit: 8189, Debits: true}
	journal, err := ledger.AccountTransfers(t.Context(), filter)
	if err != nil {
		t.Fatalf("journal: %v", err)
	}
	wantIDs(t, "journal", journal, want)
}

func wantIDs(t *testing.T, where string, got []ledgers.Transfer, want []uint64) {
	t.Helper()
	stored := map[uint64]bool{}
	for _, tr := range got {
		stored[tr.ID.Lo] = true
	}
	for _, id := range want {
		if !stored[id] {
			t.Errorf("%s: %d is gone", where, id)
		}
		delete(stored, id)
	}
	for id := range stored {
		if id < 50 {
			t.Errorf("%s: %d is still there", where, id)
		}
	}
}

func accountsOf(t *testing.T, ledger ledgers.Driver) [2]ledgers.Account {
	t.Helper()
	accounts, err := ledger.LookupAccounts(t.Context(), []ledgers.ID{{Lo: 1}, {Lo: 2}})
	if err != nil || len(accounts) != 2 {
		t.Fatalf("look up: %v, %v", accounts, err)
	}
	return [2]ledgers.Account(accounts)
}
