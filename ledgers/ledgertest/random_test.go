package ledgertest_test

import (
	"fmt"
	"testing"

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
