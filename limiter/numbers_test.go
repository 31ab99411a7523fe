package limiter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// N1: remaining goes 9 to 0 and the 11th is denied, cold and with a node that has just started.
func TestRemainingCountsDown(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	l := newLimiter(t, driver, clock, rate("api", 10, time.Minute))
	for i := range 11 {
		if i == 5 { // a restarted node knows nothing and must read it
			l = newLimiter(t, driver, clock, rate("api", 10, time.Minute))
		}
		d := check(t, l, one("api", "alice", limiter.DefaultCost))
		want := uint64(max(0, 9-i))
		if d.Allowed != (i < 10) || d.Limits[0].Remaining != want {
			t.Fatalf("check %d: got allowed %v, remaining %d, want %v, %d",
				i+1, d.Allowed, d.Limits[0].Remaining, i < 10, want)
		}
		if d.Limits[0].Quota != 10 || d.Limits[0].Reset != time.Minute-time.Duration(i)*time.Second {
			t.Fatalf("check %d: got %+v, want quota 10 and the first unit back after a minute",
				i+1, d.Limits[0])
		}
		clock.Advance(time.Second + time.Millisecond)
	}
	wantBalance(t, l, "api", "bob", 10, 0, 10)
}

// N2, N3 and N4: a cost of all, of more than all, and of nothing.
func TestCosts(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	faulty := ledgertest.NewFaulty(driver)
	l := newLimiter(t, faulty, clock, rate("api", 10, time.Minute))

	d := check(t, l, one("api", "all", 10))
	if !d.Allowed || d.Limits[0].Remaining != 0 {
		t.Errorf("cost 10 of 10: got %+v, want allowed with 0 left", d)
	}

	wantCode(t, l, one("api", "more", 11), limiter.CodeCostExceedsQuota)
	wantBalance(t, l, "api", "more", 10, 0, 10)
	check(t, l, one("api", "more", 5))
	wantCode(t, l, one("api", "more", 11), limiter.CodeCostExceedsQuota)
	d = check(t, l, one("api", "more", 1))
	if !d.Allowed || d.Limits[0].Remaining != 4 {
		t.Errorf("after two impossible costs: got %+v, want allowed with 4 left", d)
	}

	writes := faulty.Calls(ledgertest.CallCreateTransfers) +
		faulty.Calls(ledgertest.CallCreateAccounts)
	d = check(t, l, one("api", "look", 0))
	if !d.Allowed || d.Limits[0].Remaining != 10 || !d.Transfer.IsZero() {
		t.Errorf("cost 0 fresh: got %+v, want allowed with 10 left and no receipt", d)
	}
	d = check(t, l, named("id", one("api", "all", 0)))
	if d.Allowed || d.Limits[0].Remaining != 0 || d.NewIDRequired ||
		d.RetryAfter.Round(time.Second) != time.Minute {
		t.Errorf("cost 0 exhausted: got %+v, want denied for a minute, no id recorded", d)
	}
	after := faulty.Calls(ledgertest.CallCreateTransfers) +
		faulty.Calls(ledgertest.CallCreateAccounts)
	if after != writes {
		t.Errorf("cost 0 wrote %d times, want 0", after-writes)
	}
}

// N6: numbers up to the greatest are exact, greater ones are refused.
func TestGreatNumbers(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	l := newLimiter(t, driver, clock,
		limiter.Limit{Name: "b", Kind: limiter.Bandwidth, Quota: limiter.MaxCost, Window: time.Hour})
	var spent uint64
	for _, n := range []uint64{1 << 31, 1 << 32, 1 << 48} {
		d := check(t, l, one("b", "alice", n))
		spent += n
		if want := uint64(limiter.MaxCost) - spent; d.Limits[0].Remaining != want {
			t.Errorf("cost %d: got remaining %d, want %d", n, d.Limits[0].Remaining, want)
		}
	}
	d := check(t, l, one("b", "bob", limiter.MaxCost))
	if !d.Allowed || d.Limits[0].Remaining != 0 {
		t.Errorf("cost of all: got %+v", d)
	}
	for _, n := range []uint64{limiter.MaxCost + 1, 1<<53 + 1, 1 << 63} {
		wantCode(t, l, one("b", "carol", n), limiter.CodeBadRequest)
	}
	twice := one("b", "carol", limiter.MaxCost)
	twice.Members = append(twice.Members, twice.Members[0])
	wantCode(t, l, twice, limiter.CodeBadRequest)
	wantBalance(t, l, "b", "carol", limiter.MaxCost, 0, limiter.MaxCost)
}

