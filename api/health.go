package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
)

// health says that the process answers. Whatever the ledger does, restarting weir would not help.
func (s *Server) health(c echo.Context) error {
	return send(c, http.StatusOK, plainJSON, &wire.Health{Status: "ok"})
}

// ready says whether calls should be sent here.
func (s *Server) ready(c echo.Context) error {
	switch {
	case s.draining.Load():
		return refused(wire.CodeNotReady, "shutting down")
	case !s.options.Ready():
		return refused(wire.CodeNotReady, "the ledger has not been reached yet")
	}
	return send(c, http.StatusOK, plainJSON, &wire.Health{Status: "ready", Ledger: s.ledgerState()})
}

func (s *Server) ledgerState() string {
	if s.options.LedgerUp() {
		return "up"
	}
	return "down"
}
