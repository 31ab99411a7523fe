package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// L11: a flood on an exhausted subject writes in the order of once per expiry.
func TestFloodDoesNotWrite(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := newLimiter(t, faulty, clock, rate("api", 10, time.Minute))
	for range 10 {
		check(t, l, one("api", "alice", 1))
	}
	writes := faulty.Calls(ledgertest.CallCreateTransfers)
	allowed := 0
	n := rounds(10_000, 100_000)
	step := 10 * time.Minute / time.Duration(n) // ten windows: 100 units come back
	for range n {
		if check(t, l, one("api", "alice", 1)).Allowed {
			allowed++
		}
		clock.Advance(step)
	}
	if allowed < 90 || allowed > 100 {
		t.Errorf("allowed in ten windows: got %d, want 90 to 100", allowed)
	}
	// One write admits each unit that came back and one finds out that no more did.
	if got := faulty.Calls(ledgertest.CallCreateTransfers) - writes; got > 2*allowed+2 {
		t.Errorf("ledger writes: got %d for %d admissions, want at most two each", got, allowed)
	}
}

// A denial from memory says what the ledger's would: the figures, and the wait for this cost.
func TestRememberedDenial(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := newLimiter(t, faulty, clock, rate("api", 10, time.Minute))
	for range 10 {
		check(t, l, one("api", "alice", 1))
		clock.Advance(time.Second)
	}
	first := check(t, l, one("api", "alice", 1))
	writes := faulty.Calls(ledgertest.CallCreateTransfers)
	for cost := uint64(1); cost <= 10; cost++ {
		d := check(t, l, one("api", "alice", cost))
		want := first.RetryAfter + time.Duration(cost-1)*time.Second
		got := d.RetryAfter
		if d.Allowed || got < want-time.Millisecond || got > want+time.Millisecond {
			t.Errorf("cost %d: got %v, want denied with %v to wait", cost, d, want)
		}
		if d.Limits[0].Quota != 10 || d.Limits[0].Remaining != 0 ||
			d.Limits[0].Reset != first.Limits[0].Reset {
			t.Errorf("cost %d: got %+v, want the figures of %+v", cost, d.Limits[0], first.Limits[0])
		}
	}
	wantCode(t, l, one("api", "alice", 11), limiter.CodeCostExceedsQuota)
	if got := faulty.Calls(ledgertest.CallCreateTransfers); got != writes {
		t.Errorf("ledger writes: got %d, want none", got-writes)
	}
}

// What is remembered is the smallest cost denied: a smaller one is asked of the ledger.
func TestSmallerCostIsAsked(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 10, time.Minute))
	check(t, l, one("api", "alice", 7))
	if d := check(t, l, one("api", "alice", 5)); d.Allowed {
		t.Fatalf("5 of 3 left: got %+v", d)
	}
	if d := check(t, l, one("api", "alice", 3)); !d.Allowed {
		t.Errorf("3 of 3 left: got %+v, want allowed", d)
	}
	if d := check(t, l, one("api", "alice", 5)); d.Allowed || d.Limits[0].Remaining != 0 {
		t.Errorf("5 of none left: got %+v, want denied with 0 left, not what was left before", d)
	}
}

// Grants and other quotas drop what is remembered: the units are there at once.
func TestGivenBackIsSeen(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	l := newLimiter(t, driver, clock, rate("api", 2, time.Minute))
	check(t, l, one("api", "alice", 2))
	check(t, l, one("api", "alice", 1))
	_, err := l.Grant(context.Background(), limiter.Change{
		Limit: "api", Subject: "alice", Amount: 5, ID: "g",
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		if d := check(t, l, one("api", "alice", 1)); d.Allowed != (i < 5) {
			t.Fatalf("check %d after a grant of 5: got %+v", i+1, d)
		}
	}
	set, err := limiter.NewLimits(0, patient([]limiter.Limit{rate("api", 3, time.Minute)}))
	if err != nil {
		t.Fatal(err)
	}
	l.SetLimits(set)
	if d := check(t, l, one("api", "alice", 1)); !d.Allowed {
		t.Errorf("after a raise by 1: got %+v, want allowed", d)
	}
}

// between is a ledger at which something else happens once, right before the next write or right
// after balances were next read.
type between struct {
	ledgers.Driver
	beforeWrite, afterRead func()
}

func (b *between) CreateTransfers(ctx context.Context, transfers []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	once(&b.beforeWrite)
	return b.Driver.CreateTransfers(ctx, transfers)
}

func (b *between) LookupAccounts(ctx context.Context, ids []ledgers.ID,
) ([]ledgers.Account, error) {
	found, err := b.Driver.LookupAccounts(ctx, ids)
	once(&b.afterRead)
	return found, err
}

func once(do *func()) {
	f := *do
	*do = nil
	if f != nil {
		f()
	}
}

// A denial is not remembered if its account changes while the balance is read for the answer.
func TestChangeDuringDenial(t *testing.T) {
	ctx := context.Background()
	tests := []struct {
		name   string
		change func(t *testing.T, l *limiter.Limiter)
		want   uint64 // what remains afterwards
	}{
		{"Grant", func(t *testing.T, l *limiter.Limiter) {
			_, err := l.Grant(ctx, limiter.Change{Limit: "api", Subject: "s", Amount: 5, ID: "g"})
			if err != nil {
				t.Error(err)
			}
		}, 8},
		{"Reload", func(t *testing.T, l *limiter.Limiter) {
			reload(t, l, rate("api", 10, time.Hour))
		}, 8},
		{"Admission", func(t *testing.T, l *limiter.Limiter) { check(t, l, one("api", "s", 1)) }, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clock := newClock()
			ledger := &between{Driver: openLedger(t, clock)}
			l := newLimiter(t, ledger, clock, rate("api", 5, time.Hour))
			check(t, l, one("api", "s", 2))
			ledger.afterRead = func() { test.change(t, l) }
			if d := check(t, l, one("api", "s", 5)); d.Allowed {
				t.Fatalf("5 of 3 left: got %+v, want denied", d)
			}
			d := check(t, l, one("api", "s", 5))
			if want := test.want >= 5; d.Allowed != want {
				t.Fatalf("5 of %d left: got %+v, want allowed %t", test.want, d, want)
			}
			if got := d.Limits[0].Remaining; !d.Allowed && got != test.want {
				t.Errorf("remaining: got %d, want %d", got, test.want)
			}
		})
	}
}

