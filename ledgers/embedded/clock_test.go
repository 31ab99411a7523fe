package embedded_test

import (
	"sync/atomic"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/embedded"
)

// steppedClock is a wall clock that can be set, beside a monotonic clock that only goes on.
type steppedClock struct {
	fakeClock
	elapsed atomic.Int64
}

func newSteppedClock() *steppedClock {
	c := &steppedClock{}
	c.now.Store(newClock().now.Load())
	return c
}

// pass lets time go by on both clocks.
func (c *steppedClock) pass(d time.Duration) {
	c.elapsed.Add(int64(d))
	c.advance(d)
}

func (c *steppedClock) options() *embedded.Options {
	return &embedded.Options{
		Now: c.read, Volatile: true,
		Elapsed: func() time.Duration { return time.Duration(c.elapsed.Load()) },
	}
}

func pending(id uint64, amount uint64, timeout uint32) ledgers.Transfer {
	return ledgers.Transfer{
		ID:             ledgers.ID{Lo: id},
		DebitAccountID: ledgers.ID{Lo: 2}, CreditAccountID: ledgers.ID{Lo: 1},
		Amount: ledgers.AmountOf(amount), Ledger: 1, Code: 1,
		Flags: ledgers.Pending, Timeout: timeout,
	}
}

// wantPending checks how much of account 2 is pending.
func wantPending(t *testing.T, ledger ledgers.Driver, when string, want uint64) {
	t.Helper()
	accounts, err := ledger.LookupAccounts(t.Context(), []ledgers.ID{{Lo: 2}})
	if err != nil {
		t.Fatalf("look up: %v", err)
	}
	got := accounts[0].DebitsPending
	if got != ledgers.AmountOf(want) {
		t.Fatalf("%s: %v pending, want %d", when, got, want)
	}
}

// TestExpiry looks at the very instant: expired means that the clock has reached the end.
func TestExpiry(t *testing.T) {
	clock := newClock()
	ledger := open(t, t.TempDir(), clock.options())
	fund(t, ledger, 1)
	clock.advance(time.Second)
	result := transfer(t, ledger, ledgers.TransferCreated, pending(100, 5, 2))[0]
	end := result.Timestamp + uint64(2*time.Second)
	clock.set(end - 1)
	wantPending(t, ledger, "one nanosecond before the end", 5)
	clock.set(end)
	wantPending(t, ledger, "at the end", 0)
	transfer(t, ledger, ledgers.TransferPendingTransferExpired, ledgers.Transfer{
		ID: ledgers.ID{Lo: 101}, PendingID: ledgers.ID{Lo: 100}, Flags: ledgers.VoidPending,
	})
	again := transfer(t, ledger, ledgers.TransferExists, pending(100, 5, 2))[0]
	if again.Timestamp != result.Timestamp {
		t.Errorf("exists at %d, want the first time %d", again.Timestamp, result.Timestamp)
	}
}

// TestExpiryFreesForTheSameCall: what has come due is free for a transfer at that instant, also for
// the first of a chain.
func TestExpiryFreesForTheSameCall(t *testing.T) {
	clock := newClock()
	ledger := open(t, t.TempDir(), clock.options())
	fund(t, ledger, 1)
	clock.advance(time.Second)
	result := transfer(t, ledger, ledgers.TransferCreated, pending(100, 1<<40, 2))[0]
	clock.set(result.Timestamp + uint64(2*time.Second) - 1)
	transfer(t, ledger, ledgers.TransferExceedsCredits, pending(101, 1, 2))
	clock.advance(time.Nanosecond)
	chain := []ledgers.Transfer{pending(102, 1, 2), pending(103, 1<<40-1, 2)}
	chain[0].Flags |= ledgers.Linked
	transfer(t, ledger, ledgers.TransferCreated, chain...)
}

func TestClockSteps(t *testing.T) {
	t.Run("ForwardADayAndBack", func(t *testing.T) {
		clock := newSteppedClock()
		ledger := open(t, t.TempDir(), clock.options())
		fund(t, ledger, 1)
		clock.advance(24 * time.Hour)
		clock.pass(time.Second)
		transfer(t, ledger, ledgers.TransferCreated, pending(100, 5, 60))
		clock.advance(-24 * time.Hour)
		transfer(t, ledger, ledgers.TransferCreated, pending(101, 2, 10))
		clock.pass(10*time.Second - 5*time.Millisecond)
		wantPending(t, ledger, "just before the second end", 7)
		clock.pass(10 * time.Millisecond)
		wantPending(t, ledger, "after the second end", 5)
		clock.pass(50*time.Second - 10*time.Millisecond)
		wantPending(t, ledger, "just before the first end", 5)
		clock.pass(10 * time.Millisecond)
		wantPending(t, ledger, "after the first end", 0)
	})
	t.Run("BackWhileIdle", func(t *testing.T) {
		clock := newSteppedClock()
		ledger := open(t, t.TempDir(), clock.options())
		fund(t, ledger, 1)
		transfer(t, ledger, ledgers.TransferCreated, pending(100, 5, 60))
		clock.pass(59 * time.Second)
		clock.advance(-40 * time.Second)
		wantPending(t, ledger, "before the end", 5)
		clock.pass(1010 * time.Millisecond)
		wantPending(t, ledger, "after the end", 0)
	})
	t.Run("BackAcrossARestart", func(t *testing.T) {
		clock := newSteppedClock()
		dir := t.TempDir()
		ledger := open(t, dir, clock.options())
		fund(t, ledger, 1)
		transfer(t, ledger, ledgers.TransferCreated, pending(100, 5, 60))
		clock.advance(59 * time.Second)
		last := transfer(t, ledger, ledgers.TransferCreated, pending(101, 1, 60))[0].Timestamp
		ledger.Close()
		clock.advance(-time.Hour)
		ledger = open(t, dir, clock.options())
		clock.pass(900 * time.Millisecond)
		wantPending(t, ledger, "before the first end", 6)
		clock.pass(200 * time.Millisecond)
		wantPending(t, ledger, "after the first end", 1)
		next := transfer(t, ledger, ledgers.TransferCreated, pending(102, 1, 60))[0].Timestamp
		if next <= last {
			t.Errorf("timestamp %d after %d", next, last)
		}
	})
	t.Run("CaughtUp", func(t *testing.T) {
		clock := newSteppedClock()
		ledger := open(t, t.TempDir(), clock.options())
		fund(t, ledger, 1)
		clock.advance(-10 * time.Second)
		transfer(t, ledger, ledgers.TransferCreated, pending(100, 5, 60))
		clock.advance(30 * time.Second)
		got := transfer(t, ledger, ledgers.TransferCreated, pending(101, 5, 60))[0].Timestamp
		want := uint64(clock.read().UnixNano())
		if got != want {
			t.Errorf("timestamp %d, want the wall clock's %d", got, want)
		}
	})
}

// TestShownExpiryLasts: a balance that was shown without an expired transfer is never shown with it
// again, whatever the clock does across a crash.
func TestShownExpiryLasts(t *testing.T) {
	d := newCrashable(t)
	fund(t, d.ledger, 1)
	transfer(t, d.ledger, ledgers.TransferCreated, pending(100, 5, 60))
	d.clock.advance(time.Hour)
	wantPending(t, d.ledger, "an hour later", 0)
	d.clock.advance(-time.Hour)
	d.crash()
	wantPending(t, d.ledger, "after the crash", 0)
}
