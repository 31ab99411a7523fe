package accounts

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"weir/ledgers"
)

// Charge is what one request takes from one account. [Book.NewCharge] makes it.
type Charge struct {
	Limit   Limit
	Subject string
	// Amount of units to take; with 0 the account only has to have a unit left.
	Amount uint64
	// Owed units have to stay free beside the limit's margin: what was used beyond the quota, where
	// that counts. See [Book.Overages].
	Owed uint64
	// Aside says that the request names the account, so that it counts for the id and for what the
	// id stands for, but nothing is taken from it here.
	Aside bool

	account  ledgers.ID
	standing *standing
}

// NewCharge names amount units of a subject on a limit.
func (b *Book) NewCharge(limit Limit, subject string, amount uint64) Charge {
	account := b.namespace.UserAccount(limit.Name, subject)
	return Charge{
		Limit: limit, Subject: subject, Amount: amount,
		account: account, standing: b.standing(account, limit.Name, subject),
	}
}

// Account returns the id of the user account.
func (c Charge) Account() ledgers.ID { return c.account }

// Outcome says what became of a request.
type Outcome int

const (
	// Accepted: it is done, now.
	Accepted Outcome = iota
	// Replayed: the same request under the same id was accepted before, and still stands.
	Replayed
	// Refused: an account has too little left, or the id was refused before. Nothing was changed.
	Refused
	// Conflict: the id was accepted with another request before. Nothing was changed.
	Conflict
	// Expired: the id was accepted, and what it took is back. Nothing was changed.
	Expired
	// Ended: the id was accepted, and what it took was given back or settled. Nothing was changed.
	Ended
	// TooLarge: the quota would pass [MaxQuota], or the money [MaxMoney]. Nothing was changed.
	TooLarge
	// Insufficient: the account that pays has too little money, or the id was refused for that
	// before. Nothing was changed.
	Insufficient
	// FromUnknown: the account that pays was never given money. The id may be sent again.
	FromUnknown
	// ToUnknown: the account that is paid was never given money. The id may be sent again.
	ToUnknown
	// Moved: the receipt was renewed after its [Hold] was read, which has to be read anew.
	Moved
	// Unsettled: the receipt's reservation was not settled, or without notes. Nothing was changed.
	Unsettled

	// again is never returned: another node's quota step got in between.
	again
)

// Result is the ledger's decision.
type Result struct {
	Outcome Outcome
	// Transfer is the first transfer, the receipt; zero if nothing was accepted.
	Transfer ledgers.ID
	// Timestamp is the ledger's time of the decision, for a replay of the first one's, in
	// nanoseconds since 1970.
	Timestamp uint64
	// ExpiresAt is the ledger's time at which a reservation comes back by itself, 0 for all else.
	ExpiresAt uint64
	// Refused is the index of the charge that was refused.
	Refused int
	// Burnt says that the id had been refused before; of a revocation, also that the ledger refuses
	// it from now on.
	Burnt bool
}

// Attempt is one try to take charges together. It has its id before anything is sent, so that what
// became of it can be found out afterwards.
type Attempt struct {
	// First is the id of the first transfer, the receipt if it is accepted.
	First ledgers.ID

	charges     []Charge // as they came
	sorted      []Charge // in the order of their accounts
	fingerprint ledgers.Amount
	hold        uint32 // seconds for which a reservation holds; 0 for a check
	keyed       bool   // a caller named it, and may send it again
	notes       []Note // kept on the account of the first charge
	// money is what a payment moves besides, last in the chain; it is then the first transfer.
	money *ledgers.Transfer
}

// NewAttempt prepares to take all charges, or none, but for those that are put aside. An account
// may be named once, and at least one amount that is taken is above 0. An empty id makes an attempt
// of its own each time; with an id, the same charges are the same attempt, in whichever order they
// come. What else was sent, if it says more than the charges, tells one request under the id from
// another.
func (b *Book) NewAttempt(id string, charges []Charge, sent ...string) (Attempt, error) {
	return b.newAttempt("check", id, Attempt{charges: charges}, sent...)
}

// NewHold prepares to reserve all charges, or none, for some seconds, at least one. See
// [Book.NewAttempt].
func (b *Book) NewHold(id string, charges []Charge, seconds uint32, sent ...string,
) (Attempt, error) {
	sent = append([]string{strconv.FormatUint(uint64(seconds), 10)}, sent...)
	return b.newAttempt("hold", id, Attempt{charges: charges, hold: seconds}, sent...)
}

// NewTrack prepares to book what was used already, by [Book.BookLate]. The id is required.
func (b *Book) NewTrack(id string, c Charge) (Attempt, error) {
	return b.newAttempt("track", id, Attempt{charges: []Charge{c}})
}

