package tigerbeetle_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle"
)

// failing makes the first n requests fail.
func failing(n int, err error) func(string, []int, <-chan struct{}) error {
	return func(string, []int, <-chan struct{}) error {
		n--
		if n >= 0 {
			return err
		}
		return nil
	}
}

// TestSessionIsOver ends sessions while calls are under way, and looks at what becomes of the call
// and of the next.
func TestSessionIsOver(t *testing.T) {
	read := func(ctx context.Context, d ledgers.Driver) error {
		_, err := d.LookupAccounts(ctx, []ledgers.ID{{Lo: 1}})
		return err
	}
	journal := func(ctx context.Context, d ledgers.Driver) error {
		_, err := d.AccountTransfers(ctx, ledgers.AccountFilter{
			AccountID: ledgers.ID{Lo: 1}, Limit: 1, Debits: true,
		})
		return err
	}
	write := func(ctx context.Context, d ledgers.Driver) error {
		_, err := d.CreateTransfers(ctx, someTransfers(10, 1))
		return err
	}
	for _, row := range []struct {
		name   string
		call   func(context.Context, ledgers.Driver) error
		fails  int
		err    error
		want   error
		opened int
	}{
		{"ReadIsAskedAgain", read, 1, tigerbeetle.ErrEvicted, nil, 2},
		{"JournalIsAskedAgain", journal, 1, tigerbeetle.ErrEvicted, nil, 2},
		{"ReadIsAskedTwice", read, 2, tigerbeetle.ErrEvicted, tigerbeetle.ErrEvicted, 2},
		{"ErrEvicted", write, 1, tigerbeetle.ErrEvicted, tigerbeetle.ErrEvicted, 2},
		{"ErrRelease", write, 1, errors.Join(tigerbeetle.ErrEvicted, tigerbeetle.ErrRelease),
			tigerbeetle.ErrRelease, 1},
		{"UnsentWriteIsSent", write, 1, tigerbeetle.ErrSessionOver, nil, 2},
		{"ErrReply", write, 1, tigerbeetle.ErrReply, tigerbeetle.ErrReply, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := &tigerbeetle.Cluster{Ledger: newTwin()}
				ledger := openOn(t, cluster, nil)
				someAccounts(t, ledger)
				time.Sleep(2 * time.Second) // tidy:sleep of the bubble, past the pause
				cluster.Before = failing(row.fails, row.err)
				err := row.call(t.Context(), ledger)
				if !errors.Is(err, row.want) {
					t.Errorf("call: got %v, want %v", err, row.want)
				}
				if cluster.Opened() != row.opened {
					t.Errorf("sessions: got %d, want %d", cluster.Opened(), row.opened)
				}
				time.Sleep(2 * time.Second) // tidy:sleep of the bubble, past the pause
				err = row.call(t.Context(), ledger)
				if err != nil {
					t.Errorf("next call: got %v, want an answer", err)
				}
			})
		})
	}
}

// TestSessionsAreNotOpenedInHaste has the cluster end session after session.
func TestSessionsAreNotOpenedInHaste(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &tigerbeetle.Cluster{
			Ledger: newTwin(), Before: failing(1000, tigerbeetle.ErrEvicted),
		}
		ledger := openOn(t, cluster, nil)
		for range 100 {
			_, err := ledger.LookupAccounts(t.Context(), []ledgers.ID{{Lo: 1}})
			if !errors.Is(err, tigerbeetle.ErrEvicted) {
				t.Errorf("look up: got %v, want ErrEvicted", err)
			}
			time.Sleep(50 * time.Millisecond) // tidy:sleep of the bubble
		}
		if cluster.Opened() > 6 {
			t.Errorf("sessions in 5 s: got %d, want 6 at most", cluster.Opened())
		}
	})
}

