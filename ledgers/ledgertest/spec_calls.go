package ledgertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"weir/ledgers"
)

// timestampsOfResults holds each result's timestamp to the record's, or to the present.
func timestampsOfResults(s *session) {
	s.quota(1)
	s.create(s.pending(10, 2, 1, 1, 100))
	different := s.pending(10, 2, 1, 2, 100)
	results := s.send(
		s.transfer(11, 1, 2, 1), s.transfer(12, 2, 1, 1000), different, s.transfer(12, 2, 1, 1),
		ledgers.Transfer{ID: s.id(13)}, s.transfer(14, 1, 2, 1),
	)
	previous := s.lookupTransfers(s.id(10))[0].Timestamp
	for i, r := range results {
		if r.Timestamp <= previous {
			s.Errorf("event %d, %v: got timestamp %d, want one after %d",
				i, r.Status, r.Timestamp, previous)
		}
		previous = r.Timestamp
	}
	for event, n := range map[int]int{0: 11, 5: 14} {
		got, want := results[event].Timestamp, s.lookupTransfers(s.id(n))[0].Timestamp
		if got != want {
			s.Errorf("transfer %d created: got timestamp %d, want the record's %d", n, got, want)
		}
	}
	// Of a chain that fails, every member has a time of its own too.
	chain := []ledgers.Transfer{s.transfer(20, 1, 2, 1), s.transfer(21, 1, 2, 1)}
	chain[0].Flags, chain[1].Code = ledgers.Linked, 0
	for i, r := range s.send(chain...) {
		if r.Timestamp <= previous {
			s.Errorf("chain member %d, %v: got timestamp %d, want one after %d",
				i, r.Status, r.Timestamp, previous)
		}
		previous = r.Timestamp
	}
}

// timestampsOfExists sends what exists again, also after it ended: `exists` has the first time.
func timestampsOfExists(s *session) {
	s.accounts(2)
	account := s.account(1)
	sent := []ledgers.Transfer{
		s.transfer(10, 1, 2, 1), s.pending(11, 1, 2, 1, 1), s.pending(12, 1, 2, 1, 100),
	}
	first := s.create(sent...)
	s.create(ledgers.Transfer{ID: s.id(13), PendingID: s.id(12), Flags: ledgers.VoidPending})
	s.harness.Advance(2500 * time.Millisecond)
	for i, r := range s.send(sent...) {
		want := ledgers.TransferResult{
			Timestamp: first[i].Timestamp, Status: ledgers.TransferExists,
		}
		if r != want {
			s.Errorf("transfer %d again: got %v, want %v", i, r, want)
		}
	}
	again := []ledgers.Account{{ID: account.ID, Ledger: 1, Code: 1}}
	results, err := s.driver().CreateAccounts(s.Context(), again)
	if err != nil {
		s.Fatalf("create accounts: %v", err)
	}
	want := ledgers.AccountResult{Timestamp: account.Timestamp, Status: ledgers.AccountExists}
	if results[0] != want {
		s.Errorf("account again: got %v, want %v", results[0], want)
	}
}

