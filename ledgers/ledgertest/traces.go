package ledgertest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"weir/ledgers"
)

// TracesEnv names the environment variable that adds a directory of traces to [TraceFiles].
const TracesEnv = "WEIR_TRACES"

// traceStepsMax bounds the steps of one trace, and traceBytesMax its size unpacked, so that a
// broken file cannot run a test for ever.
const (
	traceStepsMax = 1_000_000
	traceBytesMax = 1 << 30
)

// tracesDir is where the recorded traces lie, from the root of the module.
const tracesDir = "ledgers/ledgertest/testdata/traces"

// TraceFiles lists the traces that every driver must reproduce: those of this package's testdata
// and, when WEIR_TRACES names a directory, each *.jsonl.gz in it. The paths are absolute and in the
// order of their names. It works from the tests of any package of this module. No trace at all, or
// an extra directory without one, is an error: a test over nothing must not pass.
func TraceFiles() ([]string, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	dirs := []string{filepath.Join(root, filepath.FromSlash(tracesDir))}
	extra := os.Getenv(TracesEnv)
	if extra != "" {
		dirs = append(dirs, extra)
	}
	var files []string
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(dir, "*.jsonl.gz"))
		if err != nil {
			return nil, fmt.Errorf("traces in %s: %w", dir, err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("traces in %s: %w", dir, errNoTraces)
		}
		files = append(files, found...)
	}
	return files, nil
}

// moduleRoot is the nearest directory above the working directory that holds a go.mod: tests run
// in the directory of their package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("module root: %w", err)
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("module root: %w", errNoModule)
		}
		dir = parent
	}
}

// RunTrace replays a recorded trace of a real TigerBeetle against driver, which must be empty, and
// fails t at the first step whose answer differs: a status, an account, a transfer or their order.
// What an account or transfer held in the recording is compared whole, but for timestamps, which
// recordings leave out; where one has them, they are compared too.
//
// A trace is a gzip file of one JSON request a line, in the order in which the ledger took them:
// `op`, `at` (the ledger's clock in nanoseconds since 1970), the events or ids or filter, and what
// was answered; u128 as decimal strings, fields that are zero left out. Before each step, setClock
// is given its `at`. Steps of op get_account_balances are passed over, as [ledgers.Driver] has no
// such call. An op, a field or a status that RunTrace does not know fails the test.
func RunTrace(t testing.TB, path string, driver ledgers.Driver, setClock func(at uint64)) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatalf("open trace: %v", err)
	}
	defer file.Close()
	steps, err := newTraceReader(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for n := 1; n <= traceStepsMax; n++ {
		step, err := steps.next()
		if errors.Is(err, io.EOF) {
			if n == 1 {
				t.Fatalf("%s: no steps", path)
			}
			return
		}
		if err != nil {
			t.Fatalf("%s: step %d: %v", path, n, err)
		}
		if step.Op == traceGetAccountBalances {
			continue
		}
		setClock(step.At)
		difference, err := step.replay(t.Context(), driver)
		if err != nil {
			t.Fatalf("%s: step %d, %s: %v", path, n, step.Op, err)
		}
		if difference != "" {
			t.Fatalf("%s: step %d, %s, at %d:\n%s", path, n, step.Op, step.At, difference)
		}
	}
	t.Fatalf("%s: more than %d steps", path, traceStepsMax)
}

// replay sends the step to driver and returns in words how the answer differs from the recorded
// one, or "" if it does not.
func (s *traceStep) replay(ctx context.Context, driver ledgers.Driver) (string, error) {
	switch s.Op {
	case traceCreateAccounts:
		accounts := recordsOf(s.Accounts, (*traceAccount).account)
		results, err := driver.CreateAccounts(ctx, accounts)
		got := make([]string, 0, len(results))
		for _, r := range results {
			got = append(got, r.Status.String())
		}
		return differ(got, s.Statuses, func(i int) string { return formatAccount(accounts[i]) }), err
	case traceCreateTransfers:
		transfers := recordsOf(s.Transfers, (*traceTransfer).transfer)
		results, err := driver.CreateTransfers(ctx, transfers)
		got := make([]string, 0, len(results))
		for _, r := range results {
			got = append(got, r.Status.String())
		}
		return differ(got, s.Statuses, func(i int) string { return formatTransfer(transfers[i]) }), err
	case traceLookupAccounts:
		got, err := driver.LookupAccounts(ctx, s.lookupIDs())
		want := recordsOf(s.FoundAccounts, (*traceAccount).account)
		return differAccounts(got, want), err
	case traceLookupTransfers:
		got, err := driver.LookupTransfers(ctx, s.lookupIDs())
		return differTransfers(got, recordsOf(s.FoundTransfers, (*traceTransfer).transfer)), err
	default: // the reader lets no other op pass
		got, err := driver.AccountTransfers(ctx, s.Filter.filter())
		return differTransfers(got, recordsOf(s.FoundTransfers, (*traceTransfer).transfer)), err
	}
}

// differAccounts compares accounts with recorded ones, whose timestamp 0 means "not recorded".
func differAccounts(got, want []ledgers.Account) string {
	got = append([]ledgers.Account(nil), got...)
	for i := range got {
		if i < len(want) && want[i].Timestamp == 0 {
			got[i].Timestamp = 0
		}
	}
	return differ(formatAll(got, formatAccount), formatAll(want, formatAccount), nil)
}

// differTransfers compares transfers with recorded ones, whose timestamp 0 means "not recorded".
func differTransfers(got, want []ledgers.Transfer) string {
	got = append([]ledgers.Transfer(nil), got...)
	for i := range got {
		if i < len(want) && want[i].Timestamp == 0 {
			got[i].Timestamp = 0
		}
	}
	return differ(formatAll(got, formatTransfer), formatAll(want, formatTransfer), nil)
}

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
type traceReader struct{ lines *bufio.Scanner }

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
	if errors.Is(err, io.EOF) {
		return nil, errEmptyLine
	}
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
	filters := s.Op == traceGetAccountTransfers || s.Op == traceGetAccountBalances
	if s.At == 0 || len(s.Statuses) != events || filters && s.Filter == nil {
		return fmt.Errorf("op %q: %w", s.Op, errIncompleteStep)
	}
	for _, status := range s.Statuses {
		if !known(status) {
			return fmt.Errorf("status %q: %w", status, errUnknownStatus)
		}
	}
	return nil
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
