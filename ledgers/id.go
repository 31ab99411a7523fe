package ledgers

import (
	"encoding/hex"
	"fmt"

	"lukechampine.com/uint128"
)

// ID names an account or a transfer: 128 bits, compared as an unsigned number. Zero and [MaxID]
// are refused by every ledger.
type ID uint128.Uint128

// MaxID is 2^128-1, which no account or transfer may have.
var MaxID = ID(uint128.Max)

// IDFromBytes reads an ID from 16 bytes, most significant first.
func IDFromBytes(b [16]byte) ID {
	return ID(uint128.FromBytesBE(b[:]))
}

// ParseID reads an ID from the 32 lower-case hex digits that [ID.String] writes. Any other text is
// an error: one ID has one spelling.
func ParseID(s string) (ID, error) {
	var b [16]byte
	if len(s) != 2*len(b) {
		return ID{}, fmt.Errorf("id has %d characters, want 32 hex digits", len(s))
	}
	_, err := hex.Decode(b[:], []byte(s))
	if err != nil {
		return ID{}, fmt.Errorf("id %q: want 32 hex digits", s)
	}
	id := IDFromBytes(b)
	if id.String() != s {
		return ID{}, fmt.Errorf("id %q: want lower-case hex digits", s)
	}
	return id, nil
}

// Bytes returns the ID as 16 bytes, most significant first, so that bytes sort as numbers do.
func (id ID) Bytes() [16]byte {
	var b [16]byte
	uint128.Uint128(id).PutBytesBE(b[:])
	return b
}

// String returns the ID as 32 lower-case hex digits.
func (id ID) String() string {
	b := id.Bytes()
	return hex.EncodeToString(b[:])
}

// IsZero reports whether the ID is 0, which no account or transfer has.
func (id ID) IsZero() bool { return id == ID{} }

// Compare returns -1, 0 or +1 as id is less than, equal to or greater than other as a number.
func (id ID) Compare(other ID) int {
	return uint128.Uint128(id).Cmp(uint128.Uint128(other))
}
