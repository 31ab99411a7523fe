package tigerbeetle_test

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle/tbtest"
)

// How many random sequences are sent to a real TigerBeetle, how many at once, as they mostly wait
// for expiries, and how many steps each has.
const (
	sequences     = 50
	sequencesLong = 1000
	atOnce        = 100
	sequenceSteps = 60
)

// lent is a ledger that others use too: who closes it stops using it.
type lent struct{ ledgers.Driver }

// Close implements [ledgers.Driver].
func (lent) Close() error { return nil }

// TestRandom compares a real TigerBeetle with the naive twin, which is what the embedded engine is
// compared with too. WEIR_SEED gives the first seed. All sequences share one
// session, so that their calls go together in its requests.
func TestRandom(t *testing.T) {
	session := shared(t, tbtest.Development).harness(t)
	session.Driver = lent{session.Driver}
	open := func(testing.TB) ledgertest.Harness { return session }
	count := sequences
	if os.Getenv("WEIR_LONG") == "1" {
		count = sequencesLong
	}
	first, err := strconv.ParseUint("0"+os.Getenv("WEIR_SEED"), 10, 64)
	if err != nil {
		t.Fatalf("WEIR_SEED: %v", err)
	}
	seeds := make(chan uint64)
	var wait sync.WaitGroup
	for range atOnce {
		wait.Go(func() {
			for seed := range seeds {
				t.Run(fmt.Sprintf("Seed%d", seed), func(t *testing.T) {
					ledgertest.RunRandom(t, seed, sequenceSteps, open)
				})
			}
		})
	}
	for n := range uint64(count) {
		seeds <- first + n
	}
	close(seeds)
	wait.Wait()
}
