// Package scenarios holds tests only: limiters as services run them, several on one TigerBeetle
// cluster, while replicas are paused and killed and the network between fails. Each test ends with
// a proof from the ledger's journal that what was answered is what was charged. They need a
// tigerbeetle binary, named by TIGERBEETLE, and are skipped without; WEIR_LONG=1 runs more rounds.
package scenarios
