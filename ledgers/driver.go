package ledgers

import "context"

// MaxEvents is how many events or ids one call of a [Driver] takes, and how many transfers one
// AccountTransfers returns at most: what TigerBeetle's largest message holds.
const MaxEvents = 8189

// Driver is a ledger. All calls may come from many goroutines at once, and Close too.
//
// Slices stay the caller's: a driver reads its argument until the call returns or, where the call
// ended early because of its context, may read it later still, so a caller does not change it after
// that. A returned slice belongs to the caller.
//
// An error says that the ledger did not answer, never that it refused: a refusal is a status. After
// an error of a create call the events may be applied, now or later, or not at all; sending the
// same events again is always safe and tells which. [ErrBusy], [ErrClosed] and [ErrTooManyEvents]
// promise that nothing was written. A context that is done before the call is accepted writes
// nothing; one that ends later ends the wait, not the write: nothing is cancelled, and whoever gave
// up on a CreateTransfers is told so by a [GivenUp], which tells later what became of it. Both
// creations and LookupAccounts return as soon as their context ends, whatever the ledger does.
//
// What a call answered is durable, and every later call sees it.
type Driver interface {
	// CreateAccounts creates accounts in order and returns one result for each, in the same order.
	// An id that exists is answered by `exists` or the first difference, and changes nothing.
	CreateAccounts(ctx context.Context, accounts []Account) ([]AccountResult, error)

	// CreateTransfers applies transfers in order and returns one result for each, in the same
	// order. A chain (events joined by Linked) is applied whole or not at all, and is never split;
	// between events that are not linked, other callers' events may be applied. When its context
	// ends after it was accepted, the error is a [GivenUp].
	CreateTransfers(ctx context.Context, transfers []Transfer) ([]TransferResult, error)

	// LookupAccounts returns the accounts that exist, in the order of ids; an id that does not
	// exist is passed over. Balances are as of the ledger's time of the call: what has expired by
	// then is not pending in them.
	LookupAccounts(ctx context.Context, ids []ID) ([]Account, error)

	// LookupTransfers returns the transfers that exist, in the order of ids; an id that does not
	// exist, or whose creation was refused, is passed over. A transfer is returned as it was
	// created, also after it was posted, voided or expired.
	LookupTransfers(ctx context.Context, ids []ID) ([]Transfer, error)

	// AccountTransfers returns the journal of an account: the transfers that filter selects,
	// ordered by timestamp.
	AccountTransfers(ctx context.Context, filter AccountFilter) ([]Transfer, error)

	// Close waits for accepted calls and releases what the driver holds. Later calls return
	// [ErrClosed], and a second Close does nothing.
	Close() error
}
