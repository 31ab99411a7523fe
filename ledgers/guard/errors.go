package guard

import "errors"

var (
	// ErrOpen is returned by every call of a [Guard] while its breaker is open: at once, and
	// nothing was sent to the ledger.
	ErrOpen = errors.New("the ledger is down: nothing was sent")

	// errSlow is why the breaker stays open when the ledger answers a probe, but too late.
	errSlow = errors.New("the ledger answers, but later than the deadline")
)
