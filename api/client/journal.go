package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"weir/api/wire"
)

// JournalQuery chooses a page of a journal.
type JournalQuery struct {
	Limit   string
	Subject string
	// Cursor is that of the page before; empty asks for the first page.
	Cursor string
	// Reversed asks for the newest entries first.
	Reversed bool
}

// Journal reads a page of the entries of a subject on a limit. It wants the admin's token.
func (c *Client) Journal(ctx context.Context, q JournalQuery) (wire.Journal, error) {
	values := url.Values{"limit": {q.Limit}, "subject": {q.Subject}}
	if q.Cursor != "" {
		values.Set("cursor", q.Cursor)
	}
	if q.Reversed {
		values.Set("reversed", strconv.FormatBool(true))
	}
	var journal wire.Journal
	path := "/v1/admin/journal?" + values.Encode()
	err := c.call(ctx, http.MethodGet, path, c.options.AdminToken, nil, &journal)
	return journal, err
}
