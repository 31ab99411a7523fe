package accounts

import (
	"context"
	"fmt"
	"strconv"

	"weir/ledgers"
)

// Settlement says what became of a hold that was settled.
type Settlement struct {
	Result
	// Late says that the hold had come back by itself before.
	Late bool
	// Booked and Overage have one entry for each charge of the hold: the units that were really
	// taken, and how many of them the quota did not have.
	Booked, Overage []uint64
	// Notes are those that are kept beside it.
	Notes []Note
}

// Settle books what a hold really took, actual units for each of its charges, and gives the rest
// back. What is booked comes back a window after the hold was made, or with the period it was made
// in, not earlier than a second from now; a prepaid balance is used up. More than was held is
// booked too: what the quota does not have is overage. Slots, which nothing comes back from by
// itself but the hold, are given back. A hold that has come back by itself is settled late, once.
// The settlement of what something else ended has the outcome Ended, of what was renewed since the
// hold was read Moved.
//
// Annotation, which may be nil, is kept beside the settlement on the account that the hold's notes
// are on.
func (b *Book) Settle(ctx context.Context, h Hold, actual []uint64, annotation *Annotation,
) (Settlement, error) {
	s := Settlement{Booked: make([]uint64, len(actual)), Overage: make([]uint64, len(actual))}
	given := []string{h.First.String()}
	for i, c := range h.Charges {
		if c.Books() {
			s.Booked[i] = actual[i]
		}
		given = append(given, strconv.FormatUint(actual[i], 10))
	}
	notes := func(bool) []Note { return nil }
	if annotation != nil {
		notes = annotation.Notes
		given = append(given[:1], annotation.Sent...)
	}
	by := b.namespace.fingerprint("settle", nil, given...)
	now, err := b.Time(ctx)
	if err != nil {
		return s, err
	}
	bookings, above := b.bookings(h, s.Booked, now)
	err = b.openOverage(ctx, above)
	if err != nil {
		return s, err
	}
	end := b.namespace.EndTransfer(h.First)
	bookings = append(bookings, h.notesBeside(b.namespace, end, notes(false))...)
	s.Result, _, err = b.finish(ctx, h, by, bookings)
	if err == nil && s.Outcome == Expired {
		kept := h.notesBeside(b.namespace, end, notes(true))
		s.Result, err = b.settleLate(ctx, h, s.Booked, now, by, kept)
	}
	if err != nil || s.Outcome != Accepted && s.Outcome != Replayed {
		return s, err
	}
	return s, b.readSettled(ctx, h, &s)
}

// Books reports whether what is used of the charge's limit is booked; slots are only held.
func (c Charge) Books() bool { return c.Limit.WindowSeconds > 0 || c.Limit.Posted }

// slot is the id of one of the two transfers that book the i-th charge of a hold.
func (b *Book) slot(h Hold, i, which int) ledgers.ID {
	return b.namespace.MemberTransfer(b.namespace.EndTransfer(h.First), 2*i+which)
}

// bookings are what a settlement books: within what was held one transfer for each charge, for
// those above it two.
func (b *Book) bookings(h Hold, booked []uint64, now uint64,
) (list []ledgers.Transfer, above []Charge) {
	for i, c := range h.Charges {
		switch {
		case booked[i] == 0:
		case booked[i] <= c.Amount:
			t := pending(c, booked[i], CodeSettlement, b.slot(h, i, 1))
			list = append(list, c.lasting(t, h.At, now))
		default:
			used, paid := b.overage(c, booked[i], b.slot(h, i, 1), b.slot(h, i, 2))
			list = append(list, c.lasting(used, h.At, now), c.lasting(paid, h.At, now))
			above = append(above, c)
		}
	}
	return list, above
}

// settleLate books what a hold that has come back by itself really took. There is nothing left to
// end, so the first booking takes the place of the end.
func (b *Book) settleLate(ctx context.Context, h Hold, booked []uint64, now uint64,
	by ledgers.Amount, notes []ledgers.Transfer,
) (Result, error) {
	err := b.openOverage(ctx, h.Charges)
	if err != nil {
		return Result{}, err
	}
	var batch []ledgers.Transfer
	for i, c := range h.Charges {
		if booked[i] == 0 && i > 0 {
			continue
		}
		used, paid := b.overage(c, booked[i], b.slot(h, i, 1), b.slot(h, i, 2))
		if i == 0 {
			used.ID, used.UserData128 = b.namespace.EndTransfer(h.First), by
		}
		batch = append(batch, c.lasting(used, h.At, now), c.lasting(paid, h.At, now))
	}
	batch = append(batch, notes...)
	link(batch)
	results, err := b.createTransfers(ctx, batch)
	forget(h.Charges)
	if err != nil {
		return Result{}, err
	}
	failed := failedAt(results)
	switch {
	case failed < 0:
		return Result{Transfer: h.First, Timestamp: results[0].Timestamp}, nil
	case failed == 0 && results[0].Status.Exists():
		return b.overtaken(ctx, h, batch[0].ID, by)
	default:
		return Result{}, unexpected(results[failed].Status, batch[failed])
	}
}

