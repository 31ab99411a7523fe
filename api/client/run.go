package client

import (
	"sync"

	"weir/api/wire"
)

// usdScale is how many decimal places of USD weir counts.
const usdScale = 6

// RunCap bounds what one [Guard] lets through in all its life, such as a batch job's run. It is
// counted in this process. A call passes if what is used and the call's estimate are at most the
// cap, exactly so under concurrency; when it is settled, what it took stands in place of the
// estimate, and may be more. Each retry is a call. 0 means no bound.
type RunCap struct {
	Calls  uint64
	Tokens uint64
	// USDMicros is in millionths of a USD. With it, no call is made whose price is not known: none
	// while weir is away, FailOpen or not.
	USDMicros uint64
}

// run counts what a guard has let through.
type run struct {
	most RunCap

	mu   sync.Mutex
	used RunCap
}

// exceeds reports whether more does not fit under a cap.
func exceeds(most, used, more uint64) bool {
	return most > 0 && (used > most || more > most-used)
}

// take counts a call of so many tokens, if it fits.
func (r *run) take(tokens uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if exceeds(r.most.Calls, r.used.Calls, 1) || exceeds(r.most.Tokens, r.used.Tokens, tokens) ||
		exceeds(r.most.USDMicros, r.used.USDMicros, 1) {
		return false
	}
	r.used.Calls++
	r.used.Tokens += tokens
	return true
}

// takeUSD counts what a call that was taken may cost, if that fits or no cost is bounded.
func (r *run) takeUSD(micros uint64, known bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.most.USDMicros > 0 && !known || exceeds(r.most.USDMicros, r.used.USDMicros, micros) {
		return false
	}
	r.used.USDMicros += micros
	return true
}

// giveBack uncounts a call that was not made.
func (r *run) giveBack(tokens uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used.Calls--
	r.used.Tokens -= tokens
}

// settle counts what a call took in place of what it was estimated at.
func (r *run) settle(c *Call, settlement *wire.SpendSettlement) {
	if settlement.Route == wire.RouteFallback {
		r.giveBack(0)
	}
	micros, known := settlement.Booked.USD.In(usdScale)
	if !known {
		micros = c.micros
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// The differences may wrap; the sums do not.
	r.used.Tokens += settlement.Booked.Tokens.Units - c.tokens
	r.used.USDMicros += micros - c.micros
}
