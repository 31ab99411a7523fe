package accounts

import (
	"context"
	"fmt"
	"slices"

	"weir/ledgers"
)

// Bounds of the journal pages read to tell when units come back.
const (
	firstPage = 2 * maxLive
	maxPages  = 4
	// busy is the number of charges of one account from which on it is not worth while to read all
	// that are live whenever the first has come back.
	busy = 1024
)

// Balance is what a subject has on a limit, in the limit's units.
type Balance struct {
	// Quota is the target of the newest quota step, plus grants, less revocations; of a prepaid
	// balance it is all that was ever given, less what was taken back. At most [MaxQuota].
	Quota uint64
	// Used is what is taken now, of a prepaid balance all that was ever used; after a lowering it may
	// be above the quota.
	Used uint64
	// Remaining is quota less used, at least 0.
	Remaining uint64
	// Out is the part of Used that comes back by itself: all of it, or of a prepaid balance what
	// reservations hold.
	Out uint64
	// Margin is the part of the quota that has to stay free when a charge is made.
	Margin uint64
	// Owed is as of the charge that was asked about.
	Owed uint64
	// Overridden says that the subject has a quota of its own, not the config's.
	Overridden bool
}

// Balances reads the balances of the charges' accounts, in their order. A subject that was never
// seen has its full quota, and nothing is created for it. Amounts of the charges play no part.
func (b *Book) Balances(ctx context.Context, charges []Charge) ([]Balance, error) {
	ids := make([]ledgers.ID, len(charges))
	for i, c := range charges {
		ids[i] = c.account
	}
	found, err := b.driver.LookupAccounts(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("look up %d accounts: %w", len(ids), err)
	}
	if len(found) > 0 { // somebody will ask when units come back
		_, err = b.Time(ctx)
		if err != nil {
			return nil, err
		}
	}
	balances := make([]Balance, len(charges))
	for i, c := range charges {
		if len(found) == 0 || found[0].ID != c.account {
			balances[i] = Balance{
				Quota: c.Limit.Quota, Remaining: c.Limit.Quota, Margin: c.Limit.margin(c.Limit.Quota),
				Owed: c.Owed,
			}
			continue
		}
		newest, seen := c.standing.quota()
		if !seen {
			read, exists, err := b.newestStep(ctx, c.account)
			if err != nil {
				return nil, err
			}
			newest = read
			if !exists { // its owner has yet to send the first quota
				newest = step{target: c.Limit.Quota, revision: c.Limit.Revision}
			}
		}
		balances[i], err = b.balanceOf(ctx, found[0], newest, c.Limit)
		if err != nil {
			return nil, err
		}
		balances[i].Owed = c.Owed
		found = found[1:]
	}
	return balances, nil
}

// balanceOf works out a balance. What the account holds beyond the base of its quota steps are
// grants less revocations. A quota that the config has changed counts as changed, though the step
// may be yet to come.
func (b *Book) balanceOf(ctx context.Context, a ledgers.Account, newest step, limit Limit,
) (Balance, error) {
	target, _ := newest.wanted(limit, b.options.Shared)
	held := ledgers.SubtractFloor(a.CreditsPosted, a.DebitsPosted).Lo
	used := a.DebitsPending.Lo
	if limit.Posted {
		back, err := b.notUsed(ctx, a.ID)
		if err != nil {
			return Balance{}, err
		}
		used += ledgers.SubtractFloor(a.DebitsPosted, back).Lo
		held = ledgers.SubtractFloor(a.CreditsPosted, back).Lo
	}
	out := min(a.DebitsPending.Lo, MaxQuota)
	quota := uint64(max(0, int64(target)+int64(held)-int64(newest.base)))
	// A quota that the config raised may pass, with grants from before, what answers can carry.
	quota, used = min(quota, MaxQuota), min(used, MaxQuota)
	return Balance{
		Quota: quota, Used: used, Out: out, Remaining: quota - min(quota, used),
		Margin:     limit.margin(target),
		Overridden: newest.source == sourceOverride,
	}, nil
}

// notUsed returns what left an account without being used, of the newest [ledgers.MaxEvents] of
// each way: by revocations and lowered quotas, and what was taken by mistake and paid back. A
// prepaid balance's posted debits have all of it in them.
func (b *Book) notUsed(ctx context.Context, account ledgers.ID) (ledgers.Amount, error) {
	var sum ledgers.Amount
	for _, way := range []ledgers.AccountFilter{
		{Code: CodeRevocation, Debits: true}, {Code: CodeRequota, Debits: true},
		{Code: CodeCharge, Credits: true},
	} {
		way.AccountID, way.Limit, way.Reversed = account, ledgers.MaxEvents, true
		list, err := b.driver.AccountTransfers(ctx, way)
		if err != nil {
			return sum, fmt.Errorf("what was taken back from account %s: %w", account, err)
		}
		for _, t := range list {
			sum, _ = ledgers.Sum(sum, t.Amount)
		}
	}
	return sum, nil
}

// Next returns the ledger's time at which the next unit of the charge's account comes back, 0 if
// none is out. Used is the Out of a balance read just now.
func (b *Book) Next(ctx context.Context, c Charge, used uint64) (uint64, error) {
	c.standing.mu.Lock()
	end, known := c.standing.live.next(b.Now())
	c.standing.mu.Unlock()
	if known && end > 0 {
		return end, nil
	}
	if used == 0 {
		return 0, nil
	}
	found, err := b.readFirst(ctx, c, used)
	if err != nil {
		return 0, err
	}
	end, known = found.live.next(found.at)
	return found.known(end, known), nil
}

