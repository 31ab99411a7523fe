package ledgertest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
)

// openFaulty is a twin with two accounts, behind a Faulty.
func openFaulty(t testing.TB) *ledgertest.Faulty {
	t.Helper()
	twin := openTwin(t).Driver
	_, err := twin.CreateAccounts(t.Context(), []ledgers.Account{
		{ID: ledgers.ID{Lo: 1}, Ledger: 1, Code: 1}, {ID: ledgers.ID{Lo: 2}, Ledger: 1, Code: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ledgertest.NewFaulty(twin)
}

// send creates one transfer.
func send(ctx context.Context, f *ledgertest.Faulty, id uint64) error {
	_, err := f.CreateTransfers(ctx, []ledgers.Transfer{move(id, 1, 2, 1)})
	return err
}

// written tells which of the transfers 10 to 19 exist.
func written(t testing.TB, f *ledgertest.Faulty) []uint64 {
	t.Helper()
	var ids []ledgers.ID
	for id := range uint64(10) {
		ids = append(ids, ledgers.ID{Lo: 10 + id})
	}
	found, err := f.LookupTransfers(context.Background(), ids)
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for _, transfer := range found {
		got = append(got, transfer.ID.Lo)
	}
	return got
}

// TestFaultyPassesOn has a Faulty without faults answer as the ledger behind it.
func TestFaultyPassesOn(t *testing.T) {
	ledgertest.RunRandom(t, 1, 200, func(t testing.TB) ledgertest.Harness {
		harness := openTwin(t)
		harness.Driver = ledgertest.NewFaulty(harness.Driver)
		return harness
	})
}

// TestFaultyStrikes sends transfers 10 to 19 one by one.
func TestFaultyStrikes(t *testing.T) {
	transfers := ledgertest.CallCreateTransfers
	none := []uint64(nil)
	all := []uint64{10, 11, 12, 13, 14, 15, 16, 17, 18, 19}
	for _, test := range []struct {
		name   string
		faults []ledgertest.Fault
		failed []uint64
		wrote  []uint64
	}{
		{"None", nil, none, all},
		{"ZeroDoesNothing", []ledgertest.Fault{{}}, none, all},
		{"BeforeWritesNothing", []ledgertest.Fault{{Before: errDown}}, []uint64{10}, all[1:]},
		{"AfterLosesTheReply", []ledgertest.Fault{{After: errDown}}, []uint64{10}, all},
		{"Skip", []ledgertest.Fault{{After: errDown, Skip: 3}}, []uint64{13}, all},
		{"Times", []ledgertest.Fault{{After: errDown, Times: 2}}, []uint64{10, 11}, all},
		{"SkipAndTimes", []ledgertest.Fault{{After: errDown, Skip: 8, Times: 2}},
			[]uint64{18, 19}, all},
		{"Always", []ledgertest.Fault{{Before: errDown, On: transfers, Times: ledgertest.Always}},
			all, none},
		{"Every", []ledgertest.Fault{{After: errDown, Every: 4, Times: ledgertest.Always}},
			[]uint64{10, 14, 18}, all},
		{"EveryAndSkip", []ledgertest.Fault{{After: errDown, Every: 3, Skip: 2, Times: 2}},
			[]uint64{12, 15}, all},
		{"OnAnotherCall", []ledgertest.Fault{{After: errDown, On: ledgertest.CallLookupAccounts}},
			none, all},
		{"FirstInjectedStrikes", []ledgertest.Fault{{After: errDown}, {Before: errDown}},
			[]uint64{10, 11}, []uint64{10, 12, 13, 14, 15, 16, 17, 18, 19}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := openFaulty(t)
			for _, fault := range test.faults {
				f.Inject(fault)
			}
			var failed []uint64
			for _, id := range all {
				err := send(t.Context(), f, id)
				if err != nil && !errors.Is(err, errDown) {
					t.Errorf("transfer %d: got error %v, want %v", id, err, errDown)
				}
				if err != nil {
					failed = append(failed, id)
				}
			}
			if !slices.Equal(failed, test.failed) {
				t.Errorf("failed: got %v, want %v", failed, test.failed)
			}
			wrote := written(t, f)
			if !slices.Equal(wrote, test.wrote) {
				t.Errorf("written: got %v, want %v", wrote, test.wrote)
			}
			if f.Calls(transfers) != len(all) || f.Calls(ledgertest.CallLookupTransfers) != 1 {
				t.Errorf("calls: got %d and %d, want %d and 1", f.Calls(transfers),
					f.Calls(ledgertest.CallLookupTransfers), len(all))
			}
		})
	}
}

// TestFaultyEveryCall strikes each kind of call by its name, and no other.
func TestFaultyEveryCall(t *testing.T) {
	calls := map[ledgertest.Call]func(d ledgers.Driver) error{
		ledgertest.CallCreateAccounts: func(d ledgers.Driver) error {
			_, err := d.CreateAccounts(t.Context(), nil)
			return err
		},
		ledgertest.CallCreateTransfers: func(d ledgers.Driver) error {
			_, err := d.CreateTransfers(t.Context(), nil)
			return err
		},
		ledgertest.CallLookupAccounts: func(d ledgers.Driver) error {
			_, err := d.LookupAccounts(t.Context(), nil)
			return err
		},
		ledgertest.CallLookupTransfers: func(d ledgers.Driver) error {
			_, err := d.LookupTransfers(t.Context(), nil)
			return err
		},
		ledgertest.CallAccountTransfers: func(d ledgers.Driver) error {
			_, err := d.AccountTransfers(t.Context(), ledgers.AccountFilter{})
			return err
		},
	}
	for struck := range calls {
		f := openFaulty(t)
		f.Inject(ledgertest.Fault{On: struck, Before: errDown, Times: ledgertest.Always})
		for name, call := range calls {
			err := call(f)
			if errors.Is(err, errDown) != (name == struck) {
				t.Errorf("fault on %s: %s got error %v", struck, name, err)
			}
		}
		err := f.Close()
		if err != nil {
			t.Errorf("fault on %s: Close got error %v, want none", struck, err)
		}
	}
}

func TestFaultyRemove(t *testing.T) {
	f := openFaulty(t)
	heal := f.Inject(ledgertest.Fault{Before: errDown, Times: ledgertest.Always})
	err := send(t.Context(), f, 10)
	if !errors.Is(err, errDown) {
		t.Errorf("while down: got error %v, want %v", err, errDown)
	}
	heal()
	err = send(t.Context(), f, 10)
	if err != nil {
		t.Errorf("after: got error %v, want none", err)
	}
}

// TestFaultyHolds holds a call back and lets it go, or has its caller give up.
func TestFaultyHolds(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault func(released, late chan struct{}) ledgertest.Fault
		// giveUp cancels the call; otherwise it is released.
		giveUp bool
		want   error
		// wrote, held and then: what is written while the call is held, and after all is over.
		held, then []uint64
	}{
		{"BeforeReleased", func(released, _ chan struct{}) ledgertest.Fault {
			return ledgertest.Fault{WaitBefore: ledgertest.Until(released)}
		}, false, nil, nil, []uint64{10}},
		{"BeforeReleasedThenFails", func(released, _ chan struct{}) ledgertest.Fault {
			return ledgertest.Fault{WaitBefore: ledgertest.Until(released), Before: errDown}
		}, false, errDown, nil, nil},
		{"AfterReleased", func(released, _ chan struct{}) ledgertest.Fault {
			return ledgertest.Fault{WaitAfter: ledgertest.Until(released)}
		}, false, nil, []uint64{10}, []uint64{10}},
		{"BeforeGivenUpIsNeverWritten", func(_, late chan struct{}) ledgertest.Fault {
			return ledgertest.Fault{WaitBefore: ledgertest.Until(late), Before: errDown}
		}, true, context.Canceled, nil, nil},
		{"BeforeGivenUpIsWrittenLate", func(_, late chan struct{}) ledgertest.Fault {
			return ledgertest.Fault{WaitBefore: ledgertest.Until(late)}
		}, true, context.Canceled, nil, []uint64{10}},
		{"AfterGivenUpIsWritten", func(_, late chan struct{}) ledgertest.Fault {
			return ledgertest.Fault{WaitAfter: ledgertest.Until(late)}
		}, true, context.Canceled, []uint64{10}, []uint64{10}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := openFaulty(t)
				released, late := make(chan struct{}), make(chan struct{})
				fault := test.fault(released, late)
				fault.On = ledgertest.CallCreateTransfers
				f.Inject(fault)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				answered := make(chan error, 1)
				go func() { answered <- send(ctx, f, 10) }()
				synctest.Wait()
				if len(answered) != 0 {
					t.Fatal("the call was answered while it was to be held")
				}
				got := written(t, f)
				if !slices.Equal(got, test.held) {
					t.Errorf("written while held: got %v, want %v", got, test.held)
				}
				if test.giveUp {
					cancel()
				} else {
					close(released)
				}
				err := <-answered
				if !errors.Is(err, test.want) {
					t.Errorf("answer: got error %v, want %v", err, test.want)
				}
				close(late)
				synctest.Wait()
				got = written(t, f)
				if !slices.Equal(got, test.then) {
					t.Errorf("written in the end: got %v, want %v", got, test.then)
				}
			})
		})
	}
}

