package limiter_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/limiter"
)

// R8: a grant sent 100 times at once is made once; without an id it is refused, and with another
// amount under its id it is a conflict.
func TestGrantOnce(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 10, time.Minute))
	grant := limiter.Change{Limit: "api", Subject: "alice", Amount: 5, ID: "g"}
	var replayed atomic.Int64
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			made, err := l.Grant(context.Background(), grant)
			if err != nil || made.Quota != 15 {
				t.Errorf("got %+v, %v, want a quota of 15", made, err)
			}
			if made.Replayed {
				replayed.Add(1)
			}
		})
	}
	group.Wait()
	if replayed.Load() != 99 {
		t.Errorf("replayed: got %d, want 99", replayed.Load())
	}
	other := grant
	other.Amount = 6
	nameless := grant
	nameless.ID = ""
	for want, change := range map[limiter.Code]limiter.Change{
		limiter.CodeIDConflict: other, limiter.CodeBadRequest: nameless,
	} {
		_, err := l.Grant(context.Background(), change)
		e, ok := errors.AsType[*limiter.Error](err)
		if !ok || e.Code != want {
			t.Errorf("grant %+v: got %v, want %s", change, err, want)
		}
	}
	wantBalance(t, l, "api", "alice", 15, 0, 15)
}

// I1: names that another separator, or another way to escape, would make the same are not the same.
func TestSubjectsApart(t *testing.T) {
	clock := newClock()
	limits := []limiter.Limit{rate("a", 1, time.Minute)}
	for _, separator := range []string{":", ".", "_", "-"} {
		limits = append(limits, rate("a"+separator+"b", 1, time.Minute))
	}
	l := newLimiter(t, openLedger(t, clock), clock, limits...)
	for _, limit := range limits[1:] {
		check(t, l, one("a", limit.Name[1:]+"c", 1)) // "a" and ":bc" beside "a:b" and "c"
		check(t, l, one("a", "b"+limit.Name[1:2]+"c", 1))
		if d := check(t, l, one("a", "b"+limit.Name[1:2]+"c", 1)); d.Allowed {
			t.Fatalf("got %+v, want the subject exhausted", d)
		}
		wantBalance(t, l, limit.Name, "c", 1, 0, 1)
	}
	for _, subject := range []string{"a/b", "a%2Fb", "a%252Fb", "A/b", "a/b "} {
		if d := check(t, l, one("a", subject, 1)); !d.Allowed {
			t.Errorf("subject %q: got %+v, want it to have a unit of its own", subject, d)
		}
	}
}
