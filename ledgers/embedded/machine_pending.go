package embedded

import (
	"slices"

	"weir/ledgers"
)

// endPending posts or voids a pending transfer.
func (m *machine) endPending(t *ledgers.Transfer, timestamp uint64) ledgers.TransferStatus {
	status := checkEnding(t)
	if status != ledgers.TransferCreated {
		return status
	}
	pending, presence := m.transfer(t.PendingID)
	if presence != found {
		return ledgers.TransferPendingTransferNotFound
	}
	created := completeEnding(t, &pending)
	created.Timestamp = timestamp
	status = m.checkPending(&created, &pending, timestamp)
	if status != ledgers.TransferCreated {
		return status
	}
	void := t.Flags.Has(ledgers.VoidPending)
	debit, credit := m.account(pending.DebitAccountID), m.account(pending.CreditAccountID)
	switch {
	case debit == nil || credit == nil:
		// The store has failed; the group will be discarded.
		return ledgers.TransferPendingTransferNotFound
	case !void && debit.Flags&ledgers.AccountClosed != 0:
		return ledgers.TransferDebitAccountAlreadyClosed
	case !void && credit.Flags&ledgers.AccountClosed != 0:
		return ledgers.TransferCreditAccountAlreadyClosed
	}
	how := endingPosted
	if void {
		how = endingVoided
	}
	m.addTransfer(&created)
	m.addEnding(endingChange{
		pendingTimestamp: pending.Timestamp, end: pending.ExpiresAt(),
		timestamp: timestamp, how: how,
	})
	m.change(debit)
	m.change(credit)
	applyEnding(&created, &pending, &debit.Account, debitSide)
	applyEnding(&created, &pending, &credit.Account, creditSide)
	return ledgers.TransferCreated
}

// checkEnding makes the checks that need no pending transfer.
func checkEnding(t *ledgers.Transfer) ledgers.TransferStatus {
	const others = ledgers.Pending | ledgers.BalancingDebit | ledgers.BalancingCredit |
		ledgers.ClosingDebit | ledgers.ClosingCredit
	switch {
	case t.Flags.Has(ledgers.PostPending | ledgers.VoidPending), t.Flags&others != 0:
		return ledgers.TransferFlagsAreMutuallyExclusive
	case t.PendingID.IsZero():
		return ledgers.TransferPendingIDMustNotBeZero
	case t.PendingID == ledgers.MaxID:
		return ledgers.TransferPendingIDMustNotBeIntMax
	case t.PendingID == t.ID:
		return ledgers.TransferPendingIDMustBeDifferent
	case t.Timeout != 0:
		return ledgers.TransferTimeoutReservedForPendingTransfer
	}
	return ledgers.TransferCreated
}

// completeEnding returns a post or a void with the fields that it leaves to its pending transfer.
func completeEnding(t, pending *ledgers.Transfer) ledgers.Transfer {
	full := *t
	if t.DebitAccountID.IsZero() {
		full.DebitAccountID = pending.DebitAccountID
	}
	if t.CreditAccountID.IsZero() {
		full.CreditAccountID = pending.CreditAccountID
	}
	void := t.Flags.Has(ledgers.VoidPending)
	if void && t.Amount.IsZero() || !void && t.Amount == ledgers.MaxAmount {
		full.Amount = pending.Amount
	}
	if t.UserData128.IsZero() {
		full.UserData128 = pending.UserData128
	}
	if t.UserData64 == 0 {
		full.UserData64 = pending.UserData64
	}
	if t.UserData32 == 0 {
		full.UserData32 = pending.UserData32
	}
	if t.Ledger == 0 {
		full.Ledger = pending.Ledger
	}
	if t.Code == 0 {
		full.Code = pending.Code
	}
	return full
}

