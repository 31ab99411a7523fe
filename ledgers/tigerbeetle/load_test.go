package tigerbeetle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"weir/ledgers"
	"weir/ledgers/tigerbeetle"
	"weir/ledgers/tigerbeetle/tbtest"
)

// load makes checks on a ledger, with ids that no other has.
type load struct {
	t      *testing.T
	ledger *tigerbeetle.Ledger
	run    uint64
}

func (l *load) id(n int) ledgers.ID { return ledgers.ID{Lo: uint64(n), Hi: l.run} }

// newLoad creates an operator, account 1, and users from account 2 on, each with a quota.
func newLoad(t *testing.T, ledger *tigerbeetle.Ledger, users int, quota uint64) *load {
	t.Helper()
	l := &load{t: t, ledger: ledger, run: rand.Uint64()>>2 | 1<<62}
	accounts := []ledgers.Account{{ID: l.id(1), Ledger: 1, Code: 1}}
	var grants []ledgers.Transfer
	for n := 2; n < users+2; n++ {
		accounts = append(accounts, ledgers.Account{
			ID: l.id(n), Ledger: 1, Code: 1, Flags: ledgers.DebitsMustNotExceedCredits,
		})
		grants = append(grants, ledgers.Transfer{
			ID: l.id(n), DebitAccountID: l.id(1), CreditAccountID: l.id(n),
			Amount: ledgers.AmountOf(quota), Ledger: 1, Code: 1,
		})
	}
	_, err := ledger.CreateAccounts(t.Context(), accounts)
	if err != nil {
		t.Fatalf("create accounts: %v", err)
	}
	results, err := ledger.CreateTransfers(t.Context(), grants)
	if err != nil || results[0].Status != ledgers.TransferCreated {
		t.Fatalf("grants: %v and %v", results, err)
	}
	return l
}

// check is check n over some users, one unit of each, all or nothing.
func (l *load) check(n int, users ...int) []ledgers.Transfer {
	chain := make([]ledgers.Transfer, len(users))
	for k, user := range users {
		chain[k] = ledgers.Transfer{
			ID: l.id(1<<32 + n*16 + k), DebitAccountID: l.id(user), CreditAccountID: l.id(1),
			Amount: ledgers.AmountOf(1), Ledger: 1, Code: 1,
			Flags: ledgers.Pending | ledgers.Linked, Timeout: 3600,
		}
	}
	chain[len(chain)-1].Flags &^= ledgers.Linked
	return chain
}

// TestManyChecksAtOnce sends 1,000 and 10,000 concurrent calls to a server in development mode, two
// of three with one charge, the third a chain over three users, and every tenth with a charge that
// is refused for its own reason. Every caller gets its own answer, no chain is torn, and no unit is
// charged that was not answered.
func TestManyChecksAtOnce(t *testing.T) {
	for _, callers := range []int{1_000, 10_000} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			const users = 3
			quota := callers / 2
			l := newLoad(t, shared(t, tbtest.Development).open(t), users, uint64(quota))
			results := make([][]ledgers.TransferResult, callers)
			errs := make([]error, callers)
			sent := make([][]ledgers.Transfer, callers)
			var wait sync.WaitGroup
			for i := range callers {
				sent[i] = l.check(i, 2)
				if i%3 == 2 {
					sent[i] = l.check(i, 2, 3, 4)
				}
				if i%10 == 0 {
					sent[i][len(sent[i])-1].Code = 0
				}
				wait.Go(func() {
					results[i], errs[i] = l.ledger.CreateTransfers(t.Context(), sent[i])
				})
			}
			wait.Wait()
			charged := [users]int{}
			for i := range callers {
				l.judge(i, sent[i], results[i], errs[i], &charged)
			}
			l.wantCharged(charged[:], quota)
		})
	}
}

// judge looks at the answer to one call and counts what it charged.
func (l *load) judge(
	i int, sent []ledgers.Transfer, results []ledgers.TransferResult, err error, charged *[3]int,
) {
	l.t.Helper()
	if err != nil || len(results) != len(sent) {
		l.t.Errorf("call %d: got %d results and %v, want %d", i, len(results), err, len(sent))
		return
	}
	statuses := make([]ledgers.TransferStatus, len(results))
	for k, r := range results {
		statuses[k] = r.Status
	}
	want := slices.Repeat([]ledgers.TransferStatus{ledgers.TransferLinkedEventFailed}, len(sent))
	switch {
	case slices.Contains(statuses, ledgers.TransferExceedsCredits):
		want[0] = ledgers.TransferExceedsCredits // it is the first user's quota that ends first
	case i%10 == 0:
		want[len(sent)-1] = ledgers.TransferCodeMustNotBeZero
	default:
		want = slices.Repeat([]ledgers.TransferStatus{ledgers.TransferCreated}, len(sent))
		for k := range sent {
			charged[k]++
		}
	}
	if !slices.Equal(statuses, want) {
		l.t.Errorf("call %d: got %v, want %v", i, statuses, want)
	}
}

// wantCharged compares what the users have pending with what was answered.
func (l *load) wantCharged(charged []int, quota int) {
	l.t.Helper()
	if charged[0] != quota {
		l.t.Errorf("charged: got %d, want all of %d", charged[0], quota)
	}
	for k, want := range charged {
		accounts, err := l.ledger.LookupAccounts(context.Background(), []ledgers.ID{l.id(2 + k)})
		if err != nil || len(accounts) != 1 {
			l.t.Fatalf("look up: got %d accounts and %v", len(accounts), err)
		}
		if accounts[0].DebitsPending != ledgers.AmountOf(uint64(want)) {
			l.t.Errorf("user %d: got %v pending, want %d", k, accounts[0].DebitsPending, want)
		}
	}
}

// TestServersRealSize sends chains of what a server in development mode takes, and one more.
func TestServersRealSize(t *testing.T) {
	c := shared(t, tbtest.Development)
	if given(t) != nil {
		t.Skipf("what the cluster of %s takes is not known", tbtest.AddressesEnv)
	}
	l := newLoad(t, c.open(t), 1, 1<<40)
	chain := func(n, length int) []ledgers.Transfer {
		transfers := make([]ledgers.Transfer, length)
		for k := range transfers {
			transfers[k] = l.check(n+k, 2)[0]
			transfers[k].Flags |= ledgers.Linked
		}
		transfers[length-1].Flags &^= ledgers.Linked
		return transfers
	}
	sent := slices.Concat(chain(0, developmentEvents-1), chain(1000, developmentEvents),
		chain(2000, 1), chain(3000, developmentEvents))
	results, err := l.ledger.CreateTransfers(t.Context(), sent)
	wantCreated(t, l.ledger, sent, results, err)
	before := chain(4000, 500)
	for k := range before {
		before[k].Flags &^= ledgers.Linked
	}
	sent = slices.Concat(before, chain(5000, developmentEvents+1))
	_, err = l.ledger.CreateTransfers(t.Context(), sent)
	if !errors.Is(err, ledgers.ErrTooManyEvents) {
		t.Errorf("a chain of %d: got %v, want ErrTooManyEvents", developmentEvents+1, err)
	}
	found, err := l.ledger.LookupTransfers(t.Context(), idsOf(sent))
	if err != nil || len(found) != 0 {
		t.Errorf("look up: got %d transfers and %v, want none", len(found), err)
	}
}
