package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// held is a ledger that can be paused: what is written meanwhile is given up by its callers when
// their time is over, and done when the ledger goes on.
type held struct {
	ledgers.Driver

	mu      sync.Mutex
	resumed chan struct{}
}

// pause holds back what is written from now on.
func (h *held) pause() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resumed = make(chan struct{})
}

// pass lets new writes through, and returns what releases those that are held back.
func (h *held) pass() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	resumed := h.resumed
	h.resumed = nil
	return func() { close(resumed) }
}

func (h *held) resume() { h.pass()() }

func (h *held) CreateTransfers(ctx context.Context, batch []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	h.mu.Lock()
	resumed := h.resumed
	h.mu.Unlock()
	if resumed == nil {
		return h.Driver.CreateTransfers(ctx, batch)
	}
	late := make(chan []ledgers.TransferResult, 1)
	go func() {
		defer close(late)
		<-resumed
		results, err := h.Driver.CreateTransfers(context.WithoutCancel(ctx), batch)
		if err == nil {
			late <- results
		}
	}()
	select {
	case results := <-late:
		return results, nil
	case <-ctx.Done():
		return nil, &ledgers.GivenUp{Late: late, Cause: ctx.Err()}
	}
}

// pausing returns a node on a ledger that can be paused, and how to: with a limit of 10 units in
// 30 s whose requests wait a quarter of a second.
func pausing(t *testing.T, policy limiter.Policy) (*node, *held, *testClock) {
	t.Helper()
	clock := newClock()
	ledger := &held{Driver: openLedger(t, clock)}
	limit := rate("api", 10, 30*time.Second)
	limit.OnFailure, limit.Deadline = policy, 250*time.Millisecond
	n := spooling(t, ledger, clock, t.TempDir(), limit)
	d := check(t, n.Limiter, one("api", "other", 1)) // the ledger's time is known
	if !d.Allowed || d.Degraded {
		t.Fatalf("before the pause: got %+v, want allowed", d)
	}
	// The subject exists: what is given up is the charge.
	check(t, n.Limiter, one("api", "alice", 10))
	clock.Advance(31 * time.Second)
	return n, ledger, clock
}

// finished waits for what goes on after calls that were given up.
func (n *node) finished(t *testing.T) {
	t.Helper()
	err := n.Close(context.Background())
	if err != nil {
		t.Fatal(err)
	}
}

// L3: ten checks while the ledger is paused are not decided. Without ids, what the ledger took for
// them all the same is given back; with ids it is kept, and each id tells.
func TestLateChargesClosed(t *testing.T) {
	for _, ids := range []bool{false, true} {
		t.Run(fmt.Sprint("ids ", ids), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, ledger, _ := pausing(t, limiter.Closed)
				request := func(i int) limiter.Request {
					if ids {
						return named(fmt.Sprint(i), one("api", "alice", 1))
					}
					return one("api", "alice", 1)
				}
				ledger.pause()
				for i := range 10 {
					_, err := n.Check(t.Context(), request(i))
					e, ok := errors.AsType[*limiter.Error](err)
					if !ok || e.Code != limiter.CodeLedgerUnavailable ||
						strings.Contains(e.Detail, "same id") != ids {
						t.Fatalf("check %d: got %v, want ledger-unavailable, with a word on the id "+
							"where there is one", i, err)
					}
				}
				ledger.resume()
				n.finished(t)
				if !ids {
					wantBalance(t, n.Limiter, "api", "alice", 10, 0, 10)
					if got := n.count(t, "weir_late_charges_total", "voided"); got != 10 {
						t.Errorf("voided: got %v, want 10", got)
					}
					return
				}
				if got := n.count(t, "weir_late_charges_total", "kept"); got != 10 {
					t.Errorf("kept: got %v, want 10", got)
				}
				for i := range 10 {
					if d := check(t, n.Limiter, request(i)); !d.Replayed || !d.Allowed {
						t.Errorf("id %d again: got %+v, want the replay of an admission", i, d)
					}
				}
				wantBalance(t, n.Limiter, "api", "alice", 10, 10, 0)
			})
		})
	}
}

