package ledgers

import (
	"math/bits"

	"lukechampine.com/uint128"
)

// Amount is what a transfer moves and an account sums: an unsigned number of 128 bits. The unit is
// the ledger's own (requests, bytes, the smallest piece of a currency).
type Amount = uint128.Uint128

// MaxAmount is 2^128-1. As the amount of a balancing or a posting transfer it means "all of it".
var MaxAmount = uint128.Max

// AmountOf returns n as an Amount.
func AmountOf(n uint64) Amount { return uint128.From64(n) }

// Sum adds amounts and reports whether the result fits into 128 bits; if not, the result is
// meaningless. (Amount.Add panics instead.)
func Sum(amounts ...Amount) (sum Amount, ok bool) {
	for _, a := range amounts {
		lo, carry := bits.Add64(sum.Lo, a.Lo, 0)
		hi, overflow := bits.Add64(sum.Hi, a.Hi, carry)
		if overflow != 0 {
			return Amount{}, false
		}
		sum = Amount{Lo: lo, Hi: hi}
	}
	return sum, true
}

// SubtractFloor returns a-b, or 0 where b is greater.
func SubtractFloor(a, b Amount) Amount {
	if a.Cmp(b) <= 0 {
		return Amount{}
	}
	return a.Sub(b)
}
