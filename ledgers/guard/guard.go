// Package guard keeps a service quick while its ledger is slow, paused or gone: a [ledgers.Driver]
// around a [ledgers.Driver] that bounds how long a call is waited for and how many are under way,
// and stops asking a ledger that does not answer.
//
// The breaker is our own. The usual ones let a caller's request through, after a while, to see
// whether it works again: that caller waits for a ledger that is probably still gone. Here a probe
// in the background finds out, and no caller ever waits for it.
package guard

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/ledgers"
)

// The defaults of Options.
const (
	DefaultDeadline   = 250 * time.Millisecond
	DefaultMaxCalls   = 4096
	DefaultFailures   = 5
	DefaultProbeEvery = 500 * time.Millisecond
)

// Options are the choices of a guard. The zero value, or nil, is good.
type Options struct {
	// Deadline is how long a call is waited for, unless the caller's context ends earlier. 0 means
	// DefaultDeadline.
	Deadline time.Duration
	// MaxCalls is how many calls may be in flight, those that were given up included; more get
	// ledgers.ErrBusy. 0 means DefaultMaxCalls.
	MaxCalls int
	// Failures is how many calls in a row have to fail for the breaker to open. 0 means
	// DefaultFailures.
	Failures int
	// ProbeEvery is the time between two probes while the breaker is open. 0 means
	// DefaultProbeEvery.
	ProbeEvery time.Duration
	// Name says in the log which ledger it is: driver, addresses, cluster.
	Name string
	// Logger is told when the ledger goes and comes; nil means none.
	Logger *slog.Logger
	// Registerer gets the metrics; nil means none.
	Registerer prometheus.Registerer
}

func (o *Options) withDefaults() Options {
	options := Options{}
	if o != nil {
		options = *o
	}
	if options.Deadline == 0 {
		options.Deadline = DefaultDeadline
	}
	if options.MaxCalls == 0 {
		options.MaxCalls = DefaultMaxCalls
	}
	if options.Failures == 0 {
		options.Failures = DefaultFailures
	}
	if options.ProbeEvery == 0 {
		options.ProbeEvery = DefaultProbeEvery
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	options.Logger = options.Logger.With("ledger", options.Name)
	return options
}

// Guard is a driver around a driver. It implements [ledgers.Driver] and passes on what the driver
// answers, but for this:
//
//   - A call is waited for no longer than the deadline or the caller's context allow. What was sent
//     goes on without its caller. CreateTransfers then returns a [ledgers.GivenUp], which tells
//     later what became of it.
//   - At most so many calls are in flight, those that were given up included; more get
//     [ledgers.ErrBusy] at once.
//   - After so many failures in a row the breaker opens. Until the ledger is back each call gets
//     [ErrOpen] at once, and nothing is sent. A failure is a deadline that passes, whoever has set
//     it, or an error of the driver other than ErrBusy, ErrTooManyEvents and ErrClosed.
//
// While the breaker is open a probe, a look-up of one account, is sent now and then, one at a time;
// the first that is answered within the deadline closes it. At the start nothing is known of the
// ledger: the breaker is open, and a probe is sent at once.
//
// It is safe for concurrent use.
type Guard struct {
	driver  ledgers.Driver
	options Options
	breaker *breaker
	metrics *metrics
	// probing is held by the probe that is under way.
	probing chan struct{}

	// running ends when Close begins, watched is closed when nothing probes any more.
	running context.Context
	stop    context.CancelFunc
	watched chan struct{}

	closing  sync.Once
	closeErr error
}

var _ ledgers.Driver = (*Guard)(nil)

// New returns a guard around driver and begins to probe it. Closing the guard closes the driver.
// Errors are the registerer's; the driver is then still the caller's to close.
func New(driver ledgers.Driver, options *Options) (*Guard, error) {
	o := options.withDefaults()
	g := &Guard{
		driver:  driver,
		options: o,
		breaker: newBreaker(o.MaxCalls, o.Failures, time.Now()),
		probing: make(chan struct{}, 1),
		watched: make(chan struct{}),
	}
	var err error
	g.metrics, err = newMetrics(g.breaker, o.Registerer)
	if err != nil {
		return nil, err
	}
	g.running, g.stop = context.WithCancel(context.Background())
	notify(g.breaker.opened)
	go g.watch()
	return g, nil
}

// Ready reports whether the ledger was reached since the start.
func (g *Guard) Ready() bool { return g.breaker.read().reached }

// Up reports whether calls are sent to the ledger: the breaker is closed.
func (g *Guard) Up() bool { return g.breaker.read().up }

// Down returns for how long the breaker has been open, 0 if it is closed.
func (g *Guard) Down() time.Duration {
	state := g.breaker.read()
	if state.up {
		return 0
	}
	return time.Since(state.since)
}

// Back gets a token each time that the breaker closes, the first time included, unless the one
// before was not taken yet. It is for one receiver, who then does what had to wait for the ledger.
func (g *Guard) Back() <-chan struct{} { return g.breaker.back }

// CreateAccounts implements [ledgers.Driver].
func (g *Guard) CreateAccounts(
	ctx context.Context, accounts []ledgers.Account,
) ([]ledgers.AccountResult, error) {
	return here(ctx, g, g.metrics.createAccounts, len(accounts), accounts, g.driver.CreateAccounts)
}

// CreateTransfers implements [ledgers.Driver]. A caller that gives up gets a [ledgers.GivenUp].
func (g *Guard) CreateTransfers(
	ctx context.Context, transfers []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	return here(
		ctx, g, g.metrics.createTransfers, len(transfers), transfers, g.driver.CreateTransfers)
}

// LookupAccounts implements [ledgers.Driver].
func (g *Guard) LookupAccounts(ctx context.Context, ids []ledgers.ID) ([]ledgers.Account, error) {
	return here(ctx, g, g.metrics.lookupAccounts, len(ids), ids, g.driver.LookupAccounts)
}

// LookupTransfers implements [ledgers.Driver]. Like the journal it may be read from a disk, and no
// context ends that.
func (g *Guard) LookupTransfers(
	ctx context.Context, ids []ledgers.ID,
) ([]ledgers.Transfer, error) {
	return apart(
		ctx, g, g.metrics.lookupTransfers, len(ids), ids, g.driver.LookupTransfers)
}

// AccountTransfers implements [ledgers.Driver].
func (g *Guard) AccountTransfers(
	ctx context.Context, filter ledgers.AccountFilter,
) ([]ledgers.Transfer, error) {
	return apart(ctx, g, g.metrics.accountTransfers, 1, filter, g.driver.AccountTransfers)
}

// Close implements [ledgers.Driver]. It ends the probing and closes the driver; calls that the
// driver does not wait for are not waited for here.
func (g *Guard) Close() error {
	g.closing.Do(func() {
		g.breaker.close()
		g.stop()
		g.closeErr = g.driver.Close()
		<-g.watched
		g.metrics.unregister()
	})
	return g.closeErr
}
