package tigerbeetle_test

import (
	"os"
	"testing"

	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle/tbtest"
)

// TestConformance holds a real TigerBeetle to the specification.
func TestConformance(t *testing.T) {
	modes := []tbtest.Mode{tbtest.Development, tbtest.Normal}
	if os.Getenv("WEIR_LONG") == "1" {
		modes = append(modes, tbtest.ThreeReplicas)
	}
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) { ledgertest.Run(t, shared(t, m).harness) })
	}
}
