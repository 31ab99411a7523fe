// Package ledgers holds the records of a double-entry ledger and the one seam, [Driver], behind
// which a ledger stands: the engine in this process (ledgers/embedded) or a TigerBeetle cluster.
//
// The words are TigerBeetle's, spelled as it spells them:
//
//	account    a balance in four sums: debits and credits, pending and posted
//	transfer   an amount moved from a debit account to a credit account; never changed, never lost
//	ledger     a number that groups accounts; transfers stay within one ledger
//	code       a small number that says what kind of account or transfer this is
//	pending    a transfer that reserves its amount until it is posted, voided or times out
//	posted     a transfer that has moved its amount for good
//	voided     a pending transfer that was ended without moving anything
//	expired    a pending transfer whose timeout passed; its amount is free again
//	linked     joined with the next event: all of the chain is applied, or none of it
//	balancing  a transfer whose amount is cut down to what the account can bear
//
// A refusal by the ledger is a status in a result; an error means that the ledger could not answer.
package ledgers
