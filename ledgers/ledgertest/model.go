package ledgertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"weir/ledgers"
)

// Twin is a ledger that is deliberately dumb: two lists of everything ever created, from which each
// answer is worked out anew. A balance is the sum over the list, an expiry is a comparison with the
// clock, a failed chain cuts the lists back. It is slow, keeps nothing on disk and is right because
// it can be read in one sitting; a fast driver is right where it agrees with it.
//
// Its rules are in the order in which TigerBeetle looks at an event: rules.go. Like the embedded
// engine it refuses imported events. It is safe for concurrent use, one call at a time.
type Twin struct {
	now func() uint64

	mu     sync.Mutex
	closed bool
	// last is the newest timestamp given out.
	last uint64
	// accounts and transfers are as they were created, oldest first: the accounts' sums are zero.
	accounts  []ledgers.Account
	transfers []ledgers.Transfer
	// accountAt and transferAt say where in the lists an id is.
	accountAt  map[ledgers.ID]int
	transferAt map[ledgers.ID]int
	// endedBy says which transfer posted or voided a pending one.
	endedBy map[ledgers.ID]ledgers.ID
	// burnt holds the ids that failed for a transient reason.
	burnt map[ledgers.ID]bool
	// released is the time up to which what has timed out was given back, 0 for all of it at once: a
	// server gives it back a little later, and not while it works on a batch.
	released uint64
}

var _ ledgers.Driver = (*Twin)(nil)

// NewTwin returns an empty ledger. now is its clock in nanoseconds since 1970; where it stands
// still or goes back, timestamps go on from the last one.
func NewTwin(now func() uint64) *Twin {
	return &Twin{
		now:        now,
		accountAt:  map[ledgers.ID]int{},
		transferAt: map[ledgers.ID]int{},
		endedBy:    map[ledgers.ID]ledgers.ID{},
		burnt:      map[ledgers.ID]bool{},
	}
}

// clone returns a twin that goes its own way from here.
func (w *Twin) clone() *Twin {
	c := NewTwin(w.now)
	c.last, c.accounts, c.transfers = w.last, slices.Clone(w.accounts), slices.Clone(w.transfers)
	maps.Copy(c.accountAt, w.accountAt)
	maps.Copy(c.transferAt, w.transferAt)
	maps.Copy(c.endedBy, w.endedBy)
	maps.Copy(c.burnt, w.burnt)
	return c
}

// CreateAccounts implements [ledgers.Driver].
func (w *Twin) CreateAccounts(
	ctx context.Context, accounts []ledgers.Account,
) ([]ledgers.AccountResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.accept(ctx, len(accounts))
	if err != nil {
		return nil, err
	}
	return w.createAccounts(w.stamps(len(accounts)), accounts), nil
}

// CreateTransfers implements [ledgers.Driver].
func (w *Twin) CreateTransfers(
	ctx context.Context, transfers []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.accept(ctx, len(transfers))
	if err != nil {
		return nil, err
	}
	return w.createTransfers(w.stamps(len(transfers)), transfers), nil
}

// LookupAccounts implements [ledgers.Driver].
func (w *Twin) LookupAccounts(ctx context.Context, ids []ledgers.ID) ([]ledgers.Account, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.accept(ctx, len(ids))
	if err != nil {
		return nil, err
	}
	return w.lookupAccounts(w.present(), ids), nil
}

// LookupTransfers implements [ledgers.Driver].
func (w *Twin) LookupTransfers(ctx context.Context, ids []ledgers.ID) ([]ledgers.Transfer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.accept(ctx, len(ids))
	if err != nil {
		return nil, err
	}
	return w.lookupTransfers(ids), nil
}

// AccountTransfers implements [ledgers.Driver].
func (w *Twin) AccountTransfers(
	ctx context.Context, filter ledgers.AccountFilter,
) ([]ledgers.Transfer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.accept(ctx, 1)
	if err != nil {
		return nil, err
	}
	return w.accountTransfers(filter), nil
}

// Close implements [ledgers.Driver].
func (w *Twin) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return nil
}

