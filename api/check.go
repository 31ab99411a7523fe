package api

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
	"weir/ledgers"
	"weir/limiter"
)

// allLevels has every level of a body checked: no body has more.
const allLevels = 8

// usualAnswer is how long most answers are at most, in bytes.
const usualAnswer = 512

// check decides one request.
func (s *Server) check(c echo.Context) error {
	var body wire.CheckRequest
	err := readBody(c, maxBody, func(data []byte) error { return decodeCheck(data, &body) })
	if err != nil {
		return err
	}
	request, err := s.requestOf(&body)
	if err != nil {
		return err
	}
	request.ID, err = idOf(c, body.ID)
	if err != nil {
		return err
	}
	d, err := s.limiter.Check(c.Request().Context(), request)
	if err != nil {
		return err
	}
	describe(c.Response().Header(), &d)
	if d.Allowed {
		return sendAllowed(c, &d)
	}
	answer := decisionOf(&d)
	denial := denialOf(&d, &answer, c.Request().URL.EscapedPath())
	return send(c, denial.Status, problemJSON, &denial)
}

// sendAllowed writes an admission.
func sendAllowed(c echo.Context, d *limiter.Decision) error {
	b := buffers.Get().(*bytes.Buffer) //nolint:forcetypeassert // it holds nothing else
	defer release(b)
	b.Grow(usualAnswer)
	data, plain := appendAllowed(b.AvailableBuffer(), d)
	if !plain {
		answer := decisionOf(d)
		return send(c, http.StatusOK, plainJSON, &answer)
	}
	respond(c, http.StatusOK, plainJSON, data)
	return nil
}

// requestOf reads the two forms of a check.
func (s *Server) requestOf(body *wire.CheckRequest) (limiter.Request, error) {
	request := limiter.Request{ID: body.ID}
	if body.Limits == nil {
		if body.Limit == "" {
			return limiter.Request{}, badRequest("limit is missing")
		}
		cost, err := s.costOf(body.Limit, body.Cost)
		if err != nil {
			return limiter.Request{}, err
		}
		request.Members = []limiter.Member{{Limit: body.Limit, Subject: body.Subject, Cost: cost}}
		return request, nil
	}
	if body.Limit != "" || body.Cost != nil {
		return limiter.Request{}, badRequest("a check with limits has no limit or cost of its own")
	}
	if len(body.Limits) > limiter.MaxMembers {
		return limiter.Request{}, badRequest("a check names at most %d limits, not %d",
			limiter.MaxMembers, len(body.Limits))
	}
	request.Members = make([]limiter.Member, len(body.Limits))
	for i, m := range body.Limits {
		if m.Limit == "" {
			return limiter.Request{}, badRequest("limits[%d]: limit is missing", i)
		}
		if m.Subject == "" {
			m.Subject = body.Subject
		}
		cost, err := s.costOf(m.Limit, m.Cost)
		if err != nil {
			return limiter.Request{}, err
		}
		request.Members[i] = limiter.Member{Limit: m.Limit, Subject: m.Subject, Cost: cost}
	}
	return request, nil
}

// costOf reads a cost on a limit, the kind's own where there is none.
func (s *Server) costOf(limit string, cost *wire.Amount) (uint64, error) {
	if cost == nil {
		return limiter.DefaultCost, nil
	}
	return s.unitsOf("cost", limit, *cost)
}

// unitsOf reads an amount on a limit as its smallest units.
func (s *Server) unitsOf(key, limit string, amount wire.Amount) (uint64, error) {
	asset, known := s.limiter.Limits().AssetOf(limit)
	switch {
	case !known: // which is said later
		return amount.Units, nil
	case asset == nil && amount.Scale > 0:
		return 0, badRequest("%s: want a whole number from 0 to %d on limit %q", key,
			uint64(wire.MaxAmount), limit)
	case asset == nil:
		return amount.Units, nil
	}
	units, ok := amount.In(asset.Scale)
	if !ok || !amount.Money {
		return 0, badRequest("%s: limit %q counts %s: want a string of decimal digits, "+
			"at most %d of them behind the point", key, limit, asset.Code, asset.Scale)
	}
	return units, nil
}

// amountOf writes units as what a limit counts.
func amountOf(asset *limiter.Asset, units uint64) wire.Amount {
	if asset == nil {
		return wire.Count(units)
	}
	return wire.Money(units, asset.Scale)
}

// decisionOf writes a decision in the words of the wire.
func decisionOf(d *limiter.Decision) wire.Decision {
	answer := wire.Decision{
		Allowed: d.Allowed, Transfer: receipt(d.Transfer), Replayed: d.Replayed, Degraded: d.Degraded,
		At: wire.Time{Time: d.At}, Limits: make([]wire.State, len(d.Limits)),
		RetryAfterMS: int64(d.RetryAfter / time.Millisecond), NewIDRequired: d.NewIDRequired,
	}
	if d.IDNotRecorded {
		answer.IDRecorded = new(false)
	}
	for i := range d.Limits {
		state := &d.Limits[i]
		answer.Limits[i] = wire.State{
			Limit: state.Limit, Subject: state.Subject, Cost: amountOf(state.Asset, state.Cost),
			WindowSeconds: int64(state.Window / time.Second),
		}
		if state.Known {
			read := &figures{
				amountOf(state.Asset, state.Quota), amountOf(state.Asset, state.Remaining),
				int64(state.Reset / time.Second),
			}
			answer.Limits[i].Quota = &read.quota
			answer.Limits[i].Remaining = &read.remaining
			answer.Limits[i].ResetSeconds = &read.resetSeconds
		}
	}
	return answer
}

// figures are what was read of an account: three pointers of the answer lead into one of these.
type figures struct {
	quota, remaining wire.Amount
	resetSeconds     int64
}

// denialOf makes the problem that a denied caller gets.
func denialOf(d *limiter.Decision, answer *wire.Decision, instance string) wire.Problem {
	meaning, _ := wire.MeaningOf(wire.CodeQuotaExceeded)
	denied := &d.Limits[d.Denied]
	detail := fmt.Sprintf("limit %q does not have %d left", denied.Limit, max(1, denied.Cost))
	switch {
	case d.Replayed:
		detail = fmt.Sprintf("limit %q: this id was denied before and stays denied", denied.Limit)
	case d.RetryAfter > 0:
		detail += fmt.Sprintf("; it will in %d s", wholeSeconds(d.RetryAfter))
	}
	return wire.Problem{
		Type: wire.TypeQuotaExceeded, Title: meaning.Title, Status: meaning.Status, Detail: detail,
		Instance: instance, Code: meaning.Code, ViolatedPolicies: []string{denied.Limit},
		NewIDRequired: d.NewIDRequired, Decision: answer,
	}
}

// receipt writes the id of a transfer, nothing where there is none.
func receipt(id ledgers.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}
