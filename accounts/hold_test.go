package accounts_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/accounts"
	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/ledgers/ledgertest"
	"weir/ledgers/tigerbeetle"
	"weir/ledgers/tigerbeetle/tbtest"
)

// desk is a ledger on which units are reserved, the embedded one or a real TigerBeetle.
type desk struct {
	driver    ledgers.Driver
	namespace accounts.Namespace
	book      *accounts.Book
	// stranger opens another book on the ledger, which knows nothing.
	stranger func() *accounts.Book
	advance  func(time.Duration)
}

// Limits that units are reserved from.
var (
	spend   = limitOf("spend", 100, 60)
	slots   = limitOf("slots", 5, 0)
	prepaid = accounts.Limit{
		Name: "prepaid", Ledger: accounts.LedgerNumber("prepaid"), Quota: 50, Posted: true,
	}
	holdLimits = []accounts.Limit{spend, slots, prepaid}
)

func onLedger(ledger uint32) (accounts.Limit, bool) {
	for _, l := range holdLimits {
		if l.Ledger == ledger {
			return l, true
		}
	}
	return accounts.Limit{}, false
}

// holdTests are what holds on every ledger.
var holdTests = []struct {
	name string
	test func(t *testing.T, d desk)
}{
	{"SettleWithin", testSettleWithin},
	{"SettleAbove", testSettleAbove},
	{"SettleNothing", testSettleNothing},
	{"SettleLate", testSettleLate},
	{"SettleLateOfSeveral", testSettleLateOfSeveral},
	{"Release", testRelease},
	{"ReleaseOfChecks", testReleaseOfChecks},
	{"Renew", testRenew},
	{"Several", testSettleSeveral},
	{"Moved", testMoved},
	{"LateOverage", testLateOverage},
	{"Race", testEndsRace},
	{"Names", testHoldNames},
	{"Strangers", testHoldStrangers},
	{"Retries", testHoldRetries},
	{"Notes", testNotes},
	{"Corrections", testCorrections},
}

func TestHolds(t *testing.T) {
	for _, test := range holdTests {
		t.Run(test.name, func(t *testing.T) {
			test.test(t, newDesk(t, newClock()))
		})
	}
}

func newDesk(t testing.TB, clock *testClock) desk {
	t.Helper()
	driver := openLedger(t, clock)
	return desk{
		driver: driver, namespace: namespace, book: newBook(t, driver, clock),
		stranger: func() *accounts.Book { return newBook(t, driver, clock) },
		advance:  func(d time.Duration) { clock.Advance(d + time.Millisecond) },
	}
}

// The same on a real TigerBeetle, where one is at hand: one for all, each in its own namespace.
func TestHoldsOnTigerBeetle(t *testing.T) {
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
	for i, test := range holdTests {
		t.Run(test.name, func(t *testing.T) {
			d := desk{driver: ledgertest.Checked(t, server), namespace: accounts.Namespace{7, byte(i)}}
			d.stranger = func() *accounts.Book {
				book, err := accounts.NewBook(d.driver, d.namespace, nil)
				if err != nil {
					t.Fatal(err)
				}
				return book
			}
			d.advance = func(wait time.Duration) {
				// tidy:sleep a real server's clock cannot be moved; it gives units back some ms late
				time.Sleep(wait + 100*time.Millisecond)
			}
			d.book = d.stranger()
			test.test(t, d)
		})
	}
}

// hold reserves and fails the test unless that is accepted.
func (d desk) hold(t testing.TB, id string, seconds uint32, charges ...accounts.Charge,
) accounts.Result {
	t.Helper()
	result := d.tryHold(t, id, seconds, charges...)
	wantOutcome(t, result, accounts.Accepted)
	return result
}

