package spend

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/accounts"
	"weir/ledgers"
	"weir/limiter"
)

// Usage says how an authorized call ended. What is nil is estimated: of RouteModel all that was
// reserved, of RouteError its input, of RouteFallback nothing.
type Usage struct {
	Route Route
	// InputTokens and OutputTokens are at most [MaxTokens] each. CachedTokens are a part of the input.
	InputTokens, OutputTokens, CachedTokens *uint64
	// USD is what the provider charged, in millionths, at most [MaxBudget]; nil has it worked out by
	// the price table. A call to a model that is free there costs nothing, whatever this says.
	USD *uint64
	// Error says why a call failed: timeout, rate-limited, provider-error, canceled or other. It is
	// empty of RouteModel.
	Error string
}

// Settlement is the answer to a [Usage].
type Settlement struct {
	Transfer ledgers.ID
	Replayed bool
	// Late says that what was reserved had come back by itself before.
	Late bool
	// Estimated says that the tokens were not all reported.
	Estimated bool
	Route     Route
	// Reserved is what was held, Booked what the call took, and Overage the part of it that the budget
	// did not have.
	Reserved, Booked, Overage Amount
	// Known says whether Remaining, what is free now, was read.
	Known     bool
	Remaining Amount
}

// Settle books what a call took and gives the rest of what it reserved back, once: the same usage
// sent again is answered the same. More than was reserved is booked too, and so is what comes late.
// Errors are those of [limiter.Limiter.Settle].
func (b *Breaker) Settle(ctx context.Context, receipt ledgers.ID, usage Usage) (Settlement, error) {
	return b.book(ctx, receipt, usage, Settled, b.limiter.Settle)
}

// Correct books what a settled call really took in place of what was booked for it, by entries that
// take the others' place. The id is required and scoped to the call. What has come back since, with
// the budget's period, stays as it is: the correction is then in the journal only. Errors are those
// of [limiter.Limiter.Correct].
func (b *Breaker) Correct(ctx context.Context, receipt ledgers.ID, id string, usage Usage,
) (Settlement, error) {
	return b.book(ctx, receipt, usage, Correction,
		func(ctx context.Context, s limiter.Settlement) (limiter.Settled, error) {
			return b.limiter.Correct(ctx, id, s)
		})
}

// book settles or corrects a call.
func (b *Breaker) book(ctx context.Context, receipt ledgers.ID, usage Usage, kind Kind,
	by func(context.Context, limiter.Settlement) (limiter.Settled, error),
) (Settlement, error) {
	plan := b.plan.Load()
	held, err := b.limiter.Held(ctx, receipt)
	if err != nil {
		return Settlement{}, err
	}
	authorized, ok := recordOf(held.Notes)
	budget := plan.byLimit[held.Members[0].Limit]
	if !ok || budget == "" {
		return Settlement{}, &limiter.Error{
			Code: limiter.CodeReservationUnknown, Detail: fmt.Sprintf("%s is no call's receipt", receipt),
		}
	}
	r, err := usage.record(plan, authorized)
	if err != nil {
		return Settlement{}, err
	}
	r.kind = kind
	s := limiter.Settlement{
		Receipt: receipt, Noting: &accounts.Noting{Sent: usage.sent(), Notes: r.notes},
	}
	for _, m := range held.Members {
		m.Cost = *(&Amount{Tokens: r.sum(), USD: r.usd}).of(m.Limit)
		s.Members = append(s.Members, m)
	}
	settled, err := by(ctx, s)
	if err != nil {
		return Settlement{}, err
	}
	r, _ = recordOf(settled.Notes) // of the first time, if it was sent before
	answer := answerOf(settled, r)
	if authorized.usd == 0 {
		answer.Known = answer.Known &&
			b.readUSD(ctx, plan.budgets[budget], held.Members[0].Subject, &answer.Remaining)
	}
	b.metrics.booked(budget, r, settled.Replayed)
	return answer, nil
}

