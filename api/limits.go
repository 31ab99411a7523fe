package api

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
)

// millionths are what a limit's CloseAt counts.
const millionths = 1e6

// limits lists the limits in force.
func (s *Server) limits(c echo.Context) error {
	_, err := query(c, nil)
	if err != nil {
		return err
	}
	all := s.limiter.Limits().All()
	answer := wire.Limits{Limits: make([]wire.Limit, len(all))}
	for i, l := range all {
		asset, _ := s.limiter.Limits().AssetOf(l.Name)
		answer.Limits[i] = wire.Limit{
			Name: l.Name, Kind: string(l.Kind), Quota: amountOf(asset, l.Quota), Asset: l.Asset,
			WindowSeconds: int64(l.Window / time.Second), Align: l.Align, Timezone: l.Timezone,
			Shadow: l.Shadow, OnFailure: string(l.OnFailure),
			DeadlineMS: int64(l.Deadline / time.Millisecond),
		}
		if l.Align != "" && l.Timezone == "" {
			answer.Limits[i].Timezone = "UTC"
		}
		if l.CloseAt > 0 {
			answer.Limits[i].CloseAt = new(float64(l.CloseAt) / millionths)
		}
	}
	return send(c, http.StatusOK, plainJSON, &answer)
}

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
	answer := wire.Balance{
		Limit: b.Limit, Subject: b.Subject,
		Quota: amountOf(asset, b.Quota), Used: amountOf(asset, b.Used),
		Remaining: amountOf(asset, b.Remaining), Overage: amountOf(asset, b.Overage),
		Overridden:    b.Overridden,
		WindowSeconds: int64(b.Window / time.Second), ResetSeconds: int64(b.Reset / time.Second),
		ResetsAt: resetsAt(b.ResetsAt),
	}
	return send(c, http.StatusOK, plainJSON, &answer)
}
