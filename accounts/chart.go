package accounts

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

// Codes of accounts. They are stored in the ledger and never change their meaning.
const (
	CodeOperator uint16 = 1 // grants quota and takes it back; no flags
	CodeUser     uint16 = 2 // a subject's quota; debits must not exceed credits
	CodeOverage  uint16 = 3 // what a subject used beyond its quota; no flags
)

// Codes of transfers. They are stored in the ledger and never change their meaning.
const (
	CodeQuota      uint16 = 1 // the first quota of a user account, step 0
	CodeRequota    uint16 = 2 // a later quota step
	CodeGrant      uint16 = 3 // an admin's lasting raise of one subject's quota
	CodeRevocation uint16 = 4 // an admin's lasting cut of one subject's quota
	CodeCharge     uint16 = 5 // what a check took
	CodeGuard      uint16 = 6 // a unit taken and given back at once, to look without a charge
)

// QuotaCodes are the codes of quota steps. A ledger with a retention keeps their transfers also
// where they moved nothing, because the newest step says what the quota is.
func QuotaCodes() []uint16 { return []uint16{CodeQuota, CodeRequota} }

// codeNames are the words that a journal uses for the codes of transfers.
var codeNames = map[uint16]string{
	CodeQuota:      "quota",
	CodeRequota:    "requota",
	CodeGrant:      "grant",
	CodeRevocation: "revocation",
	CodeCharge:     "charge",
	CodeGuard:      "guard",
}

// LedgerNumber returns the ledger on which a limit of this name stands unless its config says
// otherwise: the first 31 bits of the name's SHA-256, or the next 32-bit word's where those are 0.
// The mapping is a published promise: a renamed limit is a new limit.
func LedgerNumber(limit string) uint32 {
	sum := sha256.Sum256([]byte(limit))
	for at := 0; at+4 <= len(sum); at += 4 {
		number := binary.BigEndian.Uint32(sum[at:]) >> 1
		if number != 0 {
			return number
		}
	}
	return 1
}

// Limit is what the books have to know of a limit.
type Limit struct {
	// Name of the limit, part of every account's id.
	Name string
	// Ledger is the number of the limit's ledger, not 0.
	Ledger uint32
	// Quota is the number of units that a subject is given.
	Quota uint64
	// Revision of the config that gave the quota; a lower one never undoes a higher one's.
	Revision uint32
	// WindowSeconds is how long a charge stays taken.
	WindowSeconds uint32
}

// window returns the window in the ledger's nanoseconds.
func (l Limit) window() uint64 { return uint64(l.WindowSeconds) * uint64(time.Second) }

// CheckLedgers returns [ErrLedgerNumber] naming the limits if two of them share a ledger or one has
// none: their subjects' units would mix.
func CheckLedgers(limits []Limit) error {
	taken := make(map[uint32]string, len(limits))
	for _, limit := range limits {
		if limit.Ledger == 0 {
			return fmt.Errorf("%w of limit %q is 0", ErrLedgerNumber, limit.Name)
		}
		other, clash := taken[limit.Ledger]
		if clash {
			return fmt.Errorf("%w %d is that of limit %q and of limit %q",
				ErrLedgerNumber, limit.Ledger, other, limit.Name)
		}
		taken[limit.Ledger] = limit.Name
	}
	return nil
}
