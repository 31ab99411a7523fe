package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"weir/api/wire"
)

// Authorize asks whether a call to a model may be made on a budget, and holds what it may cost.
// That the budget is closed is an answer and not an error. Without an ID it is given one, so that
// it can be asked again. [Guard] does this, the call and the settlement in one.
func (c *Client) Authorize(ctx context.Context, r wire.SpendRequest) (wire.Authorization, error) {
	err := sendable(r.Budget, r.Subject, r.Model, r.InputText, r.ID)
	if err != nil {
		return wire.Authorization{}, err
	}
	if r.ID == "" {
		r.ID = newID()
	}
	var authorization wire.Authorization
	err = c.call(ctx, http.MethodPost, "/v1/spend/authorize", c.options.Token, r, &authorization)
	return authorization, err
}

// AwaitAuthorize is an Authorize that waits: where the budget is closed, it asks again when it
// reopens, under a new id, at most as often as Retries says and no longer than the context has
// time. The ids are as in [Client.AwaitCheck].
func (c *Client) AwaitAuthorize(ctx context.Context, r wire.SpendRequest,
) (wire.Authorization, error) {
	id := r.ID
	for n := 0; ; n++ {
		a, err := c.Authorize(ctx, r)
		if err != nil || a.Route != wire.RouteFallback || a.ReopensAt == nil && !a.Replayed {
			return a, err
		}
		var wait time.Duration
		if a.ReopensAt != nil {
			wait = a.ReopensAt.Sub(a.At.Time) // both by the ledger's clock
		}
		if !c.await(ctx, n, wait) {
			return a, nil
		}
		r.ID = nextID(id, n)
	}
}

// SettleSpend books how an authorized call ended, by the receipt that its authorization has. Made
// again, it is answered the same.
func (c *Client) SettleSpend(ctx context.Context, receipt string, usage wire.SpendUsage,
) (wire.SpendSettlement, error) {
	var settlement wire.SpendSettlement
	path := "/v1/spend/" + url.PathEscape(receipt) + "/settle"
	err := c.call(ctx, http.MethodPost, path, c.options.Token, usage, &settlement)
	return settlement, err
}

// Correct books what a settled call really took in place of what was booked. The same ID sent again
// does it once. It wants the admin's token.
func (c *Client) Correct(ctx context.Context, r wire.CorrectionRequest,
) (wire.SpendSettlement, error) {
	err := sendable(r.ID)
	if err != nil {
		return wire.SpendSettlement{}, err
	}
	var settlement wire.SpendSettlement
	err = c.call(ctx, http.MethodPost, "/v1/admin/corrections", c.options.AdminToken, r, &settlement)
	return settlement, err
}

// SpendQuery chooses a page of a budget's day.
type SpendQuery struct {
	Budget  string
	Subject string
	// Day is a date such as 2026-10-16 in the budget's time zone; empty means today.
	Day string
	// Cursor is that of the page before; empty asks for the first page.
	Cursor string
}

// SpendJournal reads a page of what a subject spent of a budget in one day. It wants the admin's
// token.
func (c *Client) SpendJournal(ctx context.Context, q SpendQuery) (wire.SpendJournal, error) {
	values := url.Values{"budget": {q.Budget}, "subject": {q.Subject}}
	if q.Day != "" {
		values.Set("day", q.Day)
	}
	if q.Cursor != "" {
		values.Set("cursor", q.Cursor)
	}
	var journal wire.SpendJournal
	path := "/v1/admin/spend/journal?" + values.Encode()
	err := c.call(ctx, http.MethodGet, path, c.options.AdminToken, nil, &journal)
	return journal, err
}
