package client

import (
	"context"
	"net/http"
	"net/url"

	"weir/api/wire"
)

// Reserve asks whether a subject may do something, and holds what it takes if so. The decision's
// Transfer is the receipt for Settle, Release and Renew, on any node. Without an ID it is given
// one, so that it can be asked again: nobody would know the receipt of an answer that was lost.
func (c *Client) Reserve(ctx context.Context, r wire.ReservationRequest) (wire.Decision, error) {
	if r.ID == "" {
		r.ID = newID()
	}
	return c.decide(ctx, isPassing, "/v1/reservations", r, textsOf(r.CheckRequest))
}

// Settle books what a reservation really took. Made again, it is answered the same.
func (c *Client) Settle(ctx context.Context, receipt string, s wire.SettleRequest,
) (wire.Settlement, error) {
	for _, m := range s.Limits {
		err := sendable(m.Subject)
		if err != nil {
			return wire.Settlement{}, err
		}
	}
	var settlement wire.Settlement
	err := c.call(ctx, http.MethodPost, onReceipt(receipt, "settle"), c.options.Token, s, &settlement)
	return settlement, err
}

// Release gives back all that a reservation holds, or what a check took.
func (c *Client) Release(ctx context.Context, receipt string) (wire.Settlement, error) {
	var settlement wire.Settlement
	path := onReceipt(receipt, "release")
	err := c.call(ctx, http.MethodPost, path, c.options.Token, struct{}{}, &settlement)
	return settlement, err
}

// Renew holds the same for so long from now on. The decision's Transfer is the new receipt, and its
// ExpiresAt the new end.
func (c *Client) Renew(ctx context.Context, receipt string, r wire.RenewRequest,
) (wire.Decision, error) {
	return c.decide(ctx, isPassing, onReceipt(receipt, "renew"), r, nil)
}

// onReceipt is the path of what is done with a reservation.
func onReceipt(receipt, action string) string {
	return "/v1/reservations/" + url.PathEscape(receipt) + "/" + action
}
