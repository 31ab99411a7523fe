package embedded

import (
	"math"
	"time"

	"weir/ledgers"
)

const knownTransferFlags = ledgers.Linked | ledgers.Pending | ledgers.PostPending |
	ledgers.VoidPending | ledgers.BalancingDebit | ledgers.BalancingCredit |
	ledgers.ClosingDebit | ledgers.ClosingCredit | ledgers.Imported

// transferBatch is one CreateTransfers.
type transferBatch struct {
	events  []ledgers.Transfer
	results []ledgers.TransferResult
}

func (b *transferBatch) len() int { return len(b.events) }

func (b *transferBatch) header(i int) eventHeader {
	e := &b.events[i]
	return eventHeader{
		linked:    e.Flags&ledgers.Linked != 0,
		imported:  e.Flags&ledgers.Imported != 0,
		timestamp: e.Timestamp,
	}
}

func (b *transferBatch) create(m *machine, i int, timestamp uint64) (uint32, uint64) {
	status, at := m.createTransfer(&b.events[i], timestamp)
	return uint32(status), at
}

func (b *transferBatch) answer(i int, status uint32, timestamp uint64) {
	b.results[i] = ledgers.TransferResult{
		Status: ledgers.TransferStatus(status), Timestamp: timestamp,
	}
}

func (*transferBatch) importedNotExpected() uint32 {
	return uint32(ledgers.TransferImportedEventNotExpected)
}

// createTransfer returns the status and, for `exists`, the time of the first creation.
func (m *machine) createTransfer(
	t *ledgers.Transfer, timestamp uint64,
) (ledgers.TransferStatus, uint64) {
	switch {
	case t.Flags&^knownTransferFlags != 0:
		return ledgers.TransferReservedFlag, 0
	case t.ID.IsZero():
		return ledgers.TransferIDMustNotBeZero, 0
	case t.ID == ledgers.MaxID:
		return ledgers.TransferIDMustNotBeIntMax, 0
	}
	existing, presence := m.transfer(t.ID)
	switch {
	case presence == burnt:
		return ledgers.TransferIDAlreadyFailed, 0
	case presence == found:
		return m.transferExists(t, &existing)
	case t.Flags&(ledgers.PostPending|ledgers.VoidPending) != 0:
		return m.endPending(t, timestamp), 0
	}
	status := checkTransfer(t)
	if status != ledgers.TransferCreated {
		return status, 0
	}
	debit, credit, status := m.accountsOf(t)
	if status != ledgers.TransferCreated {
		return status, 0
	}
	amount := balancedAmount(t, debit, credit)
	status = checkBalances(t, amount, timestamp, debit, credit)
	if status != ledgers.TransferCreated {
		return status, 0
	}
	created := *t
	created.Amount, created.Timestamp = amount, timestamp
	m.addTransfer(&created)
	m.change(debit)
	m.change(credit)
	applyTransfer(&created, &debit.Account, debitSide)
	applyTransfer(&created, &credit.Account, creditSide)
	return ledgers.TransferCreated, 0
}

// checkTransfer makes the checks that need no account.
func checkTransfer(t *ledgers.Transfer) ledgers.TransferStatus {
	pending := t.Flags.Has(ledgers.Pending)
	switch {
	case t.DebitAccountID.IsZero():
		return ledgers.TransferDebitAccountIDMustNotBeZero
	case t.DebitAccountID == ledgers.MaxID:
		return ledgers.TransferDebitAccountIDMustNotBeIntMax
	case t.CreditAccountID.IsZero():
		return ledgers.TransferCreditAccountIDMustNotBeZero
	case t.CreditAccountID == ledgers.MaxID:
		return ledgers.TransferCreditAccountIDMustNotBeIntMax
	case t.CreditAccountID == t.DebitAccountID:
		return ledgers.TransferAccountsMustBeDifferent
	case !t.PendingID.IsZero():
		return ledgers.TransferPendingIDMustBeZero
	case !pending && t.Timeout != 0:
		return ledgers.TransferTimeoutReservedForPendingTransfer
	case !pending && t.Flags&(ledgers.ClosingDebit|ledgers.ClosingCredit) != 0:
		return ledgers.TransferClosingTransferMustBePending
	case t.Ledger == 0:
		return ledgers.TransferLedgerMustNotBeZero
	case t.Code == 0:
		return ledgers.TransferCodeMustNotBeZero
	}
	return ledgers.TransferCreated
}

