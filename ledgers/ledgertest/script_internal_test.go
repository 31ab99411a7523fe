package ledgertest

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/ledgers"
)

// With -rewrite, what the twin answers is written into the scripts. Commit a rewrite only if you
// can say why the old answer was wrong; the suite on a real server has the last word.
var rewrite = flag.Bool("rewrite", false, "write the twin's answers into testdata/scripts")

// twinHarness is the twin with a clock that is moved by hand.
func twinHarness() Harness {
	now := uint64(1_800_000_000_000_000_000)
	return Harness{
		Driver:  NewTwin(func() uint64 { return now }),
		Advance: func(d time.Duration) { now += uint64(d) },
	}
}

// scriptTexts are the scripts by file name.
func scriptTexts(t *testing.T) map[string]string {
	t.Helper()
	names, err := fs.Glob(scriptFiles, "testdata/scripts/*")
	if err != nil || len(names) == 0 {
		t.Fatalf("scripts: got %d and %v", len(names), err)
	}
	texts := map[string]string{}
	for _, name := range names {
		text, err := scriptFiles.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	return texts
}

// TestScripts holds the twin's answers, in the form in which they are written, to the files.
func TestScripts(t *testing.T) {
	for name, text := range scriptTexts(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			rows := parseScript(text)
			answers, err := playScript(t.Context(), twinHarness(), rows)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got := formatScript(rows, answers)
			if got == text {
				return
			}
			if !*rewrite {
				t.Errorf("%s:\n%s", name, differ(strings.Split(got, "\n"), strings.Split(text, "\n"), nil))
				return
			}
			err = os.WriteFile(name, []byte(got), 0o600)
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestScriptsAreInTheSpecification finds a script that nobody plays: it would test nothing.
func TestScriptsAreInTheSpecification(t *testing.T) {
	source, err := os.ReadFile("spec.go")
	if err != nil {
		t.Fatal(err)
	}
	for name := range scriptTexts(t) {
		subject := strings.TrimSuffix(filepath.Base(name), ".txt")
		if !strings.Contains(string(source), `script("`+subject+`")`) {
			t.Errorf("%s: no entry of the specification plays it", name)
		}
	}
}

const (
	importRefused = "the embedded engine refuses imported events, so drivers differ from here on"
	noSuchField   = "the record has no reserved field"
	clockTooLate  = "needs a clock past the year 2126, when 2^32-1 seconds pass 2^63 nanoseconds"
)

// Statuses that no script expects, and why.
var (
	accountStatusesLeftOut = map[ledgers.AccountStatus]string{
		ledgers.AccountImportedEventExpected:                importRefused,
		ledgers.AccountImportedEventTimestampOutOfRange:     importRefused,
		ledgers.AccountImportedEventTimestampMustNotAdvance: importRefused,
		ledgers.AccountImportedEventTimestampMustNotRegress: importRefused,
		ledgers.AccountReservedField:                        noSuchField,
	}
	transferStatusesLeftOut = map[ledgers.TransferStatus]string{
		ledgers.TransferImportedEventExpected:                           importRefused,
		ledgers.TransferImportedEventTimestampOutOfRange:                importRefused,
		ledgers.TransferImportedEventTimestampMustNotAdvance:            importRefused,
		ledgers.TransferImportedEventTimestampMustNotRegress:            importRefused,
		ledgers.TransferImportedEventTimestampMustPostdateDebitAccount:  importRefused,
		ledgers.TransferImportedEventTimestampMustPostdateCreditAccount: importRefused,
		ledgers.TransferImportedEventTimeoutMustBeZero:                  importRefused,
		ledgers.TransferOverflowsTimeout:                                clockTooLate,
	}
)

// TestEveryStatusIsExpected finds a status that no script expects and nobody excused, and an excuse
// that is no longer needed.
func TestEveryStatusIsExpected(t *testing.T) {
	accounts, transfers := map[string]bool{}, map[string]bool{}
	for _, text := range scriptTexts(t) {
		for _, row := range parseScript(text) {
			switch {
			case len(row.words) == 0:
			case row.words[0] == "account":
				accounts[row.want] = true
			case row.words[0] == "transfer":
				transfers[row.want] = true
			}
		}
	}
	for _, s := range AccountStatuses() {
		if accounts[s.String()] == (accountStatusesLeftOut[s] != "") {
			t.Errorf("account status %v: expected by a script: %t, left out because: %q",
				s, accounts[s.String()], accountStatusesLeftOut[s])
		}
	}
	for _, s := range TransferStatuses() {
		if transfers[s.String()] == (transferStatusesLeftOut[s] != "") {
			t.Errorf("transfer status %v: expected by a script: %t, left out because: %q",
				s, transfers[s.String()], transferStatusesLeftOut[s])
		}
	}
}

// TestStatusesAreListed counts: the lists of TigerBeetle 0.17 have 27 and 68 entries.
func TestStatusesAreListed(t *testing.T) {
	accounts, transfers := AccountStatuses(), TransferStatuses()
	if len(accounts) != 27 || accounts[0] != ledgers.AccountCreated {
		t.Errorf("got %d statuses of accounts, want 27, created first", len(accounts))
	}
	if len(transfers) != 68 || transfers[0] != ledgers.TransferCreated {
		t.Errorf("got %d statuses of transfers, want 68, created first", len(transfers))
	}
}

// TestTwinOverflowsTimeout is the one status of the twin that no script can reach.
func TestTwinOverflowsTimeout(t *testing.T) {
	const year2126 = 1<<63 - (1<<32-1)*1_000_000_000
	for _, test := range []struct {
		name string
		now  uint64
		want ledgers.TransferStatus
	}{
		{"OK", year2126 - 1, ledgers.TransferCreated},
		{"ErrOverflows", year2126, ledgers.TransferOverflowsTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			twin := NewTwin(func() uint64 { return test.now })
			accounts := []ledgers.Account{
				{ID: ledgers.ID{Lo: 1}, Ledger: 1, Code: 1}, {ID: ledgers.ID{Lo: 2}, Ledger: 1, Code: 1},
			}
			twin.createAccounts([]uint64{1, 2}, accounts)
			results, err := twin.CreateTransfers(t.Context(), []ledgers.Transfer{{
				ID: ledgers.ID{Lo: 3}, DebitAccountID: accounts[0].ID, CreditAccountID: accounts[1].ID,
				Ledger: 1, Code: 1, Flags: ledgers.Pending, Timeout: 1<<32 - 1,
			}})
			if err != nil || results[0].Status != test.want {
				t.Errorf("got %v and %v, want %v", results, err, test.want)
			}
		})
	}
}

// TestScriptErrors has one script for each way to be wrong.
func TestScriptErrors(t *testing.T) {
	for _, test := range []struct {
		name, script string
		want         error
	}{
		{"ErrUnknownCommand", "acount A1 1 1 -", errUnknownCommand},
		{"ErrUnknownField", "account A1 1 1 - colour=1", errUnknownField},
		{"ErrUnknownFieldOfTransfer", "transfer T1 A1 A2 1 1 1 - debits_posted=1", errUnknownField},
		{"ErrUnknownFieldOfJournal", "journal A1 debits timeout=1", errUnknownField},
		{"ErrUnknownFlag", "account A1 1 1 frozen", errUnknownFlag},
		{"ErrWordMissing", "transfer T1 A1 A2 1 1 1", errWordMissing},
		{"ErrBadSymbol", "account 1A 1 1 -", errBadSymbol},
		{"ErrNotDecimal", "account A1 one 1 -", errNotDecimal},
		{"ErrTooGreat", "account A1 1 65536 -", errNotDecimal},
		{"ErrNotCommitted", "account A1 1 1 -", errNotCommitted},
		{"ErrNotCommittedBefore", "account A1 1 1 -\nbalance A1", errNotCommitted},
		{"ErrMixedCommit", "account A1 1 1 -\ntransfer T1 A1 A2 1 1 1 -\ncommit", errMixedCommit},
		{"ErrEmptyCommit", "commit", errMixedCommit},
		{"ErrNotFound", "journal A1 debits min=T9", errNotFound},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := playScript(t.Context(), twinHarness(), parseScript(test.script))
			if !errors.Is(err, test.want) {
				t.Errorf("got error %v, want %v", err, test.want)
			}
		})
	}
}

