package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// R1: the reply to the first attempt is lost after the commit; the second is its answer.
func TestReplayAfterLostReply(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := newLimiter(t, faulty, clock, closed(rate("api", 10, time.Minute)))
	check(t, l, one("api", "alice", 1))
	faulty.Inject(ledgertest.Fault{On: ledgertest.CallCreateTransfers, After: ledgers.ErrClosed})
	wantCode(t, l, named("id", one("api", "alice", 1)), limiter.CodeLedgerUnavailable)

	second := check(t, l, named("id", one("api", "alice", 1)))
	third := check(t, l, named("id", one("api", "alice", 1)))
	if !second.Allowed || !second.Replayed || second.Limits[0].Remaining != 8 {
		t.Fatalf("second attempt: got %+v, want a replay with 8 left", second)
	}
	if third.Transfer != second.Transfer || !third.At.Equal(second.At) {
		t.Errorf("third attempt: got %+v, want the same receipt and time", third)
	}
	wantBalance(t, l, "api", "alice", 10, 2, 8)
}

// R2: 1,000 checks with ids, every tenth reply dropped and retried: charged once each.
func TestDroppedReplies(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := newLimiter(t, faulty, clock, closed(rate("api", 700, time.Hour)))
	check(t, l, one("api", "alice", 1))
	faulty.Inject(ledgertest.Fault{
		On: ledgertest.CallCreateTransfers, Every: 10, Times: ledgertest.Always,
		After: ledgers.ErrClosed,
	})
	admitted := 1
	for i := range 1000 {
		request := named(fmt.Sprint("id ", i), one("api", "alice", 1))
		d, err := l.Check(context.Background(), request)
		for tries := 0; err != nil && tries < 5; tries++ {
			d, err = l.Check(context.Background(), request)
		}
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			admitted++
		}
	}
	if admitted != 700 {
		t.Errorf("admitted: got %d, want 700", admitted)
	}
	wantBalance(t, l, "api", "alice", 700, 700, 0)
}

// R3: a denied id stays denied, also with another cost and after the window; a new one passes.
func TestDeniedIDStaysDenied(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 2, 10*time.Second))
	check(t, l, one("api", "alice", 2))
	first := check(t, l, named("id", one("api", "alice", 2)))
	if first.Allowed || !first.NewIDRequired || first.Replayed ||
		first.RetryAfter.Round(time.Second) != 10*time.Second {
		t.Fatalf("first denial: got %+v, want 10 s to wait and a new id to be required", first)
	}
	clock.Advance(first.RetryAfter)
	for _, cost := range []uint64{2, 1} {
		d := check(t, l, named("id", one("api", "alice", cost)))
		if d.Allowed || !d.Replayed || !d.NewIDRequired || d.RetryAfter != 0 || !d.Transfer.IsZero() {
			t.Fatalf("the id again at cost %d: got %+v, want the denial replayed", cost, d)
		}
		if d.Limits[0].Remaining != 2 {
			t.Errorf("figures of the replay: got %+v, want today's", d.Limits[0])
		}
	}
	if d := check(t, l, named("id 2", one("api", "alice", 2))); !d.Allowed {
		t.Errorf("a new id: got %+v, want allowed", d)
	}
}

// R4, R5 and R7: other costs, after the window, and another subject under an admitted id.
func TestAdmittedID(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 10, 10*time.Second))
	d := check(t, l, named("id", one("api", "alice", 3)))
	wantCode(t, l, named("id", one("api", "alice", 4)), limiter.CodeIDConflict)
	wantBalance(t, l, "api", "alice", 10, 3, 7)

	other := check(t, l, named("id", one("api", "bob", 1)))
	if !other.Allowed || other.Replayed || other.Transfer == d.Transfer {
		t.Errorf("the id of another subject: got %+v, want an attempt of its own", other)
	}

	clock.Advance(9999 * time.Millisecond)
	if again := check(t, l, named("id", one("api", "alice", 3))); !again.Replayed {
		t.Errorf("just before the end of the window: got %+v, want a replay", again)
	}
	clock.Advance(2 * time.Millisecond)
	wantCode(t, l, named("id", one("api", "alice", 3)), limiter.CodeIDExpired)
	wantBalance(t, l, "api", "alice", 10, 0, 10)
}

// A replay is as of the first answer; what remains and when units return are as of today.
func TestReplayFigures(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 10, time.Minute))
	first := check(t, l, named("id", one("api", "alice", 3)))
	clock.Advance(45500 * time.Millisecond)
	check(t, l, one("api", "alice", 2))
	again := check(t, l, named("id", one("api", "alice", 3)))
	if !again.Replayed || !again.At.Equal(first.At) {
		t.Errorf("got %+v, want a replay of %+v", again, first)
	}
	got := again.Limits[0]
	if got.Remaining != 5 || got.Reset != 15*time.Second {
		t.Errorf("got %+v, want 5 remaining and the first units back in 15 s", got)
	}
}

// A replay of a check over several limits is one too, whichever order they come in, and a denied
// one stays denied though the member that failed has units again.
func TestReplaySeveral(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock,
		rate("a", 2, 10*time.Second), rate("b", 1, time.Minute), rate("c", 5, 10*time.Second))
	request := func(id string, names ...string) limiter.Request {
		r := limiter.Request{ID: id}
		for _, name := range names {
			r.Members = append(r.Members, limiter.Member{Limit: name, Subject: "s", Cost: 1})
		}
		return r
	}
	first := check(t, l, request("id", "a", "b", "c"))
	again := check(t, l, request("id", "c", "b", "a"))
	if !first.Allowed || !again.Replayed || again.Transfer != first.Transfer {
		t.Fatalf("got %+v then %+v, want a replay", first, again)
	}
	denied := check(t, l, request("no", "a", "b", "c"))
	if denied.Allowed || denied.Limits[denied.Denied].Limit != "b" {
		t.Fatalf("got %+v, want denied by b", denied)
	}
	clock.Advance(2 * time.Minute)
	denied = check(t, l, request("no", "a", "b", "c"))
	if denied.Allowed || !denied.NewIDRequired || denied.RetryAfter != 0 {
		t.Fatalf("the denied id later: got %+v, want it denied", denied)
	}
	for _, name := range []string{"a", "b", "c"} {
		d := check(t, l, one(name, "s", 0))
		if d.Limits[0].Remaining != d.Limits[0].Quota {
			t.Errorf("%s: got %+v, want nothing taken", name, d.Limits[0])
		}
	}
}

// Once the ledger has decided, its decision stands: balances that cannot be read are left out.
func TestDecisionStandsWithoutBalances(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := newLimiter(t, faulty, clock, rate("api", 2, time.Minute))
	check(t, l, one("api", "alice", 1))
	remove := faulty.Inject(ledgertest.Fault{
		On: ledgertest.CallLookupAccounts, Times: ledgertest.Always, Before: ledgers.ErrClosed,
	})
	d := check(t, l, named("yes", one("api", "alice", 1)))
	if !d.Allowed || d.Limits[0].Known || d.Tightest() != -1 {
		t.Errorf("admitted: got %+v, want allowed without figures", d)
	}
	d = check(t, l, named("no", one("api", "alice", 1)))
	if d.Allowed || d.Limits[0].Known || d.RetryAfter != 0 || !d.NewIDRequired {
		t.Errorf("refused: got %+v, want denied without figures", d)
	}
	remove()
	wantBalance(t, l, "api", "alice", 2, 2, 0)
}
