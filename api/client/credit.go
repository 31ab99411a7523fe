package client

import (
	"context"
	"net/http"

	"weir/api/wire"
)

// Track books what a subject has used already, also what it does not have left. The same ID sent
// again books it once. That the server's ledger is away is no error: the usage is then spooled, and
// booked later.
func (c *Client) Track(ctx context.Context, r wire.TrackRequest) (wire.Tracked, error) {
	err := sendable(r.Subject, r.ID)
	if err != nil {
		return wire.Tracked{}, err
	}
	var tracked wire.Tracked
	err = c.call(ctx, http.MethodPost, "/v1/track", c.options.Token, r, &tracked)
	return tracked, err
}
