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
	// Spooled says that the ledger did not answer, and the usage is booked when it does.
	Spooled bool `json:"spooled,omitempty"`
	// Dropped says that the ledger did not answer and the spool is full: send it again, later.
	Dropped bool `json:"dropped,omitempty"`
}
