package tigerbeetle_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/tigerbeetle"
	"weir/ledgers/tigerbeetle/tbtest"
)

// sessionsMax is how many sessions a cluster keeps, and connectionsMax how many clients a replica
// takes at once in development mode; in normal mode they are 32.
const (
	sessionsMax    = 64
	connectionsMax = 8
)

func pause(t testing.TB, c cluster) {
	t.Helper()
	err := c.Pause(0)
	if err != nil {
		t.Fatalf("pause: %v", err)
	}
}

func resume(t testing.TB, c cluster) {
	t.Helper()
	err := c.Resume(0)
	if err != nil {
		t.Fatalf("resume: %v", err)
	}
}

// TestEviction opens more sessions than a cluster keeps, so that the first ones are ended. A
// session that its client closed counts until it is the idlest, and a replica takes only as many
// connections as sessions: so not all others come at once.
func TestEviction(t *testing.T) {
	c := own(t)
	reader, writer := c.open(t), c.open(t)
	someAccounts(t, reader)
	sent := someTransfers(10, 1)
	results, err := writer.CreateTransfers(t.Context(), sent)
	wantCreated(t, writer, sent, results, err)
	const atOnce = connectionsMax - 2
	for range sessionsMax/atOnce + 1 {
		var wait sync.WaitGroup
		for range atOnce {
			wait.Go(func() { pass(t, c) })
		}
		wait.Wait()
	}
	found, err := reader.LookupTransfers(t.Context(), idsOf(sent))
	if err != nil || len(found) != 1 {
		t.Errorf("look up: got %d transfers and %v, want it from another session", len(found), err)
	}
	sent = someTransfers(20, 3)
	_, err = writer.CreateTransfers(t.Context(), sent)
	if !errors.Is(err, tigerbeetle.ErrEvicted) {
		t.Errorf("create transfers: got %v, want ErrEvicted", err)
	}
	results, err = writer.CreateTransfers(t.Context(), sent)
	wantCreated(t, writer, sent, results, err)
}

// pass opens a session, makes a call and closes it.
func pass(t testing.TB, c cluster) {
	t.Helper()
	ledger, err := tigerbeetle.Open(c.Addresses(), c.ID(), nil)
	if err != nil {
		t.Errorf("open: %v", err)
		return
	}
	_, err = ledger.LookupAccounts(context.Background(), []ledgers.ID{{Lo: 1}})
	if err != nil {
		t.Errorf("look up: %v", err)
	}
	err = ledger.Close()
	if err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestPausedServer stops the server for a while: calls end with their contexts, the bound holds,
// and what was given up is there once the server goes on.
func TestPausedServer(t *testing.T) {
	c := own(t)
	ledger := c.openWith(t, &tigerbeetle.Options{QueueEvents: 10})
	someAccounts(t, ledger)
	pause(t, c)
	const deadline = 100 * time.Millisecond
	for n := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		start := time.Now()
		_, err := ledger.CreateTransfers(ctx, someTransfers(10+n, 1))
		took := time.Since(start)
		if !errors.Is(err, context.DeadlineExceeded) || took > 10*deadline {
			t.Errorf("call %d: got %v after %v, want DeadlineExceeded", n, err, took)
		}
		cancel()
	}
	_, err := ledger.LookupAccounts(t.Context(), []ledgers.ID{{Lo: 1}})
	if !errors.Is(err, ledgers.ErrBusy) {
		t.Errorf("one more: got %v, want ErrBusy", err)
	}
	resume(t, c)
	deadlineOfAll := time.Now().Add(time.Minute)
	for {
		_, err = ledger.LookupAccounts(t.Context(), []ledgers.ID{{Lo: 1}})
		if !errors.Is(err, ledgers.ErrBusy) || time.Now().After(deadlineOfAll) {
			break
		}
		time.Sleep(10 * time.Millisecond) // tidy:sleep the server catches up
	}
	found, err := ledger.LookupTransfers(t.Context(), idsOf(someTransfers(10, 10)))
	if err != nil || len(found) != 10 {
		t.Errorf("look up: got %d transfers and %v, want the 10 that were given up", len(found), err)
	}
}

// TestCloseWhilePaused closes with calls in flight to a server that does not answer, and to one
// that was never there.
func TestCloseWhilePaused(t *testing.T) {
	c := own(t)
	options := &tigerbeetle.Options{CloseTimeout: 200 * time.Millisecond}
	before := runtime.NumGoroutine()
	for _, connected := range []bool{true, false} {
		addresses := c.Addresses()
		var err error
		if !connected {
			addresses, err = tbtest.FreeAddresses(1)
		}
		if err != nil {
			t.Fatal(err)
		}
		ledger, err := tigerbeetle.Open(addresses, c.ID(), options)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		if connected {
			someAccounts(t, ledger)
			pause(t, c)
		}
		const calls = 20
		errs := make(chan error, calls)
		for n := range calls {
			go func() {
				_, err := ledger.CreateTransfers(context.Background(), someTransfers(10+n, 1))
				errs <- err
			}()
		}
		time.Sleep(50 * time.Millisecond) // tidy:sleep so that calls are in flight
		start := time.Now()
		err = ledger.Close()
		if !errors.Is(err, tigerbeetle.ErrUnanswered) || time.Since(start) > 5*time.Second {
			t.Errorf("close: got %v after %v, want ErrUnanswered", err, time.Since(start))
		}
		for range calls {
			err := <-errs
			if !errors.Is(err, tigerbeetle.ErrUnanswered) && !errors.Is(err, ledgers.ErrClosed) {
				t.Errorf("call: got %v, want ErrUnanswered", err)
			}
		}
	}
	resume(t, c)
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond) // tidy:sleep goroutines that were answered end
	}
	t.Errorf("goroutines: got %d, want %d as before", runtime.NumGoroutine(), before)
}

// TestRestartedServer kills the server while calls are under way and starts it again: the session
// goes on, and every call is answered.
func TestRestartedServer(t *testing.T) {
	c := own(t)
	ledger := c.open(t)
	someAccounts(t, ledger)
	const calls = 50
	errs := make(chan error, calls)
	for n := range calls {
		go func() {
			_, err := ledger.CreateTransfers(context.Background(), someTransfers(100+10*n, 10))
			errs <- err
		}()
	}
	c.Kill(0)
	err := c.Restart(0)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	for range calls {
		err := <-errs
		if err != nil {
			t.Errorf("call: got %v, want an answer after the restart", err)
		}
	}
	found, err := ledger.LookupAccounts(t.Context(), []ledgers.ID{{Lo: 1}})
	if err != nil || len(found) != 1 || found[0].DebitsPosted != ledgers.AmountOf(10*calls) {
		t.Errorf("look up: got %v and %v, want debits of %d", found, err, 10*calls)
	}
}
