package ledgertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"weir/ledgers"
)

func emptyCalls(s *session) {
	ctx, d := s.Context(), s.driver()
	created, err := d.CreateAccounts(ctx, nil)
	if err != nil || len(created) != 0 {
		s.Errorf("no accounts: got %d results and %v", len(created), err)
	}
	moved, err := d.CreateTransfers(ctx, []ledgers.Transfer{})
	if err != nil || len(moved) != 0 {
		s.Errorf("no transfers: got %d results and %v", len(moved), err)
	}
	accounts, err := d.LookupAccounts(ctx, nil)
	if err != nil || len(accounts) != 0 {
		s.Errorf("no ids of accounts: got %d accounts and %v", len(accounts), err)
	}
	transfers, err := d.LookupTransfers(ctx, nil)
	if err != nil || len(transfers) != 0 {
		s.Errorf("no ids of transfers: got %d transfers and %v", len(transfers), err)
	}
}

// slicesStayTheCallers uses one slice for several calls and changes what it was given.
func slicesStayTheCallers(s *session) {
	s.accounts(2)
	sent := []ledgers.Transfer{s.transfer(10, 1, 2, 1), s.transfer(11, 1, 2, 2)}
	kept := slices.Clone(sent)
	results := s.create(sent...)
	if !slices.Equal(sent, kept) {
		s.Errorf("the argument was changed: got %v", formatAll(sent, formatTransfer))
	}
	for i := range sent {
		kept[i].Timestamp = results[i].Timestamp
		sent[i], results[i] = ledgers.Transfer{}, ledgers.TransferResult{}
	}
	ids := []ledgers.ID{s.id(10), s.id(11)}
	for range 2 {
		found := s.lookupTransfers(ids...)
		s.wantTransfers("look-up", found, kept)
		clear(found)
		accounts := s.lookupAccounts(s.id(1))
		if len(accounts) != 1 || accounts[0].DebitsPosted != ledgers.AmountOf(3) {
			s.Errorf("accounts: got %v, want debits of 3", formatAll(accounts, formatAccount))
		}
		clear(accounts)
		filter := ledgers.AccountFilter{AccountID: s.id(1), Limit: 10, Debits: true}
		journal := s.journal(filter)
		s.wantTransfers("journal", journal, kept)
		clear(journal)
	}
	if ids[0] != s.id(10) || ids[1] != s.id(11) {
		s.Errorf("the ids were changed: got %v", ids)
	}
}

// laterCallsSee has one goroutine look for what another one was just told is created.
func laterCallsSee(s *session) {
	const rounds = 50
	s.accounts(2)
	told := make(chan int)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range told {
			id := []ledgers.ID{s.id(10 + n)}
			transfers, err := s.driver().LookupTransfers(s.Context(), id)
			if err != nil || len(transfers) != 1 {
				s.Errorf("transfer %d: got %d and %v, want it", n, len(transfers), err)
			}
			accounts, err := s.driver().LookupAccounts(s.Context(), []ledgers.ID{s.id(1)})
			if err != nil || len(accounts) != 1 || accounts[0].DebitsPosted.Lo < uint64(n+1) {
				s.Errorf("account after %d transfers: got %v and %v", n+1,
					formatAll(accounts, formatAccount), err)
			}
		}
	}()
	for n := range rounds {
		_, err := s.driver().CreateTransfers(s.Context(),
			[]ledgers.Transfer{s.transfer(10+n, 1, 2, 1)})
		if err != nil {
			s.Errorf("create transfers: %v", err)
		}
		told <- n
	}
	close(told)
	<-done
}

// ownAnswers has callers send batches of different lengths, whose answers only they can have.
func ownAnswers(s *session) {
	const rounds = 10
	s.accounts(2)
	s.parallel(callers, func(ctx context.Context, i int) {
		for round := range rounds {
			var batch []ledgers.Transfer
			var want []ledgers.TransferStatus
			var ids []ledgers.ID
			for k := range 1 + (i+round)%5 {
				n := 100 + (i*rounds+round)*5 + k
				t, status := s.transfer(n, 1, 2, uint64(n)), ledgers.TransferCreated
				if (i+round+k)%3 == 0 {
					t.Code, status = 0, ledgers.TransferCodeMustNotBeZero
				} else {
					ids = append(ids, t.ID)
				}
				batch, want = append(batch, t), append(want, status)
			}
			results, err := s.driver().CreateTransfers(ctx, batch)
			var got []ledgers.TransferStatus
			for _, r := range results {
				got = append(got, r.Status)
			}
			if err != nil || !slices.Equal(got, want) {
				s.Errorf("caller %d: got %v and %v, want %v", i, got, err, want)
			}
			found, err := s.driver().LookupTransfers(ctx, ids)
			same := func(t ledgers.Transfer, id ledgers.ID) bool {
				return t.ID == id && t.Amount.Lo == id.Lo
			}
			if err != nil || !slices.EqualFunc(found, ids, same) {
				s.Errorf("caller %d: got %v and %v, want %v",
					i, formatAll(found, formatTransfer), err, ids)
			}
		}
	})
}

