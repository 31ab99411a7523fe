package client

import (
	"context"
	"errors"
	"time"

	"weir/api/wire"
)

const (
	defaultCallTimeout  = time.Minute
	defaultCallBackoff  = 500 * time.Millisecond
	defaultGuardTimeout = 5 * time.Second
)

// Why a [Guard] does not call the model, beside wire.ReasonTokens and wire.ReasonUSD, the
// wire.Error... of a provider that failed, and weir's own wire.CodeBusy and
// wire.CodeLedgerUnavailable.
const (
	// ReasonRunCap says that the run has used up its [RunCap].
	ReasonRunCap = "run-cap"
	// ReasonAway says that weir is away; see [IsAway].
	ReasonAway = "weir-away"
)

// GuardOptions change how a [Guard] works.
type GuardOptions struct {
	// FailOpen has calls made, and not counted by weir, while weir is away; see [IsAway]. Without it
	// they go to the fallback, as they always do while weir says that it is busy or that its ledger
	// does not answer.
	FailOpen bool
	// Retries is how often a call is made again after the provider failed in a way that passes; 0
	// means 2, and what is below 0 none.
	Retries int
	// Backoff is the pause before the first retry, as in [Options]; 0 means 500 ms. A longer
	// Retry-After of the provider is obeyed, up to a minute; for more than that nobody waits.
	Backoff time.Duration
	// CallTimeout bounds one call to the model; 0 means a minute. It is never longer than the time
	// for which weir holds what the call may cost.
	CallTimeout time.Duration
	// Timeout bounds an authorization, and a settlement, with all their retries; 0 means 5 s.
	Timeout time.Duration
	// Run bounds what this Guard lets through in all its life.
	Run RunCap
}

// Guard keeps calls to a model within a budget: each is authorized before it is made and settled by
// what it took. It is safe for concurrent use.
//
// [Guard.Do] does all of it around a function. Where a call does not end with a function, as of a
// stream that is read elsewhere, [Guard.Authorize] gives an open [Call].
type Guard struct {
	client  *Client
	budget  string
	options GuardOptions
	run     run
}

// NewGuard returns a guard on a budget of the server. Options may be nil.
func (c *Client) NewGuard(budget string, options *GuardOptions) *Guard {
	g := &Guard{client: c, budget: budget}
	if options != nil {
		g.options = *options
	}
	g.options.Retries = orDefault(g.options.Retries, defaultRetries)
	g.options.Backoff = orDefault(g.options.Backoff, defaultCallBackoff)
	g.options.CallTimeout = orDefault(g.options.CallTimeout, defaultCallTimeout)
	g.options.Timeout = orDefault(g.options.Timeout, defaultGuardTimeout)
	g.run.most = g.options.Run
	return g
}

// Ask is what is known of a call to a model before it is made.
type Ask struct {
	Subject string
	// Model is one of those that the server has prices of.
	Model string
	// Input is what goes into the model. Its length is all that weir is told of it.
	Input string
	// InputTokens is how many tokens go in, where that is known; 0 means [wire.EstimateTokens] of
	// Input.
	InputTokens uint64
	// MaxOutputTokens is the most that the call is allowed to put out, the limit that the provider is
	// given. 0 means that it puts out nothing, as an embedding does.
	MaxOutputTokens uint64
}

func (a *Ask) inputTokens() uint64 {
	if a.InputTokens > 0 {
		return a.InputTokens
	}
	return wire.EstimateTokens(a.Input)
}

// Authorize asks whether a call may be made, under an id of its own. The Call says so in its Route,
// and its Reason why not; it is never nil without an error. One whose Route is wire.RouteModel is
// settled in the end, by Settle, Fail or Close. An error means that weir refused the question, or
// that the caller canceled it.
func (g *Guard) Authorize(ctx context.Context, ask Ask) (*Call, error) {
	tokens := ask.inputTokens() + ask.MaxOutputTokens
	call := &Call{guard: g, base: context.WithoutCancel(ctx), tokens: tokens}
	if !g.run.take(tokens) {
		return call.closed(ReasonRunCap, nil), nil
	}
	bounded, cancel := context.WithTimeout(ctx, g.options.Timeout)
	defer cancel()
	a, err := g.client.Authorize(bounded, wire.SpendRequest{
		Budget: g.budget, Subject: ask.Subject, Model: ask.Model,
		InputTokens:     new(wire.Count(ask.inputTokens())),
		MaxOutputTokens: new(wire.Count(ask.MaxOutputTokens)),
	})
	switch {
	case err != nil:
		return g.unanswered(ctx, call, err)
	case a.Route != wire.RouteModel:
		g.run.giveBack(tokens)
		call.Authorization = a
		return call, nil
	}
	call.Authorization = a
	micros, known := a.Reserved.USD.In(usdScale)
	if g.run.takeUSD(micros, known) {
		call.micros = micros
		return call, nil
	}
	_, err = call.Settle(wire.SpendUsage{Route: wire.RouteFallback}) // which gives all of it back
	if err != nil {
		g.run.giveBack(tokens)
	}
	return call.closed(ReasonRunCap, err), nil
}

// unanswered decides about a call of which weir did not say whether it may be made.
func (g *Guard) unanswered(ctx context.Context, call *Call, err error) (*Call, error) {
	e, answered := errors.AsType[*Error](err)
	away := IsAway(err) && !isGone(ctx)
	if away && g.options.FailOpen && g.run.takeUSD(0, false) {
		call.Route, call.Reason, call.Err = wire.RouteModel, ReasonAway, err
		return call, nil
	}
	g.run.giveBack(call.tokens)
	switch {
	case away:
		return call.closed(ReasonAway, err), nil
	case answered && (e.Code == wire.CodeBusy || e.Code == wire.CodeLedgerUnavailable):
		return call.closed(string(e.Code), err), nil
	}
	return nil, err
}
