package api

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
	"weir/ledgers"
	"weir/limiter"
)

// reserve decides one request and holds what it takes.
func (s *Server) reserve(c echo.Context) error {
	var body wire.ReservationRequest
	err := readJSON(c, &body)
	if err != nil {
		return err
	}
	request, err := s.requestOf(&body.CheckRequest)
	if err != nil {
		return err
	}
	request.ID, err = idOf(c, body.ID)
	if err != nil {
		return err
	}
	request.Hold, err = holdOf(body.HoldSeconds)
	if err != nil {
		return err
	}
	d, err := s.limiter.Reserve(c.Request().Context(), request)
	if err != nil {
		return err
	}
	return s.sendDecision(c, &d)
}

// holdOf reads for how long to hold.
func holdOf(seconds int64) (time.Duration, error) {
	const most = int64(limiter.MaxHold / time.Second)
	if seconds < 1 || seconds > most {
		return 0, badRequest("hold_seconds: want 1 to %d", most)
	}
	return time.Duration(seconds) * time.Second, nil
}

// settle books what a reservation really took.
func (s *Server) settle(c echo.Context) error {
	var body wire.SettleRequest
	held, err := receiptAndJSON(c, &body)
	if err != nil {
		return err
	}
	settlement := limiter.Settlement{Receipt: held}
	if body.Cost != nil {
		settlement.CostIn = func(asset *limiter.Asset) (uint64, error) {
			return unitsIn("cost", asset, *body.Cost)
		}
	}
	settlement.Members, err = s.membersOf(body.Limits, "")
	if err != nil {
		return err
	}
	settled, err := s.limiter.Settle(c.Request().Context(), settlement)
	if err != nil {
		return err
	}
	return s.sendSettled(c, settled)
}

// giveBack releases what a reservation holds, or what a check took.
func (s *Server) giveBack(c echo.Context) error {
	var body struct{}
	held, err := receiptAndJSON(c, &body)
	if err != nil {
		return err
	}
	settled, err := s.limiter.Release(c.Request().Context(), held)
	if err != nil {
		return err
	}
	return s.sendSettled(c, settled)
}

// renew holds the same for longer.
func (s *Server) renew(c echo.Context) error {
	var body wire.RenewRequest
	held, err := receiptAndJSON(c, &body)
	if err != nil {
		return err
	}
	hold, err := holdOf(body.HoldSeconds)
	if err != nil {
		return err
	}
	d, err := s.limiter.Renew(c.Request().Context(), held, hold)
	if err != nil {
		return err
	}
	return s.sendDecision(c, &d)
}

// receiptAndJSON returns the receipt in a call's path and reads the body. An Idempotency-Key is of
// no use beside it: the receipt and what is asked for tell a call that is made again.
func receiptAndJSON(c echo.Context, body any) (ledgers.ID, error) {
	id, err := ledgers.ParseID(c.Param("transfer"))
	if err != nil || id.IsZero() {
		return ledgers.ID{}, badRequest("want a receipt of 32 lower-case hex digits in the path")
	}
	return id, readJSON(c, body)
}

// sendSettled says what became of a reservation.
func (s *Server) sendSettled(c echo.Context, settled limiter.Settled) error {
	answer := wire.Settlement{
		Transfer: receipt(settled.Transfer), Replayed: settled.Replayed, Late: settled.Late,
		Limits: make([]wire.SettledLimit, len(settled.Limits)),
	}
	for i, l := range settled.Limits {
		asset, _ := s.limiter.Limits().AssetOf(l.Limit)
		answer.Limits[i] = wire.SettledLimit{
			Limit: l.Limit, Subject: l.Subject, Held: amountOf(asset, l.Held),
			Booked: amountOf(asset, l.Booked), Overage: amountOf(asset, l.Overage),
		}
		if l.Known {
			answer.Limits[i].Remaining = new(amountOf(asset, l.Remaining))
		}
	}
	return send(c, http.StatusOK, plainJSON, &answer)
}
