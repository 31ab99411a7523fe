package embedded_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"weir/ledgers"
	"weir/ledgers/embedded"
)

// crashable is a ledger on files in memory that know what was synced.
type crashable struct {
	t      *testing.T
	files  *vfs.MemFS
	clock  *fakeClock
	ledger *embedded.Ledger
}

func newCrashable(t *testing.T) *crashable {
	d := &crashable{t: t, files: vfs.NewCrashableMem(), clock: newClock()}
	d.open()
	t.Cleanup(func() {
		d.close()
		verifyFiles(t, "ledger", d.files)
	})
	return d
}

func (d *crashable) open() {
	d.t.Helper()
	var err error
	d.ledger, err = embedded.Open("ledger",
		embedded.Testing(embedded.Options{Now: d.clock.read}, d.files, 0))
	if err != nil {
		d.t.Fatalf("open: %v", err)
	}
}

func (d *crashable) close() {
	d.t.Helper()
	err := d.ledger.Close()
	if err != nil {
		d.t.Errorf("close: %v", err)
	}
}

// crash goes on with what was synced and nothing else.
func (d *crashable) crash() {
	d.t.Helper()
	survived := d.files.CrashClone(vfs.CrashCloneCfg{})
	d.close()
	d.files = survived
	d.open()
}

// TestCrashUnderLoad cuts the power at many points under concurrent calls, with any part of what
// was not synced left on the disk: what was answered is there, no chain is half there, and the
// ledger is sound.
func TestCrashUnderLoad(t *testing.T) {
	d := newCrashable(t)
	fund(t, d.ledger, 1)
	load := &chainLoad{ledger: d.ledger, left: uint64(count(700, 4000))}
	var wait sync.WaitGroup
	for range killCallers {
		wait.Go(func() { load.run(t) })
	}
	for cut := range count(10, 300) {
		answered := load.progress(cut * count(60, 13))
		survived := d.files.CrashClone(vfs.CrashCloneCfg{
			UnsyncedDataPercent: cut * 7 % 101, RNG: rand.New(rand.NewPCG(uint64(cut), 3)),
		})
		t.Run(fmt.Sprintf("Cut%d", cut), func(t *testing.T) { wantChains(t, survived, answered) })
	}
	wait.Wait()
}

// chainLoad makes chains of two transfers and knows which were answered.
type chainLoad struct {
	ledger ledgers.Driver

	mu       sync.Mutex
	next     uint64
	left     uint64
	answered []uint64
}

func (l *chainLoad) take() (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	return l.next, l.next <= l.left
}

func (l *chainLoad) run(t *testing.T) {
	for {
		n, ok := l.take()
		if !ok {
			return
		}
		results, err := l.ledger.CreateTransfers(context.Background(), chainOf(n))
		if err != nil || results[1].Status != ledgers.TransferCreated {
			t.Errorf("chain %d: %v, %v", n, results, err)
			return
		}
		l.mu.Lock()
		l.answered = append(l.answered, n)
		l.mu.Unlock()
	}
}

// progress returns what was answered once that is at least n or all.
func (l *chainLoad) progress(n int) []uint64 {
	for {
		l.mu.Lock()
		answered, done := l.answered, l.next > l.left
		l.mu.Unlock()
		if len(answered) >= n || done {
			return answered
		}
		runtime.Gosched()
	}
}

func wantChains(t *testing.T, files *vfs.MemFS, answered []uint64) {
	t.Helper()
	verifyFiles(t, "ledger", files)
	ledger, err := embedded.Open("ledger", embedded.Testing(
		embedded.Options{Now: newClock().read}, files, 0))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer ledger.Close()
	newest := uint64(0)
	wanted := map[uint64]bool{}
	for _, n := range answered {
		newest = max(newest, n)
		wanted[n] = true
	}
	checkChains(t, ledger, 0, newest, wanted)
}

// TestManyExpireAtOnce has far more pending transfers end at one moment than a step takes, while
// the ledger runs and while it does not, and cuts the power before and after.
func TestManyExpireAtOnce(t *testing.T) {
	const subjects = 500
	files, clock := vfs.NewCrashableMem(), newClock()
	start := func(files *vfs.MemFS) *embedded.Ledger {
		ledger, err := embedded.Open("ledger", embedded.Testing(
			embedded.Options{Now: clock.read, CacheAccounts: 16}, files, 64))
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return ledger
	}
	end := func(ledger *embedded.Ledger, files *vfs.MemFS) {
		err := ledger.Close()
		if err != nil {
			t.Errorf("close: %v", err)
		}
		verifyFiles(t, "ledger", files)
	}
	ledger := start(files)
	create(t, ledger, ledgers.Account{ID: ledgers.ID{Lo: 1}, Ledger: 1, Code: 1})
	var ids []ledgers.ID
	for i := range uint64(subjects) {
		id := ledgers.ID{Lo: 10 + i}
		ids = append(ids, id)
		create(t, ledger, ledgers.Account{ID: id, Ledger: 1, Code: 1})
	}
	var all []ledgers.Transfer
	for i, id := range ids {
		reserved := pending(uint64(1000+i), 5, 60)
		reserved.DebitAccountID = id
		all = append(all, reserved)
	}
	transfer(t, ledger, ledgers.TransferCreated, all...)
	wantAll := func(when string, ledger *embedded.Ledger, want uint64) {
		t.Helper()
		found, err := ledger.LookupAccounts(t.Context(), ids)
		if err != nil || len(found) != subjects {
			t.Fatalf("%s: got %d accounts, %v", when, len(found), err)
		}
		for _, a := range found {
			if a.DebitsPending != ledgers.AmountOf(want) {
				t.Fatalf("%s: account %v has %v pending, want %d", when, a.ID, a.DebitsPending, want)
			}
		}
	}
	wantAll("before the end", ledger, 5)
	before := files.CrashClone(vfs.CrashCloneCfg{})
	clock.advance(time.Hour)
	wantAll("after the end", ledger, 0)
	later := pending(5000, 0, 60)
	later.DebitAccountID = ids[0]
	transfer(t, ledger, ledgers.TransferCreated, later)
	for percent := 0; percent <= 100; percent += 25 {
		survived := files.CrashClone(vfs.CrashCloneCfg{
			UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(percent), 1)),
		})
		again := start(survived)
		wantAll("after a crash behind the end", again, 0)
		end(again, survived)
	}
	again := start(before)
	wantAll("after the end in a crash", again, 0)
	end(again, before)
	end(ledger, files)
}
