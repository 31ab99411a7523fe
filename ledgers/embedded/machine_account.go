package embedded

import "weir/ledgers"

const knownAccountFlags = ledgers.AccountLinked | ledgers.DebitsMustNotExceedCredits |
	ledgers.CreditsMustNotExceedDebits | ledgers.AccountHistory | ledgers.AccountImported |
	ledgers.AccountClosed

// accountBatch is one CreateAccounts.
type accountBatch struct {
	events  []ledgers.Account
	results []ledgers.AccountResult
}

func (b *accountBatch) len() int { return len(b.events) }

func (b *accountBatch) header(i int) eventHeader {
	e := &b.events[i]
	return eventHeader{
		linked:    e.Flags&ledgers.AccountLinked != 0,
		imported:  e.Flags&ledgers.AccountImported != 0,
		timestamp: e.Timestamp,
	}
}

func (b *accountBatch) create(m *machine, i int, timestamp uint64) (uint32, uint64) {
	status, at := m.createAccount(&b.events[i], timestamp)
	return uint32(status), at
}

func (b *accountBatch) answer(i int, status uint32, timestamp uint64) {
	b.results[i] = ledgers.AccountResult{
		Status: ledgers.AccountStatus(status), Timestamp: timestamp,
	}
}

func (*accountBatch) importedNotExpected() uint32 {
	return uint32(ledgers.AccountImportedEventNotExpected)
}

// createAccount returns the status and, for `exists`, the time of the first creation.
func (m *machine) createAccount(
	a *ledgers.Account, timestamp uint64,
) (ledgers.AccountStatus, uint64) {
	switch {
	case a.Flags&^knownAccountFlags != 0:
		return ledgers.AccountReservedFlag, 0
	case a.ID.IsZero():
		return ledgers.AccountIDMustNotBeZero, 0
	case a.ID == ledgers.MaxID:
		return ledgers.AccountIDMustNotBeIntMax, 0
	}
	existing := m.account(a.ID)
	if existing != nil {
		return accountExists(a, &existing.Account)
	}
	const limits = ledgers.DebitsMustNotExceedCredits | ledgers.CreditsMustNotExceedDebits
	switch {
	case a.Flags&limits == limits:
		return ledgers.AccountFlagsAreMutuallyExclusive, 0
	case !a.DebitsPending.IsZero():
		return ledgers.AccountDebitsPendingMustBeZero, 0
	case !a.DebitsPosted.IsZero():
		return ledgers.AccountDebitsPostedMustBeZero, 0
	case !a.CreditsPending.IsZero():
		return ledgers.AccountCreditsPendingMustBeZero, 0
	case !a.CreditsPosted.IsZero():
		return ledgers.AccountCreditsPostedMustBeZero, 0
	case a.Ledger == 0:
		return ledgers.AccountLedgerMustNotBeZero, 0
	case a.Code == 0:
		return ledgers.AccountCodeMustNotBeZero, 0
	}
	created := &account{Account: *a, asOf: timestamp, used: true}
	created.Timestamp = timestamp
	m.addAccount(created)
	return ledgers.AccountCreated, 0
}

// accountExists compares an account to create with the one that has its id.
func accountExists(a, e *ledgers.Account) (ledgers.AccountStatus, uint64) {
	switch {
	case a.Flags != e.Flags:
		return ledgers.AccountExistsWithDifferentFlags, 0
	case a.UserData128 != e.UserData128:
		return ledgers.AccountExistsWithDifferentUserData128, 0
	case a.UserData64 != e.UserData64:
		return ledgers.AccountExistsWithDifferentUserData64, 0
	case a.UserData32 != e.UserData32:
		return ledgers.AccountExistsWithDifferentUserData32, 0
	case a.Ledger != e.Ledger:
		return ledgers.AccountExistsWithDifferentLedger, 0
	case a.Code != e.Code:
		return ledgers.AccountExistsWithDifferentCode, 0
	}
	return ledgers.AccountExists, e.Timestamp
}