// busyWroteNothing sends more calls at once than a queue may hold. Who is told that the ledger is
// busy has written nothing; who is answered has.
func busyWroteNothing(s *session) {
	const flood = 512
	s.accounts(2)
	errs := make([]error, flood)
	s.parallel(flood, func(ctx context.Context, i int) {
		_, errs[i] = s.driver().CreateTransfers(ctx, []ledgers.Transfer{
			s.transfer(100+i, 1, 2, 1),
		})
	})
	for i, err := range errs {
		found := len(s.lookupTransfers(s.id(100 + i)))
		switch {
		case err == nil && found != 1:
			s.Errorf("call %d was answered: got %d transfers, want 1", i, found)
		case errors.Is(err, ledgers.ErrBusy) && found != 0:
			s.Errorf("call %d was refused as busy: got %d transfers, want none", i, found)
		case err != nil && !errors.Is(err, ledgers.ErrBusy):
			s.Errorf("call %d: got error %v", i, err)
		}
	}
}

// fullBatch sends as many events as a call takes, and asks for as many back.
func fullBatch(s *session) {
	s.accounts(ledgers.MaxEvents)
	ids := make([]ledgers.ID, ledgers.MaxEvents)
	transfers := make([]ledgers.Transfer, ledgers.MaxEvents)
	for i := range ids {
		ids[i] = s.id(i + 1)
		transfers[i] = s.transfer(100_000+i, 1, 2, 1)
	}
	accounts := s.lookupAccounts(ids...)
	if len(accounts) != len(ids) {
		s.Errorf("accounts: got %d, want %d", len(accounts), len(ids))
	}
	for i, r := range s.create(transfers...) {
		ids[i], transfers[i].Timestamp = transfers[i].ID, r.Timestamp
	}
	s.wantTransfers("look-up", s.lookupTransfers(ids...), transfers)
	s.create(s.transfer(1_000_000, 1, 2, 1))
	filter := ledgers.AccountFilter{AccountID: s.id(2), Limit: 1<<32 - 1, Credits: true}
	s.wantTransfers("journal, which has one more", s.journal(filter), transfers)
}

func tooManyEvents(s *session) {
	const n = ledgers.MaxEvents + 1
	s.accounts(2)
	accounts, transfers := make([]ledgers.Account, n), make([]ledgers.Transfer, n)
	ids := make([]ledgers.ID, n)
	for i := range n {
		accounts[i] = ledgers.Account{ID: s.id(10 + i), Ledger: 1, Code: 1}
		transfers[i] = s.transfer(10+i, 1, 2, 1)
		ids[i] = s.id(10 + i)
	}
	ctx, d, errs := s.Context(), s.driver(), map[Call]error{}
	_, errs[CallCreateAccounts] = d.CreateAccounts(ctx, accounts)
	_, errs[CallCreateTransfers] = d.CreateTransfers(ctx, transfers)
	_, errs[CallLookupAccounts] = d.LookupAccounts(ctx, ids)
	_, errs[CallLookupTransfers] = d.LookupTransfers(ctx, ids)
	s.wantEvery("one too many", errs, ledgers.ErrTooManyEvents)
	found := len(s.lookupAccounts(ids[1:]...)) + len(s.lookupTransfers(ids[1:]...))
	found += len(s.lookupAccounts(ids[0])) + len(s.lookupTransfers(ids[0]))
	if found != 0 {
		s.Errorf("one too many: got %d records written, want none", found)
	}
}

func contextDoneBefore(s *session) {
	s.accounts(2)
	cancelled, cancel := context.WithCancel(s.Context())
	cancel()
	s.wantEvery("cancelled before", s.everyCall(cancelled, s.driver()), context.Canceled)
	expired, cancel := context.WithDeadline(s.Context(), time.Unix(0, 0))
	defer cancel()
	s.wantEvery("past before", s.everyCall(expired, s.driver()), context.DeadlineExceeded)
	s.wantNothingOf("context done before")
}

