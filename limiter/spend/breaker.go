package spend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	random "math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/accounts"
	"weir/ledgers"
	"weir/limiter"
)

// Route says where a call goes, or how it ended.
type Route string

// The routes.
const (
	// RouteModel: the call may be made, or was made and answered.
	RouteModel Route = "model"
	// RouteFallback: the budget is closed, or the model was not asked after all.
	RouteFallback Route = "fallback"
	// RouteError: the model was asked and failed.
	RouteError Route = "error"
)

// Reason says why a budget is closed; empty where it is open.
type Reason string

// The reasons. Tokens are counted first.
const (
	TokenBudget Reason = "token-budget"
	USDBudget   Reason = "usd-budget"
)

// Options change how a [Breaker] works.
type Options struct {
	// Registerer takes the breaker's metrics; nil keeps none. No label ever holds a subject.
	Registerer prometheus.Registerer
}

// Breaker authorizes calls and settles them. It is safe for concurrent use, and any number of them,
// in any number of processes, may share a ledger.
type Breaker struct {
	limiter *limiter.Limiter
	plan    atomic.Pointer[Plan]
	closed  *closings
	node    uint64 // in notes of closings
	metrics metrics
}

// New returns a breaker whose budgets are limits of l: those that [Plan.Rules] adds. Options may be
// nil. While it is in use, [Breaker.Run] has to run.
func New(l *limiter.Limiter, plan *Plan, options *Options) (*Breaker, error) {
	if options == nil {
		options = &Options{}
	}
	b := &Breaker{limiter: l, node: random.Uint64N(nodes)}
	var err error
	b.metrics, err = newMetrics(options.Registerer)
	if err != nil {
		return nil, err
	}
	b.closed, err = newClosings(b.metrics.forgotten)
	if err != nil {
		return nil, err
	}
	b.plan.Store(plan)
	return b, nil
}

// Plan returns the budgets and prices in force.
func (b *Breaker) Plan() *Plan { return b.plan.Load() }

// SetPlan puts other budgets and prices in force; the limiter has to have the plan's limits. Calls
// that are authorized are settled by the new prices.
func (b *Breaker) SetPlan(plan *Plan) { b.plan.Store(plan) }

// Call is one call to a model, before it is made.
type Call struct {
	Budget  string
	Subject string
	Model   string
	// InputTokens and MaxOutputTokens are the most that the call can take, each at most [MaxTokens]
	// and not both 0.
	InputTokens, MaxOutputTokens uint64
	// ID names the call, as a [limiter.Request]'s does; empty makes each an attempt of its own.
	ID string
}

// Amount is what a call takes: tokens, and millionths of USD.
type Amount struct {
	Tokens, USD uint64
}

// of returns the part that is counted by a limit.
func (a *Amount) of(limit string) *uint64 {
	if strings.HasSuffix(limit, moneySuffix) {
		return &a.USD
	}
	return &a.Tokens
}

// Authorization is the answer to a [Call].
type Authorization struct {
	// Route is RouteModel, or RouteFallback for the Reason.
	Route  Route
	Reason Reason
	// Transfer is the receipt that the call is settled by; zero of RouteFallback.
	Transfer ledgers.ID
	Replayed bool
	// At is the ledger's time of the answer, and ExpiresAt the one at which what is Reserved comes
	// back by itself, zero of RouteFallback.
	At, ExpiresAt time.Time
	Reserved      Amount
	// Known says whether Remaining, what is free now, was read.
	Known     bool
	Remaining Amount
	// ReopensAt is when a call of this size can pass; zero where waiting does not help, or it is not
	// known.
	ReopensAt time.Time
}

// Authorize reserves what a call may take of its budget, or says that the budget is closed for it.
// An id that was authorized is answered the same while what it reserved stands, and after that
// CodeReservationClosed or CodeIDExpired; the next attempt after RouteFallback wants a new one.
//
// Errors are [limiter.Error]s: CodeBadRequest, CodeUnknownLimit for a budget that there is not, and
// those of [limiter.Limiter.Reserve]. Without the ledger nothing is authorized.
func (b *Breaker) Authorize(ctx context.Context, call Call) (Authorization, error) {
	plan := b.plan.Load()
	budget, err := plan.budget(call.Budget)
	if err != nil {
		return Authorization{}, err
	}
	model, err := call.check(plan)
	if err != nil {
		return Authorization{}, err
	}
	request, reserved := call.reservation(budget, model)
	key := closing{budget.Name, call.Subject}
	request.ReadFirst = b.closed.is(key)
	d, err := b.limiter.Reserve(ctx, request)
	a, err := b.answer(budget, d, err)
	if err != nil {
		return Authorization{}, err
	}
	if model.free() {
		a.Known = a.Known && b.readUSD(ctx, budget, call.Subject, &a.Remaining)
	}
	b.metrics.authorized.WithLabelValues(budget.Name, string(a.Route), string(a.Reason)).Inc()
	if a.Route == RouteFallback {
		b.closed.add(key, model.Number, a.Reason)
		b.record(ctx, key, b.minute())
		return a, nil
	}
	a.Reserved = reserved
	b.closed.reopen(key)
	if a.Replayed { // prices may have changed since
		a.Reserved, err = b.held(ctx, a.Transfer)
	}
	return a, err
}

