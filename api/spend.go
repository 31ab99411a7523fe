package api

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
	"weir/ledgers"
	"weir/limiter"
	"weir/limiter/spend"
)

// usd is what the money of spend budgets is counted in, as callers know it.
var usd = limiter.Asset{Code: "USD", Scale: spend.Decimals}

// authorize says whether a call to a model may be made, and reserves what it may cost. That the
// budget is closed is an answer like another.
func (s *Server) authorize(c echo.Context) error {
	var body wire.SpendRequest
	id, err := readNamed(c, &body, &body.ID)
	switch {
	case err != nil:
		return err
	case body.Budget == "":
		return badRequest("budget is missing")
	case body.Model == "":
		return badRequest("model is missing")
	case body.InputTokens == nil && body.InputText == "":
		return badRequest("input_tokens and input_text are missing: want one of them")
	case body.MaxOutputTokens == nil:
		return badRequest("max_output_tokens is missing")
	}
	call := spend.Call{
		Budget: body.Budget, Subject: body.Subject, Model: body.Model, ID: id,
		InputTokens: wire.EstimateTokens(body.InputText),
	}
	if body.InputTokens != nil {
		call.InputTokens, err = unitsIn("input_tokens", nil, *body.InputTokens)
		if err != nil {
			return err
		}
	}
	call.MaxOutputTokens, err = unitsIn("max_output_tokens", nil, *body.MaxOutputTokens)
	if err != nil {
		return err
	}
	a, err := s.options.Spend.Authorize(c.Request().Context(), call)
	if err != nil {
		return err
	}
	return send(c, http.StatusOK, plainJSON, authorizationOf(&a))
}

// authorizationOf writes an authorization in the words of the wire.
func authorizationOf(a *spend.Authorization) *wire.Authorization {
	answer := &wire.Authorization{
		Route: string(a.Route), Reason: string(a.Reason), Transfer: receipt(a.Transfer),
		Replayed: a.Replayed, At: wire.Time{Time: a.At}, ExpiresAt: timeOrNil(a.ExpiresAt),
		Reserved: spendOf(a.Reserved), ReopensAt: timeOrNil(a.ReopensAt),
	}
	if a.Known {
		answer.Remaining = new(spendOf(a.Remaining))
	}
	return answer
}

// settleSpend books how a call ended.
func (s *Server) settleSpend(c echo.Context) error {
	var body wire.SpendUsage
	held, err := receiptAndJSON(c, &body)
	if err != nil {
		return err
	}
	usage, err := usageOf(&body)
	if err != nil {
		return err
	}
	settled, err := s.options.Spend.Settle(c.Request().Context(), held, usage)
	if err != nil {
		return err
	}
	return sendSpent(c, &settled)
}

// correct books what a settled call really took.
func (s *Server) correct(c echo.Context) error {
	var body wire.CorrectionRequest
	id, err := readNamed(c, &body, &body.ID)
	if err != nil {
		return err
	}
	settled, err := ledgers.ParseID(body.Transfer)
	if err != nil || settled.IsZero() {
		return badRequest("transfer: want a receipt of 32 lower-case hex digits")
	}
	usage, err := usageOf(&body.SpendUsage)
	if err != nil {
		return err
	}
	corrected, err := s.options.Spend.Correct(c.Request().Context(), settled, id, usage)
	if err != nil {
		return err
	}
	return sendSpent(c, &corrected)
}

// usageOf reads how a call ended.
func usageOf(body *wire.SpendUsage) (spend.Usage, error) {
	usage := spend.Usage{Route: spend.Route(body.Route), Error: body.Error}
	if body.Route == "" {
		return usage, badRequest("route is missing")
	}
	for _, part := range []struct {
		key   string
		asset *limiter.Asset
		sent  *wire.Amount
		read  **uint64
	}{
		{"input_tokens", nil, body.InputTokens, &usage.InputTokens},
		{"output_tokens", nil, body.OutputTokens, &usage.OutputTokens},
		{"cached_tokens", nil, body.CachedTokens, &usage.CachedTokens},
		{"usd", &usd, body.USD, &usage.USD},
	} {
		if part.sent == nil {
			continue
		}
		units, err := unitsIn(part.key, part.asset, *part.sent)
		if err != nil {
			return usage, err
		}
		*part.read = &units
	}
	return usage, nil
}

