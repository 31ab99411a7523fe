package accounts

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"weir/ledgers"
)

const (
	// maxCharges is the most accounts that one request takes units from.
	maxCharges = 16
	// maxTrail bounds how many replacements of one chain are followed, and trailStep how many of
	// them one look-up asks for once there is one.
	maxTrail  = 4096
	trailStep = 32
)

// replacement is the first transfer of what took a pending transfer's place.
func (ns Namespace) replacement(pending ledgers.ID) ledgers.ID {
	return ns.MemberTransfer(ns.EndTransfer(pending), 1)
}

// trail is what became of an accepted chain.
type trail struct {
	// firsts are the first transfers of the chain as it was made and of each that took its place:
	// a renewed hold, a charge whose time-out was put right.
	firsts []ledgers.Transfer
	// ends are what ended each of them; the newest has none if it was not ended.
	ends []ledgers.Transfer
}

func (t trail) newest() *ledgers.Transfer { return &t.firsts[len(t.firsts)-1] }
func (t trail) ended() bool               { return len(t.ends) == len(t.firsts) }

// trail follows a chain from its first transfer to what took its place last, false if there is no
// such chain.
func (b *Book) trail(ctx context.Context, first ledgers.ID) (trail, bool, error) {
	var t trail
	next := first
	for step := 1; len(t.firsts) < maxTrail; step = trailStep {
		ids := make([]ledgers.ID, 0, 2*step+1)
		id := next
		for range step {
			end := b.namespace.EndTransfer(id)
			ids = append(ids, id, end)
			id = b.namespace.MemberTransfer(end, 1)
		}
		found, err := b.lookup(ctx, append(ids, id))
		if err != nil {
			return trail{}, false, err
		}
		for range step {
			f, ok := found[next]
			if !ok || len(t.firsts) > 0 && !takesUnits(f) {
				return t, len(t.firsts) > 0, nil
			}
			t.firsts = append(t.firsts, f)
			end, ended := found[b.namespace.EndTransfer(next)]
			if !ended {
				return t, true, nil
			}
			t.ends = append(t.ends, end)
			next = b.namespace.replacement(next)
		}
		f, ok := found[next]
		if !ok || !takesUnits(f) {
			return t, true, nil
		}
	}
	return trail{}, false, fmt.Errorf("%w: %s", ErrFarBehind, first)
}

// takesUnits reports whether a transfer is what a check or a reservation took.
func takesUnits(t ledgers.Transfer) bool { return t.Code == CodeCharge || t.Code == CodeHold }

// lookup reads transfers by their ids.
func (b *Book) lookup(ctx context.Context, ids []ledgers.ID,
) (map[ledgers.ID]ledgers.Transfer, error) {
	list, err := b.driver.LookupTransfers(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("look up transfer %s and its ends: %w", ids[0], err)
	}
	found := make(map[ledgers.ID]ledgers.Transfer, len(list))
	for _, t := range list {
		found[t.ID] = t
	}
	return found, nil
}

// Recall tells what became of an attempt, by one look-up of its first transfer and what took its
// place: false if nothing of it was ever accepted. It writes nothing.
func (b *Book) Recall(ctx context.Context, a Attempt) (Result, bool, error) {
	now, err := b.Time(ctx)
	if err != nil {
		return Result{}, false, err
	}
	t, found, err := b.trail(ctx, a.First)
	if err != nil || !found {
		return Result{}, false, err
	}
	first, newest := t.firsts[0], t.newest()
	result := Result{Outcome: Replayed, Transfer: first.ID, Timestamp: first.Timestamp}
	if newest.Code == CodeHold {
		result.Transfer, result.ExpiresAt = newest.ID, newest.ExpiresAt()
	}
	switch {
	case first.UserData128 != a.fingerprint:
		result.Outcome = Conflict
	case t.ended():
		result.Outcome = Ended
	case newest.Timeout > 0 && now >= newest.ExpiresAt():
		result.Outcome = Expired
	}
	return result, true, nil
}

// Hold is what a reservation or a check took, as its receipt tells it on any node.
type Hold struct {
	// First is the newest receipt: the one asked for, or that of its newest renewal.
	First ledgers.ID
	// Charges are what is held, sorted by account, with the amounts. A check's do not name the subject
	// if this book has not met it.
	Charges []Charge
	// At is the ledger's time at which it was made or last renewed, and ExpiresAt the one at which it
	// comes back by itself, 0 for never.
	At, ExpiresAt uint64
	// Check says that it is a check's.
	Check bool
	// Notes are those of the attempt that made it; see [Book.WithNotes].
	Notes []Note

	asked   ledgers.ID         // the receipt asked for
	renewed ledgers.Amount     // what the receipt asked for was renewed by, zero if it was not
	end     *ledgers.Transfer  // what ended the newest, nil if nothing did
	members []ledgers.Transfer // one for each charge
	noteAt  int                // the member on whose account the notes are
}

// Receipt returns the receipt to answer with: the newest, or a check's own, which stays the same
// although what it took may have been taken anew for another time-out.
func (h Hold) Receipt() ledgers.ID {
	if h.Check {
		return h.asked
	}
	return h.First
}

