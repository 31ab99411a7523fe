package wire

// Problem is the body of every answer that is not a success: a problem document as of RFC 9457,
// sent as application/problem+json.
type Problem struct {
	// Type is set with quota-exceeded only; see [TypeQuotaExceeded].
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is for people; what it says may change.
	Detail   string `json:"detail"`
	Instance string `json:"instance"`
	Code     Code   `json:"code"`
	// ViolatedPolicies names, on a denial, the limit that said no.
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	// NewIDRequired says that the id of this request will be answered so for ever.
	NewIDRequired bool `json:"new_id_required,omitempty"`
	// Limit is the limit that the problem is about, if it is about one.
	Limit string `json:"limit,omitempty"`
	// Free is, for quota-in-use, how much could be revoked.
	Free *Amount `json:"free,omitempty"`
	// Ledger is, for not-ready, "up" or "down".
	Ledger string `json:"ledger,omitempty"`
	// Gate is set where a credit gate blocks. In JSON its members stand beside the problem's own.
	*Gate
	// Decision is set on denials. In JSON its members stand beside the problem's own, which take the
	// place of those of the same name.
	*Decision
}

// ProblemType is the media type of a [Problem].
const ProblemType = "application/problem+json"

// TypeQuotaExceeded is the type of a denial, from draft-ietf-httpapi-ratelimit-headers-11.
const TypeQuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// Code says, for machines, why a request did not succeed. Codes are a published promise.
type Code string

// The codes of a [Problem].
const (
	CodeBadRequest         Code = "bad-request"
	CodeUnauthorized       Code = "unauthorized"
	CodeCreditsExhausted   Code = "credits-exhausted"
	CodeAdminDisabled      Code = "admin-disabled"
	CodeMoneyDisabled      Code = "money-disabled"
	CodeUnknownLimit       Code = "unknown-limit"
	CodeAccountUnknown     Code = "account-unknown"
	CodeReservationUnknown Code = "reservation-unknown"
	CodeNotFound           Code = "not-found"
	CodeMethodNotAllowed   Code = "method-not-allowed"
	CodeIDExpired          Code = "id-expired"
	CodeReservationClosed  Code = "reservation-closed"
	CodeBodyTooLarge       Code = "body-too-large"
	CodeCostExceedsQuota   Code = "cost-exceeds-quota"
	CodeIDConflict         Code = "id-conflict"
	CodeInsufficientFunds  Code = "insufficient-funds"
	CodeQuotaInUse         Code = "quota-in-use"
	CodeQuotaTooLarge      Code = "quota-too-large"
	CodeQuotaExceeded      Code = "quota-exceeded"
	CodeInternal           Code = "internal"
	CodeBusy               Code = "busy"
	CodeLedgerUnavailable  Code = "ledger-unavailable"
	CodeNotReady           Code = "not-ready"
)

// Meaning is what a code stands for. The server reads it from the code to the status, the client
// the other way.
type Meaning struct {
	Code   Code
	Status int
	// Title is the status phrase of RFC 9110; only a denial has a type of its own, and so a title
	// (RFC 9457, section 4.2.1).
	Title string
	// RetryAfterSeconds is what Retry-After says. 0 means that there is none, except on a denial,
	// which works it out.
	RetryAfterSeconds int
	// SameID says whether the same id may be sent again, once the cause is gone. Where an answer
	// says new_id_required, or that the id was not recorded, that counts.
	SameID bool
}

// tidy:table every code, by status
var meanings = []Meaning{
	{CodeBadRequest, 400, "Bad Request", 0, true},
	{CodeUnauthorized, 401, "Unauthorized", 0, true},
	{CodeCreditsExhausted, 402, "Payment Required", 0, false},
	{CodeAdminDisabled, 403, "Forbidden", 0, true},
	{CodeMoneyDisabled, 403, "Forbidden", 0, true},
	{CodeUnknownLimit, 404, "Not Found", 0, true},
	{CodeAccountUnknown, 404, "Not Found", 0, true},
	{CodeReservationUnknown, 404, "Not Found", 0, true},
	{CodeNotFound, 404, "Not Found", 0, true},
	{CodeMethodNotAllowed, 405, "Method Not Allowed", 0, true},
	{CodeIDExpired, 409, "Conflict", 0, false},
	{CodeReservationClosed, 409, "Conflict", 0, false},
	{CodeBodyTooLarge, 413, "Content Too Large", 0, true},
	{CodeCostExceedsQuota, 422, "Unprocessable Content", 0, true},
	{CodeIDConflict, 422, "Unprocessable Content", 0, false},
	{CodeInsufficientFunds, 422, "Unprocessable Content", 0, false},
	{CodeQuotaInUse, 422, "Unprocessable Content", 0, true},
	{CodeQuotaTooLarge, 422, "Unprocessable Content", 0, true},
	{CodeQuotaExceeded, 429, "Request cannot be satisfied as assigned quota has been exceeded", 0,
		false},
	{CodeInternal, 500, "Internal Server Error", 0, true},
	{CodeBusy, 503, "Service Unavailable", 1, true},
	{CodeLedgerUnavailable, 503, "Service Unavailable", 1, true},
	{CodeNotReady, 503, "Service Unavailable", 1, true},
}

// Meanings returns what every code stands for, by status. The slice is the caller's.
func Meanings() []Meaning { return append([]Meaning(nil), meanings...) }

// MeaningOf returns what a code stands for, and false for one that this package does not know.
func MeaningOf(code Code) (Meaning, bool) {
	for _, m := range meanings {
		if m.Code == code {
			return m, true
		}
	}
	return Meaning{}, false
}
