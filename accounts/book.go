// Package accounts knows who pays: it turns limits and subjects into ledger accounts, and quotas,
// grants and charges into transfers between them.
//
// A limit is one ledger. On it the operator account grants quota, and each subject has a user
// account that cannot be overdrawn. A charge moves units from the user to the operator as a pending
// transfer whose timeout is the limit's window: when it expires, the ledger gives the units back.
//
//	quota, at first sight    operator -> user   posted    code quota, step 0
//	changed quota            either way         posted    code requota, step 1, 2, ...
//	charge                   user -> operator   pending   code charge, timeout = window;
//	                         posted where the balance is prepaid
//	what has to stay free    user -> operator   pending   code guard, and its void: a unit for a
//	                         look, and the margin of a limit that closes below its target
//	hold                     user -> operator   pending   code hold, timeout = the hold's
//	release, give-back       the void of each
//	renewal                  the voids, and holds anew
//	settlement               the voids; user -> operator, what was really used, pending until the
//	                         hold's window ends, code settlement; above the hold as what follows
//	used beyond the quota    overage -> operator, all of it; user -> overage, what is free;
//	                         pending    code overage, timeout = what is left of the window
//	grant                    operator -> user   posted    code grant
//	revocation               user -> operator   posted    code revocation
//
// An asset is a ledger too. On it the treasury account gives money out and takes it back, and each
// subject has a money account that cannot be overdrawn. A payment is one chain over the ledgers of
// its limits and of its asset, the money last.
//
//	deposit                  treasury -> money  posted    code deposit
//	withdrawal               money -> treasury  posted    code withdrawal
//	payment                  user -> operator   pending   code charge, for each limit;
//	                         money -> money     posted    code payment
//
// The package holds no policy: it does not know why a charge is made, what happens when the ledger
// does not answer, or what a caller is told.
package accounts

import (
	"context"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"weir/ledgers"
)

// defaultRemembered is how many accounts a Book remembers unless told otherwise.
const defaultRemembered = 1 << 16

// Options change how a [Book] works. The zero value is a book that is alone on its ledger.
type Options struct {
	// Now is the wall clock of this node; nil means time.Now. Only differences of it are used, and
	// only between answers of the ledger, whose clock counts.
	Now func() time.Time
	// Elapsed is the monotonic time since some fixed start. Nil means the monotonic reading that
	// time.Now has.
	Elapsed func() time.Duration
	// Shared says that other nodes write to the same ledger.
	Shared bool
	// Differs is called for each charge on a shared ledger that finds another target than its
	// limit's quota at the same revision: two nodes have different configs under one number, and
	// the target stands. It must return at once. Nil means nobody wants to know.
	Differs func(limit Limit, target uint64)
	// Remembered is how many accounts are remembered, about 200 bytes each and up to 2 KiB; 0 means
	// 65,536. A forgotten account costs two more calls to the ledger when it is next seen.
	Remembered int
}

// Book keeps the accounts of all limits on one ledger: it opens them when a subject is first seen,
// charges them, changes quotas and reads balances. It is safe for concurrent use, and any number of
// books, in any number of processes, may share a ledger.
//
// Charge is the call that matters: it takes units for one request from one account or several, all
// or nothing, and says how the ledger decided. A refusal is an [Outcome]; an error means that the
// ledger did not answer, or not in a way the book knows, and that nothing is known of the charge.
type Book struct {
	driver    ledgers.Driver
	namespace Namespace
	options   Options
	clock     clock

	standings *lru.Cache[ledgers.ID, *standing]
	reads     singleflight.Group // of live charges, by account
	operators sync.Map           // ids of operator accounts known to exist
	changing  chan struct{}      // held by the one change of a quota under way
}

// NewBook returns a book on the ledger behind driver. The namespace must be the same for all books
// on that ledger, and for ever. Options may be nil.
func NewBook(driver ledgers.Driver, namespace Namespace, options *Options) (*Book, error) {
	b := &Book{driver: driver, namespace: namespace, changing: make(chan struct{}, 1)}
	if options != nil {
		b.options = *options
	}
	if b.options.Now == nil {
		b.options.Now = time.Now
	}
	if b.options.Remembered <= 0 {
		b.options.Remembered = defaultRemembered
	}
	b.clock.now, b.clock.elapsed = b.options.Now, b.options.Elapsed
	standings, err := lru.New[ledgers.ID, *standing](b.options.Remembered)
	if err != nil {
		return nil, fmt.Errorf("remember %d accounts: %w", b.options.Remembered, err)
	}
	b.standings = standings
	return b, nil
}

// standing is what a book remembers of one user account. Everything in it can be read from the
// ledger again.
type standing struct {
	operator ledgers.ID // of the account's limit
	subject  string     // whose the account is; empty where a receipt does not tell

	mu    sync.Mutex
	seen  bool // the account's first quota was answered `created` or `exists`
	step  step // newest quota step known
	live  live
	named bool // the subject's name is written down in the ledger
}

