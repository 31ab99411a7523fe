package limiter

import (
	"context"
	"fmt"
	"time"

	"weir/accounts"
	"weir/ledgers"
)

// Balance is what a subject has on a limit. Reading it charges and creates nothing.
type Balance struct {
	Limit   string
	Subject string
	// Quota is what the subject may hold at once: the limit's quota, plus grants, less revocations.
	Quota uint64
	// Used is what is taken now; after a quota was lowered it may be above it.
	Used      uint64
	Remaining uint64
	// Overage is what was used beyond the quota.
	Overage uint64
	// Overridden says that the subject has a quota of its own, not the limit's.
	Overridden bool
	// Window, Reset and ResetsAt are as in a [State].
	Window, Reset time.Duration
	ResetsAt      time.Time
}

// Balance reads what a subject has on a limit. A subject that was never seen has all of the quota.
func (l *Limiter) Balance(ctx context.Context, limit, subject string) (Balance, error) {
	c, err := l.account(limit, subject, 0)
	if err != nil {
		return Balance{}, err
	}
	ctx, cancel := detached(ctx, adminDeadline)
	defer cancel()
	read, err := l.read(ctx, []charge{c}, noWaits)
	if err != nil {
		return Balance{}, failure(err)
	}
	overage, err := l.book.Overages(ctx, c.Charge)
	if err != nil {
		return Balance{}, failure(err)
	}
	s := state(c, read[0], l.book.Now())
	return Balance{
		Limit: limit, Subject: subject,
		Quota: s.Quota, Used: read[0].Used, Remaining: s.Remaining,
		Overage: overage[0], Overridden: read[0].Overridden,
		Window: s.Window, Reset: s.Reset, ResetsAt: s.ResetsAt,
	}, nil
}

// Journal reads a page of the entries of a subject on a limit, at most accounts.MaxPage of them,
// oldest first, or newest first if reversed. The cursor is the Next of the page before, or 0.
func (l *Limiter) Journal(ctx context.Context, q JournalQuery) (accounts.Page, error) {
	c, err := l.account(q.Limit, q.Subject, 0)
	if err != nil {
		return accounts.Page{}, err
	}
	if q.Size < 0 || q.Size > accounts.MaxPage {
		return accounts.Page{}, badRequest("page size: want 1 to %d", accounts.MaxPage)
	}
	if q.Size == 0 {
		q.Size = accounts.MaxPage
	}
	ctx, cancel := detached(ctx, adminDeadline)
	defer cancel()
	page, err := l.book.Journal(ctx, c.Charge, q.Cursor, q.Reversed, q.Size)
	if err != nil {
		return accounts.Page{}, failure(err)
	}
	return page, nil
}

// JournalQuery chooses a page of a journal.
type JournalQuery struct {
	Limit    string
	Subject  string
	Cursor   uint64
	Reversed bool
	// Size is the most entries wanted; 0 means accounts.MaxPage.
	Size int
}

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
	err = changeRefused(c, charge.limit, result, balances[0])
	if err != nil {
		return Changed{}, err
	}
	return Changed{
		Transfer: result.Transfer, Replayed: result.Outcome == accounts.Replayed,
		At: instant(result.Timestamp), Quota: balances[0].Quota, Remaining: balances[0].Remaining,
	}, nil
}

// changeRefused is the error for a change that was not made, nil if it was.
func changeRefused(c Change, limit *Limit, result accounts.Result, b accounts.Balance) error {
	switch result.Outcome {
	case accounts.Accepted, accounts.Replayed:
		return nil
	case accounts.Conflict:
		return spent(result.Outcome, c.ID)
	case accounts.TooLarge:
		return &Error{
			Code: CodeQuotaTooLarge, Limit: c.Limit,
			Detail: fmt.Sprintf("the quota is %s; with %s more it would pass %s",
				limit.text(b.Quota), limit.text(c.Amount), limit.text(accounts.MaxQuota)),
		}
	default:
		e := &Error{
			Code: CodeQuotaInUse, Limit: c.Limit, Free: b.Remaining, NewIDRequired: result.Burnt,
			Detail: fmt.Sprintf("%s cannot be revoked: %s is free",
				limit.text(c.Amount), limit.text(b.Remaining)),
		}
		if b.Remaining < c.Amount {
			return e
		}
		return e.again(result, c.ID)
	}
}

// account finds the account of a subject on a limit.
func (l *Limiter) account(name, subject string, amount uint64) (charge, error) {
	limit, book, err := l.limits.Load().find(name)
	if err != nil {
		return charge{}, err
	}
	err = CheckSubject(subject)
	if err != nil {
		return charge{}, err
	}
	return charge{Charge: l.book.NewCharge(book, subject, amount), limit: limit}, nil
}

// SubjectQuota is a subject's quota after an override was set or cleared.
type SubjectQuota struct {
	// Quota is the override, or the limit's quota, plus grants, less revocations; Remaining is what
	// is free of it.
	Quota     uint64
	Remaining uint64
	// Replayed says that it was so before, and nothing was written.
	Replayed bool
	// Overridden says that the subject has a quota of its own.
	Overridden bool
	// At is the ledger's time of the change.
	At time.Time
}

