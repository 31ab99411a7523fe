package limiter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

// override sets a quota, and compares what it is then, and what is free of it.
func override(t testing.TB, l *limiter.Limiter, quota, left uint64, replayed bool) {
	t.Helper()
	got, err := l.Override(context.Background(), "api", "alice", quota)
	got.At = time.Time{}
	want := limiter.SubjectQuota{
		Quota: quota, Remaining: left, Replayed: replayed, Overridden: true,
	}
	if err != nil || got != want {
		t.Fatalf("override %d: got %+v, %v, want %+v", quota, got, err, want)
	}
}

func clearOverride(t testing.TB, l *limiter.Limiter, quota, left uint64, replayed bool) {
	t.Helper()
	got, err := l.ClearOverride(context.Background(), "api", "alice")
	got.At = time.Time{}
	want := limiter.SubjectQuota{Quota: quota, Remaining: left, Replayed: replayed}
	if err != nil || got != want {
		t.Fatalf("clear the override: got %+v, %v, want %+v", got, err, want)
	}
}

// A subject's own quota stands whatever the config says, until it is cleared; what is used stays
// used, and what was denied is asked anew at once.
func TestOverride(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 10, 30*time.Second))
	override(t, l, 3, 3, false)
	override(t, l, 3, 3, true)
	wantCode(t, l, one("api", "alice", 4), limiter.CodeCostExceedsQuota)
	check(t, l, one("api", "alice", 3))
	if d := check(t, l, one("api", "alice", 1)); d.Allowed || d.Limits[0].Quota != 3 {
		t.Errorf("fourth of 3: got %+v, want denied", d)
	}
	reload(t, l, rate("api", 100, 30*time.Second))
	if d := check(t, l, one("api", "alice", 1)); d.Allowed || d.Limits[0].Quota != 3 {
		t.Errorf("with a greater quota in the config: got %+v, want denied", d)
	}
	override(t, l, 5, 2, false)
	if d := check(t, l, one("api", "alice", 2)); !d.Allowed || d.Limits[0].Quota != 5 {
		t.Errorf("with 5: got %+v, want allowed", d)
	}
	override(t, l, 1, 0, false) // 5 are used
	b, err := l.Balance(t.Context(), "api", "alice")
	if err != nil || !b.Overridden || b.Used != 5 {
		t.Errorf("balance: got %+v, %v, want 5 used and overridden", b, err)
	}
	clock.Advance(31 * time.Second)
	for i, want := range []bool{true, false} {
		if d := check(t, l, one("api", "alice", 1)); d.Allowed != want {
			t.Errorf("check %d with 1: got %+v, want allowed %v", i+1, d, want)
		}
	}
	clearOverride(t, l, 100, 99, false)
	clearOverride(t, l, 100, 99, true)
	b, err = l.Balance(t.Context(), "api", "alice")
	if err != nil || b.Overridden {
		t.Errorf("cleared: got %+v, %v, want no override", b, err)
	}
	wantBalance(t, l, "api", "bob", 100, 0, 100)
}

// A ban is an override of 0: denied, and no wait helps.
func TestBan(t *testing.T) {
	clock := newClock()
	l := newLimiter(t, openLedger(t, clock), clock, rate("api", 10, 30*time.Second))
	check(t, l, one("api", "alice", 1))
	override(t, l, 0, 0, false)
	for range 2 {
		if d := check(t, l, one("api", "alice", 1)); d.Allowed || d.RetryAfter != 0 {
			t.Errorf("banned: got %+v, want denied without a wait", d)
		}
		clock.Advance(time.Hour)
	}
	clearOverride(t, l, 10, 10, false)
	if d := check(t, l, one("api", "alice", 10)); !d.Allowed {
		t.Errorf("lifted: got %+v, want allowed", d)
	}
}