// readFirst reads the live charges that come back first, once for all who ask at the same time: of
// a busy account hundreds may.
func (b *Book) readFirst(ctx context.Context, c Charge, used uint64) (reading, error) {
	shared := b.reads.DoChan(c.account.String(), func() (any, error) {
		return b.readLive(ctx, c, used, true)
	})
	select {
	case result := <-shared:
		found, _ := result.Val.(reading)
		return found, result.Err
	case <-ctx.Done():
		return reading{}, fmt.Errorf("live charges of account %s: %w", c.account, ctx.Err())
	}
}

// Wait returns the ledger's time from which need units of the charge's account will have come back.
// Used is the Out of a balance read just now. Where the time cannot be told by reading a
// bounded number of pages, the answer is one by which they surely will be back.
//
// On a shared ledger it is read anew: other nodes may have given back what this one remembers to be
// out, and taken other units that come back later.
func (b *Book) Wait(ctx context.Context, c Charge, used, need uint64) (uint64, error) {
	end, known := b.KnownWait(c, need)
	if known && !b.options.Shared {
		return end, nil
	}
	found, err := b.readLive(ctx, c, used, false)
	if err != nil {
		return 0, err
	}
	if found.back >= need {
		return 0, nil
	}
	end, known = found.live.free(found.at, need-found.back)
	return found.known(end, known), nil
}

// KnownWait is [Book.Wait] as far as this book remembers, without reading; false where it does not.
func (b *Book) KnownWait(c Charge, need uint64) (end uint64, known bool) {
	c.standing.mu.Lock()
	defer c.standing.mu.Unlock()
	return c.standing.live.free(b.Now(), need)
}

// reading is what the journal says of an account's live charges.
type reading struct {
	live live
	at   uint64 // ledger time
	back uint64 // units that came back since the balance was read
	// longest window that is known, in nanoseconds: of now, or of a charge from before it was changed
	longest uint64
}

// known returns an end, or where it is not known one by which all is surely back: what was not read
// may have been charged just now, under the longest window that any charge was read to have.
func (r reading) known(end uint64, known bool) uint64 {
	if known {
		return end
	}
	return r.at + r.longest
}

// readLive reads the live charges from the journal and remembers those that come back first. Where
// only the first is asked for, of a busy account a page that has any will do: those that were
// charged first count as the first to come back.
func (b *Book) readLive(ctx context.Context, c Charge, used uint64, first bool) (reading, error) {
	c.standing.mu.Lock()
	charges := c.standing.live.charges
	c.standing.mu.Unlock()
	now := b.Now()
	first = first && charges > busy
	window := c.Limit.window()
	reader := liveReader{ended: make(map[ledgers.ID]bool)}
	filter := ledgers.AccountFilter{
		AccountID: c.account, Debits: true, Limit: firstPage,
		TimestampMin: now - min(now, window) + 1,
	}
	all, err := b.readPages(ctx, filter, &reader, func() bool {
		outs, _ := reader.live(now)
		return first && len(outs) > 0
	})
	if err != nil {
		return reading{}, err
	}
	outs, sum := reader.live(now)
	// The rest is held without a window, or was charged when the window was longer.
	if sum < used && (all || !first || len(outs) == 0) {
		older := filter
		older.TimestampMin, older.TimestampMax, older.Reversed = 0, filter.TimestampMin-1, true
		rest, err := b.readPages(ctx, older, &reader, func() bool {
			_, sum := reader.live(now) // ends come before what they end
			return sum >= used
		})
		if err != nil {
			return reading{}, err
		}
		all = all && rest
		outs, sum = reader.live(now)
	}
	found := reading{
		at: now, live: live{outs: outs, complete: all || sum >= used},
		longest: max(window, reader.longest()),
	}
	if all {
		found.back = used - min(used, sum)
	}
	c.standing.mu.Lock()
	defer c.standing.mu.Unlock()
	remembered := live{
		outs: slices.Clone(outs[:min(len(outs), maxLive)]), charges: c.standing.live.charges,
	}
	remembered.complete = found.live.complete && len(outs) <= maxLive &&
		remembered.charges == charges
	c.standing.live = remembered
	return found, nil
}

// readPages reads at most maxPages pages, or until that is enough, and reports whether that was
// all.
func (b *Book) readPages(ctx context.Context, filter ledgers.AccountFilter, reader *liveReader,
	enough func() bool,
) (all bool, err error) {
	for range maxPages {
		page, err := b.driver.AccountTransfers(ctx, filter)
		if err != nil {
			return false, fmt.Errorf("live charges of account %s: %w", filter.AccountID, err)
		}
		reader.read(page)
		if len(page) < int(filter.Limit) {
			return true, nil
		}
		if enough != nil && enough() {
			return false, nil
		}
		last := page[len(page)-1].Timestamp
		if filter.Reversed {
			filter.TimestampMax = last - 1
		} else {
			filter.TimestampMin = last + 1
		}
		filter.Limit = ledgers.MaxEvents
	}
	return false, nil
}

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
	// Overage is how many units were used besides the amount that the quota did not have.
	Overage uint64
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
	if t.Code == CodeOverage && t.UserData64 > e.Amount {
		e.Overage = t.UserData64 - e.Amount
	}
	return e
}
