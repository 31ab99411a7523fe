package scenarios_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// N10: a budget of money admits as many calls at 0.004 as go into it, over two nodes at once, and
// what is left is printed exactly.
func testBudgetOfMoney(t *testing.T, s stage) {
	usd := limiter.Asset{Code: "USD", Scale: 3}
	n := rounds(250, 2500)
	quota, err := usd.Parse(map[int]string{250: "1.000", 2500: "10.00"}[n])
	if err != nil {
		t.Fatal(err)
	}
	limit := budget("spend", quota.Lo, 24*time.Hour)
	limit.Asset, limit.CloseAt = "USD", 1_000_000
	a, b := s.pair(t, rulesOf(t, limiter.Rules{
		Limits: []limiter.Limit{limit}, Assets: []limiter.Asset{usd},
	}))
	spend := func(n *node) (left uint64, admitted bool) {
		d := n.decide(t, holding(time.Minute, one("spend", "alice", 4)))
		if !d.Allowed {
			return 0, false
		}
		return n.settled(t, d.Transfer, 4).Limits[0].Remaining, true
	}
	for i := range 3 {
		left, _ := spend(a)
		want := map[int][]string{
			250: {"0.996", "0.992", "0.988"}, 2500: {"9.996", "9.992", "9.988"},
		}[n][i]
		if got := usd.Format(ledgers.AmountOf(left)); got != want {
			t.Errorf("after %d: got %s left, want %s", i+1, got, want)
		}
	}
	var mu sync.Mutex
	var callers sync.WaitGroup
	admitted := 3
	for i := range 8 {
		callers.Go(func() {
			for {
				_, ok := spend([]*node{a, b}[i%2])
				if !ok {
					return
				}
				mu.Lock()
				admitted++
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	if admitted != n {
		t.Errorf("admitted: got %d, want %d", admitted, n)
	}
	b.wantBalance(t, "spend", "alice", quota.Lo, quota.Lo, 0)
}

// C3: a subject's limit used up, the site's not: in both orders all are denied, checks and
// reservations, with and without ids, and the site is untouched.
func testDeniedCostsNothing(t *testing.T, s stage) {
	a, b := s.pair(t, limitsOf(t, rate("user", 3, time.Hour), rate("site", 1000, time.Hour)))
	for range 3 {
		a.admit(t, one("user", "alice", 1))
	}
	user := limiter.Member{Limit: "user", Subject: "alice", Cost: 1}
	site := limiter.Member{Limit: "site", Subject: "all", Cost: 1}
	allowed := storm(t, rounds(200, 500), []*node{a, b}, func(i int) limiter.Request {
		r := several(user, site)
		if i%2 == 1 {
			r = several(site, user)
		}
		if i%5 == 0 { // past the exhaustion memory
			r.ID = fmt.Sprint("id ", i)
		}
		if i%3 == 0 {
			r.Hold = time.Minute
		}
		return r
	})
	if allowed != 0 {
		t.Errorf("allowed: got %d, want 0", allowed)
	}
	b.wantBalance(t, "site", "all", 1000, 0, 1000)
}

// C4: one request that names an account twice with one unit left is denied whole.
func testSameAccountTwice(t *testing.T, s stage) {
	a, b := s.pair(t, limitsOf(t, rate("api", 3, time.Hour)))
	a.admit(t, one("api", "alice", 2))
	alice := limiter.Member{Limit: "api", Subject: "alice", Cost: 1}
	for _, r := range []limiter.Request{
		several(alice, alice), holding(time.Minute, several(alice, alice)),
	} {
		d := b.deny(t, r, "api")
		if len(d.Limits) != 1 || d.Limits[0].Cost != 2 || d.Limits[0].Remaining != 1 {
			t.Errorf("got %+v, want one entry of cost 2 with 1 left", d.Limits)
		}
	}
	a.wantBalance(t, "api", "alice", 3, 2, 1)
}

// C5: the denial is that of the limit that said no.
func testDenialNamesTheLimit(t *testing.T, s stage) {
	a, b := s.pair(t, limitsOf(t, rate("minute", 60, time.Minute), rate("hour", 100, time.Hour)))
	full := a.admit(t, one("hour", "alice", 100))
	a.admit(t, one("minute", "alice", 4))
	both := several(limiter.Member{Limit: "minute", Subject: "alice", Cost: 1},
		limiter.Member{Limit: "hour", Subject: "alice", Cost: 1})
	for i, n := range []*node{a, b, b} { // b's second denial is from its exhaustion memory
		d := n.deny(t, both, "hour")
		back := full.At.Add(time.Hour)
		most, least := back.Sub(d.At)+time.Second, time.Until(back) // both count from some time between
		if d.Limits[0].Remaining != 56 || d.Limits[1].Remaining != 0 || d.Tightest() != 1 ||
			d.Limits[1].Reset < least || d.Limits[1].Reset > most {
			t.Errorf("denial %d: got %+v, want 56 left, and 0 of the hour for %v", i, d.Limits, least)
		}
		if d.RetryAfter < least || d.RetryAfter > most {
			t.Errorf("denial %d, retry after: got %v, want %v to %v", i, d.RetryAfter, least, most)
		}
	}
	a.wantBalance(t, "minute", "alice", 60, 4, 56)
}

// quietZone is a time zone whose clocks change in spring and autumn, and in which no day ends
// within the next two hours.
func quietZone(t testing.TB) *time.Location {
	t.Helper()
	for _, name := range []string{"Europe/Berlin", "America/New_York"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		hour := time.Now().In(zone).Hour()
		if hour >= 1 && hour < 22 {
			return zone
		}
	}
	t.Fatal("Berlin and New York are six hours apart: want one of them away from midnight")
	return nil
}

// R6, on days: an id sent again two seconds later, when its time-out would be another, is replayed,
// by any node. What is taken comes back at midnight, which is told with its offset.
func testCalendar(t *testing.T, s stage) {
	zone := quietZone(t)
	limit := limiter.Limit{
		Name: "day", Kind: limiter.Budget, Quota: 10, Align: "day", Timezone: zone.String(),
	}
	a, b := s.pair(t, limitsOf(t, limit))
	year, month, day := time.Now().In(zone).Date()
	midnight := time.Date(year, month, day+1, 0, 0, 0, 0, zone)
	length := midnight.Sub(time.Date(year, month, day, 0, 0, 0, 0, zone))
	wantReset := func(what string, window time.Duration, resets time.Time) {
		t.Helper()
		const layout = time.RFC3339
		if window != length || resets.Format(layout) != midnight.Format(layout) {
			t.Errorf("%s: got a window of %v until %v, want %v until %v",
				what, window, resets.Format(layout), length, midnight.Format(layout))
		}
	}
	first := a.admit(t, under("id", one("day", "alice", 4)))
	wantReset("check", first.Limits[0].Window, first.Limits[0].ResetsAt)
	held := a.admit(t, holding(time.Minute, one("day", "alice", 5)))
	b.settled(t, held.Transfer, 6)
	rest(first.At.Add(2100 * time.Millisecond))
	for i, n := range []*node{a, b} {
		d := n.admit(t, under("id", one("day", "alice", 4)))
		if !d.Replayed || d.Transfer != first.Transfer || !d.At.Equal(first.At) {
			t.Errorf("2 s later, by node %d: got %+v, want a replay of %+v", i, d, first)
		}
		n.refuse(t, under("id", one("day", "alice", 3)), limiter.CodeIDConflict)
		d = n.deny(t, one("day", "alice", 1), "day")
		if d.RetryAfter < time.Until(midnight) || d.RetryAfter > midnight.Sub(d.At)+2*time.Second {
			t.Errorf("denied by node %d: got a wait of %v until %v", i, d.RetryAfter, midnight)
		}
		wantReset("denial", d.Limits[0].Window, d.Limits[0].ResetsAt)
	}
	balance, err := b.Balance(t.Context(), "day", "alice")
	if err != nil || balance.Used != 10 || balance.Remaining != 0 || balance.Overage != 0 {
		t.Errorf("balance: got %+v, %v, want 4 and 6 used", balance, err)
	}
	wantReset("balance", balance.Window, balance.ResetsAt)
	for _, e := range journal(t, a, s.namespace.UserAccount("day", "alice")) {
		back := time.Unix(0, int64(e.ExpiresAt()))
		if e.Flags.Has(ledgers.Pending) && e.Timeout > 60 && back.Before(midnight) {
			t.Errorf("entry %+v: got it back at %v, want %v or later", e, back, midnight)
		}
	}
}

// Months and weeks end when the clocks of their zone say, whether or not those change meanwhile.
func testCalendarOfMonths(t *testing.T, s stage) {
	zone := quietZone(t)
	aligned := func(align string) limiter.Limit {
		return limiter.Limit{
			Name: align, Kind: limiter.RequestRate, Quota: 10, Align: align, Timezone: zone.String(),
		}
	}
	a, _ := s.pair(t, limitsOf(t, aligned("week"), aligned("month")))
	d := a.admit(t, several(limiter.Member{Limit: "week", Subject: "alice", Cost: 1},
		limiter.Member{Limit: "month", Subject: "alice", Cost: 1}))
	year, month, day := time.Now().In(zone).Date()
	weekday := (int(time.Now().In(zone).Weekday()) + 6) % 7 // Monday is 0
	at := func(month time.Month, day int) time.Time {
		return time.Date(year, month, day, 0, 0, 0, 0, zone)
	}
	for i, want := range [][2]time.Time{
		{at(month, day-weekday), at(month, day-weekday+7)}, {at(month, 1), at(month+1, 1)},
	} {
		got := d.Limits[i]
		if got.Window != want[1].Sub(want[0]) || !got.ResetsAt.Equal(want[1]) ||
			got.ResetsAt.Format("-07:00") != want[1].Format("-07:00") {
			t.Errorf("%s: got a window of %v until %v, want from %v to %v",
				got.Limit, got.Window, got.ResetsAt, want[0], want[1])
		}
	}
}

// L8: 8 of 10 used; then 5, 20, and 5 again, while another node keeps the 20. Usage is not
// forgotten, and once it is back 5 pass in each window, by whichever node.
func testChangedQuotaOfTwo(t *testing.T, s stage) {
	const window = 3 * time.Second
	of := func(revision uint32, quota uint64) *limiter.Limits {
		return rulesOf(t, limiter.Rules{
			Revision: revision, Limits: []limiter.Limit{rate("api", quota, window)},
		})
	}
	a, b := s.pair(t, of(1, 10))
	var l tally
	for range 8 {
		l.add(a.ask("api", "alice", ""))
	}
	back := l.answers[0].At.Add(window)
	a.SetLimits(of(2, 5))
	d := l.add(a.ask("api", "alice", ""))
	inTime(t, back)
	if d.kind() != "denied" || d.Limits[0].Remaining != 0 || d.Limits[0].Quota != 5 {
		t.Errorf("lowered to 5: got %s, %+v, want denied, remaining 0, quota 5", d.kind(), d.Limits)
	}
	b.SetLimits(of(3, 20))
	balance, err := b.Balance(t.Context(), "api", "alice")
	inTime(t, back)
	if err != nil || balance.Quota != 20 || balance.Used != 8 || balance.Remaining != 12 {
		t.Errorf("raised to 20: got %+v, %v, want 12 left", balance, err)
	}
	b.admit(t, one("api", "alice", 1))
	a.SetLimits(of(4, 5))
	// a reads b's step, and b then a's.
	took := await(t, "both nodes know that it is 5 again", func() bool {
		l.add(a.ask("api", "alice", ""))
		balance, err := b.Balance(t.Context(), "api", "alice")
		return err == nil && balance.Quota == 5
	})
	t.Logf("both nodes knew that it is 5 again after %v", took)
	var after tally
	end := time.Now().Add(4*window + window/2)
	for i := 0; time.Now().Before(end); i++ {
		after.add([]*node{a, b}[i%2].ask("api", "alice", ""))
		time.Sleep(20 * time.Millisecond) // tidy:sleep a real server's clock cannot be moved
	}
	wantApart(t, &after, 5, window)
	kinds := after.kinds()
	t.Logf("answers after the quota was lowered: %v", kinds)
	if kinds["allowed"]+kinds["denied"] != len(after.answers) ||
		kinds["allowed"] < 3*5 && after.slowest() < slack { // denials are remembered for up to a second
		t.Errorf("got %v, want 5 allowed in each of three windows, and no failure", kinds)
	}
}

// L9: 100 reloads of the same config refill nothing and write nothing.
func testReloads(t *testing.T, s stage) {
	limits := func() *limiter.Limits {
		limit := budget("spend", 10, time.Hour)
		limit.CloseAt = 900_000
		return limitsOf(t, limit, lasting("pre", limiter.Credits, 10))
	}
	a, b := s.pair(t, limits())
	request := several(limiter.Member{Limit: "spend", Subject: "alice", Cost: 4},
		limiter.Member{Limit: "pre", Subject: "alice", Cost: 3})
	a.admit(t, request)
	writes := a.calls.Calls(ledgertest.CallCreateTransfers)
	for range 100 {
		a.SetLimits(limits())
		a.wantBalance(t, "spend", "alice", 10, 4, 6)
		a.wantBalance(t, "pre", "alice", 10, 3, 7)
	}
	if got := a.calls.Calls(ledgertest.CallCreateTransfers); got != writes {
		t.Errorf("writes: got %d, want none", got-writes)
	}
	b.admit(t, request)
	a.deny(t, request, "spend") // 8 of 9
	b.wantBalance(t, "pre", "alice", 10, 6, 4)
}

// A budget of 100 that closes at 70 % takes 70 of any number at once, and what was held may use the
// rest.
func testCloseAt(t *testing.T, s stage) {
	limit := budget("spend", 100, time.Hour)
	limit.CloseAt = 700_000
	a, b := s.pair(t, limitsOf(t, limit))
	for _, hold := range []time.Duration{0, time.Hour} {
		subject := fmt.Sprint("held for ", hold)
		got := storm(t, 150, []*node{a, b}, func(int) limiter.Request {
			return holding(hold, one("spend", subject, 1))
		})
		if got != 70 {
			t.Errorf("%s: got %d allowed, want 70", subject, got)
		}
		b.wantBalance(t, "spend", subject, 100, 70, 30)
		b.deny(t, one("spend", subject, 0), "spend") // a look
	}
	a.refuse(t, one("spend", "bob", 71), limiter.CodeCostExceedsQuota)
	held := a.admit(t, holding(time.Hour, one("spend", "bob", 70)))
	settled := b.settled(t, held.Transfer, 95).Limits[0]
	if settled.Overage != 0 || settled.Remaining != 5 {
		t.Errorf("settled 95: got %+v, want no overage and 5 left", settled)
	}
	a.deny(t, one("spend", "bob", 1), "spend")
}

// Prepaid credits are given out once, whatever the concurrency and however long one waits.
func testCredits(t *testing.T, s stage) {
	a, b := s.pair(t, limitsOf(t, lasting("pre", limiter.Credits, 10)))
	got := storm(t, 40, []*node{a, b}, func(int) limiter.Request { return one("pre", "alice", 1) })
	if got != 10 {
		t.Errorf("allowed: got %d, want 10", got)
	}
	time.Sleep(1500 * time.Millisecond) // tidy:sleep nothing comes back in it
	for i, n := range []*node{a, b} {
		d := n.deny(t, one("pre", "alice", 11), "pre")
		state := d.Limits[0]
		if d.RetryAfter != 0 || state.Reset != 0 || state.Window != 0 || state.Remaining != 0 {
			t.Errorf("node %d: got %+v, want denied for good", i, d)
		}
	}
	granted := a.grant(t, "pre", "alice", 5)
	if granted.Quota != 15 || granted.Remaining != 5 {
		t.Errorf("granted: got %+v, want 5 of 15", granted)
	}
	wantSoon(t, "the other node has the grant", func() bool {
		return b.decide(t, one("pre", "alice", 4)).Allowed
	})
	held := b.admit(t, holding(time.Minute, one("pre", "alice", 1)))
	a.deny(t, one("pre", "alice", 1), "pre")
	settled := a.settled(t, held.Transfer, 0)
	if settled.Limits[0].Remaining != 1 {
		t.Errorf("settled with nothing: got %+v, want 1 left", settled)
	}
	_, err := b.Release(t.Context(), held.Transfer)
	wantCode(t, err, limiter.CodeReservationClosed)
}

// What was used beyond a prepaid balance is paid first by the next grants, of any node.
func testCreditsOverage(t *testing.T, s stage) {
	a, b := s.pair(t, limitsOf(t, lasting("pre", limiter.Credits, 10)))
	held := a.admit(t, holding(time.Minute, one("pre", "alice", 4)))
	settled := b.settled(t, held.Transfer, 25).Limits[0]
	if settled.Booked != 25 || settled.Overage != 15 || settled.Remaining != 0 {
		t.Errorf("settled 25 of 10: got %+v, want 15 overage", settled)
	}
	for _, step := range []struct {
		node                      *node
		grant, overage, remaining uint64
	}{{a, 5, 10, 0}, {b, 12, 0, 2}} {
		changed := step.node.grant(t, "pre", "alice", step.grant)
		balance, err := a.Balance(t.Context(), "pre", "alice")
		if err != nil || changed.Remaining != step.remaining || balance.Overage != step.overage ||
			balance.Remaining != step.remaining {
			t.Errorf("grant of %d: got %+v, %+v, %v, want overage %d, remaining %d",
				step.grant, changed, balance, err, step.overage, step.remaining)
		}
	}
	b.wantBalance(t, "pre", "alice", 27, 25, 2)
	a.deny(t, one("pre", "alice", 3), "pre")
	a.admit(t, one("pre", "alice", 2))
}

// An override, a ban and its end on one node bind the other within a second.
func testOverride(t *testing.T, s stage) {
	a, b := s.pair(t, limitsOf(t, rate("api", 10, time.Hour)))
	for _, n := range []*node{a, b} {
		n.admit(t, one("api", "alice", 1))
	}
	changed := func(what string, quota uint64, c limiter.SubjectQuota, err error) {
		t.Helper()
		if err != nil || c.Quota != quota {
			t.Fatalf("%s: got %+v, %v, want a quota of %d", what, c, err, quota)
		}
	}
	quotaAt := func(n *node) uint64 {
		return n.decide(t, one("api", "alice", 0)).Limits[0].Quota
	}
	c, err := a.Override(t.Context(), "api", "alice", 3)
	changed("override", 3, c, err)
	wantSoon(t, "the other node knows the override", func() bool { return quotaAt(b) == 3 })
	b.admit(t, one("api", "alice", 1))
	b.deny(t, one("api", "alice", 1), "api")
	a.deny(t, one("api", "alice", 1), "api")

	c, err = b.Override(t.Context(), "api", "alice", 20)
	changed("raise", 20, c, err)
	wantSoon(t, "the other node lets more pass", func() bool {
		return a.decide(t, one("api", "alice", 1)).Allowed
	})
	c, err = a.Override(t.Context(), "api", "alice", 0)
	changed("ban", 0, c, err)
	wantSoon(t, "the other node knows the ban", func() bool { return quotaAt(b) == 0 })
	d := b.deny(t, one("api", "alice", 1), "api")
	if d.RetryAfter != 0 || d.Limits[0].Remaining != 0 {
		t.Errorf("banned: got %+v, want denied without a wait", d)
	}
	c, err = b.ClearOverride(t.Context(), "api", "alice")
	changed("clear", 10, c, err)
	wantSoon(t, "the other node lifts the ban", func() bool {
		return a.decide(t, one("api", "alice", 6)).Allowed
	})
	b.wantBalance(t, "api", "alice", 10, 10, 0) // 1, 1, 1, 1 and 6
}

// A limit that is tried out denies nothing, and takes and counts what it would have admitted.
func testShadow(t *testing.T, s stage) {
	tried := rate("tried", 2, time.Hour)
	tried.Shadow = true
	a, b := s.pair(t, limitsOf(t, tried, rate("api", 4, time.Hour)))
	both := several(limiter.Member{Limit: "tried", Subject: "alice", Cost: 1},
		limiter.Member{Limit: "api", Subject: "alice", Cost: 1})
	for i, would := range []bool{false, false, true, true} {
		d := []*node{a, b}[i%2].admit(t, both)
		if d.Limits[0].WouldDeny != would || !d.Limits[0].Shadow || d.Limits[1].Shadow {
			t.Errorf("check %d: got %+v, want it to say that it would deny: %t", i+1, d.Limits, would)
		}
	}
	a.deny(t, both, "api")
	b.wantBalance(t, "tried", "alice", 2, 2, 0)
	b.wantBalance(t, "api", "alice", 4, 4, 0)
	for i, n := range []*node{a, b} {
		for _, result := range []string{"allowed", "denied"} {
			got := n.metric(t, "weir_shadow_decisions_total", "tried", result)
			if got != 1 {
				t.Errorf("node %d, %s: got %v counted, want 1", i, result, got)
			}
		}
	}
}

// A group of two limits, one of them of a user within a tenant: the values are percent-encoded,
// and the id is that of what was sent.
func testGroups(t *testing.T, s stage) {
	a, b := s.pair(t, rulesOf(t, limiter.Rules{
		Limits: []limiter.Limit{rate("user", 2, time.Hour), rate("tenant", 3, time.Hour)},
		Groups: []limiter.Group{{Name: "api", Limits: []limiter.GroupMember{
			{Limit: "tenant", Fields: []string{"tenant"}},
			{Limit: "user", Fields: []string{"tenant", "user"}},
		}}},
	}))
	call := func(user string) limiter.Request {
		return limiter.Request{
			Group: "api", Fields: map[string]string{"user": user, "tenant": "a/b"},
			Cost: limiter.DefaultCost,
		}
	}
	first := a.admit(t, under("id", call("ann é")))
	if first.Limits[0].Subject != "a/b" || first.Limits[1].Subject != "a%2Fb/ann%20%C3%A9" {
		t.Errorf("got %+v, want the subjects a/b and a%%2Fb/ann%%20%%C3%%A9", first.Limits)
	}
	again := b.admit(t, under("id", call("ann é")))
	if !again.Replayed || again.Transfer != first.Transfer {
		t.Errorf("again, by another node: got %+v, want a replay of %+v", again, first)
	}
	other := under("id", call("ann é"))
	other.Cost = 1 // the same charges, but not what was sent
	b.refuse(t, other, limiter.CodeIDConflict)
	b.admit(t, call("ann é"))
	a.deny(t, call("ann é"), "user")
	held := a.admit(t, holding(time.Minute, call("bob")))
	b.deny(t, call("bob"), "tenant")
	_, err := b.Release(context.Background(), held.Transfer)
	wantCode(t, err, "")
	b.wantBalance(t, "tenant", "a/b", 3, 2, 1)
	b.wantBalance(t, "user", "a%2Fb/ann%20%C3%A9", 2, 2, 0)
	b.wantBalance(t, "user", "a%2Fb/bob", 2, 0, 2)
	delete(other.Fields, "user")
	b.refuse(t, other, limiter.CodeBadRequest)
}
