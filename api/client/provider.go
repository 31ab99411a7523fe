package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"weir/api/wire"
)

// ProviderError is how a function that calls a model says what its provider answered. An
// application makes one of what its provider's SDK returns.
//
// A status of 408, 429 or 5xx passes, and so does what happens on the way there: an error of net or
// net/http, the end of a stream in its middle, and the end of the time for the call. Then the call
// is made again. Any other error is the application's to handle, and it is returned to it.
type ProviderError struct {
	// Status is the HTTP status of the answer, 0 if there was none.
	Status int
	// RetryAfter is how long the provider asks to wait, 0 if it did not say.
	RetryAfter time.Duration
	// Err is the error of the SDK, or nil.
	Err error
}

// Error returns the status and the error.
func (e *ProviderError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("provider: status %d", e.Status)
	}
	return fmt.Sprintf("provider: status %d: %v", e.Status, e.Err)
}

// Unwrap returns Err.
func (e *ProviderError) Unwrap() error { return e.Err }

// kindOf says in weir's words why a call failed.
func kindOf(err error) string {
	provider, ok := errors.AsType[*ProviderError](err)
	if ok && provider.Status != 0 {
		return kindOfStatus(provider.Status)
	}
	network, onTheWay := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return wire.ErrorCanceled
	case errors.Is(err, context.DeadlineExceeded) || onTheWay && network.Timeout():
		return wire.ErrorTimeout
	case onTheWay || errors.Is(err, io.ErrUnexpectedEOF):
		return wire.ErrorProvider
	}
	return wire.ErrorOther
}

func kindOfStatus(status int) string {
	switch {
	case status == http.StatusRequestTimeout:
		return wire.ErrorTimeout
	case status == http.StatusTooManyRequests:
		return wire.ErrorRateLimited
	case status >= http.StatusInternalServerError:
		return wire.ErrorProvider
	}
	return wire.ErrorOther
}

// failsForNow reports whether a call that failed so can do better the next time.
func failsForNow(kind string) bool {
	return kind == wire.ErrorTimeout || kind == wire.ErrorRateLimited || kind == wire.ErrorProvider
}

// waitOf returns how long a provider asks to wait.
func waitOf(err error) time.Duration {
	provider, ok := errors.AsType[*ProviderError](err)
	if !ok {
		return 0
	}
	return provider.RetryAfter
}
