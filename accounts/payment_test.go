package accounts_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle"
	"weir/ledgers/tigerbeetle/tbtest"
)

var usd = accounts.Asset{Code: "USD", Ledger: accounts.AssetLedger("USD")}

// bank is a ledger with money on it, the embedded one or a real TigerBeetle.
type bank struct {
	driver    ledgers.Driver
	namespace accounts.Namespace
	book      *accounts.Book
	advance   func(time.Duration)
}

// paymentTests are what holds on every ledger.
var paymentTests = []struct {
	name string
	test func(t *testing.T, b bank)
}{
	{"Entries", testPaymentEntries},
	{"OverTheLimit", testPaymentOverTheLimit},
	{"Insufficient", testPaymentInsufficient},
	{"Unknown", testPaymentUnknown},
	{"Conflict", testPaymentConflict},
	{"SeveralLimits", testPaymentSeveralLimits},
	{"BehindALowering", testPaymentBehindALowering},
	{"Deposits", testDepositOutcomes},
	{"Bound", testMoneyBound},
	{"Marks", testMoneyMarks},
	{"Unmarked", testMoneyUnmarked},
	{"Storm", testPaymentStorm},
}

func TestPayments(t *testing.T) {
	for _, test := range paymentTests {
		t.Run(test.name, func(t *testing.T) {
			clock := newClock()
			driver := openLedger(t, clock)
			advance := func(d time.Duration) {
				clock.Advance(d + time.Millisecond) // each event has a nanosecond of its own
			}
			test.test(t, bank{driver, namespace, newBook(t, driver, clock), advance})
		})
	}
}

// The same on a real TigerBeetle, where one is at hand: one for all, each in its own namespace.
func TestPaymentsOnTigerBeetle(t *testing.T) {
	cluster := tbtest.Start(t, tbtest.Development)
	server, err := tigerbeetle.Open(cluster.Addresses(), cluster.ID(), nil)
	if errors.Is(err, tigerbeetle.ErrNoCgo) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := server.Close()
		if err != nil {
			t.Error(err)
		}
	})
	advance := func(d time.Duration) {
		// tidy:sleep a real server's clock cannot be moved; it gives units back some ms late
		time.Sleep(d + 100*time.Millisecond)
	}
	for i, test := range paymentTests {
		t.Run(test.name, func(t *testing.T) {
			driver, own := ledgertest.Checked(t, server), accounts.Namespace{byte(i)}
			book, err := accounts.NewBook(driver, own, nil)
			if err != nil {
				t.Fatal(err)
			}
			test.test(t, bank{driver, own, book, advance})
		})
	}
}

func units(n uint64) ledgers.Amount { return ledgers.AmountOf(n) }

