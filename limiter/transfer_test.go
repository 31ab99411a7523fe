package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/limiter"
)

const day = 24 * time.Hour

// untold is what the answer says of a transfer whose outcome is not known.
const untold = "took effect is unknown; the same id, sent again, will tell"

// bank is a limiter with money: limits "daily" of 1,000.00 USD, "monthly" of 2,500.00 USD, "frozen"
// of nothing, "small" of 10 EUR, "calls" of 5 a minute, and "hasty", which waits for 20 ms.
type bank struct {
	*limiter.Limiter
	clock  *testClock
	faulty *ledgertest.Faulty
}

func newBank(t testing.TB) bank {
	t.Helper()
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	book, err := accounts.NewBook(faulty, accounts.Namespace{9}, &accounts.Options{Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	money := func(name, asset string, quota uint64, window time.Duration) limiter.Limit {
		return limiter.Limit{
			Name: name, Kind: limiter.TransferAmount, Asset: asset, Quota: quota, Window: window,
			Deadline: time.Minute,
		}
	}
	hasty := money("hasty", "USD", 1_000_00, day)
	hasty.Deadline = 20 * time.Millisecond
	set, err := limiter.NewRules(limiter.Rules{
		Limits: patient([]limiter.Limit{
			money("daily", "USD", 1_000_00, day), money("monthly", "USD", 2_500_00, 30*day),
			money("frozen", "USD", 0, day), money("small", "EUR", 10, day),
			rate("calls", 5, time.Minute), {Name: "slots", Kind: limiter.Concurrency, Quota: 2},
			hasty,
		}),
		Assets: []limiter.Asset{{Code: "USD", Scale: 2}, {Code: "EUR"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(book, set, nil)
	if err != nil {
		t.Fatal(err)
	}
	return bank{l, clock, faulty}
}

func (b bank) deposit(t testing.TB, subject, amount string) {
	t.Helper()
	_, err := b.Deposit(context.Background(), limiter.Movement{
		Asset: "USD", Subject: subject, Amount: amount, ID: fmt.Sprint("deposit ", amount),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// pay is a transfer from alice to bob on the daily limit, and on further limits.
func pay(id, amount string, further ...limiter.Member) limiter.Transfer {
	return limiter.Transfer{
		Limit: "daily", From: "alice", To: "bob", Amount: amount, ID: id, Members: further,
	}
}

func (b bank) transfer(t testing.TB, r limiter.Transfer) limiter.Decision {
	t.Helper()
	d, err := b.Transfer(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// refuse makes a transfer that must not be decided.
func (b bank) refuse(t testing.TB, r limiter.Transfer, want limiter.Code) *limiter.Error {
	t.Helper()
	_, err := b.Transfer(context.Background(), r)
	return wantError(t, err, want)
}

func wantError(t testing.TB, err error, want limiter.Code) *limiter.Error {
	t.Helper()
	e, ok := errors.AsType[*limiter.Error](err)
	if !ok || e.Code != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	return e
}

func (b bank) wantFunds(t testing.TB, subject, want string) {
	t.Helper()
	got, err := b.Funds(context.Background(), "USD", subject)
	if err != nil || got.Balance != want {
		t.Fatalf("funds of %s: got %+v, %v, want %s", subject, got, err, want)
	}
}

// The worked example: 1,000.00 USD a day. 999.99 passes; 0.02 more is denied, with both ledgers
// untouched, and passes when the window lets it. Too little money leaves the limit untouched.
func TestTransferExample(t *testing.T) {
	b := newBank(t)
	b.deposit(t, "alice", "1500")
	b.deposit(t, "bob", "0.01")

	d := b.transfer(t, pay("t-1", "999.99"))
	if !d.Allowed || d.Replayed || d.Degraded || d.Transfer.IsZero() || d.Limits[0].Cost != 999_99 ||
		d.Limits[0].Remaining != 1 || d.Limits[0].Reset != day {
		t.Fatalf("999.99: got %+v, want allowed, 0.01 left for a day", d)
	}
	b.clock.Advance(time.Hour)
	denied := b.transfer(t, pay("t-2", "0.02"))
	if denied.Allowed || denied.Denied != 0 || !denied.NewIDRequired || denied.Replayed ||
		denied.RetryAfter.Round(time.Second) != 23*time.Hour || denied.Limits[0].Remaining != 1 {
		t.Fatalf("0.02 more: got %+v, want denied for 23 hours", denied)
	}
	wantBalance(t, b.Limiter, "daily", "alice", 1_000_00, 999_99, 1)
	b.wantFunds(t, "alice", "500.01")
	b.wantFunds(t, "bob", "1000.00")
	if d = b.transfer(t, pay("t-3", "0.01")); !d.Allowed {
		t.Errorf("0.01: got %+v, want allowed", d)
	}

	b.clock.Advance(denied.RetryAfter)
	if d = b.transfer(t, pay("t-2", "0.02")); d.Allowed || !d.Replayed || !d.NewIDRequired {
		t.Errorf("the denied id after the wait: got %+v, want it denied", d)
	}
	if d = b.transfer(t, pay("t-4", "0.02")); !d.Allowed || d.Limits[0].Remaining != 999_97 {
		t.Errorf("another id after the wait: got %+v, want allowed, 999.97 left", d)
	}
	b.wantFunds(t, "alice", "499.98")

	b.clock.Advance(2 * day)
	e := b.refuse(t, pay("t-5", "499.99"), limiter.CodeInsufficientFunds)
	if !e.NewIDRequired {
		t.Errorf("got %+v, want the id spent", e)
	}
	wantBalance(t, b.Limiter, "daily", "alice", 1_000_00, 0, 1_000_00)
	b.wantFunds(t, "alice", "499.98")
	// Years later the first id is still answered as it was.
	b.clock.Advance(1000 * day)
	if d = b.transfer(t, pay("t-1", "999.99")); !d.Allowed || !d.Replayed {
		t.Errorf("the first id again: got %+v, want a replay", d)
	}
	b.wantFunds(t, "alice", "499.98")
}

// Each outcome is told from the others, the first time and again, in whichever order the limit and
// the money run out.
func TestTransferOutcomes(t *testing.T) {
	b := newBank(t)
	b.refuse(t, pay("p", "1"), limiter.CodeAccountUnknown)
	b.deposit(t, "alice", "1200")
	e := b.refuse(t, pay("p", "1"), limiter.CodeAccountUnknown)
	if e.NewIDRequired || !strings.Contains(e.Detail, `"bob"`) {
		t.Errorf("got %+v, want bob unknown and the id free", e)
	}
	b.deposit(t, "bob", "1")
	if d := b.transfer(t, pay("p", "1")); !d.Allowed {
		t.Fatalf("the id of an unknown account: got %+v, want allowed", d)
	}
	b.refuse(t, pay("p", "2"), limiter.CodeIDConflict)

	// More than the whole quota: also where a part of it is used, and past what a limit can count.
	for _, amount := range []string{"1000.01", "1199.00", "79228162514264337593543950.00"} {
		for range 2 {
			e = b.refuse(t, pay("huge "+amount, amount), limiter.CodeCostExceedsQuota)
			if e.Limit != "daily" || !e.NewIDRequired || !strings.Contains(e.Detail, amount) {
				t.Errorf("%s: got %+v, want it to name the limit and the amount", amount, e)
			}
		}
	}
	frozen := pay("f", "1")
	frozen.Limit = "frozen"
	if d := b.transfer(t, frozen); d.Allowed || d.RetryAfter != 0 || d.Limits[0].Quota != 0 {
		t.Errorf("a quota of 0: got %+v, want denied without a wait", d)
	}

	// Money first: 199.00 are left after 1,000.00 in two days.
	b.transfer(t, pay("p-2", "999"))
	b.transfer(t, limiter.Transfer{Limit: "monthly", From: "alice", To: "bob", Amount: "1", ID: "m"})
	b.clock.Advance(day + time.Second)
	b.refuse(t, pay("poor", "199.01"), limiter.CodeInsufficientFunds)
	b.deposit(t, "alice", "300.00")
	e = b.refuse(t, pay("poor", "199.01"), limiter.CodeInsufficientFunds)
	if !e.NewIDRequired {
		t.Errorf("the id again, with funds: got %+v, want it spent", e)
	}
	// The limit lacks today: it is named first, under an id refused before as under a new one.
	b.transfer(t, pay("p-3", "450"))
	b.deposit(t, "alice", "600.00") // 649.00
	b.transfer(t, pay("p-4", "549"))
	for _, id := range []string{"both", "poor"} {
		d := b.transfer(t, pay(id, "199.01"))
		if d.Allowed || d.Denied != 0 || !d.NewIDRequired || d.RetryAfter == 0 {
			t.Errorf("%s: got %+v, want denied by the limit", id, d)
		}
	}
	// The limit has units again: of the id that it refused only the refusal is kept.
	b.clock.Advance(day + time.Second)
	b.refuse(t, pay("both", "199.01"), limiter.CodeInsufficientFunds)
	b.deposit(t, "alice", "500.00")
	if d := b.transfer(t, pay("both", "199.01")); d.Allowed || !d.Replayed || d.RetryAfter != 0 {
		t.Errorf("both there again: got %+v, want the denial replayed", d)
	}
	b.wantFunds(t, "alice", "600.00")
}

// Further limits are charged with the transfer, all or nothing, each in its own way.
func TestTransferMembers(t *testing.T) {
	b := newBank(t)
	b.deposit(t, "alice", "5000")
	b.deposit(t, "bob", "1")
	calls := limiter.Member{Limit: "calls", Subject: "site", Cost: limiter.DefaultCost}
	monthly := limiter.Member{Limit: "monthly", Cost: limiter.DefaultCost}
	for i := range 2 {
		d := b.transfer(t, pay(fmt.Sprint(i), "1000", calls, monthly))
		if !d.Allowed || len(d.Limits) != 3 || d.Limits[1].Cost != 1 || d.Limits[2].Cost != 1_000_00 ||
			d.Limits[2].Subject != "alice" || d.Limits[1].Subject != "site" {
			t.Fatalf("got %+v, want 1 call and the amount on the monthly limit", d)
		}
		b.clock.Advance(day + time.Second)
	}
	d := b.transfer(t, pay("over", "500.01", calls, monthly))
	if d.Allowed || d.Denied != 2 || d.RetryAfter.Round(time.Hour) != 28*day {
		t.Fatalf("got %+v, want denied by the monthly limit for 28 days", d)
	}
	wantBalance(t, b.Limiter, "daily", "alice", 1_000_00, 0, 1_000_00)
	wantBalance(t, b.Limiter, "calls", "site", 5, 0, 5)
	wantBalance(t, b.Limiter, "monthly", "alice", 2_500_00, 2_000_00, 500_00)

	// A check that the limit's memory would deny is one thing, a transfer another: it is decided by
	// the ledger, and charged ones are seen by checks.
	for range 5 {
		check(t, b.Limiter, one("calls", "site", 1))
	}
	if check(t, b.Limiter, one("calls", "site", 1)).Allowed {
		t.Fatal("a sixth call: want denied")
	}
	d = b.transfer(t, pay("calls", "1", calls))
	if d.Allowed || d.Denied != 1 || d.IDNotRecorded {
		t.Errorf("got %+v, want denied by the calls", d)
	}
	b.wantFunds(t, "alice", "3000.00")
}

func TestTransferBadRequests(t *testing.T) {
	b := newBank(t)
	b.deposit(t, "alice", "10")
	b.deposit(t, "bob", "1")
	member := func(limit string, cost uint64) limiter.Member {
		return limiter.Member{Limit: limit, Cost: cost}
	}
	rows := map[string]limiter.Transfer{
		"no id":           pay("", "1"),
		"no amount":       pay("i", ""),
		"amount 0":        pay("i", "0.00"),
		"a digit more":    pay("i", "1.001"),
		"negative":        pay("i", "-1"),
		"another asset":   pay("i", "1", member("small", limiter.DefaultCost)),
		"a cost":          pay("i", "1", member("monthly", 5)),
		"no such kind":    {Limit: "calls", From: "alice", To: "bob", Amount: "1", ID: "i"},
		"to itself":       {Limit: "daily", From: "alice", To: "alice", Amount: "1", ID: "i"},
		"no from":         {Limit: "daily", To: "bob", Amount: "1", ID: "i"},
		"no to":           {Limit: "daily", From: "alice", Amount: "1", ID: "i"},
		"control":         {Limit: "daily", From: "alice", To: "b\nb", Amount: "1", ID: "i"},
		"too many limits": pay("i", "1", make([]limiter.Member, limiter.MaxMembers)...),
	}
	for name, row := range rows {
		_, err := b.Transfer(context.Background(), row)
		e, ok := errors.AsType[*limiter.Error](err)
		if !ok || e.Code != limiter.CodeBadRequest {
			t.Errorf("%s: got %v, want a bad request", name, err)
		}
	}
	b.refuse(t, pay("i", "1", member("nope", 1)), limiter.CodeUnknownLimit)
	wantCode(t, b.Limiter, one("daily", "alice", 1), limiter.CodeBadRequest)
	wantCode(t, b.Limiter, one("daily", "alice", 0), limiter.CodeBadRequest)
	b.wantFunds(t, "alice", "10.00")
	if d := b.transfer(t, pay("i", "1")); !d.Allowed || d.Replayed {
		t.Errorf("the id of bad requests: got %+v, want allowed", d)
	}
}

// A lost reply is answered as an outcome that the same id tells; what was done is done once.
func TestTransferLostReplies(t *testing.T) {
	b := newBank(t)
	b.deposit(t, "alice", "100")
	b.deposit(t, "bob", "1")
	for i, fault := range []ledgertest.Fault{
		{On: ledgertest.CallCreateTransfers, After: ledgers.ErrClosed},
		{On: ledgertest.CallCreateTransfers, Before: ledgers.ErrClosed},
		{On: ledgertest.CallLookupAccounts, Before: ledgers.ErrClosed},
	} {
		b.transfer(t, pay(fmt.Sprint("warm ", i), "0.01"))
		b.faulty.Inject(fault)
		id := fmt.Sprint("lost ", i)
		e := b.refuse(t, pay(id, "10"), limiter.CodeLedgerUnavailable)
		if !strings.Contains(e.Detail, untold) || e.NewIDRequired {
			t.Errorf("got %+v, want the outcome unknown", e)
		}
		d := b.transfer(t, pay(id, "10"))
		if !d.Allowed || d.Replayed != (i == 0) {
			t.Errorf("fault %d, the id again: got %+v, want allowed, once", i, d)
		}
		again := b.transfer(t, pay(id, "10"))
		if !again.Replayed || again.Transfer != d.Transfer || !again.At.Equal(d.At) {
			t.Errorf("fault %d, and again: got %+v, want a replay of %+v", i, again, d)
		}
	}
	b.wantFunds(t, "alice", "69.97")
	wantBalance(t, b.Limiter, "daily", "alice", 1_000_00, 30_03, 969_97)

	// Once the ledger has decided, its decision stands without figures.
	heal := b.faulty.Inject(ledgertest.Fault{
		On: ledgertest.CallLookupAccounts, Skip: 1, Times: ledgertest.Always,
		Before: ledgers.ErrClosed,
	})
	d := b.transfer(t, pay("blind", "1"))
	heal()
	if !d.Allowed || d.Limits[0].Known {
		t.Errorf("balances that cannot be read: got %+v, want allowed without figures", d)
	}
}

// What commits after the deadline stands, though the limit is closed: the same id tells.
func TestTransferCommitsLate(t *testing.T) {
	b := newBank(t)
	b.deposit(t, "alice", "100")
	b.deposit(t, "bob", "1")
	hasty := func(id string) limiter.Transfer {
		return limiter.Transfer{Limit: "hasty", From: "alice", To: "bob", Amount: "10", ID: id}
	}
	for { // until the accounts exist within the deadline, so that the fault strikes the transfer
		_, err := b.Transfer(context.Background(), hasty("first"))
		if err == nil {
			break
		}
	}
	late := make(chan struct{})
	b.faulty.Inject(ledgertest.Fault{
		On: ledgertest.CallCreateTransfers, WaitBefore: ledgertest.Until(late),
	})
	e := b.refuse(t, hasty("late"), limiter.CodeLedgerUnavailable)
	if !strings.Contains(e.Detail, untold) {
		t.Errorf("got %+v, want the outcome unknown", e)
	}
	b.wantFunds(t, "alice", "90.00")
	close(late)
	for {
		d, err := b.Transfer(context.Background(), hasty("late"))
		if err == nil && d.Allowed {
			break
		}
	}
	b.wantFunds(t, "alice", "80.00")
	wantBalance(t, b.Limiter, "hasty", "alice", 1_000_00, 20_00, 980_00)
}

// Concurrent transfers between accounts with limits: totals are conserved to the
// unit, and what was taken from each limit is what its subject paid, never more than the quota.
func TestTransferStorm(t *testing.T) {
	const subjects, workers = 100, 64
	b := newBank(t)
	name := func(i int) string { return fmt.Sprint("subject ", i) }
	for i := range subjects {
		b.deposit(t, name(i), "1500")
	}
	random := rand.New(rand.NewPCG(3, 4))
	paid, got := make([]atomic.Int64, subjects), make([]atomic.Int64, subjects)
	var allowed, denied, poor atomic.Int64
	work := make(chan func())
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for job := range work {
				job()
			}
		})
	}
	for i := range rounds(2_000, 10_000) {
		from, to := random.IntN(subjects), random.IntN(subjects)
		if from == to {
			to = (to + 1) % subjects
		}
		cents := int64(1 + random.IntN(100_00))
		work <- func() {
			amount := fmt.Sprintf("%d.%02d", cents/100, cents%100)
			d, err := b.Transfer(context.Background(), limiter.Transfer{
				Limit: "daily", From: name(from), To: name(to), Amount: amount, ID: fmt.Sprint(i),
			})
			e, isError := errors.AsType[*limiter.Error](err)
			switch {
			case isError && e.Code == limiter.CodeInsufficientFunds:
				poor.Add(1)
			case err != nil:
				t.Error(err)
			case d.Allowed:
				allowed.Add(1)
				paid[from].Add(cents)
				got[to].Add(cents)
			default:
				denied.Add(1)
			}
		}
	}
	close(work)
	group.Wait()
	t.Logf("%d allowed, %d denied, %d insufficient", allowed.Load(), denied.Load(), poor.Load())
	if allowed.Load() == 0 || denied.Load() == 0 {
		t.Error("want some allowed and some denied")
	}
	for i := range subjects {
		used, quota := uint64(paid[i].Load()), uint64(1_000_00)
		if used > quota {
			t.Fatalf("%s paid %d, its limit is %d", name(i), used, quota)
		}
		wantBalance(t, b.Limiter, "daily", name(i), quota, used, quota-used)
		left := 1_500_00 - paid[i].Load() + got[i].Load()
		b.wantFunds(t, name(i), fmt.Sprintf("%d.%02d", left/100, left%100))
	}
}

// A transfer is replayed for ever, also when its further limits have left the config; another one
// under its id is a conflict, and a new one cannot be made.
func TestTransferOutlivesItsLimits(t *testing.T) {
	b := newBank(t)
	b.deposit(t, "alice", "1000.00")
	b.deposit(t, "bob", "1.00")
	calls := limiter.Member{Limit: "calls", Subject: "site", Cost: limiter.DefaultCost}
	monthly := limiter.Member{Limit: "monthly", Cost: limiter.DefaultCost}
	costly := limiter.Member{Limit: "calls", Subject: "site", Cost: 2}
	first := b.transfer(t, pay("p", "10.00", calls, monthly))
	priced := b.transfer(t, pay("priced", "10.00", costly))
	twice := b.transfer(t, pay("twice", "10.00", calls, calls))
	all := b.Limits()
	set := func(without ...string) {
		t.Helper()
		rules := limiter.Rules{Assets: all.Assets()}
		for _, l := range all.All() {
			if !slices.Contains(without, l.Name) {
				rules.Limits = append(rules.Limits, l)
			}
		}
		set, err := limiter.NewRules(rules)
		if err != nil {
			t.Fatal(err)
		}
		b.SetLimits(set)
	}
	for left, gone := range map[int][]string{2: {"calls"}, 1: {"calls", "monthly"}} {
		set(gone...)
		d := b.transfer(t, pay("p", "10.00", calls, monthly))
		if !d.Allowed || !d.Replayed || d.Transfer != first.Transfer || !d.At.Equal(first.At) ||
			len(d.Limits) != left || d.Limits[0].Remaining != 970_00 {
			t.Errorf("without %v: got %+v, want a replay that names %d limits", gone, d, left)
		}
		d = b.transfer(t, pay("priced", "10.00", costly))
		if !d.Replayed || d.Transfer != priced.Transfer {
			t.Errorf("without %v: got %+v, want a replay of %+v", gone, d, priced)
		}
		d = b.transfer(t, pay("twice", "10.00", calls, calls))
		if !d.Replayed || d.Transfer != twice.Transfer {
			t.Errorf("without %v: got %+v, want a replay of %+v", gone, d, twice)
		}
		b.refuse(t, pay("p", "10.01", calls, monthly), limiter.CodeIDConflict)
		b.refuse(t, pay("p", "10.00", costly, monthly), limiter.CodeIDConflict)
		b.refuse(t, pay("p", "10.00", monthly, calls, limiter.Member{Limit: "x", Cost: 1}),
			limiter.CodeIDConflict)
		b.refuse(t, pay("new", "10.00", calls), limiter.CodeUnknownLimit)
	}
	b.faulty.Inject(ledgertest.Fault{
		On: ledgertest.CallLookupTransfers, Before: ledgers.ErrClosed,
	})
	e := b.refuse(t, pay("p", "10.00", calls, monthly), limiter.CodeLedgerUnavailable)
	if !strings.Contains(e.Detail, untold) {
		t.Errorf("got %+v, want the outcome unknown", e)
	}
	set("daily")
	b.refuse(t, pay("p", "10.00", calls, monthly), limiter.CodeUnknownLimit)
	set()
	if d := b.transfer(t, pay("new", "10.00")); !d.Allowed || d.Replayed {
		t.Errorf("the id that was refused as unknown: got %+v, want it made", d)
	}
	b.wantFunds(t, "alice", "960.00")
}

// A limit that is only tried out leaves nothing in the chain of a transfer, nor is it missed.
func TestTransferOutlivesTriedLimits(t *testing.T) {
	b := newBank(t)
	b.deposit(t, "alice", "1000.00")
	b.deposit(t, "bob", "1.00")
	before, tried := b.Limits(), rate("tried", 5, day)
	tried.Shadow = true
	with, err := limiter.NewRules(limiter.Rules{
		Assets: before.Assets(), Limits: append(before.All(), tried),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.SetLimits(with)
	request := pay("p", "10.00", limiter.Member{Limit: "tried", Cost: limiter.DefaultCost})
	first := b.transfer(t, request)
	b.SetLimits(before)
	again := b.transfer(t, request)
	if !again.Replayed || again.Transfer != first.Transfer || len(again.Limits) != 1 {
		t.Errorf("got %+v, want a replay of %+v", again, first)
	}
}

// A slot that a transfer took would never come back: nothing ends a transfer.
func TestTransferTakesNoSlots(t *testing.T) {
	b := newBank(t)
	b.deposit(t, "alice", "100.00")
	b.deposit(t, "bob", "1.00")
	b.refuse(t, pay("p", "1.00", limiter.Member{Limit: "slots", Cost: limiter.DefaultCost}),
		limiter.CodeBadRequest)
	wantBalance(t, b.Limiter, "slots", "alice", 2, 0, 2)
	b.wantFunds(t, "alice", "100.00")
}

// A refused id stays refused when the money is there, and what is said of it is true.
func TestRefusedTransferSaysSo(t *testing.T) {
	b := newBank(t)
	b.deposit(t, "alice", "5.00")
	b.deposit(t, "bob", "1.00")
	b.refuse(t, pay("p", "10.00"), limiter.CodeInsufficientFunds)
	b.deposit(t, "alice", "50.00")
	e := b.refuse(t, pay("p", "10.00"), limiter.CodeInsufficientFunds)
	if !e.NewIDRequired || e.Detail != `id "p" was refused before and stays refused` {
		t.Errorf("got %+v, want that the id stays refused, and no word about today's funds", e)
	}
	b.wantFunds(t, "alice", "55.00")
}
