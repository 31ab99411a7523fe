package ledgertest

import (
	"context"
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
