package spend

import (
	"context"
	"time"

	"weir/accounts"
	"weir/ledgers"
)

// Event is one line of a budget's day, as the ledger has it.
type Event struct {
	// At is the ledger's time of the note.
	At   time.Time
	Kind Kind
	// Transfer is the receipt of the call, zero of Closed.
	Transfer ledgers.ID
	Route    Route
	// Reason is the reason of Closed, and why a call failed.
	Reason string
	// Model is the name that the model's number has in the price table, or the number.
	Model string
	// InputTokens, OutputTokens, CachedTokens and USD, in millionths, are what was reserved, or
	// booked; of Correction, what is booked then.
	InputTokens, OutputTokens, CachedTokens, USD uint64
	Estimated, Late                              bool
	// ExpiresAt is, of Authorized, when what is reserved comes back unless it is settled.
	ExpiresAt time.Time
	// Count is, of Closed, how many calls were turned away since the last such event.
	Count uint64
}

// Kind is what an event tells.
type Kind string

// The kinds of events.
const (
	Authorized Kind = "authorize"
	Settled    Kind = "settle"
	Closed     Kind = "closed"
	Correction Kind = "correction"
)

// Day returns when a day begins and ends on the clocks of a budget's time zone, UTC where it has
// none. The day is written as 2026-10-16; empty is today, by the ledger's time.
func (b *Breaker) Day(budget, day string) (from, to time.Time, err error) {
	known, err := b.plan.Load().budget(budget)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	calendar, err := accounts.NewCalendar("day", known.Timezone)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	at := b.limiter.Now()
	if day != "" {
		at, err = time.ParseInLocation(time.DateOnly, day, calendar.Zone())
		if err != nil || at.Year() < 1971 || at.Year() > 2200 {
			return time.Time{}, time.Time{}, badRequest("day %q: want one such as 2026-10-16", day)
		}
		at = at.Add(12 * time.Hour) // every clock shows noon once
	}
	period := calendar.Period(uint64(at.UnixNano()))
	return time.Unix(0, int64(period.Start)).In(calendar.Zone()),
		time.Unix(0, int64(period.End)).In(calendar.Zone()), nil
}

// Events reads the events of a subject on a budget, oldest first, from one time on and before
// another. It reads a bounded page; next is where the following one starts, zero after the last.
func (b *Breaker) Events(ctx context.Context, budget, subject string, from, to time.Time,
) (events []Event, next time.Time, err error) {
	plan := b.plan.Load()
	known, err := plan.budget(budget)
	if err != nil {
		return nil, time.Time{}, err
	}
	// An event belongs to the time of its first note; the second may be a little behind.
	notes, err := b.limiter.Notes(ctx, known.tokenLimit(), subject, from, to.Add(time.Microsecond))
	if err != nil {
		return nil, time.Time{}, err
	}
	read := 0
	for read < len(notes) && instant(notes[read].Timestamp).Before(to) {
		event, size := plan.event(notes[read:])
		if size == 0 { // its second note is on the next page
			break
		}
		if event.Kind != "" {
			events = append(events, event)
		}
		read += size
	}
	if len(notes) < accounts.MaxPage || read == 0 {
		return events, time.Time{}, nil
	}
	next = instant(notes[read-1].Timestamp + 1)
	if !next.Before(to) { // the second note of the last event was behind the end
		next = time.Time{}
	}
	return events, next, nil
}

// event reads the first event of a list of notes, and says how many notes it has: 0 if one is
// missing. The second note of an event that began earlier is none.
func (p *Plan) event(notes []accounts.NoteEntry) (Event, int) {
	first := notes[0]
	kind := first.Lo >> kindShift
	e := Event{At: instant(first.Timestamp), Kind: numbered(kinds, kind), Transfer: first.About}
	if e.Kind == Closed {
		e.Count = first.Lo & countMask
		e.Route, e.Reason = RouteFallback, string(numbered(reasons, uint64(first.Hi&lowMask)))
		e.Model = p.modelName(uint16(first.Hi >> modelShift))
		return e, 1
	}
	if kind >= secondNote {
		return Event{}, 1
	}
	if len(notes) < 2 {
		return Event{}, 0
	}
	n, ok := unpack([]accounts.Note{first.Note, notes[1].Note})
	if !ok {
		return Event{}, 1
	}
	e.Model, e.USD = p.modelName(n.model), n.usd
	e.InputTokens, e.OutputTokens, e.CachedTokens = n.input, n.output, n.cached
	if e.Kind == Authorized {
		e.Route = RouteModel
		e.ExpiresAt = e.At.Add(time.Duration(n.hold) * time.Second)
		return e, 2
	}
	e.Route, e.Reason = n.route, n.failure
	e.Estimated, e.Late = n.estimated, n.late
	return e, 2
}

// instant turns a ledger's timestamp into a time.
func instant(timestamp uint64) time.Time { return time.Unix(0, int64(timestamp)).UTC() }
