package ledgertest

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/ledgers"
)

// callers is how many goroutines a subtest about concurrency uses. A ledger must take that many
// calls at once without being busy.
const callers = 32

func accountsKeepAllFields(s *session) {
	want := ledgers.Account{
		ID: s.id(1), UserData128: ledgers.MaxAmount, UserData64: 1<<64 - 1, UserData32: 1<<32 - 1,
		Ledger: 1<<32 - 1, Code: 1<<16 - 1,
		Flags: ledgers.DebitsMustNotExceedCredits | ledgers.AccountHistory,
	}
	results, err := s.driver().CreateAccounts(s.Context(), []ledgers.Account{want})
	if err != nil {
		s.Fatalf("create accounts: %v", err)
	}
	want.Timestamp = results[0].Timestamp
	got := s.account(1)
	if got != want {
		s.Errorf("account:\n\tgot  %s\n\twant %s", formatAccount(got), formatAccount(want))
	}
}

func accountsCreatedOnce(s *session) {
	account := ledgers.Account{ID: s.id(1), Ledger: 1, Code: 1}
	results := make([]ledgers.AccountResult, callers)
	s.parallel(callers, func(ctx context.Context, i int) {
		got, err := s.driver().CreateAccounts(ctx, []ledgers.Account{account})
		if err != nil || len(got) != 1 {
			s.Errorf("create account: got %d results and %v", len(got), err)
			return
		}
		results[i] = got[0]
	})
	created := 0
	timestamp := s.account(1).Timestamp
	for _, r := range results {
		switch r.Status {
		case ledgers.AccountCreated:
			created++
		case ledgers.AccountExists:
		default:
			s.Errorf("status: got %v, want created or exists", r.Status)
		}
		if r.Timestamp != timestamp {
			s.Errorf("timestamp of %v: got %d, want the account's %d", r.Status, r.Timestamp, timestamp)
		}
	}
	if created != 1 {
		s.Errorf("created: got %d times, want once", created)
	}
}

// transfersReturnedAsCreated looks up transfers after they ended in each way.
func transfersReturnedAsCreated(s *session) {
	s.accounts(2)
	sent := []ledgers.Transfer{
		s.transfer(11, 1, 2, 1), s.pending(12, 1, 2, 2, 0), s.pending(13, 1, 2, 3, 100),
		s.pending(14, 1, 2, 4, 1),
	}
	sent[0].UserData128 = ledgers.AmountOf(5)
	results := s.create(sent...)
	post := ledgers.Transfer{ID: s.id(15), PendingID: s.id(12), Flags: ledgers.PostPending}
	void := ledgers.Transfer{ID: s.id(16), PendingID: s.id(13), Flags: ledgers.VoidPending}
	s.create(post, void)
	s.harness.Advance(2500 * time.Millisecond)
	for i := range sent {
		sent[i].Timestamp = results[i].Timestamp
	}
	got := s.lookupTransfers(s.id(11), s.id(12), s.id(13), s.id(14))
	s.wantTransfers("after posted, voided, expired", got, sent)
}

// expiryPerTransfer has two timeouts on one account come due one after the other.
func expiryPerTransfer(s *session) {
	s.quota(10)
	s.create(s.pending(11, 2, 1, 4, 1), s.pending(12, 2, 1, 5, 5))
	for _, step := range []struct {
		advance time.Duration
		want    uint64
	}{{0, 9}, {2500 * time.Millisecond, 5}, {4500 * time.Millisecond, 0}} {
		s.harness.Advance(step.advance)
		got := s.account(2).DebitsPending
		if got != ledgers.AmountOf(step.want) {
			s.Errorf("pending %v later: got %v, want %d", step.advance, got, step.want)
		}
	}
	s.create(s.transfer(13, 2, 1, 10))
}

// chainsNeverSplit has chains lend a unit to an empty account and take it back, while others try to
// take it in between.
func chainsNeverSplit(s *session) {
	s.quota(0)
	const rounds = 8
	s.parallel(callers, func(ctx context.Context, i int) {
		for round := range rounds {
			n := 100 + (i*rounds+round)*2
			batch := []ledgers.Transfer{s.transfer(n, 2, 1, 1)}
			want := ledgers.TransferExceedsCredits
			if i%2 == 0 {
				batch = []ledgers.Transfer{s.transfer(n, 1, 2, 1), s.transfer(n+1, 2, 1, 1)}
				batch[0].Flags = ledgers.Linked
				want = ledgers.TransferCreated
			}
			results, err := s.driver().CreateTransfers(ctx, batch)
			if err != nil {
				s.Errorf("create transfers: %v", err)
				return
			}
			for _, r := range results {
				if r.Status != want {
					s.Errorf("caller %d: got %v, want %v", i, r.Status, want)
				}
			}
		}
	})
}

