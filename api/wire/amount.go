package wire

import (
	"encoding/json"
	"reflect"
	"strings"
)

// MaxAmount is the greatest amount: what an Integer of a structured HTTP header can carry
// (RFC 9651, section 3.3.1), and well within what every JSON reader keeps exact.
const MaxAmount = 999_999_999_999_999

// Amount is a number of units of a limit: requests, bytes. In JSON it is written as an integer and
// read from an integer or a string of decimal digits, at most [MaxAmount]. A sign, a fraction, an
// exponent, a leading zero, an empty string and null are refused, so that what is read is always
// the number that was sent.
type Amount uint64

// UnmarshalJSON reads an amount; see [Amount]. The error is a *json.UnmarshalTypeError.
func (a *Amount) UnmarshalJSON(data []byte) error {
	digits, what := string(data), "number "+string(data)
	switch {
	case strings.HasPrefix(digits, `"`):
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
	n, ok := parseAmount(digits)
	if !ok {
		return &json.UnmarshalTypeError{Value: what, Type: reflect.TypeFor[Amount]()}
	}
	*a = Amount(n)
	return nil
}

// parseAmount reads decimal digits without a leading zero, up to [MaxAmount].
func parseAmount(digits string) (uint64, bool) {
	if digits == "" || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	var n uint64
	for i := range len(digits) {
		d := digits[i] - '0'
		if d > 9 {
			return 0, false
		}
		n = n*10 + uint64(d)
		if n > MaxAmount {
			return 0, false
		}
	}
	return n, true
}
