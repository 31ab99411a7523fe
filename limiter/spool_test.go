package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// A directory belongs to one process at a time.
func TestSpoolInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	first, err := limiter.OpenSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = limiter.OpenSpool(dir)
	if !errors.Is(err, limiter.ErrSpoolInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second: got %v, want ErrSpoolInUse naming %s", err, dir)
	}
	err = first.Close()
	if err != nil {
		t.Fatal(err)
	}
	again, err := limiter.OpenSpool(dir)
	if err != nil {
		t.Fatalf("after the first closed: got %v", err)
	}
	err = again.Close()
	if err != nil {
		t.Error(err)
	}
}

// outage lets n requests of cost 1 through on a node and stops it.
func outage(t *testing.T, faulty *ledgertest.Faulty, clock *testClock, dir string, n int,
	limit limiter.Limit,
) {
	t.Helper()
	l := spooling(t, faulty, clock, dir, limit)
	check(t, l.Limiter, one(limit.Name, "alice", 0)) // the ledger's time is known
	back := away(faulty)
	defer back()
	for range n {
		if d := check(t, l.Limiter, one(limit.Name, "alice", 1)); !d.Degraded {
			t.Fatalf("got %+v, want degraded", d)
		}
	}
	l.stop(t)
}

// What is damaged is set aside, counted, and in nobody's way.
func TestSpoolDamaged(t *testing.T) {
	half := func(l string) string { return l + l[:len(l)/2] }
	damage := map[string]struct {
		file  string
		lines func(line string) string
		aside float64
	}{
		"Rubbish":   {"spool.jsonl", func(l string) string { return "\x00\x00\n" + l }, 1},
		"OtherJSON": {"spool.jsonl", func(l string) string { return "{\"at\":1}\n[]\n" + l }, 2},
		"Bits": {"spool.jsonl", func(l string) string {
			return l + strings.Replace(l, "api", "a i", 1)
		}, 1},
		"Long": {"spool.jsonl", func(l string) string {
			return strings.Repeat("x", 1<<20) + "\n" + l
		}, 1},
		"HalfALine":     {"spool.jsonl", half, 0},
		"HalfInBooking": {"booking.jsonl", half, 1},
	}
	for name, test := range damage {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			faulty := ledgertest.NewFaulty(openLedger(t, clock))
			dir := t.TempDir()
			limit := rate("api", 10, time.Minute)
			outage(t, faulty, clock, dir, 1, limit)
			spool := filepath.Join(dir, "spool.jsonl")
			line, err := os.ReadFile(spool)
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(os.Remove(spool),
				os.WriteFile(filepath.Join(dir, test.file), []byte(test.lines(string(line))), 0o600))
			if err != nil {
				t.Fatal(err)
			}
			outage(t, faulty, clock, dir, 1, limit) // what is added behind it is not damaged by it
			l := spooling(t, faulty, clock, dir, limit)
			l.book(t)
			l.wantUnits(t, 2, 0, 0)
			wantBalance(t, l.Limiter, "api", "alice", 10, 2, 8)
			if got := l.count(t, "weir_spool_set_aside_total"); got != test.aside {
				t.Errorf("set aside: got %v, want %v", got, test.aside)
			}
			aside, err := os.ReadFile(filepath.Join(dir, "aside.jsonl"))
			if test.aside > 0 && (err != nil || len(aside) == 0) {
				t.Errorf("the file of what was set aside: got %q, %v", aside, err)
			}
			l.book(t)
			l.wantUnits(t, 2, 0, 0)
		})
	}
}

// A request over several limits is booked for what is left of each window; what is left decides
// nothing about its id.
func TestSpoolSeveral(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := spooling(t, faulty, clock, t.TempDir(),
		rate("short", 5, 10*time.Second), rate("long", 5, time.Hour), rate("full", 1, time.Hour))
	check(t, l.Limiter, one("full", "s", 1))
	request := func(id string, names ...string) limiter.Request {
		r := limiter.Request{ID: id}
		for _, name := range names {
			r.Members = append(r.Members, limiter.Member{Limit: name, Subject: "s", Cost: 2})
		}
		return r
	}
	back := away(faulty)
	check(t, l.Limiter, request("a", "short", "long"))
	check(t, l.Limiter, request("b", "long", "short", "full"))
	clock.Advance(20 * time.Second)
	back()
	l.book(t)
	l.wantUnits(t, 2+2, 2, 2+2) // both of long, none of full, and short is back by now
	wantBalance(t, l.Limiter, "short", "s", 5, 0, 5)
	wantBalance(t, l.Limiter, "long", "s", 5, 4, 1)
	if d := check(t, l.Limiter, request("a", "short", "long")); !d.Replayed {
		t.Errorf("the id again: got %+v, want a replay", d)
	}
	wantBalance(t, l.Limiter, "long", "s", 5, 4, 1)
}

