package wire

// TransferRequest moves money from one subject to another within a transfer-amount limit: the money
// is moved and the limits are charged, or neither.
type TransferRequest struct {
	// Limit is the transfer-amount limit that From is held to. The money is its asset's.
	Limit string `json:"limit"`
	From  string `json:"from"`
	To    string `json:"to"`
	// Amount is the asset's decimal text, such as 999.99, above 0.
	Amount string `json:"amount"`
	// ID names the transfer, required, for ever: sent again it is answered the same and made once.
	ID string `json:"id"`
	// Limits are further limits that are charged in the same step. A Subject of none is From. On a
	// transfer-amount limit, which must be of the same asset, the cost is the amount; on others it
	// is as for a check.
	Limits []Member `json:"limits,omitempty"`
}

// MovementRequest is a deposit or a withdrawal: money that an admin gives to a subject or takes
// from it. The first deposit opens the subject's account.
type MovementRequest struct {
	Asset   string `json:"asset"`
	Subject string `json:"subject"`
	// Amount is the asset's decimal text, above 0.
	Amount string `json:"amount"`
	// ID names the movement, required, for ever: sent again it is answered the same and made once.
	ID string `json:"id"`
}

// Movement is the answer to a deposit or a withdrawal that was made.
type Movement struct {
	Transfer string `json:"transfer"`
	// Replayed says that the id was seen before and this is its answer again.
	Replayed bool `json:"replayed"`
	// At is the ledger's time at which the movement was made.
	At      Time   `json:"at"`
	Asset   string `json:"asset"`
	Subject string `json:"subject"`
	Amount  string `json:"amount"`
	// Balance is today's, after the movement.
	Balance string `json:"balance"`
}

// Account is what a subject has of an asset.
type Account struct {
	Asset   string `json:"asset"`
	Subject string `json:"subject"`
	// Balance is the asset's decimal text, with all digits of its scale. It may be far above
	// [MaxAmount].
	Balance string `json:"balance"`
}
