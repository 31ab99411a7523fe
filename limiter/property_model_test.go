package limiter_test

import (
	"slices"
	"time"

	"weir/limiter"
)

// This file is the naive twin that TestMixAgainstModel compares the service with: plain lists of
// what was taken and when it comes back, added up anew for every question. It shares no code with
// the service.

// twinLimit is a rule.
type twinLimit struct {
	name     string
	kind     limiter.Kind
	window   time.Duration // 0 where nothing comes back by itself, or the calendar says
	calendar bool          // days in Berlin
	closeAt  uint64        // in millionths, 0 for all
	asset    bool          // counts cents
}

// back returns when units come back that were taken at a time, zero for never.
func (l *twinLimit) back(at time.Time) time.Time {
	switch {
	case l.calendar:
		return at.Add(inSeconds(berlinMidnight(at).Sub(at)))
	case l.window == 0:
		return time.Time{}
	default:
		return at.Add(l.window)
	}
}

// booked returns when units come back that are booked at a time for a reservation of an earlier
// one: the ledger's time-outs are whole seconds, at least one.
func (l *twinLimit) booked(at, held time.Time) time.Time {
	var end time.Time
	switch {
	case l.calendar:
		end = berlinMidnight(held)
	case l.window == 0:
		return time.Time{}
	default:
		end = held.Add(l.window)
	}
	return at.Add(inSeconds(end.Sub(at)))
}

func (l *twinLimit) slots() bool   { return l.kind == limiter.Concurrency }
func (l *twinLimit) prepaid() bool { return l.kind == limiter.Credits }

func inSeconds(d time.Duration) time.Duration {
	return max(time.Second, (d + time.Second - 1).Truncate(time.Second))
}

// berlinMidnight returns the first midnight in Berlin after a time in 2026: at 22:00 UTC from March
// 29 to October 24, at 23:00 UTC else.
func berlinMidnight(after time.Time) time.Time {
	day := time.Date(2026, after.UTC().Month(), after.UTC().Day(), 0, 0, 0, 0, time.UTC)
	for ; ; day = day.AddDate(0, 0, 1) {
		hour := 23 * time.Hour
		if !day.Before(time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)) &&
			!day.After(time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC)) {
			hour = 22 * time.Hour
		}
		if midnight := day.Add(hour); midnight.After(after) {
			return midnight
		}
	}
}

// twinEntry is what was taken.
type twinEntry struct {
	amount uint64
	end    time.Time // when it comes back, zero for never
}

func (e *twinEntry) live(now time.Time) bool { return e.end.IsZero() || e.end.After(now) }

// twinAccount is what one subject has on one limit.
type twinAccount struct {
	limit   *twinLimit
	subject string

	seen     bool
	target   uint64 // of the newest quota step
	revision uint32 // of the config that made it
	override bool
	granted  int64
	taken    []*twinEntry
	overage  []*twinEntry
	changes  map[string]int64 // grants, and revocations below 0
	// owed is the most that a lowered quota may still have to take from the account. Until then a
	// settlement above its hold may be paid from it.
	owed int64
	// asked is, for each node, when the ledger refused the account last.
	asked [2]time.Time
}

// goal returns the quota without grants as a node sees it.
func (a *twinAccount) goal(n *mixNode) uint64 {
	quota := n.quotas[a.limit.name]
	switch {
	case !a.seen:
		return quota
	case a.override, n.revision < a.revision, n.shared && n.revision == a.revision:
		return a.target
	default:
		return quota
	}
}

// meet gives the account a quota, or the one that the node's config has. It reports whether that
// changed it.
func (a *twinAccount) meet(n *mixNode) bool {
	if !a.seen {
		a.seen, a.target, a.revision = true, a.goal(n), n.revision
		return true
	}
	if goal := a.goal(n); goal != a.target {
		a.step(goal, n.revision, false)
		return true
	}
	return false
}

func (a *twinAccount) step(target uint64, revision uint32, override bool) {
	a.owed = max(0, a.owed+int64(a.target)-int64(target))
	a.target, a.revision, a.override = target, revision, override
}

func (a *twinAccount) quota(n *mixNode) uint64 {
	return uint64(max(0, int64(a.goal(n))+a.granted))
}

