package client

import (
	"context"
	"net/http"

	"weir/api/wire"
)

// Health asks whether the server is alive. It is asked once: the next answer is as good.
func (c *Client) Health(ctx context.Context) (wire.Health, error) {
	return c.health(ctx, "/healthz")
}

// Ready asks whether the server can serve. It is asked once. One that cannot is an error,
// wire.CodeNotReady.
func (c *Client) Ready(ctx context.Context) (wire.Health, error) {
	return c.health(ctx, "/readyz")
}

func (c *Client) health(ctx context.Context, path string) (wire.Health, error) {
	var health wire.Health
	err := c.try(ctx, request{method: http.MethodGet, path: path}, &health)
	return health, err
}
