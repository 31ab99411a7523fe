package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"weir/api/wire"
)

// Call is a call to a model that was asked for; see [Guard.Authorize]. It is safe for concurrent
// use.
type Call struct {
	// Authorization is what weir said. Route says whether the call may be made. Where weir did not say
	// anything, only Route and Reason are set.
	wire.Authorization
	// Err is what kept weir from saying, nil if it did.
	Err error

	guard          *Guard
	base           context.Context // that of the call, without its end
	tokens, micros uint64          // that the run has counted for it

	mu         sync.Mutex
	reported   bool
	settlement *wire.SpendSettlement
}

// closed makes the call one that is not made.
func (c *Call) closed(reason string, err error) *Call {
	c.Authorization = wire.Authorization{Route: wire.RouteFallback, Reason: reason}
	c.Err = err
	return c
}

// Settle books what the call took. What the usage leaves out is estimated from what was reserved; a
// Route that it leaves out is wire.RouteModel. It does not end with the context that the call was
// authorized with, but with the guard's Timeout. After an error it may be made again; once it was
// done, it is answered the same whatever the usage. Of a call that weir did not authorize there is
// nothing to settle.
//
// A usage that weir refuses, such as one with more cached tokens than input, does not make the call
// free: it is settled as it was estimated, and Settle returns that settlement and the refusal.
func (c *Call) Settle(usage wire.SpendUsage) (wire.SpendSettlement, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported = true
	if c.settlement != nil {
		return *c.settlement, nil
	}
	if c.Transfer == "" {
		return wire.SpendSettlement{}, nil
	}
	if usage.Route == "" {
		usage.Route = wire.RouteModel
	}
	settlement, err := c.book(usage)
	refused, answered := errors.AsType[*Error](err)
	if answered && refused.Code == wire.CodeBadRequest {
		var estimated error
		settlement, estimated = c.book(wire.SpendUsage{Route: usage.Route, Error: usage.Error})
		if estimated == nil {
			err = fmt.Errorf("settle call %s: it is booked as estimated: %w", c.Transfer, err)
			return settlement, err
		}
	}
	if err != nil {
		err = fmt.Errorf("settle call %s: %w", c.Transfer, err)
	}
	return settlement, err
}

// book settles the call on the server.
func (c *Call) book(usage wire.SpendUsage) (wire.SpendSettlement, error) {
	ctx, cancel := context.WithTimeout(c.base, c.guard.options.Timeout)
	defer cancel()
	settlement, err := c.guard.client.SettleSpend(ctx, c.Transfer, usage)
	if err == nil {
		c.settlement = &settlement
		c.guard.run.settle(c, &settlement)
	}
	return settlement, err
}

// Fail settles a call that failed, with the kind of the error; see [ProviderError]. What the usage
// has is booked, and where it has no input tokens those that were estimated. Output that came
// before the failure is booked only where the usage says so: the provider may charge for it.
func (c *Call) Fail(usage wire.SpendUsage, err error) (wire.SpendSettlement, error) {
	usage.Route, usage.Error = wire.RouteError, kindOf(err)
	return c.Settle(usage)
}

// Close settles the call as it was estimated, unless Settle or Fail was called. It is made to be
// deferred.
func (c *Call) Close() error {
	c.mu.Lock()
	reported := c.reported
	c.mu.Unlock()
	if reported {
		return nil
	}
	_, err := c.Settle(wire.SpendUsage{})
	return err
}

// timeout returns how long the call may take.
func (c *Call) timeout() time.Duration {
	timeout := c.guard.options.CallTimeout
	if c.ExpiresAt == nil {
		return timeout
	}
	return min(timeout, c.ExpiresAt.Sub(c.At.Time)) // both by the ledger's clock
}
