package client_test

import (
	"context"
	"fmt"

	"weir/api/client"
	"weir/api/wire"
)

// A guard goes around the call to a model. While the budget lasts, the model answers; after that
// the fallback does, which costs nothing.
func ExampleGuard_Do() {
	weir := inProcess{&budget{tokens: 200}} // in place of a weir with a budget of 200 tokens
	c, err := client.New("http://127.0.0.1:8080", &client.Options{HTTPClient: weir.client()})
	if err != nil {
		fmt.Println(err)
		return
	}
	guard := c.NewGuard("llm", nil)
	for range 3 {
		answer := ""
		result, err := guard.Do(context.Background(),
			client.Ask{Subject: "alice", Model: "small", Input: "Why is the sky blue?",
				MaxOutputTokens: 80},
			func(context.Context) (wire.SpendUsage, error) { // call the provider, with this context
				answer = "It scatters blue light most."
				return wire.SpendUsage{ // as the provider reports it; what is left out is estimated
					InputTokens: new(wire.Count(6)), OutputTokens: new(wire.Count(64)),
				}, nil
			},
			func(_ context.Context, reason string) error {
				answer = "Please ask again tomorrow: " + reason
				return nil
			})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(result.Route, "-", answer)
	}
	// Output:
	// model - It scatters blue light most.
	// model - It scatters blue light most.
	// fallback - Please ask again tomorrow: token-budget
}

// A stream ends long after the function that began it. Its call is a handle that is settled at the
// end, and closed in any case: a stream that nobody settled took what was estimated.
func ExampleGuard_Authorize() {
	weir := inProcess{&budget{tokens: 200}}
	c, err := client.New("http://127.0.0.1:8080", &client.Options{HTTPClient: weir.client()})
	if err != nil {
		fmt.Println(err)
		return
	}
	call, err := c.NewGuard("llm", nil).Authorize(context.Background(), client.Ask{
		Subject: "alice", Model: "small", InputTokens: 6, MaxOutputTokens: 80,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer call.Close()
	fmt.Println(call.Route, call.Reserved.Tokens)

	output := uint64(0)
	for range 12 { // pieces of the stream
		output++
	}
	settlement, err := call.Settle(wire.SpendUsage{
		InputTokens: new(wire.Count(6)), OutputTokens: new(wire.Count(output)),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(settlement.Booked.Tokens, settlement.Estimated)
	// Output:
	// model 86
	// 18 false
}