// TestSessionCannotBeOpened has the client fail to start when the session is to be opened again.
func TestSessionCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &tigerbeetle.Cluster{Ledger: newTwin()}
		ledger := openOn(t, cluster, nil)
		time.Sleep(2 * time.Second) // tidy:sleep of the bubble, past the pause
		cluster.Before = failing(1, tigerbeetle.ErrEvicted)
		cluster.OpenErr = tigerbeetle.ErrClient
		for range 2 {
			_, err := ledger.LookupAccounts(t.Context(), []ledgers.ID{{Lo: 1}})
			if !errors.Is(err, tigerbeetle.ErrClient) {
				t.Errorf("look up: got %v, want ErrClient", err)
			}
		}
		cluster.OpenErr = nil
		time.Sleep(2 * time.Second) // tidy:sleep of the bubble, past the pause
		_, err := ledger.LookupAccounts(t.Context(), []ledgers.ID{{Lo: 1}})
		if err != nil {
			t.Errorf("look up: got %v, want an answer", err)
		}
	})
}

// TestSessionEndsWithinACall ends the session after the first of a call's requests: what was
// answered must not be sent again.
func TestSessionEndsWithinACall(t *testing.T) {
	for _, cause := range []error{
		tigerbeetle.ErrEvicted, tigerbeetle.ErrSessionOver, tigerbeetle.ErrTooMuchData,
	} {
		cluster := &tigerbeetle.Cluster{Ledger: newTwin(), Events: 10}
		ledger := openOn(t, cluster, nil)
		someAccounts(t, ledger)
		sent := someTransfers(10, 25)
		_, err := ledger.CreateTransfers(t.Context(), someTransfers(100, 25))
		if err != nil {
			t.Fatalf("create transfers: %v", err)
		}
		requests := 0
		cluster.Before = func(string, []int, <-chan struct{}) error {
			requests++
			if requests == 2 {
				return cause
			}
			return nil
		}
		_, err = ledger.CreateTransfers(t.Context(), sent)
		if !errors.Is(err, tigerbeetle.ErrEvicted) && !errors.Is(err, tigerbeetle.ErrReply) {
			t.Errorf("%v: got %v, want ErrEvicted or ErrReply", cause, err)
		}
		if requests != 2 {
			t.Errorf("%v: got %d requests, want 2", cause, requests)
		}
	}
}

// TestContext gives calls up that are under way and that wait.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := newLog()
		cluster := &tigerbeetle.Cluster{Ledger: newTwin()}
		ledger := openOn(t, cluster, &tigerbeetle.Options{QueueEvents: 4})
		someAccounts(t, ledger)
		cluster.Before = requests.before
		for n := range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			_, err := ledger.CreateTransfers(ctx, someTransfers(10+n, 1))
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
				t.Errorf("call %d: got %v after %v, want DeadlineExceeded after 1s",
					n, err, time.Since(start))
			}
			cancel()
		}
		_, err := ledger.CreateTransfers(t.Context(), someTransfers(20, 1))
		if !errors.Is(err, ledgers.ErrBusy) {
			t.Errorf("one more: got %v, want ErrBusy", err)
		}
		requests.open()
		synctest.Wait()
		ids := []ledgers.ID{{Lo: 10}, {Lo: 11}, {Lo: 12}, {Lo: 13}}
		found, err := ledger.LookupTransfers(t.Context(), ids)
		if err != nil || len(found) != 4 {
			t.Errorf("look up: got %d transfers and %v, want those that were given up", len(found), err)
		}
		found, err = ledger.LookupTransfers(t.Context(), []ledgers.ID{{Lo: 20}})
		if err != nil || len(found) != 0 {
			t.Errorf("look up: got %d transfers and %v, want none where busy", len(found), err)
		}
	})
}

// TestGivenUpReadsAreNotSent gives look-ups up while they wait.
func TestGivenUpReadsAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := newLog()
		cluster := &tigerbeetle.Cluster{Ledger: newTwin(), Before: requests.before}
		ledger := openOn(t, cluster, nil)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := ledger.LookupAccounts(ctx, []ledgers.ID{{Lo: 1}})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("look up: got %v, want DeadlineExceeded", err)
			}
			cancel()
		}
		requests.open()
		synctest.Wait()
		if len(requests.seen()) != 1 {
			t.Errorf("requests: got %v, want one", requests.seen())
		}
		err := ledger.Close()
		if err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// TestClose closes with calls in flight, to a cluster that answers after all and to one that does
