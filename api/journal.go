package api

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"weir/accounts"
	"weir/api/wire"
	"weir/limiter"
)

// journal reads a page of the entries of a subject on a limit.
func (s *Server) journal(c echo.Context) error {
	values, err := query(c, []string{"limit", "subject"}, "cursor", "reversed")
	if err != nil {
		return err
	}
	q := limiter.JournalQuery{Limit: values.Get("limit"), Subject: values.Get("subject")}
	if values.Has("cursor") {
		q.Cursor, err = readCursor(values.Get("cursor"))
		if err != nil {
			return err
		}
	}
	switch values.Get("reversed") {
	case "", "false":
	case "true":
		q.Reversed = true
	default:
		return badRequest("reversed: want true or false")
	}
	page, err := s.limiter.Journal(c.Request().Context(), q)
	if err != nil {
		return err
	}
	answer := wire.Journal{Limit: q.Limit, Subject: q.Subject, Cursor: writeCursor(page.Next)}
	asset, _ := s.limiter.Limits().AssetOf(q.Limit)
	answer.Entries = make([]wire.Entry, len(page.Entries))
	for i := range page.Entries {
		answer.Entries[i] = entryOf(&page.Entries[i], asset)
	}
	return send(c, http.StatusOK, plainJSON, &answer)
}

func entryOf(e *accounts.Entry, asset *limiter.Asset) wire.Entry {
	entry := wire.Entry{
		At: instant(e.Timestamp), Transfer: receipt(e.Transfer), Kind: e.Kind, Side: wire.Debit,
		Amount: amountOf(asset, e.Amount), Pending: e.Pending, Ends: receipt(e.Ends),
	}
	if e.Credit {
		entry.Side = wire.Credit
	}
	if e.Overage > 0 {
		entry.Overage = new(amountOf(asset, e.Overage))
	}
	if e.ExpiresAt > 0 {
		entry.ExpiresAt = new(instant(e.ExpiresAt))
	}
	return entry
}

// instant turns the ledger's nanoseconds into a time.
func instant(timestamp uint64) wire.Time {
	return wire.Time{Time: time.Unix(0, int64(timestamp)).UTC()}
}

// writeCursor makes a cursor of where a page starts. It is a text of no meaning, so that callers do
// not take it for a time that they may choose.
func writeCursor(next uint64) string {
	if next == 0 {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, next))
}

func readCursor(s string) (uint64, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != 8 {
		return 0, badRequest("cursor: want the one that came with the page before")
	}
	next := binary.BigEndian.Uint64(b)
	if next == 0 || next > math.MaxInt64 {
		return 0, badRequest("cursor: want the one that came with the page before")
	}
	return next, nil
}
