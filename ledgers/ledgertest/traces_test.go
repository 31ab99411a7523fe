package ledgertest_test

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/ledgers/ledgertest"
)

// writeTrace packs lines into a trace and returns its path.
func writeTrace(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.jsonl.gz")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	packed := gzip.NewWriter(file)
	for _, line := range lines {
		_, err = packed.Write([]byte(line + "\n"))
		if err != nil {
			t.Fatal(err)
		}
	}
	err = packed.Close()
	if err != nil {
		t.Fatal(err)
	}
	err = file.Close()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The steps of a trace that is right; tests spoil them.
const (
	traceAccounts = `{"op":"create_accounts","at":1000,"accounts":[` +
		`{"id":"1","ledger":1,"code":1,"flags":0},{"id":"2","ledger":1,"code":1,"flags":0},` +
		`{"id":"2","ledger":1,"code":2,"flags":0}],` +
		`"statuses":["created","created","exists_with_different_code"]}`
	traceTransfers = `{"op":"create_transfers","at":2000,"transfers":[` +
		`{"id":"3","debit_account_id":"1","credit_account_id":"2",` +
		`"amount":"340282366920938463463374607431768211455","ledger":1,"code":1,"flags":0}],` +
		`"statuses":["created"]}`
	traceBalances = `{"op":"get_account_balances","at":2500,"filter":{"account_id":"1","limit":1,` +
		`"debits":true,"credits":true,"reversed":false},"balances":[{"debits_pending":"7"}]}`
	traceLookup = `{"op":"lookup_accounts","at":3000,"ids":["9","1"],"found_accounts":[` +
		`{"id":"1","debits_pending":"0","debits_posted":"340282366920938463463374607431768211455",` +
		`"credits_pending":"0","credits_posted":"0","ledger":1,"code":1,"flags":0}]}`
	traceFind = `{"op":"lookup_transfers","at":3000,"ids":["3"],"found_transfers":[` +
		`{"id":"3","debit_account_id":"1","credit_account_id":"2",` +
		`"amount":"340282366920938463463374607431768211455","ledger":1,"code":1,"flags":0,` +
		`"timestamp":2000}]}`
	traceJournal = `{"op":"get_account_transfers","at":4000,"filter":{"account_id":"2","limit":3,` +
		`"debits":true,"credits":false,"reversed":true}}`
)

func TestRunTrace(t *testing.T) {
	replace := func(line, old, other string) string {
		t.Helper()
		if !strings.Contains(line, old) {
			t.Fatalf("%q is not in %s", old, line)
		}
		return strings.Replace(line, old, other, 1)
	}
	for _, test := range []struct {
		name  string
		lines []string
		// want is what the failure must name; "" if there is none.
		want string
	}{
		{"OK", []string{
			traceAccounts, traceTransfers, traceBalances, traceLookup, traceFind, traceJournal,
		}, ""},
		{"ErrEmpty", nil, "no steps"},
		{"ErrEmptyLine", []string{traceAccounts, "", traceTransfers}, "step 2"},
		{"ErrStatus", []string{traceAccounts, replace(traceTransfers, `["created"]`, `["exists"]`)},
			"step 2"},
		{"ErrAccountStatus", []string{replace(traceAccounts, `"created","created"`,
			`"created","exists"`)}, "want exists"},
		{"ErrBalance", []string{traceAccounts, traceTransfers,
			replace(traceLookup, `"debits_pending":"0"`, `"debits_pending":"1"`)},
			"want id=1 debits_pending=1"},
		{"ErrMissing", []string{traceAccounts, traceTransfers,
			replace(traceLookup, `["9","1"]`, `["9"]`)}, "got 0 answers, want 1"},
		{"ErrTooMany", []string{traceAccounts, traceTransfers,
			replace(traceJournal, `"credits":false`, `"credits":true`)}, "got 1 answers, want 0"},
		{"ErrTimestamp", []string{traceAccounts, traceTransfers,
			replace(traceFind, `"timestamp":2000`, `"timestamp":1999`)}, "timestamp=1999"},
		{"ErrUnknownOp", []string{replace(traceAccounts, "create_accounts", "query_accounts")},
			"query_accounts"},
		{"ErrUnknownField", []string{replace(traceAccounts, `"ledger":1`, `"leger":1`)}, "leger"},
		{"ErrForeignField", []string{traceAccounts, replace(traceTransfers, `"at"`,
			`"found_transfers":[],"at"`)}, "step 2"},
		{"ErrUnknownStatus", []string{replace(traceAccounts, `"created",`, `"ok",`)}, `"ok"`},
		{"ErrUnknownStatusOfTransfer", []string{traceAccounts,
			replace(traceTransfers, `["created"]`, `["ledger_is_closed"]`)}, "ledger_is_closed"},
		{"ErrStatusMissing", []string{replace(traceAccounts, `"created","created",`,
			`"created",`)}, "step 1"},
		{"ErrNoTime", []string{replace(traceAccounts, `"at":1000,`, ``)}, "step 1"},
		{"ErrNoFilter", []string{`{"op":"get_account_transfers","at":1}`}, "step 1"},
		{"ErrNotJSON", []string{traceAccounts, "{"}, "step 2"},
		{"ErrTrailing", []string{traceAccounts + "{}"}, "step 1"},
		{"ErrNegative", []string{replace(traceAccounts, `"id":"1"`, `"id":"-1"`)}, `"-1"`},
		{"ErrTooGreat", []string{traceAccounts, replace(traceTransfers, "11455", "11456")},
			"step 2"},
		{"ErrNumber", []string{replace(traceAccounts, `"id":"1"`, `"id":1`)}, "step 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := writeTrace(t, test.lines...)
			got := record(t, func(t testing.TB) {
				var now uint64
				twin := ledgertest.NewTwin(func() uint64 { return now })
				ledgertest.RunTrace(t, path, twin, func(at uint64) { now = at })
			})
			if test.want == "" {
				wantFailures(t, got, nil)
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], test.want) {
				t.Errorf("got failures %q, want one that names %q", got, test.want)
			}
		})
	}
}

func TestTraceFiles(t *testing.T) {
	t.Setenv(ledgertest.TracesEnv, "")
	own, err := ledgertest.TraceFiles()
	if err != nil || len(own) != 120 {
		t.Errorf("own: got %d and %v, want 120", len(own), err)
	}
	extra := writeTrace(t, traceAccounts)
	t.Setenv(ledgertest.TracesEnv, filepath.Dir(extra))
	all, err := ledgertest.TraceFiles()
	if err != nil || len(all) != 121 || all[120] != extra {
		t.Errorf("with one more: got %d and %v, want 121", len(all), err)
	}
	t.Setenv(ledgertest.TracesEnv, t.TempDir())
	_, err = ledgertest.TraceFiles()
	if err == nil {
		t.Error("an empty directory: got no error, want one")
	}
}
