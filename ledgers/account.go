package ledgers

// AccountFlags restrict what an account may hold.
type AccountFlags uint16

// The flags of an account. The two limits exclude each other. The names in the comments are
// TigerBeetle's.
const (
	// AccountLinked (linked) joins the creation of this account with the next event's.
	AccountLinked AccountFlags = 1 << iota
	// DebitsMustNotExceedCredits (debits_must_not_exceed_credits) refuses a debit for which
	// pending and posted debits would pass the posted credits.
	DebitsMustNotExceedCredits
	// CreditsMustNotExceedDebits (credits_must_not_exceed_debits) is the same with sides swapped.
	CreditsMustNotExceedDebits
	// AccountHistory (history) asks the ledger to keep the account's balance after each transfer.
	// weir never reads those, so a driver may keep the flag and nothing else.
	AccountHistory
	// AccountImported (imported) carries a timestamp from elsewhere; the embedded engine refuses it.
	AccountImported
	// AccountClosed (closed) refuses every transfer but the void of the pending transfer that
	// closed the account.
	AccountClosed
)

// Account is one account with its balance. The four sums are kept by the ledger and must be zero
// in an account to be created, as must Timestamp.
type Account struct {
	ID             ID
	DebitsPending  Amount
	DebitsPosted   Amount
	CreditsPending Amount
	CreditsPosted  Amount
	// UserData128, UserData64 and UserData32 are kept and returned as they were given.
	UserData128 Amount
	UserData64  uint64
	UserData32  uint32
	Ledger      uint32
	Code        uint16
	Flags       AccountFlags
	// Timestamp is the ledger's time of the creation in nanoseconds since 1970, unique over all
	// accounts and transfers of the ledger.
	Timestamp uint64
}

// AccountFilter selects the transfers of one account: its journal. A filter that selects nothing
// by its own terms (no such account, ID 0 or [MaxID], Limit 0, neither side, TimestampMin above
// TimestampMax) finds nothing and is no error.
type AccountFilter struct {
	AccountID ID
	// Code, unless 0, keeps only transfers of this code.
	Code uint16
	// TimestampMin and TimestampMax bound the transfers' timestamps, both inclusive; 0 is no bound.
	TimestampMin uint64
	TimestampMax uint64
	// Limit is the greatest number of transfers returned; more than [MaxEvents] means MaxEvents.
	Limit uint32
	// Debits and Credits choose the sides on which the account may stand.
	Debits  bool
	Credits bool
	// Reversed returns the newest first.
	Reversed bool
}
