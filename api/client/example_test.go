package client_test

import (
	"context"
	"fmt"
	"os"

	"weir/api/client"
	"weir/api/wire"
)

// Ask before each request whether its sender may still make one. A denial is an answer like
// another; an error means that there is none.
func ExampleClient_Check() {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	url, stop, err := serve(dir, fixed) // a weir whose limit is 3 requests a minute
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	c, err := client.New(url, &client.Options{Token: "user"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 4 {
		decision, err := c.Check(context.Background(), wire.CheckRequest{
			Limit:   "api-requests",
			Subject: "alice",
			ID:      fmt.Sprintf("request-%d", i), // sent again after a failure, it is charged once
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(decision.Allowed, *decision.Limits[0].Remaining)
	}
	// Output:
	// true 2
	// true 1
	// true 0
	// false 0
}