// accountsOf returns the accounts of a transfer if it may move anything between them.
func (m *machine) accountsOf(
	t *ledgers.Transfer,
) (debit, credit *account, status ledgers.TransferStatus) {
	debit = m.account(t.DebitAccountID)
	if debit == nil {
		return nil, nil, ledgers.TransferDebitAccountNotFound
	}
	credit = m.account(t.CreditAccountID)
	switch {
	case credit == nil:
		return nil, nil, ledgers.TransferCreditAccountNotFound
	case debit.Ledger != credit.Ledger:
		return nil, nil, ledgers.TransferAccountsMustHaveTheSameLedger
	case t.Ledger != debit.Ledger:
		return nil, nil, ledgers.TransferTransferMustHaveTheSameLedgerAsAccounts
	case debit.Flags&ledgers.AccountClosed != 0:
		return nil, nil, ledgers.TransferDebitAccountAlreadyClosed
	case credit.Flags&ledgers.AccountClosed != 0:
		return nil, nil, ledgers.TransferCreditAccountAlreadyClosed
	}
	return debit, credit, ledgers.TransferCreated
}

// balancedAmount cuts the amount of a balancing transfer down to what the accounts can bear.
func balancedAmount(t *ledgers.Transfer, debit, credit *account) ledgers.Amount {
	amount := t.Amount
	if t.Flags.Has(ledgers.BalancingDebit) {
		free := ledgers.SubtractFloor(debit.CreditsPosted, debit.DebitsPosted)
		free = ledgers.SubtractFloor(free, debit.DebitsPending)
		amount = least(amount, free)
	}
	if t.Flags.Has(ledgers.BalancingCredit) {
		free := ledgers.SubtractFloor(credit.DebitsPosted, credit.CreditsPosted)
		free = ledgers.SubtractFloor(free, credit.CreditsPending)
		amount = least(amount, free)
	}
	return amount
}

