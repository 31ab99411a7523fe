package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/ledgers"
)

// here makes a call in the caller's goroutine. It is for calls whose wait the driver itself ends
// with the context.
func here[A, R any](
	ctx context.Context, g *Guard, seen observer, events int, argument A,
	do func(context.Context, A) ([]R, error),
) ([]R, error) {
	c, err := g.breaker.begin(ctx.Err())
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if g.comesFirst(ctx, start) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, start.Add(g.options.Deadline))
		defer cancel()
	}
	answer, err := do(ctx, argument)
	seen.observe(events, time.Since(start))
	if err == nil {
		g.breaker.end(&c, nil)
		return answer, nil
	}
	given, ok := errors.AsType[*ledgers.GivenUp](err)
	if ok {
		g.breaker.giveUp(&c, given.Cause)
		return nil, ledgers.GiveUp(given.Cause, func() ([]ledgers.TransferResult, bool) {
			results, ok := <-given.Late
			g.breaker.left() // until here it was in flight
			return results, ok
		})
	}
	ended := ctx.Err()
	if ended != nil && errors.Is(err, ended) {
		g.breaker.giveUp(&c, ended)
	}
	g.breaker.end(&c, err)
	return answer, err
}

// apart makes a call in a goroutine of its own, with a context that does not end, and waits for it
// no longer than the time allows.
func apart[A, R any](
	ctx context.Context, g *Guard, seen observer, events int, argument A,
	do func(context.Context, A) ([]R, error),
) ([]R, error) {
	c, err := g.breaker.begin(ctx.Err())
	if err != nil {
		return nil, err
	}
	start := time.Now()
	answers := make(chan []R, 1)
	go func() {
		defer close(answers)
		answer, err := do(context.WithoutCancel(ctx), argument)
		g.breaker.end(&c, err)
		if err == nil {
			answers <- answer
		}
	}()
	var timeout <-chan time.Time
	if g.comesFirst(ctx, start) {
		timer := time.NewTimer(g.options.Deadline)
		defer timer.Stop()
		timeout = timer.C
	}
	var cause error
	select {
	case answer := <-answers:
		seen.observe(events, time.Since(start))
		return answer, c.err
	case <-timeout:
		cause = context.DeadlineExceeded
	case <-ctx.Done():
		cause = ctx.Err()
	}
	seen.observe(events, time.Since(start))
	if !g.breaker.giveUp(&c, cause) {
		answer := <-answers
		return answer, c.err
	}
	return nil, fmt.Errorf("gave up waiting for the ledger: %w", cause)
}

// comesFirst reports whether the guard's deadline for a call that begins now comes before the
// context's.
func (g *Guard) comesFirst(ctx context.Context, now time.Time) bool {
	deadline, ok := ctx.Deadline()
	return !ok || deadline.Sub(now) > g.options.Deadline
}
