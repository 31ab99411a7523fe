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
	var budget, subject string
	var authorized callNotes
	settled, err := by(ctx, limiter.Settlement{Receipt: receipt, Of: func(held limiter.Held,
	) (limiter.Settlement, error) {
		var ok bool
		authorized, ok = unpack(held.Notes)
		budget, subject = plan.byLimit[held.Members[0].Limit], held.Members[0].Subject
		if !ok || budget == "" {
			return limiter.Settlement{}, &limiter.Error{
				Code: limiter.CodeReservationUnknown, Detail: fmt.Sprintf("%s is no call's receipt", receipt),
			}
		}
		n, err := usage.books(plan, authorized)
		n.kind = kind
		return usage.settlement(n, held.Members), err
	}})
	if err != nil {
		return Settlement{}, err
	}
	n, _ := unpack(settled.Notes) // of the first time, if it was sent before
	answer := answerOf(settled, n)
	if authorized.usd == 0 {
		answer.Known = answer.Known &&
			b.readUSD(ctx, plan.budgets[budget], subject, &answer.Remaining)
	}
	b.metrics.booked(budget, n, settled.Replayed)
	return answer, nil
}

// settlement books what the notes say for the members of a reservation.
func (u Usage) settlement(n callNotes, members []limiter.Member) limiter.Settlement {
	booked := Amount{Tokens: n.sum(), USD: n.usd}
	for i, m := range members {
		members[i].Cost = *booked.of(m.Limit)
	}
	return limiter.Settlement{
		Members: members, Annotation: &accounts.Annotation{Sent: u.sent(), Notes: n.pack},
	}
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

// books says what a usage books for a call that was authorized.
func (u Usage) books(plan *Plan, authorized callNotes) (callNotes, error) {
	switch {
	case !slices.Contains(routes[1:], u.Route):
		return callNotes{}, badRequest("route: want %s, %s, %s", RouteModel, RouteFallback, RouteError)
	case !slices.Contains(failures, u.Error):
		return callNotes{}, badRequest("error: want %s", strings.Join(failures[1:], ", "))
	case u.Route == RouteModel && u.Error != "":
		return callNotes{}, badRequest("error: a call that failed has the route %s", RouteError)
	}
	n := callNotes{route: u.Route, failure: u.Error, model: authorized.model}
	n.tokens, n.estimated = u.tokens(authorized.tokens)
	switch {
	case n.input > MaxTokens:
		return callNotes{}, badRequest("input_tokens: want at most %d", MaxTokens)
	case n.output > MaxTokens:
		return callNotes{}, badRequest("output_tokens: want at most %d", MaxTokens)
	case n.cached > n.input:
		return callNotes{}, badRequest("cached_tokens: %d are no part of %d input tokens",
			n.cached, n.input)
	case u.USD != nil && *u.USD > MaxBudget:
		return callNotes{}, badRequest("usd: want at most %s", USD(MaxBudget))
	}
	model, priced := plan.models[plan.modelName(n.model)]
	switch {
	case authorized.usd == 0: // a free model
	case u.USD != nil:
		n.usd = *u.USD
	case n.sum() == 0:
	case n.tokens == authorized.tokens && n.estimated, !priced:
		n.usd, n.estimated = authorized.usd, true
	default:
		n.usd = model.cost(n.input, n.output, n.cached)
	}
	return n, nil
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
func answerOf(settled limiter.Settled, n callNotes) Settlement {
	s := Settlement{
		Transfer: settled.Transfer, Replayed: settled.Replayed, Late: settled.Late,
		Estimated: n.estimated, Route: n.route, Known: true,
		Booked: Amount{Tokens: n.sum(), USD: n.usd},
	}
	for _, l := range settled.Limits {
		s.Known = s.Known && l.Known
		*s.Reserved.of(l.Limit), *s.Overage.of(l.Limit) = l.Held, l.Overage
		*s.Remaining.of(l.Limit) = l.Remaining
	}
	return s
}

// booked counts what a call took. A correction is in the journal: a counter cannot go back.
func (m *metrics) booked(budget string, n callNotes, replayed bool) {
	if n.kind != Settled || replayed {
		return
	}
	m.settled.WithLabelValues(budget, string(n.route)).Inc()
	m.tokens.WithLabelValues(budget).Add(float64(n.sum()))
	m.usd.WithLabelValues(budget).Add(float64(n.usd))
}