// Hold finds what a receipt stands for, false if it is nobody's. The limits are found by the
// numbers of their ledgers; where one of them is not, the error is [ErrUnknownLimit].
func (b *Book) Hold(ctx context.Context, receipt ledgers.ID,
	limitOn func(ledger uint32) (Limit, bool),
) (Hold, bool, error) {
	t, found, err := b.trail(ctx, receipt)
	if err != nil || !found || !takesUnits(t.firsts[0]) || t.firsts[0].UserData128.IsZero() {
		return Hold{}, false, err
	}
	newest := t.newest()
	h := Hold{
		First: newest.ID, At: newest.Timestamp, ExpiresAt: newest.ExpiresAt(),
		Check: newest.Code == CodeCharge, asked: receipt,
	}
	if t.ended() {
		h.end = &t.ends[len(t.ends)-1]
	}
	if newest.ID != receipt {
		h.renewed = t.ends[0].UserData128
	}
	made := t.firsts[0]
	memberIDs := b.namespace.memberIDs(newest.ID)
	chain, err := b.lookup(ctx, slices.Concat(memberIDs, b.namespace.noteIDs(made.ID)))
	if err != nil {
		return Hold{}, false, err
	}
	h.members = membersIn(chain, *newest, memberIDs)
	h = h.withNotes(b.namespace.notesIn(chain, made.ID))
	if h.Check && len(t.firsts) > 1 {
		members, err := b.members(ctx, made)
		if err != nil {
			return Hold{}, false, err
		}
		for _, m := range members { // what was booked for good did not move with the rest
			if !m.Flags.Has(ledgers.Pending) {
				h.members = append(h.members, m)
			}
		}
	}
	for _, m := range h.members {
		limit, ok := limitOn(m.Ledger)
		if !ok {
			return Hold{}, false, fmt.Errorf("%w: its ledger is %d", ErrUnknownLimit, m.Ledger)
		}
		subject, err := b.subject(ctx, m.DebitAccountID)
		if err != nil {
			return Hold{}, false, err
		}
		if subject != "" && b.namespace.UserAccount(limit.Name, subject) != m.DebitAccountID {
			return Hold{}, false, fmt.Errorf("%w: account %s is not that of %q on limit %q",
				ErrStatus, m.DebitAccountID, subject, limit.Name)
		}
		c := Charge{
			Limit: limit, Subject: subject, Amount: m.Amount.Lo, account: m.DebitAccountID,
			standing: &standing{operator: b.namespace.OperatorAccount(limit.Name)},
		}
		if subject != "" { // else the books have not met the account, and have nothing to remember
			c.standing = b.standing(c.account, limit.Name, subject)
		}
		h.Charges = append(h.Charges, c)
	}
	return h, true, nil
}

// members returns the transfers of a chain that take units. Guards stand behind them.
func (b *Book) members(ctx context.Context, first ledgers.Transfer) ([]ledgers.Transfer, error) {
	ids := b.namespace.memberIDs(first.ID)
	found, err := b.lookup(ctx, ids)
	if err != nil {
		return nil, err
	}
	return membersIn(found, first, ids), nil
}

// membersIn picks the transfers of a chain that take units out of what a look-up found.
func membersIn(found map[ledgers.ID]ledgers.Transfer, first ledgers.Transfer, ids []ledgers.ID,
) []ledgers.Transfer {
	members := []ledgers.Transfer{first}
	for _, id := range ids {
		m, ok := found[id]
		if !ok || m.Code != first.Code {
			break
		}
		members = append(members, m)
	}
	return members
}

// Booked reports whether some of it was booked for good, which only checks are.
func (h Hold) Booked() bool {
	return slices.ContainsFunc(h.members, func(m ledgers.Transfer) bool {
		return !m.Flags.Has(ledgers.Pending)
	})
}

// Release gives back what is held, all of it. Of a check whose windows differ, it is what is still
// out. The outcome is Replayed where it was released before, Ended where something else ended it,
// Expired where it came back by itself, and Moved where it was renewed since the hold was read.
func (b *Book) Release(ctx context.Context, h Hold) (Result, error) {
	result, _, err := b.finish(ctx, h, b.namespace.fingerprint("release", nil, h.First.String()), nil)
	return result, err
}

// Renew holds the same for some seconds from now on. The result's transfer is the new receipt;
// whoever has an older one is led to it.
func (b *Book) Renew(ctx context.Context, h Hold, seconds uint32) (Result, error) {
	given := strconv.FormatUint(uint64(seconds), 10)
	again := b.namespace.fingerprint("renew", nil, h.asked.String(), given)
	if h.renewed == again && h.end == nil {
		now, err := b.Time(ctx)
		if err != nil || now >= h.ExpiresAt {
			return Result{Outcome: Expired}, err
		}
		return Result{
			Outcome: Replayed, Transfer: h.First, Timestamp: h.At, ExpiresAt: h.ExpiresAt,
		}, nil
	}
	first := b.namespace.replacement(h.First)
	holds := make([]ledgers.Transfer, len(h.Charges))
	for k, c := range h.Charges {
		holds[k] = pending(c, c.Amount, CodeHold, b.member(first, k))
		holds[k].Timeout = seconds
	}
	holds[0].UserData128 = h.members[0].UserData128
	result, results, err := b.finish(ctx, h,
		b.namespace.fingerprint("renew", nil, h.First.String(), given), holds)
	if err != nil || result.Outcome != Accepted {
		return result, err
	}
	made := holds[0]
	made.Timestamp = results[len(h.members)].Timestamp
	return Result{Transfer: first, Timestamp: made.Timestamp, ExpiresAt: made.ExpiresAt()}, nil
}

