package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/accounts"
	"weir/ledgers"
)

// spendOnly refuses what would be charged without notes.
func spendOnly(limit *Limit) *Error {
	return &Error{
		Code: CodeBadRequest, Limit: limit.Name,
		Detail: fmt.Sprintf("limit %q is a spend budget's: authorize and settle calls on the budget",
			limit.Name),
	}
}

// keeps refuses to end a reservation with notes without them, and another with them.
func (l *Limiter) keeps(h accounts.Hold, noted bool) error {
	set := l.limits.Load()
	for _, c := range h.Charges {
		limit, _, err := set.find(c.Limit.Name)
		if err != nil || limit.Spend == noted {
			continue
		}
		if limit.Spend {
			return spendOnly(limit)
		}
		return badRequest("limit %q keeps no notes", limit.Name)
	}
	return nil
}

// keepsOn is keeps for what is done with reservations only.
func (l *Limiter) keepsOn(h accounts.Hold, noted bool) error {
	err := l.keeps(h, noted)
	if err == nil && h.Check {
		return badRequest("the receipt is a check's: it can only be released")
	}
	return err
}

// hold finds what a receipt stands for.
func (l *Limiter) hold(ctx context.Context, receipt ledgers.ID) (accounts.Hold, error) {
	h, found, err := l.book.Hold(ctx, receipt, l.limits.Load().on)
	switch {
	case errors.Is(err, accounts.ErrUnknownLimit):
		return accounts.Hold{}, &Error{
			Code: CodeUnknownLimit, Detail: "the receipt is of a limit that is not configured any more",
			cause: err,
		}
	case err != nil:
		return accounts.Hold{}, unknownEnd(err)
	case !found:
		return accounts.Hold{}, &Error{
			Code: CodeReservationUnknown, Detail: fmt.Sprintf("there is no reservation %s", receipt),
		}
	}
	return h, nil
}

// Held is what a reservation holds, or held.
type Held struct {
	// Members are the limits and subjects, and as costs what is held.
	Members []Member
	// Notes are those that it was made with.
	Notes []accounts.Note
}

// Held reads what a receipt stands for, also after it was settled. Errors: CodeReservationUnknown,
// CodeUnknownLimit.
func (l *Limiter) Held(ctx context.Context, receipt ledgers.ID) (Held, error) {
	ctx, cancel := detached(ctx, adminDeadline)
	defer cancel()
	h, err := l.hold(ctx, receipt)
	if err != nil {
		return Held{}, err
	}
	return heldOf(h), nil
}

func heldOf(h accounts.Hold) Held {
	held := Held{Notes: h.Notes}
	for _, c := range h.Charges {
		held.Members = append(held.Members, Member{
			Limit: c.Limit.Name, Subject: c.Subject, Cost: c.Amount,
		})
	}
	return held
}

// Correct books what a settled reservation really took in place of what was booked, by entries that
// take the others' place. The settlement's Of, or its Members and Annotation, is required. The id
// is scoped to the reservation: sent again it is answered the same and corrected once; of several
// corrections the last counts. Errors: CodeIDConflict where the id named another correction,
// CodeReservationClosed where the reservation was not settled, and those of [Limiter.Settle].
func (l *Limiter) Correct(ctx context.Context, id string, s Settlement) (Settled, error) {
	err := checkID(id, true)
	if err != nil {
		return Settled{}, err
	}
	return l.settleHold(ctx, s, func(ctx context.Context, h accounts.Hold, actual []uint64,
		annotation *accounts.Annotation,
	) (accounts.Settlement, error) {
		done, err := l.book.Correct(ctx, h, id, actual, annotation)
		switch {
		case err == nil && done.Outcome == accounts.Conflict:
			return done, spent(accounts.Conflict, id)
		case err == nil && done.Outcome == accounts.Unsettled:
			return done, &Error{
				Code: CodeReservationClosed, Detail: "the call was not settled: there is nothing to correct",
			}
		}
		return done, err
	})
}

// owe has what was used beyond the quotas stay free beside what charges take: it is spent, also
// where something else that was held has come back meanwhile.
func (l *Limiter) owe(ctx context.Context, charges []charge) error {
	overages, err := l.book.Overages(ctx, booked(charges)...)
	if err != nil {
		return err
	}
	for i := range charges {
		charges[i].Owed = overages[i]
	}
	return nil
}

// Note keeps a note in the ledger that stands alone, as the n-th of a subject on a limit. It
// reports false, and changes nothing, where there is an n-th already; again is as of
// [accounts.Book.Note].
func (l *Limiter) Note(ctx context.Context, limit, subject string, n uint64, note accounts.Note,
	again bool,
) (bool, error) {
	c, err := l.account(limit, subject, 0)
	if err != nil {
		return false, err
	}
	ctx, cancel := detached(ctx, c.limit.Deadline)
	defer cancel()
	made, err := l.book.Note(ctx, c.Charge, n, note, again)
	if err != nil {
		return false, failure(err)
	}
	return made, nil
}

// Notes reads notes of a subject on a limit, oldest first, that were made from one time on and
// before another, at most accounts.MaxPage of them.
func (l *Limiter) Notes(ctx context.Context, limit, subject string, from, to time.Time,
) ([]accounts.NoteEntry, error) {
	c, err := l.account(limit, subject, 0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := detached(ctx, adminDeadline)
	defer cancel()
	notes, err := l.book.Notes(ctx, c.Charge, uint64(from.UnixNano()), uint64(to.UnixNano()),
		accounts.MaxPage)
	if err != nil {
		return nil, failure(err)
	}
	return notes, nil
}

// Now returns the ledger's time, as far as this node knows it.
func (l *Limiter) Now() time.Time { return instant(l.book.Now()) }
