package ledgertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"weir/ledgers"
)

// Call names a method of a [ledgers.Driver].
type Call string

// The calls that a [Fault] can be set on.
const (
	CallCreateAccounts   Call = "CreateAccounts"
	CallCreateTransfers  Call = "CreateTransfers"
	CallLookupAccounts   Call = "LookupAccounts"
	CallLookupTransfers  Call = "LookupTransfers"
	CallAccountTransfers Call = "AccountTransfers"
)

// Always as Fault.Times keeps the fault until it is removed.
const Always = -1

// Fault is one way to misbehave, and when. What happens to a call that it strikes, in this order:
//
//  1. WaitBefore is waited for. If the wait fails, because the caller's context ended, its error is
//     answered.
//  2. Before, if set, is answered: nothing was written.
//  3. The call is made.
//  4. WaitAfter is waited for. If the wait fails, its error is answered, and the reply is lost.
//  5. After, if set, is answered: the reply is lost, what was written is written.
//
// CreateTransfers is struck as the contract has it: no context ends its waits. A caller that gives
// up gets a [ledgers.GivenUp], and all of the above goes on without it.
//
// The zero value strikes the next call and does nothing to it.
type Fault struct {
	// On is the call to strike; "" means any but Close.
	On Call
	// Skip lets so many calls pass before the first is struck.
	Skip int
	// Every strikes each n-th call of those that are left, starting with the first; 0 means each.
	Every int
	// Times is how many calls are struck; 0 means one, Always means all until it is removed.
	Times int

	// WaitBefore and WaitAfter hold the call back. [Until] and [For] make them.
	WaitBefore, WaitAfter func(ctx context.Context) error
	// Before and After are errors to answer with.
	Before, After error
}

// Until waits for a channel to be closed, or for the context to end.
func Until(released <-chan struct{}) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-released:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("ledger call held back: %w", ctx.Err())
		}
	}
}

// For waits for a time, or for the context to end. In a testing/synctest bubble the time is the
// bubble's and costs nothing; outside of one use [Until].
func For(d time.Duration) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("ledger call held back: %w", ctx.Err())
		}
	}
}

// Faulty is a driver around a driver that fails on cue: before the write, after it, by holding a
// call back, for one call, some, or each n-th. Without faults it passes everything on. It is how
// the layers above are tested when the ledger misbehaves:
//
//	ledger := ledgertest.NewFaulty(driver)
//	heal := ledger.Inject(ledgertest.Fault{Before: errDown, Times: ledgertest.Always})
//	... // the ledger is away
//	heal()
//
// Which calls are struck depends on their order alone. Where several faults fit a call, the one
// injected first strikes. It is safe for concurrent use.
type Faulty struct {
	driver ledgers.Driver

	mu     sync.Mutex
	faults []*activeFault
	calls  map[Call]int
	late   sync.WaitGroup
}

// activeFault is a fault with how often it was met and has struck.
type activeFault struct {
	Fault
	met, struck int
}

var _ ledgers.Driver = (*Faulty)(nil)

// NewFaulty wraps driver. Closing the wrapper closes it.
func NewFaulty(driver ledgers.Driver) *Faulty {
	return &Faulty{driver: driver, calls: map[Call]int{}}
}

// Inject adds a fault and returns what removes it. Calls that the fault holds back stay held.
func (f *Faulty) Inject(fault Fault) (remove func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	active := &activeFault{Fault: fault}
	f.faults = append(f.faults, active)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		active.Times, active.struck = 1, 1
	}
}

// Calls returns how many calls of a kind were made, whether struck or not.
func (f *Faulty) Calls(call Call) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

// CreateAccounts implements [ledgers.Driver].
func (f *Faulty) CreateAccounts(
	ctx context.Context, accounts []ledgers.Account,
) ([]ledgers.AccountResult, error) {
	return strike(ctx, f.next(CallCreateAccounts), accounts, f.driver.CreateAccounts)
}

// CreateTransfers implements [ledgers.Driver].
func (f *Faulty) CreateTransfers(
	ctx context.Context, transfers []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	fault := f.next(CallCreateTransfers)
	if fault == nil {
		return f.driver.CreateTransfers(ctx, transfers)
	}
	err := ctx.Err()
	if err != nil {
		return nil, err
	}
	var results []ledgers.TransferResult
	done := make(chan struct{})
	f.mu.Lock() // so that Close, if it comes later, waits for this call
	f.late.Add(1)
	f.mu.Unlock()
	go func() {
		defer f.late.Done()
		defer close(done)
		results, err = strike(context.WithoutCancel(ctx), fault, transfers, f.driver.CreateTransfers)
	}()
	select {
	case <-done:
		return results, err
	case <-ctx.Done():
		return nil, ledgers.GiveUp(ctx.Err(), func() ([]ledgers.TransferResult, bool) {
			<-done
			return results, err == nil
		})
	}
}

// LookupAccounts implements [ledgers.Driver].
func (f *Faulty) LookupAccounts(ctx context.Context, ids []ledgers.ID) ([]ledgers.Account, error) {
	return strike(ctx, f.next(CallLookupAccounts), ids, f.driver.LookupAccounts)
}

// LookupTransfers implements [ledgers.Driver].
func (f *Faulty) LookupTransfers(
	ctx context.Context, ids []ledgers.ID,
) ([]ledgers.Transfer, error) {
	return strike(ctx, f.next(CallLookupTransfers), ids, f.driver.LookupTransfers)
}

// AccountTransfers implements [ledgers.Driver].
func (f *Faulty) AccountTransfers(
	ctx context.Context, filter ledgers.AccountFilter,
) ([]ledgers.Transfer, error) {
	return strike(ctx, f.next(CallAccountTransfers), filter, f.driver.AccountTransfers)
}

// Close waits for what was given up, so release that first, and closes the driver. No fault strikes
// it.
func (f *Faulty) Close() error {
	f.mu.Lock()   // calls that were begun are counted
	f.mu.Unlock() //nolint:staticcheck // nothing is done in between
	f.late.Wait()
	return f.driver.Close()
}

// next counts a call and returns the fault that strikes it, or nil.
func (f *Faulty) next(call Call) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[call]++
	var struck *Fault
	for _, a := range f.faults {
		fits := a.On == "" || a.On == call
		if struck == nil && fits && a.strikes() {
			struck = &a.Fault
		}
	}
	return struck
}

// strikes counts a call that fits and reports whether this one is struck.
func (a *activeFault) strikes() bool {
	times := max(a.Times, 1)
	if a.Times != Always && a.struck >= times {
		return false
	}
	a.met++
	turn := a.met - a.Skip - 1
	if turn < 0 || turn%max(a.Every, 1) != 0 {
		return false
	}
	a.struck++
	return true
}

// strike makes a call as the fault demands, if there is one.
func strike[A, R any](
	ctx context.Context, fault *Fault, argument A, do func(context.Context, A) ([]R, error),
) ([]R, error) {
	if fault == nil {
		return do(ctx, argument)
	}
	if fault.WaitBefore != nil {
		err := fault.WaitBefore(ctx)
		if err != nil {
			return nil, err
		}
	}
	if fault.Before != nil {
		return nil, fault.Before
	}
	answer, err := do(ctx, argument)
	if fault.WaitAfter != nil {
		waitErr := fault.WaitAfter(ctx)
		if waitErr != nil {
			return nil, waitErr
		}
	}
	if fault.After != nil {
		return nil, fault.After
	}
	return answer, err
}
