package ledgertest_test

import (
	"sync/atomic"
	"testing"
	"time"

	"weir/ledgers/ledgertest"
)

// startTime is when the clock of a twin starts: any time will do.
const startTime = 1_800_000_000_000_000_000

// openTwin is the harness of the twin: a clock that moves when the test moves it.
func openTwin(testing.TB) ledgertest.Harness {
	var now atomic.Uint64
	now.Store(startTime)
	return ledgertest.Harness{
		Driver:  ledgertest.NewTwin(now.Load),
		Advance: func(d time.Duration) { now.Add(uint64(d)) },
	}
}

func TestTwin(t *testing.T) { ledgertest.Run(t, openTwin) }
