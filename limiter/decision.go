package limiter

import (
	"time"

	"weir/ledgers"
)

// Decision is the answer to a request that could be decided.
type Decision struct {
	Allowed bool
	// Transfer is the receipt: the first transfer of the charge. Zero where nothing was charged.
	Transfer ledgers.ID
	// Replayed says that the same id was decided before and this is its answer again.
	Replayed bool
	// Degraded says that the ledger did not answer and the limit's policy let the request pass.
	Degraded bool
	// At is the ledger's time of the decision; for a replay of an admission, of the first one.
	At time.Time
	// Limits has one entry for each account, in the order they were named.
	Limits []State
	// Denied is the index in Limits of the limit that said no, -1 where none did.
	Denied int
	// RetryAfter is, on a denial, how long to wait until a new attempt of this cost can succeed,
	// in whole milliseconds rounded up; 0 where waiting does not help, or is not known.
	RetryAfter time.Duration
	// NewIDRequired says that this id stays denied: the next attempt needs another one.
	NewIDRequired bool
	// IDNotRecorded says that the id was not looked at: it may be sent again.
	IDNotRecorded bool
}

// State is what a subject has on one limit after a decision.
type State struct {
	Limit   string
	Kind    Kind
	Subject string
	Cost    uint64
	Window  time.Duration
	// Known says whether Quota, Remaining and Reset were read.
	Known bool
	Quota uint64
	// Remaining is what is free; it may take later requests into account.
	Remaining uint64
	// Reset is the time until the next unit returns, in whole seconds rounded up; 0 if none is out.
	Reset time.Duration
}

// Tightest returns the index in Limits of the limit that denied or, on an admission, of the one
// that is closest to empty; -1 where nothing was read.
func (d *Decision) Tightest() int {
	if d.Denied >= 0 {
		return d.Denied
	}
	tightest := -1
	for i, s := range d.Limits {
		if !s.Known {
			continue
		}
		if tightest < 0 || emptier(s, d.Limits[tightest]) {
			tightest = i
		}
	}
	return tightest
}

// emptier compares what part of the quota remains: a/qa < b/qb, without rounding.
func emptier(a, b State) bool {
	left := ledgers.AmountOf(a.Remaining).Mul64(max(1, b.Quota))
	right := ledgers.AmountOf(b.Remaining).Mul64(max(1, a.Quota))
	return left.Cmp(right) < 0
}
