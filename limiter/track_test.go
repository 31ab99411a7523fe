package limiter_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"weir/ledgers/ledgertest"
	"weir/limiter"
)

func track(t testing.TB, l *limiter.Limiter, limit string, amount uint64, id string,
) limiter.Tracked {
	t.Helper()
	tracked, err := l.Track(context.Background(), limiter.Usage{
		Limit: limit, Subject: "alice", Amount: amount, ID: id,
	})
	if err != nil {
		t.Fatal(err)
	}
	return tracked
}

func wantTracked(t testing.TB, got limiter.Tracked, booked, overage uint64) {
	t.Helper()
	if got.Booked != booked || got.Overage != overage || got.Spooled || got.Dropped {
		t.Fatalf("got %+v, want %d booked and %d over", got, booked, overage)
	}
}

// What was used is booked, also past the balance, and once however often it is sent.
func TestTrack(t *testing.T) {
	clock := newClock()
	credits := limiter.Limit{Name: "credits", Kind: limiter.Credits, Quota: 10}
	budget := limiter.Limit{
		Name: "budget", Kind: limiter.Budget, Quota: 10, Window: time.Minute, CloseAt: 900_000,
	}
	l := newLimiter(t, openLedger(t, clock), clock, credits, budget)
	for _, limit := range []string{"credits", "budget"} {
		for range 2 {
			wantTracked(t, track(t, l, limit, 7, "a"), 7, 0)
		}
		for range 2 { // 3 are left; closing early does not count for what is used already
			wantTracked(t, track(t, l, limit, 5, "b"), 3, 2)
		}
		for range 2 {
			wantTracked(t, track(t, l, limit, 1, "c"), 0, 1)
		}
		b, err := l.Balance(context.Background(), limit, "alice")
		if err != nil || b.Used != 10 || b.Remaining != 0 || b.Overage != 3 {
			t.Errorf("%s: got %+v, %v, want 10 used and 3 over", limit, b, err)
		}
		page, err := l.Journal(context.Background(), limiter.JournalQuery{
			Limit: limit, Subject: "alice",
		})
		if err != nil {
			t.Fatal(err)
		}
		var over []uint64
		for _, e := range page.Entries {
			if e.Kind == "overage" {
				over = append(over, e.Amount, e.Overage)
			}
		}
		if !slices.Equal(over, []uint64{3, 2, 0, 1}) { // of the 5, and of the 1
			t.Errorf("%s: got entries of %v, want 3 paid and 2 over, and 1 over", limit, over)
		}
		for _, id := range []string{"a", "b", "c"} { // also where not all of it was there
			_, err = l.Track(context.Background(), limiter.Usage{
				Limit: limit, Subject: "alice", Amount: 8, ID: id,
			})
			wantError(t, err, limiter.CodeIDConflict)
		}
		for _, usage := range []limiter.Usage{
			{Limit: limit, Subject: "alice", Amount: 1}, {Limit: limit, Subject: "alice", ID: "d"},
			{Limit: limit, Amount: 1, ID: "d"},
			{Limit: limit, Subject: "alice", Amount: limiter.MaxCost + 1, ID: "d"},
		} {
			_, err = l.Track(context.Background(), usage)
			wantError(t, err, limiter.CodeBadRequest)
		}
	}
	clock.Advance(2 * time.Minute) // a budget's come back, credits do not
	for range 2 {
		wantTracked(t, track(t, l, "budget", 7, "a"), 7, 0) // the same usage, long ago
		wantTracked(t, track(t, l, "credits", 7, "a"), 7, 0)
	}
	wantBalance(t, l, "budget", "alice", 10, 0, 10)
	wantBalance(t, l, "credits", "alice", 10, 10, 0)
}

// While the ledger is away usage is spooled, whatever the policy, and booked once when it is back:
// also what was sent and answered for too late.
func TestTrackWhileTheLedgerIsAway(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	n := spooling(t, faulty, clock, t.TempDir(),
		limiter.Limit{Name: "credits", Kind: limiter.Credits, Quota: 10})
	wantTracked(t, track(t, n.Limiter, "credits", 1, "before"), 1, 0)
	back := away(faulty)
	for _, id := range []string{"a", "b", "a"} {
		tracked := track(t, n.Limiter, "credits", 6, id)
		if !tracked.Spooled || tracked.Dropped {
			t.Fatalf("got %+v, want it spooled", tracked)
		}
	}
	back()
	for range 2 {
		err := n.BookSpool(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		b, err := n.Balance(context.Background(), "credits", "alice")
		if err != nil || b.Used != 10 || b.Overage != 3 { // 1 + 6 + 6 = 10 + 3
			t.Fatalf("got %+v, %v, want 10 used and 3 over", b, err)
		}
	}
	a, b := track(t, n.Limiter, "credits", 6, "a"), track(t, n.Limiter, "credits", 6, "b")
	if a.Booked+b.Booked != 9 || a.Overage+b.Overage != 3 { // which came first is not said
		t.Errorf("sent again: got %+v and %+v, want 9 booked and 3 over in all", a, b)
	}

	unspooled := newLimiter(t, faulty, clock,
		limiter.Limit{Name: "credits", Kind: limiter.Credits, Quota: 10})
	defer away(faulty)()
	tracked := track(t, unspooled, "credits", 6, "c")
	if tracked.Spooled || !tracked.Dropped {
		t.Errorf("without a spool: got %+v, want it dropped, and said so", tracked)
	}
}
