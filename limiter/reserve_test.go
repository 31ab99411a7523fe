package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// costing is a cost in whatever units a limit counts.
func costing(n uint64) func(*limiter.Asset) (uint64, error) {
	return func(*limiter.Asset) (uint64, error) { return n, nil }
}

func budget(name string, quota uint64, window time.Duration) limiter.Limit {
	return limiter.Limit{Name: name, Kind: limiter.Budget, Quota: quota, Window: window}
}

func credits(name string, quota uint64) limiter.Limit {
	return limiter.Limit{Name: name, Kind: limiter.Credits, Quota: quota}
}

func slotsOf(name string, quota uint64) limiter.Limit {
	return limiter.Limit{Name: name, Kind: limiter.Concurrency, Quota: quota}
}

// holding makes a request a reservation.
func holding(hold time.Duration, r limiter.Request) limiter.Request {
	r.Hold = hold
	return r
}

func reserve(t testing.TB, l *limiter.Limiter, r limiter.Request) limiter.Decision {
	t.Helper()
	d, err := l.Reserve(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// reserved reserves, and fails the test where that is denied.
func reserved(t testing.TB, l *limiter.Limiter, r limiter.Request) limiter.Decision {
	t.Helper()
	d := reserve(t, l, r)
	if !d.Allowed {
		t.Fatalf("reservation of %+v: got %+v, want it allowed", r, d)
	}
	return d
}

func settle(t testing.TB, l *limiter.Limiter, receipt ledgers.ID, cost uint64) limiter.Settled {
	t.Helper()
	s, err := l.Settle(context.Background(), limiter.Settlement{
		Receipt: receipt, CostIn: costing(cost),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func settleCode(l *limiter.Limiter, receipt ledgers.ID, cost uint64) limiter.Code {
	_, err := l.Settle(context.Background(), limiter.Settlement{
		Receipt: receipt, CostIn: costing(cost),
	})
	return codeOf(err)
}

func release(t testing.TB, l *limiter.Limiter, receipt ledgers.ID) limiter.Settled {
	t.Helper()
	s, err := l.Release(context.Background(), receipt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func releaseCode(l *limiter.Limiter, receipt ledgers.ID) limiter.Code {
	_, err := l.Release(context.Background(), receipt)
	return codeOf(err)
}

func renewCode(l *limiter.Limiter, receipt ledgers.ID, hold time.Duration) limiter.Code {
	_, err := l.Renew(context.Background(), receipt, hold)
	return codeOf(err)
}

// codeOf returns the code of an error, nothing of nil.
func codeOf(err error) limiter.Code {
	e, ok := errors.AsType[*limiter.Error](err)
	switch {
	case ok:
		return e.Code
	case err != nil:
		return limiter.Code(err.Error())
	}
	return ""
}

// wantCodes compares the codes of several calls.
func wantCodes(t testing.TB, want limiter.Code, got ...limiter.Code) {
	t.Helper()
	for i, code := range got {
		if code != want {
			t.Errorf("call %d: got code %q, want %q", i, code, want)
		}
	}
}

// B1: whatever becomes of who reserved, what was not settled is back after the time-out.
func TestReserversDie(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	l := newLimiter(t, driver, clock, budget("spend", 100, time.Minute))
	random := rand.New(rand.NewPCG(1, 2))
	for round := range rounds(50, 1000) {
		held := reserved(t, l, holding(2*time.Second, one("spend", "alice", 100)))
		if d := reserve(t, l, holding(time.Second, one("spend", "alice", 1))); d.Allowed {
			t.Fatalf("round %d: got %+v, want denied while all is held", round, d)
		}
		settled := uint64(0)
		switch round % 4 {
		case 0: // dies
		case 1:
			release(t, l, held.Transfer)
		case 2:
			wantCodes(t, limiter.CodeBadRequest, settleCode(l, held.Transfer, limiter.MaxCost+1))
		default:
			settled = random.Uint64N(101)
			settle(t, newLimiter(t, driver, clock, budget("spend", 100, time.Minute)),
				held.Transfer, settled)
		}
		clock.Advance(2*time.Second + time.Millisecond)
		wantBalance(t, l, "spend", "alice", 100, settled, 100-settled)
		clock.Advance(time.Minute)
		wantBalance(t, l, "spend", "alice", 100, 0, 100)
	}
}

// B2, B3: more than was held is booked, and what the quota does not have of it is overage.
func TestSettledAbove(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock,
		budget("small", 30, time.Minute), budget("large", 100, time.Minute))
	small := reserved(t, l, holding(time.Minute, one("small", "alice", 10)))
	want := limiter.SettledLimit{
		Limit: "small", Subject: "alice", Kind: limiter.Budget, Held: 10, Booked: 50, Overage: 20,
		Known: true,
	}
	for _, replayed := range []bool{false, true} {
		s := settle(t, l, small.Transfer, 50)
		if s.Replayed != replayed || s.Late || s.Transfer != small.Transfer || s.Limits[0] != want {
			t.Errorf("settled 50 of 30: got %+v, want %+v, replayed %t", s, want, replayed)
		}
	}
	b, err := l.Balance(context.Background(), "small", "alice")
	if err != nil || b.Used != 30 || b.Overage != 20 || b.Remaining != 0 {
		t.Errorf("balance: got %+v, %v, want 30 used and 20 overage", b, err)
	}
	if d := reserve(t, l, holding(time.Second, one("small", "alice", 1))); d.Allowed {
		t.Errorf("the next: got %+v, want it denied", d)
	}
	large := reserved(t, l, holding(time.Minute, one("large", "alice", 10)))
	s := settle(t, l, large.Transfer, 35)
	if s.Limits[0].Remaining != 65 || s.Limits[0].Overage != 0 {
		t.Errorf("settled 35 of 100: got %+v, want 65 left", s)
	}
}

// B4: a reservation that has timed out is settled late, once, and comes back when it would have.
func TestSettledLate(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, budget("spend", 100, time.Minute))
	held := reserved(t, l, holding(2*time.Second, one("spend", "alice", 10)))
	clock.Advance(4 * time.Second)
	wantCodes(t, limiter.CodeIDExpired,
		releaseCode(l, held.Transfer), renewCode(l, held.Transfer, time.Minute))
	for _, replayed := range []bool{false, true} {
		s := settle(t, l, held.Transfer, 7)
		if !s.Late || s.Replayed != replayed || s.Limits[0].Booked != 7 || s.Limits[0].Remaining != 93 {
			t.Errorf("got %+v, want 7 booked late, replayed %t", s, replayed)
		}
	}
	wantCodes(t, limiter.CodeReservationClosed, settleCode(l, held.Transfer, 8),
		releaseCode(l, held.Transfer))
	clock.Advance(56*time.Second - time.Microsecond)
	wantBalance(t, l, "spend", "alice", 100, 7, 93)
	clock.Advance(time.Second + time.Millisecond) // time-outs are whole seconds
	wantBalance(t, l, "spend", "alice", 100, 0, 100)
}

// B5: the first end counts, and sent again it is answered the same.
func TestReservationEnds(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	l := newLimiter(t, driver, clock, budget("spend", 100, time.Minute))
	t.Run("settled with nothing, twice", func(t *testing.T) {
		held := reserved(t, l, holding(time.Minute, one("spend", "a", 10)))
		settle(t, l, held.Transfer, 0)
		s := settle(t, l, held.Transfer, 0)
		if !s.Replayed || s.Late || s.Limits[0].Remaining != 100 {
			t.Errorf("got %+v, want a replay, nothing taken", s)
		}
		wantCodes(t, limiter.CodeReservationClosed, settleCode(l, held.Transfer, 1),
			releaseCode(l, held.Transfer), renewCode(l, held.Transfer, time.Minute))
	})
	t.Run("settled after it was released", func(t *testing.T) {
		held := reserved(t, l, named("id", holding(time.Minute, one("spend", "b", 10))))
		release(t, l, held.Transfer)
		wantCodes(t, limiter.CodeReservationClosed, settleCode(l, held.Transfer, 3))
		again := named("id", holding(time.Minute, one("spend", "b", 10)))
		_, err := l.Reserve(context.Background(), again)
		wantCodes(t, limiter.CodeReservationClosed, codeOf(err))
		wantBalance(t, l, "spend", "b", 100, 0, 100)
	})
	t.Run("settled and released at once", func(t *testing.T) {
		other := newLimiter(t, driver, clock, budget("spend", 100, time.Minute))
		for i := range rounds(20, 200) {
			subject := fmt.Sprint("c", i)
			held := reserved(t, l, holding(time.Minute, one("spend", subject, 10)))
			var settled, released limiter.Code
			var group sync.WaitGroup
			group.Go(func() { settled = settleCode(l, held.Transfer, 4) })
			group.Go(func() { released = releaseCode(other, held.Transfer) })
			group.Wait()
			used := map[limiter.Code]uint64{"": 4, limiter.CodeReservationClosed: 0}[settled]
			if (settled == "") == (released == "") || settled+released != limiter.CodeReservationClosed {
				t.Fatalf("got %q and %q, want one of them to win", settled, released)
			}
			wantBalance(t, l, "spend", subject, 100, used, 100-used)
		}
	})
}

// B8: parallel reservations never hold more than there is.
func TestReservationsInParallel(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	limit := budget("spend", 100, time.Minute)
	nodes := []*limiter.Limiter{
		newLimiter(t, driver, clock, limit), newLimiter(t, driver, clock, limit),
	}
	for round := range rounds(5, 20) {
		subject := fmt.Sprint(round)
		var allowed atomic.Int64
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				d, err := nodes[i%2].Reserve(context.Background(),
					holding(time.Minute, one("spend", subject, 9)))
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					allowed.Add(1)
				}
			})
		}
		group.Wait()
		if allowed.Load() != 11 { // of 9 out of 100
			t.Errorf("round %d: got %d allowed, want 11", round, allowed.Load())
		}
		wantBalance(t, nodes[0], "spend", subject, 100, 99, 1)
	}
}

// B9: a check is given back by its receipt, once.
func TestCheckReleased(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	l := newLimiter(t, driver, clock, rate("api", 10, time.Minute))
	var last limiter.Decision
	for i := range 10 {
		last = check(t, l, named(fmt.Sprint(i), one("api", "alice", 1)))
	}
	if check(t, l, one("api", "alice", 1)).Allowed {
		t.Fatal("the eleventh: got it allowed")
	}
	other := newLimiter(t, driver, clock, rate("api", 10, time.Minute)) // knows nobody
	for _, replayed := range []bool{false, true} {
		s := release(t, other, last.Transfer)
		if s.Replayed != replayed || s.Limits[0].Remaining != 1 || s.Limits[0].Booked != 0 {
			t.Errorf("got %+v, want one left, replayed %t", s, replayed)
		}
	}
	wantCode(t, l, named("9", one("api", "alice", 1)), limiter.CodeReservationClosed)
	release(t, l, last.Transfer) // and what this node remembers is dropped
	if !check(t, l, one("api", "alice", 1)).Allowed {
		t.Error("after the release: got denied")
	}
	wantCodes(t, limiter.CodeBadRequest, settleCode(l, last.Transfer, 1),
		renewCode(l, last.Transfer, time.Minute))
	wantBalance(t, l, "api", "alice", 10, 10, 0)
}

// B10: the node that reserved dies; another settles by the receipt, once.
func TestSettledByAnotherNode(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	limits := []limiter.Limit{
		budget("spend", 100, time.Minute), slotsOf("slots", 2), credits("pre", 50),
	}
	request := holding(time.Minute, limiter.Request{ID: "id", Members: []limiter.Member{
		{Limit: "slots", Subject: "alice", Cost: limiter.DefaultCost},
		{Limit: "spend", Subject: "team/ä", Cost: 10},
		{Limit: "pre", Subject: "alice", Cost: 20},
	}})
	held := reserved(t, newLimiter(t, driver, clock, limits...), request)
	if !held.ExpiresAt.Equal(held.At.Add(time.Minute)) {
		t.Errorf("expires at %v, want a minute after %v", held.ExpiresAt, held.At)
	}
	actual := []limiter.Member{{Limit: "spend", Cost: 7}, {Limit: "pre", Subject: "alice", Cost: 5}}
	var first atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		node := newLimiter(t, driver, clock, limits...)
		group.Go(func() {
			s, err := node.Settle(context.Background(),
				limiter.Settlement{Receipt: held.Transfer, Members: actual})
			if err != nil {
				t.Error(err)
				return
			}
			if !s.Replayed {
				first.Add(1)
			}
			booked := map[string]uint64{}
			for _, l := range s.Limits {
				booked[l.Limit+" "+l.Subject] = l.Booked
			}
			want := map[string]uint64{"slots alice": 0, "spend team/ä": 7, "pre alice": 5}
			if fmt.Sprint(booked) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", booked, want)
			}
		})
	}
	group.Wait()
	if first.Load() != 1 {
		t.Errorf("settled by %d nodes, want 1", first.Load())
	}
	l := newLimiter(t, driver, clock, limits...)
	wantBalance(t, l, "slots", "alice", 2, 0, 2)
	wantBalance(t, l, "spend", "team/ä", 100, 7, 93)
	wantBalance(t, l, "pre", "alice", 50, 5, 45)
}