// N7 and more: each way in which a limit cannot be names its key.
func TestLimitsRefused(t *testing.T) {
	good := rate("api", 10, time.Minute)
	rows := []struct {
		key    string
		change func(*limiter.Limit)
	}{
		{"name", func(l *limiter.Limit) { l.Name = "" }},
		{"name", func(l *limiter.Limit) { l.Name = "a b" }},
		{"name", func(l *limiter.Limit) { l.Name = string(make([]byte, 65)) }},
		{"kind", func(l *limiter.Limit) { l.Kind = "rate" }},
		{"quota", func(l *limiter.Limit) { l.Quota = accounts.MaxQuota + 1 }},
		{"window", func(l *limiter.Limit) { l.Window = 0 }},
		{"window", func(l *limiter.Limit) { l.Window = -time.Second }},
		{"window", func(l *limiter.Limit) { l.Window = 4294967296 * time.Second }},
		{"window", func(l *limiter.Limit) { l.Window = 1500 * time.Millisecond }},
	}
	for _, row := range rows {
		bad := good
		row.change(&bad)
		_, err := limiter.NewLimits(0, []limiter.Limit{rate("first", 1, time.Second), bad})
		var e *limiter.LimitError
		if !errors.As(err, &e) || e.Key != row.key || e.Index != 1 {
			t.Errorf("%+v: got %v, want an error at limits[1].%s", bad, err, row.key)
		}
	}
	_, err := limiter.NewLimits(0, []limiter.Limit{good, good})
	if !errors.Is(err, limiter.ErrLimit) {
		t.Errorf("the same name twice: got %v, want ErrLimit", err)
	}
	other := rate("other", 1, time.Second)
	other.Ledger = accounts.LedgerNumber("api")
	_, err = limiter.NewLimits(0, []limiter.Limit{good, other})
	if !errors.Is(err, accounts.ErrLedgerNumber) {
		t.Errorf("one ledger twice: got %v, want ErrLedgerNumber", err)
	}
	_, err = limiter.NewLimits(0, []limiter.Limit{rate("long", 1, 4294967295*time.Second)})
	if err != nil {
		t.Errorf("the longest window: got %v", err)
	}
}

// N9: with a quota of 0 the first check is denied and waiting does not help.
func TestQuotaZero(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("ban", 0, time.Minute))
	for range 3 {
		d := check(t, l, one("ban", "alice", 1))
		if d.Allowed || d.RetryAfter != 0 || d.Limits[0].Quota != 0 || d.Denied != 0 {
			t.Fatalf("got %+v, want denied without a time to retry", d)
		}
	}
	d := check(t, l, one("ban", "alice", 0))
	if d.Allowed || d.RetryAfter != 0 {
		t.Fatalf("look: got %+v, want denied without a time to retry", d)
	}
}

// N11: whoever waits exactly as long as told and asks anew is admitted, at any phase.
func TestRetryAfterIsTrue(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 11))
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("r", 1, 2*time.Second))
	for round := range 50 {
		clock.Advance(2*time.Second + upTo(5*time.Second))
		d := check(t, l, one("r", "alice", 1))
		if !d.Allowed {
			t.Fatalf("round %d: got %+v, want the unit of the round before back", round, d)
		}
		clock.Advance(upTo(1999 * time.Millisecond))
		d = check(t, l, one("r", "alice", 1))
		if d.Allowed || d.RetryAfter < time.Millisecond || d.RetryAfter > 2*time.Second {
			t.Fatalf("round %d: got %+v, want denied for up to the window", round, d)
		}
		clock.Advance(d.RetryAfter)
		d = check(t, l, one("r", "alice", 1))
		if !d.Allowed {
			t.Fatalf("round %d: denied after the wait, to wait %v more", round, d.RetryAfter)
		}
	}
}

// Retry-After is the smallest wait for the cost asked, also where many charges are out.
func TestRetryAfterPerCost(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	limit := rate("api", 300, time.Minute)
	l := newLimiter(t, driver, clock, limit)
	for range 300 { // one unit a 100 ms, so the k-th is back k x 100 ms after the first
		check(t, l, one("api", "alice", 1))
		clock.Advance(100 * time.Millisecond)
	}
	for _, node := range []*limiter.Limiter{l, newLimiter(t, driver, clock, limit)} {
		for _, cost := range []uint64{300, 200, 50, 2, 1} {
			d := check(t, node, one("api", "alice", cost))
			want := 30*time.Second + time.Duration(cost-1)*100*time.Millisecond
			if d.Allowed || d.RetryAfter.Round(100*time.Millisecond) != want {
				t.Errorf("cost %d: got %v after %v, want denied and %v",
					cost, d.Allowed, d.RetryAfter, want)
			}
		}
	}
	clock.Advance(30*time.Second + 49*100*time.Millisecond + time.Millisecond)
	d := check(t, l, one("api", "alice", 50))
	if !d.Allowed || d.Limits[0].Remaining != 0 {
		t.Errorf("after the wait for 50: got %+v, want allowed with 0 left", d)
	}
}

