package limiter

import (
	"time"

	"weir/accounts"
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
	// ExpiresAt is, of a reservation, the ledger's time at which what it holds comes back by itself;
	// zero of a check.
	ExpiresAt time.Time
	// IDNotRecorded says that the id was not looked at: it may be sent again.
	IDNotRecorded bool
}

// State is what a subject has on one limit after a decision.
type State struct {
	Limit string
	Kind  Kind
	// Asset is what the limit counts, nil where its units are not money.
	Asset   *Asset
	Subject string
	Cost    uint64
	// Window is how long a taken unit stays taken, with a calendar the length of the present period;
	// 0 where units do not come back after a time.
	Window time.Duration
	// Known says whether Quota, Remaining and Reset were read.
	Known bool
	Quota uint64
	// Remaining is what is free; it may take later requests into account.
	Remaining uint64
	// Reset is the time until the next unit returns, in whole seconds rounded up; 0 if none is out, or
	// none comes back by itself.
	Reset time.Duration
	// Short says, on a denial, that this limit has too little left for its cost.
	Short bool
	// Shadow says that the limit is only tried out and took no part in the decision, and WouldDeny
	// that it would have denied what the others let pass.
	Shadow, WouldDeny bool
	// ResetsAt is when the present period of a limit with a calendar ends, on the clocks of its time
	// zone; zero of other limits.
	ResetsAt time.Time
}

// Tightest returns the index in Limits of the limit that denied or, on an admission, of the one
// that is closest to empty, of those that decide; -1 where nothing was read.
func (d *Decision) Tightest() int {
	if d.Denied >= 0 {
		return d.Denied
	}
	tightest := -1
	for i, s := range d.Limits {
		if !s.Known || s.Shadow {
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

// figures are what was read of one account for a decision.
type figures struct {
	accounts.Balance
	known bool
	next  uint64 // ledger time at which the next unit comes back, 0 if none is out
	wait  uint64 // ledger time at which enough is back for the cost, 0 if it is there or never will be
}

// ahead is how far, in nanoseconds, a busy ledger's time may run ahead of the clock on the wall:
// each event has a nanosecond of its own. Who is denied counts from the clock on the wall, and
// would come that much too early.
const ahead = uint64(time.Microsecond)

// need returns how many units have to come back before the charge can pass.
func need(amount uint64, b accounts.Balance) uint64 {
	wanted := max(1, amount) + b.Used + b.Margin + b.Owed // a look wants one unit to be there
	return wanted - min(wanted, b.Quota)
}

// hopeless reports whether a charge can never pass: its cost is above all that may be taken of the
// quota. With a quota of 0 nothing passes, and the subject is told that it is denied; so it is on a
// prepaid balance, which grants raise.
func hopeless(c accounts.Charge, b accounts.Balance) bool {
	return !c.Limit.Posted && b.Quota > 0 && c.Amount > b.Quota-min(b.Margin, b.Quota)
}

// waitless reports whether no time-out brings back what a charge that lacks units needs. A look
// wants a unit to be free beside what has to stay free, which may be all of a small quota.
func waitless(c accounts.Charge, b accounts.Balance) bool {
	return c.Limit.Posted || max(1, c.Amount) > b.Quota-min(b.Margin, b.Quota)
}

// state describes an account for the caller, as of the ledger's time at.
func state(c charge, f figures, at uint64) State {
	s := State{
		Limit: c.limit.Name, Kind: c.limit.Kind, Asset: c.limit.asset, Subject: c.Subject,
		Cost: c.Amount, Window: c.limit.Window, Known: f.known, Shadow: c.limit.Shadow,
	}
	calendar := c.Limit.Calendar
	if calendar != nil {
		period := calendar.Period(at)
		s.Window = time.Duration(period.End - period.Start)
		s.ResetsAt = instant(period.End).In(calendar.Zone())
	}
	if f.known {
		s.Quota, s.Remaining = f.Quota, f.Remaining
	}
	if f.known && !c.Limit.Posted {
		s.Reset = roundUp(f.next, at, time.Second)
	}
	return s
}

// allow makes the decision that lets a request pass. The figures are as of the ledger's time now,
// when the last of the charges was made, and on a replay later than that.
func allow(charges []charge, read []figures, result accounts.Result, now uint64) Decision {
	d := Decision{
		Allowed: true, Transfer: result.Transfer, Denied: -1,
		Replayed: result.Outcome == accounts.Replayed,
		At:       instant(result.Timestamp), Limits: make([]State, len(charges)),
	}
	if result.ExpiresAt > 0 {
		d.ExpiresAt = instant(result.ExpiresAt)
	}
	for i, c := range charges {
		d.Limits[i] = state(c, read[i], now)
	}
	return d
}

// deny makes the decision that turns a request away. The wait is the longest that any member needs
// for its own cost, and the ledger's lag; where one can never pass, there is none. The figures are
// as of the ledger's time now; where units are missing, when they return is counted from the same
// moment as the wait.
func deny(charges []charge, read []figures, result accounts.Result, now uint64, lag time.Duration,
) Decision {
	asOf := now - ahead
	d := Decision{
		Denied: result.Refused, At: instant(result.Timestamp),
		Replayed: result.Burnt, Limits: make([]State, len(charges)),
	}
	never := false
	for i, c := range charges {
		d.Limits[i] = state(c, read[i], now)
		if need(c.Amount, read[i].Balance) > 0 {
			d.Limits[i] = state(c, read[i], asOf)
			d.Limits[i].Short = true
			never = never || waitless(c.Charge, read[i].Balance)
		}
		if read[i].wait > 0 {
			wait := roundUp(read[i].wait, asOf, time.Millisecond)
			d.RetryAfter = max(d.RetryAfter, wait)
		}
	}
	if result.Burnt && need(charges[d.Denied].Amount, read[d.Denied].Balance) == 0 {
		d.Denied = firstLacking(charges, read, d.Denied)
	}
	d.RetryAfter = max(d.RetryAfter+lag, time.Millisecond)
	if never || result.Burnt {
		d.RetryAfter = 0
	}
	return d
}

// firstLacking returns the first member that lacks units today, else the one given. Of an id denied
// before only the denial is kept, so that the ledger may name a member that is full again.
func firstLacking(charges []charge, read []figures, otherwise int) int {
	for i, c := range charges {
		if need(c.Amount, read[i].Balance) > 0 {
			return i
		}
	}
	return otherwise
}

// roundUp returns the time from at to then as whole units, 0 where then is not later.
func roundUp(then, at uint64, unit time.Duration) time.Duration {
	if then <= at {
		return 0
	}
	return (time.Duration(then-at) + unit - 1).Truncate(unit)
}

// instant turns a ledger's timestamp into a time.
func instant(timestamp uint64) time.Time { return time.Unix(0, int64(timestamp)).UTC() }
