package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/accounts"
	"weir/ledgers"
)

// maxMoves bounds how often a call is tried again because its reservation was renewed meanwhile.
const maxMoves = 8

// Settlement says what a reservation really took.
type Settlement struct {
	// Receipt is the reservation's, or an older one from before it was renewed.
	Receipt ledgers.ID
	// CostIn is for a reservation on one limit, slots of concurrency limits apart. It is asked for the
	// cost once it is known what the limit counts: the smallest units of an asset, or with nil plain
	// units. Its error is what Settle returns. Nil where Members say it.
	CostIn func(asset *Asset) (uint64, error)
	// Of, in place of all else but the receipt, is asked for the rest once it is known what is held.
	// Its error is what Settle returns.
	Of func(Held) (Settlement, error)
	// Annotation is kept in the ledger beside the settlement, of a reservation that was made with
	// notes, and of no other.
	Annotation *accounts.Annotation
	// Members name each account of the reservation once, but those of concurrency limits, which are
	// given back. A subject may be left empty where the reservation has one account on the limit.
	Members []Member
}

// Settled says what became of a reservation.
type Settled struct {
	// Transfer is the newest receipt.
	Transfer ledgers.ID
	// Replayed says that the same was done before and this is its answer again.
	Replayed bool
	// Late says that what was held had come back by itself before it was settled.
	Late bool
	// Limits has one entry for each account that units were held of.
	Limits []SettledLimit
	// Notes are those that are kept beside the settlement.
	Notes []accounts.Note
}

// SettledLimit says what became of what was held of one account, in the limit's units.
type SettledLimit struct {
	Limit string
	// Subject is empty where a check's receipt was released by a node that has never met the subject.
	Subject string
	Kind    Kind
	// Held is what the reservation held, and Booked what it turned out to take.
	Held, Booked uint64
	// Overage is the part of Booked that the quota did not have.
	Overage uint64
	// Known says whether Remaining was read.
	Known     bool
	Remaining uint64
}

// Reserve decides a request as [Limiter.Check] does, but holds what it takes for the request's Hold
// instead of charging it: until it is settled, released or renewed, by this node or any other, or
// comes back by itself. The decision's Transfer is the receipt for that.
//
// An id sent again is answered with the newest receipt while the reservation stands. After that it
// is CodeReservationClosed where it was ended, CodeIDExpired where it timed out. Reservations
// always fail closed, whatever the limits' policies are: what is let through without the ledger
// has no receipt. Nor has a reservation of limits that are all only tried out: it holds nothing.
func (l *Limiter) Reserve(_ context.Context, r Request) (Decision, error) {
	err := checkHold(r.Hold)
	if err != nil {
		l.metrics.failed(err)
		return Decision{}, err
	}
	return l.decide(r)
}

func checkHold(hold time.Duration) error {
	if hold < time.Second || hold > MaxHold || hold%time.Second != 0 {
		return badRequest("hold: want 1 to %d whole seconds", MaxHold/time.Second)
	}
	return nil
}

// Settle books what a reservation really took and gives the rest back. What is booked comes back a
// window after the reservation was made or last renewed, or with the calendar's period of that
// time; of credits it is used up. More than was held is booked too, and what the quota does not
// have of it is overage. A reservation that has timed out is settled late, once. The same
// settlement sent again is replayed.
//
// Errors: CodeReservationUnknown; CodeReservationClosed where something else has ended the
// reservation; CodeBadRequest where the settlement does not fit the reservation, where all that it
// holds are slots, or where the receipt is a check's; CodeUnknownLimit where a limit of it is not
// configured any more. After CodeLedgerUnavailable the outcome is unknown: the same call will tell.
func (l *Limiter) Settle(ctx context.Context, s Settlement) (Settled, error) {
	if s.Of == nil && (s.CostIn != nil) == (len(s.Members) > 0) {
		err := badRequest("want either cost or limits")
		l.metrics.failed(err)
		return Settled{}, err
	}
	return l.settleHold(ctx, s, l.book.Settle)
}

// settleHold settles or corrects a reservation by a call of the books, which is told what each of
// its charges really took.
func (l *Limiter) settleHold(ctx context.Context, s Settlement,
	by func(context.Context, accounts.Hold, []uint64, *accounts.Annotation,
	) (accounts.Settlement, error),
) (Settled, error) {
	var hold accounts.Hold
	var done accounts.Settlement
	err := l.onHold(ctx, s.Receipt, func(ctx context.Context, h accounts.Hold,
	) (accounts.Result, error) {
		actual, annotation, err := l.took(h, s)
		if err != nil {
			return accounts.Result{}, err
		}
		hold = h
		done, err = by(ctx, h, actual, annotation)
		return done.Result, err
	})
	if err != nil {
		l.metrics.failed(err)
		return Settled{}, err
	}
	settled := l.settled(ctx, hold, done.Result)
	settled.Late, settled.Notes = done.Late, done.Notes
	for i := range settled.Limits {
		settled.Limits[i].Booked, settled.Limits[i].Overage = done.Booked[i], done.Overage[i]
	}
	return settled, nil
}

