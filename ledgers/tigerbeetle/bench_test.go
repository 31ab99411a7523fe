//go:build cgo

package tigerbeetle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/tigerbeetle/tigerbeetle-go"

	"weir/ledgers"
	"weir/ledgers/tigerbeetle"
	"weir/ledgers/tigerbeetle/tbtest"
)

// benchSubjects is how many accounts the checks of a benchmark are spread over.
const benchSubjects = 10_000

// roundTime is how long the driver, and then the bare client, make checks in one round.
const roundTime = time.Second

// BenchmarkChecks makes checks, each a call with one pending transfer, with the driver and with
// bare tigerbeetle-go, in turns of roundTime on one server. It reports how many each makes in a
// second and the ratio, which is fair as the turns follow each other. It needs TIGERBEETLE:
//
//	TIGERBEETLE=/path/to/tigerbeetle \
//		go test -run '^$' -bench Checks -benchtime 10x ./ledgers/tigerbeetle
func BenchmarkChecks(b *testing.B) {
	c := shared(b, tbtest.Normal)
	ledger := c.open(b)
	bare, err := client.NewClient(client.ToUint128(c.ID().Lo), c.Addresses())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(bare.Close)
	run := rand.Uint64()>>2 | 1<<62
	var next atomic.Uint64
	provision(b, ledger, run)
	next.Store(1 << 40)
	for _, callers := range []int{1, 16, 256, 1024} {
		b.Run(fmt.Sprintf("%dCallers", callers), func(b *testing.B) {
			var ours, theirs int64
			for round := range 2 * b.N {
				if round%2 == 0 {
					ours += checks(b, callers, func() error {
						return driverCheck(ledger, run, next.Add(1))
					})
				} else {
					theirs += checks(b, callers, func() error {
						return bareCheck(bare, run, next.Add(1))
					})
				}
			}
			seconds := float64(b.N) * roundTime.Seconds()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(ours)/seconds, "driver-checks/s")
			b.ReportMetric(float64(theirs)/seconds, "bare-checks/s")
			b.ReportMetric(float64(ours)/float64(theirs), "ratio")
		})
	}
}

// checks has callers make checks for roundTime and returns how many they made.
func checks(b *testing.B, callers int, check func() error) int64 {
	b.Helper()
	var made atomic.Int64
	var wait sync.WaitGroup
	end := time.Now().Add(roundTime)
	for range callers {
		wait.Go(func() {
			for time.Now().Before(end) {
				err := check()
				if err != nil {
					b.Error(err)
					return
				}
				made.Add(1)
			}
		})
	}
	wait.Wait()
	return made.Load()
}

// provision creates an operator and the subjects, with quota that no benchmark uses up.
func provision(b *testing.B, ledger *tigerbeetle.Ledger, run uint64) {
	b.Helper()
	accounts := make([]ledgers.Account, 0, benchSubjects+1)
	var quota []ledgers.Transfer
	for n := range uint64(benchSubjects + 1) {
		account := ledgers.Account{ID: ledgers.ID{Lo: n + 1, Hi: run}, Ledger: 1, Code: 1}
		if n > 0 {
			account.Flags = ledgers.DebitsMustNotExceedCredits
			quota = append(quota, ledgers.Transfer{
				ID: account.ID, DebitAccountID: accounts[0].ID, CreditAccountID: account.ID,
				Amount: ledgers.AmountOf(1 << 40), Ledger: 1, Code: 1,
			})
		}
		accounts = append(accounts, account)
	}
	half := len(quota) / 2
	for _, part := range [][]ledgers.Account{accounts[:half], accounts[half:]} {
		_, err := ledger.CreateAccounts(b.Context(), part)
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, part := range [][]ledgers.Transfer{quota[:half], quota[half:]} {
		_, err := ledger.CreateTransfers(b.Context(), part)
		if err != nil {
			b.Fatal(err)
		}
	}
}

func driverCheck(ledger *tigerbeetle.Ledger, run, n uint64) error {
	results, err := ledger.CreateTransfers(context.Background(), []ledgers.Transfer{{
		ID:              ledgers.ID{Lo: n, Hi: run},
		DebitAccountID:  ledgers.ID{Lo: 2 + n%benchSubjects, Hi: run},
		CreditAccountID: ledgers.ID{Lo: 1, Hi: run},
		Amount:          ledgers.AmountOf(1),
		Ledger:          1, Code: 1, Flags: ledgers.Pending, Timeout: 3600,
	}})
	if err == nil && results[0].Status != ledgers.TransferCreated {
		err = fmt.Errorf("%v", results[0].Status)
	}
	return err
}

func bareCheck(bare client.Client, run, n uint64) error {
	id := func(lo uint64) client.Uint128 {
		return tigerbeetle.ToUint128(ledgers.Amount{Lo: lo, Hi: run})
	}
	results, err := bare.CreateTransfers([]client.Transfer{{
		ID:              id(n),
		DebitAccountID:  id(2 + n%benchSubjects),
		CreditAccountID: id(1),
		Amount:          client.ToUint128(1),
		Ledger:          1, Code: 1, Timeout: 3600,
		Flags: client.TransferFlags{Pending: true}.ToUint16(),
	}})
	if err == nil && results[0].Status != client.TransferCreated {
		err = fmt.Errorf("%v", results[0].Status)
	}
	return err
}
