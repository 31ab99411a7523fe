// Package tbtest runs real TigerBeetle clusters for tests: it formats and starts the replicas,
// pauses, kills and restarts them, and stands between them and their clients to delay, drop or cut
// off what they answer. It is for tests and benchmarks alone.
//
//	cluster := tbtest.Start(t, tbtest.ThreeReplicas) // skips the test where there is no TigerBeetle
//	proxy := cluster.Proxy(t)
//	ledger, err := tigerbeetle.Open(proxy.Addresses(), cluster.ID(), nil)
//	...
//	err = cluster.Pause(proxy.Primary())
package tbtest
