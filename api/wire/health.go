package wire

// Health is the answer of /healthz and, with Ledger, of /readyz.
type Health struct {
	// Status is "ok" or "ready".
	Status string `json:"status"`
	// Ledger is "up" or "down".
	Ledger string `json:"ledger,omitempty"`
}
