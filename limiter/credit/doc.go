// Package credit is a gate for hot paths that fails open: it answers from memory whether the
// credits of a subject are known to be exhausted, and lets pass whatever is unknown, slow or down.
//
// "No data" and "a balance of 0" are different states. Only the second blocks, and only where it is
// enforced: taking the one for the other would turn the outage of a billing provider into an outage
// of everything behind the gate. See [Compute] for the truth table and [Gate] for the rest.
//
// The package imports nothing of weir. Where balances come from is a [Source]; there is one for a
// billing provider in httpsource, and one for weir's own ledger in ledgersource.
package credit
