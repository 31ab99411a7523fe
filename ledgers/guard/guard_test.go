package guard_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/ledgers"
	"weir/ledgers/guard"
	"weir/ledgers/ledgertest"
)

var errDown = errors.New("cluster unreachable")

// allCalls makes each call of a driver but Close, with one event or id.
var allCalls = map[ledgertest.Call]func(ctx context.Context, d ledgers.Driver) error{
	ledgertest.CallCreateAccounts: func(ctx context.Context, d ledgers.Driver) error {
		_, err := d.CreateAccounts(ctx, []ledgers.Account{{ID: id(3), Ledger: 1, Code: 1}})
		return err
	},
	ledgertest.CallCreateTransfers: func(ctx context.Context, d ledgers.Driver) error {
		_, err := d.CreateTransfers(ctx, []ledgers.Transfer{move(10)})
		return err
	},
	ledgertest.CallLookupAccounts: func(ctx context.Context, d ledgers.Driver) error {
		_, err := d.LookupAccounts(ctx, []ledgers.ID{id(1)})
		return err
	},
	ledgertest.CallLookupTransfers: func(ctx context.Context, d ledgers.Driver) error {
		_, err := d.LookupTransfers(ctx, []ledgers.ID{id(10)})
		return err
	},
	ledgertest.CallAccountTransfers: func(ctx context.Context, d ledgers.Driver) error {
		_, err := d.AccountTransfers(ctx, ledgers.AccountFilter{
			AccountID: id(1), Limit: 1, Debits: true,
		})
		return err
	},
}

func id(n uint64) ledgers.ID { return ledgers.ID{Lo: n} }

// move is a transfer of 1 from account 1 to account 2.
func move(n uint64) ledgers.Transfer {
	return ledgers.Transfer{
		ID: id(n), DebitAccountID: id(1), CreditAccountID: id(2),
		Amount: ledgers.AmountOf(1), Ledger: 1, Code: 1,
	}
}

// send creates one transfer.
func send(ctx context.Context, d ledgers.Driver, n uint64) error {
	_, err := d.CreateTransfers(ctx, []ledgers.Transfer{move(n)})
	return err
}

// openTwin returns a twin with accounts 1 and 2, which can be told to misbehave.
func openTwin(t testing.TB) *ledgertest.Faulty {
	t.Helper()
	twin := ledgertest.NewTwin(func() uint64 { return uint64(time.Now().UnixNano()) })
	_, err := twin.CreateAccounts(t.Context(), []ledgers.Account{
		{ID: id(1), Ledger: 1, Code: 1}, {ID: id(2), Ledger: 1, Code: 1},
	})
	if err != nil {
		t.Fatalf("create accounts: %v", err)
	}
	return ledgertest.NewFaulty(twin)
}

// newGuard returns a guard around a driver, which the end of the test closes.
func newGuard(t testing.TB, driver ledgers.Driver, options *guard.Options) *guard.Guard {
	t.Helper()
	g, err := guard.New(driver, options)
	if err != nil {
		t.Fatalf("guard: %v", err)
	}
	t.Cleanup(func() {
		err := g.Close()
		if err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return g
}

// open returns a guard whose breaker is closed, around a twin.
func open(t testing.TB, options *guard.Options) (*guard.Guard, *ledgertest.Faulty) {
	t.Helper()
	f := openTwin(t)
	g := newGuard(t, f, options)
	err := g.Probe(t.Context())
	if err != nil {
		t.Fatalf("probe: %v", err)
	}
	return g, f
}

// pause holds all calls of a kind back until resume is called, or the test ends.
func pause(t testing.TB, f *ledgertest.Faulty, call ledgertest.Call) (resume func()) {
	t.Helper()
	released := make(chan struct{})
	heal := f.Inject(ledgertest.Fault{
		On: call, WaitBefore: ledgertest.Until(released), Times: ledgertest.Always,
	})
	resume = sync.OnceFunc(func() {
		heal()
		close(released)
	})
	t.Cleanup(resume)
	return resume
}

// TestDeadline holds every call back and looks at when its caller is let go, and with what.
func TestDeadline(t *testing.T) {
	for _, test := range []struct {
		name string
		// caller is the caller's own deadline, cancel when it cancels; 0 is never.
		caller, cancel time.Duration
		took           time.Duration
		want           error
	}{
		{"OfTheGuard", 0, 0, 250 * time.Millisecond, context.DeadlineExceeded},
		{"OfTheCaller", 100 * time.Millisecond, 0, 100 * time.Millisecond, context.DeadlineExceeded},
		{"LaterOfTheCaller", time.Minute, 0, 250 * time.Millisecond, context.DeadlineExceeded},
		{"Cancelled", 0, 70 * time.Millisecond, 70 * time.Millisecond, context.Canceled},
		{"CancelledBeforeTheDeadline", 90 * time.Millisecond, 70 * time.Millisecond,
			70 * time.Millisecond, context.Canceled},
	} {
		for kind, call := range allCalls {
			t.Run(test.name+"/"+string(kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g, f := open(t, nil)
					pause(t, f, kind)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if test.caller > 0 {
						ctx, cancel = context.WithTimeout(ctx, test.caller)
						defer cancel()
					}
					if test.cancel > 0 {
						time.AfterFunc(test.cancel, cancel)
					}
					start := time.Now()
					err := call(ctx, g)
					took := time.Since(start)
					if !errors.Is(err, test.want) || took != test.took {
						t.Errorf("got error %v after %v, want %v after %v",
							err, took, test.want, test.took)
					}
					_, found := errors.AsType[*ledgers.GivenUp](err)
					if found != (kind == ledgertest.CallCreateTransfers) {
						t.Errorf("GivenUp in %v: got %v", err, found)
					}
				})
			})
		}
	}
}