// took returns what a settlement says of each charge of a reservation, and what is kept beside it.
func (l *Limiter) took(h accounts.Hold, s Settlement) ([]uint64, *accounts.Annotation, error) {
	var err error
	if s.Of != nil {
		s, err = s.Of(heldOf(h))
		if err != nil {
			return nil, nil, err
		}
	}
	err = l.keepsOn(h, s.Annotation != nil)
	if err != nil {
		return nil, nil, err
	}
	actual, err := l.actual(h, s)
	return actual, s.Annotation, err
}

// Release gives back all that a reservation holds, or what a check took and has not come back yet.
// Released again it is replayed. Errors are as of [Limiter.Settle], and: CodeIDExpired where all of
// it has come back by itself, CodeReservationClosed for a check that took credits, which it keeps.
func (l *Limiter) Release(ctx context.Context, receipt ledgers.ID) (Settled, error) {
	var hold accounts.Hold
	var result accounts.Result
	err := l.onHold(ctx, receipt, func(ctx context.Context, h accounts.Hold,
	) (accounts.Result, error) {
		err := l.keeps(h, false)
		if err != nil {
			return accounts.Result{}, err
		}
		hold = h
		result, err = l.book.Release(ctx, h)
		return result, err
	})
	if err != nil {
		l.metrics.failed(err)
		return Settled{}, err
	}
	return l.settled(ctx, hold, result), nil
}

// Renew holds the same for so long from now on, whole seconds up to [MaxHold]. The decision's
// Transfer is the new receipt; who has an older one is led to it. Renewed again under the same
// receipt for the same time, it is replayed. Errors are as of [Limiter.Release]; a check cannot be
// renewed.
func (l *Limiter) Renew(ctx context.Context, receipt ledgers.ID, hold time.Duration,
) (Decision, error) {
	d, err := l.renew(ctx, receipt, hold)
	if err != nil {
		l.metrics.failed(err)
		return Decision{}, err
	}
	return d, nil
}

func (l *Limiter) renew(ctx context.Context, receipt ledgers.ID, hold time.Duration,
) (Decision, error) {
	err := checkHold(hold)
	if err != nil {
		return Decision{}, err
	}
	var charges []charge
	var result accounts.Result
	err = l.onHold(ctx, receipt, func(ctx context.Context, h accounts.Hold,
	) (accounts.Result, error) {
		err := l.keepsOn(h, false)
		if err != nil {
			return accounts.Result{}, err
		}
		charges = l.chargesOf(h)
		result, err = l.book.Renew(ctx, h, uint32(hold/time.Second))
		return result, err
	})
	if err != nil {
		return Decision{}, err
	}
	ctx, cancel := detached(ctx, adminDeadline)
	defer cancel()
	return l.allowed(ctx, charges, result), nil
}

// onHold finds what a receipt stands for and ends or renews it by a call of the books. It returns
// the error to answer with, nil if that was done now or before.
func (l *Limiter) onHold(ctx context.Context, receipt ledgers.ID,
	end func(context.Context, accounts.Hold) (accounts.Result, error),
) error {
	ctx, cancel := detached(ctx, adminDeadline)
	defer cancel()
	for range maxMoves {
		h, err := l.hold(ctx, receipt)
		if err != nil {
			return err
		}
		result, err := end(ctx, h)
		l.release(h)
		refused, bad := errors.AsType[*Error](err)
		switch {
		case bad:
			return refused
		case err != nil: // it may be done all the same, now or later
			l.afterwards(err, func() { l.release(h) })
			return unknownEnd(err)
		case result.Outcome != accounts.Moved:
			return closed(result.Outcome, h)
		}
	}
	return &Error{Code: CodeBusy, Detail: "the reservation keeps being renewed by others"}
}

