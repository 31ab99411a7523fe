package ledgertest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"

	"lukechampine.com/uint128"

	"weir/ledgers"
)

// The operations of a trace.
const (
	traceCreateAccounts      = "create_accounts"
	traceCreateTransfers     = "create_transfers"
	traceLookupAccounts      = "lookup_accounts"
	traceLookupTransfers     = "lookup_transfers"
	traceGetAccountTransfers = "get_account_transfers"
	traceGetAccountBalances  = "get_account_balances"
)

// traceLineMax bounds a line of a trace in bytes: a full batch with room to spare.
const traceLineMax = 16 << 20

// traceStep is one line of a trace. Which fields belong to which op, check says.
type traceStep struct {
	Op             string            `json:"op"`
	At             uint64            `json:"at"`
	Accounts       []traceAccount    `json:"accounts"`
	Transfers      []traceTransfer   `json:"transfers"`
	IDs            []decimal         `json:"ids"`
	Filter         *traceFilter      `json:"filter"`
	Statuses       []string          `json:"statuses"`
	FoundAccounts  []traceAccount    `json:"found_accounts"`
	FoundTransfers []traceTransfer   `json:"found_transfers"`
	Balances       []json.RawMessage `json:"balances"`
}

type traceAccount struct {
	ID             decimal `json:"id"`
	DebitsPending  decimal `json:"debits_pending"`
	DebitsPosted   decimal `json:"debits_posted"`
	CreditsPending decimal `json:"credits_pending"`
	CreditsPosted  decimal `json:"credits_posted"`
	UserData128    decimal `json:"user_data_128"`
	UserData64     uint64  `json:"user_data_64"`
	UserData32     uint32  `json:"user_data_32"`
	Ledger         uint32  `json:"ledger"`
	Code           uint16  `json:"code"`
	Flags          uint16  `json:"flags"`
	Timestamp      uint64  `json:"timestamp"`
}

type traceTransfer struct {
	ID              decimal `json:"id"`
	DebitAccountID  decimal `json:"debit_account_id"`
	CreditAccountID decimal `json:"credit_account_id"`
	Amount          decimal `json:"amount"`
	PendingID       decimal `json:"pending_id"`
	UserData128     decimal `json:"user_data_128"`
	UserData64      uint64  `json:"user_data_64"`
	UserData32      uint32  `json:"user_data_32"`
	Timeout         uint32  `json:"timeout"`
	Ledger          uint32  `json:"ledger"`
	Code            uint16  `json:"code"`
	Flags           uint16  `json:"flags"`
	Timestamp       uint64  `json:"timestamp"`
}

type traceFilter struct {
	AccountID    decimal `json:"account_id"`
	Code         uint16  `json:"code"`
	TimestampMin uint64  `json:"timestamp_min"`
	TimestampMax uint64  `json:"timestamp_max"`
	Limit        uint32  `json:"limit"`
	Debits       bool    `json:"debits"`
	Credits      bool    `json:"credits"`
	Reversed     bool    `json:"reversed"`
}

// traceReader reads the steps of a trace one by one.
type traceReader struct {
	lines *bufio.Scanner
}

func newTraceReader(r io.Reader) (*traceReader, error) {
	unpacked, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	lines := bufio.NewScanner(io.LimitReader(unpacked, traceBytesMax))
	lines.Buffer(nil, traceLineMax)
	return &traceReader{lines: lines}, nil
}

// next returns the next step, or io.EOF after the last.
func (r *traceReader) next() (*traceStep, error) {
	if !r.lines.Scan() {
		err := r.lines.Err()
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		return nil, io.EOF
	}
	decoder := json.NewDecoder(bytes.NewReader(r.lines.Bytes()))
	decoder.DisallowUnknownFields()
	step := new(traceStep)
	err := decoder.Decode(step)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	_, err = decoder.Token()
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("decode: %w", errTrailingText)
	}
	err = step.check()
	if err != nil {
		return nil, err
	}
	return step, nil
}