// TestDeadlineOfADeafDriver has the calls that may hang in a disk ignore their context.
func TestDeadlineOfADeafDriver(t *testing.T) {
	for _, kind := range []ledgertest.Call{
		ledgertest.CallCreateTransfers, ledgertest.CallLookupTransfers,
		ledgertest.CallAccountTransfers,
	} {
		synctest.Test(t, func(t *testing.T) {
			g, f := open(t, nil)
			released := make(chan struct{})
			defer close(released)
			f.Inject(ledgertest.Fault{On: kind, WaitBefore: func(context.Context) error {
				<-released
				return nil
			}})
			start := time.Now()
			err := allCalls[kind](t.Context(), g)
			took := time.Since(start)
			if !errors.Is(err, context.DeadlineExceeded) || took != guard.DefaultDeadline {
				t.Errorf("%s: got error %v after %v, want DeadlineExceeded after %v",
					kind, err, took, guard.DefaultDeadline)
			}
		})
	}
}

// TestDriverContext looks at the context that a write is sent with: the caller's, with a deadline.
func TestDriverContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &sees{Driver: openTwin(t)}
		g := newGuard(t, driver, nil)
		err := g.Probe(t.Context())
		if err != nil {
			t.Fatalf("probe: %v", err)
		}
		type key struct{}
		err = send(context.WithValue(t.Context(), key{}, 7), g, 10)
		deadline, _ := driver.ctx.Deadline()
		value, left := driver.ctx.Value(key{}), time.Until(deadline)
		if err != nil || value != 7 || left != guard.DefaultDeadline {
			t.Errorf("after %v: got value %v and a deadline in %v, want 7 and %v",
				err, value, left, guard.DefaultDeadline)
		}
	})
}

// sees is a driver that remembers the context of a write.
type sees struct {
	ledgers.Driver
	ctx context.Context
}

func (d *sees) CreateTransfers(
	ctx context.Context, transfers []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	d.ctx = ctx
	return d.Driver.CreateTransfers(ctx, transfers)
}

