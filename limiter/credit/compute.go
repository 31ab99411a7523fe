package credit

import "time"

// Balance is what a subject has, in whole units. The zero value is an unknown balance, which is
// not a balance of 0.
type Balance struct {
	// Known says that the figures were told by a source. Without it they mean nothing.
	Known bool
	// Granted is all that the subject was ever given, and Usage what it has used of it.
	Granted int64
	Usage   int64
	// Remaining is what is left; below 0 after more was used than was there.
	Remaining int64
	// Unlimited says that the subject cannot run out, whatever remains.
	Unlimited bool
}

// Flag says whether a subject's credits are enforced. The zero value is a flag that is missing,
// and what is missing is not enforced.
type Flag uint8

// The values of a [Flag].
const (
	FlagMissing Flag = iota
	FlagOff
	FlagOn
)

// Decision is what the gate says about a subject. The zero value lets pass.
type Decision struct {
	// Blocked is the answer: the balance is known to be exhausted, and that is enforced.
	Blocked bool
	// Exhausted says that the balance is known, not unlimited, and has nothing remaining.
	Exhausted bool
	// Enforced says that the flag is on, or that the limit is always enforced.
	Enforced bool
	// None says that there is no balance: the source said so, less than Options.NoneTTL ago.
	None bool
	// Known says that there is a balance. Without it the figures are 0.
	Known     bool
	Granted   int64
	Usage     int64
	Remaining int64
	Unlimited bool
	// Stale says that the balance is older than Options.StaleAfter; it counts all the same.
	Stale bool
	// Age is how long ago the source was asked for the balance; 0 where there is none.
	Age time.Duration
	// Unread says that nothing is known because the cache failed or did not answer in time.
	Unread bool
}

// Compute is the truth table of the gate. A balance is exhausted only if it is known, not unlimited
// and has nothing remaining; it blocks only if it is exhausted and enforced.
func Compute(balance Balance, enforced bool) Decision {
	if !balance.Known {
		return Decision{Enforced: enforced}
	}
	exhausted := !balance.Unlimited && balance.Remaining <= 0
	return Decision{
		Blocked: enforced && exhausted, Exhausted: exhausted, Enforced: enforced, Known: true,
		Granted: balance.Granted, Usage: balance.Usage, Remaining: balance.Remaining,
		Unlimited: balance.Unlimited,
	}
}

// Entry is what is remembered of a subject, with the times at which it was learned. The zero value
// is a subject of which nothing is known.
type Entry struct {
	// Balance is what the source said. If it is not Known and Checked is set, then the source said
	// that there is no such balance.
	Balance Balance
	// Checked is when the source was asked for that.
	Checked time.Time
	// Flag is what the source last said of enforcement, and FlagChecked when it was asked.
	Flag        Flag
	FlagChecked time.Time
}

// merged returns the entry with a newer answer in it. An answer that does not say whether credits
// are enforced leaves the flag as it is: the flag has a life of its own.
func (e Entry) merged(answer Answer, asked, now time.Time) Entry {
	if asked.Before(e.Checked) && !e.Checked.After(now) {
		return e // the answer is of a fetch that was given up long ago
	}
	e.Balance, e.Checked = answer.Balance, asked
	if !e.Balance.Known {
		e.Balance = Balance{}
	}
	if answer.Flag != FlagMissing {
		e.Flag, e.FlagChecked = answer.Flag, asked
	}
	return e
}

// verdict is a decision and what is to be done after it.
type verdict struct {
	Decision
	// missing says that there is neither a balance nor a recent word that there is none.
	missing bool
	// refresh says that the source should be asked in the background.
	refresh bool
}

// judge decides what an entry means at a time. Ages only ever turn a balance into an unknown one
// or ask for a refresh: no age makes a balance block.
func (o *Options) judge(e Entry, now time.Time) verdict {
	age := now.Sub(e.Checked)
	balance := e.Balance
	if age >= o.BalanceTTL {
		balance = Balance{}
	}
	enforced := o.AlwaysEnforced || e.Flag == FlagOn && now.Sub(e.FlagChecked) < o.FlagTTL
	v := verdict{Decision: Compute(balance, enforced)}
	// An age below 0 is that of an entry from a clock that is ahead, or of a time before ours was
	// set back: how old it is, nobody knows.
	if v.Known {
		v.Age = max(0, age)
		v.Stale = age > o.StaleAfter || age < 0
		v.refresh = v.Stale || v.Blocked
		return v
	}
	v.None = !e.Balance.Known && age >= 0 && age < o.NoneTTL
	v.missing, v.refresh = !v.None, !v.None
	return v
}
