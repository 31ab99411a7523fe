package limiter

import (
	"context"
	"errors"
	"fmt"

	"weir/accounts"
	"weir/ledgers"
)

// Code says, for machines, why a request was not decided. Codes are a published promise.
type Code string

// The codes of an [Error].
const (
	// CodeBadRequest: the request is malformed. Nothing was changed.
	CodeBadRequest Code = "bad-request"
	// CodeUnknownLimit: no limit has this name.
	CodeUnknownLimit Code = "unknown-limit"
	// CodeCostExceedsQuota: the cost is above the subject's whole quota and can never pass.
	CodeCostExceedsQuota Code = "cost-exceeds-quota"
	// CodeIDConflict: the id was used for another request.
	CodeIDConflict Code = "id-conflict"
	// CodeIDExpired: the id was admitted, and its window is over.
	CodeIDExpired Code = "id-expired"
	// CodeReservationClosed: the id was admitted, and what it took was given back or settled.
	CodeReservationClosed Code = "reservation-closed"
	// CodeReservationUnknown: the receipt is nobody's, or the reservation is forgotten by now.
	CodeReservationUnknown Code = "reservation-unknown"
	// CodeQuotaInUse: less is free than was to be revoked.
	CodeQuotaInUse Code = "quota-in-use"
	// CodeQuotaTooLarge: the quota would pass accounts.MaxQuota, or the money accounts.MaxMoney.
	CodeQuotaTooLarge Code = "quota-too-large"
	// CodeInsufficientFunds: the account that pays has too little money.
	CodeInsufficientFunds Code = "insufficient-funds"
	// CodeAccountUnknown: the subject was never given money of the asset. No id is spent.
	CodeAccountUnknown Code = "account-unknown"
	// CodeBusy: too many calls wait for the ledger. Nothing was changed.
	CodeBusy Code = "busy"
	// CodeLedgerUnavailable: the ledger did not answer; whether it will do what was asked is unknown.
	CodeLedgerUnavailable Code = "ledger-unavailable"
	// CodeInternal: a fault of weir or of its data. The cause is for the log, not for the caller.
	CodeInternal Code = "internal"
)

var (
	// ErrLimit is wrapped by the error of a limit that cannot be; see [LimitError].
	ErrLimit = errors.New("limit refused")
	// ErrSpoolFull says that a spool has no place for an entry. What it stood for is counted as
	// dropped.
	ErrSpoolFull = errors.New("the spool is full")
	// ErrSpoolInUse is wrapped by OpenSpool where another process has the directory open.
	ErrSpoolInUse = errors.New("another process has this spool open")
)

// Error says why a request was not decided.
type Error struct {
	Code Code
	// Detail is for people and safe to send to the caller.
	Detail string
	// Limit is the limit that the error is about, if it is about one.
	Limit string
	// Free is, for CodeQuotaInUse, how much can be revoked.
	Free uint64
	// NewIDRequired says that this id will be answered so for ever.
	NewIDRequired bool

	cause error
}

// Error returns the code, the detail and the cause.
func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Detail, e.cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Detail)
}

// Unwrap returns what caused the error, for the log.
func (e *Error) Unwrap() error { return e.cause }

func badRequest(format string, args ...any) *Error {
	return &Error{Code: CodeBadRequest, Detail: fmt.Sprintf(format, args...)}
}

// failure turns an error of the books into the one that callers see.
func failure(err error) *Error {
	switch {
	case errors.Is(err, ledgers.ErrBusy), errors.Is(err, accounts.ErrContended):
		return &Error{Code: CodeBusy, Detail: "too many calls wait for the ledger", cause: err}
	case errors.Is(err, accounts.ErrFarBehind):
		return &Error{
			Code: CodeReservationUnknown, cause: err,
			Detail: "the reservation was renewed too often since: the newest receipt is wanted",
		}
	case errors.Is(err, accounts.ErrStatus):
		return &Error{Code: CodeInternal, Detail: "the ledger gave an unexpected answer", cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{
			Code: CodeLedgerUnavailable, Detail: "the ledger did not answer in time", cause: err,
		}
	default:
		return &Error{Code: CodeLedgerUnavailable, Detail: "the ledger did not answer", cause: err}
	}
}

// undecided is the error of a write that failed, and says what is known of it.
func undecided(cause error, id string) *Error {
	e := failure(cause)
	switch {
	case e.Code != CodeLedgerUnavailable:
	case id == "":
		e.Detail += ": the request was not decided; what it may have taken comes back"
	default:
		e.Detail += ": whether the request took effect is unknown; the same id, sent again, will tell"
	}
	return e
}
