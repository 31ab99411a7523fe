package wire

import "time"

// Balance is what a subject has on a limit.
type Balance struct {
	Limit   string `json:"limit"`
	Subject string `json:"subject"`
	// Quota is what the subject may hold at once: the limit's, plus grants, less revocations.
	Quota Amount `json:"quota"`
	// Used is what is taken now; after a quota was lowered it may be above it.
	Used      Amount `json:"used"`
	Remaining Amount `json:"remaining"`
	// Overage is what was used beyond the quota.
	Overage Amount `json:"overage"`
	// Overridden says that the subject has a quota of its own, not the limit's.
	Overridden bool `json:"overridden,omitempty"`
	// WindowSeconds is as in a [State].
	WindowSeconds int64 `json:"window_seconds"`
	// ResetSeconds is the time until the next unit returns, 0 if none is out.
	ResetSeconds int64 `json:"reset_seconds"`
	// ResetsAt is as in a [State].
	ResetsAt *time.Time `json:"resets_at,omitempty"`
}