// An id that was denied before, or admitted for another cost, and one that is let through twice.
func TestSpoolIDs(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := spooling(t, faulty, clock, t.TempDir(), rate("api", 4, time.Minute))
	check(t, l.Limiter, named("other cost", one("api", "s", 4)))
	check(t, l.Limiter, named("denied", one("api", "s", 1)))
	clock.Advance(30 * time.Second)
	back := away(faulty)
	for _, request := range []limiter.Request{
		named("denied", one("api", "s", 1)), named("other cost", one("api", "s", 1)),
		named("twice", one("api", "two", 3)), named("twice", one("api", "two", 3)),
	} {
		if d := check(t, l.Limiter, request); !d.Degraded {
			t.Fatalf("%+v: got %+v, want degraded", request, d)
		}
	}
	if got := l.count(t, "weir_spooled_units_total", "spooled"); got != 1+1+3 {
		t.Errorf("units spooled: got %v, want 5, as an id is one request", got)
	}
	back()
	l.book(t)
	l.wantUnits(t, 3, 1+1, 0)
	wantBalance(t, l.Limiter, "api", "two", 4, 3, 1)
	b, err := l.Balance(context.Background(), "api", "s")
	if err != nil || b.Used != 4 || b.Overage != 2 {
		t.Errorf("got %+v, %v, want 4 used and 2 over", b, err)
	}
}

// The spool is booked under the config of the day, and does not bring an old quota back.
func TestSpoolAfterReload(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	dir := t.TempDir()
	outage(t, faulty, clock, dir, 3, rate("api", 2, time.Minute))
	l := spooling(t, faulty, clock, dir, rate("api", 10, time.Hour))
	check(t, l.Limiter, one("api", "alice", 1))
	steps := faulty.Calls(ledgertest.CallCreateTransfers)
	l.book(t)
	l.wantUnits(t, 3, 0, 0)
	if got := faulty.Calls(ledgertest.CallCreateTransfers) - steps; got != 3 {
		t.Errorf("writes: got %d, want one for each request and none for the quota", got)
	}
	wantBalance(t, l.Limiter, "api", "alice", 10, 4, 6)
	clock.Advance(61 * time.Second)
	wantBalance(t, l.Limiter, "api", "alice", 10, 1, 9)
}

// What was let through on a calendar's limit comes back when the period ends that it was let
// through in; on a prepaid balance it does not come back.
func TestSpoolKinds(t *testing.T) {
	clock := newClock() // noon
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	daily := limiter.Limit{Name: "daily", Kind: limiter.RequestRate, Quota: 5, Align: "day"}
	prepaid := limiter.Limit{
		Name: "prepaid", Kind: limiter.Credits, Quota: 5, OnFailure: limiter.Open,
	}
	dir := t.TempDir()
	l := spooling(t, faulty, clock, dir, daily, prepaid)
	check(t, l.Limiter, one("daily", "s", 1))
	back := away(faulty)
	for _, name := range []string{"daily", "prepaid"} {
		if d := check(t, l.Limiter, one(name, "s", 2)); !d.Degraded {
			t.Fatalf("%s: got %+v, want degraded", name, d)
		}
	}
	back()
	l.stop(t)
	clock.Advance(6 * time.Hour)
	l = spooling(t, faulty, clock, dir, daily, prepaid)
	l.book(t)
	l.wantUnits(t, 4, 0, 0)
	wantBalance(t, l.Limiter, "daily", "s", 5, 3, 2)
	wantBalance(t, l.Limiter, "prepaid", "s", 5, 2, 3)
	clock.Advance(6*time.Hour - time.Second)
	wantBalance(t, l.Limiter, "daily", "s", 5, 3, 2)
	clock.Advance(3 * time.Second)
	wantBalance(t, l.Limiter, "daily", "s", 5, 0, 5)
	wantBalance(t, l.Limiter, "prepaid", "s", 5, 2, 3)
}

// Without a spool, or with a closed one, what is let through is counted as dropped.
func TestSpoolRefuses(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := spooling(t, faulty, clock, t.TempDir(), rate("api", 2, time.Minute))
	l.stop(t)
	defer away(faulty)()
	for i := range 3 {
		d := check(t, l.Limiter, named(fmt.Sprint(i), one("api", "alice", 2)))
		if !d.Allowed || !d.Degraded {
			t.Errorf("got %+v, want degraded", d)
		}
	}
	l.wantUnits(t, 0, 0, 6)
}
