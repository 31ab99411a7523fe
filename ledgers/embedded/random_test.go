package embedded_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"weir/ledgers"
	"weir/ledgers/embedded"
	"weir/ledgers/ledgertest"
)

// TestRandom sends random calls to the engine and to the naive twin, which must answer the same,
// while the engine is closed or crashes and is opened again, with next to no memory for accounts
// and live transfers.
func TestRandom(t *testing.T) {
	for seed := range uint64(count(12, 400)) {
		t.Run(fmt.Sprintf("Seed%d", seed), func(t *testing.T) {
			t.Parallel()
			runRandom(t, seed, count(300, 2000))
		})
	}
}

func runRandom(t *testing.T, seed uint64, steps int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	sizes := []int{1, 3, 1000}
	d := &duel{
		t: t, rng: rng, files: vfs.NewCrashableMem(), clock: newClock(),
		cache: sizes[rng.IntN(3)], live: 1 + sizes[rng.IntN(3)],
	}
	d.twin = ledgertest.NewTwin(func() uint64 { return d.last })
	d.open()
	for range steps {
		d.step()
	}
	d.close()
	verifyFiles(t, "ledger", d.files)
}

// duel is one run of engine and twin side by side.
type duel struct {
	t           *testing.T
	rng         *rand.Rand
	files       *vfs.MemFS
	clock       *fakeClock
	cache, live int
	ledger      *embedded.Ledger
	twin        *ledgertest.Twin
	// last is the newest timestamp, which the twin takes for its clock.
	last  uint64
	steps int64
	sent  []ledgers.Transfer
}

func (d *duel) open() {
	d.t.Helper()
	options := embedded.Testing(embedded.Options{
		Now: d.clock.read, CacheAccounts: d.cache,
	}, d.files, d.live)
	var err error
	d.ledger, err = embedded.Open("ledger", options)
	if err != nil {
		d.t.Fatalf("open: %v", err)
	}
}

func (d *duel) close() {
	d.t.Helper()
	err := d.ledger.Close()
	if err != nil {
		d.t.Fatalf("close: %v", err)
	}
}

// crash opens what the disk holds when the machine stops right now.
func (d *duel) crash() {
	d.t.Helper()
	survived := d.files.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: d.rng.IntN(101),
		RNG:                 rand.New(rand.NewPCG(d.rng.Uint64(), 2)),
	})
	d.close()
	verifyFiles(d.t, "ledger", d.files)
	d.files = survived
	verifyFiles(d.t, "ledger", d.files)
	d.open()
}

func (d *duel) step() {
	d.t.Helper()
	d.steps++
	// No two calls are a whole number of seconds apart, so that no chain meets the end of a
	// pending transfer halfway: there the engine answers as of the chain's first event.
	d.clock.advance(1009 * time.Nanosecond)
	switch n := d.rng.IntN(100); {
	case n < 3:
		d.close()
		d.open()
	case n < 6:
		d.crash()
	case n < 30:
		d.clock.advance(time.Duration(d.rng.IntN(1500)) * time.Millisecond)
	case n < 36:
		d.createAccounts()
	case n < 75:
		d.createTransfers()
	case n < 85:
		d.lookupAccounts()
	case n < 90:
		d.lookupTransfers()
	default:
		d.journal()
	}
}

// stamp moves last as the engine does for n events.
func (d *duel) stamp(n int) {
	now := uint64(d.clock.read().UnixNano())
	if n == 0 {
		d.last = max(d.last, now)
		return
	}
	d.last = max(d.last+1, now) + uint64(n) - 1
}

func same[T comparable](d *duel, call string, sent any, got, want []T, errs ...error) {
	d.t.Helper()
	for _, err := range errs {
		if err != nil {
			d.t.Fatalf("step %d: %s: %v", d.steps, call, err)
		}
	}
	if !slices.Equal(got, want) {
		d.t.Fatalf("step %d: %s %+v\ngot  %+v\nwant %+v", d.steps, call, sent, got, want)
	}
}

func (d *duel) createAccounts() {
	d.t.Helper()
	accounts := make([]ledgers.Account, 1+d.rng.IntN(4))
	for i := range accounts {
		accounts[i] = ledgers.Account{
			ID: d.accountID(), Ledger: uint32(1 + d.rng.IntN(2)), Code: uint16(1 + d.rng.IntN(2)),
			//nolint:staticcheck // two draws: few flags at once
			Flags: ledgers.AccountFlags(d.rng.IntN(16)) & ledgers.AccountFlags(d.rng.IntN(16)),
		}
		if d.rng.IntN(20) == 0 {
			accounts[i].Flags |= ledgers.AccountImported
		}
	}
	d.stamp(len(accounts))
	got, err := d.ledger.CreateAccounts(d.t.Context(), accounts)
	want, twinErr := d.twin.CreateAccounts(context.Background(), accounts)
	same(d, "create accounts", accounts, got, want, err, twinErr)
}

