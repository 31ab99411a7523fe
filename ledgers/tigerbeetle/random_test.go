package tigerbeetle_test

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"weir/ledgers/ledgertest"
)

// How many random sequences are sent to a real TigerBeetle, how many at once, and how many steps
// each has. They mostly wait for expiries; each has a session, of which a cluster takes 64.
const (
	sequences     = 50
	sequencesLong = 1000
	atOnce        = 40
	sequenceSteps = 60
)

// TestRandom compares a real TigerBeetle with the naive twin, which is what the embedded engine is
// compared with too. WEIR_SEED gives the first seed.
func TestRandom(t *testing.T) {
	c := shared(t, development)
	count := sequences
	if os.Getenv("WEIR_LONG") == "1" {
		count = sequencesLong
	}
	first := uint64(0)
	_, err := fmt.Sscan("0"+os.Getenv("WEIR_SEED"), &first)
	if err != nil {
		t.Fatalf("WEIR_SEED: %v", err)
	}
	seeds := make(chan uint64)
	var wait sync.WaitGroup
	for range atOnce {
		wait.Go(func() {
			for seed := range seeds {
				t.Run(fmt.Sprintf("Seed%d", seed), func(t *testing.T) {
					ledgertest.RunRandom(t, seed, sequenceSteps, c.harness)
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