func (b bank) deposit(t testing.TB, id, subject string, amount uint64) accounts.Result {
	t.Helper()
	result, err := b.book.Deposit(context.Background(), id, usd, subject, units(amount))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (b bank) withdraw(t testing.TB, id, subject string, amount uint64) accounts.Result {
	t.Helper()
	result, err := b.book.Withdraw(context.Background(), id, usd, subject, units(amount))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// payment is one from alice to bob that takes its amount from limits.
func (b bank) payment(amount uint64, limits ...accounts.Limit) accounts.Payment {
	p := accounts.Payment{Asset: usd, From: "alice", To: "bob", Amount: units(amount)}
	for _, l := range limits {
		p.Charges = append(p.Charges, b.book.NewCharge(l, "alice", amount))
	}
	return p
}

func (b bank) pay(t testing.TB, id string, p accounts.Payment) accounts.Result {
	t.Helper()
	result, err := b.book.Pay(context.Background(), id, p)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (b bank) wantFunds(t testing.TB, subject string, want uint64) {
	t.Helper()
	got, known, err := b.book.Funds(context.Background(), usd, subject)
	if err != nil {
		t.Fatal(err)
	}
	if !known || got != units(want) {
		t.Fatalf("funds of %s: got %s (known %t), want %d", subject, got, known, want)
	}
}

func (b bank) wantUsed(t testing.TB, limit accounts.Limit, used uint64) {
	t.Helper()
	c := b.book.NewCharge(limit, "alice", 0)
	wantBalance(t, b.book, c, limit.Quota, used, limit.Quota-used)
}

// The entries of a payment are the recipe's: a charge on the limit's ledger and, last, the money.
func testPaymentEntries(t *testing.T, b bank) {
	daily := limitOf("daily", 100_000, 3600)
	opened := b.deposit(t, "in", "alice", 100_000)
	b.deposit(t, "in", "bob", 1)

	result := b.pay(t, "p", b.payment(99_999, daily))

	wantOutcome(t, result, accounts.Accepted)
	if result.Transfer != b.namespace.MoneyTransfer("USD", "alice", "p") {
		t.Errorf("receipt: got %s, want the id of the money transfer", result.Transfer)
	}
	alice, bob := b.namespace.MoneyAccount("USD", "alice"), b.namespace.MoneyAccount("USD", "bob")
	entries := transfers(t, b.driver, alice)
	if len(entries) != 2 {
		t.Fatalf("entries of the money: got %d, want 2", len(entries))
	}
	in, paid := entries[0], entries[1]
	if in.ID != opened.Transfer || in.DebitAccountID != b.namespace.TreasuryAccount("USD") ||
		in.Code != accounts.CodeDeposit || in.Flags != 0 || in.Ledger != usd.Ledger {
		t.Errorf("deposit entry: got %+v", in)
	}
	if paid.ID != result.Transfer || paid.CreditAccountID != bob || paid.Flags != 0 ||
		paid.Amount != units(99_999) || paid.Code != accounts.CodePayment ||
		paid.Timestamp != result.Timestamp || paid.UserData128 == (ledgers.Amount{}) {
		t.Errorf("payment entry: got %+v, want it to be %+v", paid, result)
	}
	taken := transfers(t, b.driver, b.book.NewCharge(daily, "alice", 0).Account())[1]
	if taken.ID != b.namespace.MemberTransfer(result.Transfer, 1) || taken.Timeout != 3600 ||
		taken.Flags != ledgers.Pending|ledgers.Linked || taken.Amount != units(99_999) ||
		taken.Code != accounts.CodeCharge || taken.Ledger != daily.Ledger {
		t.Errorf("charge entry: got %+v", taken)
	}
	b.wantUsed(t, daily, 99_999)
	b.wantFunds(t, "alice", 1)
	b.wantFunds(t, "bob", 100_000)
}

// 1,000 USD a day: 999.99 passes, 0.02 more does not and leaves both ledgers as they are, and it
// passes when the window lets it, under another id.
func testPaymentOverTheLimit(t *testing.T, b bank) {
	daily := limitOf("daily", 100_000, 2)
	b.deposit(t, "in", "alice", 500_000)
	b.deposit(t, "in", "bob", 1)
	first := b.pay(t, "p-1", b.payment(99_999, daily))
	wantOutcome(t, first, accounts.Accepted)

	refused := b.pay(t, "p-2", b.payment(2, daily))
	wantOutcome(t, refused, accounts.Refused)
	if refused.Refused != 0 || refused.Burnt || !refused.Transfer.IsZero() {
		t.Errorf("got %+v, want the charge refused for the first time", refused)
	}
	b.wantUsed(t, daily, 99_999)
	b.wantFunds(t, "alice", 400_001)

	b.advance(2 * time.Second)
	again := b.pay(t, "p-2", b.payment(2, daily))
	if again.Outcome != accounts.Refused || !again.Burnt {
		t.Errorf("the refused id again: got %+v, want it refused", again)
	}
	wantOutcome(t, b.pay(t, "p-3", b.payment(2, daily)), accounts.Accepted)
	b.wantFunds(t, "alice", 399_999)
	b.wantFunds(t, "bob", 100_002)

	// The first id replays after its window, whatever the window is by now.
	longer := daily
	longer.WindowSeconds = 86_400
	for _, limit := range []accounts.Limit{daily, longer} {
		replay := b.pay(t, "p-1", b.payment(99_999, limit))
		wantOutcome(t, replay, accounts.Replayed)
		if replay.Transfer != first.Transfer || replay.Timestamp != first.Timestamp {
			t.Errorf("got %+v, want the receipt and time of %+v", replay, first)
		}
	}
	b.wantFunds(t, "alice", 399_999)
}

// Too little money leaves the limit untouched; the id stays refused, another one passes.
func testPaymentInsufficient(t *testing.T, b bank) {
	daily := limitOf("daily", 100_000, 3600)
	b.deposit(t, "in", "alice", 100)
	b.deposit(t, "in", "bob", 1)
	got := b.pay(t, "p-1", b.payment(101, daily))
	if got.Outcome != accounts.Insufficient || got.Burnt || !got.Transfer.IsZero() {
		t.Fatalf("got %+v, want insufficient funds for the first time", got)
	}
	b.wantUsed(t, daily, 0)
	b.wantFunds(t, "alice", 100)

	b.deposit(t, "more", "alice", 100)
	for _, amount := range []uint64{101, 1} {
		got = b.pay(t, "p-1", b.payment(amount, daily))
		if got.Outcome != accounts.Insufficient || !got.Burnt {
			t.Errorf("the id again with %d: got %+v, want it refused for ever", amount, got)
		}
	}
	b.wantUsed(t, daily, 0)
	wantOutcome(t, b.pay(t, "p-2", b.payment(101, daily)), accounts.Accepted)

	// Where units and money lack both, the limit is named.
	got = b.pay(t, "p-3", b.payment(99_950, daily))
	wantOutcome(t, got, accounts.Refused)
	b.wantFunds(t, "alice", 99)
}

// An account that was never given money burns no id.
func testPaymentUnknown(t *testing.T, b bank) {
	daily := limitOf("daily", 100, 3600)
	wantOutcome(t, b.pay(t, "p", b.payment(5, daily)), accounts.FromUnknown)
	b.deposit(t, "in", "alice", 100)
	wantOutcome(t, b.pay(t, "p", b.payment(5, daily)), accounts.ToUnknown)
	_, known, err := b.book.Funds(context.Background(), usd, "bob")
	if err != nil || known {
		t.Errorf("funds of bob: got known %t, %v, want unknown", known, err)
	}
	wantOutcome(t, b.withdraw(t, "out", "bob", 1), accounts.FromUnknown)
	b.deposit(t, "in", "bob", 1)
	wantOutcome(t, b.pay(t, "p", b.payment(5, daily)), accounts.Accepted)
	b.wantUsed(t, daily, 5)

	// An id that was used is answered as such, though the one to be paid is unknown.
	p := b.payment(5, daily)
	p.To = "carol"
	wantOutcome(t, b.pay(t, "p", p), accounts.Conflict)
}

// Whatever differs from the payment that was made under an id is a conflict, also where it would be
// refused today.
func testPaymentConflict(t *testing.T, b bank) {
	daily, weekly := limitOf("daily", 100, 3600), limitOf("weekly", 1, 3600)
	b.deposit(t, "in", "alice", 120)
	b.deposit(t, "in", "bob", 1)
	b.deposit(t, "in", "carol", 1)
	wantOutcome(t, b.pay(t, "p", b.payment(60, daily)), accounts.Accepted)
	wantOutcome(t, b.pay(t, "bare", b.payment(10)), accounts.Accepted)

	other := b.payment(60, daily)
	other.To = "carol"
	for name, p := range map[string]accounts.Payment{
		"less":             b.payment(59, daily),
		"more than is":     b.payment(90, daily),
		"another limit":    b.payment(60, weekly),
		"one limit more":   b.payment(60, daily, weekly),
		"no limit":         b.payment(60),
		"another receiver": other,
	} {
		got := b.pay(t, "p", p)
		if got.Outcome != accounts.Conflict {
			t.Errorf("%s: got %+v, want a conflict", name, got)
		}
	}
	// Here the charge is not there to say so: only the money is.
	wantOutcome(t, b.pay(t, "bare", b.payment(50, daily)), accounts.Conflict)
	wantOutcome(t, b.pay(t, "bare", b.payment(10)), accounts.Replayed)
	wantOutcome(t, b.pay(t, "p", b.payment(60, daily)), accounts.Replayed)
	b.wantUsed(t, daily, 60)
	b.wantFunds(t, "alice", 50)
	// Another subject may use the same id.
	back := accounts.Payment{Asset: usd, From: "bob", To: "alice", Amount: units(1)}
	wantOutcome(t, b.pay(t, "p", back), accounts.Accepted)
}

// Several limits are charged all or none, and the one that lacks is named, in both orders.
func testPaymentSeveralLimits(t *testing.T, b bank) {
	daily, weekly := limitOf("daily", 100, 3600), limitOf("weekly", 150, 3600)
	b.deposit(t, "in", "alice", 1000)
	b.deposit(t, "in", "bob", 1)
	first := b.pay(t, "p", b.payment(90, daily, weekly))
	wantOutcome(t, first, accounts.Accepted)
	replay := b.pay(t, "p", b.payment(90, weekly, daily))
	wantOutcome(t, replay, accounts.Replayed)
	wantOutcome(t, b.pay(t, "w", b.payment(60, weekly)), accounts.Accepted)
	for i, limits := range [][]accounts.Limit{{weekly, daily}, {daily, weekly}} {
		id := fmt.Sprint("no ", i)
		got := b.pay(t, id, b.payment(1, limits...))
		if got.Outcome != accounts.Refused || got.Refused != i {
			t.Errorf("got %+v, want refused by member %d, weekly", got, i)
		}
		got = b.pay(t, id, b.payment(1, limits...))
		if got.Outcome != accounts.Refused || !got.Burnt {
			t.Errorf("again: got %+v, want it refused", got)
		}
	}
	b.wantUsed(t, daily, 90)
	b.wantUsed(t, weekly, 150)
	b.wantFunds(t, "alice", 850)
}

// A lowering that is still to be taken comes ahead of a payment's charges as of a check's.
func testPaymentBehindALowering(t *testing.T, b bank) {
	daily := limitOf("daily", 100, 2)
	b.deposit(t, "in", "alice", 1000)
	b.deposit(t, "in", "bob", 1)
	wantOutcome(t, b.pay(t, "p-1", b.payment(80, daily)), accounts.Accepted)
	lower := revised(daily, 1, 50)
	wantOutcome(t, b.pay(t, "p-2", b.payment(1, lower)), accounts.Refused)
	b.advance(2 * time.Second)
	wantOutcome(t, b.pay(t, "p-3", b.payment(51, lower)), accounts.Refused)
	wantOutcome(t, b.pay(t, "p-4", b.payment(50, lower)), accounts.Accepted)
	wantOutcome(t, b.pay(t, "p-5", b.payment(1, lower)), accounts.Refused)
	b.wantUsed(t, lower, 50)
	b.wantFunds(t, "alice", 870)
}

func testDepositOutcomes(t *testing.T, b bank) {
	first := b.deposit(t, "d", "alice", 10)
	wantOutcome(t, first, accounts.Accepted)
	again := b.deposit(t, "d", "alice", 10)
	wantOutcome(t, again, accounts.Replayed)
	if again.Transfer != first.Transfer || again.Timestamp != first.Timestamp {
		t.Errorf("replay: got %+v, want the receipt and time of %+v", again, first)
	}
	wantOutcome(t, b.deposit(t, "d", "alice", 11), accounts.Conflict)
	wantOutcome(t, b.withdraw(t, "d", "alice", 10), accounts.Conflict)
	wantOutcome(t, b.deposit(t, "d", "bob", 10), accounts.Accepted)

	wantOutcome(t, b.withdraw(t, "w", "alice", 4), accounts.Accepted)
	wantOutcome(t, b.withdraw(t, "w", "alice", 4), accounts.Replayed)
	wantOutcome(t, b.withdraw(t, "w", "alice", 5), accounts.Conflict)
	wantOutcome(t, b.withdraw(t, "all", "alice", 7), accounts.Insufficient)
	b.deposit(t, "more", "alice", 1)
	burnt := b.withdraw(t, "all", "alice", 7)
	if burnt.Outcome != accounts.Insufficient || !burnt.Burnt {
		t.Errorf("the refused id again: got %+v, want it refused for ever", burnt)
	}
	wantOutcome(t, b.withdraw(t, "all 2", "alice", 7), accounts.Accepted)
	wantOutcome(t, b.withdraw(t, "all 2", "alice", 7), accounts.Replayed)
	b.wantFunds(t, "alice", 0)
}

// A subject holds up to 2^96-1 units, by deposits and by payments, and not one more.
func testMoneyBound(t *testing.T, b bank) {
	ctx := context.Background()
	daily := limitOf("daily", 100, 3600)
	most, err := b.book.Deposit(ctx, "all", usd, "bob", accounts.MaxMoney)
	if err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, most, accounts.Accepted)
	got, _, err := b.book.Funds(ctx, usd, "bob")
	if err != nil || got.String() != "79228162514264337593543950335" {
		t.Errorf("funds: got %s, %v, want 2^96-1", got, err)
	}
	wantOutcome(t, b.deposit(t, "one", "bob", 1), accounts.TooLarge)
	again, err := b.book.Deposit(ctx, "all", usd, "bob", accounts.MaxMoney)
	if err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, again, accounts.Replayed)

	b.deposit(t, "in", "alice", 10)
	wantOutcome(t, b.pay(t, "p", b.payment(1, daily)), accounts.TooLarge)
	b.withdraw(t, "out", "bob", 1)
	wantOutcome(t, b.pay(t, "p", b.payment(1, daily)), accounts.Accepted)
	wantOutcome(t, b.pay(t, "p", b.payment(1, daily)), accounts.Replayed)
	b.wantUsed(t, daily, 1)
}

// Every third reply is lost after the write, every seventh call before it: what is sent again under
// its id is paid once.
func TestPaymentLostReplies(t *testing.T) {
	clock := newClock()
	faulty := ledgertest.NewFaulty(openLedger(t, clock))
	b := bank{driver: faulty, namespace: namespace, book: newBook(t, faulty, clock)}
	daily := limitOf("daily", 150, 3600)
	heal := []func(){
		faulty.Inject(ledgertest.Fault{
			On: ledgertest.CallCreateTransfers, Every: 3, Times: ledgertest.Always,
			After: ledgers.ErrClosed,
		}),
		faulty.Inject(ledgertest.Fault{
			Every: 7, Times: ledgertest.Always, Before: ledgers.ErrClosed,
		}),
	}
	persist := func(try func() (accounts.Result, error)) accounts.Result {
		for range 20 {
			result, err := try()
			if err == nil {
				return result
			}
		}
		t.Fatal("20 tries failed")
		return accounts.Result{}
	}
	ctx := context.Background()
	for _, subject := range []string{"alice", "bob"} {
		persist(func() (accounts.Result, error) {
			return b.book.Deposit(ctx, "in", usd, subject, units(100))
		})
	}
	paid := 0
	for i := range 200 {
		result := persist(func() (accounts.Result, error) {
			return b.book.Pay(ctx, fmt.Sprint(i), b.payment(1, daily))
		})
		if result.Outcome == accounts.Accepted || result.Outcome == accounts.Replayed {
			paid++
		}
	}
	for _, heal := range heal {
		heal()
	}
	if paid != 100 {
		t.Errorf("paid: got %d, want all of the 100", paid)
	}
	b.wantUsed(t, daily, 100)
	b.wantFunds(t, "alice", 0)
	b.wantFunds(t, "bob", 200)
}

// forgetful is a ledger that once in a while forgets which pending transfers it was given, as one
// with a retention does with those that have timed out: it keeps them under other ids.
type forgetful struct {
	ledgers.Driver
	times uint64
}

func (f *forgetful) CreateTransfers(ctx context.Context, batch []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	batch = slices.Clone(batch)
	for i := range batch {
		if batch[i].Flags.Has(ledgers.Pending) {
			batch[i].ID.Lo ^= f.times
		}
	}
	return f.Driver.CreateTransfers(ctx, batch)
}

// A ledger that has forgotten what a payment took from its limits still knows the payment, also
// where the limit would refuse it today.
func TestPaymentPastRetention(t *testing.T) {
	clock := newClock()
	driver := &forgetful{Driver: openLedger(t, clock)}
	daily := limitOf("daily", 10, 60)
	b := bank{driver: driver, namespace: namespace, book: newBook(t, driver, clock)}
	b.deposit(t, "in", "alice", 100)
	b.deposit(t, "in", "bob", 1)
	first := b.pay(t, "first", b.payment(10, daily))
	wantOutcome(t, first, accounts.Accepted)
	clock.Advance(time.Hour)
	driver.times++
	for _, today := range []struct{ id, state string }{
		{"", "units and money are there"}, {"second", "the limit is used up"},
	} {
		if today.id != "" {
			wantOutcome(t, b.pay(t, today.id, b.payment(10, daily)), accounts.Accepted)
		}
		again := b.pay(t, "first", b.payment(10, daily))
		if again.Outcome != accounts.Replayed || again.Timestamp != first.Timestamp {
			t.Errorf("%s: got %+v, want a replay of %+v", today.state, again, first)
		}
		got := b.pay(t, "first", b.payment(9, daily))
		if got.Outcome != accounts.Conflict {
			t.Errorf("%s: got %+v, want a conflict", today.state, got)
		}
		driver.times++ // a refused id is not to be remembered either
	}
	b.wantFunds(t, "alice", 80)
}

// Concurrent payments among accounts with limits, over two books: no unit of money is made or lost,
// and each payer has paid exactly what its limit was charged for, never more than the quota.
func testPaymentStorm(t *testing.T, b bank) {
	count, subjects := 1_000, 100
	if os.Getenv("WEIR_LONG") == "1" {
		count = 10_000
	}
	const funds, quota, workers = 2_000, 1_500, 128
	other, err := accounts.NewBook(b.driver, b.namespace, &accounts.Options{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	books := []*accounts.Book{b.book, other}
	daily := limitOf("daily", quota, 3600)
	name := func(i int) string { return fmt.Sprint("subject ", i) }
	for i := range subjects {
		b.deposit(t, "in", name(i), funds)
	}
	random := rand.New(rand.NewPCG(1, 2))
	paid, got := make([]atomic.Int64, subjects), make([]atomic.Int64, subjects)
	var outcomes [accounts.ToUnknown + 1]atomic.Int64
	work := make(chan func())
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for job := range work {
				job()
			}
		})
	}
	for i := range count {
		// A tenth of the subjects pays most, so that quotas and funds run out.
		from, to := random.IntN(subjects), random.IntN(subjects-1)
		if i%4 != 0 {
			from /= 10
		}
		if to >= from {
			to++
		}
		amount := uint64(1 + random.IntN(100))
		work <- func() {
			book := books[i%2]
			result, err := book.Pay(context.Background(), fmt.Sprint(i), accounts.Payment{
				Asset: usd, From: name(from), To: name(to), Amount: units(amount),
				Charges: []accounts.Charge{book.NewCharge(daily, name(from), amount)},
			})
			if err != nil {
				t.Error(err)
				return
			}
			outcomes[result.Outcome].Add(1)
			if result.Outcome == accounts.Accepted {
				paid[from].Add(int64(amount))
				got[to].Add(int64(amount))
			}
		}
	}
	close(work)
	group.Wait()
	if outcomes[accounts.Accepted].Load() == 0 || outcomes[accounts.Refused].Load() == 0 {
		t.Errorf("accepted %d, refused %d: want some of each",
			outcomes[accounts.Accepted].Load(), outcomes[accounts.Refused].Load())
	}
	for i := range subjects {
		b.wantFunds(t, name(i), uint64(funds-paid[i].Load()+got[i].Load()))
		used := uint64(paid[i].Load())
		if used > quota {
			t.Errorf("%s paid %d within a window, its limit is %d", name(i), used, quota)
		}
		wantBalance(t, b.book, b.book.NewCharge(daily, name(i), 0), quota, used, quota-used)
	}
}

