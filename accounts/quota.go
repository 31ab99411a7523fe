package accounts

import (
	"context"
	"fmt"

	"weir/ledgers"
)

// Who set a quota step's target.
const (
	sourceConfig   = 0
	sourceOverride = 1
)

// maxSteps bounds how often a quota change is tried again because another node made a step first.
const maxSteps = 8

// step is one quota step: what the quota of an account should be from then on. Its transfer carries
// all of it, so that the newest step alone says where the account stands:
//
//	user_data_64    the target
//	user_data_32    the config's revision
//	user_data_128   high half n; low half the source (8 bits) and the units of quota that the
//	                account held before this step, grants apart (56 bits)
type step struct {
	n        uint64
	target   uint64
	revision uint32
	source   uint8
	// base is the number of quota units that the account holds, grants apart. It is above the
	// target while a lowering waits for charges to expire.
	base uint64
}

// transfer returns the transfer that makes step s, whose base is what the account holds before it:
// it moves the difference to the target. A lowering takes at most what is free.
func (s step) transfer(ns Namespace, c Charge) ledgers.Transfer {
	t := ledgers.Transfer{
		ID:          ns.QuotaStep(c.account, s.n),
		UserData128: ledgers.Amount{Hi: s.n, Lo: uint64(s.source)<<56 | s.base},
		UserData64:  s.target,
		UserData32:  s.revision,
		Ledger:      c.Limit.Ledger,
		Code:        CodeRequota,
	}
	if s.n == 0 {
		t.Code = CodeQuota
	}
	if s.target >= s.base {
		t.DebitAccountID, t.CreditAccountID = c.standing.operator, c.account
		t.Amount = ledgers.AmountOf(s.target - s.base)
		return t
	}
	t.DebitAccountID, t.CreditAccountID = c.account, c.standing.operator
	t.Amount = ledgers.AmountOf(s.base - s.target)
	t.Flags = ledgers.BalancingDebit
	return t
}

// wanted returns the target that the config gives an account whose newest step is s, and whether
// that calls for a step. An override stands; a config that is older than the step changes nothing,
// so that nodes with an old and a new config do not undo each other; nor, where several nodes may
// have different files of one revision, does an equally old one.
func (s step) wanted(limit Limit, shared bool) (target uint64, change bool) {
	switch {
	case s.source == sourceOverride, limit.Revision < s.revision, limit.Quota == s.target:
		return s.target, false
	case limit.Revision == s.revision && shared:
		return s.target, false
	default:
		return limit.Quota, true
	}
}

// stepOf reads a quota step back from its transfer as the ledger keeps it, in which the amount is
// what was really moved.
func stepOf(t ledgers.Transfer, account ledgers.ID) step {
	s := step{
		n:        t.UserData128.Hi,
		target:   t.UserData64,
		revision: t.UserData32,
		source:   uint8(t.UserData128.Lo >> 56),
		base:     t.UserData128.Lo & (1<<56 - 1),
	}
	if t.CreditAccountID == account {
		s.base += t.Amount.Lo
	} else {
		s.base -= min(s.base, t.Amount.Lo)
	}
	return s
}

// newestStep reads the newest quota step of an account, false if it has none.
func (b *Book) newestStep(ctx context.Context, account ledgers.ID) (step, bool, error) {
	steps, err := b.driver.AccountTransfers(ctx, ledgers.AccountFilter{
		AccountID: account, Code: CodeRequota, Limit: 1, Debits: true, Credits: true, Reversed: true,
	})
	if err != nil {
		return step{}, false, fmt.Errorf("newest quota step of account %s: %w", account, err)
	}
	if len(steps) == 0 {
		first := b.namespace.QuotaStep(account, 0)
		steps, err = b.driver.LookupTransfers(ctx, []ledgers.ID{first})
		if err != nil {
			return step{}, false, fmt.Errorf("first quota of account %s: %w", account, err)
		}
	}
	if len(steps) == 0 {
		return step{}, false, nil
	}
	return stepOf(steps[0], account), true, nil
}

