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
	return send(c, http.StatusOK, plainJSON, &wire.Balance{
		Limit: b.Limit, Subject: b.Subject, Quota: wire.Amount(b.Quota), Used: wire.Amount(b.Used),
		Remaining: wire.Amount(b.Remaining), Overage: wire.Amount(b.Overage),
		WindowSeconds: int64(b.Window / time.Second), ResetSeconds: int64(b.Reset / time.Second),
	})
}
