package tigerbeetle_test

import (
	"os"
	"testing"

	"weir/ledgers/ledgertest"
)

// TestConformance holds a real TigerBeetle to the specification.
func TestConformance(t *testing.T) {
	modes := []mode{development, normal}
	if os.Getenv("WEIR_LONG") == "1" {
		modes = append(modes, threeNodes)
	}
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) { ledgertest.Run(t, shared(t, m).harness) })
	}
}
