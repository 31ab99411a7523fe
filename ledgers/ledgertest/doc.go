// Package ledgertest says what a ledger is, for every implementation of [ledgers.Driver]:
//
//   - [Run] is the conformance suite. Its list of named subtests, in spec.go, is the specification:
//     what it does not ask for, a caller may not rely on. Most of it is text tables that anyone can
//     read, testdata/scripts/*.txt, whose grammar stands in script.go; the rest holds a driver to
//     the sentences of the contract at [ledgers.Driver].
//   - [RunTrace] replays what a real TigerBeetle answered, recorded in testdata/traces: the oracle.
//     Where a script, the twin and a trace disagree, the trace is right.
//   - [Twin] is a ledger so simple that it is right by reading, and [RunRandom] compares a driver
//     with it over random sequences.
//   - [Checked] ends any test with the invariants of a ledger, and [Faulty] is a ledger that
//     misbehaves on cue: these two are for the tests of the packages above.
//
// A driver joins with a harness and a few lines:
//
//	func open(t testing.TB) ledgertest.Harness { ... }
//
//	func TestConformance(t *testing.T) { ledgertest.Run(t, open) }
//
//	func TestRandom(t *testing.T) { ledgertest.RunRandom(t, 1, 500, open) }
//
// The suite runs unchanged on a ledger in this process, whose clock the test moves, and on a real
// server that others use too, whose clock it waits for.
package ledgertest
