package accounts

import (
	"context"
	"encoding/binary"
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

// The name of a subject that reserves is kept in the user data of accounts that are nothing else,
// so that a receipt is enough to settle on any node. The first says how long the name is.
const (
	firstNamePart = 24
	namePart      = 28
	// likelyNameParts are looked up at once: names are seldom longer.
	likelyNameParts = 3
)

// nameParts returns the user data of the accounts that keep a name.
func nameParts(subject string) []ledgers.Account {
	var parts []ledgers.Account
	rest := subject
	for len(parts) == 0 || len(rest) > 0 {
		size := min(len(rest), namePart)
		if len(parts) == 0 {
			size = min(len(rest), firstNamePart)
		}
		var data [namePart]byte
		copy(data[:], rest[:size])
		part := ledgers.Account{
			UserData128: ledgers.Amount{
				Hi: binary.BigEndian.Uint64(data[:8]), Lo: binary.BigEndian.Uint64(data[8:16]),
			},
			UserData64: binary.BigEndian.Uint64(data[16:24]),
			UserData32: binary.BigEndian.Uint32(data[24:]),
		}
		if len(parts) == 0 {
			part.UserData32 = uint32(len(subject))
		}
		parts = append(parts, part)
		rest = rest[size:]
	}
	return parts
}

// partCount returns how many accounts keep a name of this many bytes.
func partCount(length int) int {
	return 1 + (max(0, length-firstNamePart)+namePart-1)/namePart
}

// nameOfParts puts a name together again.
func nameOfParts(parts []ledgers.Account) string {
	length := int(parts[0].UserData32)
	var name []byte
	for i, part := range parts {
		name = binary.BigEndian.AppendUint64(name, part.UserData128.Hi)
		name = binary.BigEndian.AppendUint64(name, part.UserData128.Lo)
		name = binary.BigEndian.AppendUint64(name, part.UserData64)
		if i > 0 {
			name = binary.BigEndian.AppendUint32(name, part.UserData32)
		}
	}
	return string(name[:length])
}

// keepNames writes the subjects' names down where that was not done before.
func (b *Book) keepNames(ctx context.Context, charges []Charge) error {
	var accounts []ledgers.Account
	for _, c := range charges {
		if c.standing.isNamed() {
			continue
		}
		for k, part := range nameParts(c.Subject) {
			part.ID = b.namespace.NameAccount(c.account, k)
			part.Ledger, part.Code = c.Limit.Ledger, AccountName
			accounts = append(accounts, part)
		}
	}
	if len(accounts) == 0 {
		return nil
	}
	_, err := b.createAccounts(ctx, accounts)
	if err != nil {
		return err
	}
	for _, c := range charges {
		c.standing.setNamed()
	}
	return nil
}

// subject returns whose a user account is, nothing where this book has not met it and nobody has
// reserved from it.
func (b *Book) subject(ctx context.Context, account ledgers.ID) (string, error) {
	remembered, ok := b.standings.Peek(account)
	if ok && remembered.subject != "" {
		return remembered.subject, nil
	}
	parts, err := b.readName(ctx, account, 0, likelyNameParts)
	if err != nil {
		return "", err
	}
	if len(parts) == 0 {
		return "", nil
	}
	count := partCount(int(parts[0].UserData32))
	if count > likelyNameParts {
		rest, err := b.readName(ctx, account, likelyNameParts, count)
		if err != nil {
			return "", err
		}
		parts = append(parts, rest...)
	}
	if len(parts) != count {
		return "", fmt.Errorf("%w: %d of %d parts of the name of account %s",
			ErrStatus, len(parts), count, account)
	}
	return nameOfParts(parts), nil
}

func (b *Book) readName(ctx context.Context, account ledgers.ID, from, to int,
) ([]ledgers.Account, error) {
	ids := make([]ledgers.ID, 0, to-from)
	for k := from; k < to; k++ {
		ids = append(ids, b.namespace.NameAccount(account, k))
	}
	parts, err := b.driver.LookupAccounts(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("name of account %s: %w", account, err)
	}
	return parts, nil
}

// isNamed reports whether the subject's name is known to be written down.
func (s *standing) isNamed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.named
}

func (s *standing) setNamed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.named = true
}
