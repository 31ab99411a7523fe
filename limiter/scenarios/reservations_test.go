package scenarios_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/ledgers"
	"weir/limiter"
)

// costing is a cost in whatever units a limit counts.
func costing(n uint64) func(*limiter.Asset) (uint64, error) {
	return func(*limiter.Asset) (uint64, error) { return n, nil }
}

// settled settles a reservation, with this cost where it books on one limit.
func (n *node) settled(t testing.TB, receipt ledgers.ID, cost uint64) limiter.Settled {
	t.Helper()
	s, err := n.trySettle(receipt, cost)
	if err != nil {
		t.Fatalf("settle %d: got %v", cost, err)
	}
	return s
}

func (n *node) trySettle(receipt ledgers.ID, cost uint64) (limiter.Settled, error) {
	return n.Settle(context.Background(), limiter.Settlement{
		Receipt: receipt, CostIn: costing(cost),
	})
}

// release gives a reservation or a check back.
func (n *node) release(t testing.TB, receipt ledgers.ID) limiter.Settled {
	t.Helper()
	s, err := n.Release(context.Background(), receipt)
	if err != nil {
		t.Fatalf("release: got %v", err)
	}
	return s
}

// grant raises a subject's quota, once for each amount.
func (n *node) grant(t testing.TB, limit, subject string, amount uint64) limiter.Changed {
	t.Helper()
	c, err := n.Grant(context.Background(), limiter.Change{
		Limit: limit, Subject: subject, Amount: amount, ID: fmt.Sprint("grant of ", amount),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Slots are held once, by whichever node, and a dead holder's come back by time-out.
func testSlots(t *testing.T, s stage) {
	const hold = 2 * time.Second
	a, b := s.pair(t, limitsOf(t, lasting("jobs", limiter.Concurrency, 2)))
	slot := func(hold time.Duration) limiter.Request {
		return holding(hold, one("jobs", "alice", limiter.DefaultCost))
	}
	got := storm(t, 20, []*node{a, b}, func(int) limiter.Request {
		return holding(time.Hour, one("jobs", "many", limiter.DefaultCost))
	})
	if got != 2 {
		t.Errorf("at once: got %d slots held, want 2", got)
	}
	kept, dead := a.admit(t, slot(hold)), b.admit(t, slot(hold))
	renewed, err := b.Renew(t.Context(), kept.Transfer, time.Hour)
	d := a.decide(t, slot(hold))
	inTime(t, kept.At.Add(hold))
	wantCode(t, err, "")
	if d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > hold+2*lag {
		t.Errorf("denied: got a wait of %v, want that of the holder who may be dead", d.RetryAfter)
	}
	a.refuse(t, one("jobs", "alice", 1), limiter.CodeBadRequest) // a check
	_, err = a.trySettle(kept.Transfer, 1)
	wantCode(t, err, limiter.CodeBadRequest)
	time.Sleep(time.Until(dead.At.Add(hold))) // tidy:sleep a real server's clock cannot be moved
	wantSoon(t, "the dead holder's slot is back", func() bool {
		return a.decide(t, slot(time.Hour)).Allowed
	})
	b.deny(t, slot(hold), "jobs")
	again, err := a.Renew(t.Context(), kept.Transfer, time.Hour) // by the first receipt
	if err != nil || !again.Replayed || again.Transfer != renewed.Transfer {
		t.Errorf("renewed again: got %+v, %v, want a replay of %+v", again, err, renewed)
	}
	if s := b.release(t, renewed.Transfer); s.Limits[0].Remaining != 1 {
		t.Errorf("released: got %+v, want 1 slot free", s)
	}
	b.admit(t, slot(time.Hour))
}

// B1: whatever becomes of who reserved, what was not settled is back after the time-out.
func testReserversDie(t *testing.T, s stage) {
	const subjects = 40
	a, b := s.pair(t, limitsOf(t, budget("spend", 100, time.Hour)))
	for round := range rounds(1, 25) {
		var callers sync.WaitGroup
		for i := range subjects {
			callers.Go(func() { reserverDies(t, a, b, fmt.Sprint(round, " ", i), uint64(i)) })
		}
		callers.Wait()
	}
}

// reserverDies reserves all of a budget, ends that in one of four ways, and looks at what is left.
func reserverDies(t *testing.T, a, b *node, subject string, i uint64) {
	const hold = 2 * time.Second
	held, err := a.try(holding(hold, one("spend", subject, 100)))
	if err != nil || !held.Allowed {
		t.Errorf("%s: got %+v, %v, want it held", subject, held, err)
		return
	}
	second, secondErr := b.try(holding(hold, one("spend", subject, 1)))
	settled := uint64(0)
	switch i % 4 {
	case 0: // dies
	case 1:
		_, err = b.Release(context.Background(), held.Transfer)
	case 2:
		_, refused := b.trySettle(held.Transfer, limiter.MaxCost+1)
		if refused == nil {
			t.Errorf("%s, settled with too much: got it accepted", subject)
		}
	default:
		settled = i * 2
		_, err = b.trySettle(held.Transfer, settled)
	}
	if time.Since(held.At) > hold {
		t.Logf("%s: the machine is too busy to tell", subject)
		return
	}
	if err != nil || secondErr != nil || second.Allowed {
		t.Errorf("%s: got %+v, %v while all was held, and %v", subject, second, secondErr, err)
	}
	rest(held.ExpiresAt)
	balance, err := a.Balance(context.Background(), "spend", subject)
	if err != nil || balance.Remaining != 100-settled || balance.Used != settled {
		t.Errorf("%s: got %+v, %v, want %d of 100 used", subject, balance, err, settled)
	}
}

// B2, B3: more than was held is booked, and what the quota does not have of it is overage.
func testSettledAbove(t *testing.T, s stage) {
	a, b := s.pair(t, limitsOf(t, budget("small", 30, time.Hour), budget("large", 100, time.Hour)))
	small := a.admit(t, holding(time.Minute, one("small", "alice", 10)))
	for i, n := range []*node{b, a} {
		got := n.settled(t, small.Transfer, 50)
		limit := got.Limits[0]
		if got.Replayed != (i == 1) || got.Late || limit.Held != 10 || limit.Booked != 50 ||
			limit.Overage != 20 || limit.Remaining != 0 {
			t.Errorf("settled 50 of 30, time %d: got %+v, want 50 booked, 20 of it overage", i+1, got)
		}
	}
	balance, err := a.Balance(t.Context(), "small", "alice")
	if err != nil || balance.Used != 30 || balance.Overage != 20 || balance.Remaining != 0 {
		t.Errorf("balance: got %+v, %v, want 30 used and 20 overage", balance, err)
	}
	a.deny(t, holding(time.Minute, one("small", "alice", 1)), "small")
	large := a.admit(t, holding(time.Minute, one("large", "alice", 10)))
	limit := b.settled(t, large.Transfer, 35).Limits[0]
	if limit.Remaining != 65 || limit.Overage != 0 {
		t.Errorf("settled 35 of 100: got %+v, want 65 left", limit)
	}
}

// B4: a reservation that has timed out is settled late, once, and what was used comes back when it
// would have otherwise.
func testSettledLate(t *testing.T, s stage) {
	const hold, window = time.Second, 4 * time.Second
	a, b := s.pair(t, limitsOf(t, budget("spend", 100, window)))
	held := a.admit(t, holding(hold, one("spend", "alice", 10)))
	rest(held.ExpiresAt)
	_, err := a.Release(t.Context(), held.Transfer)
	wantCode(t, err, limiter.CodeIDExpired)
	_, err = b.Renew(t.Context(), held.Transfer, time.Minute)
	wantCode(t, err, limiter.CodeIDExpired)
	late, again := b.settled(t, held.Transfer, 7), a.settled(t, held.Transfer, 7)
	inTime(t, held.At.Add(window))
	for i, got := range []limiter.Settled{late, again} {
		limit := got.Limits[0]
		if !got.Late || got.Replayed != (i == 1) || limit.Booked != 7 || limit.Remaining != 93 {
			t.Errorf("settled, time %d: got %+v, want 7 booked late", i+1, got)
		}
	}
	_, err = a.trySettle(held.Transfer, 8)
	wantCode(t, err, limiter.CodeReservationClosed)
	_, err = b.Release(t.Context(), held.Transfer)
	wantCode(t, err, limiter.CodeReservationClosed)
	await(t, "the 7 are back", func() bool {
		balance, err := b.Balance(t.Context(), "spend", "alice")
		return err == nil && balance.Remaining == 100
	})
	after := time.Since(held.At) // time-outs are whole seconds
	t.Logf("what was settled late was back after %v", after)
	if after < window {
		t.Errorf("back after %v, want %v or up to a second more", after, window)
	}
	for _, e := range journal(t, a, s.namespace.UserAccount("spend", "alice")) {
		back := time.Unix(0, int64(e.ExpiresAt())).Sub(held.At)
		if e.Amount.Lo == 7 && e.Timeout > 0 && (back < window || back > window+time.Second+slack) {
			t.Errorf("entry %+v: got it back after %v, want %v", e, back, window)
		}
	}
}

// B5: the first end counts, and sent again it is answered the same.
func testReservationEnds(t *testing.T, s stage) {
	a, b := s.pair(t, limitsOf(t, budget("spend", 100, time.Hour)))
	held := a.admit(t, holding(time.Minute, one("spend", "nothing", 10)))
	a.settled(t, held.Transfer, 0)
	again := b.settled(t, held.Transfer, 0)
	if !again.Replayed || again.Late || again.Limits[0].Remaining != 100 {
		t.Errorf("settled with nothing, twice: got %+v, want a replay, nothing taken", again)
	}
	_, err := a.trySettle(held.Transfer, 1)
	wantCode(t, err, limiter.CodeReservationClosed)

	request := under("id", holding(time.Minute, one("spend", "released", 10)))
	held = a.admit(t, request)
	b.release(t, held.Transfer)
	_, err = a.trySettle(held.Transfer, 3)
	wantCode(t, err, limiter.CodeReservationClosed)
	a.refuse(t, request, limiter.CodeReservationClosed)
	b.wantBalance(t, "spend", "released", 100, 0, 100)

	for i := range rounds(10, 100) {
		subject := fmt.Sprint("both ", i)
		held := a.admit(t, holding(time.Minute, one("spend", subject, 10)))
		var settled, released error
		var callers sync.WaitGroup
		callers.Go(func() { _, settled = a.trySettle(held.Transfer, 4) })
		callers.Go(func() { _, released = b.Release(context.Background(), held.Transfer) })
		callers.Wait()
		if settled == nil {
			wantCode(t, released, limiter.CodeReservationClosed)
			b.wantBalance(t, "spend", subject, 100, 4, 96)
			continue
		}
		wantCode(t, settled, limiter.CodeReservationClosed)
		wantCode(t, released, "")
		b.wantBalance(t, "spend", subject, 100, 0, 100)
	}
}

// B8: of 20 parallel reservations of 9 of 100, over two nodes, 11 are held.
func testReservationsInParallel(t *testing.T, s stage) {
	a, b := s.pair(t, limitsOf(t, budget("spend", 100, time.Hour)))
	for round := range rounds(5, 20) {
		subject := fmt.Sprint("round ", round)
		got := storm(t, 20, []*node{a, b}, func(int) limiter.Request {
			return holding(time.Minute, one("spend", subject, 9))
		})
		if got != 11 {
			t.Errorf("%s: got %d allowed, want 11", subject, got)
		}
		a.wantBalance(t, "spend", subject, 100, 99, 1)
	}
}

// B9: a check of an exhausted limit is given back by its receipt, by a node that knows nobody,
// once.
func testCheckReleased(t *testing.T, s stage) {
	limits := limitsOf(t, rate("api", 10, time.Hour))
	a, _ := s.pair(t, limits)
	var last limiter.Decision
	for i := range 10 {
		last = a.admit(t, under(fmt.Sprint(i), one("api", "alice", 1)))
	}
	a.deny(t, one("api", "alice", 1), "api")
	other := s.node(t, 1, limits)
	for i := range 2 {
		got := other.release(t, last.Transfer)
		if got.Replayed != (i == 1) || got.Limits[0].Remaining != 1 || got.Limits[0].Booked != 0 {
			t.Errorf("released, time %d: got %+v, want 1 left", i+1, got)
		}
	}
	a.refuse(t, under("9", one("api", "alice", 1)), limiter.CodeReservationClosed)
	wantSoon(t, "the unit that was given back passes on the first node", func() bool {
		return a.decide(t, one("api", "alice", 1)).Allowed
	})
	_, err := other.trySettle(last.Transfer, 1)
	wantCode(t, err, limiter.CodeBadRequest)
	got := other.release(t, last.Transfer)
	if !got.Replayed || got.Limits[0].Remaining != 0 {
		t.Errorf("released a third time: got %+v, want a replay, nothing given", got)
	}
	a.wantBalance(t, "api", "alice", 10, 10, 0)
}

// B10: the node that reserved is gone; others settle by the receipt alone, all at once, and once.
func testSettledByAnotherNode(t *testing.T, s stage) {
	limits := limitsOf(t, budget("spend", 100, time.Hour),
		lasting("slots", limiter.Concurrency, 2), lasting("pre", limiter.Credits, 50))
	held := s.node(t, 0, limits).admit(t, under("id", holding(time.Minute, several(
		limiter.Member{Limit: "slots", Subject: "alice", Cost: limiter.DefaultCost},
		limiter.Member{Limit: "spend", Subject: "team/ä", Cost: 10},
		limiter.Member{Limit: "pre", Subject: "alice", Cost: 20}))))
	actual := []limiter.Member{{Limit: "spend", Cost: 7}, {Limit: "pre", Subject: "alice", Cost: 5}}
	var mu sync.Mutex
	var callers sync.WaitGroup
	first := 0
	for i := range 4 {
		callers.Go(func() {
			got, err := s.node(t, i, limits).Settle(context.Background(),
				limiter.Settlement{Receipt: held.Transfer, Members: actual})
			if err != nil {
				t.Error(err)
				return
			}
			booked := map[string]uint64{}
			for _, l := range got.Limits {
				booked[l.Limit+" "+l.Subject] = l.Booked
			}
			want := map[string]uint64{"slots alice": 0, "spend team/ä": 7, "pre alice": 5}
			if fmt.Sprint(booked) != fmt.Sprint(want) {
				t.Errorf("got %v booked, want %v", booked, want)
			}
			mu.Lock()
			defer mu.Unlock()
			if !got.Replayed {
				first++
			}
		})
	}
	callers.Wait()
	if first != 1 {
		t.Errorf("settled by %d nodes, want 1", first)
	}
	last := s.node(t, 1, limits)
	last.wantBalance(t, "slots", "alice", 2, 0, 2)
	last.wantBalance(t, "spend", "team/ä", 100, 7, 93)
	last.wantBalance(t, "pre", "alice", 50, 5, 45)
}
