package wire

import "time"

// Time is an instant of the ledger's clock. In JSON it is RFC 3339 in UTC with all nine digits of
// the nanoseconds, so that as texts, too, earlier instants come first.
type Time struct{ time.Time }

// timeLayout is the form of a [Time] in JSON.
const timeLayout = `"2006-01-02T15:04:05.000000000Z"`

// MarshalJSON writes the time; see [Time].
func (t Time) MarshalJSON() ([]byte, error) {
	return t.AppendJSON(make([]byte, 0, len(timeLayout))), nil
}

// AppendJSON appends the time as MarshalJSON writes it.
func (t Time) AppendJSON(b []byte) []byte { return t.UTC().AppendFormat(b, timeLayout) }
