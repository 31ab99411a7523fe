package limiter_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// testClock is a clock that only the test moves.
type testClock struct{ nanos atomic.Int64 }

func newClock() *testClock {
	c := &testClock{}
	c.nanos.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *testClock) Now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *testClock) Advance(d time.Duration) { c.nanos.Add(int64(d)) }

// rounds is how often a case is tried: fewer times than WEIR_LONG=1 asks for.
func rounds(short, long int) int {
	if os.Getenv("WEIR_LONG") == "1" {
		return long
	}
	return short
}

// openLedger opens a ledger on the test's clock, whose invariants are checked when the test ends.
func openLedger(t testing.TB, clock *testClock) ledgers.Driver {
	t.Helper()
	options := &embedded.Options{Now: clock.Now, Volatile: true}
	ledger, err := embedded.Open(t.TempDir(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := ledger.Close()
		if err != nil {
			t.Error(err)
		}
	})
	return ledgertest.Checked(t, ledger)
}

// patient gives limits a deadline that a busy machine does not miss, unless they have one.
func patient(limits []limiter.Limit) []limiter.Limit {
	limits = slices.Clone(limits)
	for i := range limits {
		if limits[i].Deadline == 0 {
			limits[i].Deadline = 10 * time.Second
		}
	}
	return limits
}

// newLimiter returns one node's limiter on a ledger.
func newLimiter(t testing.TB, driver ledgers.Driver, clock *testClock, limits ...limiter.Limit,
) *limiter.Limiter {
	t.Helper()
	book, err := accounts.NewBook(driver, accounts.Namespace{9}, &accounts.Options{Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	set, err := limiter.NewLimits(0, patient(limits))
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(book, set, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// rate is a request-rate limit.
func rate(name string, quota uint64, window time.Duration) limiter.Limit {
	return limiter.Limit{Name: name, Kind: limiter.RequestRate, Quota: quota, Window: window}
}

// one asks one limit for a cost, without an id.
func one(limit, subject string, cost uint64) limiter.Request {
	return limiter.Request{Members: []limiter.Member{{Limit: limit, Subject: subject, Cost: cost}}}
}

// named is a request under an id.
func named(id string, r limiter.Request) limiter.Request {
	r.ID = id
	return r
}

func check(t testing.TB, l *limiter.Limiter, r limiter.Request) limiter.Decision {
	t.Helper()
	d, err := l.Check(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// wantCode checks a request that must not be decided.
func wantCode(t testing.TB, l *limiter.Limiter, r limiter.Request, want limiter.Code) {
	t.Helper()
	d, err := l.Check(context.Background(), r)
	var e *limiter.Error
	if !errors.As(err, &e) || e.Code != want {
		t.Fatalf("check %+v: got %+v, %v, want %s", r, d, err, want)
	}
}

// wantBalance compares what a subject has.
func wantBalance(
	t testing.TB, l *limiter.Limiter, limit, subject string, quota, used, left uint64,
) {
	t.Helper()
	b, err := l.Balance(context.Background(), limit, subject)
	if err != nil {
		t.Fatal(err)
	}
	if b.Quota != quota || b.Used != used || b.Remaining != left {
		t.Fatalf("balance of %q on %q: got quota %d, used %d, remaining %d, want %d, %d, %d",
			subject, limit, b.Quota, b.Used, b.Remaining, quota, used, left)
	}
}
