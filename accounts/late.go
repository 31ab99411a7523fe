package accounts

import (
	"context"
	"fmt"
	"time"

	"weir/ledgers"
)

// Resume returns the attempt that had this first transfer and these charges, for what has to be
// done about it later.
func (b *Book) Resume(first ledgers.ID, charges []Charge) Attempt {
	sorted := inOrder(charges)
	return Attempt{
		First: first, charges: charges, sorted: sorted,
		fingerprint: b.namespace.fingerprint("check", sorted),
	}
}

// Undo gives back what an attempt took, if it still holds it. The attempt must be known to have
// been accepted: the end of a charge that is not there would burn the end's id. Done again, it
// changes nothing.
func (b *Book) Undo(ctx context.Context, a Attempt) error {
	var voids []ledgers.Transfer
	ender := b.namespace.fingerprint("undo", a.sorted)
	for _, c := range a.sorted {
		if c.Amount == 0 {
			continue
		}
		taken := b.member(a.First, len(voids))
		voids = append(voids, ledgers.Transfer{
			ID: b.namespace.EndTransfer(taken), PendingID: taken, UserData128: ender,
			Ledger: c.Limit.Ledger, Code: CodeCharge, Flags: ledgers.VoidPending,
		})
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
			booking.Charged, err = b.bookOverage(ctx, a.First, places[i], c)
			if err != nil {
				return nil, err
			}
			booking.Overage = c.Amount - booking.Charged
		}
	}
	return bookings, nil
}

// remaining returns the charges of an attempt made at a time that are not back by now, each with
// what is left of its window, and their places. The rest is noted as dropped.
func remaining(charges []Charge, bookings []Booking, at, now uint64) (left []Charge, places []int) {
	for i, c := range charges {
		end := at + c.Limit.window()
		switch {
		case c.Amount == 0: // a look took nothing
		case end <= now:
			bookings[i].Dropped = c.Amount
		default:
			seconds := (end - now + uint64(time.Second) - 1) / uint64(time.Second)
			c.Limit.WindowSeconds = uint32(min(seconds, uint64(c.Limit.WindowSeconds)))
			left = append(left, c)
			places = append(places, i)
		}
	}
	return left, places
}

// bookOverage books the charge at a place of an attempt that the quota does not have, or not all
// of: the overage account pays the operator, and the user pays back what it can. That is returned.
func (b *Book) bookOverage(ctx context.Context, first ledgers.ID, place int, c Charge,
) (uint64, error) {
	overage := b.namespace.OverageAccount(c.Limit.Name, c.Subject)
	opened, err := b.driver.CreateAccounts(ctx, []ledgers.Account{{
		ID: overage, Ledger: c.Limit.Ledger, Code: AccountOverage,
	}})
	if err != nil {
		return 0, fmt.Errorf("create account %s: %w", overage, err)
	}
	status := opened[0].Status
	if status != ledgers.AccountCreated && status != ledgers.AccountExists {
		return 0, fmt.Errorf("%w: %s for account %s", ErrStatus, status, overage)
	}
	end := b.namespace.EndTransfer(first)
	used := pending(c, c.Amount, CodeOverage, b.namespace.MemberTransfer(end, 2*place+1))
	used.DebitAccountID = overage
	used.Flags |= ledgers.Linked
	paid := pending(c, c.Amount, CodeOverage, b.namespace.MemberTransfer(end, 2*place+2))
	paid.CreditAccountID = overage
	paid.Flags |= ledgers.BalancingDebit
	results, err := b.createTransfers(ctx, []ledgers.Transfer{used, paid})
	forget([]Charge{c})
	if err != nil {
		return 0, err
	}
	if results[0].Status != ledgers.TransferCreated && !results[0].Status.Exists() {
		return 0, fmt.Errorf("%w: %s for overage %s", ErrStatus, results[0].Status, used.ID)
	}
	found, err := b.driver.LookupTransfers(ctx, []ledgers.ID{paid.ID})
	if err != nil {
		return 0, fmt.Errorf("look up transfer %s: %w", paid.ID, err)
	}
	if len(found) == 0 {
		return 0, fmt.Errorf("%w: overage %s is not found", ErrStatus, paid.ID)
	}
	return found[0].Amount.Lo, nil
}