// lasting gives a booking the time-out with which it comes back when a charge made at the ledger
// time at would, but not before a second from now; a prepaid balance's does not.
func (c Charge) lasting(t ledgers.Transfer, at, now uint64) ledgers.Transfer {
	if c.Limit.Posted {
		t.Flags &^= ledgers.Pending
		t.Timeout = 0
		return t
	}
	t.Timeout = wholeSeconds(max(c.Limit.End(at), now) - now)
	return t
}

// readSettled reads how a settlement stands: what it booked, what the quotas could not pay of that,
// and its notes.
func (b *Book) readSettled(ctx context.Context, h Hold, s *Settlement) error {
	end := b.namespace.EndTransfer(h.First)
	ids := append(b.namespace.noteIDs(end), end)
	for i := range h.Charges {
		ids = append(ids, b.slot(h, i, 1), b.slot(h, i, 2))
	}
	found, err := b.lookup(ctx, ids)
	if err != nil {
		return err
	}
	s.Late = !found[end].Flags.Has(ledgers.VoidPending)
	kept := b.namespace.notesIn(found, end)
	s.Notes = notesOf(kept)
	for i := range h.Charges {
		booked := found[b.slot(h, i, 1)]
		if s.Late && i == 0 {
			booked = found[end]
		}
		if len(kept) > 0 && booked.Timestamp > kept[0].Timestamp { // a correction's, of nothing
			booked = ledgers.Transfer{}
		}
		s.Booked[i], s.Overage[i] = booked.Amount.Lo, 0
		if booked.Code == CodeOverage {
			s.Overage[i] = booked.Amount.Lo - found[b.slot(h, i, 2)].Amount.Lo
		}
	}
	return nil
}

// overage are the two transfers that book units whether the quota has them or not: the overage
// account pays the operator, and the user pays back what it can.
func (b *Book) overage(c Charge, amount uint64, usedID, paidID ledgers.ID,
) (used, paid ledgers.Transfer) {
	account := b.namespace.OverageAccount(c.Limit.Name, c.Subject)
	used = pending(c, amount, CodeOverage, usedID)
	used.DebitAccountID = account
	paid = pending(c, amount, CodeOverage, paidID)
	paid.CreditAccountID = account
	paid.Flags |= ledgers.BalancingDebit
	paid.UserData64 = amount // what the journal of the user account is to tell
	return used, paid
}

// openOverage makes the accounts that overage is booked on.
func (b *Book) openOverage(ctx context.Context, charges []Charge) error {
	var accounts []ledgers.Account
	for _, c := range charges {
		accounts = append(accounts, ledgers.Account{
			ID:     b.namespace.OverageAccount(c.Limit.Name, c.Subject),
			Ledger: c.Limit.Ledger, Code: AccountOverage,
		})
	}
	if len(accounts) == 0 {
		return nil
	}
	_, err := b.createAccounts(ctx, accounts)
	return err
}

// Resume returns the attempt that had this first transfer, this fingerprint and these charges, for
// what has to be done about it later.
func (b *Book) Resume(first ledgers.ID, fingerprint ledgers.Amount, charges []Charge) Attempt {
	return Attempt{
		First: first, charges: charges, sorted: inOrder(charges), fingerprint: fingerprint,
	}
}

// Undo gives back what an attempt took, if it still holds it. The attempt must be known to have
// been accepted: the end of a charge that is not there would burn the end's id. Done again, it
// changes nothing.
func (b *Book) Undo(ctx context.Context, a Attempt) error {
	var voids []ledgers.Transfer
	ender := b.namespace.fingerprint("undo", a.sorted)
	code := CodeCharge
	if a.hold > 0 {
		code = CodeHold
	}
	t, _, err := b.trail(ctx, a.First)
	if err != nil {
		return err
	}
	pendings := 0
	for _, c := range a.sorted {
		if c.Amount == 0 {
			continue
		}
		taken := b.member(a.First, len(voids))
		if len(t.firsts) > 1 && !c.Limit.Posted { // replaced, because its period had ended
			taken = b.member(t.newest().ID, pendings)
			pendings++
		}
		void := ledgers.Transfer{
			ID: b.namespace.EndTransfer(taken), PendingID: taken, UserData128: ender,
			Ledger: c.Limit.Ledger, Code: code, Flags: ledgers.VoidPending,
		}
		if a.hold == 0 && c.Limit.Posted { // what does not come back is paid back
			void.PendingID, void.Flags, void.Amount = ledgers.ID{}, 0, ledgers.AmountOf(c.Amount)
			void.DebitAccountID, void.CreditAccountID = c.standing.operator, c.account
		}
		voids = append(voids, void)
	}
	// Not linked: each member comes back, whether or not another one did before by its time-out.
	results, err := b.createTransfers(ctx, voids)
	forget(a.sorted) // after an error too: nobody knows then what was given back
	if err != nil {
		return err
	}
	for i, r := range results {
		switch {
		case r.Status == ledgers.TransferCreated, r.Status.Exists():
		case r.Status == ledgers.TransferPendingTransferExpired,
			r.Status == ledgers.TransferPendingTransferAlreadyVoided:
		default:
			return fmt.Errorf("%w: %s for the end of %s", ErrStatus, r.Status, voids[i].PendingID)
		}
	}
	return nil
}

