package accounts

import (
	"context"
	"fmt"
	"slices"

	"weir/ledgers"
)

// Correct books what a settled reservation really took, in place of what was booked for it: the
// bookings are given back and others take their place, which come back when those would have. What
// has come back by itself stays so, and the notes alone say what it should have been. The id is
// required, and scoped to the reservation: the same correction sent again is answered Replayed, and
// another one under its id Conflict. Corrected again, the last one counts.
//
// Annotation is as of [Book.Settle], with two notes. The outcome is Unsettled where there is
// nothing to correct, and Ended where the reservation was on a prepaid balance, whose bookings
// stand.
func (b *Book) Correct(ctx context.Context, h Hold, id string, actual []uint64,
	annotation *Annotation,
) (Settlement, error) {
	s := Settlement{Booked: actual, Overage: make([]uint64, len(actual))}
	posted := func(c Charge) bool { return c.Limit.Posted }
	if slices.ContainsFunc(h.Charges, posted) {
		s.Outcome = Ended
		return s, nil
	}
	beside := b.namespace.correction(h.First, id)
	for range maxSteps {
		err := b.tryCorrect(ctx, h, beside, &s, annotation)
		if err != nil {
			forget(h.Charges)
			return s, err
		}
		if s.Outcome != again {
			return s, b.readOverage(ctx, h, &s)
		}
	}
	return s, fmt.Errorf("%w: correction of %s", ErrContended, h.First)
}

// tryCorrect makes a correction against the bookings as they are now. The outcome is again where
// they have changed meanwhile.
func (b *Book) tryCorrect(ctx context.Context, h Hold, beside ledgers.ID, s *Settlement,
	annotation *Annotation,
) error {
	end := b.namespace.EndTransfer(h.First)
	ids := append([]ledgers.ID{end}, b.namespace.noteIDs(end)...)
	found, err := b.lookup(ctx, append(ids, b.namespace.noteIDs(beside)...))
	if err != nil {
		return err
	}
	ending := found[end]
	s.Late = !ending.Flags.Has(ledgers.VoidPending)
	s.Notes = annotation.Notes(s.Late)
	kept := h.notesBeside(b.namespace, beside, s.Notes)
	// The first note is about the receipt; the second tells the same correction sent again.
	kept[1].UserData128 = b.namespace.fingerprint("correct", nil, annotation.Sent...)
	made := b.namespace.notesIn(found, beside)
	switch {
	case len(made) == len(kept):
		s.Result = Result{Outcome: Conflict, Transfer: h.First, Timestamp: made[0].Timestamp}
		if made[1].UserData128 == kept[1].UserData128 {
			s.Outcome, s.Notes = Replayed, notesOf(made)
		}
		return nil
	case len(b.namespace.notesIn(found, end)) == 0:
		s.Result = Result{Outcome: Unsettled, Transfer: h.First}
		return nil
	}
	now, err := b.Time(ctx)
	if err != nil {
		return err
	}
	batch, err := b.rebook(ctx, h, s, now)
	if err != nil {
		return err
	}
	batch = append(batch, kept...)
	link(batch)
	results, err := b.createTransfers(ctx, batch)
	if err != nil {
		return err
	}
	forget(h.Charges)
	failed := failedAt(results)
	s.Result = Result{Outcome: again}
	switch {
	case failed < 0:
		s.Result = Result{Transfer: h.First, Timestamp: results[0].Timestamp}
	case results[failed].Status.Exists(),
		results[failed].Status == ledgers.TransferPendingTransferExpired: // not as they were read
	default:
		return unexpected(results[failed].Status, batch[failed])
	}
	return nil
}

// rebook returns what gives the bookings of a settled hold back and books others in their place.
// Where nothing is booked, nothing takes its place as an entry of its own: of two corrections at
// the same time, one always finds that the other was quicker.
func (b *Book) rebook(ctx context.Context, h Hold, s *Settlement, now uint64,
) ([]ledgers.Transfer, error) {
	var voids, bookings []ledgers.Transfer
	var above []Charge
	by := b.namespace.fingerprint("correct", nil, h.First.String())
	for i, c := range h.Charges {
		booked, err := b.booked(ctx, h, i, s.Late)
		if err != nil {
			return nil, err
		}
		over := booked.nothing() && c.Limit.End(h.At) <= now // else its time-out tells
		for _, t := range booked.made {
			over = over || t.ExpiresAt() <= now
		}
		if over || !c.Books() {
			continue
		}
		voids = append(voids, b.voids(booked.made, by)...)
		switch {
		case s.Booked[i] == 0 && len(booked.made) > 0:
		case s.Booked[i] <= booked.paid():
			t := pending(c, s.Booked[i], CodeSettlement, booked.next)
			bookings = append(bookings, c.lasting(t, h.At, now))
		default:
			used, paid := b.overage(c, s.Booked[i], booked.next, booked.second)
			bookings = append(bookings, c.lasting(used, h.At, now), c.lasting(paid, h.At, now))
			above = append(above, c)
		}
	}
	return append(voids, bookings...), b.openOverage(ctx, above)
}

// booking is what stands for one charge of a settled hold.
type booking struct {
	// made are its transfers: none, one, or the two of overage.
	made []ledgers.Transfer
	// next and second are the ids of what would take their place.
	next, second ledgers.ID
}

// nothing reports whether it stands for no units.
func (b booking) nothing() bool { return len(b.made) == 0 || b.made[0].Amount.IsZero() }

// paid returns how much of it the subject's account gave.
func (b booking) paid() uint64 {
	if len(b.made) == 0 {
		return 0
	}
	return b.made[len(b.made)-1].Amount.Lo
}

// booked follows the bookings for the i-th charge of a settled hold to the newest.
func (b *Book) booked(ctx context.Context, h Hold, i int, late bool) (booking, error) {
	first, second := b.slot(h, i, 1), b.slot(h, i, 2)
	if late && i == 0 {
		first = b.namespace.EndTransfer(h.First)
	}
	for range maxTrail {
		end := b.namespace.EndTransfer(first)
		found, err := b.lookup(ctx, []ledgers.ID{first, second, end})
		if err != nil {
			return booking{}, err
		}
		made, stands := found[first]
		if !stands {
			return booking{next: first, second: second}, nil
		}
		_, ended := found[end]
		next, after := b.namespace.MemberTransfer(end, 1), b.namespace.MemberTransfer(end, 2)
		if !ended {
			newest := booking{made: []ledgers.Transfer{made}, next: next, second: after}
			other, two := found[second]
			if two {
				newest.made = append(newest.made, other)
			}
			return newest, nil
		}
		first, second = next, after
	}
	return booking{}, fmt.Errorf("%w: %s", ErrFarBehind, h.First)
}

// readOverage reads what the quotas could not pay of what is booked for a settled hold now.
func (b *Book) readOverage(ctx context.Context, h Hold, s *Settlement) error {
	if s.Outcome != Accepted && s.Outcome != Replayed {
		return nil
	}
	for i := range h.Charges {
		booked, err := b.booked(ctx, h, i, s.Late)
		if err != nil {
			return err
		}
		if len(booked.made) == 2 {
			s.Overage[i] = booked.made[0].Amount.Lo - booked.paid()
		}
	}
	return nil
}