// N10: a budget of 10.00 USD, in tenths of a cent, admits 2,500 calls that cost 0.004, whatever
// less than that they reserve, and what is left is printed exactly.
func TestBudgetOfMoney(t *testing.T) {
	for _, estimate := range []uint64{1, 4} {
		clock := newClock()
		book, err := accounts.NewBook(openLedger(t, clock), accounts.Namespace{9},
			&accounts.Options{Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		usd := limiter.Asset{Code: "USD", Scale: 3}
		quota, n := uint64(10_000), rounds(250, 2500)
		if n < 2500 {
			quota = 1_000
		}
		limit := limiter.Limit{
			Name: "spend", Kind: limiter.Budget, Quota: quota, Window: 24 * time.Hour, Asset: "USD",
			CloseAt: 1_000_000, Deadline: 10 * time.Second,
		}
		set, err := limiter.NewRules(limiter.Rules{
			Limits: []limiter.Limit{limit}, Assets: []limiter.Asset{usd},
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := limiter.New(book, set, nil)
		if err != nil {
			t.Fatal(err)
		}
		admitted := 0
		for {
			d := reserve(t, l, holding(time.Minute, one("spend", "alice", estimate)))
			if !d.Allowed {
				break
			}
			admitted++
			s := settle(t, l, d.Transfer, 4)
			want := fmt.Sprintf("%.3f", float64(quota)/1000-float64(admitted)*0.004)
			if got := usd.Format(ledgers.AmountOf(s.Limits[0].Remaining)); got != want {
				t.Fatalf("after %d: got %s left, want %s", admitted, got, want)
			}
		}
		if admitted != n {
			t.Errorf("reserving %d: got %d admitted, want %d", estimate, admitted, n)
		}
	}
}

// C3 to C5 of reservations: who is denied at one limit has taken nothing of the others.
func TestReservationsOfSeveral(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock,
		slotsOf("own", 1), budget("site", 1000, time.Minute),
		budget("short", 60, time.Minute), budget("long", 100, time.Hour))
	own := limiter.Member{Limit: "own", Subject: "alice", Cost: 1}
	site := limiter.Member{Limit: "site", Subject: "all", Cost: 1}
	reserved(t, l, holding(time.Hour, limiter.Request{Members: []limiter.Member{own}}))
	for i := range rounds(50, 500) {
		members := []limiter.Member{own, site}
		if i%2 == 1 {
			members = []limiter.Member{site, own}
		}
		d := reserve(t, l, holding(time.Minute, limiter.Request{Members: members}))
		if d.Allowed || d.Limits[d.Denied].Limit != "own" || d.Limits[d.Denied].Window != 0 {
			t.Fatalf("got %+v, want denied by the slots", d)
		}
		if d.RetryAfter.Round(time.Second) != time.Hour { // a dead holder's slot
			t.Fatalf("retry after: got %v, want an hour", d.RetryAfter)
		}
	}
	wantBalance(t, l, "site", "all", 1000, 0, 1000)

	twice := holding(time.Minute, limiter.Request{Members: []limiter.Member{
		{Limit: "own", Subject: "bob", Cost: 1}, {Limit: "own", Subject: "bob", Cost: 1},
	}})
	_, err := l.Reserve(context.Background(), twice) // C4: 2 of a quota of 1
	wantCodes(t, limiter.CodeCostExceedsQuota, codeOf(err))
	wantBalance(t, l, "own", "bob", 1, 0, 1)

	check(t, l, one("short", "alice", 4))
	check(t, l, one("long", "alice", 100))
	clock.Advance(time.Second)
	d := reserve(t, l, holding(time.Minute, limiter.Request{Members: []limiter.Member{
		{Limit: "short", Subject: "alice", Cost: 1}, {Limit: "long", Subject: "alice", Cost: 1},
	}}))
	denied := d.Limits[max(0, d.Denied)]
	if d.Allowed || denied.Limit != "long" || denied.Remaining != 0 || denied.Reset != time.Hour ||
		d.Limits[0].Remaining != 56 {
		t.Errorf("C5: got %+v, want denied by the second, 56 left of the first", d)
	}
}

// What a reservation or its end cannot be is refused, and nothing is changed.
func TestReservationsRefused(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	money := limiter.Limit{Name: "pay", Kind: limiter.TransferAmount, Quota: 1, Asset: "USD",
		Window: time.Hour}
	limits := []limiter.Limit{
		budget("spend", 100, time.Minute), budget("more", 100, time.Minute), slotsOf("slots", 2),
	}
	l := newLimiter(t, driver, clock, limits...)
	set, err := limiter.NewRules(limiter.Rules{
		Limits: append(patient(limits), money), Assets: []limiter.Asset{{Code: "USD"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.SetLimits(set)
	for name, r := range map[string]limiter.Request{
		"no time":           one("spend", "alice", 1),
		"half a second":     holding(500*time.Millisecond, one("spend", "alice", 1)),
		"1.5 s":             holding(1500*time.Millisecond, one("spend", "alice", 1)),
		"too long":          holding(limiter.MaxHold+time.Second, one("spend", "alice", 1)),
		"negative":          holding(-time.Second, one("spend", "alice", 1)),
		"nothing":           holding(time.Second, one("spend", "alice", 0)),
		"no limit":          holding(time.Second, limiter.Request{}),
		"no cost":           holding(time.Second, one("spend", "alice", limiter.DefaultCost)),
		"of a money limit":  holding(time.Second, one("pay", "alice", 1)),
		"subject of 1025 B": holding(time.Second, one("spend", string(make([]byte, 1025)), 1)),
	} {
		_, err := l.Reserve(context.Background(), r)
		if codeOf(err) != limiter.CodeBadRequest {
			t.Errorf("%s: got %v, want a bad request", name, err)
		}
	}
	wantCode(t, l, holding(time.Second, one("spend", "alice", 1)), limiter.CodeBadRequest)
	wantCode(t, l, one("slots", "alice", 1), limiter.CodeBadRequest) // a check of slots

	nobody := ledgers.ID{Lo: 77}
	wantCodes(t, limiter.CodeReservationUnknown, settleCode(l, nobody, 1), releaseCode(l, nobody),
		renewCode(l, nobody, time.Second), releaseCode(l, ledgers.ID{}))

}

// A settlement has to fit the reservation, and its limits have to be configured.
func TestSettlementsRefused(t *testing.T) {
	clock, ctx := newClock(), context.Background()
	limits := []limiter.Limit{
		budget("spend", 100, time.Minute), budget("more", 100, time.Minute), slotsOf("slots", 2),
	}
	l := newLimiter(t, openLedger(t, clock), clock, limits...)
	slot := reserved(t, l, holding(time.Minute, one("slots", "alice", limiter.DefaultCost)))
	wantCodes(t, limiter.CodeBadRequest, settleCode(l, slot.Transfer, 1),
		renewCode(l, slot.Transfer, 0), renewCode(l, slot.Transfer, time.Millisecond))
	both := reserved(t, l, holding(time.Minute, limiter.Request{Members: []limiter.Member{
		{Limit: "spend", Subject: "alice", Cost: 1}, {Limit: "spend", Subject: "bob", Cost: 2},
		{Limit: "more", Subject: "bob", Cost: 3}, {Limit: "slots", Subject: "bob", Cost: 1},
	}}))
	whole := []limiter.Member{
		{Limit: "more", Cost: 3}, {Limit: "spend", Subject: "bob", Cost: 2},
		{Limit: "spend", Subject: "alice", Cost: 1},
	}
	cost := uint64(1)
	change := func(at int, m limiter.Member) []limiter.Member {
		changed := append([]limiter.Member(nil), whole...)
		changed[at] = m
		return changed
	}
	for name, s := range map[string]limiter.Settlement{
		"nothing said": {}, "one cost for three": {CostIn: costing(cost)},
		"cost and limits": {CostIn: costing(cost), Members: whole}, "one too few": {Members: whole[:2]},
		"one twice":     {Members: change(2, whole[1])},
		"whose":         {Members: change(1, limiter.Member{Limit: "spend", Cost: 2})},
		"another limit": {Members: change(0, limiter.Member{Limit: "other", Cost: 2})},
		"slots":         {Members: change(0, limiter.Member{Limit: "slots", Subject: "bob", Cost: 1})},
		"someone else":  {Members: change(0, limiter.Member{Limit: "more", Subject: "eve", Cost: 1})},
		"no cost":       {Members: change(0, limiter.Member{Limit: "more", Cost: limiter.DefaultCost})},
	} {
		s.Receipt = both.Transfer
		_, err := l.Settle(ctx, s)
		if codeOf(err) != limiter.CodeBadRequest {
			t.Errorf("settled with %s: got %v, want a bad request", name, err)
		}
	}
	wantBalance(t, l, "spend", "bob", 100, 2, 98)

	reload(t, l, limits[:2]...)
	wantCodes(t, limiter.CodeUnknownLimit, releaseCode(l, both.Transfer))
	reload(t, l, limits...)
	_, err := l.Settle(ctx, limiter.Settlement{Receipt: both.Transfer, Members: whole})
	wantCodes(t, "", codeOf(err))
}

// A reservation is renewed by any receipt it ever had, and an id sent again leads to the newest.
func TestReservationRenewed(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	l := newLimiter(t, driver, clock, slotsOf("slots", 1))
	request := named("id", holding(10*time.Second, one("slots", "alice", 1)))
	first := reserved(t, l, request)
	receipt := first.Transfer
	for range 5 {
		clock.Advance(8 * time.Second)
		d, err := l.Renew(context.Background(), receipt, 10*time.Second)
		if err != nil || !d.Allowed || d.Replayed || d.Transfer == receipt ||
			!d.ExpiresAt.Equal(d.At.Add(10*time.Second)) || d.Limits[0].Remaining != 0 {
			t.Fatalf("renewed: got %+v, %v", d, err)
		}
		again, err := l.Renew(context.Background(), receipt, 10*time.Second)
		if err != nil || !again.Replayed || again.Transfer != d.Transfer {
			t.Fatalf("renewed again: got %+v, %v, want a replay of %+v", again, err, d)
		}
		receipt = d.Transfer
		if reserve(t, l, holding(time.Second, one("slots", "alice", 1))).Allowed {
			t.Fatal("while it is held: got another one allowed")
		}
	}
	d := reserved(t, l, request)
	if !d.Replayed || d.Transfer != receipt || !d.At.Equal(first.At) {
		t.Errorf("the id again: got %+v, want it replayed with the newest receipt", d)
	}
	release(t, l, first.Transfer)
	if !reserve(t, l, holding(time.Second, one("slots", "alice", 1))).Allowed {
		t.Error("after the release: got denied")
	}
	clock.Advance(2 * time.Second) // a dead holder's slot comes back
	if !reserve(t, l, holding(time.Second, one("slots", "alice", 1))).Allowed {
		t.Error("after the time-out: got denied")
	}
}

// Calls that renew, release and settle one reservation at the same time follow each other, and one
// end counts.
func TestReservationRenewedByAll(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	limit := budget("spend", 100, time.Minute)
	for i := range rounds(10, 100) {
		subject := fmt.Sprint(i)
		nodes := []*limiter.Limiter{
			newLimiter(t, driver, clock, limit), newLimiter(t, driver, clock, limit),
		}
		held := reserved(t, nodes[0], holding(time.Minute, one("spend", subject, 10)))
		var group sync.WaitGroup
		for k := range 4 {
			group.Go(func() {
				code := renewCode(nodes[k%2], held.Transfer, time.Duration(60+k)*time.Second)
				if code != "" && code != limiter.CodeReservationClosed && code != limiter.CodeBusy {
					t.Errorf("renewed: got %q", code)
				}
			})
		}
		var ends [2]limiter.Code
		for k := range ends {
			group.Go(func() { ends[k] = releaseCode(nodes[k], held.Transfer) })
		}
		group.Wait()
		wantCodes(t, "", ends[:]...) // one of them replays the other
		wantBalance(t, nodes[0], "spend", subject, 100, 0, 100)
	}
}

// A reservation is never let through while the ledger is away, whatever the policy; one without an
// id that the ledger makes all the same is taken back. What ends it is told by the same call.
func TestReservationsFailClosed(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	limit := rate("api", 10, time.Minute) // fails open
	l := newLimiter(t, faulty, clock, limit)
	request := named("id", holding(time.Minute, one("api", "alice", 4)))
	back := away(faulty)
	if d := check(t, l, one("api", "alice", 1)); !d.Allowed || !d.Degraded {
		t.Fatalf("a check: got %+v, want it let through", d)
	}
	_, err := l.Reserve(context.Background(), request)
	wantCodes(t, limiter.CodeLedgerUnavailable, codeOf(err))
	back()

	faulty.Inject(ledgertest.Fault{
		On: ledgertest.CallCreateTransfers, After: ledgers.ErrClosed, Skip: 1,
	})
	_, err = l.Reserve(context.Background(), request) // its reply is lost
	wantCodes(t, limiter.CodeLedgerUnavailable, codeOf(err))
	held := reserved(t, l, request)
	for i, end := range []func() (limiter.Code, bool){
		func() (limiter.Code, bool) {
			d, err := l.Renew(context.Background(), held.Transfer, time.Minute)
			return codeOf(err), d.Replayed
		},
		func() (limiter.Code, bool) {
			cost := uint64(3)
			s, err := l.Settle(context.Background(),
				limiter.Settlement{Receipt: held.Transfer, CostIn: costing(cost)})
			return codeOf(err), s.Replayed
		},
	} {
		faulty.Inject(ledgertest.Fault{On: ledgertest.CallCreateTransfers, After: ledgers.ErrClosed})
		code, _ := end()
		wantCodes(t, limiter.CodeLedgerUnavailable, code)
		code, replayed := end()
		if code != "" || !replayed {
			t.Errorf("end %d, sent again: got code %q, replayed %t, want a replay", i, code, replayed)
		}
	}
	wantBalance(t, l, "api", "alice", 10, 3, 7)
}