// sent returns the usage as it was sent.
func (u Usage) sent() []string {
	sent := []string{string(u.Route), u.Error}
	for _, reported := range []*uint64{u.InputTokens, u.OutputTokens, u.CachedTokens, u.USD} {
		if reported == nil {
			sent = append(sent, "")
			continue
		}
		sent = append(sent, strconv.FormatUint(*reported, 10))
	}
	return sent
}

// record says what a usage books for a call that was authorized.
func (u Usage) record(plan *Plan, authorized record) (record, error) {
	switch {
	case !slices.Contains(routes[1:], u.Route):
		return record{}, badRequest("route: want %s, %s, %s", RouteModel, RouteFallback, RouteError)
	case !slices.Contains(failures, u.Error):
		return record{}, badRequest("error: want %s", strings.Join(failures[1:], ", "))
	case u.Route == RouteModel && u.Error != "":
		return record{}, badRequest("error: a call that failed has the route %s", RouteError)
	}
	r := record{route: u.Route, failure: u.Error, model: authorized.model}
	r.tokens, r.estimated = u.tokens(authorized.tokens)
	switch {
	case r.input > MaxTokens:
		return record{}, badRequest("input_tokens: want at most %d", MaxTokens)
	case r.output > MaxTokens:
		return record{}, badRequest("output_tokens: want at most %d", MaxTokens)
	case r.cached > r.input:
		return record{}, badRequest("cached_tokens: %d are no part of %d input tokens", r.cached, r.input)
	case u.USD != nil && *u.USD > MaxBudget:
		return record{}, badRequest("usd: want at most %s", USD(MaxBudget))
	}
	model, priced := plan.models[plan.modelName(r.model)]
	switch {
	case authorized.usd == 0: // a free model
	case u.USD != nil:
		r.usd = *u.USD
	case r.sum() == 0:
	case r.tokens == authorized.tokens && r.estimated, !priced:
		r.usd, r.estimated = authorized.usd, true
	default:
		r.usd = model.cost(r.input, r.output, r.cached)
	}
	return r, nil
}

// tokens returns what was reported, completed by an estimate, and whether that was needed.
func (u Usage) tokens(reserved tokens) (t tokens, estimated bool) {
	var unknown tokens // what is booked of what was not reported
	switch u.Route {
	case RouteModel:
		unknown = reserved
		estimated = u.InputTokens == nil || u.OutputTokens == nil
	case RouteError:
		unknown.input = reserved.input
		estimated = u.InputTokens == nil
	}
	return tokens{
		input:  valueOr(u.InputTokens, unknown.input),
		output: valueOr(u.OutputTokens, unknown.output),
		cached: valueOr(u.CachedTokens, 0),
	}, estimated
}

func valueOr(reported *uint64, estimate uint64) uint64 {
	if reported == nil {
		return estimate
	}
	return *reported
}

// answerOf describes what was booked.
func answerOf(settled limiter.Settled, r record) Settlement {
	s := Settlement{
		Transfer: settled.Transfer, Replayed: settled.Replayed, Late: settled.Late,
		Estimated: r.estimated, Route: r.route, Known: true,
		Booked: Amount{Tokens: r.sum(), USD: r.usd},
	}
	for _, l := range settled.Limits {
		s.Known = s.Known && l.Known
		*s.Reserved.of(l.Limit), *s.Overage.of(l.Limit) = l.Held, l.Overage
		*s.Remaining.of(l.Limit) = l.Remaining
	}
	return s
}

// booked counts what a call took. A correction is in the journal: a counter cannot go back.
func (m *metrics) booked(budget string, r record, replayed bool) {
	if r.kind != Settled || replayed {
		return
	}
	m.settled.WithLabelValues(budget, string(r.route)).Inc()
	m.tokens.WithLabelValues(budget).Add(float64(r.sum()))
	m.usd.WithLabelValues(budget).Add(float64(r.usd))
}
