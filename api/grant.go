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
	err := readJSON(c, &body)
	if err != nil {
		return err
	}
	units, id, err := s.unitsAndID(c, body.Limit, body.Amount, body.ID)
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

// unitsAndID reads what a grant, a revocation and usage that is tracked name alike.
func (s *Server) unitsAndID(c echo.Context, limit string, amount *wire.Amount, given string,
) (units uint64, id string, err error) {
	id, err = idOf(c, given)
	switch {
	case err != nil:
		return 0, "", err
	case limit == "":
		return 0, "", badRequest("limit is missing")
	case amount == nil:
		return 0, "", badRequest("amount is missing")
	}
	units, err = s.unitsOf("amount", limit, *amount)
	return units, id, err
}

// override gives one subject a quota of its own.
func (s *Server) override(c echo.Context) error {
	var body wire.QuotaRequest
	err := readJSON(c, &body)
	switch {
	case err != nil:
		return err
	case body.Limit == "":
		return badRequest("limit is missing")
	case body.Quota == nil:
		return badRequest("quota is missing")
	}
	units, err := s.unitsOf("quota", body.Limit, *body.Quota)
	if err != nil {
		return err
	}
	q, err := s.limiter.Override(c.Request().Context(), body.Limit, body.Subject, units)
	if err != nil {
		return err
	}
	return s.sendQuota(c, body.Limit, body.Subject, q)
}

// clearOverride gives one subject the limit's quota again.
func (s *Server) clearOverride(c echo.Context) error {
	values, err := query(c, []string{"limit", "subject"})
	if err != nil {
		return err
	}
	limit, subject := values.Get("limit"), values.Get("subject")
	q, err := s.limiter.ClearOverride(c.Request().Context(), limit, subject)
	if err != nil {
		return err
	}
	return s.sendQuota(c, limit, subject, q)
}

func (s *Server) sendQuota(c echo.Context, limit, subject string, q limiter.SubjectQuota) error {
	asset, _ := s.limiter.Limits().AssetOf(limit)
	return send(c, http.StatusOK, plainJSON, &wire.SubjectQuota{
		Limit: limit, Subject: subject, Quota: amountOf(asset, q.Quota),
		Remaining: amountOf(asset, q.Remaining), Overridden: q.Overridden, Replayed: q.Replayed,
	})
}
