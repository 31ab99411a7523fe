package scenarios_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/guard"
	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle/tbtest"
	"weir/limiter"
)

// TestExhaustedFlood has many callers ask for a subject that has nothing left. Hardly any of it is
// written to the ledger, and it is answered faster than what passes.
func TestExhaustedFlood(t *testing.T) {
	c := tbtest.Start(t, tbtest.Development)
	n := open(t, c.Addresses(), c.ID(), namespace(), newLimits(t, 1,
		unhurried("tight", 5, 2*time.Second), unhurried("wide", 1_000_000, time.Hour)),
		guard.Options{Deadline: patience})
	n.ready(t)
	checks := rounds(20_000, 100_000)
	admitted, all := flood(n, checks/4, 0, "wide", "alice")
	all.wantKinds(t, map[string]int{"allowed": checks / 4})
	denied, tight := flood(n, checks, 0, "tight", "bob")

	// And now slowly, so that units come back meanwhile.
	before := n.calls.Calls(ledgertest.CallCreateTransfers)
	start := time.Now()
	_, later := flood(n, checks, 6*time.Second*floodCallers/time.Duration(checks), "tight", "bob")
	writes := n.calls.Calls(ledgertest.CallCreateTransfers) - before
	// A unit comes back 5 times in a window, and a denial is remembered for a second: then those who
	// ask before one of them is answered ask the ledger, half of the callers at most, and no others.
	moments := 2 + int(time.Since(start).Seconds()*3.5)
	t.Logf("%.0f denials/s, %.0f admissions/s; %d writes for %d checks in %v, of which passed %d",
		denied, admitted, writes, checks, time.Since(start), later.kinds()["allowed"])
	if writes > moments*floodCallers/2 || denied < 3*admitted {
		t.Errorf("got %d writes and %.0f denials/s; want at most %d and 3 times %.0f admissions/s",
			writes, denied, moments*floodCallers/2, admitted)
	}
	tight.answers = append(tight.answers, later.answers...)
	tight.prove(t, n)
}

// floodCallers are the callers of a flood.
const floodCallers = 64

// flood makes checks from many callers, each of which waits between two, and returns how many were
// answered in a second.
func flood(n *node, checks int, pause time.Duration, limit, subject string) (float64, *tally) {
	var l tally
	var next atomic.Int64
	var wait sync.WaitGroup
	start := time.Now()
	for range floodCallers {
		wait.Go(func() {
			for next.Add(1) <= int64(checks) {
				l.add(n.ask(limit, subject, ""))
				if pause > 0 {
					<-time.After(pause)
				}
			}
		})
	}
	wait.Wait()
	return float64(checks) / time.Since(start).Seconds(), &l
}

// TestManyAtOnce makes 1,000 and 10,000 checks at once (4,000 without WEIR_LONG, which a machine
// with much else to do answers in time, too), every third over three limits, on a server that takes
// about 250 events in one request. Each caller gets its own answer.
func TestManyAtOnce(t *testing.T) {
	c := tbtest.Start(t, tbtest.Development)
	for _, callers := range []int{1_000, rounds(4_000, 10_000)} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			quota := uint64(callers / 2)
			n := open(t, c.Addresses(), c.ID(), namespace(), newLimits(t, 1,
				unhurried("a", quota, time.Hour), unhurried("b", quota, time.Hour),
				unhurried("c", quota, time.Hour)),
				guard.Options{Deadline: patience, MaxCalls: 2 * callers})
			n.ready(t)
			decisions := make([]limiter.Decision, callers)
			var wait sync.WaitGroup
			for i := range callers {
				wait.Go(func() {
					r := limiter.Request{ID: fmt.Sprint("id ", i)}
					for _, limit := range []string{"a", "b", "c"}[:1+i%3/2*2] {
						r.Members = append(r.Members, limiter.Member{
							Limit: limit, Subject: "site", Cost: 1,
						})
					}
					var err error
					decisions[i], err = n.Check(context.Background(), r)
					if err != nil {
						t.Errorf("check %d: got %v", i, err)
					}
				})
			}
			wait.Wait()
			wantOwnAnswers(t, n, decisions, quota)
		})
	}
}

// wantOwnAnswers looks at whether each check was answered for itself: receipts differ, and what the
// journal says was charged is what was allowed.
func wantOwnAnswers(t testing.TB, n *node, decisions []limiter.Decision, quota uint64) {
	t.Helper()
	allowed := map[string]uint64{}
	receipts := map[ledgers.ID]bool{}
	for i, d := range decisions {
		if len(d.Limits) != 1+i%3/2*2 {
			t.Fatalf("check %d: got an answer for %d limits", i, len(d.Limits))
		}
		if !d.Allowed {
			continue
		}
		if receipts[d.Transfer] {
			t.Errorf("check %d: got the receipt %v of another", i, d.Transfer)
		}
		receipts[d.Transfer] = true
		for _, s := range d.Limits {
			allowed[s.Limit]++
		}
	}
	for _, limit := range []string{"a", "b", "c"} {
		r := recordOf(t, n, limit, "site")
		if r.charged != allowed[limit] || r.charged > quota {
			t.Errorf("%s: got %d charged and %d allowed, want them the same, at most %d",
				limit, r.charged, allowed[limit], quota)
		}
		proveOperator(t, n, limit, r.charged)
	}
	if allowed["a"] != quota {
		t.Errorf("got %d allowed, want all of %d", allowed["a"], quota)
	}
	t.Logf("proof: %v allowed and charged, of %d checks", allowed, len(decisions))
}
