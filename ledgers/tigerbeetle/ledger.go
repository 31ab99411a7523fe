package tigerbeetle

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/ledgers"
)

// The defaults of Options.
const (
	DefaultQueueEvents  = 1 << 17
	DefaultCloseTimeout = 5 * time.Second
)

// Options are the choices of a session. The zero value, or nil, is good.
type Options struct {
	// Now is the clock that paces the opening of sessions; nil means time.Now.
	Now func() time.Time
	// QueueEvents is how many events and ids may wait or be under way at once, those of callers
	// who gave up included: that is what bounds the calls that nobody waits for any more. Further
	// calls get ledgers.ErrBusy. An event takes about 300 bytes. 0 means DefaultQueueEvents.
	QueueEvents int
	// CloseTimeout is how long Close waits for a cluster that does not answer; 0 means
	// DefaultCloseTimeout.
	CloseTimeout time.Duration
	// Logger gets warnings; nil means none.
	Logger *slog.Logger
	// Registerer gets the metrics; nil means none.
	Registerer prometheus.Registerer
}

func (o *Options) withDefaults() *Options {
	options := Options{}
	if o != nil {
		options = *o
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.QueueEvents == 0 {
		options.QueueEvents = DefaultQueueEvents
	}
	if options.CloseTimeout == 0 {
		options.CloseTimeout = DefaultCloseTimeout
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &options
}

// Ledger is a session with a TigerBeetle cluster. It implements [ledgers.Driver], and what the
// cluster answers is passed on as it is:
//
//   - A call that its context ends has not been taken back. A call that only waited in this
//     process is sent as well.
//   - Calls larger than the server's requests are sent in several, cut between chains. A chain that
//     the server cannot take is ledgers.ErrTooManyEvents.
//   - A journal has no such limit: every server answers up to ledgers.MaxEvents transfers.
//   - A session that the cluster ended is opened again. A write that was under way gets ErrEvicted,
//     reads are asked again.
//
// Without an answer a call waits for as long as its context lets it.
type Ledger struct {
	options  *Options
	sessions sessions
	metrics  *metrics

	accounts      lane[ledgers.Account, ledgers.AccountResult]
	transfers     lane[ledgers.Transfer, ledgers.TransferResult]
	findAccounts  lane[ledgers.ID, ledgers.Account]
	findTransfers lane[ledgers.ID, ledgers.Transfer]
	journals      observer

	mu     sync.Mutex
	closed bool
	// calls and events are those that are accepted and not answered. idle is closed when there are
	// none and no more can come.
	calls, events int
	idle          chan struct{}

	closing  sync.Once
	closeErr error
}

var _ ledgers.Driver = (*Ledger)(nil)

// Open opens a session with the cluster whose replicas have these addresses, each an IP address and
// a port, in the order of the replicas. It does not wait for the cluster: a call does. Errors are
// ErrNoCgo, ErrAddress, ErrClient, or the registerer's.
func Open(addresses []string, clusterID ledgers.Amount, options *Options) (*Ledger, error) {
	if len(addresses) == 0 {
		return nil, fmt.Errorf("%w: there are none", ErrAddress)
	}
	for _, address := range addresses {
		_, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrAddress, err)
		}
	}
	o := options.withDefaults()
	o.Logger = o.Logger.With("cluster", clusterID, "addresses", addresses)
	return newLedger(o, func() (conn, error) {
		c, err := dial(addresses, clusterID)
		if err != nil {
			return nil, fmt.Errorf("cluster %v at %s: %w",
				clusterID, strings.Join(addresses, ","), err)
		}
		return c, nil
	})
}

// newLedger opens a ledger whose sessions open makes. The options are complete.
func newLedger(options *Options, open func() (conn, error)) (*Ledger, error) {
	l := &Ledger{options: options, idle: make(chan struct{})}
	l.accounts = lane[ledgers.Account, ledgers.AccountResult]{
		name: "create accounts", ledger: l,
		rules: rules[ledgers.Account]{
			linked: func(a *ledgers.Account) bool { return a.Flags&ledgers.AccountLinked != 0 },
			imported: func(a *ledgers.Account) bool {
				return a.Flags&ledgers.AccountImported != 0
			},
		},
		request: conn.createAccounts, deal: dealInOrder[ledgers.Account, ledgers.AccountResult],
	}
	l.transfers = lane[ledgers.Transfer, ledgers.TransferResult]{
		name: "create transfers", ledger: l,
		rules: rules[ledgers.Transfer]{
			linked:   func(t *ledgers.Transfer) bool { return t.Flags.Has(ledgers.Linked) },
			imported: func(t *ledgers.Transfer) bool { return t.Flags.Has(ledgers.Imported) },
		},
		request: conn.createTransfers, deal: dealInOrder[ledgers.Transfer, ledgers.TransferResult],
	}
	l.findAccounts = lane[ledgers.ID, ledgers.Account]{
		name: "look up accounts", ledger: l, reads: true, request: conn.lookupAccounts,
		deal: dealByID(func(a *ledgers.Account) ledgers.ID { return a.ID }),
	}
	l.findTransfers = lane[ledgers.ID, ledgers.Transfer]{
		name: "look up transfers", ledger: l, reads: true, request: conn.lookupTransfers,
		deal: dealByID(func(t *ledgers.Transfer) ledgers.ID { return t.ID }),
	}
	l.sessions = sessions{open: open, now: options.Now, logger: options.Logger, ended: l.forget}
	var err error
	l.metrics, err = newMetrics(l)
	l.accounts.seen = l.metrics.of(l.accounts.name)
	l.transfers.seen = l.metrics.of(l.transfers.name)
	l.findAccounts.seen = l.metrics.of(l.findAccounts.name)
	l.findTransfers.seen = l.metrics.of(l.findTransfers.name)
	l.journals = l.metrics.of(journal)
	if err == nil {
		_, err = l.sessions.get()
	}
	if err != nil {
		l.metrics.unregister()
		return nil, err
	}
	return l, nil
}

