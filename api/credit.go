package api

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
	"weir/limiter"
	"weir/limiter/credit"
)

// track books what was used already. That the ledger is away is no error.
func (s *Server) track(c echo.Context) error {
	var body wire.TrackRequest
	err := readJSON(c, &body)
	if err != nil {
		return err
	}
	units, id, err := s.unitsAndID(c, body.Limit, body.Amount, body.ID)
	if err != nil {
		return err
	}
	tracked, err := s.limiter.Track(c.Request().Context(), limiter.Usage{
		Limit: body.Limit, Subject: body.Subject, Amount: units, ID: id,
	})
	if err != nil {
		return err
	}
	asset, _ := s.limiter.Limits().AssetOf(body.Limit)
	return send(c, http.StatusOK, plainJSON, &wire.Tracked{
		Transfer: receipt(tracked.Transfer), At: wire.Time{Time: tracked.At},
		Limit: body.Limit, Subject: body.Subject, Amount: amountOf(asset, units),
		Booked: amountOf(asset, tracked.Booked), Overage: amountOf(asset, tracked.Overage),
		Spooled: tracked.Spooled, Dropped: tracked.Dropped,
	})
}

// creditGate says whether a subject's credits are known to be exhausted. It asks the gate's memory
// and nothing else, unless the caller says that it can wait.
func (s *Server) creditGate(c echo.Context) error {
	values, err := query(c, []string{"limit", "subject"}, "mode", "wait")
	if err != nil {
		return err
	}
	limit, subject := values.Get("limit"), values.Get("subject")
	mark := values.Get("mode") == wire.ModeMark
	if values.Has("mode") && !mark {
		return badRequest("mode: want %s, or leave it out", wire.ModeMark)
	}
	wait := false
	if values.Has("wait") {
		wait, err = strconv.ParseBool(values.Get("wait"))
		if err != nil {
			return badRequest("wait: want true or false")
		}
	}
	err = limiter.CheckSubject(subject)
	if err != nil {
		return err
	}
	gate := s.options.Gate(limit)
	if gate == nil {
		e := refused(wire.CodeUnknownLimit, "limit %q has no credit gate", limit)
		e.Limit = limit
		return e
	}
	var d credit.Decision
	if wait {
		d = gate.Balance(c.Request().Context(), subject)
	} else {
		d = gate.Decide(subject)
	}
	answer := gateOf(limit, subject, &d)
	if d.Blocked && !mark {
		return send(c, http.StatusPaymentRequired, problemJSON, blockedOf(&answer,
			c.Request().URL.EscapedPath()))
	}
	return send(c, http.StatusOK, plainJSON, &answer)
}

// gateOf writes a gate's decision in the words of the wire.
func gateOf(limit, subject string, d *credit.Decision) wire.Gate {
	return wire.Gate{
		Limit: limit, Subject: subject, Blocked: d.Blocked, Exhausted: d.Exhausted,
		Enforced: d.Enforced, None: d.None, Known: d.Known, Unlimited: d.Unlimited,
		Granted: exact(d.Granted), Usage: exact(d.Usage), Remaining: exact(d.Remaining),
		Stale: d.Stale, AgeMS: int64(d.Age / time.Millisecond),
	}
}

// exact keeps a figure within what every JSON reader takes as it is.
func exact(units int64) int64 { return max(-wire.MaxAmount, min(units, wire.MaxAmount)) }

// blockedOf makes the problem that a blocked caller gets.
func blockedOf(answer *wire.Gate, instance string) *wire.Problem {
	meaning, _ := wire.MeaningOf(wire.CodeCreditsExhausted)
	return &wire.Problem{
		Title: meaning.Title, Status: meaning.Status, Code: meaning.Code, Instance: instance,
		Detail: fmt.Sprintf("limit %q: the subject's credits are used up", answer.Limit),
		Limit:  answer.Limit, Gate: answer,
	}
}
