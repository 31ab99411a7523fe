// Package scenarios holds tests only: limiters as services run them, several on one TigerBeetle
// cluster, while replicas are paused and killed and the network between fails. Each of those ends
// with a proof from the ledger's journal that what was answered is what was charged. Besides, each
// kind of limit is tried by two nodes on either driver. What needs a tigerbeetle binary, named by
// TIGERBEETLE, is skipped without; WEIR_LONG=1 runs more rounds.
package scenarios
