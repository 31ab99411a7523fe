package limiter

import (
	"time"

	"weir/accounts"
)

// figures are what was read of one account for a decision.
type figures struct {
	accounts.Balance
	known bool
	next  uint64 // ledger time at which the next unit comes back, 0 if none is out
	wait  uint64 // ledger time at which enough is back for the cost, 0 if it is there or never will be
}

// ahead is how far, in nanoseconds, a busy ledger's time may run ahead of the clock on the wall:
// each event has a nanosecond of its own. A wait counted from it could be that much short.
const ahead = uint64(time.Microsecond)

// need returns how many units have to come back before the charge can pass.
func need(amount uint64, b accounts.Balance) uint64 {
	wanted := max(1, amount) + b.Used // a look wants one unit to be there
	return wanted - min(wanted, b.Quota)
}

// hopeless reports whether a charge can never pass: its cost is above the whole quota. With a quota
// of 0 nothing passes, and the subject is told that it is denied.
func hopeless(amount uint64, b accounts.Balance) bool {
	return b.Quota > 0 && amount > b.Quota
}

// state describes an account for the caller, as of the ledger's time at.
func state(c charge, f figures, at uint64) State {
	s := State{
		Limit: c.limit.Name, Kind: c.limit.Kind, Subject: c.Subject, Cost: c.Amount,
		Window: c.limit.Window, Known: f.known,
	}
	if f.known {
		s.Quota, s.Remaining = f.Quota, f.Remaining
		s.Reset = roundUp(f.next, at, time.Second)
	}
	return s
}

// allow makes the decision that lets a request pass. The figures are as of the ledger's time now,
// which on a replay is later than the decision.
func allow(charges []charge, read []figures, result accounts.Result, now uint64) Decision {
	d := Decision{
		Allowed: true, Transfer: result.Transfer, Denied: -1,
		Replayed: result.Outcome == accounts.Replayed,
		At:       instant(result.Timestamp), Limits: make([]State, len(charges)),
	}
	for i, c := range charges {
		d.Limits[i] = state(c, read[i], now)
	}
	return d
}

// deny makes the decision that turns a request away. The wait is the longest that any member needs
// for its own cost, and the ledger's lag; where one can never pass, there is none.
func deny(charges []charge, read []figures, result accounts.Result, lag time.Duration) Decision {
	d := Decision{
		Denied: result.Refused, At: instant(result.Timestamp),
		Replayed: result.Burnt, Limits: make([]State, len(charges)),
	}
	never := false
	for i, c := range charges {
		d.Limits[i] = state(c, read[i], result.Timestamp)
		never = never || read[i].Quota == 0
		if read[i].wait > 0 {
			wait := roundUp(read[i].wait+ahead, result.Timestamp, time.Millisecond)
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
