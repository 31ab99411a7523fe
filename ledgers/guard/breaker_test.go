package guard_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/ledgers"
	"weir/ledgers/guard"
	"weir/ledgers/ledgertest"
)

// fail has a guard's next n calls fail, all of which must be sent.
func fail(t testing.TB, g *guard.Guard, f *ledgertest.Faulty, n int) {
	t.Helper()
	f.Inject(ledgertest.Fault{On: ledgertest.CallCreateTransfers, Before: errDown, Times: n})
	for i := range n {
		err := send(t.Context(), g, uint64(100+i))
		if !errors.Is(err, errDown) {
			t.Fatalf("failure %d: got error %v, want %v", i, err, errDown)
		}
	}
}

// wantUp waits for all that is under way and looks at the breaker.
func wantUp(t testing.TB, g *guard.Guard, when string, want bool) {
	t.Helper()
	synctest.Wait()
	if g.Up() != want {
		t.Fatalf("%s: got up %v, want %v", when, !want, want)
	}
}

// TestBreakerCounts makes calls one after the other and looks at whether the breaker is closed
// after them. Three failures in a row open it.
func TestBreakerCounts(t *testing.T) {
	late := ledgertest.For(300 * time.Millisecond)
	faults := map[rune]ledgertest.Fault{
		'f': {Before: errDown},
		'l': {After: errDown}, // applied, and the reply is lost
		'd': {WaitBefore: late},
		'D': {WaitAfter: late},
		'c': {WaitBefore: late}, // and the caller cancels
		'b': {Before: ledgers.ErrBusy},
		't': {Before: ledgers.ErrTooManyEvents},
		'x': {Before: ledgers.ErrClosed},
		's': {},
	}
	for calls, want := range map[string]bool{
		"": true, "s": true,
		"ff": true, "fff": false, "lll": false, "fsf": true, "ffsff": true, "ffsfff": false,
		// Late answers come before the next deadline, and are no success.
		"ddd": false, "DDD": false, "ddsdd": true, "fdl": false,
		// What does not count as a failure is no success either.
		"bbbb": true, "tttt": true, "xxxx": true, "cccc": true,
		"fbtxfbtxf": false, "dcdcd": false,
	} {
		t.Run(calls, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, f := open(t, &guard.Options{Failures: 3})
				for i, letter := range calls {
					fault := faults[letter]
					fault.On = ledgertest.CallCreateTransfers
					f.Inject(fault)
					ctx, cancel := context.WithCancel(t.Context())
					if letter == 'c' {
						time.AfterFunc(time.Millisecond, cancel)
					}
					err := send(ctx, g, uint64(10+i))
					cancel()
					if errors.Is(err, guard.ErrOpen) || (err == nil) != (letter == 's') {
						t.Fatalf("call %d, %c: got error %v", i, letter, err)
					}
				}
				wantUp(t, g, "after "+calls, want)
				time.Sleep(time.Second) // what was given up returns
			})
		})
	}
}

// TestBreakerCountsAllCalls fails calls of all kinds by deadline: they count together.
func TestBreakerCountsAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, f := open(t, &guard.Options{Failures: len(allCalls)})
		for kind, call := range allCalls {
			wantUp(t, g, "before "+string(kind), true)
			f.Inject(ledgertest.Fault{On: kind, WaitBefore: ledgertest.For(time.Second)})
			err := call(t.Context(), g)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got error %v, want DeadlineExceeded", kind, err)
			}
		}
		wantUp(t, g, "in the end", false)
		time.Sleep(time.Second) // what was given up returns
	})
}

// TestBreakerDoneBefore makes calls whose context is over: nothing is sent, nothing counted.
func TestBreakerDoneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, f := open(t, &guard.Options{Failures: 1})
		ctx, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		for kind, call := range allCalls {
			before := f.Calls(kind)
			err := call(ctx, g)
			if !errors.Is(err, context.DeadlineExceeded) || f.Calls(kind) != before {
				t.Errorf("%s: got error %v and %d calls, want DeadlineExceeded and none",
					kind, err, f.Calls(kind)-before)
			}
			_, ok := errors.AsType[*ledgers.GivenUp](err)
			if ok {
				t.Errorf("%s: got GivenUp of what was not sent", kind)
			}
		}
		wantUp(t, g, "in the end", true)
	})
}

// TestOpenBreaker makes calls while it is open: they neither wait nor reach the driver.
func TestOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, f := open(t, nil)
		pause(t, f, "")
		for i := range guard.DefaultFailures {
			_ = send(t.Context(), g, uint64(10+i))
		}
		wantUp(t, g, "after the failures", false)
		start := time.Now()
		for kind, call := range allCalls {
			before := f.Calls(kind)
			for range 1000 {
				err := call(t.Context(), g)
				if !errors.Is(err, guard.ErrOpen) {
					t.Fatalf("%s: got error %v, want %v", kind, err, guard.ErrOpen)
				}
			}
			if f.Calls(kind) != before {
				t.Errorf("%s: got %d calls sent, want none", kind, f.Calls(kind)-before)
			}
		}
		if time.Since(start) != 0 {
			t.Errorf("calls took %v, want no time", time.Since(start))
		}
		time.Sleep(time.Minute - time.Millisecond)
		if g.Down() != time.Minute-time.Millisecond || !g.Ready() {
			t.Errorf("got down for %v and ready %v, want %v and true",
				g.Down(), g.Ready(), time.Minute-time.Millisecond)
		}
	})
}

