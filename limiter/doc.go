// Package limiter decides: may this subject do this, now? It holds the policy of the service (what
// a limit is, what a request means, what the caller is told) and leaves the bookkeeping to package
// accounts, where every decision is an entry in a ledger.
//
// A [Request] names one limit or several and is decided as a whole. The answer is a [Decision],
// also where it is no; an [Error] means that the request cannot be decided as sent, or that the
// ledger did not answer. Neither is ever taken for the other.
package limiter