// TestFaultyFor delays a call by the bubble's time, and a deadline ends the wait.
func TestFaultyFor(t *testing.T) {
	for _, test := range []struct {
		name     string
		deadline time.Duration
		want     error
		took     time.Duration
	}{
		{"OK", time.Minute, nil, 2 * time.Second},
		{"ErrDeadlineExceeded", time.Second, context.DeadlineExceeded, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := openFaulty(t)
				f.Inject(ledgertest.Fault{WaitBefore: ledgertest.For(2 * time.Second)})
				defer time.Sleep(2 * time.Second) // what was given up goes on
				ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
				defer cancel()
				start := time.Now()
				err := send(ctx, f, 10)
				took := time.Since(start)
				if !errors.Is(err, test.want) || took != test.took {
					t.Errorf("got error %v after %v, want %v after %v",
						err, took, test.want, test.took)
				}
			})
		})
	}
}

// TestFaultyClose waits for the write that its caller gave up.
func TestFaultyClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFaulty(t)
		late := make(chan struct{})
		f.Inject(ledgertest.Fault{WaitBefore: ledgertest.Until(late)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := send(ctx, f, 10)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got error %v, want the deadline's", err)
		}
		closed := make(chan error, 1)
		go func() { closed <- f.Close() }()
		synctest.Wait()
		if len(closed) != 0 {
			t.Fatal("Close returned before the late write")
		}
		close(late)
		err = <-closed
		if err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// ExampleFaulty loses a reply: the caller cannot know, sends the same again, and is told.
func ExampleFaulty() {
	ctx := context.Background()
	ledger := ledgertest.NewFaulty(ledgertest.NewTwin(func() uint64 { return startTime }))
	ledger.Inject(ledgertest.Fault{After: errors.New("connection reset")})

	account := []ledgers.Account{{ID: ledgers.ID{Lo: 1}, Ledger: 1, Code: 1}}
	_, err := ledger.CreateAccounts(ctx, account)
	fmt.Println(err)
	results, err := ledger.CreateAccounts(ctx, account)
	fmt.Println(results[0].Status, err)
	// Output:
	// connection reset
	// exists <nil>
}
