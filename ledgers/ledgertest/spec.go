package ledgertest

import (
	"context"
	"embed"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/ledgers"
)

// Harness is a ledger under test.
type Harness struct {
	// Driver is the ledger. It may hold what other tests left there: the suite takes ids that no
	// one else has.
	Driver ledgers.Driver
	// Advance moves the ledger's clock by d or more: at once where the clock is the test's, by
	// waiting where it is not. The suite moves it seldom and by a few seconds at most, and looks at
	// a timeout either well before it or well past it, as a real server expires with a delay.
	Advance func(d time.Duration)
}

// subtest is one entry of the specification.
type subtest struct {
	name string
	run  func(s *session)
}

// specification is what a ledger is: every driver passes all of it. A Script is a text table in
// testdata/scripts; the rest is what a table cannot tell. Each sentence of the contract at
// [ledgers.Driver] stands here.
//
// tidy:table the list of named subtests is the specification
var specification = []subtest{
	{"Accounts/Script", script("accounts")},
	{"Accounts/AllFieldsAreKept", accountsKeepAllFields},
	{"Accounts/SentAtOnceAreCreatedOnce", accountsCreatedOnce},

	{"Transfers/Script", script("transfers")},
	{"Transfers/Overflows", script("overflows")},
	{"Transfers/ReturnedAsCreated", transfersReturnedAsCreated},

	{"TwoPhase/Script", script("two_phase")},
	{"TwoPhase/Expiry", script("expiry")},
	{"TwoPhase/ExpiryIsPerTransfer", expiryPerTransfer},

	{"Chains/Script", script("chains")},
	{"Chains/NeverSplit", chainsNeverSplit},

	{"Limits/Script", script("limits")},
	{"Limits/NeverOverdrawn", neverOverdrawn},
	{"Limits/NeverOverdrawnAcrossChains", neverOverdrawnAcrossChains},

	{"Balancing/Script", script("balancing")},
	{"Balancing/TakesWhatIsLeftOnce", balancingTakesOnce},

	{"Closing/Script", script("closing")},

	{"IDs/Burning", script("burning")},
	{"IDs/Exists", script("exists")},
	{"IDs/NeverSeenSentAtOnceIsCreatedOnce", transfersCreatedOnce},
	{"IDs/EndsOfOnePendingCompete", endsCompete},
	{"IDs/SendingAgainIsSafe", sendingAgainIsSafe},

	{"Timestamps/OfResults", timestampsOfResults},
	{"Timestamps/OfExistsNeverChange", timestampsOfExists},
	{"Timestamps/AreUniqueAndGrow", timestampsGrow},
	{"Timestamps/OfAnInvalidEventTellTheTime", timestampOfIDZero},

	{"Lookups/OrderOfIDs", lookupsKeepOrder},
	{"Lookups/MissingIsPassedOver", lookupsPassOver},
	{"Lookups/TwiceAskedIsTwiceAnswered", lookupsTwice},

	{"Journal/Script", script("journal")},
	{"Journal/Timestamps", journalTimestamps},
	{"Journal/Pages", journalPages},

	{"Calls/AnswerEachEventInOrder", answersInOrder},
	{"Calls/WithoutEventsAnswerNothing", emptyCalls},
	{"Calls/SlicesStayTheCallers", slicesStayTheCallers},
	{"Calls/LaterCallsSeeEarlierAnswers", laterCallsSee},
	{"Calls/EachCallerGetsItsOwnAnswers", ownAnswers},
	{"Calls/BusyWroteNothing", busyWroteNothing},

	{"Bounds/MaxEvents", fullBatch},
	{"Bounds/ErrTooManyEvents", tooManyEvents},

	{"Context/DoneBeforeWritesNothing", contextDoneBefore},
	{"Context/EndingLaterTearsNoWrite", contextEndsLater},
	{"Context/GivenUpIsWrittenLate", contextTells},

	{"Close/ErrClosed", closedAnswers},
	{"Close/Twice", closedTwice},
	{"Close/WaitsForAcceptedCalls", closeWaits},
}

// Run holds a driver to the specification. Each subtest opens its own harness; open registers with
// t.Cleanup what has to be closed. A driver's own test is:
//
//	func TestConformance(t *testing.T) { ledgertest.Run(t, open) }
//
// Every subtest ends with the check of [Checked].
func Run(t *testing.T, open func(t testing.TB) Harness) {
	for _, test := range specification {
		t.Run(test.name, func(t *testing.T) {
			harness := open(t)
			harness.Driver = Checked(t, harness.Driver)
			test.run(&session{TB: t, harness: harness, ids: newIDSpace()})
		})
	}
}

//go:embed testdata/scripts/*.txt
var scriptFiles embed.FS

// script plays testdata/scripts/NAME.txt and compares each answer.
func script(name string) func(s *session) {
	return func(s *session) {
		s.Helper()
		file := "testdata/scripts/" + name + ".txt"
		text, err := scriptFiles.ReadFile(file)
		if err != nil {
			s.Fatalf("script: %v", err)
		}
		rows := parseScript(string(text))
		answers, err := playScript(s.Context(), s.harness, rows)
		if err != nil {
			s.Fatalf("%s: %v", file, err)
		}
		for _, row := range rows {
			got, want := answers[row.number], row.want
			if got != want {
				s.Errorf("%s:%d: %s\n\tgot  %s\n\twant %s",
					file, row.number, strings.TrimSpace(row.text), got, want)
			}
		}
	}
}

// idSpace gives ids that no other test has, not even one of another run on the same server.
type idSpace struct{ hi uint64 }

