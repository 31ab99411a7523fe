package tigerbeetle

import "errors"

var (
	// ErrNoCgo is returned by Open of a program that was built without cgo.
	ErrNoCgo = errors.New("this build has no TigerBeetle client: it needs cgo, so build with " +
		"CGO_ENABLED=1 and a C compiler")
	// ErrAddress is returned by Open for addresses that no session can be opened with. They are IP
	// addresses with a port, one for each replica.
	ErrAddress = errors.New("not the addresses of a TigerBeetle cluster: want IP:PORT of each replica")
	// ErrClient is returned by Open, and by calls that would open the session again, when the
	// client cannot be started: no memory, no io_uring, too many open files. It goes with the
	// client's own words.
	ErrClient = errors.New("the TigerBeetle client cannot be started")
	// ErrEvicted is returned by a create call whose session the cluster has ended before it
	// answered: what was sent may be applied. A cluster keeps 64 sessions and ends the idlest. The
	// next call opens another session.
	ErrEvicted = errors.New("the cluster has ended the session")
	// ErrRelease is returned by every call while the cluster does not speak with clients of this
	// release. It comes together with ErrEvicted.
	ErrRelease = errors.New("the cluster is of another release than tigerbeetle-go v0.17.9 can use")
	// ErrUnanswered is returned by Close, and by the calls that were under way, when the cluster
	// did not answer in the time that Close waits: what was sent may be applied.
	ErrUnanswered = errors.New("closed before the cluster answered")
	// ErrReply is returned by a call whose answer is none that a 0.17 server gives: a status that
	// is not known, or a number of results that does not fit. What was sent may be applied.
	ErrReply = errors.New("the cluster's answer is not understood")

	// errTooMuchData is what a session answers to a request that is larger than the server takes.
	// Nothing was sent.
	errTooMuchData = errors.New("more than the server takes in one request")
	// errSessionOver is what a session answers after it was closed or evicted: nothing was sent,
	// unless the request was under way when it was closed.
	errSessionOver = errors.New("the session is over")
)
