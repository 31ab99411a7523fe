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
	request, err := requestOf(&body)
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
func requestOf(body *wire.CheckRequest) (limiter.Request, error) {
	request := limiter.Request{ID: body.ID}
	if body.Limits == nil {
		if body.Limit == "" {
			return limiter.Request{}, badRequest("limit is missing")
		}
		request.Members = []limiter.Member{
			{Limit: body.Limit, Subject: body.Subject, Cost: costOf(body.Cost)},
		}
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
		request.Members[i] = limiter.Member{Limit: m.Limit, Subject: m.Subject, Cost: costOf(m.Cost)}
	}
	return request, nil
}

func costOf(cost *wire.Amount) uint64 {
	if cost == nil {
		return limiter.DefaultCost
	}
	return uint64(*cost)
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
			Limit: state.Limit, Subject: state.Subject, Cost: wire.Amount(state.Cost),
			WindowSeconds: int64(state.Window / time.Second),
		}
		if state.Known {
			read := &figures{
				wire.Amount(state.Quota), wire.Amount(state.Remaining), int64(state.Reset / time.Second),
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