// An override set on one node binds another within a second, also one that remembers a denial.
func TestOverrideOnTwoNodes(t *testing.T) {
	clock := newClock()
	a, b := halves(t, openLedger(t, clock), clock, revised(t, 1, 10))
	for _, n := range []*half{a, b} {
		check(t, n.Limiter, one("api", "alice", 5))
	}
	if d := check(t, b.Limiter, one("api", "alice", 1)); d.Allowed {
		t.Fatalf("eleventh of 10: got %+v, want denied", d)
	}
	override(t, a.Limiter, 12, 2, false)
	pass(t, clock, time.Second, a, b)
	d := check(t, b.Limiter, one("api", "alice", 2))
	if !d.Allowed || d.Limits[0].Quota != 12 || d.Limits[0].Remaining != 0 {
		t.Errorf("raised to 12 with 10 used: got %+v, want 2 more allowed", d)
	}
	pass(t, clock, 31*time.Second, a, b)
	override(t, b.Limiter, 0, 0, false)
	pass(t, clock, time.Second, a, b)
	if d := check(t, a.Limiter, one("api", "alice", 1)); d.Allowed || d.Limits[0].Quota != 0 {
		t.Errorf("banned by the other: got %+v, want denied", d)
	}
	clearOverride(t, a.Limiter, 10, 10, false)
	pass(t, clock, time.Second, a, b)
	if d := check(t, b.Limiter, one("api", "alice", 10)); !d.Allowed {
		t.Errorf("lifted by the other: got %+v, want allowed", d)
	}
}

// Of a limit that closes early, the part that stays free is that of the override.
func TestOverrideClosesEarly(t *testing.T) {
	clock := newClock()
	limit := budget("api", 100, time.Minute)
	limit.CloseAt = 900_000
	l := newLimiter(t, openLedger(t, clock), clock, limit)
	override(t, l, 20, 20, false) // closes at 18
	wantCode(t, l, one("api", "alice", 19), limiter.CodeCostExceedsQuota)
	if d := check(t, l, one("api", "alice", 18)); !d.Allowed {
		t.Errorf("18 of 20: got %+v, want allowed", d)
	}
	if d := check(t, l, one("api", "alice", 1)); d.Allowed || d.Limits[0].Remaining != 2 {
		t.Errorf("one more: got %+v, want denied with 2 free", d)
	}
}

// The override of a transfer-amount limit is in its asset's smallest units.
func TestOverrideOfMoney(t *testing.T) {
	b := newBank(t)
	b.deposit(t, "alice", "1000.00")
	b.deposit(t, "bob", "1.00")
	_, err := b.Override(t.Context(), "daily", "alice", 50_00)
	if err != nil {
		t.Fatal(err)
	}
	b.refuse(t, pay("a", "50.01"), limiter.CodeCostExceedsQuota)
	if d := b.transfer(t, pay("b", "50.00")); !d.Allowed {
		t.Errorf("50.00: got %+v, want made", d)
	}
	if d := b.transfer(t, pay("c", "0.01")); d.Allowed || d.Limits[0].Quota != 50_00 {
		t.Errorf("0.01 more: got %+v, want denied", d)
	}
	b.wantFunds(t, "alice", "950.00")
}

func TestOverridesRefused(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	l := newLimiter(t, faulty, clock, rate("api", 10, time.Minute), credits("prepaid", 10))
	grant(t, l, "g", "api", "alice", 5)
	rows := map[string]struct {
		limit, subject string
		quota          uint64
		want           limiter.Code
	}{
		"TooLarge":     {"api", "alice", accounts.MaxQuota - 4, limiter.CodeQuotaTooLarge},
		"FarTooLarge":  {"api", "bob", accounts.MaxQuota + 1, limiter.CodeBadRequest},
		"Credits":      {"prepaid", "alice", 5, limiter.CodeBadRequest},
		"UnknownLimit": {"none", "alice", 5, limiter.CodeUnknownLimit},
		"NoSubject":    {"api", "", 5, limiter.CodeBadRequest},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			_, err := l.Override(t.Context(), row.limit, row.subject, row.quota)
			wantError(t, err, row.want)
		})
	}
	_, err := l.ClearOverride(t.Context(), "prepaid", "alice")
	wantError(t, err, limiter.CodeBadRequest)
	wantBalance(t, l, "api", "alice", 15, 0, 15)

	back := away(faulty)
	_, err = l.Override(t.Context(), "api", "alice", 3)
	e := wantError(t, err, limiter.CodeLedgerUnavailable)
	if !strings.Contains(e.Detail, "the same call, sent again, will tell") {
		t.Errorf("without the ledger: got %q, want it to say how to find out", e.Detail)
	}
	back()
	got, err := l.Override(t.Context(), "api", "alice", 3)
	if err != nil || got.Quota != 8 || got.Remaining != 8 || !got.Overridden { // 3 and the grant
		t.Errorf("the same call: got %+v, %v, want a quota of 8", got, err)
	}
}
