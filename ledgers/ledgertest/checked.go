package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	"weir/ledgers"
)

// checkTimeout bounds the look-ups of a check: a ledger that does not answer fails the test instead
// of hanging it.
const checkTimeout = 30 * time.Second

// Checked wraps a driver so that every test over it ends with the invariants of a ledger. It
// remembers the accounts that were created through it and, when t ends or the wrapper is closed,
// looks them up and reports with t.Errorf:
//
//   - a ledger whose debits are not its credits, pending or posted;
//   - an account past its flag: debits_must_not_exceed_credits, credits_must_not_exceed_debits;
//   - a driver that cannot be asked any more, for instance because the driver itself was closed and
//     not the wrapper.
//
// The sums are over the accounts it knows. So wrap a driver once and share the wrapper: transfers
// with accounts that were created past it look like a fault. It is safe for concurrent use.
func Checked(t testing.TB, d ledgers.Driver) ledgers.Driver {
	t.Helper()
	c := &checked{Driver: d, t: t, seen: map[ledgers.ID]bool{}}
	t.Cleanup(c.check)
	return c
}

// checked is the driver that Checked returns.
type checked struct {
	ledgers.Driver
	t testing.TB

	mu   sync.Mutex
	seen map[ledgers.ID]bool
	ids  []ledgers.ID
	// done is set by the first check.
	done bool
}

// CreateAccounts remembers the accounts, whatever the answer: after an error they may exist.
func (c *checked) CreateAccounts(
	ctx context.Context, accounts []ledgers.Account,
) ([]ledgers.AccountResult, error) {
	c.remember(accounts)
	return c.Driver.CreateAccounts(ctx, accounts)
}

// Close checks, as it cannot be done after, and closes the driver.
func (c *checked) Close() error {
	c.check()
	return c.Driver.Close()
}

func (c *checked) remember(accounts []ledgers.Account) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range accounts {
		if c.seen[a.ID] {
			continue
		}
		c.seen[a.ID] = true
		c.ids = append(c.ids, a.ID)
	}
}

func (c *checked) check() {
	c.t.Helper()
	c.mu.Lock()
	ids, done := c.ids, c.done
	c.done = true
	c.mu.Unlock()
	if done {
		return
	}
	// The context of a test is over when its cleanup runs.
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	var accounts []ledgers.Account
	for len(ids) > 0 {
		n := min(len(ids), ledgers.MaxEvents)
		found, err := c.Driver.LookupAccounts(ctx, ids[:n]) //nolint:staticcheck // not the wrapper's own
		if errors.Is(err, ledgers.ErrClosed) {
			c.t.Errorf("the ledger was closed before it was checked: close the Checked driver")
			return
		}
		if err != nil {
			c.t.Errorf("look-up of %d accounts for the check: %v", n, err)
			return
		}
		accounts = append(accounts, found...)
		ids = ids[n:]
	}
	for _, fault := range invariantFaults(accounts) {
		c.t.Errorf("%s", fault)
	}
}

// invariantFaults says in words which invariants of a ledger the accounts, all there are, break.
func invariantFaults(accounts []ledgers.Account) []string {
	type sums struct{ debitsPending, debitsPosted, creditsPending, creditsPosted *big.Int }
	var faults []string
	var numbers []uint32
	perLedger := map[uint32]sums{}
	for _, a := range accounts {
		s, ok := perLedger[a.Ledger]
		if !ok {
			s = sums{new(big.Int), new(big.Int), new(big.Int), new(big.Int)}
			perLedger[a.Ledger] = s
			numbers = append(numbers, a.Ledger)
		}
		s.debitsPending.Add(s.debitsPending, a.DebitsPending.Big())
		s.debitsPosted.Add(s.debitsPosted, a.DebitsPosted.Big())
		s.creditsPending.Add(s.creditsPending, a.CreditsPending.Big())
		s.creditsPosted.Add(s.creditsPosted, a.CreditsPosted.Big())
		faults = append(faults, flagFaults(a)...)
	}
	for _, n := range numbers {
		s := perLedger[n]
		if s.debitsPending.Cmp(s.creditsPending) != 0 {
			faults = append(faults, fmt.Sprintf("ledger %d: debits pending are %d, credits pending %d",
				n, s.debitsPending, s.creditsPending))
		}
		if s.debitsPosted.Cmp(s.creditsPosted) != 0 {
			faults = append(faults, fmt.Sprintf("ledger %d: debits posted are %d, credits posted %d",
				n, s.debitsPosted, s.creditsPosted))
		}
	}
	return faults
}

// flagFaults says whether an account is past its flag.
func flagFaults(a ledgers.Account) []string {
	debits, ok := ledgers.Sum(a.DebitsPending, a.DebitsPosted)
	if !ok {
		return []string{fmt.Sprintf("debits do not fit into 128 bits: %s", formatAccount(a))}
	}
	credits, ok := ledgers.Sum(a.CreditsPending, a.CreditsPosted)
	if !ok {
		return []string{fmt.Sprintf("credits do not fit into 128 bits: %s", formatAccount(a))}
	}
	var faults []string
	if a.Flags&ledgers.DebitsMustNotExceedCredits != 0 && debits.Cmp(a.CreditsPosted) > 0 {
		faults = append(faults, fmt.Sprintf("debits exceed credits: %s", formatAccount(a)))
	}
	if a.Flags&ledgers.CreditsMustNotExceedDebits != 0 && credits.Cmp(a.DebitsPosted) > 0 {
		faults = append(faults, fmt.Sprintf("credits exceed debits: %s", formatAccount(a)))
	}
	return faults
}
