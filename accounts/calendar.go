package accounts

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrCalendar is wrapped by the error of a calendar that cannot be.
var ErrCalendar = errors.New("calendar refused")

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