func (d *duel) createTransfers() {
	d.t.Helper()
	transfers := make([]ledgers.Transfer, 1+d.rng.IntN(6))
	for i := range transfers {
		transfers[i] = d.transfer()
	}
	d.sent = append(d.sent, transfers...)
	d.stamp(len(transfers))
	got, err := d.ledger.CreateTransfers(d.t.Context(), transfers)
	want, twinErr := d.twin.CreateTransfers(context.Background(), transfers)
	same(d, "create transfers", transfers, got, want, err, twinErr)
}

func (d *duel) accountID() ledgers.ID { return ledgers.ID{Lo: uint64(1 + d.rng.IntN(12))} }

// transfer makes one up, often a likely one and sometimes one that was sent before.
func (d *duel) transfer() ledgers.Transfer {
	if len(d.sent) > 0 && d.rng.IntN(12) == 0 {
		again := d.sent[d.rng.IntN(len(d.sent))]
		if d.rng.IntN(2) == 0 {
			again.Amount = ledgers.AmountOf(uint64(d.rng.IntN(10)))
		}
		return again
	}
	t := ledgers.Transfer{
		ID:              ledgers.ID{Lo: d.rng.Uint64(), Hi: uint64(d.rng.IntN(2))},
		DebitAccountID:  d.accountID(),
		CreditAccountID: d.accountID(),
		Amount:          ledgers.AmountOf(uint64(d.rng.IntN(20))),
		Ledger:          uint32(1 + d.rng.IntN(2)),
		Code:            uint16(1 + d.rng.IntN(3)),
		UserData64:      uint64(d.rng.IntN(2)),
	}
	if d.rng.IntN(30) == 0 {
		t.Amount = ledgers.MaxAmount
	}
	switch n := d.rng.IntN(20); {
	case n < 4:
	case n < 12:
		t.Flags = ledgers.Pending
		t.Timeout = uint32(d.rng.IntN(5))
		if d.rng.IntN(8) == 0 {
			t.Flags |= ledgers.ClosingDebit << d.rng.IntN(2)
		}
	case n < 17 && len(d.sent) > 0:
		d.endOf(&t)
	case n < 19:
		t.Flags = ledgers.BalancingDebit << d.rng.IntN(2)
	default:
		t.Flags = ledgers.TransferFlags(d.rng.IntN(1 << 10))
	}
	if d.rng.IntN(5) == 0 {
		t.Flags |= ledgers.Linked
	}
	return t
}

// endOf makes t post or void one of the latest transfers.
func (d *duel) endOf(t *ledgers.Transfer) {
	recent := d.sent[max(0, len(d.sent)-40):]
	*t = ledgers.Transfer{ID: t.ID, PendingID: recent[d.rng.IntN(len(recent))].ID}
	t.Flags = ledgers.PostPending << d.rng.IntN(2)
	if t.Flags == ledgers.PostPending && d.rng.IntN(2) == 0 {
		t.Amount = ledgers.MaxAmount
	}
	if d.rng.IntN(10) == 0 {
		t.Amount = ledgers.AmountOf(uint64(d.rng.IntN(20)))
	}
}

func (d *duel) lookupAccounts() {
	d.t.Helper()
	ids := make([]ledgers.ID, 14)
	for i := range ids {
		ids[i].Lo = uint64(i)
	}
	d.stamp(0)
	got, err := d.ledger.LookupAccounts(d.t.Context(), ids)
	want, twinErr := d.twin.LookupAccounts(context.Background(), ids)
	same(d, "look up accounts", ids, got, want, err, twinErr)
}

func (d *duel) lookupTransfers() {
	d.t.Helper()
	ids := []ledgers.ID{{Lo: 1}}
	for range 10 {
		if len(d.sent) > 0 {
			ids = append(ids, d.sent[d.rng.IntN(len(d.sent))].ID)
		}
	}
	got, err := d.ledger.LookupTransfers(d.t.Context(), ids)
	want, twinErr := d.twin.LookupTransfers(context.Background(), ids)
	same(d, "look up transfers", ids, got, want, err, twinErr)
}

func (d *duel) journal() {
	d.t.Helper()
	filter := ledgers.AccountFilter{
		AccountID: d.accountID(), Code: uint16(d.rng.IntN(4)), Limit: uint32(d.rng.IntN(30)),
		Debits: d.rng.IntN(4) > 0, Credits: d.rng.IntN(4) > 0, Reversed: d.rng.IntN(2) == 0,
	}
	if d.rng.IntN(3) == 0 {
		filter.TimestampMin = d.last - d.rng.Uint64N(uint64(10*time.Second))
	}
	if d.rng.IntN(3) == 0 {
		filter.TimestampMax = d.last - d.rng.Uint64N(uint64(10*time.Second))
	}
	got, err := d.ledger.AccountTransfers(d.t.Context(), filter)
	want, twinErr := d.twin.AccountTransfers(context.Background(), filter)
	same(d, "journal", filter, got, want, err, twinErr)
}
