package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
	"weir/limiter"
)

// track books what was used already. That the ledger is away is no error.
func (s *Server) track(c echo.Context) error {
	var body wire.TrackRequest
	err := readBody(c, maxBody, func(data []byte) error { return decode(data, allLevels, &body) })
	if err != nil {
		return err
	}
	id, err := idOf(c, body.ID)
	switch {
	case err != nil:
		return err
	case body.Limit == "":
		return badRequest("limit is missing")
	case body.Amount == nil:
		return badRequest("amount is missing")
	}
	units, err := s.unitsOf("amount", body.Limit, *body.Amount)
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