// sendSpent says what was booked for a call.
func sendSpent(c echo.Context, settled *spend.Settlement) error {
	answer := &wire.SpendSettlement{
		Transfer: receipt(settled.Transfer), Replayed: settled.Replayed, Late: settled.Late,
		Estimated: settled.Estimated, Route: string(settled.Route),
		Reserved: spendOf(settled.Reserved), Booked: spendOf(settled.Booked),
		Overage: spendOf(settled.Overage),
	}
	if settled.Known {
		answer.Remaining = new(spendOf(settled.Remaining))
	}
	return send(c, http.StatusOK, plainJSON, answer)
}

// spendJournal reads a page of a budget's day.
func (s *Server) spendJournal(c echo.Context) error {
	values, err := query(c, []string{"budget", "subject"}, "day", "cursor")
	if err != nil {
		return err
	}
	answer := wire.SpendJournal{Budget: values.Get("budget"), Subject: values.Get("subject")}
	from, to, start, err := s.spendPage(values)
	if err != nil {
		return err
	}
	events, next, err := s.options.Spend.Events(c.Request().Context(), answer.Budget,
		answer.Subject, start, to)
	if err != nil {
		return err
	}
	answer.From, answer.To = wire.Time{Time: from}, wire.Time{Time: to}
	answer.Events = make([]wire.SpendEvent, len(events))
	for i := range events {
		answer.Events[i] = eventOf(&events[i])
	}
	if !next.IsZero() {
		answer.Cursor = writeCursor(uint64(next.UnixNano()))
	}
	return send(c, http.StatusOK, plainJSON, &answer)
}

// spendPage returns the day that is asked for, and where the page starts in it. A cursor without a
// day is of the day of the page before, whatever day it is by now.
func (s *Server) spendPage(values url.Values) (from, to, start time.Time, err error) {
	from, to, err = s.options.Spend.Day(values.Get("budget"), values.Get("day"))
	if err != nil || !values.Has("cursor") {
		return from, to, from, err
	}
	next, err := readCursor(values.Get("cursor"))
	if err != nil {
		return from, to, start, err
	}
	start = time.Unix(0, int64(next))
	if !values.Has("day") {
		day := start.Add(-1).In(from.Location()).Format(time.DateOnly)
		from, to, err = s.options.Spend.Day(values.Get("budget"), day)
	}
	if err == nil && (start.Before(from) || start.After(to)) {
		err = badRequest("cursor: want the one that came with the page before, of the same day")
	}
	return from, to, start, err
}

// eventOf writes a line of a budget's day in the words of the wire.
func eventOf(e *spend.Event) wire.SpendEvent {
	return wire.SpendEvent{
		At: wire.Time{Time: e.At}, Event: string(e.Kind), Transfer: receipt(e.Transfer),
		Route: string(e.Route), Reason: e.Reason, Model: e.Model,
		InputTokens: e.InputTokens, OutputTokens: e.OutputTokens, CachedTokens: e.CachedTokens,
		USD: amountOf(&usd, e.USD), Estimated: e.Estimated, Late: e.Late,
		ExpiresAt: timeOrNil(e.ExpiresAt), Count: e.Count,
	}
}

func spendOf(a spend.Amount) wire.Spend {
	return wire.Spend{Tokens: amountOf(nil, a.Tokens), USD: amountOf(&usd, a.USD)}
}

// timeOrNil is nil for a time that there is not.
func timeOrNil(t time.Time) *wire.Time {
	if t.IsZero() {
		return nil
	}
	return &wire.Time{Time: t}
}

// noSpend is a breaker without budgets: each call to it says that there is no such.
func noSpend(l *limiter.Limiter) (*spend.Breaker, error) {
	plan, err := spend.NewPlan(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("no spend budgets: %w", err)
	}
	return spend.New(l, plan, nil)
}