// reservation is what a call asks of the limits of its budget, and the amount of that.
func (c Call) reservation(budget Budget, model Model) (limiter.Request, Amount) {
	reserved := Amount{Tokens: c.InputTokens + c.MaxOutputTokens}
	members := []limiter.Member{
		{Limit: budget.tokenLimit(), Subject: c.Subject, Cost: reserved.Tokens},
	}
	if !model.free() {
		reserved.USD = max(1, model.cost(c.InputTokens, c.MaxOutputTokens, 0))
		members = append(members, limiter.Member{
			Limit: budget.moneyLimit(), Subject: c.Subject, Cost: reserved.USD,
		})
	}
	if c.ID == "" { // so that one that is given up on is not undone, and its note stays true
		c.ID = rand.Text()
	}
	notes := callNotes{
		kind: Authorized, tokens: tokens{input: c.InputTokens, output: c.MaxOutputTokens},
		usd: reserved.USD, model: model.Number, hold: uint16(budget.Hold / time.Second),
	}
	return limiter.Request{
		Members: members, ID: c.ID, Hold: budget.Hold,
		Annotation: &accounts.Annotation{
			Sent:  []string{fmt.Sprint(model.Number, c.InputTokens, c.MaxOutputTokens)},
			Notes: notes.pack,
		},
	}, reserved
}

// held returns what a receipt stands for.
func (b *Breaker) held(ctx context.Context, receipt ledgers.ID) (Amount, error) {
	held, err := b.limiter.Held(ctx, receipt)
	if err != nil {
		return Amount{}, err
	}
	var a Amount
	for _, m := range held.Members {
		*a.of(m.Limit) = m.Cost
	}
	return a, nil
}

// readUSD reads what is left of the money that a call has no part in, false where it cannot.
func (b *Breaker) readUSD(ctx context.Context, budget Budget, subject string, left *Amount) bool {
	balance, err := b.limiter.Balance(ctx, budget.moneyLimit(), subject)
	left.USD = balance.Remaining
	return err == nil
}

// check returns the model of a call that can be made.
func (c Call) check(plan *Plan) (Model, error) {
	model, known := plan.models[c.Model]
	switch {
	case !known:
		return Model{}, badRequest("model %q: there is no price for it", c.Model)
	case c.InputTokens > MaxTokens:
		return Model{}, badRequest("input_tokens: want at most %d", MaxTokens)
	case c.MaxOutputTokens > MaxTokens:
		return Model{}, badRequest("max_output_tokens: want at most %d", MaxTokens)
	case c.InputTokens+c.MaxOutputTokens == 0:
		return Model{}, badRequest("input_tokens and max_output_tokens: want one token at least")
	}
	return model, nil
}

func badRequest(format string, args ...any) *limiter.Error {
	return &limiter.Error{Code: limiter.CodeBadRequest, Detail: fmt.Sprintf(format, args...)}
}

// answer makes an authorization of the limiter's answer. A call above all that may be spent is one
// that the budget is closed for, too.
func (b *Breaker) answer(budget Budget, d limiter.Decision, err error) (Authorization, error) {
	refused, ok := errors.AsType[*limiter.Error](err)
	if ok && refused.Code == limiter.CodeCostExceedsQuota {
		a := Authorization{Route: RouteFallback, Reason: USDBudget, At: b.limiter.Now()}
		if refused.Limit == budget.tokenLimit() {
			a.Reason = TokenBudget
		}
		return a, nil
	}
	if err != nil {
		return Authorization{}, err
	}
	a := Authorization{
		Route: RouteModel, Transfer: d.Transfer, Replayed: d.Replayed, At: d.At,
		ExpiresAt: d.ExpiresAt, Known: true,
	}
	for _, l := range d.Limits {
		a.Known = a.Known && l.Known
		*a.Remaining.of(l.Limit) = l.Remaining
	}
	if d.Allowed {
		return a, nil
	}
	a.Route, a.Reason = RouteFallback, USDBudget
	if d.Limits[0].Short || d.Denied == 0 {
		a.Reason = TokenBudget
	}
	if d.RetryAfter > 0 {
		a.ReopensAt = d.At.Add(d.RetryAfter)
	}
	return a, nil
}
