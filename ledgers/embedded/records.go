package embedded

import (
	"encoding/binary"
	"fmt"

	"weir/ledgers"
)

// The first byte of a key names its kind. Numbers in keys are big-endian, so that keys sort as the
// numbers do. See the package comment for what each kind holds.
const (
	kindMeta          = 'm'
	kindAccount       = 'a' // id
	kindTransfer      = 't' // timestamp
	kindTransferID    = 'i' // id
	kindDebitJournal  = 'd' // account's timestamp, code, transfer's timestamp
	kindCreditJournal = 'c' // account's timestamp, code, transfer's timestamp
	kindEnding        = 'e' // pending transfer's timestamp
	kindLive          = 'l' // end, pending transfer's timestamp
	kindOverdue       = 'o' // time when retention looks at it again, pending transfer's timestamp
)

// The single values, each under a key of its own.
var (
	keyFormat     = []byte("mformat")    // the format version
	keyReflected  = []byte("mreflected") // all up to here is in the stored accounts
	keyLast       = []byte("mlast")      // no later timestamp was given, but for the transfers'
	keyRetention  = []byte("mretention") // retention has walked up to here
	formatVersion = uint64(2)            // what this package writes; it reads 1 as well
	endOfTime     = ^uint64(0)           // later than every timestamp
)

// ending says how a pending transfer ended before its timeout.
type ending byte

const (
	endingNone   ending = 0
	endingPosted ending = 1
	endingVoided ending = 2
)

// burntRecord is the first byte of the record of an id that was refused for good; the id follows.
const burntRecord = 0xFF

// Which optional fields follow in a transfer's record, one bit each in its first byte.
const (
	hasPendingID = 1 << iota
	hasUserData128
	hasUserData64
	hasUserData32
	hasTimeout
	hasFlags
)

func appendIDKey(key []byte, kind byte, id ledgers.ID) []byte {
	key = append(key, kind)
	key = binary.BigEndian.AppendUint64(key, id.Hi)
	return binary.BigEndian.AppendUint64(key, id.Lo)
}

func appendTimeKey(key []byte, kind byte, timestamp uint64) []byte {
	return binary.BigEndian.AppendUint64(append(key, kind), timestamp)
}

func appendPairKey(key []byte, kind byte, end, timestamp uint64) []byte {
	return binary.BigEndian.AppendUint64(appendTimeKey(key, kind, end), timestamp)
}

func appendJournalKey(key []byte, kind byte, account uint64, code uint16, timestamp uint64) []byte {
	key = appendTimeKey(key, kind, account)
	key = binary.BigEndian.AppendUint16(key, code)
	return binary.BigEndian.AppendUint64(key, timestamp)
}

func appendAmount(b []byte, a ledgers.Amount) []byte {
	b = binary.AppendUvarint(b, a.Lo)
	return binary.AppendUvarint(b, a.Hi)
}

func appendID(b []byte, id ledgers.ID) []byte {
	b = binary.LittleEndian.AppendUint64(b, id.Lo)
	return binary.LittleEndian.AppendUint64(b, id.Hi)
}

// appendTransfer encodes a transfer without its timestamp, which is in the key.
func appendTransfer(b []byte, t *ledgers.Transfer) []byte {
	var has byte
	start := len(b)
	b = append(b, 0)
	b = appendID(b, t.ID)
	b = appendID(b, t.DebitAccountID)
	b = appendID(b, t.CreditAccountID)
	b = appendAmount(b, t.Amount)
	b = binary.LittleEndian.AppendUint32(b, t.Ledger)
	b = binary.LittleEndian.AppendUint16(b, t.Code)
	if !t.PendingID.IsZero() {
		has |= hasPendingID
		b = appendID(b, t.PendingID)
	}
	if !t.UserData128.IsZero() {
		has |= hasUserData128
		b = appendID(b, ledgers.ID(t.UserData128))
	}
	if t.UserData64 != 0 {
		has |= hasUserData64
		b = binary.LittleEndian.AppendUint64(b, t.UserData64)
	}
	if t.UserData32 != 0 {
		has |= hasUserData32
		b = binary.LittleEndian.AppendUint32(b, t.UserData32)
	}
	if t.Timeout != 0 {
		has |= hasTimeout
		b = binary.LittleEndian.AppendUint32(b, t.Timeout)
	}
	if t.Flags != 0 {
		has |= hasFlags
		b = binary.LittleEndian.AppendUint16(b, uint16(t.Flags))
	}
	b[start] = has
	return b
}

