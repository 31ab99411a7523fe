package accounts

import (
	"context"
	"fmt"

	"weir/ledgers"
)

// MaxPage is the most entries that one page of a journal holds.
const MaxPage = 1000

// Entry is one line of a subject's journal.
type Entry struct {
	// Timestamp is the ledger's time in nanoseconds since 1970; no two entries share one.
	Timestamp uint64
	Transfer  ledgers.ID
	// Kind is the word for the transfer's code: quota, requota, grant, revocation, charge, guard or
	// overage.
	Kind string
	// Credit says that the subject got the amount; else it gave it.
	Credit bool
	Amount uint64
	// Pending says that the amount was reserved. ExpiresAt is the ledger's time at which it comes
	// back by itself, 0 for never.
	Pending   bool
	ExpiresAt uint64
	// Ends is the pending transfer that this entry gave back, or zero.
	Ends ledgers.ID
}

// Page is a part of a journal, in the order asked for.
type Page struct {
	Entries []Entry
	// Next is where the following page starts, 0 if this is the last.
	Next uint64
}

// Journal reads the entries of the charge's account from the cursor on, the newest first if
// reversed. A zero cursor starts at the beginning (or the end); limit is at most [MaxPage].
func (b *Book) Journal(ctx context.Context, c Charge, cursor uint64, reversed bool, limit int,
) (Page, error) {
	limit = min(limit, MaxPage)
	filter := ledgers.AccountFilter{
		AccountID: c.account, Limit: uint32(limit) + 1, Debits: true, Credits: true, Reversed: reversed,
	}
	if reversed {
		filter.TimestampMax = cursor
	} else {
		filter.TimestampMin = cursor
	}
	transfers, err := b.driver.AccountTransfers(ctx, filter)
	if err != nil {
		return Page{}, fmt.Errorf("journal of account %s: %w", c.account, err)
	}
	var page Page
	if len(transfers) > limit {
		page.Next = transfers[limit].Timestamp
		transfers = transfers[:limit]
	}
	page.Entries = make([]Entry, len(transfers))
	for i, t := range transfers {
		page.Entries[i] = entryOf(t, c.account)
	}
	return page, nil
}

func entryOf(t ledgers.Transfer, account ledgers.ID) Entry {
	kind, known := codeNames[t.Code]
	if !known {
		kind = fmt.Sprintf("code %d", t.Code)
	}
	e := Entry{
		Timestamp: t.Timestamp,
		Transfer:  t.ID,
		Kind:      kind,
		Credit:    t.CreditAccountID == account,
		Amount:    t.Amount.Lo,
		Pending:   t.Flags.Has(ledgers.Pending),
		Ends:      t.PendingID,
	}
	if e.Pending {
		e.ExpiresAt = t.ExpiresAt()
	}
	return e
}
