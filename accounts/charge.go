package accounts

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/ledgers"
)

// Charge is what one request takes from one account. [Book.NewCharge] makes it.
type Charge struct {
	Limit   Limit
	Subject string
	// Amount of units to take; with 0 the account only has to have a unit left.
	Amount uint64

	account  ledgers.ID
	standing *standing
}

// NewCharge names amount units of a subject on a limit.
func (b *Book) NewCharge(limit Limit, subject string, amount uint64) Charge {
	account := b.namespace.UserAccount(limit.Name, subject)
	return Charge{
		Limit: limit, Subject: subject, Amount: amount,
		account: account, standing: b.standing(account, limit.Name),
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
	// TooLarge: the quota would pass [MaxQuota]. Nothing was changed.
	TooLarge

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
	// Refused is the index of the charge that was refused.
	Refused int
	// Burnt says that the id had been refused before.
	Burnt bool
}

// Charge takes all charges in one atomic step, or none. An account may be named once, and at least
// one amount is above 0. An empty id makes a charge of its own each time; with an id, the same
// charges sent again are answered as the first time and taken once.
func (b *Book) Charge(ctx context.Context, id string, charges []Charge) (Result, error) {
	sorted := inOrder(charges)
	first, err := b.first(id, sorted)
	if err != nil {
		return Result{}, err
	}
	fingerprint := b.namespace.fingerprint("check", sorted)
	for range maxSteps {
		result, err := b.tryCharge(ctx, first, fingerprint, sorted)
		if err != nil {
			forget(sorted)
			return Result{}, err
		}
		if result.Outcome == again {
			continue
		}
		result.Refused = slices.IndexFunc(charges, func(c Charge) bool {
			return c.account == sorted[result.Refused].account
		})
		return result, nil
	}
	return Result{}, fmt.Errorf("%w: limit %q", ErrContended, charges[0].Limit.Name)
}

// first returns the id of a charge's first transfer.
func (b *Book) first(id string, sorted []Charge) (ledgers.ID, error) {
	if id == "" {
		return NewTransfer()
	}
	return b.namespace.checkTransfer(id, sorted), nil
}

// forget drops what is remembered of what is out: after an error nobody knows what was charged.
func forget(charges []Charge) {
	for _, c := range charges {
		c.standing.mu.Lock()
		c.standing.live = live{charges: c.standing.live.charges + 1}
		c.standing.mu.Unlock()
	}
}

// chain is a batch that decides one request: first quotas of new accounts, each on its own, and
// then one linked chain of quota steps, charges and guards.
type chain struct {
	batch []ledgers.Transfer
	steps []int // index of the charge that each quota step behind the openings belongs to
	owner []int // index of the charge that each place behind the steps belongs to
}

// tryCharge sends a chain once.
func (b *Book) tryCharge(
	ctx context.Context, first ledgers.ID, fingerprint ledgers.Amount, sorted []Charge,
) (Result, error) {
	openings, err := b.provision(ctx, sorted)
	if err != nil {
		return Result{}, err
	}
	c := b.link(first, fingerprint, sorted, openings)
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
		taken(sorted, linked[len(c.steps):], c)
		return Result{Transfer: first, Timestamp: linked[len(c.steps)].Timestamp}, nil
	case failed < len(c.steps):
		return Result{Outcome: again}, b.relearn(ctx, sorted, linked[failed].Status)
	}
	at := c.owner[failed-len(c.steps)]
	switch status := linked[failed].Status; {
	case status == ledgers.TransferExceedsCredits, status == ledgers.TransferIDAlreadyFailed:
		return Result{
			Outcome: Refused, Timestamp: linked[failed].Timestamp, Refused: at,
			Burnt: status == ledgers.TransferIDAlreadyFailed,
		}, nil
	case status.Exists():
		result, found, err := b.recall(ctx, first, fingerprint)
		if err != nil || found {
			return result, err
		}
		return Result{}, fmt.Errorf("%w: charge %s exists but is not found", ErrStatus, first)
	default:
		return Result{}, fmt.Errorf("%w: %s for charge %s of account %s",
			ErrStatus, status, first, sorted[at].account)
	}
}