// neverOverdrawn charges an account from many callers, in batches of different sizes.
func neverOverdrawn(s *session) {
	const quota, perCaller = 100, 12
	s.quota(quota)
	statuses := make([][]ledgers.TransferResult, callers)
	s.parallel(callers, func(ctx context.Context, i int) {
		size := 1 + i%4
		for from := 0; from < perCaller; from += size {
			var batch []ledgers.Transfer
			for n := from; n < min(from+size, perCaller); n++ {
				batch = append(batch, s.pending(100+i*perCaller+n, 2, 1, 1, 100))
			}
			results, err := s.driver().CreateTransfers(ctx, batch)
			if err != nil {
				s.Errorf("create transfers: %v", err)
			}
			statuses[i] = append(statuses[i], results...)
		}
	})
	s.wantCounts(slices.Concat(statuses...), map[ledgers.TransferStatus]int{
		ledgers.TransferCreated:        quota,
		ledgers.TransferExceedsCredits: callers*perCaller - quota,
	})
	got := s.account(2).DebitsPending
	if got != ledgers.AmountOf(quota) {
		s.Errorf("pending: got %v, want %d", got, quota)
	}
}

// neverOverdrawnAcrossChains charges two accounts together: what the smaller one refuses is not
// charged to the greater one either.
func neverOverdrawnAcrossChains(s *session) {
	const small, perCaller = 50, 4
	s.quota(small)
	s.createAccounts(ledgers.Account{
		ID: s.id(4), Ledger: 1, Code: 1, Flags: ledgers.DebitsMustNotExceedCredits,
	})
	s.create(s.transfer(5, 1, 4, 1000))
	last := make([][]ledgers.TransferResult, callers)
	s.parallel(callers, func(ctx context.Context, i int) {
		for n := range perCaller {
			chain := []ledgers.Transfer{
				s.pending(100+(i*perCaller+n)*2, 4, 1, 1, 100),
				s.pending(101+(i*perCaller+n)*2, 2, 1, 1, 100),
			}
			chain[0].Flags |= ledgers.Linked
			results, err := s.driver().CreateTransfers(ctx, chain)
			if err != nil || len(results) != len(chain) {
				s.Errorf("create transfers: %d results and %v", len(results), err)
				return
			}
			last[i] = append(last[i], results[1])
		}
	})
	s.wantCounts(slices.Concat(last...), map[ledgers.TransferStatus]int{
		ledgers.TransferCreated:        small,
		ledgers.TransferExceedsCredits: callers*perCaller - small,
	})
	for _, n := range []int{2, 4} {
		got := s.account(n).DebitsPending
		if got != ledgers.AmountOf(small) {
			s.Errorf("pending of account %d: got %v, want %d", n, got, small)
		}
	}
}

func balancingTakesOnce(s *session) {
	s.quota(10)
	s.parallel(callers, func(ctx context.Context, i int) {
		t := s.transfer(100+i, 2, 1, 4)
		t.Flags = ledgers.BalancingDebit
		results, err := s.driver().CreateTransfers(ctx, []ledgers.Transfer{t})
		if err != nil || len(results) != 1 || results[0].Status != ledgers.TransferCreated {
			s.Errorf("balancing transfer: got %v and %v, want created", results, err)
		}
	})
	var amounts []uint64
	for i := range callers {
		amounts = append(amounts, s.lookupTransfers(s.id(100 + i))[0].Amount.Lo)
	}
	slices.Sort(amounts)
	slices.Reverse(amounts)
	want := append([]uint64{4, 4, 2}, make([]uint64, callers-3)...)
	if !slices.Equal(amounts, want) {
		s.Errorf("amounts: got %v, want %v", amounts, want)
	}
}

