package api

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
)

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
			Name: l.Name, Kind: string(l.Kind), Quota: amountOf(asset, l.Quota),
			WindowSeconds: int64(l.Window / time.Second),
		}
	}
	return send(c, http.StatusOK, plainJSON, &answer)
}
