package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
	"weir/limiter"
)

// transfer moves money within a limit.
func (s *Server) transfer(c echo.Context) error {
	var body wire.TransferRequest
	id, err := readNamed(c, &body, &body.ID)
	switch {
	case err != nil:
		return err
	case body.Limit == "":
		return badRequest("limit is missing")
	case body.Amount == "":
		return badRequest("amount is missing")
	}
	t := limiter.Transfer{
		Limit: body.Limit, From: body.From, To: body.To, Amount: body.Amount, ID: id,
	}
	t.Members, err = s.membersOf(body.Limits, "")
	if err != nil {
		return err
	}
	d, err := s.limiter.Transfer(c.Request().Context(), t)
	if err != nil {
		return err
	}
	return s.sendDecision(c, &d)
}

// deposit gives money to a subject.
func (s *Server) deposit(c echo.Context) error { return s.move(c, s.limiter.Deposit) }

// withdraw takes money from a subject.
func (s *Server) withdraw(c echo.Context) error { return s.move(c, s.limiter.Withdraw) }

func (s *Server) move(c echo.Context,
	apply func(context.Context, limiter.Movement) (limiter.Moved, error),
) error {
	var body wire.MovementRequest
	id, err := readNamed(c, &body, &body.ID)
	switch {
	case err != nil:
		return err
	case body.Asset == "":
		return badRequest("asset is missing")
	case body.Amount == "":
		return badRequest("amount is missing")
	}
	moved, err := apply(c.Request().Context(), limiter.Movement{
		Asset: body.Asset, Subject: body.Subject, Amount: body.Amount, ID: id,
	})
	if err != nil {
		return err
	}
	return send(c, http.StatusOK, plainJSON, &wire.Movement{
		Transfer: receipt(moved.Transfer), Replayed: moved.Replayed, At: wire.Time{Time: moved.At},
		Asset: body.Asset, Subject: body.Subject, Amount: s.inFull(body.Asset, body.Amount),
		Balance: moved.Balance,
	})
}

// inFull writes an amount of an asset with all digits of its scale, as balances are.
func (s *Server) inFull(code, amount string) string {
	for _, asset := range s.limiter.Limits().Assets() {
		if asset.Code != code {
			continue
		}
		units, err := asset.Parse(amount)
		if err == nil {
			return asset.Format(units)
		}
	}
	return amount // the asset was taken out of the config just now
}

// account reads what a subject has of an asset.
func (s *Server) account(c echo.Context) error {
	values, err := query(c, []string{"asset", "subject"})
	if err != nil {
		return err
	}
	funds, err := s.limiter.Funds(c.Request().Context(), values.Get("asset"), values.Get("subject"))
	if err != nil {
		return err
	}
	return send(c, http.StatusOK, plainJSON, &wire.Account{
		Asset: funds.Asset, Subject: funds.Subject, Balance: funds.Balance,
	})
}