// TestBreakerCloses looks at when it closes: at the first probe after the ledger is back.
func TestBreakerCloses(t *testing.T) {
	ms := time.Millisecond
	for _, test := range []struct {
		name string
		// The ledger is back so long after the breaker opened, and it closes so long after that.
		outage, after time.Duration
	}{
		{"AtTheFirstProbe", 0, 500 * ms},
		{"JustBeforeAProbe", 1499 * ms, ms},
		{"JustAfterAProbe", 1501 * ms, 499 * ms},
		{"AfterAnHour", time.Hour + 100*ms, 400 * ms},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, f := open(t, nil)
				<-g.Back()
				heal := f.Inject(ledgertest.Fault{
					On: ledgertest.CallLookupAccounts, Before: errDown, Times: ledgertest.Always,
				})
				fail(t, g, f, guard.DefaultFailures)
				time.Sleep(test.outage)
				heal()
				time.Sleep(test.after - time.Nanosecond)
				wantUp(t, g, "just before", false)
				if len(g.Back()) != 0 {
					t.Error("told that the ledger is back while it is not")
				}
				time.Sleep(time.Nanosecond)
				wantUp(t, g, "then", true)
				<-g.Back()
				if g.Down() != 0 {
					t.Errorf("got down for %v, want 0", g.Down())
				}
				// The failures of before are forgotten.
				fail(t, g, f, guard.DefaultFailures-1)
				wantUp(t, g, "one failure before it opens again", true)
				fail(t, g, f, 1)
				wantUp(t, g, "opened again", false)
				time.Sleep(time.Second)
				err := send(t.Context(), g, 10)
				if err != nil {
					t.Errorf("after that: got error %v, want none", err)
				}
			})
		})
	}
}

// TestBreakerForgetsOldCalls has a call end in failure that began before the breaker opened and
// closed again.
func TestBreakerForgetsOldCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, f := open(t, &guard.Options{Failures: 1, Deadline: 2 * time.Second})
		f.Inject(ledgertest.Fault{
			On: ledgertest.CallCreateTransfers, WaitBefore: ledgertest.For(time.Minute),
		})
		old := make(chan error, 1)
		go func() { old <- send(t.Context(), g, 10) }()
		synctest.Wait()
		fail(t, g, f, 1)
		wantUp(t, g, "after a failure", false)
		time.Sleep(time.Second)
		wantUp(t, g, "after the probe", true)
		err := <-old
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the old call: got error %v, want DeadlineExceeded", err)
		}
		wantUp(t, g, "after the old call", true)
		time.Sleep(time.Minute) // it returns
	})
}

// TestProbes holds all calls back for an hour and counts the probes.
func TestProbes(t *testing.T) {
	for _, test := range []struct {
		name string
		// deaf says that the driver does not look at its context.
		deaf bool
		// The first four are given up after 0.25, 0.5, 1, 2 and 4 s, the others after 5 s.
		atLeast, atMost int
		// back is when the breaker closes after the ledger goes on.
		back time.Duration
	}{
		{"GivenUp", false, 3600/6 + 5, 3600/5 + 5, 0},
		{"Deaf", true, 1, 1, guard.DefaultProbeEvery},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, f := open(t, nil)
				released := make(chan struct{})
				var underWay, most atomic.Int64
				heal := f.Inject(ledgertest.Fault{
					On: ledgertest.CallLookupAccounts, Times: ledgertest.Always,
					WaitBefore: func(ctx context.Context) error {
						most.Store(max(most.Load(), underWay.Add(1)))
						defer underWay.Add(-1)
						if test.deaf {
							ctx = context.WithoutCancel(ctx)
						}
						return ledgertest.Until(released)(ctx)
					},
				})
				before := f.Calls(ledgertest.CallLookupAccounts)
				fail(t, g, f, guard.DefaultFailures)
				time.Sleep(time.Hour + time.Second)
				probes := f.Calls(ledgertest.CallLookupAccounts) - before
				if probes < test.atLeast || probes > test.atMost || most.Load() != 1 {
					t.Errorf("got %d probes, %d at once, want %d to %d, one at once",
						probes, most.Load(), test.atLeast, test.atMost)
				}
				// The one under way is answered too late. If that was not given up, the next is
				// sent at once.
				heal()
				close(released)
				time.Sleep(test.back)
				wantUp(t, g, "when the ledger goes on", true)
			})
		})
	}
}

