package limiter

import (
	"context"
	"fmt"
	"time"

	"weir/accounts"
	"weir/ledgers"
)

// Change is an admin's lasting change of one subject's quota.
type Change struct {
	Limit   string
	Subject string
	// Amount in the limit's units, 1 to [MaxCost].
	Amount uint64
	// ID names the change, required: sent again it is answered the same, for ever, and made once.
	ID string
}

// Changed is the answer to a [Change] that was made.
type Changed struct {
	Transfer ledgers.ID
	Replayed bool
	// At is the ledger's time at which the change was made.
	At time.Time
	// Quota and Remaining are today's, after the change.
	Quota     uint64
	Remaining uint64
}

// Grant raises one subject's quota for good; it is not used up and does not come back by itself.
// Errors: CodeIDConflict where the id named another change, CodeQuotaTooLarge.
func (l *Limiter) Grant(ctx context.Context, c Change) (Changed, error) {
	return l.change(ctx, c, l.book.Grant)
}

// Revoke lowers one subject's quota for good. Errors: CodeIDConflict where the id named another
// change, CodeQuotaInUse where less is free than that, with the free amount; nothing is taken then.
func (l *Limiter) Revoke(ctx context.Context, c Change) (Changed, error) {
	return l.change(ctx, c, l.book.Revoke)
}

func (l *Limiter) change(ctx context.Context, c Change,
	change func(context.Context, string, accounts.Charge) (accounts.Result, error),
) (Changed, error) {
	err := checkID(c.ID, true)
	if err != nil {
		return Changed{}, err
	}
	if c.Amount == 0 || c.Amount > MaxCost {
		return Changed{}, badRequest("amount: want 1 to %d", uint64(MaxCost))
	}
	charge, err := l.account(c.Limit, c.Subject, c.Amount)
	if err != nil {
		return Changed{}, err
	}
	ctx, cancel := detached(ctx, adminDeadline)
	defer cancel()
	result, err := change(ctx, c.ID, charge.Charge)
	l.memory.forget(charge.Account())
	if err != nil { // it may be made all the same, now or later
		l.afterwards(err, func() { l.memory.forget(charge.Account()) })
		return Changed{}, undecided(err, c.ID)
	}
	balances, err := l.book.Balances(ctx, []accounts.Charge{charge.Charge})
	if err != nil {
		return Changed{}, undecided(err, c.ID)
	}
	err = changeRefused(c, result, balances[0])
	if err != nil {
		return Changed{}, err
	}
	return Changed{
		Transfer: result.Transfer, Replayed: result.Outcome == accounts.Replayed,
		At: instant(result.Timestamp), Quota: balances[0].Quota, Remaining: balances[0].Remaining,
	}, nil
}

// changeRefused is the error for a change that was not made, nil if it was.
func changeRefused(c Change, result accounts.Result, b accounts.Balance) error {
	switch result.Outcome {
	case accounts.Accepted, accounts.Replayed:
		return nil
	case accounts.Conflict:
		return spent(result.Outcome, c.ID)
	case accounts.TooLarge:
		return &Error{
			Code: CodeQuotaTooLarge, Limit: c.Limit,
			Detail: fmt.Sprintf("the quota is %d; with %d more it would pass %d",
				b.Quota, c.Amount, uint64(accounts.MaxQuota)),
		}
	default:
		return &Error{
			Code: CodeQuotaInUse, Limit: c.Limit, Free: b.Remaining, NewIDRequired: result.Burnt,
			Detail: fmt.Sprintf("%d cannot be revoked: %d is free", c.Amount, b.Remaining),
		}
	}
}

// account finds the account of a subject on a limit.
func (l *Limiter) account(name, subject string, amount uint64) (charge, error) {
	limit, book, err := l.limits.Load().find(name)
	if err != nil {
		return charge{}, err
	}
	err = checkSubject(subject)
	if err != nil {
		return charge{}, err
	}
	return charge{Charge: l.book.NewCharge(book, subject, amount), limit: limit}, nil
}
