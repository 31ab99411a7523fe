package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
	"weir/limiter"
)

// grant raises one subject's quota for good.
func (s *Server) grant(c echo.Context) error { return s.change(c, s.limiter.Grant) }

// revoke lowers one subject's quota for good.
func (s *Server) revoke(c echo.Context) error { return s.change(c, s.limiter.Revoke) }

func (s *Server) change(c echo.Context,
	apply func(context.Context, limiter.Change) (limiter.Changed, error),
) error {
	var body wire.ChangeRequest
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
	change := limiter.Change{Limit: body.Limit, Subject: body.Subject, Amount: units, ID: id}
	made, err := apply(c.Request().Context(), change)
	if err != nil {
		return err
	}
	asset, _ := s.limiter.Limits().AssetOf(change.Limit)
	return send(c, http.StatusOK, plainJSON, &wire.Change{
		Transfer: receipt(made.Transfer), Replayed: made.Replayed, At: wire.Time{Time: made.At},
		Limit: change.Limit, Subject: change.Subject, Amount: amountOf(asset, change.Amount),
		Quota: amountOf(asset, made.Quota), Remaining: amountOf(asset, made.Remaining),
	})
}
