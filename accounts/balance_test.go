package accounts_test

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/accounts"
	"weir/ledgers"
)

// A balance of a subject that was never seen is full, and reading it creates nothing.
func TestBalanceNeverSeen(t *testing.T) {
	clock := newClock()
	driver := openLedger(t, clock)
	book := newBook(t, driver, clock)
	c := book.NewCharge(limitOf("api", 10, 60), "nobody", 0)
	wantBalance(t, book, c, 10, 0, 10)
	if got := len(transfers(t, driver, c.Account())); got != 0 {
		t.Errorf("entries after a read: got %d, want 0", got)
	}
	next, err := book.Next(context.Background(), c, 0)
	if err != nil || next != 0 {
		t.Errorf("next: got %d, %v, want 0", next, err)
	}
}

// taken is one charge of the naive model: when it ends and what it holds.
type taken struct{ end, amount uint64 }

// Next and Wait are true whatever was charged, when, under which window, and by which node: they
// are compared with a model that remembers everything, while books are restarted and forget.
func TestWaitsAgainstModel(t *testing.T) {
	seeds := uint64(6)
	if os.Getenv("WEIR_LONG") == "1" {
		seeds = 100
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 1))
		clock := newClock()
		driver := openLedger(t, clock)
		book := newBook(t, driver, clock)
		quota := uint64(1 + random.IntN(400))
		var out []taken
		for range 400 {
			limit := limitOf("api", quota, []uint32{5, 60, 3600}[random.IntN(3)])
			if random.IntN(40) == 0 {
				book = newBook(t, driver, clock)
			}
			c := book.NewCharge(limit, "alice", 1+uint64(random.IntN(3)))
			result := charge(t, book, "", c)
			if result.Outcome == accounts.Accepted {
				end := result.Timestamp + uint64(limit.WindowSeconds)*uint64(time.Second)
				out = append(out, taken{end, c.Amount})
			}
			checkWaits(t, seed, book, c, out)
			clock.Advance(time.Duration(random.IntN(4000)) * time.Millisecond)
		}
	}
}

// More charges than are read are out, from before the window was shortened: the wait is not too
// short, whether they are of the new window or older than it.
func TestWaitWithoutReadingAll(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 26,000 charges")
	}
	const charges, need = 26_000, 25_500
	clock := newClock()
	driver := openLedger(t, clock)
	limit := limitOf("api", 100_000, 3600)
	book := newBook(t, driver, clock)
	c := book.NewCharge(limit, "alice", 1)
	var last uint64 // end of the charge that gives the last unit back
	for i := range charges {
		result := charge(t, book, "", c)
		if i == need-1 {
			last = result.Timestamp + 3600e9
		}
		clock.Advance(time.Millisecond)
	}
	shorter := limit
	shorter.WindowSeconds = 60
	book = newBook(t, driver, clock)
	c = book.NewCharge(shorter, "alice", 1)
	for i, pause := range []time.Duration{0, 20 * time.Second, 30 * time.Second} {
		clock.Advance(pause)
		charge(t, book, "", c)
		balances, err := book.Balances(context.Background(), []accounts.Charge{c})
		if err != nil {
			t.Fatal(err)
		}
		used := balances[0].Used
		// Those of the shorter window come back first.
		wait, err := book.Wait(context.Background(), c, used, need+uint64(i)+1)
		if err != nil {
			t.Fatal(err)
		}
		if wait < last || wait > last+3600e9 {
			t.Errorf("%v later: got %v before the units are back, want at most an hour after",
				pause, time.Duration(last-wait))
		}
	}
}

// Units that come back after a balance was read are not waited for.
func TestWaitAfterExpiry(t *testing.T) {
	clock := newClock()
	book := newBook(t, openLedger(t, clock), clock)
	c := book.NewCharge(limitOf("api", 10, 60), "alice", 4)
	charge(t, book, "", c)
	clock.Advance(30 * time.Second)
	later := charge(t, book, "", c)
	const used = 8 // as read now
	clock.Advance(30*time.Second + time.Microsecond)

	ctx := context.Background()
	next, err := book.Next(ctx, c, used)
	if want := later.Timestamp + 60e9; err != nil || next != want {
		t.Errorf("next unit: got %d, %v, want %d", next, err, want)
	}
	wait, err := book.Wait(ctx, c, used, 6) // 4 are back, so 2 more
	if want := later.Timestamp + 60e9; err != nil || wait != want {
		t.Errorf("6 units: got %d, %v, want %d", wait, err, want)
	}
	clock.Advance(30 * time.Second)
	next, err = book.Next(ctx, c, used)
	if err != nil || next != 0 {
		t.Errorf("with nothing out: got %d, %v, want 0", next, err)
	}
	wait, err = book.Wait(ctx, c, used, 6)
	if err != nil || wait != 0 {
		t.Errorf("6 units that are back: got %d, %v, want 0", wait, err)
	}
}

