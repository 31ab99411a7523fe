package wire

import "time"

// Time is an instant of the ledger's clock. In JSON it is RFC 3339 in UTC with all nine digits of
// the nanoseconds, so that as texts, too, earlier instants come first.
type Time struct{ time.Time }

// MarshalJSON writes the time; see [Time].
func (t Time) MarshalJSON() ([]byte, error) {
	const layout = `"2006-01-02T15:04:05.000000000Z"`
	return t.UTC().AppendFormat(make([]byte, 0, len(layout)), layout), nil
}