// accept says why a call of so many events is not taken, or nil.
func (w *Twin) accept(ctx context.Context, events int) error {
	err := ctx.Err()
	switch {
	case w.closed:
		return ledgers.ErrClosed
	case events > ledgers.MaxEvents:
		return ledgers.ErrTooManyEvents
	case err != nil:
		return fmt.Errorf("twin: %w", err)
	default:
		return nil
	}
}

// present is the ledger's time: the clock's, but never before a timestamp already given.
func (w *Twin) present() uint64 { return max(w.now(), w.last) }

// stamps gives each of n events its timestamp. The last one has the clock's time, as in
// TigerBeetle.
func (w *Twin) stamps(n int) []uint64 {
	end := max(w.now(), w.last+uint64(n))
	stamps := make([]uint64, n)
	for i := range stamps {
		stamps[i] = end - uint64(n) + 1 + uint64(i)
	}
	return stamps
}

func (w *Twin) createAccounts(stamps []uint64, as []ledgers.Account) []ledgers.AccountResult {
	linked := func(i int) bool { return as[i].Flags&ledgers.AccountLinked != 0 }
	results := make([]ledgers.AccountResult, len(as))
	for _, chain := range chainsOf(len(as), linked) {
		mark := len(w.accounts)
		failed := false
		for i := chain.from; i < chain.to; i++ {
			r := ledgers.AccountResult{
				Timestamp: stamps[i], Status: ledgers.AccountLinkedEventFailed,
			}
			switch {
			case chain.open && i == chain.to-1:
				r.Status = ledgers.AccountLinkedEventChainOpen
			case !failed:
				r = w.createAccount(stamps[i], as[i])
			}
			results[i] = r
			if r.Status == ledgers.AccountCreated || failed {
				continue
			}
			failed = true
			for j := chain.from; j < i; j++ {
				results[j].Status = ledgers.AccountLinkedEventFailed
			}
			w.forgetAccountsFrom(mark)
		}
	}
	w.advance(stamps)
	return results
}

func (w *Twin) createTransfers(stamps []uint64, ts []ledgers.Transfer) []ledgers.TransferResult {
	linked := func(i int) bool { return ts[i].Flags.Has(ledgers.Linked) }
	results := make([]ledgers.TransferResult, len(ts))
	for _, chain := range chainsOf(len(ts), linked) {
		mark := len(w.transfers)
		failed := false
		for i := chain.from; i < chain.to; i++ {
			r := ledgers.TransferResult{
				Timestamp: stamps[i], Status: ledgers.TransferLinkedEventFailed,
			}
			switch {
			case chain.open && i == chain.to-1:
				r.Status = ledgers.TransferLinkedEventChainOpen
			case !failed:
				r = w.createTransfer(stamps[i], ts[i])
			}
			results[i] = r
			if r.Status == ledgers.TransferCreated || failed {
				continue
			}
			failed = true
			for j := chain.from; j < i; j++ {
				results[j].Status = ledgers.TransferLinkedEventFailed
			}
			w.forgetTransfersFrom(mark)
			// The burnt id outlives the chain that is undone.
			if r.Status.Transient() {
				w.burnt[ts[i].ID] = true
			}
		}
	}
	w.advance(stamps)
	return results
}

// advance remembers the newest timestamp given out.
func (w *Twin) advance(stamps []uint64) {
	if len(stamps) > 0 {
		w.last = max(w.last, stamps[len(stamps)-1])
	}
}

func (w *Twin) forgetAccountsFrom(mark int) {
	for _, a := range w.accounts[mark:] {
		delete(w.accountAt, a.ID)
	}
	w.accounts = w.accounts[:mark]
}

func (w *Twin) forgetTransfersFrom(mark int) {
	for _, t := range w.transfers[mark:] {
		delete(w.transferAt, t.ID)
		delete(w.endedBy, t.PendingID)
	}
	w.transfers = w.transfers[:mark]
}

func (w *Twin) lookupAccounts(at uint64, ids []ledgers.ID) []ledgers.Account {
	var found []ledgers.Account
	for _, id := range ids {
		a, ok := w.account(at, id)
		if ok {
			found = append(found, a)
		}
	}
	return found
}

