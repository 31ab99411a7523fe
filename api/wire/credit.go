package wire

// TrackRequest says what a subject has used already.
type TrackRequest struct {
	Limit   string `json:"limit"`
	Subject string `json:"subject"`
	// Amount in the limit's units, above 0.
	Amount *Amount `json:"amount"`
	// ID names the usage, required, at most 255 bytes: sent again it is booked once.
	ID string `json:"id"`
}

// Tracked is the answer to usage that was reported. The same usage sent again has the same Transfer
// and is booked once.
type Tracked struct {
	Transfer string `json:"transfer"`
	// At is the ledger's time of the answer, as far as it was known.
	At      Time   `json:"at"`
	Limit   string `json:"limit"`
	Subject string `json:"subject"`
	Amount  Amount `json:"amount"`
	// Booked is the part of Amount that the quota had, and Overage the part that it did not have. Both
	// are 0 where the usage was spooled or dropped.
	Booked  Amount `json:"booked"`
	Overage Amount `json:"overage"`
	// Spooled says that the ledger did not answer, and the usage is booked when it does. Where weir
	// itself did not, the client says so: then there is neither Transfer nor At.
	Spooled bool `json:"spooled,omitempty"`
	// Dropped says that the ledger did not answer and the spool is full, or weir did not and the
	// client's queue is: send it again, later.
	Dropped bool `json:"dropped,omitempty"`
}

// ModeMark is the mode of a gate that answers 200 also where a subject is blocked, for callers that
// only mark what they let pass.
const ModeMark = "mark"

// Gate is what the credit gate of a limit says of a subject. A subject is blocked only if its
// balance is known, not unlimited and used up, and that is enforced.
type Gate struct {
	Limit   string `json:"limit"`
	Subject string `json:"subject"`
	// Blocked is the answer. Without mode=mark it comes as a [Problem] with [CodeCreditsExhausted].
	Blocked bool `json:"blocked"`
	// Exhausted says that the balance is known, not unlimited, and has nothing remaining.
	Exhausted bool `json:"exhausted"`
	Enforced  bool `json:"enforced"`
	// None says that there is no balance: the gate's source said so, lately.
	None bool `json:"none,omitempty"`
	// Known says that there is a balance. Without it the figures are 0 and mean nothing.
	Known     bool `json:"known"`
	Unlimited bool `json:"unlimited"`
	// Granted, Usage and Remaining are whole units of what the source counts, an asset's smallest
	// units where it is weir's ledger. Remaining is below 0 after more was used than was there. What
	// is beyond [MaxAmount], either way, is written as that.
	Granted   int64 `json:"granted"`
	Usage     int64 `json:"usage"`
	Remaining int64 `json:"remaining"`
	// Stale says that the balance is due for a refresh; it counts all the same. AgeMS is how many
	// milliseconds ago its source was asked, 0 where there is no balance.
	Stale bool  `json:"stale"`
	AgeMS int64 `json:"age_ms"`
}