// TestLate gives a write up and sees what Late tells.
func TestLate(t *testing.T) {
	released := func(t *testing.T) (chan struct{}, func()) {
		c := make(chan struct{})
		release := sync.OnceFunc(func() { close(c) })
		t.Cleanup(release)
		return c, release
	}
	for _, test := range []struct {
		name  string
		fault func(released chan struct{}) ledgertest.Fault
		// yields says that results come, and exists that the transfer is there in the end.
		yields, exists bool
	}{
		{"OK", func(released chan struct{}) ledgertest.Fault {
			return ledgertest.Fault{WaitBefore: ledgertest.Until(released)}
		}, true, true},
		{"AppliedBeforeGivenUp", func(released chan struct{}) ledgertest.Fault {
			return ledgertest.Fault{WaitAfter: ledgertest.Until(released)}
		}, true, true},
		{"FailsBefore", func(released chan struct{}) ledgertest.Fault {
			return ledgertest.Fault{WaitBefore: ledgertest.Until(released), Before: errDown}
		}, false, false},
		{"FailsAfter", func(released chan struct{}) ledgertest.Fault {
			return ledgertest.Fault{WaitAfter: ledgertest.Until(released), After: errDown}
		}, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, f := open(t, nil)
				held, release := released(t)
				fault := test.fault(held)
				fault.On = ledgertest.CallCreateTransfers
				f.Inject(fault)
				err := send(t.Context(), g, 10)
				givenUp, ok := errors.AsType[*ledgers.GivenUp](err)
				if !ok {
					t.Fatalf("got error %v, want GivenUp", err)
				}
				time.Sleep(time.Hour)
				select {
				case results := <-givenUp.Late:
					t.Fatalf("before the call returned: got %v", results)
				default:
				}
				release()
				results, ok := <-givenUp.Late
				if ok != test.yields || ok && results[0].Status != ledgers.TransferCreated {
					t.Errorf("late: got %v and %v, want results: %v", results, ok, test.yields)
				}
				results, ok = <-givenUp.Late
				if ok {
					t.Errorf("late, again: got %v, want it closed", results)
				}
				found, err := g.LookupTransfers(t.Context(), []ledgers.ID{id(10)})
				if err != nil || (len(found) == 1) != test.exists {
					t.Errorf("look-up: got %v and %v, want it there: %v", found, err, test.exists)
				}
			})
		})
	}
}

// TestMaxCalls sends more calls at once than may be in flight, to a ledger that hangs.
func TestMaxCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, flood = 100, 2000
		g, f := open(t, &guard.Options{MaxCalls: bound, Failures: flood})
		transfers := ledgertest.CallCreateTransfers
		resume := pause(t, f, transfers)
		start := time.Now()
		errs, took := make([]error, flood), make([]time.Duration, flood)
		var wait sync.WaitGroup
		for i := range flood {
			wait.Go(func() {
				errs[i] = send(t.Context(), g, uint64(1000+i))
				took[i] = time.Since(start)
			})
		}
		wait.Wait()
		busy := 0
		for i, err := range errs {
			switch {
			case errors.Is(err, ledgers.ErrBusy):
				busy++
				if took[i] != 0 {
					t.Errorf("call %d: busy after %v, want at once", i, took[i])
				}
			case !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("call %d: got error %v, want ErrBusy or DeadlineExceeded", i, err)
			}
		}
		if f.Calls(transfers) != bound || busy != flood-bound {
			t.Errorf("got %d calls sent and %d busy, want %d and %d",
				f.Calls(transfers), busy, bound, flood-bound)
		}
		// What was given up is still in flight, for all kinds of calls.
		for kind, call := range allCalls {
			err := call(t.Context(), g)
			if !errors.Is(err, ledgers.ErrBusy) {
				t.Errorf("%s with all given up: got error %v, want %v", kind, err, ledgers.ErrBusy)
			}
		}
		resume()
		synctest.Wait()
		for n := range uint64(3 * bound) {
			err := send(t.Context(), g, 10_000+n)
			if err != nil {
				t.Fatalf("after the calls returned: got error %v, want none", err)
			}
		}
	})
}

// TestMaxCallsIsExact sends from as many callers as there is room for: none is ever busy, and with
// one more of them never more than that is under way.
func TestMaxCallsIsExact(t *testing.T) {
	const bound, rounds = 8, 200
	for _, callers := range []int{bound, 4 * bound} {
		synctest.Test(t, func(t *testing.T) {
			g, f := open(t, &guard.Options{MaxCalls: bound})
			var mu sync.Mutex
			underWay, most := 0, 0
			count := func(n int) func(context.Context) error {
				return func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					underWay += n
					most = max(most, underWay)
					return nil
				}
			}
			f.Inject(ledgertest.Fault{
				On: ledgertest.CallCreateTransfers, Times: ledgertest.Always,
				WaitBefore: count(1), WaitAfter: count(-1),
			})
			var wait sync.WaitGroup
			for i := range callers {
				wait.Go(func() {
					for round := range rounds {
						err := send(t.Context(), g, uint64(1000+i*rounds+round))
						if err != nil && (callers == bound || !errors.Is(err, ledgers.ErrBusy)) {
							t.Errorf("%d callers: got error %v", callers, err)
						}
					}
				})
			}
			wait.Wait()
			if most > bound {
				t.Errorf("%d callers: got %d calls under way, want at most %d", callers, most, bound)
			}
		})
	}
}

