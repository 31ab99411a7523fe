package api

import (
	"strconv"
	"time"

	"weir/api/wire"
	"weir/limiter"
)

// Most checks are of one limit, with names that stand for themselves in JSON, and most are allowed.
// These are read and answered here without encoding/json, which takes several times as long. What
// is out of the ordinary, or wrong, is left to it: here it is only not recognized.

// maxPlainDigits is how many digits a cost may have here: with so many it is within wire.MaxAmount.
const maxPlainDigits = 15

// plainCheck reads a check of one limit. It is false for everything else, which may be sound.
func plainCheck(data []byte, body *wire.CheckRequest) bool {
	c := cursor{data: data}
	if !c.next('{') {
		return false
	}
	for more := true; more; more = c.next(',') {
		name, ok := c.text()
		if !ok || !c.next(':') || !c.member(name, body) {
			return false
		}
	}
	return c.next('}') && c.end()
}

// cursor is how far a body was read.
type cursor struct {
	data []byte
	at   int
}

// end reports whether nothing but white space is left.
func (c *cursor) end() bool {
	for c.at < len(c.data) {
		switch c.data[c.at] {
		case ' ', '\t', '\r', '\n':
			c.at++
		default:
			return false
		}
	}
	return true
}

// next skips white space, and one character if it is the wanted one.
func (c *cursor) next(want byte) bool {
	if c.end() || c.data[c.at] != want {
		return false
	}
	c.at++
	return true
}

// member reads the value of a member that the check does not have yet.
func (c *cursor) member(name []byte, body *wire.CheckRequest) bool {
	var into *string
	switch string(name) {
	case "limit":
		into = &body.Limit
	case "subject":
		into = &body.Subject
	case "id":
		into = &body.ID
	case "cost":
		return body.Cost == nil && c.amount(&body.Cost)
	default:
		return false
	}
	text, ok := c.text()
	if !ok || *into != "" {
		return false
	}
	*into = string(text)
	return true
}

// text reads a string that is not empty and stands for itself.
func (c *cursor) text() ([]byte, bool) {
	if !c.next('"') {
		return nil, false
	}
	first := c.at
	for c.at < len(c.data) && isPlain(c.data[c.at]) {
		c.at++
	}
	text := c.data[first:c.at]
	if len(text) == 0 || c.at == len(c.data) || c.data[c.at] != '"' {
		return nil, false
	}
	c.at++
	return text, true
}

// amount reads a number. What is wrong with one shows in what comes after its digits.
func (c *cursor) amount(into **wire.Amount) bool {
	if c.end() {
		return false
	}
	first, n := c.at, uint64(0)
	for ; c.at < len(c.data) && '0' <= c.data[c.at] && c.data[c.at] <= '9'; c.at++ {
		n = n*10 + uint64(c.data[c.at]-'0')
	}
	digits := c.at - first
	if digits == 0 || digits > maxPlainDigits || c.data[first] == '0' && digits > 1 {
		return false
	}
	*into = &wire.Amount{Units: n}
	return true
}

// isPlain reports whether a character stands for itself in JSON.
func isPlain(b byte) bool { return ' ' <= b && b <= '~' && b != '"' && b != '\\' }

// plainText reports whether a text stands for itself in JSON.
func plainText(s string) bool {
	for i := range len(s) {
		if !isPlain(s[i]) {
			return false
		}
	}
	return true
}

// appendAllowed writes what decisionOf and encoding/json make of an admission. It reports false,
// and what it wrote is of no use, where a subject does not stand for itself, or money is counted.
func appendAllowed(b []byte, d *limiter.Decision) ([]byte, bool) {
	b = append(b, `{"allowed":true`...)
	if !d.Transfer.IsZero() {
		b = append(append(append(b, `,"transfer":"`...), d.Transfer.String()...), '"')
	}
	b = strconv.AppendBool(append(b, `,"replayed":`...), d.Replayed)
	b = strconv.AppendBool(append(b, `,"degraded":`...), d.Degraded)
	b = wire.Time{Time: d.At}.AppendJSON(append(b, `,"at":`...))
	if !d.ExpiresAt.IsZero() {
		b = wire.Time{Time: d.ExpiresAt}.AppendJSON(append(b, `,"expires_at":`...))
	}
	b = append(b, `,"limits":[`...)
	for i := range d.Limits {
		state := &d.Limits[i]
		if !plainText(state.Subject) || state.Asset != nil {
			return b, false
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"limit":"`...), state.Limit...) // a limit's name is always plain
		b = append(append(b, `","subject":"`...), state.Subject...)
		b = strconv.AppendUint(append(b, `","cost":`...), state.Cost, 10)
		if state.Known {
			b = strconv.AppendUint(append(b, `,"quota":`...), state.Quota, 10)
			b = strconv.AppendUint(append(b, `,"remaining":`...), state.Remaining, 10)
		}
		b = append(b, `,"window_seconds":`...)
		b = strconv.AppendInt(b, int64(state.Window/time.Second), 10)
		if state.Known {
			b = append(b, `,"reset_seconds":`...)
			b = strconv.AppendInt(b, int64(state.Reset/time.Second), 10)
		}
		if !state.ResetsAt.IsZero() {
			b = append(state.ResetsAt.AppendFormat(append(b, `,"resets_at":"`...), time.RFC3339Nano), '"')
		}
		if state.Shadow {
			b = append(b, `,"shadow":true`...)
		}
		if state.WouldDeny {
			b = append(b, `,"would_deny":true`...)
		}
		b = append(b, '}')
	}
	return append(b, "]}\n"...), true
}