// timestampsGrow takes the timestamps of accounts and transfers made one after the other and at
// once: all differ, and what was answered earlier is earlier.
func timestampsGrow(s *session) {
	s.accounts(2)
	previous := s.account(2).Timestamp
	first := s.account(1).Timestamp
	if first >= previous {
		s.Errorf("accounts of one batch: got timestamps %d and %d, want growing", first, previous)
	}
	for n := 10; n < 14; n++ {
		for _, r := range s.create(s.transfer(2*n, 1, 2, 1), s.transfer(2*n+1, 1, 2, 1)) {
			if r.Timestamp <= previous {
				s.Errorf("got timestamp %d, want one after %d", r.Timestamp, previous)
			}
			previous = r.Timestamp
		}
	}
	var mu sync.Mutex
	var all []uint64
	s.parallel(callers, func(ctx context.Context, i int) {
		batch := []ledgers.Transfer{s.transfer(100+2*i, 1, 2, 1), s.transfer(101+2*i, 1, 2, 1)}
		results, err := s.driver().CreateTransfers(ctx, batch)
		if err != nil {
			s.Errorf("create transfers: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, r := range results {
			all = append(all, r.Timestamp)
		}
	})
	slices.Sort(all)
	if len(slices.Compact(all)) != 2*callers || all[0] <= previous {
		s.Errorf("got timestamps %d, want %d different ones after %d", all, 2*callers, previous)
	}
}

// timestampOfIDZero reads the ledger's clock: an event without an id is refused at the present.
func timestampOfIDZero(s *session) {
	clock := func() uint64 {
		r := s.send(ledgers.Transfer{})[0]
		if r.Status != ledgers.TransferIDMustNotBeZero {
			s.Fatalf("transfer without an id: got %v, want id_must_not_be_zero", r.Status)
		}
		return r.Timestamp
	}
	before := clock()
	s.accounts(1)
	created := s.account(1).Timestamp
	if created <= before {
		s.Errorf("account: got timestamp %d, want one after %d", created, before)
	}
	s.harness.Advance(time.Second)
	passed := time.Duration(clock() - before)
	if passed < 900*time.Millisecond || passed > time.Minute {
		s.Errorf("after a second: got %v by the ledger's clock", passed)
	}
}

func lookupsKeepOrder(s *session) {
	s.accounts(3)
	s.create(s.transfer(10, 1, 2, 1), s.transfer(11, 1, 2, 1), s.transfer(12, 1, 2, 1))
	accounts := s.lookupAccounts(s.id(3), s.id(1), s.id(2))
	for i, want := range []int{3, 1, 2} {
		if len(accounts) != 3 || accounts[i].ID != s.id(want) {
			s.Fatalf("accounts 3, 1, 2: got %v", formatAll(accounts, formatAccount))
		}
	}
	transfers := s.lookupTransfers(s.id(12), s.id(10), s.id(11))
	for i, want := range []int{12, 10, 11} {
		if len(transfers) != 3 || transfers[i].ID != s.id(want) {
			s.Fatalf("transfers 12, 10, 11: got %v", formatAll(transfers, formatTransfer))
		}
	}
}

// lookupsPassOver asks for what is not there, between what is.
func lookupsPassOver(s *session) {
	s.quota(1)
	s.send(s.transfer(10, 2, 1, 1000), s.transfer(11, 1, 2, 1))
	accounts := s.lookupAccounts(s.id(9), s.id(2), ledgers.ID{}, ledgers.MaxID, s.id(3), s.id(1))
	if len(accounts) != 2 || accounts[0].ID != s.id(2) || accounts[1].ID != s.id(1) {
		s.Errorf("accounts: got %v, want 2 and 1", formatAll(accounts, formatAccount))
	}
	// Transfer 10 was refused; 2 is an account.
	found := s.lookupTransfers(s.id(10), ledgers.ID{}, s.id(11), s.id(2), ledgers.MaxID, s.id(3))
	if len(found) != 2 || found[0].ID != s.id(11) || found[1].ID != s.id(3) {
		s.Errorf("transfers: got %v, want 11 and 3", formatAll(found, formatTransfer))
	}
}

func lookupsTwice(s *session) {
	s.quota(1)
	accounts := s.lookupAccounts(s.id(1), s.id(1), s.id(2), s.id(1))
	if len(accounts) != 4 || accounts[3] != accounts[0] || accounts[0].ID != s.id(1) {
		s.Errorf("accounts 1, 1, 2, 1: got %v", formatAll(accounts, formatAccount))
	}
	transfers := s.lookupTransfers(s.id(3), s.id(3))
	if len(transfers) != 2 || transfers[0] != transfers[1] {
		s.Errorf("transfers 3, 3: got %v", formatAll(transfers, formatTransfer))
	}
}

// journalTimestamps sets the bounds of a filter to, before and after the time of a transfer.
func journalTimestamps(s *session) {
	s.accounts(2)
	transfers := []ledgers.Transfer{
		s.transfer(10, 1, 2, 1), s.transfer(11, 1, 2, 2), s.transfer(12, 1, 2, 3),
	}
	for i, r := range s.create(transfers...) {
		transfers[i].Timestamp = r.Timestamp
	}
	at := transfers[1].Timestamp
	const beyond = 1 << 63
	for _, test := range []struct {
		name     string
		min, max uint64
		want     []ledgers.Transfer
	}{
		{"NoBounds", 0, 0, transfers},
		{"MinIsInclusive", at, 0, transfers[1:]},
		{"MaxIsInclusive", 0, at, transfers[:2]},
		{"AfterIt", at + 1, 0, transfers[2:]},
		{"BeforeIt", 0, at - 1, transfers[:1]},
		{"Only", at, at, transfers[1:2]},
		{"WidestBounds", 1, beyond - 1, transfers},
		{"MinAboveMax", at + 1, at, nil},
		// A time that no transfer can have makes the filter invalid, even where it says "until".
		{"MinBeyond", beyond, 0, nil},
		{"MaxBeyond", 0, beyond, nil},
	} {
		got := s.journal(ledgers.AccountFilter{
			AccountID: s.id(1), TimestampMin: test.min, TimestampMax: test.max,
			Limit: 10, Debits: true, Credits: true,
		})
		s.wantTransfers(test.name, got, test.want)
	}
}

// journalPages reads a journal page by page, both ways.
func journalPages(s *session) {
	const count, limit = 23, 5
	s.accounts(2)
	var want []ledgers.Transfer
	for n := range count {
		want = append(want, s.transfer(10+n, 1+n%2, 2-n%2, uint64(n)))
	}
	for i, r := range s.create(want...) {
		want[i].Timestamp = r.Timestamp
	}
	for _, reversed := range []bool{false, true} {
		filter := ledgers.AccountFilter{
			AccountID: s.id(1), Limit: limit, Debits: true, Credits: true, Reversed: reversed,
		}
		var got []ledgers.Transfer
		for range count/limit + 1 {
			page := s.journal(filter)
			got = append(got, page...)
			if len(page) < limit {
				break
			}
			filter.TimestampMin = page[limit-1].Timestamp + 1
			if reversed {
				filter.TimestampMin, filter.TimestampMax = 0, page[limit-1].Timestamp-1
			}
		}
		s.wantTransfers("journal", got, want)
		slices.Reverse(want)
	}
}

// answersInOrder sends batches whose answers are all different.
func answersInOrder(s *session) {
	accounts := []ledgers.Account{{ID: s.id(1), Ledger: 1, Code: 1}, {ID: s.id(2), Code: 1}, {}, {
		ID: s.id(2), Ledger: 1, Code: 1,
	}, {ID: s.id(1), Ledger: 1, Code: 1}}
	results, err := s.driver().CreateAccounts(s.Context(), accounts)
	if err != nil {
		s.Fatalf("create accounts: %v", err)
	}
	var got []string
	for _, r := range results {
		got = append(got, r.Status.String())
	}
	want := []string{
		"created", "ledger_must_not_be_zero", "id_must_not_be_zero", "created", "exists",
	}
	if !slices.Equal(got, want) {
		s.Errorf("accounts: got %v, want %v", got, want)
	}
	got = nil
	for _, r := range s.send(s.transfer(10, 1, 2, 1), s.transfer(11, 1, 1, 1), s.transfer(12, 1, 9, 1),
		ledgers.Transfer{}, s.transfer(10, 1, 2, 1), s.transfer(13, 2, 1, 1)) {
		got = append(got, r.Status.String())
	}
	want = []string{
		"created", "accounts_must_be_different", "credit_account_not_found", "id_must_not_be_zero",
		"exists", "created",
	}
	if !slices.Equal(got, want) {
		s.Errorf("transfers: got %v, want %v", got, want)
	}
}

// everyCall makes each call of the driver but Close once, each with one event or id, and returns
// their errors by name.
func (s *session) everyCall(ctx context.Context, d ledgers.Driver) map[Call]error {
	errs := map[Call]error{}
	_, errs[CallCreateAccounts] = d.CreateAccounts(ctx, []ledgers.Account{
		{ID: s.id(90), Ledger: 1, Code: 1},
	})
	_, errs[CallCreateTransfers] = d.CreateTransfers(ctx, []ledgers.Transfer{
		s.transfer(91, 1, 2, 1),
	})
	_, errs[CallLookupAccounts] = d.LookupAccounts(ctx, []ledgers.ID{s.id(1)})
	_, errs[CallLookupTransfers] = d.LookupTransfers(ctx, []ledgers.ID{s.id(3)})
	_, errs[CallAccountTransfers] = d.AccountTransfers(ctx, ledgers.AccountFilter{
		AccountID: s.id(1), Limit: 1, Debits: true,
	})
	return errs
}

func (s *session) wantEvery(what string, errs map[Call]error, want error) {
	s.Helper()
	for call, err := range errs {
		if !errors.Is(err, want) {
			s.Errorf("%s: %s: got error %v, want %v", what, call, err, want)
		}
	}
}

// wantNothingOf says that the writes of everyCall did not happen.
func (s *session) wantNothingOf(what string) {
	s.Helper()
	accounts, transfers := s.lookupAccounts(s.id(90)), s.lookupTransfers(s.id(91))
	if len(accounts)+len(transfers) != 0 {
		s.Errorf("%s: got %d accounts and %d transfers written, want none",
			what, len(accounts), len(transfers))
	}
}
