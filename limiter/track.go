package limiter

import (
	"context"
	"errors"
	"time"

	"weir/accounts"
	"weir/ledgers"
)

// Usage is what a subject has used already.
type Usage struct {
	Limit   string
	Subject string
	// Amount in the limit's units, 1 to [MaxCost].
	Amount uint64
	// ID names the usage, required: sent again it is booked once.
	ID string
}

// Tracked is the answer to a [Usage].
type Tracked struct {
	Transfer ledgers.ID
	// At is the ledger's time of the answer, as far as it was known.
	At time.Time
	// Booked units are taken from the quota. Overage units were used although the quota did not have
	// them. Both are 0 where the ledger did not answer.
	Booked  uint64
	Overage uint64
	// Spooled says that the ledger did not answer, and the usage is booked when it does.
	Spooled bool
	// Dropped says that the ledger did not answer, and the spool had no place.
	Dropped bool
}

// Track books what was used, also what the quota does not have: that is overage. The same usage
// sent again is booked once, and says again what was booked. It never fails because the ledger does
// not answer: the usage is then spooled, whatever the limit's policy, and booked once, later.
// Errors: CodeIDConflict where the id named another amount.
func (l *Limiter) Track(ctx context.Context, u Usage) (Tracked, error) {
	err := checkID(u.ID, true)
	if err != nil {
		return Tracked{}, err
	}
	if u.Amount == 0 || u.Amount > MaxCost {
		return Tracked{}, badRequest("amount: want 1 to %d", uint64(MaxCost))
	}
	c, err := l.account(u.Limit, u.Subject, u.Amount)
	if err != nil {
		return Tracked{}, err
	}
	if c.limit.Spend {
		return Tracked{}, spendOnly(c.limit)
	}
	if !traits[c.limit.Kind].checks {
		return Tracked{}, badRequest("limit %q is of kind %s: usage of it is not tracked",
			u.Limit, c.limit.Kind)
	}
	attempt, err := l.book.NewTrack(u.ID, c.Charge)
	if err != nil {
		return Tracked{}, failure(err)
	}
	ctx, cancel := detached(ctx, c.limit.Deadline)
	defer cancel()
	tracked, err := l.track(ctx, u.ID, attempt)
	if err != nil && !silent(err) {
		return Tracked{}, err
	}
	if err != nil {
		tracked = Tracked{Transfer: attempt.First, At: instant(l.book.Now())}
		tracked.Spooled = l.keep(u.ID, attempt, l.book.Now())
		tracked.Dropped = !tracked.Spooled
	}
	return tracked, nil
}

func (l *Limiter) track(ctx context.Context, id string, attempt accounts.Attempt,
) (Tracked, error) {
	result, found, err := l.book.Recall(ctx, attempt)
	if err != nil {
		return Tracked{}, failure(err)
	}
	if found && result.Outcome == accounts.Conflict {
		return Tracked{}, spent(result.Outcome, id)
	}
	now, err := l.book.Time(ctx)
	if err != nil {
		return Tracked{}, failure(err)
	}
	bookings, err := l.book.BookLate(ctx, attempt, now)
	if err != nil {
		return Tracked{}, failure(err)
	}
	l.forget(attempt)
	if bookings[0].Conflict {
		return Tracked{}, spent(accounts.Conflict, id)
	}
	return Tracked{
		Transfer: attempt.First, At: instant(now),
		Booked: bookings[0].Charged, Overage: bookings[0].Overage,
	}, nil
}

// silent reports whether an error says that the ledger did not answer.
func silent(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Code == CodeLedgerUnavailable || e.Code == CodeBusy)
}
