package tbtest

import "errors"

// ErrMissing is wrapped by the error of a cluster that cannot be had on this machine: there is no
// TigerBeetle, or not enough memory.
var ErrMissing = errors.New("no TigerBeetle")

var (
	// errNotListening is why a replica could not be started.
	errNotListening = errors.New("the replica ended before it listened")
	// errNotRunning is why a replica cannot be paused: it was killed.
	errNotRunning = errors.New("the replica does not run")
)
