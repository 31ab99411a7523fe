package main

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"weir/api/wire"
)

// serveEcho is the server that decides nothing. It answers with a decision like weir's.
func serveEcho() error {
	quota, remaining, reset := wire.Count(999_999_999), wire.Count(999_999_990), int64(60)
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.POST(checkPath, func(c echo.Context) error {
		var request wire.CheckRequest
		err := c.Bind(&request)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, &wire.Decision{
			Allowed: true, Transfer: "01a22b01af977ae3bb5995fd00e094c2", At: wire.Time{Time: time.Now()},
			Limits: []wire.State{{
				Limit: request.Limit, Subject: request.Subject, Cost: wire.Count(1), Quota: &quota,
				Remaining: &remaining, WindowSeconds: 60, ResetSeconds: &reset,
			}},
		})
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("echo ready on http://%s\n", listener.Addr())
	return http.Serve(listener, e)
}
