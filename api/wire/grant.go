package wire

// ChangeRequest is a grant or a revocation: an admin's lasting change of one subject's quota.
type ChangeRequest struct {
	Limit   string `json:"limit"`
	Subject string `json:"subject"`
	// Amount in the limit's units, at least 1.
	Amount *Amount `json:"amount"`
	// ID names the change, required, for ever: sent again it is answered the same and made once.
	ID string `json:"id"`
}

// Change is the answer to a grant or a revocation that was made.
type Change struct {
	Transfer string `json:"transfer"`
	// Replayed says that the id was seen before and this is its answer again.
	Replayed bool `json:"replayed"`
	// At is the ledger's time at which the change was made.
	At      Time   `json:"at"`
	Limit   string `json:"limit"`
	Subject string `json:"subject"`
	Amount  Amount `json:"amount"`
	// Quota and Remaining are today's, after the change.
	Quota     Amount `json:"quota"`
	Remaining Amount `json:"remaining"`
}

// QuotaRequest gives one subject a quota of its own, whatever the config says, until it is cleared.
type QuotaRequest struct {
	Limit   string `json:"limit"`
	Subject string `json:"subject"`
	// Quota in the limit's units; 0 shuts the subject out, unless it has grants.
	Quota *Amount `json:"quota"`
}

// SubjectQuota is a subject's quota after it was overridden, or the override was cleared.
type SubjectQuota struct {
	Limit   string `json:"limit"`
	Subject string `json:"subject"`
	// Quota and Remaining are today's, with grants and revocations.
	Quota     Amount `json:"quota"`
	Remaining Amount `json:"remaining"`
	// Overridden says that the quota is the subject's own, not the limit's.
	Overridden bool `json:"overridden"`
	// Replayed says that it was so before, and nothing was changed.
	Replayed bool `json:"replayed"`
}
