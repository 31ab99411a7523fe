package wire

// ReservationRequest asks to hold what a check would charge, until the reservation is settled,
// released or renewed, or what is held comes back by itself. The answer is a [Decision] whose
// Transfer is the receipt.
type ReservationRequest struct {
	CheckRequest
	// HoldSeconds is how long to hold, 1 to 2,592,000 (30 days).
	HoldSeconds int64 `json:"hold_seconds"`
}

// RenewRequest asks to hold the same for so long from now on.
type RenewRequest struct {
	// HoldSeconds is as in a [ReservationRequest].
	HoldSeconds int64 `json:"hold_seconds"`
}

// SettleRequest says what a reservation really took; the rest of what it held is given back. It has
// one of two forms: Cost, for a reservation on one limit; or Limits, which name each account of the
// reservation once. What is held of concurrency limits is given back and never named.
type SettleRequest struct {
	Cost   *Amount  `json:"cost,omitempty"`
	Limits []Member `json:"limits,omitempty"`
}

// Settlement says what became of a reservation that was settled or released.
type Settlement struct {
	// Transfer is the newest receipt.
	Transfer string `json:"transfer"`
	// Replayed says that the same was done before and this is its answer again.
	Replayed bool `json:"replayed"`
	// Late says that what was held had come back by itself before it was settled.
	Late bool `json:"late"`
	// Limits has one entry for each account that units were held of.
	Limits []SettledLimit `json:"limits"`
}

// SettledLimit says what became of what was held of one account.
type SettledLimit struct {
	Limit string `json:"limit"`
	// Subject is empty where a check's receipt was released by a node that has never met the subject.
	Subject string `json:"subject,omitempty"`
	// Held is what was held, and Booked what it turned out to take: 0 after a release.
	Held   Amount `json:"held"`
	Booked Amount `json:"booked"`
	// Overage is the part of Booked that the quota did not have.
	Overage Amount `json:"overage"`
	// Remaining is today's; nil where it was not read.
	Remaining *Amount `json:"remaining,omitempty"`
}