// decodeTransfer reads what appendTransfer wrote. It reports false for the record of a burnt id, of
// which only ID and Timestamp are set.
func decodeTransfer(record []byte, timestamp uint64) (ledgers.Transfer, bool, error) {
	r := reader{rest: record}
	has := r.byte()
	t := ledgers.Transfer{Timestamp: timestamp, ID: r.id()}
	if has == burntRecord {
		return t, false, r.end("burnt id")
	}
	t.DebitAccountID, t.CreditAccountID = r.id(), r.id()
	t.Amount = r.amount()
	t.Ledger, t.Code = r.uint32(), r.uint16()
	if has&hasPendingID != 0 {
		t.PendingID = r.id()
	}
	if has&hasUserData128 != 0 {
		t.UserData128 = ledgers.Amount(r.id())
	}
	if has&hasUserData64 != 0 {
		t.UserData64 = r.uint64()
	}
	if has&hasUserData32 != 0 {
		t.UserData32 = r.uint32()
	}
	if has&hasTimeout != 0 {
		t.Timeout = r.uint32()
	}
	if has&hasFlags != 0 {
		t.Flags = ledgers.TransferFlags(r.uint16())
	}
	return t, true, r.end("transfer")
}

// appendAccount encodes an account without its id, which is in the key. asOf is the ledger time up
// to which all transfers and expiries are in the balance.
func appendAccount(b []byte, a *ledgers.Account, asOf uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, asOf)
	b = binary.LittleEndian.AppendUint64(b, a.Timestamp)
	b = appendAmount(b, a.DebitsPending)
	b = appendAmount(b, a.DebitsPosted)
	b = appendAmount(b, a.CreditsPending)
	b = appendAmount(b, a.CreditsPosted)
	b = appendAmount(b, a.UserData128)
	b = binary.AppendUvarint(b, a.UserData64)
	b = binary.AppendUvarint(b, uint64(a.UserData32))
	b = binary.LittleEndian.AppendUint32(b, a.Ledger)
	b = binary.LittleEndian.AppendUint16(b, a.Code)
	return binary.LittleEndian.AppendUint16(b, uint16(a.Flags))
}

func decodeAccount(record []byte, id ledgers.ID) (account, error) {
	r := reader{rest: record}
	a := account{asOf: r.uint64()}
	a.ID = id
	a.Timestamp = r.uint64()
	a.DebitsPending, a.DebitsPosted = r.amount(), r.amount()
	a.CreditsPending, a.CreditsPosted = r.amount(), r.amount()
	a.UserData128 = r.amount()
	a.UserData64 = r.uvarint()
	a.UserData32 = uint32(r.uvarint())
	a.Ledger, a.Code = r.uint32(), r.uint16()
	a.Flags = ledgers.AccountFlags(r.uint16())
	for len(r.rest) > 0 {
		a.asOf = r.uint64()
		released := release{debits: r.amount(), credits: r.amount(), reopen: r.byte() != 0}
		if a.DebitsPending.Cmp(released.debits) < 0 || a.CreditsPending.Cmp(released.credits) < 0 {
			return a, fmt.Errorf("record of an account: %w", ErrCorrupt)
		}
		released.apply(&a.Account)
	}
	return a, r.end("account")
}

// appendRelease encodes what follows an account in its record, any number of times.
func appendRelease(b []byte, released release, asOf uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, asOf)
	b = appendAmount(b, released.debits)
	b = appendAmount(b, released.credits)
	if released.reopen {
		return append(b, 1)
	}
	return append(b, 0)
}

// reader takes fields off a record; it remembers running out of bytes until end is asked.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if len(r.rest) < n {
		r.short, r.rest = true, nil
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *reader) id() ledgers.ID {
	b := r.take(16)
	return ledgers.ID{
		Lo: binary.LittleEndian.Uint64(b),
		Hi: binary.LittleEndian.Uint64(b[8:]),
	}
}

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.short, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) amount() ledgers.Amount {
	lo := r.uvarint()
	return ledgers.Amount{Lo: lo, Hi: r.uvarint()}
}

// end returns an error unless the record held exactly the fields that were taken.
func (r *reader) end(what string) error {
	if r.short || len(r.rest) != 0 {
		return fmt.Errorf("record of a %s: %w", what, ErrCorrupt)
	}
	return nil
}

// keyUint64 reads the number at an offset of a key, or reports that the key is too short.
func keyUint64(key []byte, offset int) (uint64, error) {
	if len(key) < offset+8 {
		return 0, fmt.Errorf("key %x: %w", key, ErrCorrupt)
	}
	return binary.BigEndian.Uint64(key[offset:]), nil
}
