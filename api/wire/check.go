package wire

import "time"

// CheckRequest asks whether a subject may do something, and charges it if so. It has one of three
// forms: Limit, Subject and perhaps Cost; or Limits, decided all or nothing, with a Subject for
// those that name none; or Group and Fields, which stand for several limits, and perhaps a Cost for
// each of them.
type CheckRequest struct {
	Limit   string `json:"limit,omitempty"`
	Subject string `json:"subject,omitempty"`
	// Cost in the limit's units; nil means 1 on request-rate and concurrency and is refused on other
	// kinds. With 0 nothing is charged.
	Cost   *Amount  `json:"cost,omitempty"`
	Limits []Member `json:"limits,omitempty"`
	// Group is the name of a set of limits in the server's config, and Fields are what their subjects
	// are made of: each that one of them wants, and no other.
	Group  string            `json:"group,omitempty"`
	Fields map[string]string `json:"fields,omitempty"`
	// ID names this attempt, at most 255 bytes: sent again it is charged once and answered the same.
	ID string `json:"id,omitempty"`
}

// Member is what a check wants of one limit.
type Member struct {
	Limit string `json:"limit"`
	// Subject is who is charged; empty means the one of the request.
	Subject string  `json:"subject,omitempty"`
	Cost    *Amount `json:"cost,omitempty"`
}

// Decision is the answer to a check, a reservation or a transfer.
type Decision struct {
	Allowed bool `json:"allowed"`
	// Transfer is the receipt, 32 hex digits; empty where nothing was charged.
	Transfer string `json:"transfer,omitempty"`
	// Replayed says that the id was decided before and this is its answer again.
	Replayed bool `json:"replayed"`
	// Degraded says that the ledger did not answer and the limit's policy let the request pass.
	Degraded bool `json:"degraded"`
	// At is the ledger's time of the decision.
	At Time `json:"at"`
	// ExpiresAt is, of a reservation, the ledger's time at which what it holds comes back by itself;
	// nil of a check.
	ExpiresAt *Time `json:"expires_at,omitempty"`
	// Limits has one entry for each account, in the order they were named.
	Limits []State `json:"limits"`
	// RetryAfterMS is, on a denial, how many milliseconds to wait until a new attempt of this cost
	// can succeed; 0 where waiting does not help or the wait is not known.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// NewIDRequired says that this id stays denied: the next attempt needs another one.
	NewIDRequired bool `json:"new_id_required,omitempty"`
	// IDRecorded is false, on a denial, where the id was not recorded and may be sent again; else
	// it is nil.
	IDRecorded *bool `json:"id_recorded,omitempty"`
}

// State is what a subject has on one limit after a decision. Quota, Remaining and ResetSeconds are
// nil where they were not read.
type State struct {
	Limit     string  `json:"limit"`
	Subject   string  `json:"subject"`
	Cost      Amount  `json:"cost"`
	Quota     *Amount `json:"quota,omitempty"`
	Remaining *Amount `json:"remaining,omitempty"`
	// WindowSeconds is how long a taken unit stays taken; with a calendar the length of the present
	// period; 0 where units do not come back after a time.
	WindowSeconds int64 `json:"window_seconds"`
	// ResetSeconds is the time until the next unit returns, 0 if none is out.
	ResetSeconds *int64 `json:"reset_seconds,omitempty"`
	// ResetsAt is when the present period of a calendar ends, with the offset of the limit's time
	// zone; nil for other limits.
	ResetsAt *time.Time `json:"resets_at,omitempty"`
	// Shadow says that the limit is only tried out and has no part in the decision, and WouldDeny
	// that it would have denied what the others let pass.
	Shadow    bool `json:"shadow,omitempty"`
	WouldDeny bool `json:"would_deny,omitempty"`
}