// TestMemory makes calls during an outage of an hour: what is kept does not grow with them.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, calls = 100, 100_000
		g, f := open(t, &guard.Options{MaxCalls: bound})
		pause(t, f, "")
		used := func() (goroutines int, bytes uint64) {
			synctest.Wait()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return runtime.NumGoroutine(), m.HeapAlloc
		}
		flood := func(calls int) {
			for n := range calls {
				err := send(t.Context(), g, uint64(1000+n))
				if err == nil {
					t.Fatal("a call was answered while the ledger hangs")
				}
				time.Sleep(time.Hour / time.Duration(calls))
			}
		}
		flood(calls / 100)
		goroutines, bytes := used()
		flood(calls)
		moreGoroutines, moreBytes := used()
		if moreGoroutines > goroutines+1 || moreBytes > bytes+1<<20 {
			t.Errorf("got %d goroutines and %d bytes, want those of the first minutes, %d and %d",
				moreGoroutines, moreBytes, goroutines, bytes)
		}
	})
}

func TestClose(t *testing.T) {
	t.Run("ErrClosed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, f := open(t, nil)
			for range 2 {
				err := g.Close()
				if err != nil {
					t.Errorf("close: %v", err)
				}
			}
			for kind, call := range allCalls {
				before := f.Calls(kind)
				err := call(t.Context(), g)
				if !errors.Is(err, ledgers.ErrClosed) || f.Calls(kind) != before {
					t.Errorf("%s: got error %v and %d calls sent, want %v and none",
						kind, err, f.Calls(kind)-before, ledgers.ErrClosed)
				}
			}
		})
	})
	t.Run("ErrOfTheDriver", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, err := guard.New(closeFails{openTwin(t)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				err = g.Close()
				if !errors.Is(err, errDown) {
					t.Errorf("got error %v, want %v", err, errDown)
				}
			}
		})
	})
	t.Run("WaitsForNothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := openTwin(t)
			released := make(chan struct{})
			defer close(released)
			f.Inject(ledgertest.Fault{Times: ledgertest.Always, WaitBefore: func(context.Context) error {
				<-released
				return nil
			}})
			g := newGuard(t, f, nil)
			time.Sleep(time.Minute)
			start := time.Now()
			err := g.Close()
			if err != nil || time.Since(start) != 0 {
				t.Errorf("close with a probe that hangs: got %v after %v, want nil at once",
					err, time.Since(start))
			}
		})
	})
	t.Run("EndsTheProbes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := openTwin(t)
			f.Inject(ledgertest.Fault{Before: errDown, Times: ledgertest.Always})
			g := newGuard(t, f, nil)
			time.Sleep(time.Minute + time.Millisecond) // between two probes
			err := g.Close()
			before := f.Calls(ledgertest.CallLookupAccounts)
			time.Sleep(time.Minute)
			after := f.Calls(ledgertest.CallLookupAccounts)
			if err != nil || before < 100 || after != before {
				t.Errorf("got error %v, %d probes before, %d more after; want 100 or more, and none",
					err, before, after-before)
			}
		})
	})
}

// closeFails is a driver that cannot be closed.
type closeFails struct{ ledgers.Driver }

func (closeFails) Close() error { return errDown }

// TestPassesOn has the guard answer what the driver answers.
func TestPassesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, f := open(t, &guard.Options{Failures: 100})
		for kind, call := range allCalls {
			for _, want := range []error{errDown, ledgers.ErrBusy, ledgers.ErrTooManyEvents, nil} {
				if want != nil {
					f.Inject(ledgertest.Fault{On: kind, Before: want})
				}
				err := call(t.Context(), g)
				if !errors.Is(err, want) {
					t.Errorf("%s: got error %v, want %v", kind, err, want)
				}
			}
		}
		found, err := g.LookupTransfers(t.Context(), []ledgers.ID{id(10)})
		same := func(a ledgers.Transfer, n uint64) bool { return a.ID == id(n) }
		if err != nil || !slices.EqualFunc(found, []uint64{10}, same) {
			t.Errorf("look-up: got %v and %v, want transfer 10", found, err)
		}
	})
}
