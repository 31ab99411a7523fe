package embedded

import "weir/ledgers"

// endPending posts or voids a pending transfer.
func (m *machine) endPending(t *ledgers.Transfer, timestamp uint64) ledgers.TransferStatus {
	status := checkEnding(t)
	if status != ledgers.TransferCreated {
		return status
	}
	pending, presence := m.transfer(t.PendingID)
	if presence != found {
		return ledgers.TransferPendingTransferNotFound
	}
	created := completeEnding(t, &pending)
	created.Timestamp = timestamp
	status = m.checkPending(&created, &pending, timestamp)
	if status != ledgers.TransferCreated {
		return status
	}
	void := t.Flags.Has(ledgers.VoidPending)
	debit, credit := m.account(pending.DebitAccountID), m.account(pending.CreditAccountID)
	switch {
	case debit == nil || credit == nil:
		// The store has failed; the group will be discarded.
		return ledgers.TransferPendingTransferNotFound
	case !void && debit.Flags&ledgers.AccountClosed != 0:
		return ledgers.TransferDebitAccountAlreadyClosed
	case !void && credit.Flags&ledgers.AccountClosed != 0:
		return ledgers.TransferCreditAccountAlreadyClosed
	}
	how := endingPosted
	if void {
		how = endingVoided
	}
	m.addTransfer(&created)
	m.addEnding(endingChange{
		pendingTimestamp: pending.Timestamp, end: pending.ExpiresAt(),
		timestamp: timestamp, how: how,
	})
	m.change(debit)
	m.change(credit)
	applyEnding(&created, &pending, &debit.Account, debitSide)
	applyEnding(&created, &pending, &credit.Account, creditSide)
	return ledgers.TransferCreated
}

// checkEnding makes the checks that need no pending transfer.
func checkEnding(t *ledgers.Transfer) ledgers.TransferStatus {
	const others = ledgers.Pending | ledgers.BalancingDebit | ledgers.BalancingCredit |
		ledgers.ClosingDebit | ledgers.ClosingCredit
	switch {
	case t.Flags.Has(ledgers.PostPending | ledgers.VoidPending), t.Flags&others != 0:
		return ledgers.TransferFlagsAreMutuallyExclusive
	case t.PendingID.IsZero():
		return ledgers.TransferPendingIDMustNotBeZero
	case t.PendingID == ledgers.MaxID:
		return ledgers.TransferPendingIDMustNotBeIntMax
	case t.PendingID == t.ID:
		return ledgers.TransferPendingIDMustBeDifferent
	case t.Timeout != 0:
		return ledgers.TransferTimeoutReservedForPendingTransfer
	}
	return ledgers.TransferCreated
}

// completeEnding returns a post or a void with the fields that it leaves to its pending transfer.
func completeEnding(t, pending *ledgers.Transfer) ledgers.Transfer {
	full := *t
	if t.DebitAccountID.IsZero() {
		full.DebitAccountID = pending.DebitAccountID
	}
	if t.CreditAccountID.IsZero() {
		full.CreditAccountID = pending.CreditAccountID
	}
	void := t.Flags.Has(ledgers.VoidPending)
	if void && t.Amount.IsZero() || !void && t.Amount == ledgers.MaxAmount {
		full.Amount = pending.Amount
	}
	if t.UserData128.IsZero() {
		full.UserData128 = pending.UserData128
	}
	if t.UserData64 == 0 {
		full.UserData64 = pending.UserData64
	}
	if t.UserData32 == 0 {
		full.UserData32 = pending.UserData32
	}
	if t.Ledger == 0 {
		full.Ledger = pending.Ledger
	}
	if t.Code == 0 {
		full.Code = pending.Code
	}
	return full
}

// checkPending compares a complete post or void with its pending transfer.
func (m *machine) checkPending(
	t, pending *ledgers.Transfer, timestamp uint64,
) ledgers.TransferStatus {
	end := pending.ExpiresAt()
	switch {
	case !pending.Flags.Has(ledgers.Pending):
		return ledgers.TransferPendingTransferNotPending
	case t.DebitAccountID != pending.DebitAccountID:
		return ledgers.TransferPendingTransferHasDifferentDebitAccountID
	case t.CreditAccountID != pending.CreditAccountID:
		return ledgers.TransferPendingTransferHasDifferentCreditAccountID
	case t.Ledger != pending.Ledger:
		return ledgers.TransferPendingTransferHasDifferentLedger
	case t.Code != pending.Code:
		return ledgers.TransferPendingTransferHasDifferentCode
	case t.Amount.Cmp(pending.Amount) > 0:
		return ledgers.TransferExceedsPendingTransferAmount
	case t.Flags.Has(ledgers.VoidPending) && t.Amount != pending.Amount:
		return ledgers.TransferPendingTransferHasDifferentAmount
	}
	switch m.ending(pending.Timestamp) {
	case endingPosted:
		return ledgers.TransferPendingTransferAlreadyPosted
	case endingVoided:
		return ledgers.TransferPendingTransferAlreadyVoided
	}
	if end != 0 && end <= timestamp {
		return ledgers.TransferPendingTransferExpired
	}
	return ledgers.TransferCreated
}

// applyEnding books a post or a void on one of its accounts.
func applyEnding(t, pending *ledgers.Transfer, a *ledgers.Account, s side) {
	releasePending(pending.Amount, pending.Flags, a, s, t.Flags.Has(ledgers.VoidPending))
	if t.Flags.Has(ledgers.PostPending) {
		posted := s.postedOf(a)
		*posted = posted.Add(t.Amount)
	}
}

// releasePending takes a pending amount off one of its accounts; a void or an expiry also opens the
// account again if the pending transfer had closed it.
func releasePending(
	amount ledgers.Amount, flags ledgers.TransferFlags, a *ledgers.Account, s side, reopen bool,
) {
	pending := s.pendingOf(a)
	*pending = pending.Sub(amount)
	if reopen && s.closes(flags) {
		a.Flags &^= ledgers.AccountClosed
	}
}
