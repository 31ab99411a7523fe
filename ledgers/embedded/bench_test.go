package embedded_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/embedded"
)

// BenchmarkPairs measures what one check asks of the ledger: a pending transfer, then a look-up of
// its account; durable, over 10,000 accounts. One operation is one pair.
func BenchmarkPairs(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		for _, timeout := range []uint32{3600, 2} {
			for _, ids := range []string{"random", "ascending"} {
				name := fmt.Sprintf("Callers%d/Timeout%ds/%s", callers, timeout, ids)
				b.Run(name, func(b *testing.B) {
					benchmarkPairs(b, callers, timeout, ids == "random")
				})
			}
		}
	}
}

const benchSubjects = 10_000

func benchmarkPairs(b *testing.B, callers int, timeout uint32, random bool) {
	ledger, err := embedded.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer ledger.Close()
	fund(b, ledger, benchSubjects)
	next := newIDs(random)
	// With the short timeout, as much comes due as is made before the clock starts.
	warm := time.Now().Add(3 * time.Second)
	runPairs(b, ledger, callers, timeout, next, func() bool { return time.Now().Before(warm) })
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	runPairs(b, ledger, callers, timeout, next, func() bool { return left.Add(-1) >= 0 })
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

func newIDs(random bool) func() ledgers.ID {
	if random {
		return func() ledgers.ID { return ledgers.ID{Lo: rand.Uint64(), Hi: rand.Uint64()} }
	}
	return func() ledgers.ID {
		return ledgers.ID{Hi: uint64(time.Now().UnixMilli()) << 16, Lo: rand.Uint64()}
	}
}

func runPairs(
	b *testing.B, ledger ledgers.Driver, callers int, timeout uint32,
	next func() ledgers.ID, more func() bool,
) {
	b.Helper()
	var wait sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range callers {
		wait.Go(func() {
			for more() {
				err := pair(ctx, ledger, next(), timeout)
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
}

func pair(ctx context.Context, ledger ledgers.Driver, id ledgers.ID, timeout uint32) error {
	subject := ledgers.ID{Lo: 2 + rand.Uint64N(benchSubjects)}
	results, err := ledger.CreateTransfers(ctx, []ledgers.Transfer{{
		ID: id, DebitAccountID: subject, CreditAccountID: ledgers.ID{Lo: 1},
		Amount: ledgers.AmountOf(1), Ledger: 1, Code: 1, Flags: ledgers.Pending, Timeout: timeout,
	}})
	if err != nil {
		return err
	}
	if results[0].Status != ledgers.TransferCreated {
		return fmt.Errorf("transfer %v: %v", id, results[0].Status)
	}
	_, err = ledger.LookupAccounts(ctx, []ledgers.ID{subject})
	return err
}

// fund makes an operator with id 1 and n subjects with ids from 2 on, each with plenty to spend.
func fund(t testing.TB, ledger ledgers.Driver, n int) {
	t.Helper()
	create(t, ledger, ledgers.Account{ID: ledgers.ID{Lo: 1}, Ledger: 1, Code: 1})
	const step = 8000
	for from := 0; from < n; from += step {
		var accounts []ledgers.Account
		var grants []ledgers.Transfer
		for i := from; i < min(n, from+step); i++ {
			id := ledgers.ID{Lo: uint64(i) + 2}
			accounts = append(accounts, ledgers.Account{
				ID: id, Ledger: 1, Code: 1, Flags: ledgers.DebitsMustNotExceedCredits,
			})
			grants = append(grants, ledgers.Transfer{
				ID: ledgers.ID{Lo: id.Lo, Hi: 1}, DebitAccountID: ledgers.ID{Lo: 1},
				CreditAccountID: id, Amount: ledgers.AmountOf(1 << 40), Ledger: 1, Code: 2,
			})
		}
		create(t, ledger, accounts...)
		transfer(t, ledger, ledgers.TransferCreated, grants...)
	}
}

// BenchmarkStart opens a ledger of a million subjects, each with a live reservation, and reports
// the process's greatest resident memory until then.
func BenchmarkStart(b *testing.B) {
	const subjects = 1_000_000
	dir := b.TempDir()
	ledger, err := embedded.Open(dir, &embedded.Options{Volatile: true})
	if err != nil {
		b.Fatal(err)
	}
	fund(b, ledger, subjects)
	reserve(b, ledger, subjects, 3600)
	err = ledger.Close()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		ledger, err = embedded.Open(dir, nil)
		if err != nil {
			b.Fatal(err)
		}
		_, err = ledger.LookupAccounts(b.Context(), []ledgers.ID{{Lo: 2}})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		err = ledger.Close()
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(residentMiB(b), "MiB-resident")
}

// reserve makes n reservations of random ones of n subjects.
func reserve(b *testing.B, ledger ledgers.Driver, n uint64, timeout uint32) {
	b.Helper()
	for from := uint64(0); from < n; from += 8000 {
		transfers := make([]ledgers.Transfer, 8000)
		for i := range transfers {
			transfers[i] = pending(from+uint64(i), 1, timeout)
			transfers[i].ID = ledgers.ID{Lo: rand.Uint64(), Hi: rand.Uint64()}
			transfers[i].DebitAccountID.Lo = 2 + rand.Uint64N(n)
		}
		transfer(b, ledger, ledgers.TransferCreated, transfers...)
	}
}

// BenchmarkEndAtOnce measures the first call after a million reservations of a million subjects
// have all come to their end.
func BenchmarkEndAtOnce(b *testing.B) {
	const subjects = 1_000_000
	clock := newClock()
	ledger, err := embedded.Open(b.TempDir(), clock.options())
	if err != nil {
		b.Fatal(err)
	}
	defer ledger.Close()
	fund(b, ledger, subjects)
	for b.Loop() {
		b.StopTimer()
		clock.advance(time.Minute)
		reserve(b, ledger, subjects, 60)
		clock.advance(2 * time.Minute)
		b.StartTimer()
		accounts, err := ledger.LookupAccounts(b.Context(), []ledgers.ID{{Lo: 1}})
		if err != nil || !accounts[0].CreditsPending.IsZero() {
			b.Fatalf("operator: got %+v, %v, want nothing pending", accounts, err)
		}
	}
	b.ReportMetric(residentMiB(b), "MiB-resident")
}

// residentMiB reads the greatest resident memory of this process.
func residentMiB(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0 // not on this system
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib float64
	_, err = fmt.Sscan(rest, &kib)
	if err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}