// closed is the error for a reservation that is over, nil for an outcome that is none.
func closed(outcome accounts.Outcome, h accounts.Hold) error {
	switch outcome {
	case accounts.Accepted, accounts.Replayed:
		return nil
	case accounts.Expired:
		return &Error{
			Code: CodeIDExpired, Detail: "what the receipt stands for has come back by itself",
		}
	}
	e := &Error{
		Code: CodeReservationClosed, Detail: "the reservation was settled, released or given back before",
	}
	if h.Check && h.Booked() {
		e.Detail = "the check took credits, which are used up"
	}
	return e
}

// unknownEnd is the error of a call without an id, such as one about a reservation, that the ledger
// did not answer.
func unknownEnd(cause error) *Error {
	e := failure(cause)
	if e.Code == CodeLedgerUnavailable {
		e.Detail += ": whether it took effect is unknown; the same call, sent again, will tell"
	}
	return e
}

// release drops what is remembered of the accounts that units were held of.
func (l *Limiter) release(h accounts.Hold) {
	for _, c := range h.Charges {
		l.memory.forget(c.Account())
	}
}

// chargesOf pairs what is held with the limits.
func (l *Limiter) chargesOf(h accounts.Hold) []charge {
	set := l.limits.Load()
	charges := make([]charge, len(h.Charges))
	for i, c := range h.Charges {
		limit, _, err := set.find(c.Limit.Name)
		if err != nil { // it was taken out of the config just now
			limit = &Limit{Name: c.Limit.Name}
		}
		charges[i] = charge{Charge: c, limit: limit}
	}
	return charges
}

// settled describes a reservation that is over.
func (l *Limiter) settled(ctx context.Context, h accounts.Hold, result accounts.Result) Settled {
	ctx, cancel := detached(ctx, adminDeadline)
	defer cancel()
	balances, err := l.book.Balances(ctx, h.Charges)
	if err != nil {
		l.metrics.unread.Inc()
	}
	s := Settled{Transfer: h.Receipt(), Replayed: result.Outcome == accounts.Replayed}
	for i, c := range l.chargesOf(h) {
		entry := SettledLimit{
			Limit: c.limit.Name, Subject: c.Subject, Kind: c.limit.Kind, Held: c.Amount,
			Known: err == nil,
		}
		if entry.Known {
			entry.Remaining = balances[i].Remaining
		}
		s.Limits = append(s.Limits, entry)
	}
	return s
}

// actual returns what a settlement says of each charge of a reservation: 0 for slots.
func (l *Limiter) actual(h accounts.Hold, s Settlement) ([]uint64, error) {
	list := make([]uint64, len(h.Charges))
	named := make([]bool, len(h.Charges))
	wanted := 0
	for i, c := range h.Charges {
		if c.Books() {
			wanted++
		}
		named[i] = !c.Books()
	}
	members := s.Members
	switch {
	case wanted == 0:
		return nil, badRequest("the reservation holds slots: it can only be released or renewed")
	case s.CostIn != nil && wanted > 1:
		return nil, badRequest("the reservation is of %d limits: want limits, with a cost each", wanted)
	case s.CostIn != nil:
		cost, err := s.CostIn(l.assetOf(h, named))
		if err != nil {
			return nil, err
		}
		members = []Member{{Cost: cost}}
	case len(members) != wanted:
		return nil, badRequest("limits: want each of the reservation once, %d and not %d",
			wanted, len(members))
	}
	for _, m := range members {
		if m.Cost > MaxCost {
			return nil, badRequest("cost: want one, at most %d", uint64(MaxCost))
		}
		i, err := memberAt(h, m, named)
		if err != nil {
			return nil, err
		}
		list[i], named[i] = m.Cost, true
	}
	return list, nil
}

// assetOf returns what the first charge counts that was not named yet.
func (l *Limiter) assetOf(h accounts.Hold, named []bool) *Asset {
	asset, _ := l.limits.Load().AssetOf(h.Charges[slices.Index(named, false)].Limit.Name)
	return asset
}

// memberAt returns which charge of a reservation a member means that was not named yet. One without
// a limit means the only one there is.
func memberAt(h accounts.Hold, m Member, named []bool) (int, error) {
	at := -1
	for i, c := range h.Charges {
		if named[i] || m.Limit != "" && m.Limit != c.Limit.Name ||
			m.Subject != "" && m.Subject != c.Subject {
			continue
		}
		if at >= 0 {
			return 0, badRequest("limits: limit %q wants a subject, the reservation has several", m.Limit)
		}
		at = i
	}
	if at < 0 {
		what := fmt.Sprintf("limit %q", m.Limit)
		if m.Subject != "" {
			what += fmt.Sprintf(" for subject %q", m.Subject)
		}
		return 0, badRequest("limits: the reservation has nothing to book on %s, or it is named twice",
			what)
	}
	return at, nil
}
