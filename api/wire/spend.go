package wire

import "unicode/utf8"

// Where a call to a model goes, as an authorization says, or how it ended, as a settlement does.
const (
	// RouteModel is the model: the call may be made, or was made and answered.
	RouteModel = "model"
	// RouteFallback is the caller's own fallback: the budget is closed, or the model was not asked.
	RouteFallback = "fallback"
	// RouteError says that the model was asked and failed.
	RouteError = "error"
)

// Why an [Authorization] has the route fallback. Tokens are counted first.
const (
	ReasonTokens = "token-budget"
	ReasonUSD    = "usd-budget"
)

// SpendRequest asks whether a call to a model may be made on a budget, and reserves what it may
// cost.
type SpendRequest struct {
	Budget  string `json:"budget"`
	Subject string `json:"subject"`
	// Model is one of those that the server has prices of.
	Model string `json:"model"`
	// InputText or InputTokens says how much goes into the model; a text counts as [EstimateTokens] of
	// it. With both, InputTokens count. A body has at most 64 KiB.
	InputText   string  `json:"input_text,omitempty"`
	InputTokens *Amount `json:"input_tokens,omitempty"`
	// MaxOutputTokens is the most that the call is allowed to put out, required.
	MaxOutputTokens *Amount `json:"max_output_tokens"`
	// ID names this call, at most 255 bytes: sent again it is reserved once and answered the same.
	ID string `json:"id,omitempty"`
}

// EstimateTokens returns a token for every four characters of a text, rounded up.
func EstimateTokens(text string) uint64 {
	return (uint64(utf8.RuneCountInString(text)) + 3) / 4
}

// Spend is an amount of tokens and what they cost, in USD with six decimal places.
type Spend struct {
	Tokens Amount `json:"tokens"`
	USD    Amount `json:"usd"`
}

// Authorization is the answer to a [SpendRequest]. That the budget is closed is an answer too.
type Authorization struct {
	// Route is RouteModel or RouteFallback.
	Route string `json:"route"`
	// Reason is why Route is RouteFallback, else empty.
	Reason string `json:"reason,omitempty"`
	// Transfer is the receipt that the call is settled by, 32 hex digits; empty with RouteFallback.
	Transfer string `json:"transfer,omitempty"`
	// Replayed says that the id was decided before and this is its answer again.
	Replayed bool `json:"replayed"`
	// At is the ledger's time of the answer.
	At Time `json:"at"`
	// ExpiresAt is when what is reserved comes back by itself; nil with RouteFallback.
	ExpiresAt *Time `json:"expires_at,omitempty"`
	// Reserved is the estimate that is held, zero with RouteFallback.
	Reserved Spend `json:"reserved"`
	// Remaining is what is free now, the part past which the budget closes included; nil where it was
	// not read.
	Remaining *Spend `json:"remaining,omitempty"`
	// ReopensAt is, with RouteFallback, when a call of this size can pass; nil where waiting does not
	// help or the time is not known.
	ReopensAt *Time `json:"reopens_at,omitempty"`
}

// SpendUsage says how an authorized call ended. What the provider reported counts; what is left out
// is estimated from the reservation: all of it, and of a failed call its input only. Of a call that
// was not made, which is RouteFallback, nothing is booked but what is given.
type SpendUsage struct {
	// Route is RouteModel, RouteFallback or RouteError.
	Route string `json:"route"`
	// CachedTokens are those of InputTokens that the provider had in its cache.
	InputTokens  *Amount `json:"input_tokens,omitempty"`
	OutputTokens *Amount `json:"output_tokens,omitempty"`
	CachedTokens *Amount `json:"cached_tokens,omitempty"`
	// USD is what the provider charged, a decimal string with at most six decimal places; nil has it
	// worked out from the tokens.
	USD *Amount `json:"usd,omitempty"`
	// Error says why a call failed: timeout, rate-limited, provider-error, canceled or other. Empty
	// with RouteModel.
	Error string `json:"error,omitempty"`
}

// Why a call failed, as [SpendUsage] says it.
const (
	ErrorTimeout     = "timeout"
	ErrorRateLimited = "rate-limited"
	ErrorProvider    = "provider-error"
	ErrorCanceled    = "canceled"
	ErrorOther       = "other"
)

// SpendSettlement is the answer to a [SpendUsage] and to a [CorrectionRequest].
type SpendSettlement struct {
	// Transfer is the receipt.
	Transfer string `json:"transfer"`
	// Replayed says that the same was done before and this is its answer again.
	Replayed bool `json:"replayed"`
	// Late says that what was reserved had come back by itself before it was settled.
	Late bool `json:"late"`
	// Estimated says that the tokens or the cost were not all reported.
	Estimated bool   `json:"estimated"`
	Route     string `json:"route"`
	// Reserved is what was held, and Booked what the call turned out to take.
	Reserved Spend `json:"reserved"`
	Booked   Spend `json:"booked"`
	// Overage is the part of Booked that the budget did not have.
	Overage Spend `json:"overage"`
	// Remaining is today's; nil where it was not read.
	Remaining *Spend `json:"remaining,omitempty"`
}

// CorrectionRequest says what a settled call really took, in place of what was booked. The entries
// that were made stay; others take their place.
type CorrectionRequest struct {
	// Transfer is the receipt of the call.
	Transfer string `json:"transfer"`
	// SpendUsage is the usage in full: what is left out is estimated as it is in a settlement.
	SpendUsage
	// ID names the correction, required, at most 255 bytes: sent again it is made once.
	ID string `json:"id"`
}

// What a [SpendEvent] tells.
const (
	EventAuthorize  = "authorize"
	EventSettle     = "settle"
	EventClosed     = "closed"
	EventCorrection = "correction"
)

// SpendEvent is one line of a budget's day.
type SpendEvent struct {
	// At is the ledger's time; no two events of a subject share one.
	At    Time   `json:"at"`
	Event string `json:"event"`
	// Transfer is the receipt of the call; empty of EventClosed.
	Transfer string `json:"transfer,omitempty"`
	Route    string `json:"route"`
	// Reason is why the route is fallback or error, if it is.
	Reason string `json:"reason,omitempty"`
	// Model is the name that its number has in the server's price table today, or the number.
	Model string `json:"model,omitempty"`
	// InputTokens, OutputTokens and CachedTokens, which are a part of InputTokens, and USD are what
	// was reserved or booked; of a correction, what then is booked. They are 0 of EventClosed.
	InputTokens  uint64 `json:"input_tokens"`
	OutputTokens uint64 `json:"output_tokens"`
	CachedTokens uint64 `json:"cached_tokens"`
	USD          Amount `json:"usd"`
	// Estimated and Late are as in a [SpendSettlement].
	Estimated bool `json:"estimated,omitempty"`
	Late      bool `json:"late,omitempty"`
	// ExpiresAt is, of EventAuthorize, when what is reserved comes back unless it is settled.
	ExpiresAt *Time `json:"expires_at,omitempty"`
	// Count is, of EventClosed, how many calls were turned away since the last such event.
	Count uint64 `json:"count,omitempty"`
}

// SpendJournal is a page of the events of a subject on a budget in one day, oldest first.
type SpendJournal struct {
	Budget  string `json:"budget"`
	Subject string `json:"subject"`
	// From and To bound the day, on the clocks of the budget's time zone.
	From   Time         `json:"from"`
	To     Time         `json:"to"`
	Events []SpendEvent `json:"events"`
	// Cursor asks for the next page; empty on the last one. Its form may change.
	Cursor string `json:"cursor,omitempty"`
}