func (b *Book) newAttempt(kind, id string, a Attempt, sent ...string) (Attempt, error) {
	a.sorted = inOrder(a.charges)
	a.fingerprint = b.namespace.fingerprint(kind, a.sorted, sent...)
	if id != "" {
		a.First, a.keyed = b.namespace.attemptTransfer(kind, id, a.sorted), true
		return a.taking(), nil
	}
	first, err := NewTransfer()
	if err != nil {
		return Attempt{}, err
	}
	a.First = first
	return a.taking(), nil
}

// taking returns the attempt without the charges that are put aside.
func (a Attempt) taking() Attempt {
	aside := func(c Charge) bool { return c.Aside }
	if slices.ContainsFunc(a.charges, aside) {
		a.charges = slices.DeleteFunc(slices.Clone(a.charges), aside)
		a.sorted = inOrder(a.charges)
	}
	return a
}

// Fingerprint condenses the request, as it was sent. See [Book.Resume].
func (a Attempt) Fingerprint() ledgers.Amount { return a.fingerprint }

// Charges returns what the attempt takes, in the order it was named. The slice is the attempt's.
func (a Attempt) Charges() []Charge { return a.charges }

// Holds reports whether it is a reservation.
func (a Attempt) Holds() bool { return a.hold > 0 }

// Charge makes an attempt, in one atomic step. Made again, it is answered as the first time and
// taken once.
//
// Where a calendar's period ended between the sending and the ledger's answer, the charges are
// replaced before it returns, so that they come back with the period that they were made in.
func (b *Book) Charge(ctx context.Context, a Attempt) (Result, error) {
	for range maxSteps {
		result, err := b.tryCharge(ctx, a)
		if err != nil {
			forget(a.sorted)
			return Result{}, err
		}
		if result.Outcome != again {
			return result, nil
		}
	}
	return Result{}, fmt.Errorf("%w: limit %q", ErrContended, a.charges[0].Limit.Name)
}

// chain is a batch that decides one request: first quotas of new accounts, each on its own, and
// then one linked chain of quota steps, charges and guards.
type chain struct {
	batch    []ledgers.Transfer
	openings int   // how many first quotas head it
	steps    []int // index of the charge that each quota step behind the openings belongs to
	owner    []int // index of the charge that each place behind the steps belongs to
	first    int   // place of the attempt's first transfer behind the openings
}

// tryCharge sends a chain once.
func (b *Book) tryCharge(ctx context.Context, a Attempt) (Result, error) {
	openings, err := b.provision(ctx, a.sorted)
	if err != nil {
		return Result{}, err
	}
	if a.hold > 0 {
		err = b.keepNames(ctx, a.sorted)
		if err != nil {
			return Result{}, err
		}
	}
	now, err := b.calendarTime(ctx, a)
	if err != nil {
		return Result{}, err
	}
	c := b.link(a, openings, now)
	results, err := b.createTransfers(ctx, c.batch)
	if err != nil {
		return Result{}, err
	}
	err = b.sawOpenings(ctx, openings, results)
	if err != nil {
		return Result{}, err
	}
	linked := results[len(openings):]
	failed := failedAt(linked)
	switch {
	case failed < 0:
		b.taken(a.sorted, linked[len(c.steps):], c)
		accepted := Result{Transfer: a.First, Timestamp: linked[c.first].Timestamp}
		if a.hold > 0 {
			accepted.ExpiresAt = accepted.Timestamp + uint64(a.hold)*uint64(time.Second)
		}
		charged := c.charged()[:a.charging()]
		for i := range charged {
			charged[i].Timestamp = linked[len(c.steps)+i].Timestamp
		}
		return b.keepPeriods(ctx, a, accepted, charged)
	case failed < len(c.steps):
		return Result{Outcome: again}, b.relearn(ctx, a.sorted, linked[failed].Status)
	}
	status := linked[failed].Status
	refused := status == ledgers.TransferExceedsCredits || status == ledgers.TransferIDAlreadyFailed
	if status.Exists() || refused && a.money != nil {
		// Of a payment the last transfer alone tells: the ledger may have forgotten the others, which
		// have timed out, and refuse them today.
		result, found, err := b.Recall(ctx, a)
		if err != nil || found && (result.Outcome != Replayed || a.money != nil) {
			return result, err
		}
		if found {
			return b.keepReplayed(ctx, a, result)
		}
	}
	if refused {
		at := failed - len(c.steps)
		return a.refused(c, at, linked[failed]), b.spend(ctx, a, c, at)
	}
	return Result{}, fmt.Errorf("%w: %s for a transfer of charge %s", ErrStatus, status, a.First)
}