// checkPending compares a complete post or void with its pending transfer.
func (m *machine) checkPending(
	t, pending *ledgers.Transfer, timestamp uint64,
) ledgers.TransferStatus {
	end := pending.ExpiresAt()
	switch {
	case !pending.Flags.Has(ledgers.Pending):
		return ledgers.TransferPendingTransferNotPending
	case t.DebitAccountID != pending.DebitAccountID:
		return ledgers.TransferPendingTransferHasDifferentDebitAccountID
	case t.CreditAccountID != pending.CreditAccountID:
		return ledgers.TransferPendingTransferHasDifferentCreditAccountID
	case t.Ledger != pending.Ledger:
		return ledgers.TransferPendingTransferHasDifferentLedger
	case t.Code != pending.Code:
		return ledgers.TransferPendingTransferHasDifferentCode
	case t.Amount.Cmp(pending.Amount) > 0:
		return ledgers.TransferExceedsPendingTransferAmount
	case t.Flags.Has(ledgers.VoidPending) && t.Amount != pending.Amount:
		return ledgers.TransferPendingTransferHasDifferentAmount
	}
	switch m.ending(pending.Timestamp) {
	case endingPosted:
		return ledgers.TransferPendingTransferAlreadyPosted
	case endingVoided:
		return ledgers.TransferPendingTransferAlreadyVoided
	}
	if end != 0 && end <= timestamp {
		return ledgers.TransferPendingTransferExpired
	}
	return ledgers.TransferCreated
}

// applyEnding books a post or a void on one of its accounts.
func applyEnding(t, pending *ledgers.Transfer, a *ledgers.Account, s side) {
	releasePending(pending.Amount, pending.Flags, a, s, t.Flags.Has(ledgers.VoidPending))
	if t.Flags.Has(ledgers.PostPending) {
		posted := s.postedOf(a)
		*posted = posted.Add(t.Amount)
	}
}

// releasePending takes a pending amount off one of its accounts; a void or an expiry also opens the
// account again if the pending transfer had closed it.
func releasePending(
	amount ledgers.Amount, flags ledgers.TransferFlags, a *ledgers.Account, s side, reopen bool,
) {
	pending := s.pendingOf(a)
	*pending = pending.Sub(amount)
	if reopen && s.closes(flags) {
		a.Flags &^= ledgers.AccountClosed
	}
}

// defaultLiveInMemory bounds the live pending transfers kept in memory (72 bytes each).
const defaultLiveInMemory = 1 << 18

// liveSteps is how many steps it takes to expire as many pending transfers as are kept in memory.
const liveSteps = 8

// liveKey orders live pending transfers by their end.
type liveKey struct {
	end, timestamp uint64
}

func (k liveKey) before(other liveKey) bool {
	return k.end < other.end || k.end == other.end && k.timestamp < other.timestamp
}

// livePending is what the expiry of a pending transfer needs to know.
type livePending struct {
	liveKey
	debit, credit ledgers.ID
	amount        ledgers.Amount
	flags         ledgers.TransferFlags
}

// liveSet holds the live pending transfers that end first: all whose key is before horizon. The
// others are in the store alone until the clock comes near them.
type liveSet struct {
	queue   liveQueue
	horizon liveKey
	// ended holds the timestamps of queued transfers that were posted or voided since.
	ended map[uint64]struct{}
	// through is the ledger time up to which everything has been expired.
	through uint64
	limit   int
}

// startLive starts from what the store has beyond the ledger time through.
func startLive(through uint64, limit int) liveSet {
	return liveSet{
		horizon: liveKey{end: through + 1},
		ended:   map[uint64]struct{}{},
		through: through,
		limit:   limit,
	}
}

// expire takes off the accounts whatever has timed out at the ledger time now. It costs nothing
// unless something has.
func (m *machine) expire(now uint64) {
	for m.expireStep(now) {
	}
}