// forget is called when a session was lost.
func (l *Ledger) forget() {
	l.metrics.evictions.Inc()
	l.accounts.size.forget()
	l.transfers.size.forget()
	l.findAccounts.size.forget()
	l.findTransfers.size.forget()
}

// CreateAccounts implements [ledgers.Driver].
func (l *Ledger) CreateAccounts(
	ctx context.Context, accounts []ledgers.Account,
) ([]ledgers.AccountResult, error) {
	results, err := l.accounts.do(ctx, accounts)
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		if !r.Status.Known() {
			return nil, fmt.Errorf("account %v: %w: %v", accounts[i].ID, ErrReply, r.Status)
		}
	}
	return results, nil
}

// CreateTransfers implements [ledgers.Driver].
func (l *Ledger) CreateTransfers(
	ctx context.Context, transfers []ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	err := l.accept(ctx, len(transfers))
	if err != nil || len(transfers) == 0 {
		return nil, err
	}
	c := l.transfers.push(transfers)
	if c.answered(ctx) {
		results, err := transferResults(c)
		l.transfers.reuse(c)
		return results, err
	}
	return nil, ledgers.GiveUp(ctx.Err(), func() ([]ledgers.TransferResult, bool) {
		<-c.done
		results, err := transferResults(c)
		return results, err == nil
	})
}

// transferResults returns the answer to a call.
func transferResults(
	c *call[ledgers.Transfer, ledgers.TransferResult],
) ([]ledgers.TransferResult, error) {
	if c.err != nil {
		return nil, c.err
	}
	for i, r := range c.answers {
		if !r.Status.Known() {
			return nil, fmt.Errorf("transfer %v: %w: %v", c.events[i].ID, ErrReply, r.Status)
		}
	}
	return c.answers, nil
}

// LookupAccounts implements [ledgers.Driver].
func (l *Ledger) LookupAccounts(ctx context.Context, ids []ledgers.ID) ([]ledgers.Account, error) {
	return l.findAccounts.do(ctx, ids)
}

// LookupTransfers implements [ledgers.Driver].
func (l *Ledger) LookupTransfers(
	ctx context.Context, ids []ledgers.ID,
) ([]ledgers.Transfer, error) {
	return l.findTransfers.do(ctx, ids)
}

// journal is the name of AccountTransfers in errors and metrics.
const journal = "journal"

// AccountTransfers implements [ledgers.Driver]. The client puts the journals that wait into one
// request by itself.
func (l *Ledger) AccountTransfers(
	ctx context.Context, filter ledgers.AccountFilter,
) ([]ledgers.Transfer, error) {
	err := l.accept(ctx, 1)
	if err != nil {
		return nil, err
	}
	filter.Limit = min(filter.Limit, ledgers.MaxEvents)
	c := &call[ledgers.AccountFilter, ledgers.Transfer]{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer l.release(1, 1)
		start := time.Now()
		err := l.sessions.try(true, func(session conn) error {
			var err error
			c.answers, err = session.accountTransfers(filter)
			return err
		})
		if err != nil {
			c.err = fmt.Errorf("%s of %v: %w", journal, filter.AccountID, err)
			return
		}
		l.journals.observe(1, time.Since(start))
	}()
	return c.wait(ctx, journal)
}

// accept takes a call of so many events, or says why not.
func (l *Ledger) accept(ctx context.Context, events int) error {
	err := ctx.Err()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ledgers.ErrClosed
	case events > ledgers.MaxEvents:
		return ledgers.ErrTooManyEvents
	case err != nil:
		return err
	case events == 0:
		return nil
	case l.events+events > l.options.QueueEvents:
		return ledgers.ErrBusy
	}
	l.calls++
	l.events += events
	return nil
}

// release is told that accepted calls are answered.
func (l *Ledger) release(calls, events int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls -= calls
	l.events -= events
	if l.closed && l.calls == 0 {
		close(l.idle)
	}
}

// Close implements [ledgers.Driver]. It waits for accepted calls, but no longer than CloseTimeout
// for a cluster that does not answer: then they get ErrUnanswered, and so does Close.
func (l *Ledger) Close() error {
	l.closing.Do(func() {
		l.mu.Lock()
		l.closed = true
		if l.calls == 0 {
			close(l.idle)
		}
		l.mu.Unlock()
		timer := time.NewTimer(l.options.CloseTimeout)
		defer timer.Stop()
		select {
		case <-l.idle:
		case <-timer.C:
			l.closeErr = ErrUnanswered
		}
		l.sessions.close()
		<-l.idle
		l.metrics.unregister()
	})
	return l.closeErr
}
