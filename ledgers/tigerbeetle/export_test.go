package tigerbeetle

import (
	"context"
	"slices"
	"sync"

	"weir/ledgers"
)

// Errors of a session, for a Cluster's Fail.
var (
	ErrTooMuchData = errTooMuchData
	ErrSessionOver = errSessionOver
)

// Cluster stands in for the client of tigerbeetle-go: its sessions ask a ledger of this process, as
// a cluster would. What differs from a cluster is what the test says.
type Cluster struct {
	Ledger ledgers.Driver
	// Events and IDs are how many a request may have; 0 means ledgers.MaxEvents.
	Events, IDs int
	// Before, if set, is called with the call and the lengths of the request's parts before it is
	// carried out. If it returns an error the request is not carried out. It may wait; ended is
	// closed when the session is.
	Before func(call string, parts []int, ended <-chan struct{}) error
	// After, if set, is the same after it was carried out, and its error is the answer.
	After func(call string) error
	// OpenErr is the error of the next sessions.
	OpenErr error

	mu     sync.Mutex
	opened int
}

// Open opens a ledger on the cluster.
func (c *Cluster) Open(options *Options) (*Ledger, error) {
	return newLedger(options.withDefaults(), func() (conn, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.OpenErr != nil {
			return nil, c.OpenErr
		}
		c.opened++
		return &clusterConn{cluster: c, ended: make(chan struct{})}, nil
	})
}

// Opened is how many sessions were opened.
func (c *Cluster) Opened() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened
}

// clusterConn is a session of a Cluster.
type clusterConn struct {
	cluster *Cluster
	ending  sync.Once
	ended   chan struct{}
}

func (c *clusterConn) close() { c.ending.Do(func() { close(c.ended) }) }

// requestOf carries out a request.
func requestOf[E, R any](
	c *clusterConn, call string, most int, parts [][]E,
	do func(context.Context, []E) ([]R, error),
) ([]R, error) {
	events := slices.Concat(parts...)
	if most == 0 {
		most = ledgers.MaxEvents
	}
	if len(events) > most {
		return nil, errTooMuchData
	}
	select {
	case <-c.ended:
		return nil, errSessionOver
	default:
	}
	if c.cluster.Before != nil {
		lengths := make([]int, len(parts))
		for i, part := range parts {
			lengths[i] = len(part)
		}
		err := c.cluster.Before(call, lengths, c.ended)
		if err != nil {
			return nil, err
		}
	}
	answers, err := do(context.Background(), events)
	if err == nil && c.cluster.After != nil {
		err = c.cluster.After(call)
	}
	if err != nil {
		return nil, err
	}
	return answers, nil
}

func (c *clusterConn) createAccounts(parts [][]ledgers.Account) ([]ledgers.AccountResult, error) {
	return requestOf(c, "create accounts", c.cluster.Events, parts, c.cluster.Ledger.CreateAccounts)
}

func (c *clusterConn) createTransfers(
	parts [][]ledgers.Transfer,
) ([]ledgers.TransferResult, error) {
	return requestOf(c, "create transfers", c.cluster.Events, parts,
		c.cluster.Ledger.CreateTransfers)
}

func (c *clusterConn) lookupAccounts(parts [][]ledgers.ID) ([]ledgers.Account, error) {
	return requestOf(c, "look up accounts", c.cluster.IDs, parts, c.cluster.Ledger.LookupAccounts)
}

func (c *clusterConn) lookupTransfers(parts [][]ledgers.ID) ([]ledgers.Transfer, error) {
	return requestOf(c, "look up transfers", c.cluster.IDs, parts, c.cluster.Ledger.LookupTransfers)
}

func (c *clusterConn) accountTransfers(filter ledgers.AccountFilter) ([]ledgers.Transfer, error) {
	one := func(ctx context.Context, fs []ledgers.AccountFilter) ([]ledgers.Transfer, error) {
		return c.cluster.Ledger.AccountTransfers(ctx, fs[0])
	}
	return requestOf(c, "journal", 0, [][]ledgers.AccountFilter{{filter}}, one)
}

// Cut is cut for transfers.
func Cut(transfers []ledgers.Transfer, limit int) ([][]ledgers.Transfer, error) {
	linked := func(t *ledgers.Transfer) bool { return t.Flags.Has(ledgers.Linked) }
	return cut(transfers, limit, linked)
}