// checkWaits compares when the next unit, and when half of what is out, comes back.
func checkWaits(t *testing.T, seed uint64, book *accounts.Book, c accounts.Charge, out []taken) {
	t.Helper()
	balances, err := book.Balances(context.Background(), []accounts.Charge{c})
	if err != nil {
		t.Fatal(err)
	}
	used := balances[0].Used
	now := book.Now()
	var sum uint64
	for _, o := range out {
		if o.end > now {
			sum += o.amount
		}
	}
	if sum != used {
		t.Fatalf("seed %d: used %d, want %d", seed, used, sum)
	}
	if used == 0 {
		return
	}
	next, err := book.Next(context.Background(), c, used)
	if err != nil {
		t.Fatal(err)
	}
	if want := backBy(out, now, 1); next != want {
		t.Fatalf("seed %d: next unit at %d, want %d", seed, next, want)
	}
	half := (used + 1) / 2
	wait, err := book.Wait(context.Background(), c, used, half)
	if err != nil {
		t.Fatal(err)
	}
	if want := backBy(out, now, half); wait != want {
		t.Fatalf("seed %d: %d units at %d, want %d", seed, half, wait, want)
	}
}

// backBy returns when need units are back, by trying every end.
func backBy(out []taken, now, need uint64) uint64 {
	var best uint64
	for _, candidate := range out {
		var back uint64
		for _, o := range out {
			if o.end > now && o.end <= candidate.end {
				back += o.amount
			}
		}
		if candidate.end > now && back >= need && (best == 0 || candidate.end < best) {
			best = candidate.end
		}
	}
	return best
}

func TestJournal(t *testing.T) {
	clock := newClock()
	book := newBook(t, openLedger(t, clock), clock)
	limit := limitOf("api", 10, 60)
	c := func(n uint64) accounts.Charge { return book.NewCharge(limit, "alice", n) }
	charged := charge(t, book, "", c(2))
	grant(t, book, "g", c(5))
	revoke(t, book, "r", c(1))
	charge(t, book, "", c(0), book.NewCharge(limitOf("other", 5, 60), "x", 1))

	page, err := book.Journal(context.Background(), c(0), 0, false, 4)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range page.Entries {
		kinds = append(kinds, e.Kind)
	}
	want := []string{"quota", "charge", "grant", "revocation"}
	if !slices.Equal(kinds, want) {
		t.Fatalf("kinds: got %v, want %v", kinds, want)
	}
	e := page.Entries[1]
	if e.Transfer != charged.Transfer || e.Credit || e.Amount != 2 || !e.Pending ||
		e.ExpiresAt != charged.Timestamp+60*uint64(time.Second) {
		t.Errorf("charge entry: got %+v", e)
	}
	rest, err := book.Journal(context.Background(), c(0), page.Next, false, 4)
	if err != nil {
		t.Fatal(err)
	}
	if len(rest.Entries) != 2 || rest.Next != 0 || rest.Entries[1].Ends != rest.Entries[0].Transfer {
		t.Errorf("second page: got %+v, want a guard and its end", rest)
	}
	newest, err := book.Journal(context.Background(), c(0), 0, true, 1)
	if err != nil {
		t.Fatal(err)
	}
	if newest.Entries[0] != rest.Entries[1] || newest.Next != rest.Entries[0].Timestamp {
		t.Errorf("newest first: got %+v", newest)
	}
}

// counting counts the transfers that are read of accounts.
type counting struct {
	ledgers.Driver
	read atomic.Int64
}

func (c *counting) AccountTransfers(ctx context.Context, filter ledgers.AccountFilter,
) ([]ledgers.Transfer, error) {
	found, err := c.Driver.AccountTransfers(ctx, filter)
	c.read.Add(int64(len(found)))
	return found, err
}

// Telling when the next unit of a busy account returns costs a few reads a charge, however many
// charges are out and however many callers ask at once.
func TestNextOfBusyAccount(t *testing.T) {
	clock := newClock()
	driver := &counting{Driver: openLedger(t, clock)}
	book := newBook(t, driver, clock)
	c := book.NewCharge(limitOf("api", 1_000_000, 4), "alice", 1)
	const window, charges = 4_000, 12_000 // a charge each millisecond
	ends := make([]uint64, charges)
	for i := range charges {
		ends[i] = charge(t, book, "", c).Timestamp + 4*uint64(time.Second)
		clock.Advance(time.Millisecond)
		out := uint64(min(i+1, window-1))
		var callers sync.WaitGroup
		for range 1 + 7*(i%100/99) { // one, and now and then eight at once
			callers.Go(func() {
				got, err := book.Next(context.Background(), c, out)
				want := ends[max(0, i+1-window)]
				if err != nil || got < want || got > want+uint64(2*time.Millisecond) {
					t.Errorf("after charge %d: got %d, %v, want %d", i, got, err, want)
				}
			})
		}
		callers.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	if got := driver.read.Load(); got > 6*charges {
		t.Errorf("got %d transfers read for %d charges, want at most six each", got, charges)
	}
}
