package embedded_test

import (
	"testing"

	"weir/ledgers/ledgertest"
)

func TestConformance(t *testing.T) {
	ledgertest.Run(t, func(t testing.TB) ledgertest.Harness {
		clock := newClock()
		return ledgertest.Harness{
			Driver: open(t, t.TempDir(), clock.options()), Advance: clock.advance,
		}
	})
}