func (w *Twin) lookupTransfers(ids []ledgers.ID) []ledgers.Transfer {
	var found []ledgers.Transfer
	for _, id := range ids {
		t, ok := w.transfer(id)
		if ok {
			found = append(found, t)
		}
	}
	return found
}

// transfer finds a transfer as it was created.
func (w *Twin) transfer(id ledgers.ID) (ledgers.Transfer, bool) {
	i, ok := w.transferAt[id]
	if !ok {
		return ledgers.Transfer{}, false
	}
	return w.transfers[i], true
}

// account finds an account with its balance at a time, summed over all transfers.
func (w *Twin) account(at uint64, id ledgers.ID) (ledgers.Account, bool) {
	i, ok := w.accountAt[id]
	if !ok {
		return ledgers.Account{}, false
	}
	a := w.accounts[i]
	for i := range w.transfers {
		t := &w.transfers[i]
		if t.DebitAccountID != id && t.CreditAccountID != id {
			continue
		}
		w.sum(&a, t, at)
	}
	return a, true
}

// sum adds to an account what one of its transfers contributes to its balance at a time.
func (w *Twin) sum(a *ledgers.Account, t *ledgers.Transfer, at uint64) {
	pending, posted := ledgers.Amount{}, t.Amount
	switch {
	case t.Flags.Has(ledgers.VoidPending):
		return
	case t.Flags.Has(ledgers.Pending) && !w.live(t, at):
		return
	case t.Flags.Has(ledgers.Pending):
		pending, posted = posted, pending
	}
	if t.DebitAccountID == a.ID {
		a.DebitsPending = a.DebitsPending.Add(pending)
		a.DebitsPosted = a.DebitsPosted.Add(posted)
		if t.Flags.Has(ledgers.ClosingDebit) {
			a.Flags |= ledgers.AccountClosed
		}
		return
	}
	a.CreditsPending = a.CreditsPending.Add(pending)
	a.CreditsPosted = a.CreditsPosted.Add(posted)
	if t.Flags.Has(ledgers.ClosingCredit) {
		a.Flags |= ledgers.AccountClosed
	}
}

// live reports whether a pending transfer still reserves its amount.
func (w *Twin) live(t *ledgers.Transfer, at uint64) bool {
	_, ended := w.endedBy[t.ID]
	if w.released != 0 {
		at = w.released
	}
	return !ended && !expired(t, at)
}

// expired reports whether a pending transfer that nobody ended has timed out.
func expired(t *ledgers.Transfer, at uint64) bool {
	return t.Timeout != 0 && at >= t.ExpiresAt()
}

// timestampMax is the greatest timestamp of TigerBeetle; a filter that goes beyond is invalid.
const timestampMax = 1<<63 - 1

func (w *Twin) accountTransfers(f ledgers.AccountFilter) []ledgers.Transfer {
	if f.TimestampMin > timestampMax || f.TimestampMax > timestampMax {
		return nil
	}
	if f.TimestampMax == 0 {
		f.TimestampMax = timestampMax
	}
	oldestFirst := slices.Clone(w.transfers)
	if f.Reversed {
		slices.Reverse(oldestFirst)
	}
	var found []ledgers.Transfer
	for _, t := range oldestFirst {
		mine := f.Debits && t.DebitAccountID == f.AccountID ||
			f.Credits && t.CreditAccountID == f.AccountID
		wanted := (f.Code == 0 || f.Code == t.Code) &&
			f.TimestampMin <= t.Timestamp && t.Timestamp <= f.TimestampMax
		room := len(found) < min(int(f.Limit), ledgers.MaxEvents)
		if mine && wanted && room {
			found = append(found, t)
		}
	}
	return found
}

// chain is a run of events that are applied together or not at all: those from..to-1. It is open
// where the batch ended before the chain did.
type chain struct {
	from, to int
	open     bool
}

// chainsOf cuts a batch of n events into chains; an event that is not linked is a chain of one.
func chainsOf(n int, linked func(i int) bool) []chain {
	var chains []chain
	from := 0
	for i := range n {
		if linked(i) && i < n-1 {
			continue
		}
		chains = append(chains, chain{from: from, to: i + 1, open: linked(i)})
		from = i + 1
	}
	return chains
}
