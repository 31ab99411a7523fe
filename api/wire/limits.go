package wire

// Limits are the limits in force.
type Limits struct {
	Limits []Limit `json:"limits"`
}

// Limit is a rule: how many units a subject may take within any window, or within a period of the
// calendar, or hold at once, or use up.
type Limit struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Quota Amount `json:"quota"`
	// Asset is what is counted, in decimal text; empty where the units are not money.
	Asset string `json:"asset,omitempty"`
	// WindowSeconds is 0 with Align, and where units do not come back after a time.
	WindowSeconds int64 `json:"window_seconds"`
	// Align is day, week or month, on the clocks of Timezone; empty where a window rolls.
	Align    string `json:"align,omitempty"`
	Timezone string `json:"timezone,omitempty"`
	// CloseAt is the part of a budget past which nothing is taken; nil means all of it.
	CloseAt *float64 `json:"close_at,omitempty"`
	// Shadow says that the limit is only tried out.
	Shadow bool `json:"shadow,omitempty"`
	// OnFailure is open or closed: what is answered while the ledger does not.
	OnFailure string `json:"on_failure"`
	// DeadlineMS is how many milliseconds a request waits for the ledger.
	DeadlineMS int64 `json:"deadline_ms"`
}
