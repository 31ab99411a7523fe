// Package accounts knows who pays: it turns limits and subjects into ledger accounts, and quotas,
// grants and charges into transfers between them.
//
// A limit is one ledger. On it the operator account grants quota, and each subject has a user
// account that cannot be overdrawn. A charge moves units from the user to the operator as a pending
// transfer whose timeout is the limit's window: when it expires, the ledger gives the units back.
//
//	quota, at first sight    operator -> user   posted    code quota, step 0
//	changed quota            either way         posted    code requota, step 1, 2, ...
//	charge                   user -> operator   pending   code charge, timeout = window
//	look without a charge    user -> operator   pending   code guard, 1 unit, and its void
//	used beyond the quota    overage -> operator, all of it; user -> overage, what is free;
//	                         pending    code overage, timeout = what is left of the window
//	grant                    operator -> user   posted    code grant
//	revocation               user -> operator   posted    code revocation
//
// An asset is a ledger too. On it the treasury account gives money out and takes it back, and each
// subject has a money account that cannot be overdrawn. A payment is one chain over the ledgers of
// its limits and of its asset, the money last.
//
//	deposit                  treasury -> money  posted    code deposit
//	withdrawal               money -> treasury  posted    code withdrawal
//	payment                  user -> operator   pending   code charge, for each limit;
//	                         money -> money     posted    code payment
//
// The package holds no policy: it does not know why a charge is made, what happens when the ledger
// does not answer, or what a caller is told.
package accounts
