package ledgertest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
)

func TestTwinRandom(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("Seed%d", seed), func(t *testing.T) {
			t.Parallel()
			ledgertest.RunRandom(t, seed, 200, openTwin)
		})
	}
}

// sluggish is a ledger whose calls come late: its clock goes on before each of them.
type sluggish struct {
	ledgers.Driver
	late func()
}

func (s sluggish) CreateTransfers(
	ctx context.Context, transfers []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	s.late()
	return s.Driver.CreateTransfers(ctx, transfers)
}

func (s sluggish) LookupAccounts(
	ctx context.Context, ids []ledgers.ID,
) ([]ledgers.Account, error) {
	s.late()
	return s.Driver.LookupAccounts(ctx, ids)
}

// TestRandomLate has things time out between the time that was read before a call and the call.
func TestRandomLate(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("Seed%d", seed), func(t *testing.T) {
			t.Parallel()
			ledgertest.RunRandom(t, seed, 200, func(t testing.TB) ledgertest.Harness {
				harness := openTwin(t)
				harness.Driver = sluggish{harness.Driver, func() { harness.Advance(time.Second) }}
				return harness
			})
		})
	}
}

// broken is a twin with one fault in what it answers.
type broken struct {
	ledgers.Driver
	accounts  func([]ledgers.AccountResult)
	transfers func([]ledgers.TransferResult)
	balances  func([]ledgers.Account)
	journal   func([]ledgers.Transfer) []ledgers.Transfer
}

func (b *broken) CreateAccounts(
	ctx context.Context, accounts []ledgers.Account,
) ([]ledgers.AccountResult, error) {
	results, err := b.Driver.CreateAccounts(ctx, accounts)
	if b.accounts != nil {
		b.accounts(results)
	}
	return results, err
}

func (b *broken) CreateTransfers(
	ctx context.Context, transfers []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	results, err := b.Driver.CreateTransfers(ctx, transfers)
	if b.transfers != nil {
		b.transfers(results)
	}
	return results, err
}

func (b *broken) LookupAccounts(
	ctx context.Context, ids []ledgers.ID,
) ([]ledgers.Account, error) {
	accounts, err := b.Driver.LookupAccounts(ctx, ids)
	if b.balances != nil {
		b.balances(accounts)
	}
	return accounts, err
}

func (b *broken) AccountTransfers(
	ctx context.Context, filter ledgers.AccountFilter,
) ([]ledgers.Transfer, error) {
	transfers, err := b.Driver.AccountTransfers(ctx, filter)
	if b.journal != nil {
		transfers = b.journal(transfers)
	}
	return transfers, err
}

// tidy:table one fault an entry
var randomFaults = []struct {
	name   string
	broken broken
	// want is a word of the report, by which the fault can be seen.
	want string
}{
	{"Status", broken{transfers: func(results []ledgers.TransferResult) {
		for i, r := range results {
			if r.Status == ledgers.TransferIDAlreadyFailed {
				results[i].Status = ledgers.TransferExceedsCredits
			}
		}
	}}, "id_already_failed"},
	{"AccountStatus", broken{accounts: func(results []ledgers.AccountResult) {
		for i, r := range results {
			if r.Status == ledgers.AccountExistsWithDifferentFlags {
				results[i].Status = ledgers.AccountExistsWithDifferentCode
			}
		}
	}}, "want exists_with_different_flags"},
	{"TimestampOfExists", broken{transfers: func(results []ledgers.TransferResult) {
		for i, r := range results {
			if r.Status == ledgers.TransferExists {
				results[i].Timestamp++
			}
		}
	}}, "exists at"},
	{"TimeGoesBack", broken{transfers: func(results []ledgers.TransferResult) {
		for i := range results[1:] {
			results[i+1].Timestamp = results[i].Timestamp
		}
	}}, "no later time"},
	{"ResultMissing", broken{accounts: func(results []ledgers.AccountResult) {
		clear(results)
	}}, "no later time"},
	{"Balance", broken{balances: func(accounts []ledgers.Account) {
		for i := range accounts {
			if !accounts[i].DebitsPending.IsZero() {
				accounts[i].CreditsPending = accounts[i].CreditsPending.AddWrap64(1)
			}
		}
	}}, "credits_pending"},
	{"JournalOrder", broken{journal: func(ts []ledgers.Transfer) []ledgers.Transfer {
		if len(ts) > 1 {
			ts[0], ts[1] = ts[1], ts[0]
		}
		return ts
	}}, "want id="},
	{"JournalLimit", broken{journal: func(ts []ledgers.Transfer) []ledgers.Transfer {
		return ts[:max(0, len(ts)-1)]
	}}, "got  (none)"},
}

// TestRandomFindsFaults has each fault reported, with the seed and few steps.
func TestRandomFindsFaults(t *testing.T) {
	for _, test := range randomFaults {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := record(t, func(t testing.TB) {
				ledgertest.RunRandom(t, 4711, 120, func(t testing.TB) ledgertest.Harness {
					harness, faulty := openTwin(t), test.broken
					faulty.Driver = harness.Driver
					harness.Driver = &faulty
					return harness
				})
			})
			if len(got) == 0 {
				t.Fatal("the fault was not reported")
			}
			for _, want := range []string{"seed 4711", test.want} {
				if !strings.Contains(got[0], want) {
					t.Errorf("got report %q, want %q in it", got[0], want)
				}
			}
			if lines := strings.Count(got[0], "\n"); lines > 60 {
				t.Errorf("got %d lines, want the fault shrunken:\n%s", lines, got[0])
			}
		})
	}
}
