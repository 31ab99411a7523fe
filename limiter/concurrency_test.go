package limiter_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/limiter"
)

// storm sends requests at once over nodes and counts what passed.
func storm(t *testing.T, nodes []*limiter.Limiter, n int, request func(i int) limiter.Request) int {
	t.Helper()
	var allowed atomic.Int64
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			d, err := nodes[i%len(nodes)].Check(context.Background(), request(i))
			if err != nil {
				t.Error(err)
			}
			if d.Allowed {
				allowed.Add(1)
			}
		})
	}
	group.Wait()
	return int(allowed.Load())
}

// C1: 1,000 concurrent checks against 100, over one node and over three on one ledger.
func TestNoOvershoot(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	for _, count := range []int{1, 3} {
		var nodes []*limiter.Limiter
		for range count {
			nodes = append(nodes, newLimiter(t, driver, clock, rate("api", 100, time.Minute)))
		}
		for round := range rounds(5, 20) {
			subject := fmt.Sprint(count, "-", round)
			got := storm(t, nodes, 1000, func(int) limiter.Request { return one("api", subject, 1) })
			if got != 100 {
				t.Fatalf("%d nodes, round %d: allowed %d, want 100", count, round, got)
			}
		}
	}
}

// C2: 64 concurrent first checks of a never-seen subject.
func TestFirstSight(t *testing.T) {
	clock := newClock()
	nodes := []*limiter.Limiter{newLimiter(t, openLedger(t, clock), clock, rate("api", 5, time.Hour))}
	for round := range rounds(20, 200) {
		subject := fmt.Sprint(round)
		got := storm(t, nodes, 64, func(int) limiter.Request { return one("api", subject, 1) })
		if got != 5 {
			t.Fatalf("round %d: allowed %d, want 5", round, got)
		}
		wantBalance(t, nodes[0], "api", subject, 5, 5, 0)
	}
}

// C3: a subject's limit used up, the site's not: in both orders all are denied, the site untouched.
func TestDeniedCostsNothing(t *testing.T) {
	clock := newClock()
	nodes := []*limiter.Limiter{newLimiter(t, openLedger(t, clock), clock,
		rate("user", 3, time.Hour), rate("site", 1000, time.Hour))}
	storm(t, nodes, 3, func(int) limiter.Request { return one("user", "alice", 1) })
	user := limiter.Member{Limit: "user", Subject: "alice", Cost: 1}
	site := limiter.Member{Limit: "site", Subject: "all", Cost: 1}
	got := storm(t, nodes, 500, func(i int) limiter.Request {
		members := []limiter.Member{user, site}
		if i%2 == 1 {
			members = []limiter.Member{site, user}
		}
		r := limiter.Request{Members: members}
		if i%5 == 0 { // past the exhaustion memory
			r.ID = fmt.Sprint("id ", i)
		}
		return r
	})
	if got != 0 {
		t.Errorf("allowed: got %d, want 0", got)
	}
	wantBalance(t, nodes[0], "site", "all", 1000, 0, 1000)
}

// C4: one check naming the same account twice with one unit left is denied whole.
func TestSameAccountTwice(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 3, time.Hour))
	check(t, l, one("api", "alice", 2))
	twice := one("api", "alice", 1)
	twice.Members = append(twice.Members, twice.Members[0])
	d := check(t, l, twice)
	if d.Allowed || len(d.Limits) != 1 || d.Limits[0].Cost != 2 || d.Limits[0].Remaining != 1 {
		t.Errorf("got %+v, want denied, one entry of cost 2, 1 left", d)
	}
	wantBalance(t, l, "api", "alice", 3, 2, 1)
}

// C5: the denial is that of the limit that said no.
func TestDenialNamesTheLimit(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock,
		rate("minute", 60, time.Minute), rate("hour", 100, time.Hour))
	check(t, l, one("hour", "alice", 96))
	clock.Advance(30 * time.Minute)
	both := limiter.Request{Members: []limiter.Member{
		{Limit: "minute", Subject: "alice", Cost: 4}, {Limit: "hour", Subject: "alice", Cost: 4},
	}}
	check(t, l, both)
	for range 2 { // from the ledger, and from the exhaustion memory
		d := check(t, l, both)
		if d.Allowed || d.Denied != 1 || d.Tightest() != 1 {
			t.Fatalf("got %+v, want denied by the second limit", d)
		}
		minute, hour := d.Limits[0], d.Limits[1]
		if minute.Remaining != 56 || hour.Remaining != 0 ||
			hour.Reset.Round(time.Minute) != 30*time.Minute || hour.Reset != wholeSeconds(d.RetryAfter) {
			t.Fatalf("got %+v, want 56 left of the minute and 0 of the hour for half an hour", d.Limits)
		}
		if d.RetryAfter.Round(time.Second) != 30*time.Minute {
			t.Fatalf("retry after: got %v, want 30 min", d.RetryAfter)
		}
	}
	wantBalance(t, l, "minute", "alice", 60, 4, 56)
}

// C6: with 10 in 10 s, any two admissions i and i+10 are at least 10 s apart: no burst at an edge.
func TestSlidingWindow(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 10, 10*time.Second))
	var times []time.Time
	burst := func() {
		for range 10 {
			d := check(t, l, one("api", "alice", 1))
			if d.Allowed {
				times = append(times, d.At)
			}
		}
	}
	burst()
	clock.Advance(9500 * time.Millisecond)
	burst()
	clock.Advance(time.Second)
	burst()
	if len(times) != 20 {
		t.Errorf("admitted: got %d, want 20", len(times))
	}
	for i := 10; i < len(times); i++ {
		if apart := times[i].Sub(times[i-10]); apart < 10*time.Second {
			t.Errorf("admissions %d and %d are %v apart, want at least 10 s", i-10, i, apart)
		}
	}
}

// C7: one in 2 s, polled every 50 ms for a minute.
func TestPolling(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 1, 2*time.Second))
	var times []time.Time
	for range 1200 {
		d := check(t, l, one("api", "alice", 1))
		if d.Allowed {
			times = append(times, d.At)
		}
		clock.Advance(50 * time.Millisecond)
	}
	if len(times) < 27 {
		t.Errorf("admitted: got %d, want at least 27", len(times))
	}
	for i := 1; i < len(times); i++ {
		if apart := times[i].Sub(times[i-1]); apart < 2*time.Second {
			t.Errorf("admissions %d and %d are %v apart, want at least 2 s", i-1, i, apart)
		}
	}
}

// A caller that hangs up does not tear a write: the charge is made or not, and its id tells.
func TestCallerHangsUp(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 10, time.Minute))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	d, err := l.Check(ctx, named("id", one("api", "alice", 1)))
	if err != nil || !d.Allowed {
		t.Fatalf("check of a caller that is gone: got %+v, %v, want it finished", d, err)
	}
	again := check(t, l, named("id", one("api", "alice", 1)))
	if !again.Replayed || again.Transfer != d.Transfer {
		t.Errorf("the id sent again: got %+v, want a replay of %s", again, d.Transfer)
	}
}
