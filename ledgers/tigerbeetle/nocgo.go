//go:build !cgo

package tigerbeetle

import "weir/ledgers"

// dial says that there is no client in this build.
func dial([]string, ledgers.Amount) (conn, error) { return nil, ErrNoCgo }
