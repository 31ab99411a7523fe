package client

import (
	"context"
	"errors"

	"weir/api/wire"
)

// Result says how [Guard.Do] ended.
type Result struct {
	// Route is who answered: wire.RouteModel, wire.RouteFallback, or with wire.RouteError nobody.
	Route string
	// Reason is why it was not the model, one of the wire.Reason..., the wire.Error... or the
	// Reason... of this package. It is ReasonAway, too, where the model was called without weir.
	Reason string
	// Attempts is how many calls to the model were made.
	Attempts int
	// ReopensAt is, where the budget is closed, when a call of this size can pass; nil where waiting
	// does not help or the time is not known.
	ReopensAt *wire.Time
	// Transfer is the receipt of the last attempt, empty if weir did not authorize one.
	Transfer string
	// Settlement is that of the last attempt, nil if there was none or it is Unsettled.
	Settlement *wire.SpendSettlement
	// Err is why the last attempt failed or weir could not say, nil if neither was so.
	Err error
	// Unsettled is not nil where an attempt could not be settled, or only as it was estimated, since
	// weir refused its usage; see [Call.Settle]. It names the receipt. By that [Client.SettleSpend]
	// can settle the first, of which what is held comes back by itself, and [Client.Correct] put the
	// other right.
	Unsettled error
}

// Do makes a call to a model within the budget: it is authorized, made and settled. Where the
// provider fails in a way that passes, see [ProviderError], it is made again after a pause, and
// each attempt is authorized and settled by itself, so that a loop of retries is under the gate
// too. After the last one, or when the gate is closed, the fallback is called with the reason.
//
// The model function is given a context with the time that the call may take; one that does not
// heed it is waited for. It returns what the provider reported, as far as it did, also with an
// error: of a stream that broke off, the output that came; see [Call.Fail]. An error that does not
// pass is returned, with Route wire.RouteError; so is one after which the caller has canceled, and
// where the fallback is nil that of the last attempt. A closed gate is no error. A model function
// that panics is settled as a call that failed.
func (g *Guard) Do(ctx context.Context, ask Ask,
	model func(context.Context) (wire.SpendUsage, error),
	fallback func(ctx context.Context, reason string) error,
) (Result, error) {
	var result Result
	err := g.attempts(ctx, ask, model, &result)
	if result.Route != wire.RouteFallback {
		return result, err
	}
	switch {
	case fallback != nil:
		err = fallback(ctx, result.Reason)
	case err != nil:
		result.Route = wire.RouteError
	}
	return result, err
}

// attempts calls the model until it answers, and leaves in the result who has to. With
// wire.RouteFallback, the error is that of the provider.
func (g *Guard) attempts(ctx context.Context, ask Ask,
	model func(context.Context) (wire.SpendUsage, error), result *Result,
) error {
	for n := 0; ; n++ {
		result.Route = wire.RouteError
		call, err := g.Authorize(ctx, ask)
		if err != nil {
			return err
		}
		if call.Route != wire.RouteModel {
			result.Route, result.Reason = wire.RouteFallback, call.Reason
			result.ReopensAt, result.Err = call.ReopensAt, errors.Join(result.Err, call.Err)
			return nil
		}
		result.Attempts++
		err = call.attempt(ctx, model, result)
		if err == nil {
			result.Route, result.Reason, result.Err = wire.RouteModel, call.Reason, call.Err
			return nil
		}
		result.Reason, result.Err = kindOf(err), err
		if !failsForNow(result.Reason) {
			return err
		}
		wait := max(backoff(g.options.Backoff, n), waitOf(err))
		if n < g.options.Retries && wait <= maxRetryAfter && pause(ctx, wait) {
			continue
		}
		if !isGone(ctx) {
			result.Route = wire.RouteFallback
		}
		return err
	}
}

// attempt calls the model once and settles that, whatever becomes of it.
func (c *Call) attempt(ctx context.Context, model func(context.Context) (wire.SpendUsage, error),
	result *Result,
) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	result.Transfer, result.Settlement = c.Transfer, nil
	usage, err := wire.SpendUsage{}, errPanicked
	defer func() {
		var settlement wire.SpendSettlement
		var unsettled error
		if err == nil {
			usage.Route = wire.RouteModel
			settlement, unsettled = c.Settle(usage)
		} else {
			settlement, unsettled = c.Fail(usage, err)
		}
		if settlement.Transfer != "" {
			result.Settlement = &settlement
		}
		result.Unsettled = errors.Join(result.Unsettled, unsettled)
	}()
	usage, err = model(ctx)
	if err != nil && ctx.Err() != nil && kindOf(err) == wire.ErrorOther {
		err = errors.Join(err, ctx.Err()) // an SDK that hides why it stopped
	}
	return err
}
