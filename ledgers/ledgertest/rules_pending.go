package ledgertest

import "weir/ledgers"

// end judges a transfer that posts or voids a pending one and returns it as it is to be kept: with
// the accounts, ledger and code of the pending transfer, and its user data where it has none.
func (w *Twin) end(at uint64, t ledgers.Transfer) (ledgers.Transfer, ledgers.TransferStatus) {
	status := endFields(t)
	if status != ledgers.TransferCreated {
		return t, status
	}
	p, found := w.transfer(t.PendingID)
	if !found {
		return t, ledgers.TransferPendingTransferNotFound
	}
	void := t.Flags.Has(ledgers.VoidPending)
	amount := endAmount(t, p)
	debit, _ := w.account(at, p.DebitAccountID)
	credit, _ := w.account(at, p.CreditAccountID)
	ender, ended := w.transfer(w.endedBy[p.ID])
	switch {
	case !p.Flags.Has(ledgers.Pending):
		status = ledgers.TransferPendingTransferNotPending
	case !t.DebitAccountID.IsZero() && t.DebitAccountID != p.DebitAccountID:
		status = ledgers.TransferPendingTransferHasDifferentDebitAccountID
	case !t.CreditAccountID.IsZero() && t.CreditAccountID != p.CreditAccountID:
		status = ledgers.TransferPendingTransferHasDifferentCreditAccountID
	case t.Ledger != 0 && t.Ledger != p.Ledger:
		status = ledgers.TransferPendingTransferHasDifferentLedger
	case t.Code != 0 && t.Code != p.Code:
		status = ledgers.TransferPendingTransferHasDifferentCode
	case amount.Cmp(p.Amount) > 0:
		status = ledgers.TransferExceedsPendingTransferAmount
	case void && amount.Cmp(p.Amount) < 0:
		status = ledgers.TransferPendingTransferHasDifferentAmount
	case ended && ender.Flags.Has(ledgers.PostPending):
		status = ledgers.TransferPendingTransferAlreadyPosted
	case ended:
		status = ledgers.TransferPendingTransferAlreadyVoided
	case expired(p, at):
		status = ledgers.TransferPendingTransferExpired
	case !void && debit.Flags&ledgers.AccountClosed != 0:
		status = ledgers.TransferDebitAccountAlreadyClosed
	case !void && credit.Flags&ledgers.AccountClosed != 0:
		status = ledgers.TransferCreditAccountAlreadyClosed
	}
	t.DebitAccountID, t.CreditAccountID = p.DebitAccountID, p.CreditAccountID
	t.Ledger, t.Code, t.Amount = p.Ledger, p.Code, amount
	return inheritUserData(t, p), status
}

// endFields judges what can be seen from a posting or voiding transfer alone.
func endFields(t ledgers.Transfer) ledgers.TransferStatus {
	const excluded = ledgers.Pending | ledgers.BalancingDebit | ledgers.BalancingCredit |
		ledgers.ClosingDebit | ledgers.ClosingCredit
	switch {
	case t.Flags.Has(ledgers.PostPending|ledgers.VoidPending) || t.Flags&excluded != 0:
		return ledgers.TransferFlagsAreMutuallyExclusive
	case t.PendingID.IsZero():
		return ledgers.TransferPendingIDMustNotBeZero
	case t.PendingID == ledgers.MaxID:
		return ledgers.TransferPendingIDMustNotBeIntMax
	case t.PendingID == t.ID:
		return ledgers.TransferPendingIDMustBeDifferent
	case t.Timeout != 0:
		return ledgers.TransferTimeoutReservedForPendingTransfer
	default:
		return ledgers.TransferCreated
	}
}

// endAmount is what a transfer posts or voids of p: all of it if a void says 0 or a post says the
// greatest amount, else what it says.
func endAmount(t, p ledgers.Transfer) ledgers.Amount {
	void := t.Flags.Has(ledgers.VoidPending)
	if void && t.Amount.IsZero() || !void && t.Amount == ledgers.MaxAmount {
		return p.Amount
	}
	return t.Amount
}

func inheritUserData(t, p ledgers.Transfer) ledgers.Transfer {
	if t.UserData128.IsZero() {
		t.UserData128 = p.UserData128
	}
	if t.UserData64 == 0 {
		t.UserData64 = p.UserData64
	}
	if t.UserData32 == 0 {
		t.UserData32 = p.UserData32
	}
	return t
}

// transferExists compares a transfer sent again with the one that exists.
func (w *Twin) transferExists(t, existing ledgers.Transfer) ledgers.TransferStatus {
	switch {
	case t.Flags != existing.Flags:
		return ledgers.TransferExistsWithDifferentFlags
	case t.PendingID != existing.PendingID:
		return ledgers.TransferExistsWithDifferentPendingID
	case t.Timeout != existing.Timeout:
		return ledgers.TransferExistsWithDifferentTimeout
	}
	differentAmount := t.Amount != existing.Amount
	if t.Flags&(ledgers.BalancingDebit|ledgers.BalancingCredit) != 0 {
		// The amount of a balancing transfer is its upper limit.
		differentAmount = t.Amount.Cmp(existing.Amount) < 0
	}
	if t.Flags&(ledgers.PostPending|ledgers.VoidPending) != 0 {
		// What was left out was taken from the pending transfer, so it is taken from there again.
		p, _ := w.transfer(t.PendingID)
		differentAmount = endAmount(t, p) != existing.Amount
		t = inheritUserData(t, p)
		t.DebitAccountID = orElse(t.DebitAccountID, p.DebitAccountID)
		t.CreditAccountID = orElse(t.CreditAccountID, p.CreditAccountID)
		t.Ledger = orElse(t.Ledger, p.Ledger)
		t.Code = orElse(t.Code, p.Code)
	}
	switch {
	case t.DebitAccountID != existing.DebitAccountID:
		return ledgers.TransferExistsWithDifferentDebitAccountID
	case t.CreditAccountID != existing.CreditAccountID:
		return ledgers.TransferExistsWithDifferentCreditAccountID
	case differentAmount:
		return ledgers.TransferExistsWithDifferentAmount
	case t.UserData128 != existing.UserData128:
		return ledgers.TransferExistsWithDifferentUserData128
	case t.UserData64 != existing.UserData64:
		return ledgers.TransferExistsWithDifferentUserData64
	case t.UserData32 != existing.UserData32:
		return ledgers.TransferExistsWithDifferentUserData32
	case t.Ledger != existing.Ledger:
		return ledgers.TransferExistsWithDifferentLedger
	case t.Code != existing.Code:
		return ledgers.TransferExistsWithDifferentCode
	default:
		return ledgers.TransferExists
	}
}

// orElse returns value, or instead where value is zero.
func orElse[V comparable](value, instead V) V {
	var zero V
	if value == zero {
		return instead
	}
	return value
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
		w.sum(&a, *t, at)
	}
	return a, true
}

// sum adds to an account what one of its transfers contributes to its balance at a time.
func (w *Twin) sum(a *ledgers.Account, t ledgers.Transfer, at uint64) {
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
func (w *Twin) live(t ledgers.Transfer, at uint64) bool {
	_, ended := w.endedBy[t.ID]
	return !ended && !expired(t, at)
}

// expired reports whether a pending transfer that nobody ended has timed out.
func expired(t ledgers.Transfer, at uint64) bool {
	return t.Timeout != 0 && at >= t.ExpiresAt()
}