// link builds the chain that decides a request. Where a lowered quota is still to be taken, the
// rest of it is taken ahead of the charges: a unit that came back goes to the lowering first.
func (b *Book) link(
	first ledgers.ID, fingerprint ledgers.Amount, sorted []Charge, openings []opening,
) chain {
	var c chain
	for _, o := range openings {
		c.batch = append(c.batch, o.quota)
	}
	for i, charge := range sorted {
		newest, _ := charge.standing.quota()
		if newest.base > newest.target {
			next := newest
			next.n++
			c.batch = append(c.batch, next.transfer(b.namespace, charge))
			c.steps = append(c.steps, i)
		}
	}
	for i, charge := range sorted {
		if charge.Amount > 0 {
			c.add(i, pending(charge, charge.Amount, CodeCharge, b.member(first, len(c.owner))))
		}
	}
	for i, charge := range sorted {
		if charge.Amount == 0 {
			guard := pending(charge, 1, CodeGuard, b.member(first, len(c.owner)))
			guard.Timeout = 0 // it ends here, so that no timeout has to be watched
			c.add(i, guard)
			c.add(i, ledgers.Transfer{
				ID:        b.member(first, len(c.owner)),
				PendingID: guard.ID,
				Ledger:    charge.Limit.Ledger,
				Code:      CodeGuard,
				Flags:     ledgers.VoidPending,
			})
		}
	}
	chained := c.batch[len(openings):]
	chained[len(c.steps)].UserData128 = fingerprint
	for i := range chained[:len(chained)-1] {
		chained[i].Flags |= ledgers.Linked
	}
	return c
}

func (c *chain) add(owner int, t ledgers.Transfer) {
	c.batch = append(c.batch, t)
	c.owner = append(c.owner, owner)
}

// member returns the id of place k behind the quota steps.
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

// taken notes what an accepted chain did. How much a lowering ahead of the charges took is read
// from the ledger when its account is next charged.
func taken(sorted []Charge, results []ledgers.TransferResult, c chain) {
	for _, owner := range c.steps {
		sorted[owner].standing.unlearn()
	}
	for i, owner := range c.owner {
		charge := sorted[owner]
		if charge.Amount == 0 {
			continue
		}
		end := results[i].Timestamp + uint64(charge.Limit.WindowSeconds)*uint64(time.Second)
		charge.standing.mu.Lock()
		charge.standing.live.add(out{end: end, amount: charge.Amount})
		charge.standing.mu.Unlock()
	}
}

// relearn reads the newest steps after another node's step took the place of ours.
func (b *Book) relearn(ctx context.Context, sorted []Charge, status ledgers.TransferStatus) error {
	if !status.Exists() {
		return fmt.Errorf("%w: %s for a quota step", ErrStatus, status)
	}
	for _, c := range sorted {
		err := b.learnStep(ctx, c)
		if err != nil {
			return err
		}
	}
	return nil
}

// Recall tells what the id of a charge stands for, false if nothing was ever accepted under it. It
// writes nothing.
func (b *Book) Recall(ctx context.Context, id string, charges []Charge) (Result, bool, error) {
	sorted := inOrder(charges)
	first := b.namespace.checkTransfer(id, sorted)
	return b.recall(ctx, first, b.namespace.fingerprint("check", sorted))
}

// recall tells what a charge that exists stands for, by one look-up of its first transfer and its
// end.
func (b *Book) recall(ctx context.Context, first ledgers.ID, fingerprint ledgers.Amount,
) (Result, bool, error) {
	found, err := b.driver.LookupTransfers(ctx, []ledgers.ID{first, b.namespace.EndTransfer(first)})
	if err != nil {
		return Result{}, false, fmt.Errorf("look up charge %s: %w", first, err)
	}
	if len(found) == 0 || found[0].ID != first {
		return Result{}, false, nil
	}
	result := Result{Outcome: Replayed, Transfer: first, Timestamp: found[0].Timestamp}
	switch {
	case found[0].UserData128 != fingerprint:
		result.Outcome = Conflict
	case len(found) > 1:
		result.Outcome = Ended
	case b.Now() >= found[0].ExpiresAt():
		result.Outcome = Expired
	}
	return result, true, nil
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