// transfersCreatedOnce is the first sight of a subject: every caller sends the quota under one id
// and its own charge, in one batch. The quota is granted once, so exactly as many charges pass.
func transfersCreatedOnce(s *session) {
	const quota = 5
	s.quota(0)
	results := make([][]ledgers.TransferResult, callers)
	s.parallel(callers, func(ctx context.Context, i int) {
		batch := []ledgers.Transfer{
			s.transfer(10, 1, 2, quota), s.pending(100+i, 2, 1, 1, 100),
		}
		got, err := s.driver().CreateTransfers(ctx, batch)
		if err != nil || len(got) != len(batch) {
			s.Errorf("create transfers: %d results and %v", len(got), err)
			got = make([]ledgers.TransferResult, len(batch))
		}
		results[i] = got
	})
	var first, charges []ledgers.TransferResult
	timestamp := s.lookupTransfers(s.id(10))[0].Timestamp
	for _, r := range results {
		first, charges = append(first, r[0]), append(charges, r[1])
		if r[0].Timestamp != timestamp {
			s.Errorf("timestamp of %v: got %d, want %d", r[0].Status, r[0].Timestamp, timestamp)
		}
	}
	s.wantCounts(first, map[ledgers.TransferStatus]int{
		ledgers.TransferCreated: 1, ledgers.TransferExists: callers - 1,
	})
	s.wantCounts(charges, map[ledgers.TransferStatus]int{
		ledgers.TransferCreated: quota, ledgers.TransferExceedsCredits: callers - quota,
	})
}

// endsCompete has many callers post or void the same pending transfer, each under its own id.
func endsCompete(s *session) {
	s.accounts(2)
	s.create(s.pending(10, 1, 2, 7, 100))
	var mu sync.Mutex
	var results []ledgers.TransferResult
	s.parallel(callers, func(ctx context.Context, i int) {
		end := ledgers.Transfer{ID: s.id(100 + i), PendingID: s.id(10), Flags: ledgers.VoidPending}
		if i%2 == 0 {
			end.Flags, end.Amount = ledgers.PostPending, ledgers.MaxAmount
		}
		got, err := s.driver().CreateTransfers(ctx, []ledgers.Transfer{end})
		if err != nil {
			s.Errorf("create transfers: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		results = append(results, got...)
	})
	posted := s.account(1).DebitsPosted == ledgers.AmountOf(7)
	loser := ledgers.TransferPendingTransferAlreadyVoided
	if posted {
		loser = ledgers.TransferPendingTransferAlreadyPosted
	}
	s.wantCounts(results, map[ledgers.TransferStatus]int{
		ledgers.TransferCreated: 1, loser: callers - 1,
	})
	pending := s.account(1).DebitsPending
	if !pending.IsZero() {
		s.Errorf("pending: got %v, want 0", pending)
	}
}

// sendingAgainIsSafe repeats a batch of everything: nothing is applied twice.
func sendingAgainIsSafe(s *session) {
	s.quota(10)
	post := ledgers.Transfer{
		ID: s.id(12), PendingID: s.id(11), Amount: ledgers.AmountOf(2), Flags: ledgers.PostPending,
	}
	chain := []ledgers.Transfer{s.transfer(13, 2, 1, 1), s.pending(14, 2, 1, 1, 100)}
	chain[0].Flags = ledgers.Linked
	batch := append([]ledgers.Transfer{s.pending(11, 2, 1, 3, 100), post}, chain...)
	batch = append(batch, s.transfer(15, 2, 1, 1000))
	s.send(batch...)
	before := s.account(2)
	want := []ledgers.TransferStatus{
		ledgers.TransferExists, ledgers.TransferExists, ledgers.TransferExists,
		ledgers.TransferLinkedEventFailed, ledgers.TransferIDAlreadyFailed,
	}
	for range 2 {
		for i, r := range s.send(batch...) {
			if r.Status != want[i] {
				s.Errorf("event %d again: got %v, want %v", i, r.Status, want[i])
			}
		}
	}
	after := s.account(2)
	if after != before {
		s.Errorf("account:\n\tgot  %s\n\twant %s", formatAccount(after), formatAccount(before))
	}
}

// wantCounts compares how often each status was answered.
func (s *session) wantCounts(
	results []ledgers.TransferResult, want map[ledgers.TransferStatus]int,
) {
	s.Helper()
	got := map[ledgers.TransferStatus]int{}
	for _, r := range results {
		got[r.Status]++
	}
	for status, n := range got {
		if n != want[status] {
			s.Errorf("%v: got %d, want %d", status, n, want[status])
		}
	}
	for status, n := range want {
		if got[status] == 0 && n > 0 {
			s.Errorf("%v: got 0, want %d", status, n)
		}
	}
}
