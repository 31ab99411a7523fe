// Package embedded is a durable ledger in one process, with TigerBeetle's semantics, on Pebble.
//
// # How a call runs
//
// One writer goroutine takes all waiting calls as a group. The machine (machine*.go, no I/O and no
// clock) applies them to accounts in a cache; the store writes what has changed as one Pebble
// batch; while that is synced, the writer applies the next group; a second goroutine waits for the
// syncs in order and answers. Transfers never change, so they are looked up past the writer, up to
// the newest synced timestamp.
//
// # What is stored
//
//	t time                    a transfer as created, or the id of a refused one (burnt)
//	i id                      the time of the transfer or burnt id
//	a id                      an account, and the ledger time as of which its sums are right; then
//	                          what expired of it later while it was not in memory
//	d account code time       the account was debited by the transfer of this time
//	c account code time       the account was credited by it
//	e time                    how the pending transfer of this time was posted or voided, and when
//	l end time                the pending transfer of this time ends then, unless it was ended
//	o end time                retention has to look at the transfer of this time again then
//	m name                    single values: format version, last timestamp, reflected time,
//	                          retention's place
//
// An account stands in d and c keys by its own timestamp; code comes before time so that a journal
// of one code reads nothing else.
//
// # Expiry
//
// What has timed out is a function of the clock: before a call is applied, the pending transfers
// whose end has come are taken off their accounts in memory, in the order of their ends. The first
// of them are kept in memory, the rest is read from the l keys when its time comes. Nothing is
// written for an expiry on an account in memory. On another one, what expires together is appended
// to its record (a merge of Pebble's), so that nothing has to be read.
//
// # Why a crash loses nothing
//
// A group is one batch in Pebble's log, whole or not there at all, and is answered after the sync.
// The sums of accounts are stored seldom (accounts.go); each stored account says as of which ledger
// time it is right, and all are right as of the reflected time at least. Opening replays the
// transfers after that time, in order, with the expiries between them, on each account that is
// older than the transfer or the end: exactly what is missing, once. The l keys up to the reflected
// time are range-deleted together with storing it, in the same batch.
//
// A balance that was answered may hold expiries that no stored timestamp has reached; the time is
// stored before such an answer. So time never runs backwards, not even over a crash with the clock
// set back.
//
// After a write or a sync has failed nothing is written any more: all calls get ErrFailed until the
// ledger is opened anew. A damaged log is told from one that a crash has cut (files.go), but for
// its last record or two; a clean Close leaves nothing in the log.
package embedded

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"weir/ledgers"
)

// The defaults of Options.
const (
	DefaultCacheAccounts = 1 << 18
	DefaultQueueLength   = 1 << 14
)

// Options are the choices of a ledger. The zero value, or nil, is good.
type Options struct {
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
	// Elapsed is the monotonic time since some fixed start. It paces the ledger while the wall
	// clock is behind it. Nil means the monotonic reading that time.Now has; without one, the
	// ledger's time then stands still until the wall clock has caught up.
	Elapsed func() time.Duration
	// Retention is the age at which expired and voided pending transfers with their voids,
	// transfers of amount 0 and the ids of refused transfers are deleted. 0 keeps all. Whatever is
	// live, posted or the post of something stays for ever.
	Retention time.Duration
	// KeepCodes are the codes of transfers that Retention keeps although their amount is 0.
	KeepCodes []uint16
	// Volatile leaves out the syncs: what was answered may be lost when the machine stops, though
	// not when the process does. For ledgers that are thrown away.
	Volatile bool
	// CacheAccounts is the number of accounts kept in memory, about 350 bytes each; 0 means
	// DefaultCacheAccounts.
	CacheAccounts int
	// QueueLength is the number of calls that may wait; more get ledgers.ErrBusy. 0 means
	// DefaultQueueLength.
	QueueLength int
	// Logger gets warnings; nil means none.
	Logger *slog.Logger
	// Registerer gets the metrics; nil means none.
	Registerer prometheus.Registerer

	// For tests.
	fs            vfs.FS
	liveInMemory  int
	memTableBytes int
}