// margin is what has to stay free when something is taken.
func (a *twinAccount) margin(n *mixNode) uint64 {
	if a.limit.closeAt == 0 {
		return 0
	}
	return a.goal(n) - a.goal(n)*a.limit.closeAt/1_000_000
}

func sum(entries []*twinEntry, now time.Time) uint64 {
	var total uint64
	for _, e := range entries {
		if e.live(now) {
			total += e.amount
		}
	}
	return total
}

func (a *twinAccount) used(now time.Time) uint64 { return sum(a.taken, now) }

func (a *twinAccount) remaining(n *mixNode, now time.Time) uint64 {
	return a.quota(n) - min(a.quota(n), a.used(now))
}

func (a *twinAccount) lacks(n *mixNode, cost uint64, now time.Time) bool {
	return a.used(now)+max(1, cost)+a.margin(n) > a.quota(n)
}

// hopeless reports whether a cost is above all that may ever be taken.
func (a *twinAccount) hopeless(n *mixNode, cost uint64) bool {
	return !a.limit.prepaid() && a.quota(n) > 0 && cost+a.margin(n) > a.quota(n) && cost > 0
}

// wait returns how long until a cost can be taken, by trying every end; 0 for never.
func (a *twinAccount) wait(n *mixNode, cost uint64, now time.Time) time.Duration {
	best := time.Duration(0)
	for _, e := range a.taken {
		if e.end.IsZero() || !e.end.After(now) || a.limit.prepaid() || a.lacks(n, cost, e.end) {
			continue
		}
		if apart := e.end.Sub(now); best == 0 || apart < best {
			best = apart
		}
	}
	return best
}

// next returns how long until a unit comes back, 0 if none does.
func (a *twinAccount) next(now time.Time) time.Duration {
	best := time.Duration(0)
	for _, e := range a.taken {
		if e.end.After(now) && e.amount > 0 && (best == 0 || e.end.Sub(now) < best) {
			best = e.end.Sub(now)
		}
	}
	return best
}

func (a *twinAccount) take(amount uint64, end time.Time) *twinEntry {
	e := &twinEntry{amount: amount, end: end}
	a.taken = append(a.taken, e)
	a.owed = 0
	return e
}

func (a *twinAccount) drop(e *twinEntry) {
	a.taken = slices.DeleteFunc(a.taken, func(other *twinEntry) bool { return other == e })
}

// pays returns the least and the most that the account has free.
func (a *twinAccount) pays(now time.Time) (least, most uint64) {
	free := int64(a.target) + a.granted - int64(a.used(now))
	return uint64(max(0, free)), uint64(max(0, free+a.owed))
}

// twinPart is one account's part of a request, in the order that they were named.
type twinPart struct {
	account *twinAccount
	cost    uint64
	entry   *twinEntry // nil where nothing was taken
}

// twinRequest is what became of an admitted check or reservation, or of the id of one that was
// denied.
type twinRequest struct {
	denied bool
	parts  []twinPart

	receipts []string // the newest last
	at       time.Time
	made     time.Time
	expires  time.Time     // of a reservation
	renewals []mixRenewal  // of each receipt but the newest
	ended    string        // settle or release
	actual   []uint64      // of each part
	overage  []uint64      // of each part
	late     bool          // it was settled late
	hold     time.Duration // 0 is a check
}

// mixRenewal is the call that renewed a receipt.
type mixRenewal struct{ hold time.Duration }

// same reports whether a request is the same as the one remembered.
func (r *twinRequest) same(parts []twinPart, hold time.Duration) bool {
	if r.hold != hold {
		return false
	}
	for _, p := range parts {
		if !slices.ContainsFunc(r.parts, func(q twinPart) bool {
			return p.account == q.account && p.cost == q.cost
		}) {
			return false
		}
	}
	return true
}

// out returns how many of the parts of an admitted request are still out, and how many there are.
func (r *twinRequest) out(now time.Time) (live, all int) {
	for _, p := range r.parts {
		if p.entry == nil {
			continue
		}
		all++
		if p.entry.live(now) {
			live++
		}
	}
	return live, all
}
