package client

import (
	"errors"
	"fmt"
	"time"

	"weir/api/wire"
)

var (
	// ErrBaseURL is returned by New for what is not the http or https URL of a server.
	ErrBaseURL = errors.New("want a URL such as http://127.0.0.1:8080")
	// ErrNotUTF8 is returned for a subject or an id that is not UTF-8; nothing was sent.
	ErrNotUTF8 = errors.New("want UTF-8")
	// ErrNoID is returned for usage without an id: sent again, it would be booked again.
	ErrNoID = errors.New("want an id")
	// ErrUnknownBalance is what a gate of [Client.NewGate] logs where the server does not know a
	// balance either.
	ErrUnknownBalance = errors.New("weir does not know the balance")
	// ErrNoAnswer is returned where nobody answered, or not to the end. What became of the call is
	// not known.
	ErrNoAnswer = errors.New("no answer from weir")
	// ErrAnswerTooLarge is returned where an answer has more bytes than any of weir's has.
	ErrAnswerTooLarge = errors.New("the answer is too large")
	// ErrNoDecision is what a middleware is told of where a success has no admission in it.
	ErrNoDecision = errors.New("the answer is no decision")
	// ErrResults is returned where a batch was not answered with one result for each check.
	ErrResults = errors.New("want a result for each")

	// errPanicked is why a call failed whose function did not return.
	errPanicked = errors.New("the function did not return")
)

// Error is what a server said instead of an answer.
type Error struct {
	// Code says why, for machines. It is empty where the answer was not weir's, but that of something
	// in between.
	Code   wire.Code
	Status int
	// Detail is for people.
	Detail string
	// Limit is the limit that the error is about, if it is about one.
	Limit string
	// RetryAfter is how long to wait before asking again, 0 where the server did not say.
	RetryAfter time.Duration
	// NewIDRequired says that the id of this call will be answered so for ever.
	NewIDRequired bool
	// Free is, for wire.CodeQuotaInUse, how much could be revoked.
	Free wire.Amount

	denial *wire.Decision
}

// Error returns the status, the code and the detail.
func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("weir: status %d: %s", e.Status, e.Detail)
	}
	return fmt.Sprintf("weir: %d %s: %s", e.Status, e.Code, e.Detail)
}

// SameID says whether the call may be sent again with the same id, once its cause is gone. It is so
// for an answer that was not weir's: the id tells what became of the call.
func (e *Error) SameID() bool {
	if e.NewIDRequired {
		return false
	}
	meaning, known := wire.MeaningOf(e.Code)
	return !known || meaning.SameID
}

// isDenial reports whether the server decided, and said no.
func (e *Error) isDenial() bool {
	return e.denial != nil &&
		(e.Code == wire.CodeQuotaExceeded || e.Code == wire.CodeCreditsExhausted)
}
