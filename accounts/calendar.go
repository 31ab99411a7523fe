package accounts

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"weir/ledgers"
)

// Calendar cuts time into periods that begin at midnight on the clocks of a time zone: days, weeks
// from Monday on (ISO 8601) or months. A period has no fixed length: where clocks are set forward
// or back, a day has 23 or 25 hours.
type Calendar struct {
	align string
	zone  *time.Location
	// last is the period asked for last, nearly always the one asked for next.
	last atomic.Pointer[Period]
}

// Period is a part of time: from Start on, up to but without End. Both are the ledger's time in
// nanoseconds since 1970.
type Period struct {
	Start, End uint64
}

// contains reports whether an instant lies in the period.
func (p Period) contains(at uint64) bool { return p.Start <= at && at < p.End }

// NewCalendar returns the calendar of days, weeks or months (align: day, week or month) in an IANA
// time zone such as Europe/Berlin; an empty one is UTC. The error wraps [ErrCalendar].
func NewCalendar(align, timezone string) (*Calendar, error) {
	if align != "day" && align != "week" && align != "month" {
		return nil, fmt.Errorf("%w: align %q: want day, week or month", ErrCalendar, align)
	}
	if timezone == "Local" { // another place on another machine
		return nil, fmt.Errorf("%w: timezone %q: want a name such as Europe/Berlin",
			ErrCalendar, timezone)
	}
	zone, err := time.LoadLocation(timezone)
	if err != nil {
		return nil, fmt.Errorf("%w: timezone %q: %w", ErrCalendar, timezone, err)
	}
	return &Calendar{align: align, zone: zone}, nil
}

// Align returns day, week or month.
func (c *Calendar) Align() string { return c.align }

// Zone returns the time zone.
func (c *Calendar) Zone() *time.Location { return c.zone }

// Period returns the period in which an instant of the ledger's time lies.
func (c *Calendar) Period(at uint64) Period {
	last := c.last.Load()
	if last != nil && last.contains(at) {
		return *last
	}
	begin := c.begin(time.Unix(0, int64(at)).In(c.zone))
	p := Period{Start: midnight(begin), End: midnight(c.next(begin))}
	if at >= p.End { // clocks were set back over midnight: it is the day before once more
		p = Period{Start: p.End, End: midnight(c.next(c.next(begin)))}
	}
	c.last.Store(&p)
	return p
}

// begin returns the first day, as midnight of the clock, of the period that a clock's time is in.
func (c *Calendar) begin(t time.Time) time.Time {
	year, month, day := t.Date()
	switch c.align {
	case "week":
		day -= (int(t.Weekday()) + 6) % 7 // days since Monday
	case "month":
		day = 1
	}
	return dateIn(year, month, day, c.zone)
}

func (c *Calendar) next(begin time.Time) time.Time {
	year, month, day := begin.Date()
	switch c.align {
	case "week":
		day += 7
	case "month":
		month++
	default:
		day++
	}
	return dateIn(year, month, day, c.zone)
}

// dateIn names a day by its noon, which every clock passes once: midnight may be skipped.
func dateIn(year int, month time.Month, day int, zone *time.Location) time.Time {
	return time.Date(year, month, day, 12, 0, 0, 0, zone)
}

// midnight returns the first instant at which the clocks show the given day or a later one. Where
// they are set at midnight, that need not be 0:00.
func midnight(day time.Time) uint64 {
	year, month, date := day.Date()
	reached := func(t time.Time) bool {
		y, m, d := t.Date()
		return y > year || y == year && (m > month || m == month && d >= date)
	}
	const around = 26 * time.Hour // no two offsets from UTC are further apart
	zone, utc := day.Location(), time.Date(year, month, date, 0, 0, 0, 0, time.UTC)
	first := utc.Add(2 * around)
	for t := utc.Add(-around).In(zone); t.Before(utc.Add(around)); {
		_, offset := t.Zone()
		candidates := []time.Time{utc.Add(-time.Duration(offset) * time.Second).In(zone), t}
		for _, candidate := range candidates {
			if reached(candidate) && candidate.Before(first) {
				first = candidate
			}
		}
		_, end := t.ZoneBounds()
		if end.IsZero() {
			break
		}
		t = end
	}
	return uint64(first.UnixNano())
}

// calendarText is a calendar in JSON.
type calendarText struct {
	Align    string `json:"align"`
	Timezone string `json:"timezone"`
}

// MarshalJSON writes the calendar as what [NewCalendar] made it of.
func (c *Calendar) MarshalJSON() ([]byte, error) {
	return json.Marshal(calendarText{Align: c.align, Timezone: c.zone.String()})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Calendar) UnmarshalJSON(data []byte) error {
	var text calendarText
	err := json.Unmarshal(data, &text)
	if err != nil {
		return err
	}
	read, err := NewCalendar(text.Align, text.Timezone)
	if err != nil {
		return err
	}
	c.align, c.zone = read.align, read.zone
	return nil
}

// calendarTime returns the ledger's time for the time-outs of an attempt. Where a calendar decides
// them, it has to be told well.
func (b *Book) calendarTime(ctx context.Context, a Attempt) (uint64, error) {
	if !a.onCalendar() {
		return b.Now(), nil
	}
	return b.Time(ctx)
}