// not. When the bubble ends nothing may be left running in it.
func TestClose(t *testing.T) {
	for _, row := range []struct {
		name    string
		answers bool
		want    error
	}{{"OK", true, nil}, {"ErrUnanswered", false, tigerbeetle.ErrUnanswered}} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := newLog()
				cluster := &tigerbeetle.Cluster{Ledger: newTwin(), Before: requests.before}
				ledger := openOn(t, cluster, &tigerbeetle.Options{CloseTimeout: 3 * time.Second})
				var errs [5]error
				for i := range errs {
					go func() {
						if i == 0 {
							_, errs[i] = ledger.AccountTransfers(t.Context(), ledgers.AccountFilter{})
							return
						}
						_, errs[i] = ledger.CreateTransfers(t.Context(), someTransfers(10+i, 1))
					}()
				}
				synctest.Wait()
				if row.answers {
					time.AfterFunc(time.Second, requests.open)
				}
				start := time.Now()
				err := ledger.Close()
				if !errors.Is(err, row.want) || time.Since(start) > 3*time.Second {
					t.Errorf("close: got %v after %v, want %v within 3s",
						err, time.Since(start), row.want)
				}
				synctest.Wait()
				for i, err := range errs {
					if !errors.Is(err, row.want) {
						t.Errorf("call %d: got %v, want %v", i, err, row.want)
					}
				}
				_, err = ledger.LookupAccounts(t.Context(), []ledgers.ID{{Lo: 1}})
				if !errors.Is(err, ledgers.ErrClosed) {
					t.Errorf("after close: got %v, want ErrClosed", err)
				}
			})
		})
	}
}

// oddLedger answers what no TigerBeetle answers.
type oddLedger struct {
	ledgers.Driver
	status ledgers.TransferStatus
	extra  int
}

func (o oddLedger) CreateTransfers(
	_ context.Context, transfers []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	return slices.Repeat([]ledgers.TransferResult{{Timestamp: 1, Status: o.status}},
		len(transfers)+o.extra), nil
}

func (o oddLedger) CreateAccounts(
	_ context.Context, accounts []ledgers.Account,
) ([]ledgers.AccountResult, error) {
	return slices.Repeat([]ledgers.AccountResult{
		{Timestamp: 1, Status: ledgers.AccountStatus(o.status)},
	}, len(accounts)+o.extra), nil
}

func (o oddLedger) LookupTransfers(context.Context, []ledgers.ID) ([]ledgers.Transfer, error) {
	return someTransfers(7, 1), nil
}

// TestErrReply is about answers that are not understood, and that all known ones pass.
func TestErrReply(t *testing.T) {
	call := func(o oddLedger) error {
		o.Driver = newTwin()
		ledger := openOn(t, &tigerbeetle.Cluster{Ledger: o}, nil)
		results, err := ledger.CreateTransfers(t.Context(), someTransfers(1, 3))
		for _, r := range results {
			if r.Status != o.status {
				t.Errorf("status %v: got %v", o.status, r.Status)
			}
		}
		return err
	}
	for _, status := range ledgertest.TransferStatuses() {
		err := call(oddLedger{status: status})
		if err != nil {
			t.Errorf("status %v: got error %v", status, err)
		}
	}
	for _, o := range []oddLedger{
		{status: 0}, {status: 18}, {status: 69}, {status: 0xFFFFFFFE},
		{status: ledgers.TransferCreated, extra: 1}, {status: ledgers.TransferCreated, extra: -1},
	} {
		err := call(o)
		if !errors.Is(err, tigerbeetle.ErrReply) {
			t.Errorf("status %d and %d results too many: got %v, want ErrReply", o.status, o.extra, err)
		}
	}
	ledger := openOn(t, &tigerbeetle.Cluster{Ledger: oddLedger{Driver: newTwin(), status: 27}}, nil)
	_, err := ledger.CreateAccounts(t.Context(), []ledgers.Account{{ID: ledgers.ID{Lo: 1}}})
	if !errors.Is(err, tigerbeetle.ErrReply) {
		t.Errorf("account status 27: got %v, want ErrReply", err)
	}
	_, err = ledger.LookupTransfers(t.Context(), []ledgers.ID{{Lo: 8}})
	if !errors.Is(err, tigerbeetle.ErrReply) {
		t.Errorf("a transfer that was not asked for: got %v, want ErrReply", err)
	}
}
