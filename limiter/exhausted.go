package limiter

import (
	"context"

	"weir/accounts"
)

// exhausted returns the index of the first charge that is remembered to be refused, -1 if none is.
func (l *Limiter) exhausted(ctx context.Context, charges []charge) (int, error) {
	now, err := l.book.Time(ctx)
	if err != nil {
		return -1, err
	}
	for i, c := range charges {
		_, denied := l.memory.denies(c.Account(), c.Amount, now)
		if denied {
			return i, nil
		}
	}
	return -1, nil
}

// readings prepares the memory for the reading of the charges' balances. What is read under limits
// that have been replaced meanwhile is not to be remembered: its number is 0.
func (l *Limiter) readings(charges []charge) []uint64 {
	numbers := make([]uint64, len(charges))
	for i, c := range charges {
		numbers[i] = l.memory.read(c.Account())
	}
	limits := l.limits.Load() // after the numbers: whoever replaces it later drops them
	for i, c := range charges {
		limit, _, err := limits.find(c.limit.Name)
		if err != nil || limit != c.limit {
			numbers[i] = 0
		}
	}
	return numbers
}

// remembered answers a request without writing to the ledger, because charge at is remembered to be
// refused. A request with an id may ask the ledger all the same, up to a cap; past it, only whether
// the id was admitted before is read.
func (l *Limiter) remembered(
	ctx context.Context, id string, attempt accounts.Attempt, charges []charge, at int,
) (decision Decision, decided bool, err error) {
	now := l.book.Now()
	if id != "" {
		if l.memory.bypass(charges[at].Account(), now) {
			return Decision{}, false, nil
		}
		result, found, err := l.book.Recall(ctx, attempt)
		switch {
		case err != nil:
			return Decision{}, false, failure(err)
		case found && result.Outcome == accounts.Replayed:
			return l.allowed(ctx, charges, result), true, nil
		case found:
			return Decision{}, false, spent(result.Outcome, id)
		}
	}
	read, err := l.recollect(ctx, charges, at, now)
	if err != nil {
		return Decision{}, false, failure(err)
	}
	e := exceedsQuota(charges, read, false)
	if e != nil {
		return Decision{}, false, e
	}
	result := accounts.Result{Outcome: accounts.Refused, Timestamp: now, Refused: at}
	d := deny(charges, read, result, l.options.Lag)
	d.IDNotRecorded = id != ""
	l.metrics.remembered.Inc()
	return d, true, nil
}

// recollect gives the figures of a denial from memory: of one account without asking the ledger, of
// several by reading.
func (l *Limiter) recollect(ctx context.Context, charges []charge, at int, now uint64,
) ([]figures, error) {
	if len(charges) > 1 {
		return l.read(ctx, charges, true)
	}
	balance, still := l.memory.denies(charges[at].Account(), charges[at].Amount, now)
	if !still {
		return l.read(ctx, charges, true)
	}
	f, err := l.figure(ctx, charges[at].Charge, balance, true)
	if err != nil {
		return nil, err
	}
	return []figures{f}, nil
}