// standing returns what is remembered of an account, nothing at first.
func (b *Book) standing(account ledgers.ID, limit, subject string) *standing {
	s, ok := b.standings.Get(account)
	if ok {
		return s
	}
	s = &standing{operator: b.namespace.OperatorAccount(limit), subject: subject}
	previous, raced, _ := b.standings.PeekOrAdd(account, s)
	if raced {
		return previous
	}
	return s
}

// know notes a quota step unless a newer one is known.
func (s *standing) know(newest step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if newest.n >= s.step.n {
		s.step = newest
	}
	s.seen = true
}

// unlearn makes the account's newest quota step be read again before its next charge.
func (s *standing) unlearn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = false
}

// know notes a quota step of the charge's account, and unlearn has it read again. Either goes to
// whoever has met the account anew as well, if it was forgotten while the charge was under way.
func (b *Book) know(c Charge, newest step) {
	c.standing.know(newest)
	current, ok := b.standings.Peek(c.account)
	if ok && current != c.standing {
		current.know(newest)
	}
}

func (b *Book) unlearn(c Charge) {
	c.standing.unlearn()
	current, ok := b.standings.Peek(c.account)
	if ok && current != c.standing {
		current.unlearn()
	}
}

// quota returns the newest quota step known, and whether the account has been seen.
func (s *standing) quota() (step, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.step, s.seen
}

// createAccounts makes accounts exist, those that did not before.
func (b *Book) createAccounts(ctx context.Context, accounts []ledgers.Account,
) ([]ledgers.AccountResult, error) {
	results, err := b.driver.CreateAccounts(ctx, accounts)
	if err != nil {
		return nil, fmt.Errorf("create %d accounts: %w", len(accounts), err)
	}
	for i, r := range results {
		if r.Status != ledgers.AccountCreated && r.Status != ledgers.AccountExists {
			return nil, fmt.Errorf("%w: %s for account %s", ErrStatus, r.Status, accounts[i].ID)
		}
	}
	return results, nil
}

// createTransfers sends one batch and notes the ledger's time. An `exists` carries the time of the
// first attempt instead.
func (b *Book) createTransfers(ctx context.Context, batch []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	results, err := b.driver.CreateTransfers(ctx, batch)
	if err != nil {
		return nil, fmt.Errorf("create %d transfers: %w", len(batch), err)
	}
	for _, r := range results {
		if r.Status != ledgers.TransferExists {
			b.clock.saw(r.Timestamp)
		}
	}
	return results, nil
}

// clockTolerance is how far the wall clock and the monotonic clock of this node may differ, since
// the last answer of the ledger, before the ledger's time is asked for.
const clockTolerance = 100 * time.Millisecond

// Now returns the ledger's time in nanoseconds since 1970: the newest timestamp that this book has
// seen plus the time passed since, or the node's own time where it has seen none.
func (b *Book) Now() uint64 {
	now, _ := b.clock.read()
	return now
}

// Time is [Book.Now], but asks the ledger if it has not answered yet, or if this node's clock was
// set or the node slept since: nobody else knows then how much has expired.
func (b *Book) Time(ctx context.Context) (uint64, error) {
	now, sure := b.clock.read()
	if sure {
		return now, nil
	}
	// An event with id 0 is refused with the ledger's time, and leaves nothing behind.
	_, err := b.createTransfers(ctx, []ledgers.Transfer{{}})
	if err != nil {
		return 0, err
	}
	return b.Now(), nil
}

// clock guesses the ledger's time between its answers.
type clock struct {
	now     func() time.Time
	elapsed func() time.Duration // nil: by the monotonic readings of now

	mu     sync.Mutex
	newest uint64
	at     time.Time
	atPace time.Duration
}

func (c *clock) saw(timestamp uint64) {
	now, pace := c.now(), c.pace()
	c.mu.Lock()
	defer c.mu.Unlock()
	if timestamp > c.newest {
		c.newest, c.at, c.atPace = timestamp, now, pace
	}
}

// read returns the ledger's time, and whether it can be told from the time passed since the ledger
// answered.
func (c *clock) read() (timestamp uint64, sure bool) {
	now, pace := c.now(), c.pace()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest == 0 {
		return uint64(now.UnixNano()), false
	}
	since := c.since(now, pace)
	wall := now.Round(0).Sub(c.at.Round(0))
	return c.newest + uint64(max(0, since)), (wall - since).Abs() <= clockTolerance
}

func (c *clock) pace() time.Duration {
	if c.elapsed == nil {
		return 0
	}
	return c.elapsed()
}

// since returns the monotonic time since the newest timestamp was seen.
func (c *clock) since(now time.Time, pace time.Duration) time.Duration {
	if c.elapsed == nil {
		return now.Sub(c.at)
	}
	return pace - c.atPace
}