// check refuses an op that is not known, a request that is not whole, a field that belongs to
// another op, and a status that does not exist.
func (s *traceStep) check() error {
	ours := *s
	ours.Op, ours.At = "", 0
	events, known := 0, func(string) bool { return false }
	switch s.Op {
	case traceCreateAccounts:
		events, known = len(s.Accounts), knownAccountStatus
		ours.Accounts, ours.Statuses = nil, nil
	case traceCreateTransfers:
		events, known = len(s.Transfers), knownTransferStatus
		ours.Transfers, ours.Statuses = nil, nil
	case traceLookupAccounts:
		ours.IDs, ours.FoundAccounts = nil, nil
	case traceLookupTransfers:
		ours.IDs, ours.FoundTransfers = nil, nil
	case traceGetAccountTransfers:
		ours.Filter, ours.FoundTransfers = nil, nil
	case traceGetAccountBalances:
		ours.Filter, ours.Balances = nil, nil
	default:
		return fmt.Errorf("op %q: %w", s.Op, errUnknownOp)
	}
	strange := ours.Accounts != nil || ours.Transfers != nil || ours.IDs != nil ||
		ours.Filter != nil || ours.Statuses != nil || ours.FoundAccounts != nil ||
		ours.FoundTransfers != nil || ours.Balances != nil
	if strange {
		return fmt.Errorf("op %q: %w", s.Op, errForeignField)
	}
	if s.At == 0 || len(s.Statuses) != events || s.needsFilter() && s.Filter == nil {
		return fmt.Errorf("op %q: %w", s.Op, errIncompleteStep)
	}
	for _, status := range s.Statuses {
		if !known(status) {
			return fmt.Errorf("status %q: %w", status, errUnknownStatus)
		}
	}
	return nil
}

func (s *traceStep) needsFilter() bool {
	return s.Op == traceGetAccountTransfers || s.Op == traceGetAccountBalances
}

func (s *traceStep) lookupIDs() []ledgers.ID {
	ids := make([]ledgers.ID, len(s.IDs))
	for i, id := range s.IDs {
		ids[i] = ledgers.ID(id)
	}
	return ids
}

func (a *traceAccount) account() ledgers.Account {
	return ledgers.Account{
		ID:             ledgers.ID(a.ID),
		DebitsPending:  ledgers.Amount(a.DebitsPending),
		DebitsPosted:   ledgers.Amount(a.DebitsPosted),
		CreditsPending: ledgers.Amount(a.CreditsPending),
		CreditsPosted:  ledgers.Amount(a.CreditsPosted),
		UserData128:    ledgers.Amount(a.UserData128),
		UserData64:     a.UserData64,
		UserData32:     a.UserData32,
		Ledger:         a.Ledger,
		Code:           a.Code,
		Flags:          ledgers.AccountFlags(a.Flags),
		Timestamp:      a.Timestamp,
	}
}

func (x *traceTransfer) transfer() ledgers.Transfer {
	return ledgers.Transfer{
		ID:              ledgers.ID(x.ID),
		DebitAccountID:  ledgers.ID(x.DebitAccountID),
		CreditAccountID: ledgers.ID(x.CreditAccountID),
		Amount:          ledgers.Amount(x.Amount),
		PendingID:       ledgers.ID(x.PendingID),
		UserData128:     ledgers.Amount(x.UserData128),
		UserData64:      x.UserData64,
		UserData32:      x.UserData32,
		Timeout:         x.Timeout,
		Ledger:          x.Ledger,
		Code:            x.Code,
		Flags:           ledgers.TransferFlags(x.Flags),
		Timestamp:       x.Timestamp,
	}
}

func (f *traceFilter) filter() ledgers.AccountFilter {
	return ledgers.AccountFilter{
		AccountID:    ledgers.ID(f.AccountID),
		Code:         f.Code,
		TimestampMin: f.TimestampMin,
		TimestampMax: f.TimestampMax,
		Limit:        f.Limit,
		Debits:       f.Debits,
		Credits:      f.Credits,
		Reversed:     f.Reversed,
	}
}

// recordsOf turns the decoded form of a list into the ledger's records.
func recordsOf[D, R any](decoded []D, record func(*D) R) []R {
	records := make([]R, len(decoded))
	for i := range decoded {
		records[i] = record(&decoded[i])
	}
	return records
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