// requota brings an account's quota to what the config says, by a new step where that calls for
// one.
func (b *Book) requota(ctx context.Context, c Charge) error {
	for range maxSteps {
		newest, _ := c.standing.quota()
		target, change := newest.wanted(c.Limit, b.options.Shared)
		if !change {
			b.tellDiffering(c.Limit, newest)
			return nil
		}
		_, _, err := b.makeStep(ctx, c, newest.next(target, c.Limit.Revision, sourceConfig))
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: account %s", ErrContended, c.account)
}

// tellDiffering tells whoever wants to know that a limit's quota is not an account's target
// although both are of one revision.
func (b *Book) tellDiffering(limit Limit, newest step) {
	differs := b.options.Shared && newest.source == sourceConfig &&
		limit.Revision == newest.revision && limit.Quota != newest.target
	if differs && b.options.Differs != nil {
		b.options.Differs(limit, newest.target)
	}
}

// next returns the step that follows s.
func (s step) next(target uint64, revision uint32, source uint8) step {
	return step{n: s.n + 1, target: target, revision: revision, source: source, base: s.base}
}

// makeStep makes a quota step, unless another node has made one of the same number. Either way the
// newest is known afterwards.
func (b *Book) makeStep(ctx context.Context, c Charge, next step,
) (at uint64, made bool, err error) {
	results, err := b.createTransfers(ctx, []ledgers.Transfer{next.transfer(b.namespace, c)})
	if err != nil {
		return 0, false, err
	}
	status := results[0].Status
	if status != ledgers.TransferCreated && !status.Exists() {
		return 0, false, fmt.Errorf("%w: %s for quota step %d of account %s",
			ErrStatus, status, next.n, c.account)
	}
	err = b.learnStep(ctx, c)
	return results[0].Timestamp, status == ledgers.TransferCreated, err
}

// Override gives the charge's subject a quota of its own, which stands until it is cleared whatever
// the config says. What is used stays used, and grants are added to it; with 0 a subject without
// grants is shut out. The outcome is Replayed where the same override stands already, and TooLarge
// where the quota would pass [MaxQuota] with the grants.
func (b *Book) Override(ctx context.Context, c Charge, quota uint64) (Result, error) {
	return b.setQuota(ctx, c, quota, sourceOverride)
}

// ClearOverride gives the charge's subject the limit's quota again. The outcome is Replayed where
// there is no override.
func (b *Book) ClearOverride(ctx context.Context, c Charge) (Result, error) {
	return b.setQuota(ctx, c, c.Limit.Quota, sourceConfig)
}

func (b *Book) setQuota(ctx context.Context, c Charge, quota uint64, source uint8) (Result, error) {
	done, err := b.beginChange(ctx)
	if err != nil {
		return Result{}, err
	}
	defer done()
	openings, err := b.provision(ctx, []Charge{c})
	if err != nil {
		return Result{}, err
	}
	if len(openings) > 0 {
		results, err := b.createTransfers(ctx, quotas(openings))
		if err != nil {
			return Result{}, err
		}
		err = b.sawOpenings(ctx, openings, results)
		if err != nil {
			return Result{}, err
		}
	}
	for range maxSteps {
		err = b.learnStep(ctx, c) // another node may have made steps since
		if err != nil {
			return Result{}, err
		}
		newest, _ := c.standing.quota()
		switch {
		case newest.source == source && (newest.target == quota || source == sourceConfig):
			return Result{Outcome: Replayed, Timestamp: b.Now()}, nil
		case quota > newest.target:
			balances, err := b.Balances(ctx, []Charge{c})
			if err != nil {
				return Result{}, err
			}
			if balances[0].Quota-min(balances[0].Quota, newest.target)+quota > MaxQuota {
				return Result{Outcome: TooLarge, Timestamp: b.Now()}, nil
			}
		}
		at, made, err := b.makeStep(ctx, c, newest.next(quota, c.Limit.Revision, source))
		if err != nil {
			return Result{}, err
		}
		if made {
			return Result{Timestamp: at}, nil
		}
	}
	return Result{}, fmt.Errorf("%w: account %s", ErrContended, c.account)
}

// learnStep reads the newest step of an account that is known to have one.
func (b *Book) learnStep(ctx context.Context, c Charge) error {
	newest, found, err := b.newestStep(ctx, c.account)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%w: account %s has no quota step", ErrStatus, c.account)
	}
	b.know(c, newest)
	return nil
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

// spare returns how much of the account has to stay free: a part of its target, and what is owed.
func (c Charge) spare() uint64 {
	newest, seen := c.standing.quota()
	if !seen { // its first quota goes with the charge
		return c.Limit.margin(c.Limit.Quota) + c.Owed
	}
	return c.Limit.margin(newest.target) + c.Owed
}

// Refresh reads the quota steps that any node made on the limit since the ledger time since, and
// returns the time from which the next call goes on. Nodes that share a ledger call it once a
// second for each limit, so that all of them are bound by a changed quota within a second.
func (b *Book) Refresh(ctx context.Context, limit Limit, since uint64) (uint64, error) {
	operator := b.namespace.OperatorAccount(limit.Name)
	for {
		steps, err := b.driver.AccountTransfers(ctx, ledgers.AccountFilter{
			AccountID: operator, Code: CodeRequota, TimestampMin: since,
			Limit: ledgers.MaxEvents, Debits: true, Credits: true,
		})
		if err != nil {
			return since, fmt.Errorf("new quota steps of limit %q: %w", limit.Name, err)
		}
		for _, t := range steps {
			account := t.DebitAccountID
			if account == operator {
				account = t.CreditAccountID
			}
			s, remembered := b.standings.Peek(account)
			if remembered {
				s.know(stepOf(t, account))
			}
			since = t.Timestamp + 1
		}
		if len(steps) < ledgers.MaxEvents {
			return since, nil
		}
	}
}
