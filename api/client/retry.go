package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"weir/api/wire"
)

const (
	defaultRetries = 2
	defaultBackoff = 100 * time.Millisecond
	// maxBackoff is where a pause stops doubling; with chance it is up to twice as long.
	maxBackoff = 30 * time.Second
	// maxRetryAfter is the longest Retry-After of a failure that is waited for.
	maxRetryAfter = time.Minute
)

// orDefault returns a value, or what stands for 0.
func orDefault[N int | time.Duration](value, standard N) N {
	if value == 0 {
		return standard
	}
	return value
}

// backoff returns how long to pause before retry n, the first of which is 0: base, doubled with
// each, and by chance up to as much again, so that callers who failed together come back apart.
func backoff(base time.Duration, n int) time.Duration {
	for range n {
		base = min(2*base, maxBackoff)
	}
	return base + chance(base)
}

// chance returns a random duration up to another.
func chance(most time.Duration) time.Duration { return rand.N(max(most, 0) + 1) }

// pause waits, and returns false if the context is over or would be by then.
func pause(ctx context.Context, wait time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	if ctx.Err() != nil || bounded && time.Until(deadline) <= wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// isGone reports whether nobody waits any more for what a context is for.
func isGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// repeat makes a call, and again as long as it fails in a way that passes.
func (c *Client) repeat(ctx context.Context, passes func(error) bool, try func() error) error {
	for n := 0; ; n++ {
		err := try()
		if err == nil || n >= c.options.Retries || !passes(err) {
			return err
		}
		wait := max(backoff(c.options.Backoff, n), retryAfter(err))
		if wait > maxRetryAfter || !pause(ctx, wait) {
			return err
		}
	}
}

// retryAfter returns how long the server asks to wait, 0 if it did not say.
func retryAfter(err error) time.Duration {
	e, answered := errors.AsType[*Error](err)
	if !answered {
		return 0
	}
	return e.RetryAfter
}

// isPassing reports whether a call that may be repeated can do better the next time.
func isPassing(err error) bool {
	e, answered := errors.AsType[*Error](err)
	return IsAway(err) ||
		answered && (e.Code == wire.CodeBusy || e.Code == wire.CodeLedgerUnavailable)
}

// isUnsent reports whether a call never reached anybody, so that it is safe to make it again
// whatever it is.
func isUnsent(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial" && isPassing(err)
}

// IsAway reports whether an error of a call means that weir is away: nobody answered in time, or
// something in between did because it could not reach weir. It is false for all that weir itself
// says. That its ledger is away is such a word: what then happens is for the limit's on_failure to
// say, and a limit that is open answers with a decision.
func IsAway(err error) bool {
	e, answered := errors.AsType[*Error](err)
	if !answered {
		return errors.Is(err, ErrNoAnswer) && !errors.Is(err, context.Canceled)
	}
	switch e.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return e.Code == "" // not weir's
	}
	return false
}
