package wire

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

const (
	// MaxAmount is the greatest amount, in the smallest units: what an Integer of a structured HTTP
	// header can carry (RFC 9651, section 3.3.1), and well within what every JSON reader keeps exact.
	MaxAmount = 999_999_999_999_999
	// MaxScale is the most decimal places that money may have.
	MaxScale = 18
)

// Amount is a number of units of a limit. Requests, bytes and the like are counts; an amount of a
// limit that counts an asset is money. Amounts are compared with ==.
//
// In JSON a count is written as an integer, and read from an integer or a string of decimal digits.
// Money is a string of decimal digits, with a point before the last Scale of them. In its smallest
// unit, either is at most [MaxAmount]. A sign, an exponent, a leading zero, an empty string, null
// and a fraction outside a string are refused, so that what is read is always the number that was
// sent.
type Amount struct {
	// Units is the number of smallest units: 999 for 9.99.
	Units uint64
	// Scale is the number of decimal places.
	Scale uint8
	// Money says that it is a decimal string: money, or what was read from a string.
	Money bool
}

// Count returns an amount of n units that are not money.
func Count(n uint64) Amount { return Amount{Units: n} }

// Money returns an amount of n smallest units of an asset with so many decimal places.
func Money(n uint64, scale int) Amount { return Amount{Units: n, Scale: uint8(scale), Money: true} }

// String writes the amount in digits, money with its decimal places.
func (a Amount) String() string {
	text := strconv.FormatUint(a.Units, 10)
	scale := int(a.Scale)
	if scale == 0 {
		return text
	}
	if len(text) <= scale {
		text = strings.Repeat("0", scale+1-len(text)) + text
	}
	return text[:len(text)-scale] + "." + text[len(text)-scale:]
}

// AppendJSON appends the amount as it is written in JSON.
func (a Amount) AppendJSON(b []byte) []byte {
	if !a.Money {
		return strconv.AppendUint(b, a.Units, 10)
	}
	return append(append(append(b, '"'), a.String()...), '"')
}

// MarshalJSON writes the amount; see [Amount].
func (a Amount) MarshalJSON() ([]byte, error) { return a.AppendJSON(nil), nil }

// In returns the amount in smallest units of so many decimal places, false where it has more places
// than that or more than [MaxAmount] of them.
func (a Amount) In(scale int) (units uint64, ok bool) {
	units = a.Units
	for range scale - int(a.Scale) {
		units *= 10
		if units > MaxAmount {
			return 0, false
		}
	}
	return units, int(a.Scale) <= scale
}

// UnmarshalJSON reads an amount; see [Amount]. The error is a *json.UnmarshalTypeError.
func (a *Amount) UnmarshalJSON(data []byte) error {
	digits, what := string(data), "number "+string(data)
	text := strings.HasPrefix(digits, `"`)
	switch {
	case text:
		err := json.Unmarshal(data, &digits)
		if err != nil {
			return err
		}
		what = "string " + string(data)
	case strings.HasPrefix(digits, "{"):
		what = "object"
	case strings.HasPrefix(digits, "["):
		what = "array"
	case digits == "true", digits == "false", digits == "null":
		what = digits
	}
	read, ok := ParseAmount(digits)
	if !ok || read.Scale > 0 && !text {
		return &json.UnmarshalTypeError{Value: what, Type: reflect.TypeFor[Amount]()}
	}
	read.Money = text
	*a = read
	return nil
}

// ParseAmount reads a decimal string, with a point or without. It is false for anything else, a
// leading zero, and more than [MaxAmount] smallest units.
func ParseAmount(text string) (Amount, bool) {
	whole, fraction, point := strings.Cut(text, ".")
	if point && (fraction == "" || len(fraction) > MaxScale) || whole == "" ||
		whole[0] == '0' && len(whole) > 1 {
		return Amount{}, false
	}
	a := Amount{Scale: uint8(len(fraction)), Money: true}
	for _, d := range []byte(whole + fraction) {
		if d < '0' || d > '9' {
			return Amount{}, false
		}
		a.Units = a.Units*10 + uint64(d-'0')
		if a.Units > MaxAmount {
			return Amount{}, false
		}
	}
	return a, true
}