// What an asset's amounts mean is written down with its first money: an asset that is something
// else is told from it, and given no money. One that there is no money of may be anything.
func testMoneyMarks(t *testing.T, b bank) {
	ctx := context.Background()
	other, elsewhere := usd, usd
	other.Scale++
	elsewhere.Ledger++
	for _, a := range []accounts.Asset{usd, other, elsewhere} {
		err := b.book.CheckAssets(ctx, []accounts.Asset{a})
		if err != nil {
			t.Errorf("%+v without money: got %v, want it good", a, err)
		}
	}
	b.deposit(t, "d", "alice", 5)
	eur := accounts.Asset{Code: "EUR", Ledger: accounts.AssetLedger("EUR"), Scale: 2}
	err := b.book.CheckAssets(ctx, []accounts.Asset{eur, usd})
	if err != nil {
		t.Errorf("as it was: got %v, want it good", err)
	}
	for _, a := range []accounts.Asset{other, elsewhere} {
		wantError(t, b.book.CheckAssets(ctx, []accounts.Asset{eur, a}), accounts.ErrAsset)
		_, err = b.book.Deposit(ctx, "d", a, "bob", units(7))
		wantError(t, err, accounts.ErrAsset)
	}
	_, known, err := b.book.Funds(ctx, usd, "bob")
	if err != nil || known {
		t.Errorf("bob: got known %t, %v, want nobody", known, err)
	}
	b.deposit(t, "d", "bob", 7)
}

// A treasury that was opened before scales were written down has any.
func testMoneyUnmarked(t *testing.T, b bank) {
	_, err := b.driver.CreateAccounts(t.Context(), []ledgers.Account{{
		ID: b.namespace.TreasuryAccount(usd.Code), Ledger: usd.Ledger,
		Code: accounts.AccountTreasury,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, scale := range []int{0, 2} {
		a := usd
		a.Scale = scale
		err = b.book.CheckAssets(t.Context(), []accounts.Asset{a})
		if err != nil {
			t.Errorf("scale %d: got %v, want it good", scale, err)
		}
		_, err = b.book.Deposit(t.Context(), "d", a, fmt.Sprint("subject ", scale), units(1))
		if err != nil {
			t.Errorf("scale %d: got %v, want a deposit", scale, err)
		}
	}
}