// expireStep expires what has timed out at the ledger time now, but not much more than a step of
// it, and reports whether there is more. What has timed out by live.through is off then.
func (m *machine) expireStep(now uint64) (more bool) {
	l := &m.live
	if now <= l.through {
		return false
	}
	step, expired := max(l.limit/liveSteps, 1), uint64(0)
	for n := 0; ; n++ {
		for len(l.queue) == 0 && l.horizon.end <= now {
			m.refill()
		}
		if len(l.queue) == 0 || l.queue[0].end > now {
			break
		}
		if n >= step && l.queue[0].end > expired {
			l.through = expired
			return true
		}
		p := l.queue.pop()
		m.expireOne(&p)
		expired = p.end
	}
	l.through = now
	return false
}

// refill reads the next live pending transfers from the store.
func (m *machine) refill() {
	l := &m.live
	n := max(l.limit/2, 1)
	l.queue = append(l.queue, m.store.livePendings(l.horizon, n)...)
	if len(l.queue) < n {
		l.horizon = liveKey{end: endOfTime}
		return
	}
	last := l.queue[len(l.queue)-1].liveKey
	l.horizon = liveKey{end: last.end, timestamp: last.timestamp + 1}
}

func (m *machine) expireOne(p *livePending) {
	_, ended := m.live.ended[p.timestamp]
	if ended {
		delete(m.live.ended, p.timestamp)
		return
	}
	_, ended = m.changes.endingByPending[p.timestamp]
	if ended {
		return
	}
	m.changes.expired++
	m.release(p, p.debit, debitSide)
	m.release(p, p.credit, creditSide)
}

// release takes an expired pending transfer off one of its accounts. An account that is not in
// memory is not read for that: what is stored of it holds everything that came before.
func (m *machine) release(p *livePending, id ledgers.ID, s side) {
	a := m.store.cached(id)
	switch {
	case a == nil && m.recovering:
		a = m.account(id)
	case a == nil:
		r := m.changes.absent[id]
		r.add(p, s)
		m.changes.absent[id] = r
		return
	}
	if a == nil || p.end <= a.asOf {
		return
	}
	m.change(a)
	releasePending(p.amount, p.flags, &a.Account, s, true)
}

// absorb takes in the pending transfers that a group has made and ended.
func (l *liveSet) absorb(c *changes) {
	for _, e := range c.endings {
		key := liveKey{end: e.end, timestamp: e.pendingTimestamp}
		if e.end > l.through && key.before(l.horizon) {
			l.ended[e.pendingTimestamp] = struct{}{}
		}
	}
	for i := range c.transfers {
		t := &c.transfers[i]
		if !t.Flags.Has(ledgers.Pending) || t.Timeout == 0 {
			continue
		}
		key := liveKey{end: t.ExpiresAt(), timestamp: t.Timestamp}
		if !key.before(l.horizon) {
			continue
		}
		l.queue.push(livePending{
			liveKey: key, debit: t.DebitAccountID, credit: t.CreditAccountID,
			amount: t.Amount, flags: t.Flags,
		})
	}
	l.shrink()
}

// shrink leaves the later half to the store once there are too many.
func (l *liveSet) shrink() {
	if len(l.queue) <= l.limit {
		return
	}
	slices.SortFunc(l.queue, func(a, b livePending) int {
		if a.before(b.liveKey) {
			return -1
		}
		return 1
	})
	keep := max(l.limit/2, 1)
	l.horizon = l.queue[keep].liveKey
	for i := range l.queue[keep:] {
		delete(l.ended, l.queue[keep+i].timestamp)
	}
	l.queue = l.queue[:keep]
}

// liveQueue is a heap by end. Ends mostly come in order, so a push seldom moves anything.
type liveQueue []livePending

func (q *liveQueue) push(p livePending) {
	*q = append(*q, p)
	h := *q
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !p.before(h[parent].liveKey) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = p
}

// pop takes the first off a queue that is not empty.
func (q *liveQueue) pop() livePending {
	h := *q
	first, moved := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*q = h
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child].liveKey) {
			child++
		}
		if !h[child].before(moved.liveKey) {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = moved
	}
	return first
}