// N8: 12,000 checks within a second on 6,000 a second: exactly 6,000 pass.
func TestManyWithinASecond(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("fast", 6000, time.Second))
	allowed := 0
	for range 12_000 {
		if check(t, l, one("fast", "alice", 1)).Allowed {
			allowed++
		}
		clock.Advance(80 * time.Microsecond) // 12,000 of them are 0.96 s
	}
	if allowed != 6000 {
		t.Errorf("allowed: got %d, want 6000", allowed)
	}
}

// A limit that wants a cost refuses a request without one.
func TestDefaultCost(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock,
		limiter.Limit{Name: "b", Kind: limiter.Bandwidth, Quota: 10, Window: time.Minute})
	wantCode(t, l, one("b", "alice", limiter.DefaultCost), limiter.CodeBadRequest)
}

func TestRequestsRefused(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 10, time.Minute))
	long := string(make([]byte, 256))
	rows := map[string]limiter.Request{
		"no member":        {},
		"subject missing":  one("api", "", 1),
		"subject too long": one("api", string(make([]byte, 1025)), 1),
		"newline":          one("api", "a\nb", 1),
		"NUL":              one("api", "a\x00b", 1),
		"C1 control":       one("api", "a\u0085b", 1),
		"not UTF-8":        one("api", "a\xffb", 1),
		"id too long":      named(long, one("api", "a", 1)),
		"id with control":  named("a\tb", one("api", "a", 1)),
		"too many members": {Members: make([]limiter.Member, 17)},
	}
	for name, r := range rows {
		t.Run(name, func(t *testing.T) { wantCode(t, l, r, limiter.CodeBadRequest) })
	}
	wantCode(t, l, one("none", "a", 1), limiter.CodeUnknownLimit)
	d, err := l.Check(context.Background(), one("api", "emoji \U0001F600 / + ..", 1))
	if err != nil || !d.Allowed {
		t.Errorf("odd but plain subject: got %+v, %v", d, err)
	}
}

// wholeSeconds rounds up, as a Retry-After does.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// A charge just made is back after the window, of whichever limit in a check, and not later; a
// denial right after it says the same in both of its figures, and what it says is true.
func TestResetOfAChargeJustMade(t *testing.T) {
	clock := newClock()
	var limits []limiter.Limit
	var request limiter.Request
	for i := range limiter.MaxMembers {
		name := string(rune('a' + i))
		limits = append(limits, rate(name, 1, 10*time.Second))
		request.Members = append(request.Members, limiter.Member{Limit: name, Subject: "s", Cost: 1})
	}
	l := newLimiter(t, openLedger(t, clock), clock, limits...)
	for range 3 {
		d := check(t, l, request)
		if !d.Allowed {
			t.Fatalf("got %+v, want allowed", d)
		}
		for _, s := range d.Limits {
			if s.Reset != 10*time.Second {
				t.Errorf("limit %s: got %v until the next unit, want the window of 10 s", s.Limit, s.Reset)
			}
		}
		for _, source := range []string{"the ledger", "memory"} {
			d = check(t, l, request)
			if d.Allowed || d.Limits[d.Denied].Reset != wholeSeconds(d.RetryAfter) {
				t.Errorf("denied from %s: got %+v, want Retry-After and t to agree", source, d)
			}
			if d.RetryAfter < 10*time.Second || d.RetryAfter > 10*time.Second+time.Millisecond {
				t.Errorf("denied from %s: got %v to wait, want 10 s", source, d.RetryAfter)
			}
		}
		clock.Advance(d.RetryAfter)
	}

	// As long as a real answer takes, and the second is the same in all figures.
	check(t, l, request)
	clock.Advance(10 * time.Microsecond)
	d := check(t, l, request)
	if d.Limits[d.Denied].Reset != 10*time.Second || d.RetryAfter != 10*time.Second {
		t.Errorf("10 us after the charge: got %+v, want 10 s in both figures", d)
	}
}
