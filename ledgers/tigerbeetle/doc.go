// Package tigerbeetle is the ledger on a TigerBeetle cluster: a [ledgers.Driver] on
// tigerbeetle-go, which needs cgo. Without cgo the package builds, and [Open] says so.
//
// One [Ledger] is one session with the cluster, for any number of callers. A session has one
// request under way, so the driver gathers the calls that wait, each kind in a lane of its own, and
// sends them together. A request holds as many events as the server takes, and no chain is ever cut
// in two.
//
// The client of tigerbeetle-go waits for ever and cannot be told to stop waiting. The driver can: a
// call ends when its context does, and what it had sent goes on without it.
package tigerbeetle
