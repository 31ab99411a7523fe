package ledgers

import "errors"

var (
	// ErrBusy is returned by every call of a [Driver] whose queue is full. Nothing was written.
	ErrBusy = errors.New("ledger is busy: its queue is full")
	// ErrClosed is returned by every call of a [Driver] after Close. Nothing was written.
	ErrClosed = errors.New("ledger is closed")
	// ErrTooManyEvents is returned by a call with more than [MaxEvents] events or ids. Nothing was
	// written.
	ErrTooManyEvents = errors.New("too many events for one call to the ledger")
)

// GivenUp is the error of a CreateTransfers whose caller stopped waiting before the ledger
// answered; errors.As finds it. What was sent may still be applied, now or later, or not at all:
// Late tells, and so does sending the same transfers again.
type GivenUp struct { //nolint:errname // it names what became of the call: it did not fail
	// Late yields the results, once, if the call returns them after all, and is closed when the
	// call is over, whatever became of it. It is buffered: nobody has to read it.
	Late <-chan []TransferResult
	// Cause is why the caller stopped waiting: context.DeadlineExceeded or context.Canceled.
	Cause error
}

// GiveUp returns the error of a CreateTransfers whose caller stops waiting because of cause. wait
// returns when the call is over, in a goroutine of its own, with its results if there are any.
func GiveUp(cause error, wait func() (results []TransferResult, ok bool)) *GivenUp {
	late := make(chan []TransferResult, 1)
	go func() {
		defer close(late)
		results, ok := wait()
		if ok {
			late <- results
		}
	}()
	return &GivenUp{Late: late, Cause: cause}
}

// Error says why the caller stopped waiting.
func (e *GivenUp) Error() string { return "gave up waiting for the ledger: " + e.Cause.Error() }

// Unwrap returns Cause.
func (e *GivenUp) Unwrap() error { return e.Cause }
