package wire

// Journal is a page of the entries of a subject on a limit, in the order asked for.
type Journal struct {
	Limit   string  `json:"limit"`
	Subject string  `json:"subject"`
	Entries []Entry `json:"entries"`
	// Cursor asks for the next page, in the same order; empty on the last one. Its form may change.
	Cursor string `json:"cursor,omitempty"`
}

// Entry is one line of a journal.
type Entry struct {
	At       Time   `json:"at"`
	Transfer string `json:"transfer"`
	// Kind is quota, requota, grant, revocation, charge, guard, hold, settlement, overage (what was
	// booked late or above its estimate, also where the quota had all of it) or note.
	Kind string `json:"kind"`
	// Side is credit where the subject got the amount, debit where it gave it.
	Side   string `json:"side"`
	Amount Amount `json:"amount"`
	// Pending says that the amount was reserved, and comes back at ExpiresAt; nil means never.
	Pending   bool  `json:"pending"`
	ExpiresAt *Time `json:"expires_at,omitempty"`
	// Ends is the pending transfer that this entry gave back, if it did.
	Ends string `json:"ends,omitempty"`
	// Overage is what was used besides the amount that the quota did not have.
	Overage *Amount `json:"overage,omitempty"`
}

// The sides of an [Entry].
const (
	Credit = "credit"
	Debit  = "debit"
)