// Override gives one subject a quota of its own, in the limit's units, which for a transfer-amount
// limit are its asset's smallest, at most accounts.MaxQuota. It stands, whatever the config says,
// until it is cleared. What is used stays used, and grants and revocations go on counting; a quota
// of 0 shuts out a subject that has no grants. A lowering takes what is free, and the rest as it
// comes back.
//
// Errors: CodeQuotaTooLarge, and CodeBadRequest for credits, which are granted and revoked. After
// CodeLedgerUnavailable the outcome is unknown: the same call will tell.
func (l *Limiter) Override(ctx context.Context, limit, subject string, quota uint64,
) (SubjectQuota, error) {
	if quota > accounts.MaxQuota {
		return SubjectQuota{}, badRequest("quota: want at most %d", uint64(accounts.MaxQuota))
	}
	return l.setQuota(ctx, limit, subject, func(ctx context.Context, c accounts.Charge,
	) (accounts.Result, error) {
		return l.book.Override(ctx, c, quota)
	})
}

// ClearOverride gives one subject the limit's quota again. Errors are as of [Limiter.Override].
func (l *Limiter) ClearOverride(ctx context.Context, limit, subject string) (SubjectQuota, error) {
	return l.setQuota(ctx, limit, subject, l.book.ClearOverride)
}

func (l *Limiter) setQuota(ctx context.Context, limit, subject string,
	set func(context.Context, accounts.Charge) (accounts.Result, error),
) (SubjectQuota, error) {
	c, err := l.account(limit, subject, 0)
	if err != nil {
		return SubjectQuota{}, err
	}
	if c.limit.Kind == Credits {
		return SubjectQuota{}, badRequest("limit %q is of kind %s: a subject has what it was granted",
			limit, Credits)
	}
	ctx, cancel := detached(ctx, adminDeadline)
	defer cancel()
	result, err := set(ctx, c.Charge)
	l.memory.forget(c.Account())
	if err != nil { // it may be made all the same, now or later
		l.afterwards(err, func() { l.memory.forget(c.Account()) })
		return SubjectQuota{}, unknownEnd(err)
	}
	if result.Outcome == accounts.TooLarge {
		return SubjectQuota{}, &Error{
			Code: CodeQuotaTooLarge, Limit: limit,
			Detail: fmt.Sprintf("with what was granted the quota would pass %s",
				c.limit.text(accounts.MaxQuota)),
		}
	}
	balances, err := l.book.Balances(ctx, []accounts.Charge{c.Charge})
	if err != nil {
		return SubjectQuota{}, unknownEnd(err)
	}
	b := balances[0]
	return SubjectQuota{
		Quota: b.Quota, Remaining: b.Remaining, Replayed: result.Outcome == accounts.Replayed,
		Overridden: b.Overridden, At: instant(result.Timestamp),
	}, nil
}

// waits says how to tell when enough comes back for a charge that lacks units.
type waits int

const (
	noWaits    waits = iota // nobody asks
	knownWaits              // as this node remembers, if it does
	trueWaits               // as of now, whatever other nodes did
)

// read reads the balances and, for a denial, when enough comes back.
func (l *Limiter) read(ctx context.Context, charges []charge, w waits) ([]figures, error) {
	var room [1]accounts.Charge // most requests name one limit: no allocation for them
	list := room[:0]
	for _, c := range charges {
		list = append(list, c.Charge)
	}
	balances, err := l.book.Balances(ctx, list)
	if err != nil {
		return nil, err
	}
	read := make([]figures, len(charges))
	for i, c := range list {
		read[i], err = l.figure(ctx, c, balances[i], w)
		if err != nil {
			return nil, err
		}
	}
	return read, nil
}

// figure completes a balance with the times at which units come back.
func (l *Limiter) figure(ctx context.Context, c accounts.Charge, b accounts.Balance, w waits,
) (figures, error) {
	f := figures{Balance: b, known: true}
	var err error
	missing := need(c.Amount, b)
	switch {
	case w == noWaits || missing == 0 || waitless(c, b):
	case missing > b.Out: // more than is out is owed, and comes back with that
		f.wait = c.Limit.End(l.book.Now())
	default:
		f.wait, err = l.wait(ctx, c, b.Out, missing, w)
		if err != nil {
			return figures{}, err
		}
	}
	f.next, err = l.book.Next(ctx, c, b.Out) // behind the wait, which may have read what is out
	if err != nil {
		return figures{}, err
	}
	return f, nil
}

// wait returns the ledger's time at which the units are back that a charge lacks.
func (l *Limiter) wait(ctx context.Context, c accounts.Charge, out, missing uint64, w waits,
) (uint64, error) {
	if w == knownWaits {
		end, known := l.book.KnownWait(c, missing)
		if known {
			return end, nil
		}
	}
	return l.book.Wait(ctx, c, out, missing)
}
