package api

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
)

// balance reads what a subject has on a limit.
func (s *Server) balance(c echo.Context) error {
	values, err := query(c, []string{"limit", "subject"})
	if err != nil {
		return err
	}
	b, err := s.limiter.Balance(c.Request().Context(), values.Get("limit"), values.Get("subject"))
	if err != nil {
		return err
	}
	asset, _ := s.limiter.Limits().AssetOf(b.Limit)
	return send(c, http.StatusOK, plainJSON, &wire.Balance{
		Limit: b.Limit, Subject: b.Subject,
		Quota: amountOf(asset, b.Quota), Used: amountOf(asset, b.Used),
		Remaining: amountOf(asset, b.Remaining), Overage: amountOf(asset, b.Overage),
		WindowSeconds: int64(b.Window / time.Second), ResetSeconds: int64(b.Reset / time.Second),
	})
}