// Booking says how the units of one charge that was let through unbooked were accounted for. Their
// sum is the charge's amount.
type Booking struct {
	// Charged units are taken from the quota, by this booking or by the attempt itself.
	Charged uint64
	// Overage units were used although the quota did not have them.
	Overage uint64
	// Dropped units were used so long ago that they would be back by now.
	Dropped uint64
	// Conflict says that overage of another amount was booked under these ids before. Nothing was
	// changed, and the figures are those of that time.
	Conflict bool
}

// BookLate accounts for an attempt that was let through at the ledger time at although the ledger
// had not answered, under the ids that it had: an attempt that reached the ledger after all is not
// charged again. Units are taken for what is left of their windows, rounded up to whole seconds.
// What the quotas do not have is booked as overage, so that nothing that was used is forgotten.
// There is one booking for each charge, in the order they were named. Booked again, it changes
// nothing in the ledger.
func (b *Book) BookLate(ctx context.Context, a Attempt, at uint64) ([]Booking, error) {
	bookings := make([]Booking, len(a.charges))
	// This asks for the ledger's time first if it is not known: what is left is told by it.
	result, found, err := b.Recall(ctx, a)
	if err != nil {
		return nil, err
	}
	if found && result.Outcome != Conflict {
		for i, c := range a.charges {
			bookings[i].Charged = c.Amount
		}
		return bookings, nil
	}
	left, places := remaining(a.charges, bookings, at, b.Now())
	if len(left) == 0 {
		return bookings, nil
	}
	// The fingerprint stays that of the whole: the same id sent again is the same request.
	rest := Attempt{
		First: a.First, charges: left, sorted: inOrder(left), fingerprint: a.fingerprint,
	}
	result, err = b.Charge(ctx, rest)
	if err != nil {
		return nil, err
	}
	for i, c := range left {
		booking := &bookings[places[i]]
		switch result.Outcome {
		case Accepted, Replayed, Expired, Ended:
			booking.Charged = c.Amount
		default:
			*booking, err = b.bookOverage(ctx, a.First, places[i], c)
			if err != nil {
				return nil, err
			}
		}
	}
	return bookings, nil
}

// remaining returns the charges of an attempt made at a time that are not back by now, each with
// what is left of its window, and their places. The rest is noted as dropped.
func remaining(charges []Charge, bookings []Booking, at, now uint64) (left []Charge, places []int) {
	for i, c := range charges {
		end := c.Limit.End(at)
		switch {
		case c.Amount == 0: // a look took nothing
		case end <= now && !c.Limit.Posted:
			bookings[i].Dropped = c.Amount
		default:
			c.Limit.WindowSeconds = min(wholeSeconds(max(end, now)-now), c.Limit.WindowSeconds)
			left = append(left, c)
			places = append(places, i)
		}
	}
	return left, places
}

// bookOverage books the charge at a place of an attempt that the quota does not have, or not all
// of: the overage account pays the operator, and the user pays back what it can.
func (b *Book) bookOverage(ctx context.Context, first ledgers.ID, place int, c Charge,
) (Booking, error) {
	err := b.openOverage(ctx, []Charge{c})
	if err != nil {
		return Booking{}, err
	}
	end := b.namespace.EndTransfer(first)
	used, paid := b.overage(c, c.Amount, b.namespace.MemberTransfer(end, 2*place+1),
		b.namespace.MemberTransfer(end, 2*place+2))
	if c.Limit.Posted {
		used.Flags, paid.Flags = 0, ledgers.BalancingDebit
	}
	used.Flags |= ledgers.Linked
	results, err := b.createTransfers(ctx, []ledgers.Transfer{used, paid})
	forget([]Charge{c})
	if err != nil {
		return Booking{}, err
	}
	if results[0].Status != ledgers.TransferCreated && !results[0].Status.Exists() {
		return Booking{}, fmt.Errorf("%w: %s for overage %s", ErrStatus, results[0].Status, used.ID)
	}
	found, err := b.driver.LookupTransfers(ctx, []ledgers.ID{used.ID, paid.ID})
	if err != nil {
		return Booking{}, fmt.Errorf("look up overage %s: %w", used.ID, err)
	}
	if len(found) != 2 {
		return Booking{}, fmt.Errorf("%w: overage %s is not found", ErrStatus, used.ID)
	}
	// A window that has moved on is a difference that the ledger names first, so its status does not
	// tell whether the amount is another one.
	booking := Booking{Charged: found[1].Amount.Lo, Conflict: found[0].Amount != used.Amount}
	booking.Overage = found[0].Amount.Lo - booking.Charged
	return booking, nil
}
