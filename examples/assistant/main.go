// Command assistant answers a question by a model that costs money, within a budget that weir
// keeps. Without budget, or without a model that answers, it falls back to an answer that costs
// nothing.
//
//	weir serve &
//	go run ./examples/assistant -subject alice Why is the sky blue?
//	go run ./examples/assistant -stub hangs -timeout 2s Why is the sky blue?
//
// The model is a stub in this process, so that playing with it is free: -stub says how it behaves.
// A provider elsewhere, which has to speak as stub.go does, is named by -provider or PROVIDER_URL.
// WEIR_URL says where weir is, and WEIR_TOKEN its token, if it has one; its config has to have the
// budget of -budget and a price of the model "small", as the example at the end of weir.yaml has.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"weir/api/client"
	"weir/api/wire"
)

const (
	model           = "small"
	maxOutputTokens = 200
)

// assistant is the application: a model, and the guard around it.
type assistant struct {
	guard *client.Guard
	model provider
}

// answer answers a prompt in any case, and says how.
func (a *assistant) answer(ctx context.Context, subject, prompt string,
) (string, client.Result, error) {
	var text string
	result, err := a.guard.Do(ctx,
		client.Ask{
			Subject: subject, Model: model, Input: prompt, MaxOutputTokens: maxOutputTokens,
		},
		func(ctx context.Context) (wire.SpendUsage, error) {
			answer, usage, err := a.model.complete(ctx, prompt)
			text = answer
			return usage, err
		},
		func(_ context.Context, reason string) error {
			text = fallback(reason, prompt)
			return nil
		})
	return text, result, err
}

// fallback answers without a model. It is the same for the same prompt and reason.
func fallback(reason, prompt string) string {
	return fmt.Sprintf("No model can answer now (%s). You asked %d words; please ask again later.",
		reason, len(strings.Fields(prompt)))
}

func main() {
	err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "assistant:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flags := flag.NewFlagSet("assistant", flag.ContinueOnError)
	weir := flags.String("weir", cmp.Or(os.Getenv("WEIR_URL"), "http://127.0.0.1:8080"),
		"`URL` of weir")
	budget := flags.String("budget", "llm-daily", "`name` of the budget")
	subject := flags.String("subject", "me", "`name` of who asks")
	url := flags.String("provider", os.Getenv("PROVIDER_URL"), "`URL` of the model (default a stub)")
	behavior := flags.String("stub", "answers", "how the stub behaves: "+strings.Join(behaviors, ", "))
	timeout := flags.Duration("timeout", time.Minute, "how long one call to the model may take")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if *url == "" {
		stub, err := startStub(*behavior)
		if err != nil {
			return err
		}
		defer stub.Close()
		*url = stub.URL
	}
	c, err := client.New(*weir, &client.Options{Token: os.Getenv("WEIR_TOKEN")})
	if err != nil {
		return err
	}
	a := &assistant{
		guard: c.NewGuard(*budget, &client.GuardOptions{CallTimeout: *timeout}),
		model: provider{url: *url},
	}
	text, result, err := a.answer(ctx, *subject, strings.Join(flags.Args(), " "))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n\n%s\n", text, receipt(result))
	return err
}

// receipt says in a line who answered and what that took.
func receipt(r client.Result) string {
	line := fmt.Sprintf("route %s, %d calls", r.Route, r.Attempts)
	if r.Reason != "" {
		line += ", " + r.Reason
	}
	if r.ReopensAt != nil {
		line += " until " + r.ReopensAt.Format(time.RFC3339)
	}
	if r.Settlement != nil {
		line += fmt.Sprintf(", the last for %v tokens and %v USD",
			r.Settlement.Booked.Tokens, r.Settlement.Booked.USD)
	}
	if r.Unsettled != nil {
		line += ", " + r.Unsettled.Error()
	}
	return line
}
