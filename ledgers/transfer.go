package ledgers

import "time"

// TransferFlags say what a transfer does beyond moving its amount.
type TransferFlags uint16

// The flags of a transfer. The names in the comments are TigerBeetle's.
const (
	// Linked (linked) joins this event with the next: all of the chain is applied, or none.
	Linked TransferFlags = 1 << iota
	// Pending (pending) reserves the amount until it is posted, voided or timed out.
	Pending
	// PostPending (post_pending_transfer) posts the transfer named by PendingID.
	PostPending
	// VoidPending (void_pending_transfer) ends the transfer named by PendingID, moving nothing.
	VoidPending
	// BalancingDebit (balancing_debit) cuts the amount to what the debit account has left.
	BalancingDebit
	// BalancingCredit (balancing_credit) cuts the amount to what the credit account has left.
	BalancingCredit
	// ClosingDebit (closing_debit) closes the debit account; only on a pending transfer.
	ClosingDebit
	// ClosingCredit (closing_credit) closes the credit account; only on a pending transfer.
	ClosingCredit
	// Imported (imported) carries a timestamp from elsewhere; the embedded engine refuses it.
	Imported
)

// Transfer moves Amount from the debit account to the credit account. Once created it is never
// changed. Timestamp must be zero in a transfer to be created.
type Transfer struct {
	ID              ID
	DebitAccountID  ID
	CreditAccountID ID
	Amount          Amount
	// PendingID names the pending transfer that this one posts or voids.
	PendingID ID
	// UserData128, UserData64 and UserData32 are kept and returned as they were given (a post or a
	// void that leaves one zero takes the pending transfer's).
	UserData128 Amount
	UserData64  uint64
	UserData32  uint32
	// Timeout is the life of a pending transfer in seconds from its timestamp; 0 never expires.
	Timeout uint32
	Ledger  uint32
	Code    uint16
	Flags   TransferFlags
	// Timestamp is the ledger's time of the creation in nanoseconds since 1970, unique over all
	// accounts and transfers of the ledger.
	Timestamp uint64
}

// Has reports whether all of flags are set.
func (f TransferFlags) Has(flags TransferFlags) bool { return f&flags == flags }

// ExpiresAt returns the timestamp from which a pending transfer counts as expired, or 0 if it never
// does.
func (t *Transfer) ExpiresAt() uint64 {
	if t.Timeout == 0 {
		return 0
	}
	return t.Timestamp + uint64(t.Timeout)*uint64(time.Second)
}
