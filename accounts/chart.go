package accounts

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"weir/ledgers"
)

// Codes of accounts. They are stored in the ledger and never change their meaning.
const (
	AccountOperator uint16 = 1 // grants quota and takes it back; no flags
	AccountUser     uint16 = 2 // a subject's quota; debits must not exceed credits
	AccountOverage  uint16 = 3 // what a subject used beyond its quota; no flags
	AccountName     uint16 = 4 // a part of a subject's name, in its user data; no flags
	AccountMoney    uint16 = 5 // a subject's money; debits must not exceed credits
	AccountTreasury uint16 = 6 // where an asset's money comes from and goes to; no flags
)

// Codes of transfers. They are stored in the ledger and never change their meaning.
const (
	CodeQuota      uint16 = 1 // the first quota of a user account, step 0
	CodeRequota    uint16 = 2 // a later quota step
	CodeGrant      uint16 = 3 // an admin's lasting raise of one subject's quota
	CodeRevocation uint16 = 4 // an admin's lasting cut of one subject's quota
	CodeCharge     uint16 = 5 // what a check took
	CodeGuard      uint16 = 6 // a unit taken and given back at once, to look without a charge
	CodeOverage    uint16 = 7 // what was used although the quota did not have it
	CodeHold       uint16 = 8 // what a reservation holds

	CodePayment    uint16 = 9  // money from one subject to another
	CodeDeposit    uint16 = 10 // money from the treasury to a subject
	CodeWithdrawal uint16 = 11 // money from a subject to the treasury
	CodeSettlement uint16 = 12 // what a reservation really took
	CodeNote       uint16 = 13 // what a caller keeps beside its entries; moves nothing
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
	CodeOverage:    "overage",
	CodeHold:       "hold",
	CodePayment:    "payment",
	CodeDeposit:    "deposit",
	CodeWithdrawal: "withdrawal",
	CodeSettlement: "settlement",
	CodeNote:       "note",
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

// Asset is what the books have to know of a kind of money.
type Asset struct {
	// Code of the asset, part of every account's id.
	Code string
	// Ledger is the number of the asset's ledger, not 0; see [AssetLedger].
	Ledger uint32
	// Scale is how many digits an amount has behind the point. It is written down with the asset's
	// first money, for it says what all of it is; see [Book.CheckAssets].
	Scale int
}

// scaleMark is how the scale is written down in the user data of the asset's treasury: not as 0,
// which is what treasuries have that were opened before it was.
func (a Asset) scaleMark() uint32 { return uint32(a.Scale) + 1 }

// AssetLedger returns the ledger on which an asset of this code stands unless its config says
// otherwise: that of a limit named "asset:" and the code.
func AssetLedger(code string) uint32 { return LedgerNumber("asset:" + code) }

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
	// WindowSeconds is how long a charge stays taken; 0 where no charge comes back by itself.
	WindowSeconds uint32
	// Calendar is where charges come back when the period ends that they were made in; nil where
	// each has a window of its own. WindowSeconds is then at least the longest period.
	Calendar *Calendar
	// Posted says that what is charged does not come back: a prepaid balance.
	Posted bool
	// CloseAt is the part of the target, in millionths, past which nothing is charged; 0 means all
	// of it. What is beyond is kept free for what charges really cost.
	CloseAt uint32
}

// wholeTarget as a CloseAt is all of the target.
const wholeTarget = 1_000_000

// window returns the window in the ledger's nanoseconds.
func (l Limit) window() uint64 { return uint64(l.WindowSeconds) * uint64(time.Second) }

// timeout returns the seconds after which a charge made at the ledger time now comes back, 0 for
// never. A calendar's is rounded up: nothing comes back before the period ends.
func (l Limit) timeout(now uint64) uint32 {
	if l.Calendar == nil {
		return l.WindowSeconds
	}
	return wholeSeconds(l.Calendar.Period(now).End - now)
}

// End returns when a charge made at the ledger time at comes back, where one does.
func (l Limit) End(at uint64) uint64 {
	if l.Calendar == nil {
		return at + l.window()
	}
	return l.Calendar.Period(at).End
}

// wholeSeconds rounds nanoseconds up to seconds, of which there is at least one.
func wholeSeconds(nanoseconds uint64) uint32 {
	return uint32(max(1, (nanoseconds+uint64(time.Second)-1)/uint64(time.Second)))
}

// margin returns how much of a target has to stay free.
func (l Limit) margin(target uint64) uint64 {
	if l.CloseAt == 0 || l.CloseAt >= wholeTarget {
		return 0
	}
	return target - ledgers.AmountOf(target).Mul64(uint64(l.CloseAt)).Div64(wholeTarget).Lo
}

// CheckLedgers returns [ErrLedgerNumber] naming both if two limits or assets share a ledger, or one
// if it has none: their subjects' units would mix.
func CheckLedgers(limits []Limit, assets ...Asset) error {
	taken := make(map[uint32]string, len(limits)+len(assets))
	for _, limit := range limits {
		err := take(taken, limit.Ledger, fmt.Sprintf("limit %q", limit.Name))
		if err != nil {
			return err
		}
	}
	for _, asset := range assets {
		err := take(taken, asset.Ledger, fmt.Sprintf("asset %q", asset.Code))
		if err != nil {
			return err
		}
	}
	return nil
}

// take notes whose ledger a number is.
func take(taken map[uint32]string, number uint32, owner string) error {
	if number == 0 {
		return fmt.Errorf("%w of %s is 0", ErrLedgerNumber, owner)
	}
	other, clash := taken[number]
	if clash {
		return fmt.Errorf("%w %d is that of %s and of %s", ErrLedgerNumber, number, other, owner)
	}
	taken[number] = owner
	return nil
}
