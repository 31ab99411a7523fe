package client

import (
	"context"
	"net/http"
	"net/url"

	"weir/api/wire"
)

// Transfer moves money from one subject to another within a transfer-amount limit, or is denied
// with nothing moved. Without an answer nobody knows whether the money was moved: the same ID will
// tell.
func (c *Client) Transfer(ctx context.Context, t wire.TransferRequest) (wire.Decision, error) {
	texts := []string{t.From, t.To, t.ID}
	for _, m := range t.Limits {
		texts = append(texts, m.Subject)
	}
	return c.decide(ctx, isPassing, "/v1/transfers", t, texts)
}

// Account reads what a subject has of an asset. One who was never given any is an error,
// wire.CodeAccountUnknown.
func (c *Client) Account(ctx context.Context, asset, subject string) (wire.Account, error) {
	var account wire.Account
	path := "/v1/accounts?" + url.Values{"asset": {asset}, "subject": {subject}}.Encode()
	err := c.call(ctx, http.MethodGet, path, c.options.Token, nil, &account)
	return account, err
}

// Deposit gives money to a subject. It wants the admin's token.
func (c *Client) Deposit(ctx context.Context, m wire.MovementRequest) (wire.Movement, error) {
	return c.move(ctx, "/v1/admin/deposits", m)
}

// Withdraw takes money from a subject. It wants the admin's token.
func (c *Client) Withdraw(ctx context.Context, m wire.MovementRequest) (wire.Movement, error) {
	return c.move(ctx, "/v1/admin/withdrawals", m)
}

func (c *Client) move(ctx context.Context, path string, m wire.MovementRequest,
) (wire.Movement, error) {
	err := sendable(m.Subject, m.ID)
	if err != nil {
		return wire.Movement{}, err
	}
	var movement wire.Movement
	err = c.call(ctx, http.MethodPost, path, c.options.AdminToken, m, &movement)
	return movement, err
}
