package accounts

import (
	"context"
	"fmt"
	"slices"

	"weir/ledgers"
)

// MaxQuota is the most units that one subject may hold on a limit, and the most that one charge or
// grant may name: what an integer of a structured header field (RFC 9651) can carry.
const MaxQuota = 999_999_999_999_999

// Grant adds the charge's amount to the subject's quota for good; on a prepaid balance it pays
// first what was used beyond it. The id is required: the same grant sent again is answered
// Replayed, for ever, and another amount under its id Conflict.
func (b *Book) Grant(ctx context.Context, id string, c Charge) (Result, error) {
	return b.change(ctx, id, c, CodeGrant)
}

// Revoke takes the charge's amount from the subject's quota for good. It is Refused where less than
// that is free. The id is required, and shares its name space with the grants' ids.
func (b *Book) Revoke(ctx context.Context, id string, c Charge) (Result, error) {
	return b.change(ctx, id, c, CodeRevocation)
}

// beginChange waits until no other change of a quota is under way. They are made one at a time, so
// that two that fit only one by one do not pass [MaxQuota] together.
func (b *Book) beginChange(ctx context.Context) (done func(), err error) {
	select {
	case b.changing <- struct{}{}:
		return func() { <-b.changing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another change of a quota: %w", ctx.Err())
	}
}

// change makes one grant or revocation.
func (b *Book) change(ctx context.Context, id string, c Charge, code uint16) (Result, error) {
	done, err := b.beginChange(ctx)
	if err != nil {
		return Result{}, err
	}
	defer done()
	t := b.changeTransfer(id, c, code)
	result, found, err := b.sent(ctx, t)
	if err != nil || found {
		return result, err
	}
	openings, err := b.provision(ctx, []Charge{c})
	if err != nil {
		return Result{}, err
	}
	balances, err := b.Balances(ctx, []Charge{c})
	if err != nil {
		return Result{}, err
	}
	switch balance := balances[0]; {
	case code == CodeGrant && balance.Quota+c.Amount > MaxQuota:
		return Result{Outcome: TooLarge, Timestamp: b.Now()}, nil
	case code == CodeRevocation && balance.Remaining < c.Amount:
		burnt, err := b.burnt(ctx, t.ID)
		return Result{Outcome: Refused, Timestamp: b.Now(), Burnt: burnt}, err
	}
	batch := append(quotas(openings), t)
	if code == CodeGrant && c.Limit.Posted {
		batch, err = b.payOverage(ctx, c, batch)
		if err != nil {
			return Result{}, err
		}
	}
	results, err := b.createTransfers(ctx, batch)
	if err != nil {
		return Result{}, err
	}
	err = b.sawOpenings(ctx, openings, results)
	if err != nil {
		return Result{}, err
	}
	return b.changed(ctx, t, results[len(openings)])
}

// Overages returns what the charges' subjects used beyond their quotas.
func (b *Book) Overages(ctx context.Context, charges ...Charge) ([]uint64, error) {
	ids := make([]ledgers.ID, len(charges))
	for i, c := range charges {
		ids[i] = b.namespace.OverageAccount(c.Limit.Name, c.Subject)
	}
	found, err := b.driver.LookupAccounts(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("look up account %s: %w", ids[0], err)
	}
	overages := make([]uint64, len(charges))
	for _, a := range found {
		debits, _ := ledgers.Sum(a.DebitsPending, a.DebitsPosted)
		credits, _ := ledgers.Sum(a.CreditsPending, a.CreditsPosted)
		overages[slices.Index(ids, a.ID)] = ledgers.SubtractFloor(debits, credits).Lo
	}
	return overages, nil
}

// payOverage has the grant at the end of a batch pay first what the subject of a prepaid balance
// used beyond it. Two grants at once do not pay it twice: the ledger moves no more than what is
// outstanding then.
func (b *Book) payOverage(ctx context.Context, c Charge, batch []ledgers.Transfer,
) ([]ledgers.Transfer, error) {
	outstanding, err := b.Overages(ctx, c)
	if err != nil || outstanding[0] == 0 {
		return batch, err
	}
	grant := &batch[len(batch)-1]
	grant.Flags |= ledgers.Linked
	return append(batch, ledgers.Transfer{
		ID:              b.namespace.MemberTransfer(grant.ID, 1),
		DebitAccountID:  c.account,
		CreditAccountID: b.namespace.OverageAccount(c.Limit.Name, c.Subject),
		Amount:          ledgers.AmountOf(outstanding[0]),
		Ledger:          c.Limit.Ledger,
		Code:            CodeOverage,
		Flags:           ledgers.BalancingDebit | ledgers.BalancingCredit,
	}), nil
}

// changed reads the ledger's answer to a grant or a revocation.
func (b *Book) changed(ctx context.Context, t ledgers.Transfer, r ledgers.TransferResult,
) (Result, error) {
	switch {
	case r.Status == ledgers.TransferCreated:
		return Result{Transfer: t.ID, Timestamp: r.Timestamp}, nil
	case r.Status == ledgers.TransferExceedsCredits, r.Status == ledgers.TransferIDAlreadyFailed:
		return Result{Outcome: Refused, Timestamp: r.Timestamp, Burnt: true}, nil
	case r.Status.Exists():
		result, found, err := b.sent(ctx, t)
		if err != nil || found {
			return result, err
		}
	}
	return Result{}, fmt.Errorf("%w: %s for transfer %s", ErrStatus, r.Status, t.ID)
}

// burnt reports whether the ledger has refused an id for good, of which a look-up finds nothing. An
// event that names nothing but the id is refused for its id first, and otherwise burns nothing.
func (b *Book) burnt(ctx context.Context, id ledgers.ID) (bool, error) {
	results, err := b.createTransfers(ctx, []ledgers.Transfer{{ID: id}})
	if err != nil {
		return false, err
	}
	return results[0].Status == ledgers.TransferIDAlreadyFailed, nil
}

// spend makes the ledger refuse the first transfer of a refused attempt from now on, so that its id
// stays refused whatever it is sent with. The member that was refused is spent as it is, and met
// again if it stands at a place that every chain for the same accounts has; that of a payment is
// not, nor is a guard behind the others. Spent again, nothing changes.
func (b *Book) spend(ctx context.Context, a Attempt, refused chain, at int) error {
	if at >= len(refused.owner) { // the money itself
		return nil
	}
	charging := a.charging()
	if at >= charging { // guards have two places each
		at = charging + (at-charging)/2
	}
	if !a.keyed || a.money == nil && at < len(a.sorted) {
		return nil
	}
	c := a.sorted[0]
	// There is no account with a transfer's id: the ledger refuses it for that, for good.
	_, err := b.createTransfers(ctx, []ledgers.Transfer{{
		ID: a.First, DebitAccountID: a.First, CreditAccountID: c.account,
		Amount: ledgers.AmountOf(1), Ledger: c.Limit.Ledger, Code: CodeCharge,
	}})
	return err
}

func (b *Book) changeTransfer(id string, c Charge, code uint16) ledgers.Transfer {
	t := ledgers.Transfer{
		ID:              b.namespace.GrantTransfer(c.Limit.Name, c.Subject, id),
		DebitAccountID:  c.standing.operator,
		CreditAccountID: c.account,
		Amount:          ledgers.AmountOf(c.Amount),
		UserData128:     b.namespace.fingerprint(codeNames[code], []Charge{c}),
		Ledger:          c.Limit.Ledger,
		Code:            code,
	}
	if code == CodeRevocation {
		t.DebitAccountID, t.CreditAccountID = c.account, c.standing.operator
	}
	return t
}

// sent looks whether a grant or a revocation was made before under the same id.
func (b *Book) sent(ctx context.Context, t ledgers.Transfer) (Result, bool, error) {
	found, err := b.driver.LookupTransfers(ctx, []ledgers.ID{t.ID})
	if err != nil {
		return Result{}, false, fmt.Errorf("look up transfer %s: %w", t.ID, err)
	}
	if len(found) == 0 {
		return Result{}, false, nil
	}
	result := Result{Outcome: Replayed, Transfer: t.ID, Timestamp: found[0].Timestamp}
	if found[0].UserData128 != t.UserData128 {
		result.Outcome = Conflict
	}
	return result, true, nil
}
