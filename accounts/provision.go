package accounts

import (
	"context"
	"fmt"

	"weir/ledgers"
)

// provision makes every charge's account exist and know its quota. Of accounts that did not exist
// it returns the first quotas, to be sent at the head of the batch that charges them; all others
// are brought to the config's quota before it returns.
//
// An account may be charged only in or after a batch in which this node has seen its first quota
// answered `created` or `exists`: a charge that finds no account, or no quota, would burn its id.
func (b *Book) provision(ctx context.Context, charges []Charge) ([]opening, error) {
	var unseen []Charge
	for _, c := range charges {
		_, seen := c.standing.quota()
		if !seen {
			unseen = append(unseen, c)
		}
	}
	var openings []opening
	if len(unseen) > 0 {
		opened, err := b.open(ctx, unseen)
		if err != nil {
			return nil, err
		}
		openings = opened
	}
	for _, c := range charges {
		_, seen := c.standing.quota()
		if !seen {
			continue // its first quota goes with the charge
		}
		err := b.requota(ctx, c)
		if err != nil {
			return nil, err
		}
	}
	return openings, nil
}

// opening is the first quota of an account that was just created.
type opening struct {
	charge Charge
	quota  ledgers.Transfer
}

// quotas returns the transfers of openings, which head the batch that first uses the accounts.
func quotas(openings []opening) []ledgers.Transfer {
	var batch []ledgers.Transfer
	for _, o := range openings {
		batch = append(batch, o.quota)
	}
	return batch
}

// open creates accounts and returns the first quotas of those that are new. The others' first
// quotas are sent here: their owner may have died before it sent them.
func (b *Book) open(ctx context.Context, charges []Charge) ([]opening, error) {
	var accounts []ledgers.Account
	var operators []ledgers.ID
	for _, c := range charges {
		operator := c.standing.operator
		_, known := b.operators.Load(operator)
		if !known {
			operators = append(operators, operator)
			accounts = append(accounts, ledgers.Account{
				ID: operator, Ledger: c.Limit.Ledger, Code: AccountOperator,
			})
		}
	}
	for _, c := range charges {
		accounts = append(accounts, ledgers.Account{
			ID: c.account, Ledger: c.Limit.Ledger, Code: AccountUser,
			Flags: ledgers.DebitsMustNotExceedCredits,
		})
	}
	results, err := b.createAccounts(ctx, accounts)
	if err != nil {
		return nil, err
	}
	for _, operator := range operators {
		b.operators.Store(operator, true)
	}

	var created []opening
	var existing []Charge
	for i, r := range results[len(operators):] {
		if r.Status == ledgers.AccountCreated {
			b.clock.saw(r.Timestamp)
			created = append(created, opening{charges[i], b.firstQuota(charges[i])})
			charges[i].standing.fresh()
			continue
		}
		existing = append(existing, charges[i])
	}
	if len(existing) > 0 {
		err = b.adopt(ctx, existing)
		if err != nil {
			return nil, err
		}
	}
	return created, nil
}

// adopt makes sure that accounts which existed before have their first quota, and learns their
// newest one.
func (b *Book) adopt(ctx context.Context, charges []Charge) error {
	batch := make([]ledgers.Transfer, len(charges))
	for i, c := range charges {
		batch[i] = b.firstQuota(c)
	}
	results, err := b.createTransfers(ctx, batch)
	if err != nil {
		return err
	}
	for i, r := range results {
		err = b.sawQuota(ctx, charges[i], r.Status)
		if err != nil {
			return err
		}
	}
	return nil
}

// firstQuota is step 0 of an account.
func (b *Book) firstQuota(c Charge) ledgers.Transfer {
	first := step{target: c.Limit.Quota, revision: c.Limit.Revision}
	return first.transfer(b.namespace, c)
}

// sawQuota takes the answer to an account's first quota. `exists` also means that later steps may
// exist, so the newest is read once.
func (b *Book) sawQuota(ctx context.Context, c Charge, status ledgers.TransferStatus) error {
	switch {
	case status == ledgers.TransferCreated:
		c.standing.know(step{
			target: c.Limit.Quota, revision: c.Limit.Revision, base: c.Limit.Quota,
		})
		return nil
	case status.Exists():
		return b.learnStep(ctx, c)
	default:
		return fmt.Errorf("%w: %s for the first quota of account %s", ErrStatus, status, c.account)
	}
}

// fresh notes that the account was created just now: unless somebody was quicker to charge it, all
// that can be out is what will be noted.
func (s *standing) fresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live.complete = s.live.charges == 0
}

// sawOpenings takes the answers to first quotas that headed a batch.
func (b *Book) sawOpenings(
	ctx context.Context, openings []opening, results []ledgers.TransferResult,
) error {
	for i, o := range openings {
		err := b.sawQuota(ctx, o.charge, results[i].Status)
		if err != nil {
			return err
		}
	}
	return nil
}
