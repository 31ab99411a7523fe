package limiter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"weir/accounts"
	"weir/ledgers"
)

// spooled is one line of a spool: a request that was let through, with all that is needed to book
// it by a process that may have another config.
type spooled struct {
	// At is the ledger's time of the decision in nanoseconds, as far as it was known.
	At uint64 `json:"at"`
	// First is the attempt's first transfer, as 32 hex digits.
	First string `json:"first"`
	// Fingerprint of the request as it was sent, as 32 hex digits.
	Fingerprint string          `json:"fingerprint"`
	Charges     []spooledCharge `json:"charges"`
}

// spooledCharge is a charge and what its limit was at that time.
type spooledCharge struct {
	Limit    string             `json:"limit"`
	Subject  string             `json:"subject"`
	Amount   uint64             `json:"amount"`
	Window   uint32             `json:"window_seconds"`
	Calendar *accounts.Calendar `json:"calendar,omitempty"`
	Posted   bool               `json:"posted,omitempty"`
	Ledger   uint32             `json:"ledger"`
	Quota    uint64             `json:"quota"`
	Revision uint32             `json:"revision"`
}

func newSpooled(attempt accounts.Attempt, at uint64) spooled {
	entry := spooled{
		At: at, First: attempt.First.String(),
		Fingerprint: ledgers.ID(attempt.Fingerprint()).String(),
	}
	for _, c := range attempt.Charges() {
		entry.Charges = append(entry.Charges, spooledCharge{
			Limit: c.Limit.Name, Subject: c.Subject, Amount: c.Amount,
			Window: c.Limit.WindowSeconds, Calendar: c.Limit.Calendar, Posted: c.Limit.Posted,
			Ledger: c.Limit.Ledger, Quota: c.Limit.Quota, Revision: c.Limit.Revision,
		})
	}
	return entry
}

// resume reads a line of a spool back. Windows are those of the decision; the quota is today's
// where there is still such a limit, so that booking does not undo a change of the config. A limit
// that closes early does not here: what was used is booked as far as there is any quota.
func (l *Limiter) resume(line []byte) (attempt accounts.Attempt, at uint64, err error) {
	var entry spooled
	err = json.Unmarshal(line, &entry)
	if err != nil {
		return accounts.Attempt{}, 0, err
	}
	first, err := ledgers.ParseID(entry.First)
	if err != nil {
		return accounts.Attempt{}, 0, err
	}
	fingerprint, err := ledgers.ParseID(entry.Fingerprint)
	if err != nil {
		return accounts.Attempt{}, 0, err
	}
	if first.IsZero() || len(entry.Charges) == 0 || len(entry.Charges) > MaxMembers {
		return accounts.Attempt{}, 0, fmt.Errorf("a spooled request of %d charges under the id %s",
			len(entry.Charges), first)
	}
	limits := l.limits.Load()
	charges := make([]accounts.Charge, len(entry.Charges))
	for i, c := range entry.Charges {
		if !validName(c.Limit) || c.Ledger == 0 || c.Window == 0 && !c.Posted ||
			c.Amount > MaxCost || c.Quota > MaxCost || CheckSubject(c.Subject) != nil {
			return accounts.Attempt{}, 0, fmt.Errorf("charge %d cannot be", i)
		}
		limit := accounts.Limit{
			Name: c.Limit, Ledger: c.Ledger, Quota: c.Quota, Revision: c.Revision,
			WindowSeconds: c.Window, Calendar: c.Calendar, Posted: c.Posted,
		}
		_, current, err := limits.find(c.Limit)
		if err == nil && current.Ledger == c.Ledger {
			limit.Quota, limit.Revision = current.Quota, current.Revision
		}
		charges[i] = l.book.NewCharge(limit, c.Subject, c.Amount)
	}
	return l.book.Resume(first, ledgers.Amount(fingerprint), charges), entry.At, nil
}

// bookLines books some lines of a spool at the same time. It fails if one was not answered for; the
// others are then counted when they are booked again.
func (l *Limiter) bookLines(ctx context.Context, lines [][]byte) error {
	done := make([]late, len(lines))
	var group sync.WaitGroup
	for i, line := range lines {
		group.Go(func() { done[i] = l.bookLine(ctx, line) })
	}
	group.Wait()
	for _, d := range done {
		if d.err != nil && !d.never {
			return d.err
		}
	}
	for i, d := range done {
		if d.never {
			l.setAside(lines[i], d)
			continue
		}
		l.forget(d.attempt)
		for k, c := range d.attempt.Charges() {
			b := d.bookings[k]
			l.metrics.units.WithLabelValues(c.Limit.Name, "booked").Add(float64(b.Charged))
			l.metrics.units.WithLabelValues(c.Limit.Name, "overage").Add(float64(b.Overage))
			l.metrics.units.WithLabelValues(c.Limit.Name, "dropped").Add(float64(b.Dropped))
		}
	}
	return nil
}

// late is what became of one line of a spool.
type late struct {
	attempt  accounts.Attempt
	bookings []accounts.Booking
	err      error
	never    bool // trying again does not help
}

func (l *Limiter) bookLine(ctx context.Context, line []byte) late {
	attempt, at, err := l.resume(line)
	if err != nil {
		return late{err: err, never: true}
	}
	ctx, cancel := detached(ctx, adminDeadline)
	defer cancel()
	bookings, err := l.book.BookLate(ctx, attempt, at)
	return late{attempt, bookings, err, errors.Is(err, accounts.ErrStatus)}
}

// setAside takes a line that can never be booked out of the way.
func (l *Limiter) setAside(line []byte, d late) {
	err := l.options.Spool.setAside(line)
	l.options.Logger.Error("an entry of the spool cannot be booked and was set aside",
		"file", l.options.Spool.aside, "cause", errors.Join(d.err, err))
	l.metrics.setAside.Inc()
	for _, c := range d.attempt.Charges() {
		l.metrics.units.WithLabelValues(c.Limit.Name, "dropped").Add(float64(c.Amount))
	}
}
