// Package spend is a breaker for calls that cost money, such as those to a paid model: a gate
// before each call, a settlement after it, and the ledger between.
//
// A [Budget] is two limits of kind budget: of tokens, and of USD in millionths. [Breaker.Authorize]
// reserves what a call may take of both in one chain, and closes where less than a part of either
// would be left; that is an answer, not an error. [Breaker.Settle] books what the call took,
// whatever it was. Nothing else charges these limits.
//
// What happened is told from the ledger alone, by notes on the account of the tokens: transfers of
// code note and amount 0, whose user data is packed so, the highest bits first:
//
//	note     of                      user_data_64                         user_data_32
//	first    authorize (kind 1)      kind 4, 0 4, input 28, output 28     0 32
//	         settle (kind 2)         kind 4, error 4, input 28,           route 2, estimated 1,
//	         correction (kind 4)       output 28                            late 1, cached 28
//	second   each of these           8 + kind 4, 0 10, millionths of      model 16, hold 16
//	                                   USD 50
//	only     closed (kind 3)         kind 4, node 20, calls 40            model 16, reason 16
//
// Calls are those turned away, and node is a number that a process has drawn for itself: two that
// write the same are told apart. Input, output and cached are tokens, cached a part of input: of
// authorize the estimate, of the others what is booked. Model is the number in the price table, of
// closed that of the last call. Hold is the seconds that the estimate is held, 0 but of authorize.
// Routes are 1 model, 2 fallback, 3 error; reasons 1 token-budget, 2 usd-budget; errors 1 timeout,
// 2 rate-limited, 3 provider-error, 4 canceled, 5 other. user_data_128 is the receipt, 0 of closed,
// and of the second note of a correction what tells the same one sent again from another.
package spend