// refused returns the result of a chain that was refused at a place behind its steps.
func (a Attempt) refused(c chain, at int, r ledgers.TransferResult) Result {
	result := Result{
		Outcome: Insufficient, Timestamp: r.Timestamp,
		Burnt: r.Status == ledgers.TransferIDAlreadyFailed,
	}
	if at < len(c.owner) {
		member := a.sorted[c.owner[at]]
		result.Outcome = Refused
		result.Refused = slices.IndexFunc(a.charges, func(c Charge) bool {
			return c.account == member.account
		})
	}
	return result
}

// link builds the chain that decides a request. Where a lowered quota is still to be taken, the
// rest of it is taken ahead of the charges: a unit that came back goes to the lowering first.
func (b *Book) link(a Attempt, openings []opening, now uint64) chain {
	c := chain{batch: quotas(openings), openings: len(openings)}
	for i, charge := range a.sorted {
		newest, _ := charge.standing.quota()
		if newest.base > newest.target {
			next := newest
			next.n++
			c.batch = append(c.batch, next.transfer(b.namespace, charge))
			c.steps = append(c.steps, i)
		}
	}
	c.first = len(c.steps)
	k := 0 // one for each account, so that whatever the costs, a refused member is met again
	if a.money != nil {
		k = 1 // the first is the last
	}
	for i, charge := range a.sorted {
		if charge.Amount > 0 {
			c.add(i, a.take(charge, b.member(a.First, k), now))
			k++
		}
	}
	for i, charge := range a.sorted {
		amount := charge.spare()
		if charge.Amount == 0 {
			amount++
		}
		if amount > 0 {
			guard := pending(charge, amount, CodeGuard, b.member(a.First, k))
			guard.Timeout = 0 // it ends here, so that no timeout has to be watched
			c.add(i, guard)
			c.add(i, ledgers.Transfer{
				ID:        b.namespace.EndTransfer(guard.ID),
				PendingID: guard.ID,
				Ledger:    charge.Limit.Ledger,
				Code:      CodeGuard,
				Flags:     ledgers.VoidPending,
			})
			k++
		}
	}
	for _, note := range a.noted(b.namespace) {
		c.add(0, note)
	}
	if a.money != nil {
		c.first = len(c.steps) + len(c.owner)
		c.batch = append(c.batch, *a.money)
	}
	chained := c.batch[len(openings):]
	chained[c.first].UserData128 = a.fingerprint
	link(chained)
	return c
}

func (c *chain) add(owner int, t ledgers.Transfer) {
	c.batch = append(c.batch, t)
	c.owner = append(c.owner, owner)
}

// charged returns the charges and guards of the chain.
func (c *chain) charged() []ledgers.Transfer {
	at := c.openings + len(c.steps)
	return c.batch[at : at+len(c.owner)]
}

// member returns the id of the k-th charge or guard behind the quota steps.
func (b *Book) member(first ledgers.ID, k int) ledgers.ID {
	if k == 0 {
		return first
	}
	return b.namespace.MemberTransfer(first, k)
}

func pending(c Charge, amount uint64, code uint16, id ledgers.ID) ledgers.Transfer {
	return ledgers.Transfer{
		ID:              id,
		DebitAccountID:  c.account,
		CreditAccountID: c.standing.operator,
		Amount:          ledgers.AmountOf(amount),
		Timeout:         c.Limit.WindowSeconds,
		Ledger:          c.Limit.Ledger,
		Code:            code,
		Flags:           ledgers.Pending,
	}
}

// failedAt returns the place of the event that broke a chain, -1 if none did.
func failedAt(linked []ledgers.TransferResult) int {
	for i, r := range linked {
		if r.Status != ledgers.TransferCreated && r.Status != ledgers.TransferLinkedEventFailed {
			return i
		}
	}
	return -1
}

// take returns the transfer that takes a charge at the ledger time now.
func (a Attempt) take(c Charge, id ledgers.ID, now uint64) ledgers.Transfer {
	if a.hold > 0 {
		t := pending(c, c.Amount, CodeHold, id)
		t.Timeout = a.hold
		return t
	}
	t := pending(c, c.Amount, CodeCharge, id)
	t.Timeout = c.Limit.timeout(now)
	if c.Limit.Posted {
		t.Flags, t.Timeout = 0, 0
	}
	return t
}

// inOrder returns the charges sorted by account: one order for all keeps the same request the same
// chain.
func inOrder(charges []Charge) []Charge {
	if len(charges) == 1 {
		return charges
	}
	sorted := slices.Clone(charges)
	slices.SortFunc(sorted, func(a, b Charge) int { return a.account.Compare(b.account) })
	return sorted
}
