package api

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
	"weir/ledgers"
	"weir/limiter"
)

// usualAnswer is how long most answers are at most, in bytes.
const usualAnswer = 512

// Values of headers that are the same on every answer. Headers are set by key and not with Set,
// which would write RateLimit as Ratelimit and WWW-Authenticate as Www-Authenticate.
var (
	noStore     = []string{"no-store"}
	closing     = []string{"close"}
	plainJSON   = []string{"application/json"}
	problemJSON = []string{"application/problem+json"}
	askForToken = []string{`Bearer realm="weir"`}
	refuseToken = []string{`Bearer realm="weir", error="invalid_token"`}
)

// sendDecision answers a request that was decided.
func (s *Server) sendDecision(c echo.Context, d *limiter.Decision) error {
	if d.Allowed {
		describe(c.Response().Header(), d)
		return sendAllowed(c, d)
	}
	answer := decisionOf(d)
	denial := denialOf(d, &answer, c.Request().URL.EscapedPath())
	if denial.Code == wire.CodeQuotaExceeded {
		describe(c.Response().Header(), d)
	}
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

// describe sets RateLimit-Policy and RateLimit, of draft-ietf-httpapi-ratelimit-headers-11, for the
// limit that denied or is closest to empty, and Retry-After on a denial whose wait is known. Both
// fields want what was read of the balance: without it they are left out. So they are for money,
// which is no number of requests. Where units do not come back after a time, there is neither w nor
// t.
func describe(header http.Header, d *limiter.Decision) {
	if !d.Allowed && d.RetryAfter > 0 {
		header["Retry-After"] = []string{strconv.FormatInt(wholeSeconds(d.RetryAfter), 10)}
	}
	at := d.Tightest()
	if at < 0 || !d.Limits[at].Known || d.Limits[at].Asset != nil {
		return
	}
	state := &d.Limits[at]
	timed := state.Window > 0
	// Two names of at most 64 bytes, and numbers.
	b := make([]byte, 0, 192)
	b = append(append(append(b, '"'), state.Limit...), '"') // a limit's name needs no escapes
	name := b
	b = strconv.AppendUint(append(b, ";q="...), state.Quota, 10)
	if timed {
		b = strconv.AppendInt(append(b, ";w="...), int64(state.Window/time.Second), 10)
	}
	policy := len(b)
	b = strconv.AppendUint(append(append(b, name...), ";r="...), state.Remaining, 10)
	if timed {
		b = strconv.AppendInt(append(b, ";t="...), int64(state.Reset/time.Second), 10)
	}
	both := string(b)
	values := []string{both[:policy], both[policy:]}
	header["RateLimit-Policy"], header["RateLimit"] = values[:1:1], values[1:]
}

// wholeSeconds rounds up, to at least 1.
func wholeSeconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

// decisionOf writes a decision in the words of the wire.
func decisionOf(d *limiter.Decision) wire.Decision {
	answer := wire.Decision{
		Allowed: d.Allowed, Transfer: receipt(d.Transfer), Replayed: d.Replayed, Degraded: d.Degraded,
		At: wire.Time{Time: d.At}, Limits: make([]wire.State, len(d.Limits)),
		RetryAfterMS: int64(d.RetryAfter / time.Millisecond), NewIDRequired: d.NewIDRequired,
		ExpiresAt: timeOrNil(d.ExpiresAt),
	}
	if d.IDNotRecorded {
		answer.IDRecorded = new(false)
	}
	for i := range d.Limits {
		state := &d.Limits[i]
		answer.Limits[i] = wire.State{
			Limit: state.Limit, Subject: state.Subject, Cost: amountOf(state.Asset, state.Cost),
			WindowSeconds: int64(state.Window / time.Second), ResetsAt: resetsAt(state.ResetsAt),
			Shadow: state.Shadow, WouldDeny: state.WouldDeny,
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

// resetsAt is nil for limits without a calendar.
func resetsAt(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// figures are what was read of an account: three pointers of the answer lead into one of these.
type figures struct {
	quota, remaining wire.Amount
	resetSeconds     int64
}

// denialOf makes the problem that a denied caller gets.
func denialOf(d *limiter.Decision, answer *wire.Decision, instance string) wire.Problem {
	denied := &d.Limits[d.Denied]
	wanted := amountOf(denied.Asset, max(1, denied.Cost))
	detail := fmt.Sprintf("limit %q does not have %v left", denied.Limit, wanted)
	if denied.Kind == limiter.Budget && denied.Known && denied.Remaining >= max(1, denied.Cost) {
		detail += " before it closes"
	}
	switch {
	case d.Replayed:
		detail = fmt.Sprintf("limit %q: this id was denied before and stays denied", denied.Limit)
	case d.RetryAfter > 0:
		who := "it will"
		if len(d.Limits) > 1 { // another one may lack units for longer
			who = "all limits will have it"
		}
		detail += fmt.Sprintf("; %s in %d s", who, wholeSeconds(d.RetryAfter))
	}
	code, kind := wire.CodeQuotaExceeded, wire.TypeQuotaExceeded
	if denied.Kind == limiter.Credits { // which do not come back: they have to be bought
		code, kind = wire.CodeCreditsExhausted, ""
	}
	meaning, _ := wire.MeaningOf(code)
	return wire.Problem{
		Type: kind, Title: meaning.Title, Status: meaning.Status, Detail: detail,
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

// unitsOf reads an amount on a limit as its smallest units.
func (s *Server) unitsOf(key, limit string, amount wire.Amount) (uint64, error) {
	asset, known := s.limiter.Limits().AssetOf(limit)
	if !known { // which is said later
		return amount.Units, nil
	}
	return unitsIn(key, asset, amount)
}

// unitsIn reads an amount of an asset, or with nil of plain units, as smallest units.
func unitsIn(key string, asset *limiter.Asset, amount wire.Amount) (uint64, error) {
	switch {
	case asset == nil && amount.Scale > 0:
		return 0, badRequest("%s: want a whole number from 0 to %d", key, uint64(wire.MaxAmount))
	case asset == nil:
		return amount.Units, nil
	}
	units, ok := amount.In(asset.Scale)
	if !ok || !amount.Money {
		return 0, badRequest("%s: the limit counts %s: want a string of decimal digits, "+
			"at most %d of them behind the point", key, asset.Code, asset.Scale)
	}
	return units, nil
}

// amountOf writes units as what a limit counts. A cost can be above all amounts: no quota has it,
// and what is sent for it is the greatest.
func amountOf(asset *limiter.Asset, units uint64) wire.Amount {
	units = min(units, wire.MaxAmount)
	if asset == nil {
		return wire.Count(units)
	}
	return wire.Money(units, asset.Scale)
}