// The ledger does the late charges and is away again before they can be given back: that is tried
// until it works.
func TestLateChargeGivenBackLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newClock()
		faulty := ledgertest.NewFaulty(openLedger(t, clock))
		ledger := &held{Driver: faulty}
		limit := closed(rate("api", 10, 30*time.Second))
		limit.Deadline = 250 * time.Millisecond
		n := spooling(t, ledger, clock, t.TempDir(), limit)
		check(t, n.Limiter, one("api", "alice", 2))
		ledger.pause()
		wantCode(t, n.Limiter, one("api", "alice", 8), limiter.CodeLedgerUnavailable)
		faulty.Inject(ledgertest.Fault{ // the look-up of what became of it
			On: ledgertest.CallLookupTransfers, Times: 3, Before: errors.New("down"),
		})
		faulty.Inject(ledgertest.Fault{ // the void, after the late charge
			On: ledgertest.CallCreateTransfers, Skip: 1, Times: 2, After: errors.New("down"),
		})
		ledger.resume()
		start := time.Now()
		n.finished(t)
		if took := time.Since(start); took < time.Second || took > 3*time.Second {
			t.Errorf("five failures took %v, want a pause after each", took)
		}
		wantBalance(t, n.Limiter, "api", "alice", 10, 2, 8)
		if got := n.count(t, "weir_late_charges_total", "voided"); got != 1 {
			t.Errorf("voided: got %v, want 1", got)
		}
	})
}

// Weir ends while the ledger is paused. How many calls are not answered is said once; there is
// nothing to be said of each charge.
func TestLateChargesAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ledger, _ := pausing(t, limiter.Closed)
		ledger.pause()
		for range 3 {
			wantCode(t, n.Limiter, one("api", "alice", 1), limiter.CodeLedgerUnavailable)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := n.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "3 calls") {
			t.Errorf("close: got %v, want that 3 calls are not answered", err)
		}
		closed := ledgertest.NewFaulty(ledger.Driver)
		defer away(closed)()
		ledger.Driver = closed
		ledger.resume()
		n.finished(t)
		if got := n.count(t, "weir_late_charges_total", "unwatched"); got != 3 {
			t.Errorf("unwatched: got %v, want 3", got)
		}
		if n.log.Len() > 0 {
			t.Errorf("got log lines, want none:\n%s", n.log.String())
		}
	})
}

// A late charge that cannot be given back for a minute is named, so that it can be given back by
// hand.
func TestLateChargeNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ledger, _ := pausing(t, limiter.Closed)
		ledger.pause()
		wantCode(t, n.Limiter, one("api", "alice", 1), limiter.CodeLedgerUnavailable)
		faulty := ledgertest.NewFaulty(ledger.Driver)
		faulty.Inject(ledgertest.Fault{
			On: ledgertest.CallLookupTransfers, Times: ledgertest.Always, Before: errors.New("down"),
		})
		ledger.Driver = faulty
		ledger.resume()
		n.finished(t)
		log := n.log.String()
		if !strings.Contains(log, "level=WARN msg=\"a late charge was not given back") ||
			!strings.Contains(log, "transfer=") {
			t.Errorf("got log %q, want a warning with the transfer", log)
		}
	})
}

// A late charge on a prepaid balance, which would not come back by itself, is paid back.
func TestLateChargeOfCredits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newClock()
		ledger := &held{Driver: openLedger(t, clock)}
		n := spooling(t, ledger, clock, t.TempDir(), limiter.Limit{
			Name: "prepaid", Kind: limiter.Credits, Quota: 10, Deadline: 250 * time.Millisecond,
		})
		check(t, n.Limiter, one("prepaid", "s", 1))
		ledger.pause()
		wantCode(t, n.Limiter, one("prepaid", "s", 4), limiter.CodeLedgerUnavailable)
		ledger.resume()
		n.finished(t)
		b, err := n.Balance(t.Context(), "prepaid", "s")
		if err != nil || b.Remaining != 9 {
			t.Errorf("got %+v, %v, want 9 remaining", b, err)
		}
		if got := n.count(t, "weir_late_charges_total", "voided"); got != 1 {
			t.Errorf("voided: got %v, want 1", got)
		}
	})
}

