package accounts

import (
	"context"
	"encoding/binary"
	"fmt"

	"weir/ledgers"
)

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