// TestRewrite changes answers and nothing else.
func TestRewrite(t *testing.T) {
	const script = "# A story -> with an arrow.\n\naccount  A1 1 1 -   -> exists\ncommit\n" +
		"balance  A1   -> none\n"
	const want = "# A story -> with an arrow.\n\naccount  A1 1 1 -   -> created\ncommit\n" +
		"balance  A1   -> 0/0 debits, 0/0 credits, -\n"
	rows := parseScript(script)
	answers, err := playScript(t.Context(), twinHarness(), rows)
	if err != nil {
		t.Fatal(err)
	}
	got := formatScript(rows, answers)
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestRandomSequence holds the same seed to the same sequence, and looks whether it has all kinds
// of steps.
func TestRandomSequence(t *testing.T) {
	describe := func(seed uint64) []string {
		var lines []string
		for _, step := range randomSequence(seed, 500) {
			lines = append(lines, step.String())
		}
		return lines
	}
	first := describe(7)
	if !slices.Equal(first, describe(7)) {
		t.Error("seed 7 twice: got two sequences, want one")
	}
	if slices.Equal(first, describe(8)) {
		t.Error("seeds 7 and 8: got one sequence, want two")
	}
	all := strings.Join(first, "\n")
	for _, kind := range []string{"account ", "transfer ", "look up=", "journal=", "advance="} {
		if !strings.Contains(all, kind) {
			t.Errorf("500 steps: got none of %q", kind)
		}
	}
}