// L4: the same while open: allowed within the deadline, and each counted once, whether it is booked
// before its late charge, after it, or sent again.
func TestLateChargesOpen(t *testing.T) {
	for _, before := range []bool{false, true} {
		t.Run(fmt.Sprint("booked before the late charge ", before), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, ledger, clock := pausing(t, limiter.Open)
				ledger.pause()
				start := time.Now()
				for i := range 10 {
					r := one("api", "alice", 1)
					if i < 5 {
						r.ID = fmt.Sprint(i)
					}
					if d := check(t, n.Limiter, r); !d.Allowed || !d.Degraded {
						t.Fatalf("check %d: got %+v, want degraded", i, d)
					}
				}
				if took := time.Since(start); took > 2500*time.Millisecond {
					t.Errorf("ten checks took %v, want at most the deadline of each", took)
				}
				clock.Advance(10 * time.Second)
				if before {
					release := ledger.pass() // the ten are still under way
					n.book(t)
					release()
				} else {
					ledger.resume()
					n.finished(t)
					n.book(t)
				}
				n.finished(t)
				n.book(t)
				n.wantUnits(t, 10, 0, 0)
				for i := range 5 {
					d := check(t, n.Limiter, named(fmt.Sprint(i), one("api", "alice", 1)))
					if !d.Allowed || !d.Replayed {
						t.Errorf("id %d again: got %+v, want a replay", i, d)
					}
				}
				wantBalance(t, n.Limiter, "api", "alice", 10, 10, 0)

				// The late charges come back a window after their commit, the booked ones a window
				// after they were let through, rounded up to whole seconds from their booking.
				if before {
					clock.Advance(20*time.Second - time.Millisecond)
				} else {
					clock.Advance(30*time.Second - time.Millisecond)
				}
				wantBalance(t, n.Limiter, "api", "alice", 10, 10, 0)
				clock.Advance(time.Second + 2*time.Millisecond)
				wantBalance(t, n.Limiter, "api", "alice", 10, 0, 10)
			})
		})
	}
}

// A grant that nobody waited for and that is made later is seen by the next check.
func TestLateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ledger, _ := pausing(t, limiter.Closed)
		check(t, n.Limiter, one("api", "alice", 10))
		ledger.pause()
		grant := limiter.Change{Limit: "api", Subject: "alice", Amount: 5, ID: "g"}
		_, err := n.Grant(t.Context(), grant)
		e, ok := errors.AsType[*limiter.Error](err)
		if !ok || e.Code != limiter.CodeLedgerUnavailable || !strings.Contains(e.Detail, "same id") {
			t.Fatalf("got %v, want ledger-unavailable, and that the id will tell", err)
		}
		release := ledger.pass() // checks are decided while the grant is still under way
		for range 2 {
			if d := check(t, n.Limiter, one("api", "alice", 1)); d.Allowed {
				t.Fatalf("before the grant: got %+v, want denied", d)
			}
		}
		release()
		n.finished(t)
		if d := check(t, n.Limiter, one("api", "alice", 5)); !d.Allowed {
			t.Errorf("after the grant: got %+v, want allowed", d)
		}
		made, err := n.Grant(t.Context(), grant)
		if err != nil || !made.Replayed || made.Quota != 15 {
			t.Errorf("the id again: got %+v, %v, want the grant replayed", made, err)
		}
	})
}

// TestDeadlineIsShared begins checks that nobody decides within a few milliseconds: none waits for
// longer than the deadline, or for less than 63/64 of it.
func TestDeadlineIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ledger, _ := pausing(t, limiter.Closed)
		ledger.pause()
		var wait sync.WaitGroup
		for _, begin := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond,
			4 * time.Millisecond, 100 * time.Millisecond} {
			wait.Go(func() {
				time.Sleep(begin)
				start := time.Now()
				_, err := n.Check(context.Background(), one("api", "alice", 1))
				took := time.Since(start)
				const deadline = 250 * time.Millisecond
				if err == nil || took > deadline || took < deadline*63/64 {
					t.Errorf("begun after %v: got error %v after %v, want one after %v to %v",
						begin, err, took, deadline*63/64, deadline)
				}
			})
		}
		wait.Wait()
		ledger.resume()
		n.finished(t)
	})
}
