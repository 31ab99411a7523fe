// Package ledgertest says what a ledger is: the conformance suite that every [ledgers.Driver] must
// pass, recorded traces of a real TigerBeetle, and a driver that fails on cue.
package ledgertest
