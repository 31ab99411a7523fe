package ledgertest

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"lukechampine.com/uint128"

	"weir/ledgers"
)

// statusNumbersMax is above every status number but that of `created`.
const statusNumbersMax = 256

// AccountStatuses lists every known status of accounts, `created` first, then by number.
func AccountStatuses() []ledgers.AccountStatus {
	all := []ledgers.AccountStatus{ledgers.AccountCreated}
	for s := range ledgers.AccountStatus(statusNumbersMax) {
		if s.Known() {
			all = append(all, s)
		}
	}
	return all
}

// TransferStatuses lists every known status of transfers, `created` first, then by number.
func TransferStatuses() []ledgers.TransferStatus {
	all := []ledgers.TransferStatus{ledgers.TransferCreated}
	for s := range ledgers.TransferStatus(statusNumbersMax) {
		if s.Known() {
			all = append(all, s)
		}
	}
	return all
}

func knownAccountStatus(name string) bool {
	for _, s := range AccountStatuses() {
		if s.String() == name {
			return true
		}
	}
	return false
}

func knownTransferStatus(name string) bool {
	for _, s := range TransferStatuses() {
		if s.String() == name {
			return true
		}
	}
	return false
}

// line builds "name=value ..." and leaves out what is zero.
type line struct{ strings.Builder }

func (l *line) add(name string, value any, zero bool) {
	if zero {
		return
	}
	if l.Len() > 0 {
		l.WriteByte(' ')
	}
	fmt.Fprintf(&l.Builder, "%s=%v", name, value)
}

func (l *line) amount(name string, n ledgers.Amount) { l.add(name, n, n.IsZero()) }

func (l *line) id(name string, id ledgers.ID) { l.add(name, ledgers.Amount(id), id.IsZero()) }

func (l *line) number(name string, n uint64) { l.add(name, n, n == 0) }

// formatAccount writes every field of the account that is not zero, in one line.
func formatAccount(a ledgers.Account) string {
	var l line
	l.id("id", a.ID)
	l.amount("debits_pending", a.DebitsPending)
	l.amount("debits_posted", a.DebitsPosted)
	l.amount("credits_pending", a.CreditsPending)
	l.amount("credits_posted", a.CreditsPosted)
	l.amount("user_data_128", a.UserData128)
	l.number("user_data_64", a.UserData64)
	l.number("user_data_32", uint64(a.UserData32))
	l.number("ledger", uint64(a.Ledger))
	l.number("code", uint64(a.Code))
	l.number("flags", uint64(a.Flags))
	l.number("timestamp", a.Timestamp)
	return l.String()
}

// formatTransfer writes every field of the transfer that is not zero, in one line.
func formatTransfer(x ledgers.Transfer) string {
	var l line
	l.id("id", x.ID)
	l.id("debit", x.DebitAccountID)
	l.id("credit", x.CreditAccountID)
	l.amount("amount", x.Amount)
	l.id("pending_id", x.PendingID)
	l.amount("user_data_128", x.UserData128)
	l.number("user_data_64", x.UserData64)
	l.number("user_data_32", uint64(x.UserData32))
	l.number("timeout", uint64(x.Timeout))
	l.number("ledger", uint64(x.Ledger))
	l.number("code", uint64(x.Code))
	l.number("flags", uint64(x.Flags))
	l.number("timestamp", x.Timestamp)
	return l.String()
}

func formatResult(status fmt.Stringer, timestamp uint64) string {
	return fmt.Sprintf("%v at %d", status, timestamp)
}

func formatAll[R any](records []R, format func(R) string) []string {
	lines := make([]string, len(records))
	for i, r := range records {
		lines[i] = format(r)
	}
	return lines
}

// differ compares two lists line by line and returns the places that differ in words, or "". Where
// event is given, it describes the request behind a place.
func differ(got, want []string, event func(i int) string) string {
	var b strings.Builder
	if len(got) != len(want) {
		fmt.Fprintf(&b, "got %d answers, want %d\n", len(got), len(want))
	}
	for i := range max(len(got), len(want)) {
		g, w := "(none)", "(none)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g == w {
			continue
		}
		fmt.Fprintf(&b, "%d:\n", i)
		if event != nil && i < len(want) {
			fmt.Fprintf(&b, "\tof   %s\n", event(i))
		}
		fmt.Fprintf(&b, "\tgot  %s\n\twant %s\n", g, w)
	}
	return b.String()
}

// decimal is a u128 as a trace writes it: a string of decimal digits.
type decimal uint128.Uint128

// UnmarshalJSON takes a string of digits up to 2^128-1 and nothing else.
func (d *decimal) UnmarshalJSON(text []byte) error {
	var digits string
	err := json.Unmarshal(text, &digits)
	if err != nil {
		return fmt.Errorf("decimal: %w", err)
	}
	n, err := parseAmount(digits)
	if err != nil {
		return err
	}
	*d = decimal(n)
	return nil
}

// parseAmount reads decimal digits up to 2^128-1.
func parseAmount(digits string) (ledgers.Amount, error) {
	for _, c := range digits {
		if c < '0' || c > '9' {
			return ledgers.Amount{}, fmt.Errorf("%q: %w", digits, errNotDecimal)
		}
	}
	n, ok := new(big.Int).SetString(digits, 10)
	if !ok || n.BitLen() > 128 {
		return ledgers.Amount{}, fmt.Errorf("%q: %w", digits, errNotDecimal)
	}
	return uint128.FromBig(n), nil
}