// contextEndsLater cancels calls at no particular moment. Each is answered or given up, which tells
// what became of it; sent again it is there once, whole.
func contextEndsLater(s *session) {
	const rounds = 10
	s.accounts(2)
	chain := func(i int) []ledgers.Transfer {
		c := []ledgers.Transfer{s.transfer(100+2*i, 1, 2, 1), s.transfer(101+2*i, 1, 2, 1)}
		c[0].Flags = ledgers.Linked
		return c
	}
	s.parallel(callers, func(ctx context.Context, i int) {
		for round := range rounds {
			ctx, cancel := context.WithCancel(ctx)
			go cancel()
			_, err := s.driver().CreateTransfers(ctx, chain(i*rounds+round))
			s.wantGivenUp(err)
		}
	})
	for i := range callers * rounds {
		r := s.send(chain(i)...)
		if r[0].Status != ledgers.TransferExists && r[1].Status != ledgers.TransferCreated {
			s.Errorf("chain %d again: got %v and %v", i, r[0].Status, r[1].Status)
		}
	}
	got := s.account(1).DebitsPosted
	if got != ledgers.AmountOf(2*callers*rounds) {
		s.Errorf("debits: got %v, want %d", got, 2*callers*rounds)
	}
}

// wantGivenUp holds the error of a CreateTransfers of two new transfers to the contract. Its
// context was cancelled before or after it was accepted.
func (s *session) wantGivenUp(err error) {
	s.Helper()
	if err != nil && !errors.Is(err, context.Canceled) {
		s.Errorf("cancelled call: got error %v, want an answer or context.Canceled", err)
	}
	given, ok := errors.AsType[*ledgers.GivenUp](err)
	if !ok {
		return
	}
	results, ok := <-given.Late
	if !ok || len(results) != 2 || results[1].Status != ledgers.TransferCreated {
		s.Errorf("given up: got %v late, want two created transfers", results)
	}
	_, ok = <-given.Late
	if ok {
		s.Errorf("given up: got results twice, want Late closed after the first")
	}
}

// contextTells tells a call that was accepted from one that was not: what is given up exists in the
// end, and what is refused with the context's bare error does not.
func contextTells(s *session) {
	const rounds = 20
	s.accounts(2)
	var mu sync.Mutex
	refused := map[int]bool{}
	s.parallel(callers, func(ctx context.Context, i int) {
		for round := range rounds {
			n := 100 + i*rounds + round
			ctx, cancel := context.WithCancel(ctx)
			timer := time.AfterFunc(time.Duration(round)*10*time.Microsecond, cancel)
			_, err := s.driver().CreateTransfers(ctx, []ledgers.Transfer{s.transfer(n, 1, 2, 1)})
			timer.Stop()
			cancel()
			given, ok := errors.AsType[*ledgers.GivenUp](err)
			if ok {
				<-given.Late
			}
			mu.Lock()
			refused[n] = err != nil && !ok
			mu.Unlock()
		}
	})
	for n, want := range refused {
		found := s.lookupTransfers(s.id(n))
		if (len(found) == 0) != want {
			s.Errorf("transfer %d, refused: %v: got %d in the ledger", n, want, len(found))
		}
	}
}

func closedAnswers(s *session) {
	s.quota(1)
	err := s.driver().Close()
	if err != nil {
		s.Fatalf("close: %v", err)
	}
	s.wantEvery("after Close", s.everyCall(s.Context(), s.driver()), ledgers.ErrClosed)
}

func closedTwice(s *session) {
	for n := range 3 {
		err := s.driver().Close()
		if err != nil {
			s.Errorf("close %d: got %v, want nil", n+1, err)
		}
	}
}

// closeWaits closes while others write: each call is answered whole or is told ErrClosed.
func closeWaits(s *session) {
	const calls = 200
	s.accounts(2)
	answered := make(chan struct{}, callers*calls)
	var wait sync.WaitGroup
	for i := range callers {
		wait.Go(func() {
			for n := range calls {
				results, err := s.driver().CreateTransfers(s.Context(), []ledgers.Transfer{
					s.transfer(100+i*calls+n, 1, 2, 1),
				})
				switch {
				case errors.Is(err, ledgers.ErrClosed):
					return
				case err != nil:
					s.Errorf("create transfers: got error %v, want ErrClosed", err)
				case len(results) != 1 || results[0].Status != ledgers.TransferCreated:
					s.Errorf("create transfers: got %v, want created", results)
				}
				answered <- struct{}{}
			}
		})
	}
	<-answered
	err := s.driver().Close()
	if err != nil {
		s.Errorf("close: %v", err)
	}
	wait.Wait()
}
