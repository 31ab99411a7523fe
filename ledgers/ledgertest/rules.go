package ledgertest

import (
	"time"

	"weir/ledgers"
)

// The rules of the twin: one event against everything that was created before it. Each function
// returns at the first rule that is broken, in TigerBeetle's order of precedence.

const (
	accountFlagsKnown  = ledgers.AccountClosed<<1 - 1
	transferFlagsKnown = ledgers.Imported<<1 - 1
)

// createAccount answers one account and, if nothing speaks against it, adds it to the list.
func (w *Twin) createAccount(at uint64, a ledgers.Account) ledgers.AccountResult {
	existing, exists := w.account(at, a.ID)
	status := ledgers.AccountCreated
	switch {
	case a.Flags&ledgers.AccountImported != 0:
		status = ledgers.AccountImportedEventNotExpected
	case a.Timestamp != 0:
		status = ledgers.AccountTimestampMustBeZero
	case a.Flags&^accountFlagsKnown != 0:
		status = ledgers.AccountReservedFlag
	case a.ID.IsZero():
		status = ledgers.AccountIDMustNotBeZero
	case a.ID == ledgers.MaxID:
		status = ledgers.AccountIDMustNotBeIntMax
	case exists:
		status = accountExists(a, existing)
	case a.Flags&ledgers.DebitsMustNotExceedCredits != 0 &&
		a.Flags&ledgers.CreditsMustNotExceedDebits != 0:
		status = ledgers.AccountFlagsAreMutuallyExclusive
	case !a.DebitsPending.IsZero():
		status = ledgers.AccountDebitsPendingMustBeZero
	case !a.DebitsPosted.IsZero():
		status = ledgers.AccountDebitsPostedMustBeZero
	case !a.CreditsPending.IsZero():
		status = ledgers.AccountCreditsPendingMustBeZero
	case !a.CreditsPosted.IsZero():
		status = ledgers.AccountCreditsPostedMustBeZero
	case a.Ledger == 0:
		status = ledgers.AccountLedgerMustNotBeZero
	case a.Code == 0:
		status = ledgers.AccountCodeMustNotBeZero
	}
	switch status {
	case ledgers.AccountCreated:
		a.Timestamp = at
		w.accountAt[a.ID] = len(w.accounts)
		w.accounts = append(w.accounts, a)
	case ledgers.AccountExists:
		at = existing.Timestamp
	}
	return ledgers.AccountResult{Timestamp: at, Status: status}
}

// accountExists compares an account sent again with the one that exists. The flags of one that a
// transfer has closed contain the closed flag.
func accountExists(a, existing ledgers.Account) ledgers.AccountStatus {
	switch {
	case a.Flags != existing.Flags:
		return ledgers.AccountExistsWithDifferentFlags
	case a.UserData128 != existing.UserData128:
		return ledgers.AccountExistsWithDifferentUserData128
	case a.UserData64 != existing.UserData64:
		return ledgers.AccountExistsWithDifferentUserData64
	case a.UserData32 != existing.UserData32:
		return ledgers.AccountExistsWithDifferentUserData32
	case a.Ledger != existing.Ledger:
		return ledgers.AccountExistsWithDifferentLedger
	case a.Code != existing.Code:
		return ledgers.AccountExistsWithDifferentCode
	default:
		return ledgers.AccountExists
	}
}

// createTransfer answers one transfer and, if nothing speaks against it, adds it to the list.
func (w *Twin) createTransfer(at uint64, t ledgers.Transfer) ledgers.TransferResult {
	existing, exists := w.transfer(t.ID)
	var status ledgers.TransferStatus
	switch {
	case t.Flags.Has(ledgers.Imported):
		status = ledgers.TransferImportedEventNotExpected
	case t.Timestamp != 0:
		status = ledgers.TransferTimestampMustBeZero
	case t.Flags&^transferFlagsKnown != 0:
		status = ledgers.TransferReservedFlag
	case t.ID.IsZero():
		status = ledgers.TransferIDMustNotBeZero
	case t.ID == ledgers.MaxID:
		status = ledgers.TransferIDMustNotBeIntMax
	case exists:
		status = w.transferExists(t, existing)
	case w.burnt[t.ID]:
		status = ledgers.TransferIDAlreadyFailed
	case t.Flags&(ledgers.PostPending|ledgers.VoidPending) != 0:
		t, status = w.end(at, t)
	default:
		t, status = w.move(at, t)
	}
	switch status {
	case ledgers.TransferCreated:
		t.Timestamp = at
		w.transferAt[t.ID] = len(w.transfers)
		w.transfers = append(w.transfers, t)
		if !t.PendingID.IsZero() {
			w.endedBy[t.PendingID] = t.ID
		}
	case ledgers.TransferExists:
		at = existing.Timestamp
	}
	return ledgers.TransferResult{Timestamp: at, Status: status}
}