// A request that was resolved before a reload is answered by the old limits, and what it says of
// them is not remembered under the new ones.
func TestDenialUnderOldLimits(t *testing.T) {
	clock := newClock()
	ledger := &between{Driver: openLedger(t, clock)}
	l := newLimiter(t, ledger, clock, rate("api", 1, time.Hour))
	check(t, l, one("api", "s", 1))
	ledger.beforeWrite = func() { reload(t, l, rate("api", 10, time.Hour)) }
	if d := check(t, l, one("api", "s", 1)); d.Allowed {
		t.Fatalf("under the old quota of 1: got %+v, want denied", d)
	}
	if d := check(t, l, one("api", "s", 1)); !d.Allowed {
		t.Errorf("under the new quota of 10: got %+v, want allowed", d)
	}
}

// Checks with an id pass the memory up to a cap; past it an admitted id is still replayed, and a
// new one is denied unrecorded and may be sent again.
func TestIDsPastTheCap(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := newLimiter(t, faulty, clock, rate("api", 1, time.Minute))
	admitted := check(t, l, named("yes", one("api", "alice", 1)))
	recorded := 0
	for i := range 100 {
		d := check(t, l, named(fmt.Sprint("no ", i), one("api", "alice", 1)))
		switch {
		case d.Allowed:
			t.Fatalf("check %d: got %+v", i, d)
		case d.NewIDRequired == d.IDNotRecorded:
			t.Fatalf("check %d: got %+v, want either recorded or not", i, d)
		case d.NewIDRequired:
			recorded++
		}
	}
	if recorded > 20 {
		t.Errorf("recorded within a second: got %d, want a few", recorded)
	}
	replay := check(t, l, named("yes", one("api", "alice", 1)))
	if !replay.Replayed || replay.Transfer != admitted.Transfer {
		t.Errorf("admitted id past the cap: got %+v, want its replay", replay)
	}
}

// A revocation that loses to a check, after what is free was read, has spent its id and says so.
func TestRevocationOutrun(t *testing.T) {
	clock := newClock()
	ledger := &between{Driver: openLedger(t, clock)}
	l := newLimiter(t, ledger, clock, rate("api", 5, time.Hour))
	check(t, l, one("api", "s", 1))
	revoke := limiter.Change{Limit: "api", Subject: "s", Amount: 4, ID: "r"}
	ledger.beforeWrite = func() { check(t, l, one("api", "s", 2)) }
	_, err := l.Revoke(context.Background(), revoke)
	e, ok := errors.AsType[*limiter.Error](err)
	if !ok || e.Code != limiter.CodeQuotaInUse || e.Free != 2 || !e.NewIDRequired {
		t.Errorf("got %v, want quota-in-use with 2 free, and a new id to be required", err)
	}
	_, err = l.Revoke(context.Background(), revoke) // now by reading that too little is free
	e, ok = errors.AsType[*limiter.Error](err)
	if !ok || e.Code != limiter.CodeQuotaInUse || e.Free != 2 || !e.NewIDRequired {
		t.Errorf("the spent id again: got %v, want quota-in-use, and a new id to be required", err)
	}
	revoke.ID, revoke.Amount = "r2", 3
	for range 2 {
		_, err = l.Revoke(context.Background(), revoke)
		e, ok = errors.AsType[*limiter.Error](err)
		if !ok || e.Code != limiter.CodeQuotaInUse || e.NewIDRequired {
			t.Errorf("refused by reading: got %v, want quota-in-use that leaves the id unspent", err)
		}
	}
	revoke.Amount = 2
	made, err := l.Revoke(context.Background(), revoke)
	if err != nil || made.Replayed || made.Quota != 3 {
		t.Errorf("the unspent id for what is free: got %+v, %v, want it made", made, err)
	}
	wantBalance(t, l, "api", "s", 3, 3, 0)
	clock.Advance(2 * time.Hour) // 3 are free again
	grant(t, l, "g", "api", "s", 2)
	revoke.ID, revoke.Amount = "r", 4
	_, err = l.Revoke(context.Background(), revoke)
	e, ok = errors.AsType[*limiter.Error](err)
	if !ok || e.Code != limiter.CodeQuotaInUse || !e.NewIDRequired ||
		e.Detail != `id "r" was refused before and stays refused` {
		t.Errorf("the spent id with enough free: got %v, want that it stays refused", err)
	}
}

// A remembered denial stays one while the ledger is away, also over several limits, whose figures
// are not in memory.
func TestRememberedDenialWithoutFigures(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := newLimiter(t, faulty, clock,
		closed(rate("a", 5, time.Minute)), closed(rate("b", 1, time.Minute)))
	both := one("a", "s", 1)
	both.Members = append(both.Members, one("b", "s", 1).Members...)
	check(t, l, both)
	check(t, l, both)
	defer away(faulty)()
	d := check(t, l, both)
	if d.Allowed || d.Degraded || d.Limits[d.Denied].Limit != "b" || d.Limits[0].Known ||
		d.RetryAfter != 0 {
		t.Errorf("got %+v, want denied by b, without figures", d)
	}
}