func (d desk) tryHold(t testing.TB, id string, seconds uint32, charges ...accounts.Charge,
) accounts.Result {
	t.Helper()
	attempt, err := d.book.NewHold(id, charges, seconds)
	if err != nil {
		t.Fatal(err)
	}
	result, err := d.book.Charge(context.Background(), attempt)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// of names units of alice's.
func (d desk) of(limit accounts.Limit, amount uint64) accounts.Charge {
	return d.book.NewCharge(limit, "alice", amount)
}

func find(t testing.TB, book *accounts.Book, receipt ledgers.ID) accounts.Hold {
	t.Helper()
	h, found, err := book.Hold(context.Background(), receipt, onLedger)
	if err != nil || !found {
		t.Fatalf("hold %s: got found %t, %v", receipt, found, err)
	}
	return h
}

// settle settles by the receipt alone; actual is by limit.
func settle(t testing.TB, book *accounts.Book, receipt ledgers.ID, actual map[string]uint64,
) (accounts.Hold, accounts.Settlement) {
	t.Helper()
	h := find(t, book, receipt)
	list := make([]uint64, len(h.Charges))
	for i, c := range h.Charges {
		list[i] = actual[c.Limit.Name]
	}
	s, err := book.Settle(context.Background(), h, list, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h, s
}

func release(t testing.TB, book *accounts.Book, receipt ledgers.ID) accounts.Result {
	t.Helper()
	result, err := book.Release(context.Background(), find(t, book, receipt))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func renew(t testing.TB, book *accounts.Book, receipt ledgers.ID, seconds uint32,
) accounts.Result {
	t.Helper()
	result, err := book.Renew(context.Background(), find(t, book, receipt), seconds)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// wantOverage compares what alice used beyond a quota.
func (d desk) wantOverage(t testing.TB, limit accounts.Limit, want uint64) {
	t.Helper()
	got, err := d.stranger().Overages(context.Background(), d.of(limit, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got[0] != want {
		t.Fatalf("overage on %s: got %d, want %d", limit.Name, got[0], want)
	}
}

// wantUsed compares alice's balance as a book reads it that knows nothing.
func (d desk) wantUsed(t testing.TB, limit accounts.Limit, used uint64) {
	t.Helper()
	book := d.stranger()
	wantBalance(t, book, book.NewCharge(limit, "alice", 0), limit.Quota, used, limit.Quota-used)
}

// The entries of a settlement are the recipe's, under the ids that are promised.
func testSettleWithin(t *testing.T, d desk) {
	held := d.hold(t, "id", 10, d.of(spend, 30))
	d.wantUsed(t, spend, 30)
	_, s := settle(t, d.stranger(), held.Transfer, map[string]uint64{"spend": 12})
	wantOutcome(t, s.Result, accounts.Accepted)
	if s.Late || s.Booked[0] != 12 || s.Overage[0] != 0 {
		t.Errorf("settlement: got %+v, want 12 booked in time", s)
	}
	d.wantUsed(t, spend, 12)
	d.wantOverage(t, spend, 0)

	entries := transfers(t, d.driver, d.of(spend, 0).Account())
	if len(entries) != 4 {
		t.Fatalf("entries: got %d, want quota, hold, void, settlement", len(entries))
	}
	hold, void, booked := entries[1], entries[2], entries[3]
	end := d.namespace.EndTransfer(hold.ID)
	if hold.ID != held.Transfer || hold.Code != accounts.CodeHold || hold.Timeout != 10 ||
		hold.Flags != ledgers.Pending || held.ExpiresAt != hold.Timestamp+10e9 {
		t.Errorf("hold: got %+v, of %+v", hold, held)
	}
	if void.ID != end || void.PendingID != hold.ID || !void.Flags.Has(ledgers.VoidPending) {
		t.Errorf("void: got %+v", void)
	}
	if booked.ID != d.namespace.MemberTransfer(end, 1) || booked.Amount != units(12) ||
		booked.Code != accounts.CodeSettlement || booked.Timeout < 59 || booked.Timeout > 60 {
		t.Errorf("booking: got %+v", booked)
	}

	_, again := settle(t, d.stranger(), held.Transfer, map[string]uint64{"spend": 12})
	wantOutcome(t, again.Result, accounts.Replayed)
	_, other := settle(t, d.book, held.Transfer, map[string]uint64{"spend": 13})
	wantOutcome(t, other.Result, accounts.Ended)
	wantOutcome(t, release(t, d.book, held.Transfer), accounts.Ended)
	wantOutcome(t, renew(t, d.book, held.Transfer, 10), accounts.Ended)
	wantOutcome(t, d.tryHold(t, "id", 10, d.of(spend, 30)), accounts.Ended)
	d.wantUsed(t, spend, 12)
}

// More than was held is booked as far as the quota has it; the rest is overage, read back by a
// replay.
func testSettleAbove(t *testing.T, d desk) {
	within := d.hold(t, "", 10, d.of(spend, 10))
	_, s := settle(t, d.stranger(), within.Transfer, map[string]uint64{"spend": 35})
	if s.Booked[0] != 35 || s.Overage[0] != 0 {
		t.Errorf("35 of 100: got %+v", s)
	}
	d.wantUsed(t, spend, 35)

	above := d.hold(t, "", 10, d.of(spend, 10))
	for range 2 {
		_, s = settle(t, d.stranger(), above.Transfer, map[string]uint64{"spend": 85})
		if s.Late || s.Booked[0] != 85 || s.Overage[0] != 20 {
			t.Errorf("85 with 65 left: got %+v, want 20 overage", s)
		}
	}
	wantOutcome(t, s.Result, accounts.Replayed)
	d.wantUsed(t, spend, 100)
	d.wantOverage(t, spend, 20)
	wantOutcome(t, d.tryHold(t, "", 10, d.of(spend, 1)), accounts.Refused)
}

func testSettleNothing(t *testing.T, d desk) {
	held := d.hold(t, "", 10, d.of(spend, 30))
	_, s := settle(t, d.book, held.Transfer, nil)
	wantOutcome(t, s.Result, accounts.Accepted)
	d.wantUsed(t, spend, 0)
	_, s = settle(t, d.stranger(), held.Transfer, nil)
	wantOutcome(t, s.Result, accounts.Replayed)
	if s.Late {
		t.Error("settled in time: got late")
	}
}

func testSettleLate(t *testing.T, d desk) {
	spend := spend
	spend.WindowSeconds = 4
	held := d.hold(t, "", 1, d.of(spend, 10))
	nothing := d.hold(t, "", 1, d.of(spend, 10))
	d.advance(1500 * time.Millisecond)
	d.wantUsed(t, spend, 0)
	wantOutcome(t, release(t, d.book, held.Transfer), accounts.Expired)
	wantOutcome(t, renew(t, d.book, held.Transfer, 5), accounts.Expired)
	for i, want := range []accounts.Outcome{accounts.Accepted, accounts.Replayed} {
		h := find(t, d.stranger(), held.Transfer)
		h.Charges[0].Limit = spend
		s, err := d.stranger().Settle(context.Background(), h, []uint64{7}, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, s.Result, want)
		if !s.Late || s.Booked[0] != 7 || s.Overage[0] != 0 {
			t.Errorf("settlement %d: got %+v, want 7 booked late", i, s)
		}
	}
	_, other := settle(t, d.book, held.Transfer, map[string]uint64{"spend": 8})
	wantOutcome(t, other.Result, accounts.Ended)
	wantOutcome(t, release(t, d.book, held.Transfer), accounts.Ended)
	d.wantUsed(t, spend, 7)
	d.wantOverage(t, spend, 0)

	_, s := settle(t, d.book, nothing.Transfer, nil)
	wantOutcome(t, s.Result, accounts.Accepted)
	_, s = settle(t, d.stranger(), nothing.Transfer, nil)
	wantOutcome(t, s.Result, accounts.Replayed)
	if !s.Late {
		t.Error("nothing used, settled late: got in time")
	}
	d.wantUsed(t, spend, 7)
	d.advance(3500 * time.Millisecond) // 5 s after it was held: a window and what rounding up takes
	d.wantUsed(t, spend, 0)
	d.wantOverage(t, spend, 0)
}

// Late, the first of several accounts may have used nothing, and another one more than there is.
func testSettleLateOfSeveral(t *testing.T, d desk) {
	held := d.hold(t, "", 1, d.of(spend, 10), d.of(slots, 2), d.of(prepaid, 20))
	d.advance(1500 * time.Millisecond)
	actual := map[string]uint64{"spend": 5, "prepaid": 80}
	for range 2 {
		h, s := settle(t, d.stranger(), held.Transfer, actual)
		if !s.Late || len(h.Charges) != 3 {
			t.Fatalf("got %+v of %d accounts, want late, of 3", s, len(h.Charges))
		}
		for i, c := range h.Charges {
			overage := map[string]uint64{"prepaid": 30}[c.Limit.Name]
			if s.Booked[i] != actual[c.Limit.Name] || s.Overage[i] != overage {
				t.Errorf("%s: got %d booked, %d overage, want %d, %d", c.Limit.Name,
					s.Booked[i], s.Overage[i], actual[c.Limit.Name], overage)
			}
		}
	}
	d.wantUsed(t, spend, 5)
	d.wantUsed(t, slots, 0)
	d.wantUsed(t, prepaid, 50)
	d.wantOverage(t, prepaid, 30)
}

func testRelease(t *testing.T, d desk) {
	held := d.hold(t, "id", 10, d.of(spend, 100))
	wantOutcome(t, d.tryHold(t, "", 10, d.of(spend, 1)), accounts.Refused)
	wantOutcome(t, release(t, d.stranger(), held.Transfer), accounts.Accepted)
	d.wantUsed(t, spend, 0)
	wantOutcome(t, release(t, d.book, held.Transfer), accounts.Replayed)
	_, s := settle(t, d.book, held.Transfer, map[string]uint64{"spend": 1})
	wantOutcome(t, s.Result, accounts.Ended)
	wantOutcome(t, d.tryHold(t, "id", 10, d.of(spend, 100)), accounts.Ended)
	d.wantUsed(t, spend, 0)
}

// A check's receipt gives back what it took, also on a node that does not know whose it is; what
// is used up stays.
func testReleaseOfChecks(t *testing.T, d desk) {
	short := limitOf("slots", 5, 1)
	checked := charge(t, d.book, "id", d.of(spend, 10), d.of(short, 2))
	d.advance(1100 * time.Millisecond) // the shorter window is over
	book := d.stranger()
	h := find(t, book, checked.Transfer)
	if !h.Check || len(h.Charges) != 2 || h.Charges[0].Subject != "" {
		t.Errorf("a check's hold: got %+v, want two charges of nobody known", h)
	}
	wantOutcome(t, release(t, book, checked.Transfer), accounts.Accepted)
	wantOutcome(t, release(t, d.book, checked.Transfer), accounts.Replayed)
	d.wantUsed(t, spend, 0)
	wantOutcome(t, charge(t, d.book, "other", d.of(short, 2)), accounts.Accepted)

	mixed := charge(t, d.book, "", d.of(spend, 10), d.of(prepaid, 2))
	wantOutcome(t, release(t, d.book, mixed.Transfer), accounts.Ended)
	d.wantUsed(t, spend, 10)
	d.wantUsed(t, prepaid, 2)
}

func testRenew(t *testing.T, d desk) {
	first := d.hold(t, "id", 2, d.of(spend, 30), d.of(slots, 1))
	d.advance(time.Second)
	second := renew(t, d.stranger(), first.Transfer, 3)
	wantOutcome(t, second, accounts.Accepted)
	want := d.namespace.MemberTransfer(d.namespace.EndTransfer(first.Transfer), 1)
	if second.Transfer != want || second.ExpiresAt != second.Timestamp+3e9 {
		t.Errorf("renewed: got %+v, want receipt %s and 3 s", second, want)
	}
	again := renew(t, d.stranger(), first.Transfer, 3) // its answer was lost
	wantOutcome(t, again, accounts.Replayed)
	if again.Transfer != second.Transfer || again.ExpiresAt != second.ExpiresAt {
		t.Errorf("renewed again: got %+v, want %+v", again, second)
	}
	d.advance(1500 * time.Millisecond) // the first would be back by now
	d.wantUsed(t, spend, 30)
	d.wantUsed(t, slots, 1)
	third := renew(t, d.book, first.Transfer, 20) // an old receipt, another time: the newest is meant
	wantOutcome(t, third, accounts.Accepted)
	replay := d.tryHold(t, "id", 2, d.of(spend, 30), d.of(slots, 1))
	wantOutcome(t, replay, accounts.Replayed)
	if replay.Transfer != third.Transfer || replay.ExpiresAt != third.ExpiresAt {
		t.Errorf("the id again: got %+v, want the newest receipt %+v", replay, third)
	}
	again = renew(t, d.book, first.Transfer, 3)
	wantOutcome(t, again, accounts.Replayed)
	if again.Transfer != third.Transfer {
		t.Errorf("the first renewal once more: got %+v, want the newest receipt", again)
	}
	for _, receipt := range []ledgers.ID{first.Transfer, second.Transfer, third.Transfer} {
		h, s := settle(t, d.stranger(), receipt, map[string]uint64{"spend": 4})
		if h.First != third.Transfer || s.Late {
			t.Errorf("settled by %s: got %+v of %+v", receipt, s, h)
		}
	}
	d.wantUsed(t, spend, 4)
	d.wantUsed(t, slots, 0)
	wantOutcome(t, renew(t, d.book, second.Transfer, 20), accounts.Ended)
}

// One hold on slots, a prepaid balance and a budget is settled in one step.
func testSettleSeveral(t *testing.T, d desk) {
	held := d.hold(t, "", 10, d.of(slots, 5), d.of(prepaid, 20), d.of(spend, 30))
	d.wantUsed(t, prepaid, 20)
	wantOutcome(t, d.tryHold(t, "", 10, d.of(slots, 1), d.of(spend, 1)), accounts.Refused)
	d.wantUsed(t, spend, 30)
	_, s := settle(t, d.stranger(), held.Transfer, map[string]uint64{"prepaid": 8, "spend": 31})
	wantOutcome(t, s.Result, accounts.Accepted)
	d.wantUsed(t, slots, 0)
	d.wantUsed(t, prepaid, 8)
	d.wantUsed(t, spend, 31)
	d.wantOverage(t, spend, 0)
}

// Who read a hold before it was renewed is told to read it again.
func testMoved(t *testing.T, d desk) {
	held := d.hold(t, "", 1, d.of(spend, 10))
	book := d.stranger()
	h := find(t, book, held.Transfer)
	renewed := renew(t, d.book, held.Transfer, 30)
	moved := func(result accounts.Result, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, result, accounts.Moved)
	}
	ctx := context.Background()
	end := func() {
		t.Helper()
		moved(book.Release(ctx, h))
		moved(book.Renew(ctx, h, 30))
		s, err := book.Settle(ctx, h, []uint64{20}, nil)
		moved(s.Result, err)
	}
	end()
	d.advance(1100 * time.Millisecond)
	end()
	d.wantUsed(t, spend, 10)
	wantOutcome(t, release(t, book, renewed.Transfer), accounts.Accepted)
}

// Late, others may have taken what was held.
func testLateOverage(t *testing.T, d desk) {
	held := d.hold(t, "", 1, d.of(spend, 10))
	d.advance(1100 * time.Millisecond)
	wantOutcome(t, charge(t, d.book, "", d.of(spend, 95)), accounts.Accepted)
	for range 2 {
		_, s := settle(t, d.stranger(), held.Transfer, map[string]uint64{"spend": 7})
		if !s.Late || s.Booked[0] != 7 || s.Overage[0] != 2 {
			t.Errorf("7 with 5 left: got %+v, want 2 overage", s)
		}
	}
	d.wantUsed(t, spend, 100)
	d.wantOverage(t, spend, 2)
}

// What a book remembers of what is out follows the ends of holds.
func TestNextAfterHolds(t *testing.T) {
	clock := newClock()
	d := newDesk(t, clock)
	start := uint64(clock.Now().UnixNano())
	wantNext := func(used uint64, seconds uint64) {
		t.Helper()
		for _, book := range []*accounts.Book{d.book, d.stranger()} { // remembered, and read
			c := book.NewCharge(spend, "alice", 0)
			next, err := book.Next(context.Background(), c, used)
			if err != nil || next < start+seconds*1e9 || next > start+seconds*1e9+1e9 {
				t.Errorf("next: got %d, %v, want %d s", next-start, err, seconds)
			}
		}
	}
	charge(t, d.book, "", d.of(spend, 5))
	short, long := d.hold(t, "", 10, d.of(spend, 5)), d.hold(t, "", 30, d.of(spend, 5))
	wantNext(15, 10)
	release(t, d.book, short.Transfer)
	wantNext(10, 30)
	long = renew(t, d.book, long.Transfer, 40)
	wantNext(10, 40)
	settle(t, d.book, long.Transfer, map[string]uint64{"spend": 3})
	wantNext(8, 60)
}

// Of all that end one hold at the same time, one wins; the others are told so.
func testEndsRace(t *testing.T, d desk) {
	const callers = 4
	for round := range 8 {
		limit := limitOf("spend", 100, 60)
		c := d.book.NewCharge(limit, fmt.Sprint(round), 10)
		held := d.hold(t, "", 30, c)
		books := []*accounts.Book{d.book, d.stranger()}
		var mu sync.Mutex
		won, used := 0, uint64(0)
		renewed := 0
		var group sync.WaitGroup
		var holds [3 * callers]accounts.Hold
		for i := range holds {
			holds[i] = find(t, books[i%2], held.Transfer)
		}
		for i, h := range holds {
			group.Go(func() {
				var result accounts.Result
				var err error
				amount := uint64(0)
				switch i % 3 {
				case 0:
					amount = uint64(i + 1)
					var s accounts.Settlement
					s, err = books[i%2].Settle(context.Background(), h, []uint64{amount}, nil)
					result = s.Result
				case 1:
					result, err = books[i%2].Release(context.Background(), h)
				default:
					result, err = books[i%2].Renew(context.Background(), h, 40)
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("caller %d: %v", i, err)
				}
				if result.Outcome != accounts.Accepted {
					return
				}
				won++
				used = amount
				if i%3 == 2 {
					renewed++
					used = 10
				}
			})
		}
		group.Wait()
		if won != 1 {
			t.Errorf("round %d: %d calls ended one hold, want 1", round, won)
		}
		wantBalance(t, d.stranger(), c, 100, used, 100-used)
		if got := find(t, d.book, held.Transfer).First != held.Transfer; got != (renewed == 1) {
			t.Errorf("round %d: renewed is %t, want %t", round, got, renewed == 1)
		}
	}
}

// A subject of any length is told by the receipt alone.
func testHoldNames(t *testing.T, d desk) {
	for _, length := range []int{1, 23, 24, 25, 51, 52, 53, 80, 81, 1000, 1023, 1024} {
		name := strings.Repeat("aé✓😀/%", length)[:length] // not always whole letters
		c := d.book.NewCharge(spend, name, 1)
		held := d.hold(t, "", 10, c)
		d.hold(t, "", 10, c) // written down once
		h := find(t, d.stranger(), held.Transfer)
		if h.Charges[0].Subject != name || h.Charges[0].Account() != c.Account() {
			t.Errorf("%d bytes: got subject %q, want %q", length, h.Charges[0].Subject, name)
		}
	}
}

// What is no receipt stands for nothing.
func testHoldStrangers(t *testing.T, d desk) {
	held := d.hold(t, "", 10, d.of(spend, 3), d.of(slots, 1), d.of(prepaid, 0))
	guard := d.namespace.MemberTransfer(held.Transfer, 2)
	for name, id := range map[string]ledgers.ID{
		"nobody's": {Lo: 12345}, "a member's": d.namespace.MemberTransfer(held.Transfer, 1),
		"a guard's": guard, "an end's": d.namespace.EndTransfer(guard),
		"a quota's": d.namespace.QuotaStep(d.of(spend, 0).Account(), 0),
	} {
		h, found, err := d.book.Hold(context.Background(), id, onLedger)
		if err != nil || found {
			t.Errorf("%s: got %+v, %t, %v, want nothing", name, h, found, err)
		}
	}
	h := find(t, d.stranger(), held.Transfer)
	if len(h.Charges) != 2 {
		t.Errorf("charges: got %+v, want two and not the guard", h.Charges)
	}
	none := func(uint32) (accounts.Limit, bool) { return accounts.Limit{}, false }
	_, _, err := d.book.Hold(context.Background(), held.Transfer, none)
	wantError(t, err, accounts.ErrUnknownLimit)
}

// An id names one hold: costs and seconds belong to it.
func testHoldRetries(t *testing.T, d desk) {
	held := d.hold(t, "id", 1, d.of(spend, 3))
	again := d.tryHold(t, "id", 1, d.of(spend, 3))
	wantOutcome(t, again, accounts.Replayed)
	if again.Transfer != held.Transfer || again.ExpiresAt != held.ExpiresAt {
		t.Errorf("replay: got %+v, want %+v", again, held)
	}
	wantOutcome(t, d.tryHold(t, "id", 1, d.of(spend, 4)), accounts.Conflict)
	wantOutcome(t, d.tryHold(t, "id", 2, d.of(spend, 3)), accounts.Conflict)
	check := charge(t, d.book, "id", d.of(spend, 3)) // whose ids are others
	wantOutcome(t, check, accounts.Accepted)
	d.advance(time.Second)
	wantOutcome(t, d.tryHold(t, "id", 1, d.of(spend, 3)), accounts.Expired)
	d.wantUsed(t, spend, 3)
}

// Through a chain longer than one look-up, every receipt leads to the newest.
func TestHoldRenewedOften(t *testing.T) {
	d := newDesk(t, newClock())
	receipts := []ledgers.ID{d.hold(t, "id", 60, d.of(slots, 2)).Transfer}
	for i := range 100 {
		made := renew(t, d.book, receipts[i], 60)
		wantOutcome(t, made, accounts.Accepted)
		receipts = append(receipts, made.Transfer)
	}
	for i, receipt := range receipts {
		h := find(t, d.book, receipt)
		if h.First != receipts[100] {
			t.Fatalf("receipt %d: got %s, want %s", i, h.First, receipts[100])
		}
	}
	wantOutcome(t, release(t, d.stranger(), receipts[0]), accounts.Accepted)
	for i, receipt := range receipts {
		result := release(t, d.book, receipt)
		if result.Outcome != accounts.Replayed {
			t.Fatalf("released by receipt %d: got %+v, want a replay", i, result)
		}
	}
	d.wantUsed(t, slots, 0)
}

// Whichever call to the ledger fails, before or after it took effect, the same call sent again
// comes to the same end, and nothing is taken or given back twice.
func TestHoldsLoseReplies(t *testing.T) {
	errDown := errors.New("down")
	for skip := range 24 {
		for _, fault := range []ledgertest.Fault{{Before: errDown}, {After: errDown}} {
			clock := newClock()
			ledger := openLedger(t, clock)
			faulty := ledgertest.NewFaulty(ledger)
			book := newBook(t, faulty, clock)
			fault.Skip, fault.Every, fault.Times = skip, 3, 3
			faulty.Inject(fault)
			name := fmt.Sprintf("call %d, before %v, after %v", skip, fault.Before, fault.After)
			runUnderFaults(t, name, book, clock)
			d := desk{
				driver: ledger, book: newBook(t, ledger, clock),
				stranger: func() *accounts.Book { return newBook(t, ledger, clock) },
			}
			d.wantUsed(t, spend, 100)
			d.wantOverage(t, spend, 55) // 40 and 115 of 100 used
			d.wantUsed(t, slots, 0)
			d.wantUsed(t, prepaid, 6)
		}
	}
}

// runUnderFaults holds, renews, settles below, above and late, and releases, each until the ledger
// answers.
func runUnderFaults(t *testing.T, name string, book *accounts.Book, clock *testClock) {
	t.Helper()
	ctx := context.Background()
	persist := func(try func() (accounts.Result, error)) accounts.Result {
		t.Helper()
		for range 10 {
			result, err := try()
			if err == nil {
				if result.Outcome != accounts.Accepted && result.Outcome != accounts.Replayed {
					t.Fatalf("%s: got %+v, want it done now or before", name, result)
				}
				return result
			}
		}
		t.Fatalf("%s: 10 tries failed", name)
		return accounts.Result{}
	}
	onHold := func(receipt ledgers.ID, end func(accounts.Hold) (accounts.Result, error)) ledgers.ID {
		t.Helper()
		return persist(func() (accounts.Result, error) {
			h, _, err := book.Hold(ctx, receipt, onLedger)
			if err != nil {
				return accounts.Result{}, err
			}
			return end(h)
		}).Transfer
	}
	hold := func(id string, charges ...accounts.Charge) ledgers.ID {
		t.Helper()
		return persist(func() (accounts.Result, error) {
			attempt, err := book.NewHold(id, charges, 2)
			if err != nil {
				t.Fatal(err)
			}
			return book.Charge(ctx, attempt)
		}).Transfer
	}
	settle := func(receipt ledgers.ID, actual map[string]uint64) {
		t.Helper()
		onHold(receipt, func(h accounts.Hold) (accounts.Result, error) {
			list := make([]uint64, len(h.Charges))
			for i, c := range h.Charges {
				list[i] = actual[c.Limit.Name]
			}
			s, err := book.Settle(ctx, h, list, nil)
			return s.Result, err
		})
	}
	of := func(limit accounts.Limit, amount uint64) accounts.Charge {
		return book.NewCharge(limit, "alice", amount)
	}
	receipt := hold("a", of(spend, 50), of(slots, 1), of(prepaid, 10))
	renewed := onHold(receipt, func(h accounts.Hold) (accounts.Result, error) {
		return book.Renew(ctx, h, 60)
	})
	if renewed == receipt {
		t.Fatalf("%s: renewed, and still receipt %s", name, receipt)
	}
	settle(receipt, map[string]uint64{"spend": 40, "prepaid": 6})
	late := hold("b", of(spend, 10))
	clock.Advance(3 * time.Second)
	settle(late, map[string]uint64{"spend": 115}) // the quota has 60 of it
	freed := hold("c", of(slots, 3))
	onHold(freed, func(h accounts.Hold) (accounts.Result, error) { return book.Release(ctx, h) })
}

// What the ledger has forgotten is nobody's receipt, and what stands for good is not forgotten. The
// engine looks for what is old by the machine's clock, which a bubble turns.
func TestHoldsForgotten(t *testing.T) { synctest.Test(t, testHoldsForgotten) }

func testHoldsForgotten(t *testing.T) {
	clock, dir := newClock(), t.TempDir()
	open := func() (*embedded.Ledger, desk) {
		ledger, err := embedded.Open(dir, &embedded.Options{
			Now: clock.Now, Volatile: true, Retention: time.Hour, KeepCodes: accounts.QuotaCodes(),
		})
		if err != nil {
			t.Fatal(err)
		}
		book := newBook(t, ledger, clock)
		stranger := func() *accounts.Book { return book }
		return ledger, desk{driver: ledger, book: book, stranger: stranger}
	}
	ledger, d := open()
	ended := d.hold(t, "", 10, d.of(spend, 30), d.of(prepaid, 5))
	settle(t, d.book, ended.Transfer, map[string]uint64{"spend": 130, "prepaid": 70})
	living := d.hold(t, "", 48*3600, d.of(slots, 2))
	old := d.hold(t, "", 3600, d.of(slots, 1))
	kept := renew(t, d.book, old.Transfer, 48*3600)
	for range 2 { // what a recovery would replay stays
		err := ledger.Close()
		if err != nil {
			t.Fatal(err)
		}
		clock.Advance(3 * time.Hour)
		ledger, d = open()
		<-time.After(5 * time.Minute)
	}
	defer ledger.Close()
	for name, receipt := range map[string]ledgers.ID{"settled": ended.Transfer, "old": old.Transfer} {
		_, found, err := d.book.Hold(context.Background(), receipt, onLedger)
		if err != nil || found {
			t.Errorf("the %s receipt: got found %t, %v, want it forgotten", name, found, err)
		}
	}
	d.wantUsed(t, slots, 3)
	for _, receipt := range []ledgers.ID{living.Transfer, kept.Transfer} {
		wantOutcome(t, release(t, d.book, receipt), accounts.Accepted)
	}
	d.wantUsed(t, slots, 0)
	d.wantOverage(t, prepaid, 20)
	d.wantUsed(t, prepaid, 50)
}

// A receipt that was renewed too often since is too far behind; the newest, and those near it, are
// not.
func TestHoldFarBehind(t *testing.T) {
	d := newDesk(t, newClock())
	first := d.hold(t, "id", 60, d.of(slots, 2)).Transfer
	last := first
	for range 4200 {
		last = renew(t, d.book, last, 60).Transfer
	}
	_, _, err := d.book.Hold(context.Background(), first, onLedger)
	wantError(t, err, accounts.ErrFarBehind)
	if h := find(t, d.book, last); h.First != last {
		t.Errorf("the newest: got %s, want %s", h.First, last)
	}
	wantOutcome(t, release(t, d.book, last), accounts.Accepted)
}