func newIDSpace() idSpace {
	// The two highest bits are set to 01: far from 0 and from the greatest id.
	return idSpace{hi: rand.Uint64()>>2 | 1<<62}
}

func (s idSpace) id(n uint64) ledgers.ID { return ledgers.ID{Lo: n, Hi: s.hi} }

// session is what a subtest works with: a ledger, ids of its own, and ways to say what it expects.
// A call that fails ends the subtest.
type session struct {
	testing.TB
	harness Harness
	ids     idSpace
}

func (s *session) driver() ledgers.Driver { return s.harness.Driver }

// id is the n-th id of the subtest.
func (s *session) id(n int) ledgers.ID { return s.ids.id(uint64(n)) }

// accounts creates accounts 1 to n, without flags, on ledger 1.
func (s *session) accounts(n int) {
	s.Helper()
	accounts := make([]ledgers.Account, n)
	for i := range accounts {
		accounts[i] = ledgers.Account{ID: s.id(i + 1), Ledger: 1, Code: 1}
	}
	s.createAccounts(accounts...)
}

// quota creates an operator, account 1, and a user, account 2, who may hold units at once.
func (s *session) quota(units uint64) {
	s.Helper()
	s.createAccounts(
		ledgers.Account{ID: s.id(1), Ledger: 1, Code: 1},
		ledgers.Account{
			ID: s.id(2), Ledger: 1, Code: 1, Flags: ledgers.DebitsMustNotExceedCredits,
		},
	)
	s.create(s.transfer(3, 1, 2, units))
}

// createAccounts creates accounts, all of which must be new.
func (s *session) createAccounts(accounts ...ledgers.Account) {
	s.Helper()
	results, err := s.driver().CreateAccounts(s.Context(), accounts)
	if err != nil {
		s.Fatalf("create accounts: %v", err)
	}
	if len(results) != len(accounts) {
		s.Fatalf("create accounts: got %d results, want %d", len(results), len(accounts))
	}
	for i, r := range results {
		if r.Status != ledgers.AccountCreated {
			s.Fatalf("create account %s: got %v, want created", formatAccount(accounts[i]), r.Status)
		}
	}
}

// transfer is a posted transfer of an amount between two accounts of the subtest.
func (s *session) transfer(n, debit, credit int, amount uint64) ledgers.Transfer {
	return ledgers.Transfer{
		ID: s.id(n), DebitAccountID: s.id(debit), CreditAccountID: s.id(credit),
		Amount: ledgers.AmountOf(amount), Ledger: 1, Code: 1,
	}
}

// pending is a pending transfer of an amount between two accounts of the subtest.
func (s *session) pending(
	n, debit, credit int, amount uint64, timeoutSeconds uint32,
) ledgers.Transfer {
	t := s.transfer(n, debit, credit, amount)
	t.Flags, t.Timeout = ledgers.Pending, timeoutSeconds
	return t
}

// send sends transfers and returns the results, one for each.
func (s *session) send(transfers ...ledgers.Transfer) []ledgers.TransferResult {
	s.Helper()
	results, err := s.driver().CreateTransfers(s.Context(), transfers)
	if err != nil {
		s.Fatalf("create transfers: %v", err)
	}
	if len(results) != len(transfers) {
		s.Fatalf("create transfers: got %d results, want %d", len(results), len(transfers))
	}
	return results
}

// create sends transfers, all of which must be created.
func (s *session) create(transfers ...ledgers.Transfer) []ledgers.TransferResult {
	s.Helper()
	results := s.send(transfers...)
	for i, r := range results {
		if r.Status != ledgers.TransferCreated {
			s.Fatalf("create transfer %s: got %v, want created",
				formatTransfer(transfers[i]), r.Status)
		}
	}
	return results
}

// account looks up an account that must exist.
func (s *session) account(n int) ledgers.Account {
	s.Helper()
	found := s.lookupAccounts(s.id(n))
	if len(found) != 1 {
		s.Fatalf("look up account %d: got %d accounts, want 1", n, len(found))
	}
	return found[0]
}

func (s *session) lookupAccounts(ids ...ledgers.ID) []ledgers.Account {
	s.Helper()
	found, err := s.driver().LookupAccounts(s.Context(), ids)
	if err != nil {
		s.Fatalf("look up accounts: %v", err)
	}
	return found
}

func (s *session) lookupTransfers(ids ...ledgers.ID) []ledgers.Transfer {
	s.Helper()
	found, err := s.driver().LookupTransfers(s.Context(), ids)
	if err != nil {
		s.Fatalf("look up transfers: %v", err)
	}
	return found
}

func (s *session) journal(filter ledgers.AccountFilter) []ledgers.Transfer {
	s.Helper()
	found, err := s.driver().AccountTransfers(s.Context(), filter)
	if err != nil {
		s.Fatalf("journal: %v", err)
	}
	return found
}

// wantTransfers compares transfers, in order and whole.
func (s *session) wantTransfers(what string, got, want []ledgers.Transfer) {
	s.Helper()
	difference := differ(formatAll(got, formatTransfer), formatAll(want, formatTransfer), nil)
	if difference != "" {
		s.Errorf("%s:\n%s", what, difference)
	}
}

// parallel runs f in n goroutines and waits for all of them. f reports with Errorf, never Fatalf.
func (s *session) parallel(n int, f func(ctx context.Context, i int)) {
	done := make(chan struct{})
	for i := range n {
		go func() {
			defer func() { done <- struct{}{} }()
			f(s.Context(), i)
		}()
	}
	for range n {
		<-done
	}
}
