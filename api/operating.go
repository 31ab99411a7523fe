package api

import (
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
	"weir/limiter"
)

// health says that the process answers. Whatever the ledger does, restarting weir would not help.
func (s *Server) health(c echo.Context) error {
	return send(c, http.StatusOK, plainJSON, &wire.Health{Status: "ok"})
}

// ready says whether calls should be sent here. While the ledger is down they should, as long as
// some limit can be answered without it.
func (s *Server) ready(c echo.Context) error {
	switch {
	case s.draining.Load():
		return refused(wire.CodeNotReady, "shutting down")
	case !s.options.Ready():
		return refused(wire.CodeNotReady, "the ledger has not been reached yet")
	case !s.options.LedgerUp() && !s.someLimitOpen():
		return refused(wire.CodeNotReady, "the ledger does not answer, and no limit can without it")
	}
	return send(c, http.StatusOK, plainJSON, &wire.Health{Status: "ready", Ledger: s.ledgerState()})
}

func (s *Server) someLimitOpen() bool {
	return slices.ContainsFunc(s.limiter.Limits().All(), func(l limiter.Limit) bool {
		return l.OnFailure == limiter.Open
	})
}

func (s *Server) ledgerState() string {
	if s.options.LedgerUp() {
		return "up"
	}
	return "down"
}