// finish ends what a hold holds, in one step with what takes its place. Whatever ends it has the
// same ids, and carries what asked for it: the first that comes counts, and is told from the
// others.
func (b *Book) finish(ctx context.Context, h Hold, by ledgers.Amount, instead []ledgers.Transfer,
) (Result, []ledgers.TransferResult, error) {
	if h.end != nil {
		return h.endedBy(*h.end, by), nil, nil
	}
	now, err := b.Time(ctx)
	if err != nil {
		return Result{}, nil, err
	}
	var living []ledgers.Transfer
	for _, m := range h.members {
		switch {
		case !m.Flags.Has(ledgers.Pending): // booked for good
			return Result{Outcome: Ended, Transfer: h.First, Timestamp: m.Timestamp}, nil, nil
		case !h.Check || now < m.ExpiresAt(): // of a hold, the ledger knows best
			living = append(living, m)
		}
	}
	if len(living) == 0 || len(instead) > 0 && len(living) < len(h.members) {
		return Result{Outcome: Expired, Transfer: h.First}, nil, nil
	}
	batch := append(b.voids(living, by), instead...)
	link(batch)
	results, err := b.createTransfers(ctx, batch)
	if err != nil {
		forget(h.Charges)
		return Result{}, nil, err
	}
	failed := failedAt(results)
	if failed < 0 {
		h.back(instead, results[len(living):])
		return Result{Transfer: h.First, Timestamp: results[0].Timestamp}, results, nil
	}
	switch status := results[failed].Status; {
	case failed >= len(living):
		return Result{}, nil, unexpected(status, batch[failed])
	case status == ledgers.TransferPendingTransferExpired:
		return Result{Outcome: Expired, Transfer: h.First}, nil, nil
	case status.Exists():
		result, err := b.overtaken(ctx, h, batch[failed].ID, by)
		return result, nil, err
	default:
		return Result{}, nil, unexpected(status, batch[failed])
	}
}

// back notes that what a hold held is back, and what was taken in the same step.
func (h Hold) back(instead []ledgers.Transfer, results []ledgers.TransferResult) {
	for i, c := range h.Charges {
		c.standing.mu.Lock()
		c.standing.live.remove(h.members[i].ExpiresAt())
		for k, t := range instead {
			if t.DebitAccountID != c.account || t.Timeout == 0 {
				continue
			}
			if t.Flags.Has(ledgers.BalancingDebit) { // the ledger knows how much
				c.standing.live = live{charges: c.standing.live.charges + 1}
				continue
			}
			t.Timestamp = results[k].Timestamp
			c.standing.live.add(out{end: t.ExpiresAt(), amount: t.Amount.Lo})
		}
		c.standing.mu.Unlock()
	}
}

// overtaken tells what another call has made of a hold since it was read.
func (b *Book) overtaken(ctx context.Context, h Hold, end ledgers.ID, by ledgers.Amount,
) (Result, error) {
	instead := b.namespace.replacement(h.First)
	found, err := b.lookup(ctx, []ledgers.ID{end, instead})
	if err != nil {
		return Result{}, err
	}
	if takesUnits(found[instead]) {
		return Result{Outcome: Moved, Transfer: instead}, nil
	}
	return h.endedBy(found[end], by), nil
}

// endedBy tells a call that is sent again from one that came too late.
func (h Hold) endedBy(end ledgers.Transfer, by ledgers.Amount) Result {
	result := Result{Outcome: Ended, Transfer: h.First, Timestamp: end.Timestamp}
	if end.UserData128 == by {
		result.Outcome = Replayed
	}
	return result
}

// voids give back pending transfers, which have to be known to exist: the end of one that is not
// there would burn the end's id.
func (b *Book) voids(pendings []ledgers.Transfer, by ledgers.Amount) []ledgers.Transfer {
	voids := make([]ledgers.Transfer, len(pendings))
	for i, p := range pendings {
		voids[i] = ledgers.Transfer{
			ID: b.namespace.EndTransfer(p.ID), PendingID: p.ID, UserData128: by,
			Ledger: p.Ledger, Code: p.Code, Flags: ledgers.VoidPending,
		}
	}
	return voids
}

// link makes a batch one chain.
func link(batch []ledgers.Transfer) {
	for i := range batch[:len(batch)-1] {
		batch[i].Flags |= ledgers.Linked
	}
}

// unexpected is the error for an answer that the books have no use for.
func unexpected(status ledgers.TransferStatus, t ledgers.Transfer) error {
	return fmt.Errorf("%w: %s for transfer %s", ErrStatus, status, t.ID)
}