// move judges a transfer that neither posts nor voids and returns it as it is to be kept.
func (w *Twin) move(
	at uint64, t ledgers.Transfer,
) (ledgers.Transfer, ledgers.TransferStatus) {
	status := moveFields(t)
	if status != ledgers.TransferCreated {
		return t, status
	}
	debit, found := w.account(at, t.DebitAccountID)
	if !found {
		return t, ledgers.TransferDebitAccountNotFound
	}
	credit, found := w.account(at, t.CreditAccountID)
	if !found {
		return t, ledgers.TransferCreditAccountNotFound
	}
	switch {
	case debit.Ledger != credit.Ledger:
		return t, ledgers.TransferAccountsMustHaveTheSameLedger
	case t.Ledger != debit.Ledger:
		return t, ledgers.TransferTransferMustHaveTheSameLedgerAsAccounts
	case debit.Flags&ledgers.AccountClosed != 0:
		return t, ledgers.TransferDebitAccountAlreadyClosed
	case credit.Flags&ledgers.AccountClosed != 0:
		return t, ledgers.TransferCreditAccountAlreadyClosed
	}
	if t.Flags.Has(ledgers.BalancingDebit) {
		used := debit.DebitsPosted.Add(debit.DebitsPending)
		t.Amount = smaller(t.Amount, ledgers.SubtractFloor(debit.CreditsPosted, used))
	}
	if t.Flags.Has(ledgers.BalancingCredit) {
		used := credit.CreditsPosted.Add(credit.CreditsPending)
		t.Amount = smaller(t.Amount, ledgers.SubtractFloor(credit.DebitsPosted, used))
	}
	return t, moveBalances(at, t, debit, credit)
}

// moveFields judges what can be seen from the transfer alone.
func moveFields(t ledgers.Transfer) ledgers.TransferStatus {
	pending := t.Flags.Has(ledgers.Pending)
	closing := t.Flags&(ledgers.ClosingDebit|ledgers.ClosingCredit) != 0
	switch {
	case t.DebitAccountID.IsZero():
		return ledgers.TransferDebitAccountIDMustNotBeZero
	case t.DebitAccountID == ledgers.MaxID:
		return ledgers.TransferDebitAccountIDMustNotBeIntMax
	case t.CreditAccountID.IsZero():
		return ledgers.TransferCreditAccountIDMustNotBeZero
	case t.CreditAccountID == ledgers.MaxID:
		return ledgers.TransferCreditAccountIDMustNotBeIntMax
	case t.DebitAccountID == t.CreditAccountID:
		return ledgers.TransferAccountsMustBeDifferent
	case !t.PendingID.IsZero():
		return ledgers.TransferPendingIDMustBeZero
	case !pending && t.Timeout != 0:
		return ledgers.TransferTimeoutReservedForPendingTransfer
	case !pending && closing:
		return ledgers.TransferClosingTransferMustBePending
	case t.Ledger == 0:
		return ledgers.TransferLedgerMustNotBeZero
	case t.Code == 0:
		return ledgers.TransferCodeMustNotBeZero
	default:
		return ledgers.TransferCreated
	}
}

// moveBalances judges whether both accounts can bear the amount.
func moveBalances(
	at uint64, t ledgers.Transfer, debit, credit ledgers.Account,
) ledgers.TransferStatus {
	pending := t.Flags.Has(ledgers.Pending)
	debits, debitsFit := ledgers.Sum(debit.DebitsPending, debit.DebitsPosted, t.Amount)
	credits, creditsFit := ledgers.Sum(credit.CreditsPending, credit.CreditsPosted, t.Amount)
	switch {
	case pending && overflows(debit.DebitsPending, t.Amount):
		return ledgers.TransferOverflowsDebitsPending
	case pending && overflows(credit.CreditsPending, t.Amount):
		return ledgers.TransferOverflowsCreditsPending
	case overflows(debit.DebitsPosted, t.Amount):
		return ledgers.TransferOverflowsDebitsPosted
	case overflows(credit.CreditsPosted, t.Amount):
		return ledgers.TransferOverflowsCreditsPosted
	case !debitsFit:
		return ledgers.TransferOverflowsDebits
	case !creditsFit:
		return ledgers.TransferOverflowsCredits
	case at+uint64(t.Timeout)*uint64(time.Second) > timestampMax:
		return ledgers.TransferOverflowsTimeout
	case debit.Flags&ledgers.DebitsMustNotExceedCredits != 0 && debits.Cmp(debit.CreditsPosted) > 0:
		return ledgers.TransferExceedsCredits
	case credit.Flags&ledgers.CreditsMustNotExceedDebits != 0 && credits.Cmp(credit.DebitsPosted) > 0:
		return ledgers.TransferExceedsDebits
	default:
		return ledgers.TransferCreated
	}
}

func overflows(sum, amount ledgers.Amount) bool {
	_, ok := ledgers.Sum(sum, amount)
	return !ok
}

func smaller(a, b ledgers.Amount) ledgers.Amount {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

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
	case expired(&p, at):
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
