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