// TestProbeLost heals the ledger without ever answering the probe that is under way.
func TestProbeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, f := open(t, nil)
		heal := f.Inject(ledgertest.Fault{
			On: ledgertest.CallLookupAccounts, Times: ledgertest.Always,
			WaitBefore: ledgertest.Until(nil),
		})
		fail(t, g, f, guard.DefaultFailures)
		time.Sleep(time.Hour)
		heal()
		time.Sleep(6 * time.Second)
		wantUp(t, g, "after the patience with a probe", true)
	})
}

// TestSlowProbe keeps the breaker open while answers come later than the deadline.
func TestSlowProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, f := open(t, nil)
		heal := f.Inject(ledgertest.Fault{
			On: ledgertest.CallLookupAccounts, Times: ledgertest.Always,
			WaitAfter: ledgertest.For(300 * time.Millisecond),
		})
		fail(t, g, f, guard.DefaultFailures)
		time.Sleep(time.Hour)
		wantUp(t, g, "with slow answers", false)
		heal()
		time.Sleep(300 * time.Millisecond)
		wantUp(t, g, "with quick ones", true)
	})
}

// TestStart begins with a ledger that is away.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openTwin(t)
		heal := f.Inject(ledgertest.Fault{Before: errDown, Times: ledgertest.Always})
		g := newGuard(t, f, nil)
		for kind, call := range allCalls {
			err := call(t.Context(), g)
			if !errors.Is(err, guard.ErrOpen) {
				t.Errorf("%s before the first probe: got error %v, want ErrOpen", kind, err)
			}
		}
		synctest.Wait()
		if f.Calls(ledgertest.CallLookupAccounts) != 1 {
			t.Errorf("got %d probes, want 1 at once", f.Calls(ledgertest.CallLookupAccounts))
		}
		err := g.Probe(t.Context())
		if !errors.Is(err, errDown) || g.Ready() || g.Up() {
			t.Errorf("got error %v, ready %v, up %v; want %v, false, false",
				err, g.Ready(), g.Up(), errDown)
		}
		time.Sleep(time.Minute)
		if g.Down() != time.Minute || len(g.Back()) != 0 {
			t.Errorf("got down for %v, back %d times; want 1m, 0", g.Down(), len(g.Back()))
		}
		heal()
		err = g.Probe(t.Context())
		if err != nil || !g.Ready() || !g.Up() || len(g.Back()) != 1 {
			t.Errorf("got error %v, ready %v, up %v, back %d; want none, true, true, 1",
				err, g.Ready(), g.Up(), len(g.Back()))
		}
		before := f.Calls(ledgertest.CallLookupAccounts)
		time.Sleep(time.Minute)
		err = g.Probe(t.Context())
		if err != nil || f.Calls(ledgertest.CallLookupAccounts) != before {
			t.Errorf("while it is up: got error %v and %d probes, want none and none",
				err, f.Calls(ledgertest.CallLookupAccounts)-before)
		}
	})
}

// TestProbeWaits calls Probe while another is under way, which then says it all.
func TestProbeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openTwin(t)
		resume := pause(t, f, ledgertest.CallLookupAccounts)
		g := newGuard(t, f, nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := g.Probe(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want DeadlineExceeded", err)
		}
		answer := make(chan error, 1)
		go func() { answer <- g.Probe(t.Context()) }()
		time.Sleep(100 * time.Millisecond)
		resume()
		err = <-answer
		if err != nil || f.Calls(ledgertest.CallLookupAccounts) != 1 {
			t.Errorf("got error %v and %d probes, want none and 1",
				err, f.Calls(ledgertest.CallLookupAccounts))
		}
	})
}

// TestLog is an outage as an operator reads it.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))
		f := openTwin(t)
		probes := ledgertest.Fault{
			On: ledgertest.CallLookupAccounts, Before: errDown, Times: ledgertest.Always,
		}
		heal := f.Inject(probes)
		g := newGuard(t, f, &guard.Options{Logger: logger, Name: "twin"})
		time.Sleep(11200 * time.Millisecond)
		heal()
		time.Sleep(time.Hour)
		heal = f.Inject(probes)
		fail(t, g, f, guard.DefaultFailures)
		time.Sleep(25200 * time.Millisecond)
		heal()
		time.Sleep(time.Hour)
		synctest.Wait()
		want := strings.ReplaceAll(`
WARN msg="the ledger is not reached yet" LEDGER cause="CAUSE"
WARN msg="the ledger is still down" LEDGER for=10s cause="CAUSE"
INFO msg="the ledger is reached" LEDGER after=11.5s
WARN msg="the ledger is down: nothing is sent to it" LEDGER cause="cluster unreachable"
WARN msg="the ledger is still down" LEDGER for=10s cause="CAUSE"
WARN msg="the ledger is still down" LEDGER for=20s cause="CAUSE"
INFO msg="the ledger is back" LEDGER after=25.5s
`, "CAUSE", "probe of the ledger: cluster unreachable")
		got := strings.NewReplacer("level=", "", "ledger=twin", "LEDGER").
			Replace("\n" + log.String())
		if got != want {
			t.Errorf("got%s\nwant%s", got, want)
		}
	})
}