// onCalendar reports whether any charge comes back with a calendar's period.
func (a Attempt) onCalendar() bool {
	for _, c := range a.sorted {
		if c.Limit.Calendar != nil && a.hold == 0 && c.Amount > 0 {
			return true
		}
	}
	return false
}

// keepPeriods returns the result of an accepted chain, once each of its charges comes back when the
// period ends that it was committed in, or less than a second later. A time-out is worked out
// before the ledger says when the charge was made: one that took long, or fell into the next
// period, is replaced. Charged are the charges as they were committed.
func (b *Book) keepPeriods(ctx context.Context, a Attempt, accepted Result,
	charged []ledgers.Transfer,
) (Result, error) {
	for range maxSteps {
		if !a.onCalendar() || inPeriods(a, charged) {
			break
		}
		next, err := b.replace(ctx, a, charged)
		if err != nil {
			return Result{}, err
		}
		if next == nil { // ended meanwhile, by its time-out or by a call
			break
		}
		charged = next // the receipt stays, and leads there
	}
	return accepted, nil
}

// keepReplayed is keepPeriods for a chain that was accepted before: whoever sent it then may have
// been stopped short of it. What was made in an earlier period is left alone.
func (b *Book) keepReplayed(ctx context.Context, a Attempt, replayed Result) (Result, error) {
	if !a.onCalendar() {
		return replayed, nil
	}
	charged, err := b.newestMembers(ctx, a.First)
	if err != nil || len(charged) != a.charging() || !charged[0].Flags.Has(ledgers.Pending) {
		return replayed, err // beside a prepaid balance, which does not lead to what was replaced
	}
	now, err := b.Time(ctx)
	if err != nil {
		return Result{}, err
	}
	for _, c := range a.sorted {
		calendar := c.Limit.Calendar
		if calendar != nil && !calendar.Period(charged[0].Timestamp).contains(now) {
			return replayed, nil
		}
	}
	return b.keepPeriods(ctx, a, replayed, charged)
}

// newestMembers returns the charges of an accepted chain, or of what took its place last; none if
// that was ended.
func (b *Book) newestMembers(ctx context.Context, first ledgers.ID) ([]ledgers.Transfer, error) {
	t, found, err := b.trail(ctx, first)
	if err != nil || !found || t.ended() {
		return nil, err
	}
	return b.members(ctx, *t.newest())
}

// charging returns how many accounts an attempt takes units from; the rest it only looks at.
func (a Attempt) charging() int {
	n := 0
	for _, c := range a.sorted {
		if c.Amount > 0 {
			n++
		}
	}
	return n
}

// inPeriods reports whether the charges, as they were committed, come back with their periods.
func inPeriods(a Attempt, charged []ledgers.Transfer) bool {
	k := 0
	for _, c := range a.sorted {
		if c.Amount == 0 {
			continue
		}
		t := charged[k]
		k++
		if c.Limit.Calendar == nil {
			continue
		}
		end := c.Limit.Calendar.Period(t.Timestamp).End
		if t.ExpiresAt() < end || t.ExpiresAt() >= end+uint64(time.Second) {
			return false
		}
	}
	return true
}

// replace gives charges back and takes them anew, with time-outs as of now, in one step. The first
// of the new ones is found by the end of the first of the old ones that can be given back. It
// returns the charges as they then are, none if they were ended before.
func (b *Book) replace(ctx context.Context, a Attempt, charged []ledgers.Transfer,
) ([]ledgers.Transfer, error) {
	now, err := b.Time(ctx)
	if err != nil {
		return nil, err
	}
	var old, taken []ledgers.Transfer
	next := slices.Clone(charged) // what was booked for good stays as it is
	places := make([]int, 0, len(charged))
	var first ledgers.ID
	k := 0
	for _, c := range a.sorted {
		if c.Amount == 0 {
			continue
		}
		if charged[k].Flags.Has(ledgers.Pending) {
			if len(old) == 0 {
				first = b.namespace.replacement(charged[k].ID)
			}
			taken = append(taken, a.take(c, b.member(first, len(old)), now))
			old = append(old, charged[k])
			places = append(places, k)
		}
		k++
	}
	taken[0].UserData128 = a.fingerprint
	batch := append(b.voids(old, b.namespace.fingerprint("replace", nil, first.String())), taken...)
	link(batch)
	made, err := b.createTransfers(ctx, batch)
	if err != nil {
		return nil, err
	}
	forget(a.sorted)
	failed := failedAt(made)
	switch {
	case failed < 0:
		for i, place := range places {
			next[place] = taken[i]
			next[place].Timestamp = made[len(old)+i].Timestamp
		}
		return next, nil
	case made[failed].Status == ledgers.TransferPendingTransferExpired:
		return nil, nil // the answer took longer than the time-out: what it took is back
	case made[failed].Status.Exists(): // the same request, sent again, was quicker
		next, err = b.newestMembers(ctx, charged[0].ID)
		if len(next) != len(charged) {
			next = nil
		}
		return next, err
	default:
		return nil, unexpected(made[failed].Status, batch[failed])
	}
}
