package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// access says who may use a route.
type access int

const (
	public access = iota
	users         // with the token, if there is one
	payers        // with the token, without which nobody may
	admins
)

// route is one thing that can be asked of a server.
type route struct {
	method string
	path   string
	access access
	handle func(*Server, echo.Context) error
}

// routes are all of them. What is not here is not found.
func routes() []route {
	return []route{
		{http.MethodPost, "/v1/check", users, (*Server).check},
		{http.MethodPost, "/v1/check/batch", users, (*Server).batch},
		{http.MethodGet, "/v1/gate", users, (*Server).creditGate},
		{http.MethodPost, "/v1/track", users, (*Server).track},
		{http.MethodGet, "/v1/limits", users, (*Server).limits},
		{http.MethodGet, "/v1/balance", users, (*Server).balance},
		{http.MethodPost, "/v1/reservations", users, (*Server).reserve},
		{http.MethodPost, "/v1/reservations/:transfer/settle", users, (*Server).settle},
		{http.MethodPost, "/v1/reservations/:transfer/release", users, (*Server).giveBack},
		{http.MethodPost, "/v1/reservations/:transfer/renew", users, (*Server).renew},
		{http.MethodPost, "/v1/spend/authorize", users, (*Server).authorize},
		{http.MethodPost, "/v1/spend/:transfer/settle", users, (*Server).settleSpend},
		{http.MethodPost, "/v1/transfers", payers, (*Server).transfer},
		{http.MethodGet, "/v1/accounts", payers, (*Server).account},
		{http.MethodPost, "/v1/admin/grants", admins, (*Server).grant},
		{http.MethodPost, "/v1/admin/revocations", admins, (*Server).revoke},
		{http.MethodPut, "/v1/admin/quota", admins, (*Server).override},
		{http.MethodDelete, "/v1/admin/quota", admins, (*Server).clearOverride},
		{http.MethodPost, "/v1/admin/deposits", admins, (*Server).deposit},
		{http.MethodPost, "/v1/admin/withdrawals", admins, (*Server).withdraw},
		{http.MethodPost, "/v1/admin/corrections", admins, (*Server).correct},
		{http.MethodGet, "/v1/admin/spend/journal", admins, (*Server).spendJournal},
		{http.MethodGet, "/v1/admin/journal", admins, (*Server).journal},
		{http.MethodGet, "/healthz", public, (*Server).health},
		{http.MethodGet, "/readyz", public, (*Server).ready},
		{http.MethodGet, "/metrics", public, (*Server).exposition},
	}
}

// unmatched stands for the route of calls that have none, in metrics and logs.
const unmatched = "unmatched"

// router puts the routes up. A HEAD is a GET whose body net/http leaves out.
func (s *Server) router() *echo.Echo {
	e := echo.New()
	for _, r := range routes() {
		h := s.serve(r)
		e.Add(r.method, r.path, h)
		if r.method == http.MethodGet {
			e.Add(http.MethodHead, r.path, h)
		}
	}
	e.HTTPErrorHandler = s.serveUnmatched()
	return e
}

// serve makes a handler of a route: it lets in who may come in, runs the route, and sees to it that
// whatever happens is answered, counted and logged.
func (s *Server) serve(r route) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := s.options.Now()
		s.prepare(c)
		err := s.run(c, r)
		if err != nil {
			s.writeProblem(c, err)
		}
		s.done(c, r.path, start, err)
		return nil
	}
}

// run runs a route for a caller who may use it. A panic is an error like another.
func (s *Server) run(c echo.Context, r route) (err error) {
	defer func() {
		thrown := recover()
		if thrown != nil {
			err = s.panicked(thrown)
		}
	}()
	err = s.admit(c, r.access)
	if err != nil {
		return err
	}
	return r.handle(s, c)
}

// serveUnmatched answers what the router found no route for.
func (s *Server) serveUnmatched() echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		start := s.options.Now()
		s.prepare(c)
		s.writeProblem(c, err)
		s.done(c, unmatched, start, err)
	}
}

// prepare sets the headers that every answer has.
func (s *Server) prepare(c echo.Context) {
	header := c.Response().Header()
	header["Cache-Control"] = noStore
	if s.draining.Load() {
		header["Connection"] = closing
	}
}
