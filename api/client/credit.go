package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"weir/api/wire"
	"weir/limiter/credit"
)

// Gate asks whether a subject's credits on a limit are known to be exhausted. That they are is an
// answer and not an error. On a hot path, [Client.NewGate] answers from this process's memory, and
// while the server is away.
func (c *Client) Gate(ctx context.Context, limit, subject string) (wire.Gate, error) {
	return c.gate(ctx, url.Values{
		"limit": {limit}, "subject": {subject}, "mode": {wire.ModeMark},
	})
}

func (c *Client) gate(ctx context.Context, query url.Values) (wire.Gate, error) {
	var gate wire.Gate
	err := sendable(query.Get("subject"))
	if err != nil {
		return wire.Gate{}, err
	}
	err = c.call(ctx, http.MethodGet, "/v1/gate?"+query.Encode(), c.options.Token, nil, &gate)
	return gate, err
}

// NewGate returns a credit gate in this process for a limit that has one on the server. It decides
// from memory, lets pass what it does not know, and asks the server in the background; what it
// knows of exhausted subjects holds while the server is away. Options may be nil. Whoever made it
// closes it.
func (c *Client) NewGate(limit string, options *credit.Options) (*credit.Gate, error) {
	return credit.New(limit, &gateSource{c, limit}, options)
}

// gateSource has a server's gate as the source of another.
type gateSource struct {
	client *Client
	limit  string
}

// Fetch asks the server, which may wait for its own source. That the server does not know is no
// word that there is no balance: it may have just started, or its source may be down. Only where
// its source has said so does the server, too.
func (s *gateSource) Fetch(ctx context.Context, subject string) (credit.Answer, error) {
	gate, err := s.client.gate(ctx, url.Values{
		"limit": {s.limit}, "subject": {subject}, "mode": {wire.ModeMark}, "wait": {"true"},
	})
	if err != nil {
		return credit.Answer{}, fmt.Errorf("ask weir: %w", withoutURL(err))
	}
	flag := credit.FlagOff
	if gate.Enforced {
		flag = credit.FlagOn
	}
	switch {
	case gate.None:
		return credit.Answer{Flag: flag}, nil
	case !gate.Known:
		return credit.Answer{}, ErrUnknownBalance
	}
	return credit.Answer{Flag: flag, Balance: credit.Balance{
		Known: true, Granted: gate.Granted, Usage: gate.Usage, Remaining: gate.Remaining,
		Unlimited: gate.Unlimited,
	}}, nil
}

// withoutURL returns what is wrong without the URL, in which the subject is: the gate logs it.
func withoutURL(err error) error {
	e, ok := errors.AsType[*url.Error](err)
	if ok {
		return e.Err
	}
	return err
}
