package limiter

import (
	"context"
	"time"

	"weir/accounts"
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
	read, err := l.read(ctx, []charge{c}, false)
	if err != nil {
		return Balance{}, failure(err)
	}
	overage, err := l.book.Overage(ctx, c.Charge)
	if err != nil {
		return Balance{}, failure(err)
	}
	s := state(c, read[0], l.book.Now())
	return Balance{
		Limit: limit, Subject: subject, Quota: s.Quota, Used: read[0].Used, Remaining: s.Remaining,
		Overage: overage, Window: s.Window, Reset: s.Reset, ResetsAt: s.ResetsAt,
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
