package wire

// Limits are the limits in force.
type Limits struct {
	Limits []Limit `json:"limits"`
}

// Limit is a rule: how many units a subject may take within any window.
type Limit struct {
	Name          string `json:"name"`
	Kind          string `json:"kind"`
	Quota         Amount `json:"quota"`
	WindowSeconds int64  `json:"window_seconds"`
}