func (o *Options) withDefaults() *Options {
	options := Options{}
	if o != nil {
		options = *o
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.CacheAccounts == 0 {
		options.CacheAccounts = DefaultCacheAccounts
	}
	if options.QueueLength == 0 {
		options.QueueLength = DefaultQueueLength
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.fs == nil {
		options.fs = vfs.Default
	}
	if options.memTableBytes == 0 {
		options.memTableBytes = memTableBytes
	}
	if options.liveInMemory == 0 {
		options.liveInMemory = defaultLiveInMemory
	}
	return &options
}

// Ledger is an open ledger. It implements ledgers.Driver.
type Ledger struct {
	dir     string
	options *Options
	db      *pebble.DB
	lock    *pebble.Lock
	clock   *clock
	store   *diskStore
	machine *machine
	queue   *queue
	// answers hands groups from the writer to the answerer, which waits for their sync.
	answers chan *group
	// durable is the newest timestamp that is synced.
	durable atomic.Uint64
	readers readers
	// reflected is the store's, for retention.
	reflected atomic.Uint64
	metrics   *metrics

	// failed is closed, after failure was set, when the ledger cannot go on.
	failed  chan struct{}
	failure error
	failing sync.Once

	closing  sync.Once
	closeErr error
	closed   chan struct{} // closed when Close begins
	stopped  chan struct{} // closed when writer and answerer are done
	retired  chan struct{} // closed when retention is done
}

var _ ledgers.Driver = (*Ledger)(nil)

// CreateAccounts implements ledgers.Driver.
func (l *Ledger) CreateAccounts(
	ctx context.Context, accounts []ledgers.Account,
) ([]ledgers.AccountResult, error) {
	b := &accountBatch{events: accounts, results: make([]ledgers.AccountResult, len(accounts))}
	err := l.do(ctx, &request{batch: b}, len(accounts))
	if err != nil {
		return nil, err
	}
	return b.results, nil
}

// CreateTransfers implements ledgers.Driver.
func (l *Ledger) CreateTransfers(
	ctx context.Context, transfers []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	b := &transferBatch{events: transfers, results: make([]ledgers.TransferResult, len(transfers))}
	r := &request{batch: b}
	err := l.push(ctx, r, len(transfers))
	if err != nil {
		return nil, err
	}
	err = l.wait(ctx, r)
	ended := ctx.Err()
	switch {
	case err == nil:
		return b.results, nil
	case ended != nil && errors.Is(err, ended):
		return nil, ledgers.GiveUp(ended, func() ([]ledgers.TransferResult, bool) {
			return b.results, l.wait(context.Background(), r) == nil
		})
	default:
		return nil, err
	}
}

// LookupAccounts implements ledgers.Driver.
func (l *Ledger) LookupAccounts(
	ctx context.Context, ids []ledgers.ID,
) ([]ledgers.Account, error) {
	r := &request{ids: ids}
	err := l.do(ctx, r, len(ids))
	if err != nil {
		return nil, err
	}
	return r.accounts, nil
}

// do has the writer carry out a request of n events or ids and waits for the answer.
func (l *Ledger) do(ctx context.Context, r *request, n int) error {
	err := l.push(ctx, r, n)
	if err != nil {
		return err
	}
	return l.wait(ctx, r)
}

// push has the writer carry out a request of n events or ids.
func (l *Ledger) push(ctx context.Context, r *request, n int) error {
	err := ctx.Err()
	if err != nil {
		return err
	}
	if n > ledgers.MaxEvents {
		return ledgers.ErrTooManyEvents
	}
	r.events, r.done = n, make(chan struct{})
	return l.queue.push(r)
}

// wait waits for the answer to a request, or for the end of ctx.
func (l *Ledger) wait(ctx context.Context, r *request) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.failed:
	}
	select {
	case <-r.done:
		return nil
	default:
		return l.failure
	}
}

// fail stops the ledger: whatever waits and whatever comes gets err.
func (l *Ledger) fail(err error) {
	l.failing.Do(func() {
		l.failure = l.describe(err, ErrFailed)
		l.options.Logger.Error("the ledger has stopped", "error", l.failure)
		l.queue.close(l.failure)
		close(l.failed)
	})
}

// Close implements ledgers.Driver. It stores what makes the next start fast.
func (l *Ledger) Close() error {
	l.closing.Do(func() {
		close(l.closed)
		l.queue.close(ledgers.ErrClosed)
		l.metrics.unregister()
		<-l.retired
		select {
		case <-l.stopped:
		case <-l.failed:
		}
		l.closeErr = l.release()
	})
	return l.closeErr
}

// release closes the files. After a failure Pebble may never come back, so it is not waited for
// longer than releaseWait.
func (l *Ledger) release() error {
	select {
	case <-l.failed:
	default:
		l.readers.close(ledgers.ErrClosed)
		// What is in a table has a checksum, which the end of a log has not.
		err := errors.Join(l.db.Flush(), l.db.Close(), l.lock.Close())
		if err != nil {
			return l.describe(err, ErrFailed)
		}
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		<-l.stopped
		l.readers.close(l.failure)
		l.store.endReads()
		_ = l.db.Close()
		_ = l.lock.Close()
	}()
	timer := time.NewTimer(releaseWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return l.failure
}

const releaseWait = time.Second