func least(a, b ledgers.Amount) ledgers.Amount {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// checkBalances makes the checks on the sums, first that they fit, then that the limits hold.
func checkBalances(
	t *ledgers.Transfer, amount ledgers.Amount, timestamp uint64, debit, credit *account,
) ledgers.TransferStatus {
	pending := t.Flags.Has(ledgers.Pending)
	debits, debitsFit := ledgers.Sum(debit.DebitsPending, debit.DebitsPosted, amount)
	credits, creditsFit := ledgers.Sum(credit.CreditsPending, credit.CreditsPosted, amount)
	switch {
	case pending && !fit(debit.DebitsPending, amount):
		return ledgers.TransferOverflowsDebitsPending
	case pending && !fit(credit.CreditsPending, amount):
		return ledgers.TransferOverflowsCreditsPending
	case !fit(debit.DebitsPosted, amount):
		return ledgers.TransferOverflowsDebitsPosted
	case !fit(credit.CreditsPosted, amount):
		return ledgers.TransferOverflowsCreditsPosted
	case !debitsFit:
		return ledgers.TransferOverflowsDebits
	case !creditsFit:
		return ledgers.TransferOverflowsCredits
	case uint64(t.Timeout)*uint64(time.Second) > math.MaxInt64-timestamp:
		return ledgers.TransferOverflowsTimeout
	case debit.Flags&ledgers.DebitsMustNotExceedCredits != 0 &&
		debits.Cmp(debit.CreditsPosted) > 0:
		return ledgers.TransferExceedsCredits
	case credit.Flags&ledgers.CreditsMustNotExceedDebits != 0 &&
		credits.Cmp(credit.DebitsPosted) > 0:
		return ledgers.TransferExceedsDebits
	}
	return ledgers.TransferCreated
}

func fit(a, b ledgers.Amount) bool {
	_, ok := ledgers.Sum(a, b)
	return ok
}

// side is where an account stands in a transfer.
type side int

const (
	debitSide side = iota
	creditSide
)

// pendingOf and postedOf return the sum of an account that a transfer on this side changes.
func (s side) pendingOf(a *ledgers.Account) *ledgers.Amount {
	if s == debitSide {
		return &a.DebitsPending
	}
	return &a.CreditsPending
}

func (s side) postedOf(a *ledgers.Account) *ledgers.Amount {
	if s == debitSide {
		return &a.DebitsPosted
	}
	return &a.CreditsPosted
}

// closes reports whether a pending transfer with these flags closes the account on this side.
func (s side) closes(flags ledgers.TransferFlags) bool {
	if s == debitSide {
		return flags.Has(ledgers.ClosingDebit)
	}
	return flags.Has(ledgers.ClosingCredit)
}

// applyTransfer books a transfer that is neither a post nor a void on one of its accounts.
func applyTransfer(t *ledgers.Transfer, a *ledgers.Account, s side) {
	sum := s.postedOf(a)
	if t.Flags.Has(ledgers.Pending) {
		sum = s.pendingOf(a)
	}
	*sum = sum.Add(t.Amount)
	if s.closes(t.Flags) {
		a.Flags |= ledgers.AccountClosed
	}
}

// change announces that an account is about to be changed.
func (m *machine) change(a *account) {
	if m.undo.open {
		m.undo.images = append(m.undo.images, accountImage{of: a, content: a.Account})
	}
	m.dirty(a)
}

func (m *machine) dirty(a *account) {
	if a.dirtySince == 0 {
		a.dirtySince = m.base
		m.changes.dirtied = append(m.changes.dirtied, a)
	}
}

// makeUp takes off an account what expired while it was not in memory. A chain that is rolled back
// does not bring that back.
func (m *machine) makeUp(a *account) {
	r, ok := m.changes.absent[a.ID]
	if !ok {
		return
	}
	delete(m.changes.absent, a.ID)
	m.dirty(a)
	r.apply(&a.Account)
}

// release is what expired pending transfers together take off an account.
type release struct {
	debits, credits ledgers.Amount
	reopen          bool
}

func (r *release) add(p *livePending, s side) {
	sum := &r.debits
	if s == creditSide {
		sum = &r.credits
	}
	*sum = sum.Add(p.amount)
	r.reopen = r.reopen || s.closes(p.flags)
}

func (r *release) apply(a *ledgers.Account) {
	a.DebitsPending = a.DebitsPending.Sub(r.debits)
	a.CreditsPending = a.CreditsPending.Sub(r.credits)
	if r.reopen {
		a.Flags &^= ledgers.AccountClosed
	}
}

// replay books a transfer that was accepted earlier on those of its accounts that do not hold it
// yet. It reports whether the pending transfer that it ends, if it does, is there.
func (m *machine) replay(t *ledgers.Transfer) bool {
	m.expire(t.Timestamp)
	m.last = t.Timestamp
	book := applyTransfer
	if t.Flags&(ledgers.PostPending|ledgers.VoidPending) != 0 {
		pending, presence := m.transfer(t.PendingID)
		if presence != found {
			return false
		}
		book = func(t *ledgers.Transfer, a *ledgers.Account, s side) {
			applyEnding(t, &pending, a, s)
		}
	}
	debit, credit := m.account(t.DebitAccountID), m.account(t.CreditAccountID)
	if debit == nil || credit == nil {
		return false
	}
	if t.Timestamp > debit.asOf {
		m.change(debit)
		book(t, &debit.Account, debitSide)
	}
	if t.Timestamp > credit.asOf {
		m.change(credit)
		book(t, &credit.Account, creditSide)
	}
	return true
}

// transferExists compares a transfer to create with the one that has its id.
func (m *machine) transferExists(t, e *ledgers.Transfer) (ledgers.TransferStatus, uint64) {
	ends := t.Flags&(ledgers.PostPending|ledgers.VoidPending) != 0
	switch {
	case t.Flags != e.Flags:
		return ledgers.TransferExistsWithDifferentFlags, 0
	case t.PendingID != e.PendingID:
		return ledgers.TransferExistsWithDifferentPendingID, 0
	case t.Timeout != e.Timeout:
		return ledgers.TransferExistsWithDifferentTimeout, 0
	}
	wanted := *t
	if ends {
		pending, _ := m.transfer(t.PendingID)
		wanted = completeEnding(t, &pending)
	}
	balancing := t.Flags&(ledgers.BalancingDebit|ledgers.BalancingCredit) != 0
	switch {
	case wanted.DebitAccountID != e.DebitAccountID:
		return ledgers.TransferExistsWithDifferentDebitAccountID, 0
	case wanted.CreditAccountID != e.CreditAccountID:
		return ledgers.TransferExistsWithDifferentCreditAccountID, 0
	case balancing && wanted.Amount.Cmp(e.Amount) < 0,
		!balancing && wanted.Amount != e.Amount:
		return ledgers.TransferExistsWithDifferentAmount, 0
	case wanted.UserData128 != e.UserData128:
		return ledgers.TransferExistsWithDifferentUserData128, 0
	case wanted.UserData64 != e.UserData64:
		return ledgers.TransferExistsWithDifferentUserData64, 0
	case wanted.UserData32 != e.UserData32:
		return ledgers.TransferExistsWithDifferentUserData32, 0
	case wanted.Ledger != e.Ledger:
		return ledgers.TransferExistsWithDifferentLedger, 0
	case wanted.Code != e.Code:
		return ledgers.TransferExistsWithDifferentCode, 0
	}
	return ledgers.TransferExists, e.Timestamp
}
